//! Plays a scenario: makes tables, calls `windrow`, changes tables as others do, and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, new_null_array};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::prelude::SessionContext;

use super::expect;
use super::read::{Step, arguments, steps};
use crate::foreign::{Alteration, Hand, alter, update_with_changes};
use crate::lake::{Column, Lake, NewTable, arrow_schema, batches, files, query, register};
use crate::pipeline::{Pipeline, STORAGE, target};
use crate::{Outcome, cells, python, words};

/// The clock of all calls, unless a scenario sets another.
const NOW: &str = "2026-03-10T12:00:00Z";

/// Where a scenario is played.
pub enum Ground {
    /// In a temporary folder.
    Folder,
    /// In a lake that is there.
    Lake(Lake),
}

/// Plays `AREA/NAME`. A failure begins with the file and the line.
pub async fn play(name: &str, ground: Ground) -> Outcome {
    let path = super::folder().join(format!("{name}.test"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let steps = steps(&text).map_err(|e| format!("{name}.test: {e}"))?;
    let scratch = tempfile::tempdir().map_err(words)?;
    let lake = match ground {
        Ground::Folder => Lake::folder(&scratch.path().join("lake"))?,
        Ground::Lake(lake) => lake,
    };
    lake.store()?;
    let folder = scratch.path().join("pipeline");
    std::fs::create_dir_all(&folder).map_err(words)?;
    let mut player = Player {
        pipeline: Pipeline::new(&folder, lake),
        now: NOW.into(),
        before: BTreeMap::new(),
        hand: Hand::default(),
        runs: 0,
        comparisons: 0,
    };
    for step in &steps {
        player.step(step).await.map_err(|e| {
            format!(
                "{name}.test:{}: {} {}: {e}",
                step.line, step.verb, step.rest
            )
        })?;
    }
    if player.runs == 0 || player.comparisons == 0 {
        return Err(format!("{name}.test: it runs or compares nothing"));
    }
    Ok(())
}

struct Player {
    pipeline: Pipeline,
    now: String,
    /// Versions of the targets before the last call.
    before: BTreeMap<String, u64>,
    hand: Hand,
    runs: usize,
    comparisons: usize,
}

impl Player {
    async fn step(&mut self, step: &Step) -> Outcome {
        match step.verb.as_str() {
            "run" | "plan" | "validate" | "vacuum" | "verify" | "backfill" => self.call(step).await,
            "rows" | "query" | "same" | "columns" | "details" | "absent" | "commits"
            | "history" | "unchanged" | "live" | "event" | "sound" => {
                self.comparisons += 1;
                self.check(step).await
            }
            _ => self.act(step).await,
        }
    }

    fn lake(&self) -> &Lake {
        &self.pipeline.lake
    }

    // -- making and changing

    async fn act(&mut self, step: &Step) -> Outcome {
        let (table, rest) = step.rest.split_once(' ').unwrap_or((&step.rest, ""));
        let place = self.pipeline.place(table);
        match step.verb.as_str() {
            "table" => {
                let place = match table.split('.').collect::<Vec<_>>().as_slice() {
                    [_, _, _] => format!("lake/{}", table.replace('.', "/")),
                    _ => format!("src/{table}"),
                };
                self.pipeline
                    .sources
                    .insert(table.to_string(), place.clone());
                self.make(&place, rest, step).await
            }
            "recreate" => {
                self.wipe(&place).await?;
                self.make(&place, rest, step).await
            }
            "drop" => self.wipe(&place).await,
            "pipeline" => {
                if step.rest.is_empty() {
                    self.pipeline.files.clear();
                }
                let name = if step.rest.is_empty() {
                    "pipeline.sql"
                } else {
                    &step.rest
                };
                self.pipeline.files.insert(name.to_string(), step.text());
                Ok(())
            }
            "keys" => {
                self.pipeline.keys = step.text();
                if !step.rest.is_empty() {
                    let _ =
                        std::fs::remove_file(self.pipeline.folder.join(&self.pipeline.file_name));
                    self.pipeline.file_name = step.rest.clone();
                }
                Ok(())
            }
            "now" => {
                self.now = step.rest.clone();
                Ok(())
            }
            "append" => {
                let rows = self.rows_of(&place, step).await?;
                self.lake().append(&place, rows).await
            }
            "overwrite" => {
                let rows = self.rows_of(&place, step).await?;
                self.lake().overwrite(&place, rows).await
            }
            "delete" => self.lake().delete(&place, condition(rest)?).await,
            "update" | "change" => {
                let set = step
                    .lines()
                    .map(|line| {
                        let (column, value) = line
                            .split_once('=')
                            .ok_or(format!("`{line}` sets nothing"))?;
                        Ok((column.trim().to_string(), value.trim().to_string()))
                    })
                    .collect::<Outcome<Vec<_>>>()?;
                let condition = condition(rest)?;
                match step.verb.as_str() {
                    "change" => update_with_changes(self.lake(), &place, &set, condition).await,
                    _ => self.lake().update(&place, &set, condition).await,
                }
            }
            "soft-delete" => {
                let condition = condition(rest)?.ok_or("it needs a condition")?;
                self.hand
                    .soft_delete(&self.pipeline.lake, &place, condition)
                    .await
            }
            "alter" => foreign_alter(self.lake(), &place, rest).await,
            "optimize" => {
                let order = rest.strip_prefix("by ").map(names).unwrap_or_default();
                let gone = self.lake().optimize(&place, &order).await?;
                if gone == 0 && rest != "if needed" {
                    return Err("there was nothing to rearrange".into());
                }
                Ok(())
            }
            "restore" => {
                let version = rest
                    .strip_prefix("to ")
                    .and_then(|v| v.parse().ok())
                    .ok_or("restore T to VERSION")?;
                self.lake().restore(&place, version).await
            }
            "keep" => self.replace_folder(&format!("kept/{place}"), &place).await,
            "bring-back" => self.replace_folder(&place, &format!("kept/{place}")).await,
            "checkpoint" => self.lake().checkpoint(&place).await,
            "expire" => self.expire(&place).await,
            "forget-changes" => {
                let folder = format!("{place}/_change_data");
                let gone = self.lake().objects(&folder).await?;
                for path in gone.keys() {
                    self.lake().remove(path).await?;
                }
                if gone.is_empty() {
                    return Err("there were no change data".into());
                }
                Ok(())
            }
            "clean" => self.lake().vacuum(&place).await,
            verb => Err(format!("`{verb}` is no step")),
        }
    }

    /// `partitioned by A, B` and `with K=V, K=V` follow the name; the body begins with the columns.
    async fn make(&self, place: &str, rest: &str, step: &Step) -> Outcome {
        let (partitions, properties) = match rest.split_once("with ") {
            Some((partitions, properties)) => (partitions.trim(), properties),
            None => (rest, ""),
        };
        let new = NewTable {
            columns: cells::split(
                step.lines()
                    .next()
                    .ok_or("the first line names the columns")?,
            )
            .iter()
            .map(|text| column(text))
            .collect::<Outcome<Vec<_>>>()?,
            partitioned_by: partitions
                .strip_prefix("partitioned by ")
                .map(names)
                .unwrap_or_default(),
            properties: names(properties)
                .iter()
                .map(|p| {
                    p.split_once('=')
                        .map(|(k, v)| (k.to_string(), v.to_string()))
                        .ok_or("K=V")
                })
                .collect::<Result<_, _>>()?,
        };
        let schema = arrow_schema(&self.lake().create(place, &new).await?)?;
        let columns: Vec<String> = new.columns.iter().map(|c| c.name.clone()).collect();
        let rows = read_rows(&columns, &step.lines().skip(1).collect::<Vec<_>>(), &schema).await?;
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.lake().append(place, rows).await
    }

    async fn rows_of(&self, place: &str, step: &Step) -> Outcome<RecordBatch> {
        let schema = self.lake().schema(place).await?;
        let lines: Vec<&str> = step.lines().collect();
        let first = *lines
            .first()
            .ok_or("it needs a line with columns, or a SELECT")?;
        if is_select(first) {
            return read_rows(&[], &lines, &schema).await;
        }
        read_rows(&cells::split(first), &lines[1..], &schema).await
    }

    async fn wipe(&self, place: &str) -> Outcome {
        for path in self.lake().objects(place).await?.keys() {
            self.lake().remove(path).await?;
        }
        Ok(())
    }

    /// What lies in one folder, file by file, in the place of another.
    async fn replace_folder(&self, to: &str, from: &str) -> Outcome {
        self.wipe(to).await?;
        for path in self.lake().objects(from).await?.keys() {
            let rest = path.strip_prefix(from).ok_or("it lies elsewhere")?;
            let bytes = self.lake().read(path).await?;
            self.lake().write(&format!("{to}{rest}"), bytes).await?;
        }
        Ok(())
    }

    /// Leaves only a checkpoint of the newest version in the log, as log clean-up does.
    async fn expire(&self, place: &str) -> Outcome {
        self.lake().checkpoint(place).await?;
        let newest = self
            .lake()
            .versions(place)
            .await?
            .get(place)
            .copied()
            .ok_or("there is no log")?;
        for path in self
            .lake()
            .objects(&format!("{place}/_delta_log"))
            .await?
            .keys()
        {
            let name = path.rsplit('/').next().unwrap_or_default();
            let version = name.split('.').next().and_then(|v| v.parse::<u64>().ok());
            if version.is_some_and(|v| v < newest) {
                self.lake().remove(path).await?;
            }
        }
        Ok(())
    }

    // -- calls

    async fn call(&mut self, step: &Step) -> Outcome {
        self.runs += 1;
        let before = self.lake().objects(STORAGE).await?;
        self.before = self.lake().versions(STORAGE).await?;
        let mut options = arguments(&step.rest.replace("{dir}", &self.pipeline.dir()));
        let has_clock = !matches!(step.verb.as_str(), "vacuum" | "verify");
        if !options.iter().any(|o| o == "--now") && has_clock {
            options.extend(["--now".into(), self.now.clone()]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let ended = self.pipeline.call(&step.verb, &options).await?;
        expect::call(&ended, &step.verb, &step.lines().collect::<Vec<_>>())?;
        let writes = matches!(step.verb.as_str(), "run" | "vacuum" | "backfill");
        let only_looks = options.contains(&"--dry-run") || options.first() == Some(&"list");
        let may_write = writes && !only_looks && ended.exit != Some(2);
        if !may_write {
            let after = self.lake().objects(STORAGE).await?;
            if after != before {
                let new: Vec<&String> = after.keys().filter(|k| !before.contains_key(*k)).collect();
                return Err(format!("nothing may be written, but there are {new:?}"));
            }
        }
        Ok(())
    }

    // -- checks

    async fn check(&self, step: &Step) -> Outcome {
        let (table, rest) = step.rest.split_once(' ').unwrap_or((&step.rest, ""));
        let place = self.pipeline.place(table);
        match step.verb.as_str() {
            "rows" => self.rows(&place, rest, step).await,
            "query" => self.query(step).await,
            "same" => {
                let (one, other) = (
                    self.lake().all_rows(&place).await?,
                    self.lake().all_rows(&target(rest)).await?,
                );
                cells::difference(&one, &other).map_or(Ok(()), Err)
            }
            "columns" => self.columns(&place, step).await,
            "details" => self.details(&place, step).await,
            "absent" => match self.lake().versions(&place).await?.is_empty() {
                true => Ok(()),
                false => Err("there is such a table".into()),
            },
            "commits" => {
                let newest = self
                    .lake()
                    .versions(&place)
                    .await?
                    .get(&place)
                    .map_or(0, |v| v + 1);
                let made = newest - self.before.get(&place).map_or(0, |v| v + 1);
                if made.to_string() == rest {
                    Ok(())
                } else {
                    Err(format!("the last call made {made}"))
                }
            }
            "history" => self.history(&place, rest).await,
            "unchanged" => {
                self.unchanged(&place, condition(rest)?.ok_or("it needs a condition")?)
                    .await
            }
            "live" => self.live(&place).await,
            "event" => self.event(step).await,
            _ => self.sound(step),
        }
    }

    async fn rows(&self, place: &str, rest: &str, step: &Step) -> Outcome {
        let table = match rest {
            "" => self.lake().open(place).await?,
            "before" => {
                let version = self
                    .before
                    .get(place)
                    .ok_or("there was no such table before the last call")?;
                self.lake().open_at(place, *version).await?
            }
            version => {
                let number = version.strip_prefix("at ").and_then(|v| v.parse().ok());
                self.lake()
                    .open_at(
                        place,
                        number.ok_or("rows T, rows T before, rows T at VERSION")?,
                    )
                    .await?
            }
        };
        let lines: Vec<&str> = step.lines().collect();
        let columns = cells::split(lines.first().ok_or("the first line names the columns")?);
        let (types, found) = self.lake().rows(&table, &columns).await?;
        compare(&types, &found, &lines[1..])
    }

    /// The first lines are a SELECT, rows follow below a line of dashes.
    async fn query(&self, step: &Step) -> Outcome {
        let lines: Vec<&str> = step.lines().collect();
        let bar = lines
            .iter()
            .position(|l| l.starts_with("---"))
            .ok_or("a line of dashes ends the SELECT")?;
        let sql = lines[..bar].join(" ");
        let context = SessionContext::new();
        let targets = self
            .lake()
            .versions(STORAGE)
            .await?
            .into_keys()
            .filter_map(|place| {
                let name = place.strip_prefix(&target(""))?.to_string();
                Some((name, place))
            });
        let sources = self
            .pipeline
            .sources
            .iter()
            .map(|(n, p)| (n.clone(), p.clone()));
        for (name, place) in targets.chain(sources) {
            if sql.contains(&name) {
                register(&context, &name, &self.lake().open(&place).await?).await?;
            }
        }
        let (types, found) = query(&context, &sql).await?;
        compare(&types, &found, &lines[bar + 1..])
    }

    async fn columns(&self, place: &str, step: &Step) -> Outcome {
        let table = self.lake().open(place).await?;
        let schema = table.snapshot().map_err(words)?.schema();
        let found: Vec<String> = schema
            .fields()
            .map(|f| {
                let data_type = serde_json::to_value(f.data_type()).map_err(words)?;
                let name = data_type
                    .as_str()
                    .map_or_else(|| data_type["type"].to_string(), sql_type);
                Ok(format!(
                    "{} {name}{}",
                    f.name(),
                    if f.is_nullable() { "" } else { " NOT NULL" }
                ))
            })
            .collect::<Outcome<_>>()?;
        let wanted: Vec<&str> = step.lines().collect();
        if found == wanted {
            Ok(())
        } else {
            Err(format!("they are\n    {}", found.join("\n    ")))
        }
    }

    async fn details(&self, place: &str, step: &Step) -> Outcome {
        let table = self.lake().open(place).await?;
        let metadata = table.snapshot().map_err(words)?.metadata();
        for line in step.lines() {
            let holds = if let Some(columns) = line.strip_prefix("partitioned by ") {
                *metadata.partition_columns() == names(columns)
            } else if let Some(text) = line.strip_prefix("comment ") {
                metadata.description() == Some(text)
            } else if let Some((key, value)) = line
                .strip_prefix("property ")
                .and_then(|p| p.split_once(" = "))
            {
                metadata
                    .configuration()
                    .get(key)
                    .is_some_and(|v| v == value)
            } else if let Some(count) = line.strip_prefix("files ") {
                files(&table)?.len().to_string() == count
            } else {
                return Err(format!("`{line}` is no detail that the runner knows"));
            };
            if !holds {
                return Err(format!(
                    "`{line}` does not hold: {metadata:?}, {} files",
                    files(&table)?.len()
                ));
            }
        }
        Ok(())
    }

    /// `at least N rows`, in every version that the last call made.
    async fn history(&self, place: &str, rest: &str) -> Outcome {
        let least = rest
            .split_whitespace()
            .nth(2)
            .and_then(|n| n.parse::<usize>().ok())
            .ok_or("at least N rows")?;
        let newest = self
            .lake()
            .versions(place)
            .await?
            .get(place)
            .copied()
            .ok_or("there is no table")?;
        let first = self.before.get(place).map_or(0, |v| v + 1);
        for version in first..=newest {
            let table = self.lake().open_at(place, version).await?;
            let rows = self.lake().rows(&table, &[]).await?.1.len();
            if rows < least {
                return Err(format!("version {version} has {rows} rows"));
            }
        }
        Ok(())
    }

    /// Each file of the version before the last call, all of whose rows satisfy the condition, is
    /// still there. There must be one.
    async fn unchanged(&self, place: &str, condition: &str) -> Outcome {
        let version = self
            .before
            .get(place)
            .ok_or("there was no such table before the last call")?;
        let old = self.lake().open_at(place, *version).await?;
        let context = SessionContext::new();
        let provider = old
            .table_provider()
            .with_file_column("__file")
            .await
            .map_err(words)?;
        context.register_table("t", provider).map_err(words)?;
        let sql = format!(
            "SELECT CAST(__file AS VARCHAR) FROM t GROUP BY __file \
             HAVING count(*) = count(*) FILTER (WHERE ({condition}) IS TRUE)"
        );
        let kept = files(&self.lake().open(place).await?)?;
        let whole = query(&context, &sql).await?.1;
        if whole.is_empty() {
            return Err("before the last call no file had only such rows".into());
        }
        for file in whole.into_iter().flatten().flatten() {
            if !kept
                .iter()
                .any(|k| file.ends_with(k.as_str()) || k.ends_with(file.as_str()))
            {
                return Err(format!("{file} is gone"));
            }
        }
        Ok(())
    }

    /// The data files in the folder are those that the newest version names.
    async fn live(&self, place: &str) -> Outcome {
        let named = files(&self.lake().open(place).await?)?.len();
        let objects = self.lake().objects(place).await?;
        let there: Vec<&String> = objects
            .keys()
            .filter(|p| p.ends_with(".parquet") && !p.contains("/_delta_log/"))
            .collect();
        if there.len() == named {
            Ok(())
        } else {
            Err(format!("{named} files are named, there are {there:#?}"))
        }
    }

    /// `event TYPE [FLOW]`; each line of the body is in the details of one such event.
    async fn event(&self, step: &Step) -> Outcome {
        let (event_type, flow) = step.rest.split_once(' ').unwrap_or((&step.rest, ""));
        let table = self
            .lake()
            .open(&format!("{STORAGE}/system/events"))
            .await?;
        let columns = ["event_type", "origin", "details", "message"].map(str::to_string);
        let events = self.lake().rows(&table, &columns).await?.1;
        let holds = |event: &cells::Row| {
            let texts: Vec<&str> = event
                .iter()
                .map(|c| c.as_deref().unwrap_or_default())
                .collect();
            let of_flow =
                flow.is_empty() || texts[1].contains(&format!("\"flow_name\":\"{flow}\""));
            texts[0] == event_type
                && of_flow
                && step
                    .lines()
                    .all(|l| texts[2].contains(l) || texts[3].contains(l))
        };
        if events.iter().any(holds) {
            Ok(())
        } else {
            Err("there is no such event".into())
        }
    }

    /// `sound TABLES [--option]`: two foreign readers and a replay of the log agree.
    fn sound(&self, step: &Step) -> Outcome {
        let words: Vec<&str> = step.rest.split_whitespace().collect();
        let (options, tables): (Vec<&str>, Vec<&str>) =
            words.into_iter().partition(|w| w.starts_with("--"));
        let uris: Vec<String> = tables
            .iter()
            .map(|t| {
                if *t == "events" {
                    format!("{STORAGE}/system/events")
                } else {
                    self.pipeline.place(t)
                }
            })
            .map(|place| self.lake().location(&place))
            .collect();
        let variables: Vec<(String, String)> = self
            .lake()
            .options
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        python::check_tables(&uris, &options, &variables)
    }
}

async fn foreign_alter(lake: &Lake, place: &str, text: &str) -> Outcome {
    let alteration = match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["rename", old, "to", new] => Alteration::Rename(old.to_string(), new.to_string()),
        ["drop", name] => Alteration::Drop(name.to_string()),
        ["add", name, sql] => Alteration::Add(name.to_string(), delta_type(sql)),
        _ => return Err("rename A to B, drop A, or add A TYPE".into()),
    };
    alter(lake, place, &alteration).await
}

fn compare(
    types: &[datafusion::arrow::datatypes::DataType],
    found: &[cells::Row],
    lines: &[&str],
) -> Outcome {
    let expected = lines
        .iter()
        .map(|line| {
            cells::expected(&cells::split(line), types).map_err(|e| format!("`{line}`: {e}"))
        })
        .collect::<Outcome<Vec<_>>>()?;
    cells::difference(found, &expected).map_or(Ok(()), Err)
}

fn is_select(line: &str) -> bool {
    line.starts_with("SELECT ") || line.starts_with("VALUES ")
}

/// Rows as cells, or as the result of a SELECT, in the columns of a table.
async fn read_rows(columns: &[String], lines: &[&str], schema: &SchemaRef) -> Outcome<RecordBatch> {
    if !lines.first().is_some_and(|l| is_select(l)) {
        let rows: Vec<Vec<String>> = lines.iter().map(|l| cells::split(l)).collect();
        return cells::batch(columns, &rows, schema);
    }
    let selected = batches(&SessionContext::new(), &lines.join(" ")).await?;
    let parts = selected
        .iter()
        .map(|part| {
            let arrays: Vec<ArrayRef> = schema
                .fields()
                .iter()
                .map(|field| match part.column_by_name(field.name()) {
                    Some(array) => cells::cast(array, field.data_type()),
                    None => Ok(new_null_array(field.data_type(), part.num_rows())),
                })
                .collect::<Outcome<_>>()?;
            RecordBatch::try_new(Arc::clone(schema), arrays).map_err(words)
        })
        .collect::<Outcome<Vec<_>>>()?;
    concat_batches(schema, &parts).map_err(words)
}

fn condition(rest: &str) -> Outcome<Option<&str>> {
    match rest.strip_prefix("where ") {
        Some(condition) => Ok(Some(condition)),
        None if rest.is_empty() => Ok(None),
        None => Err(format!("`{rest}` is no condition; it begins with `where`")),
    }
}

fn names(list: &str) -> Vec<String> {
    list.split(',')
        .map(|n| n.trim().to_string())
        .filter(|n| !n.is_empty())
        .collect()
}

/// `NAME TYPE [NOT NULL]`; the name may have blanks.
fn column(text: &str) -> Outcome<Column> {
    let (text, nullable) = match text.strip_suffix(" NOT NULL") {
        Some(text) => (text, false),
        None => (text, true),
    };
    let (name, sql) = text
        .rsplit_once(' ')
        .ok_or(format!("`{text}` is no NAME TYPE"))?;
    Ok(Column {
        name: name.trim().to_string(),
        delta_type: delta_type(sql),
        nullable,
    })
}

const TYPES: [(&str, &str); 4] = [
    ("BIGINT", "long"),
    ("INT", "integer"),
    ("SMALLINT", "short"),
    ("TINYINT", "byte"),
];

fn delta_type(sql: &str) -> String {
    TYPES
        .iter()
        .find(|(s, _)| *s == sql)
        .map_or_else(|| sql.to_lowercase(), |(_, d)| d.to_string())
}

fn sql_type(delta: &str) -> String {
    TYPES
        .iter()
        .find(|(_, d)| *d == delta)
        .map_or_else(|| delta.to_uppercase(), |(s, _)| s.to_string())
}
