//! Plays a history: other writers change tables, Windrow updates its targets, and after each update
//! every target is compared with one that is made from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, NaiveDate, Utc};
use datafusion::arrow::array::RecordBatch;
use datafusion::prelude::SessionContext;
use windrow_flows::fault::Fault;
use windrow_flows::refresh::Technique;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::report::{FlowStatus, UpdateReport};
use windrow_scheduler::update::UpdateOptions;

use super::history::{History, Special, clock};
use super::predicate::Predicate;
use super::tables::Event;
use crate::foreign::{Hand, update_with_changes};
use crate::inside::{self, Rows, told};
use crate::lake::{Column, Lake, NewTable, arrow_schema, batches, quoted, register};
use crate::pipeline::target;
use crate::{Outcome, cells, words};

/// What was seen, over all histories.
#[derive(Debug, Default)]
pub struct Seen {
    pub updates: usize,
    pub flows: usize,
    pub techniques: BTreeMap<String, usize>,
    pub reasons: BTreeMap<String, usize>,
    /// Flows whose change was read from change data.
    pub by_change_data: usize,
    /// Flows that Windrow refused, by code.
    pub refused: BTreeMap<String, usize>,
    pub failed: BTreeMap<String, usize>,
    /// Events that the other writer could not do.
    pub passed_over: usize,
    pub ended_early: BTreeMap<String, usize>,
}

impl Seen {
    pub fn add(&mut self, other: Self) {
        fn merge(a: &mut BTreeMap<String, usize>, b: BTreeMap<String, usize>) {
            for (key, n) in b {
                *a.entry(key).or_default() += n;
            }
        }
        self.updates += other.updates;
        self.flows += other.flows;
        self.by_change_data += other.by_change_data;
        self.passed_over += other.passed_over;
        merge(&mut self.techniques, other.techniques);
        merge(&mut self.reasons, other.reasons);
        merge(&mut self.refused, other.refused);
        merge(&mut self.failed, other.failed);
        merge(&mut self.ended_early, other.ended_early);
    }
}

/// A target that is not what it should be.
#[derive(Debug, Clone)]
pub struct Failure {
    pub step: usize,
    pub flow: Option<usize>,
    pub text: String,
}

pub struct Player<'a> {
    history: &'a History,
    scratch: tempfile::TempDir,
    lake: Lake,
    hand: Hand,
    active: BTreeSet<usize>,
    filters: Vec<(usize, String)>,
    targets: BTreeMap<usize, Rows>,
    /// How often a table was changed, by its name.
    changed: BTreeMap<String, usize>,
    /// The sources of each flow, by the last report.
    reads: BTreeMap<usize, Vec<String>>,
    /// What a flow gave from nothing, and of what.
    made: BTreeMap<usize, (String, Rows)>,
    hours: i64,
    pub seen: Seen,
}

/// A folder in memory where the system has one: thousands of small files are written and thrown away.
fn scratch() -> Outcome<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .map_err(words)
}

/// Everything at once: plays `history` to its end or to its first failure.
pub async fn play(history: &History) -> (Seen, Result<(), Failure>) {
    let mut player = match Player::new(history).await {
        Ok(player) => player,
        Err(text) => {
            let failure = Failure {
                step: 0,
                flow: None,
                text: format!("the sources could not be made: {text}"),
            };
            return (Seen::default(), Err(failure));
        }
    };
    let result = player.steps().await;
    (player.seen, result)
}

impl<'a> Player<'a> {
    async fn new(history: &'a History) -> Outcome<Self> {
        let scratch = scratch()?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        let player = Self {
            history,
            scratch,
            lake,
            hand: Hand::default(),
            active: (0..history.flows.len())
                .filter(|i| history.flows[*i].active)
                .collect(),
            filters: Vec::new(),
            targets: BTreeMap::new(),
            changed: BTreeMap::new(),
            reads: BTreeMap::new(),
            made: BTreeMap::new(),
            hours: 0,
            seen: Seen::default(),
        };
        for index in 0..history.sources.len() {
            player
                .make_source(index, &history.sources[index].files)
                .await?;
        }
        Ok(player)
    }

    async fn make_source(&self, index: usize, files: &[Vec<super::tables::Cells>]) -> Outcome {
        let source = &self.history.sources[index];
        let columns = source
            .cols
            .iter()
            .map(|c| Column {
                name: c.name.clone(),
                delta_type: c.kind.delta().into(),
                nullable: true,
            })
            .collect();
        let new = NewTable {
            columns,
            partitioned_by: source.partitioned_by.iter().cloned().collect(),
            properties: source
                .properties()
                .into_iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        };
        self.lake.create(&place(&source.name), &new).await?;
        for rows in files {
            self.append(index, rows).await?;
        }
        Ok(())
    }

    async fn append(&self, index: usize, rows: &[super::tables::Cells]) -> Outcome {
        let at = place(&self.history.sources[index].name);
        let batch = self.batch(index, rows).await?;
        self.lake.append(&at, batch).await
    }

    async fn batch(&self, index: usize, rows: &[super::tables::Cells]) -> Outcome<RecordBatch> {
        let source = &self.history.sources[index];
        let schema = self.lake.schema(&place(&source.name)).await?;
        let width = rows.first().map_or(0, Vec::len);
        let mut names: Vec<String> = source.cols.iter().map(|c| c.name.clone()).collect();
        // Columns that were added later.
        for field in schema.fields() {
            if !names.contains(field.name()) {
                names.push(field.name().clone());
            }
        }
        names.truncate(width);
        let rows: Vec<Vec<String>> = rows.iter().map(|r| r[..names.len()].to_vec()).collect();
        cells::batch(&names, &rows, &schema)
    }

    // -- events

    async fn event(&mut self, event: &Event) -> Outcome {
        let source = |i: &usize| place(&self.history.sources[*i].name);
        let flow = |i: &usize| target(&format!("f{i}"));
        match event {
            Event::Append(s, rows) => self.append(*s, rows).await,
            Event::Overwrite(s, rows) => {
                let batch = self.batch(*s, rows).await?;
                self.lake.overwrite(&source(s), batch).await
            }
            Event::Delete(s, condition) => self.lake.delete(&source(s), Some(condition)).await,
            Event::Update(s, col, value, condition) => {
                let set = [(col.clone(), value.clone())];
                match self.history.sources[*s].leaves_changes() {
                    true => {
                        update_with_changes(&self.lake, &source(s), &set, Some(condition)).await
                    }
                    false => self.lake.update(&source(s), &set, Some(condition)).await,
                }
            }
            Event::Merge(s, rows) => {
                let batch = self.batch(*s, rows).await?;
                self.lake.merge(&source(s), batch, "id").await
            }
            Event::Optimize(s) => self.lake.optimize(&source(s), &[]).await.map(|_| ()),
            Event::ZOrder(s, by) => self
                .lake
                .optimize(&source(s), std::slice::from_ref(by))
                .await
                .map(|_| ()),
            Event::SoftDelete(s, condition) => {
                let at = source(s);
                self.hand.soft_delete(&self.lake, &at, condition).await
            }
            Event::Recreate(s, rows) => {
                let at = self.lake.url(&source(s));
                let folder = at.to_file_path().map_err(|()| "no folder")?;
                std::fs::remove_dir_all(folder).map_err(words)?;
                self.make_source(*s, std::slice::from_ref(rows)).await
            }
            Event::AddColumn(s, col) => {
                self.lake
                    .add_column(&source(s), &col.name, col.kind.delta())
                    .await
            }
            Event::Restore(s, back) => {
                let at = source(s);
                let newest = self.lake.versions(&at).await?.get(&at).copied();
                let version = newest.unwrap_or(0).saturating_sub(*back);
                self.lake.restore(&at, version).await
            }
            Event::Checkpoint(s) => self.lake.checkpoint(&source(s)).await,
            Event::TargetInsert(f, changed) => {
                let at = flow(f);
                let table = self.lake.open(&at).await?;
                let context = SessionContext::new();
                register(&context, "t", &table).await?;
                let schema = arrow_schema(&table)?;
                let items: Vec<String> = schema
                    .fields()
                    .iter()
                    .map(|field| {
                        let name = quoted(field.name());
                        match changed {
                            Some((col, value)) if col == field.name() => {
                                format!("{value} AS {name}")
                            }
                            _ => name,
                        }
                    })
                    .collect();
                let sql = format!("SELECT {} FROM t LIMIT 2", items.join(", "));
                for batch in batches(&context, &sql).await? {
                    let columns = batch
                        .columns()
                        .iter()
                        .zip(schema.fields())
                        .map(|(c, f)| cells::cast(c, f.data_type()))
                        .collect::<Outcome<Vec<_>>>()?;
                    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(words)?;
                    if batch.num_rows() > 0 {
                        self.lake.append(&at, batch).await?;
                    }
                }
                Ok(())
            }
            Event::TargetDelete(f, condition) => self.lake.delete(&flow(f), Some(condition)).await,
            Event::TargetUpdate(f, col, value, condition) => {
                let set = [(col.clone(), value.clone())];
                self.lake.update(&flow(f), &set, Some(condition)).await
            }
            Event::TargetOptimize(f) => self.lake.optimize(&flow(f), &[]).await.map(|_| ()),
        }
    }

    fn touches_target(event: &Event) -> Option<usize> {
        match event {
            Event::TargetInsert(f, _)
            | Event::TargetDelete(f, _)
            | Event::TargetUpdate(f, _, _, _)
            | Event::TargetOptimize(f) => Some(*f),
            _ => None,
        }
    }

    // -- updates

    async fn steps(&mut self) -> Result<(), Failure> {
        for (number, step) in self.history.steps.iter().enumerate() {
            let failure = |flow: Option<usize>, text: String| Failure {
                step: number,
                flow,
                text,
            };
            for event in &step.events {
                let target = Self::touches_target(event);
                if target.is_some_and(|f| !self.targets.contains_key(&f)) {
                    continue;
                }
                *self.changed.entry(event.table()).or_default() += 1;
                if let Err(text) = self.event(event).await {
                    if std::env::var_os("WINDROW_HISTORY_TELL").is_some() {
                        eprintln!("passed over: {}: {text}", event.told(&self.history.sources));
                    }
                    self.seen.passed_over += 1;
                }
                if let Some(f) = target {
                    let rows = Rows::read(&self.lake, &target_of(f)).await;
                    self.targets
                        .insert(f, rows.map_err(|e| failure(Some(f), e))?);
                }
            }
            self.hours += step.hours;
            if let Special::Filter(flow, filter) = &step.special {
                self.filters.push((*flow, filter.clone()));
            }
            if !self.update(number, &step.special).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn options(&self, special: &Special, flows: &BTreeSet<usize>, fresh: bool) -> UpdateOptions {
        let name = |f: &usize| format!("f{f}");
        let now = DateTime::parse_from_rfc3339(&clock(self.hours))
            .map(|t| t.with_timezone(&Utc))
            .unwrap_or_default();
        let mut options = UpdateOptions {
            now: Some(now),
            yes: true,
            engine: crate::cluster::engine(),
            ..UpdateOptions::default()
        };
        match special {
            Special::Override(f, p) if flows.contains(f) => {
                options.replace_where = vec![(name(f), p.sql())];
            }
            Special::Only(only) => {
                options.refresh = only
                    .iter()
                    .filter(|f| flows.contains(f))
                    .map(name)
                    .collect()
            }
            Special::Full(f) if flows.contains(f) => match fresh {
                true => options.refresh = vec![name(f)],
                false => options.full_refresh = vec![name(f)],
            },
            _ => {}
        }
        options
    }

    /// The flows that an update refreshes.
    fn selected(&self, special: &Special) -> BTreeSet<usize> {
        match special {
            Special::Only(only) => only
                .iter()
                .copied()
                .filter(|f| self.active.contains(f))
                .collect(),
            Special::Full(f) => [*f]
                .into_iter()
                .filter(|f| self.active.contains(f))
                .collect(),
            _ => self.active.clone(),
        }
    }

    fn write(
        &self,
        folder: &Path,
        flows: &BTreeSet<usize>,
        storage: &Path,
    ) -> Outcome<PipelineConfig> {
        let sql = folder.join("sql");
        if sql.exists() {
            std::fs::remove_dir_all(&sql).map_err(words)?;
        }
        std::fs::create_dir_all(&sql).map_err(words)?;
        for index in flows {
            let text = self.history.sql(*index, &self.filters);
            std::fs::write(sql.join(format!("f{index}.sql")), text).map_err(words)?;
        }
        let mut tables = String::new();
        let mut add = |name: &str, at: String| {
            tables.push_str(&format!("  {name}: {}\n", serde_json::json!(at)));
        };
        for source in &self.history.sources {
            add(&source.name, self.lake.location(&place(&source.name)));
        }
        for index in self.targets.keys().filter(|i| !flows.contains(i)) {
            add(&format!("f{index}"), self.lake.location(&target_of(*index)));
        }
        let yaml = format!(
            "name: histories\nstorage: {}\nlibraries:\n  - glob: {{include: \"sql/**\"}}\n\
             configuration:\n  windrow.partitions: \"2\"\n  windrow.targetFileSize: \"{}\"\n{}tables:\n{tables}",
            serde_json::json!(storage),
            self.history.file_size,
            match self.history.technique {
                "" => String::new(),
                only => format!("  windrow.technique: {only}\n"),
            }
        );
        std::fs::write(folder.join("windrow.yml"), yaml).map_err(words)?;
        inside::pipeline(folder, None)
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// One update of both; false when the history can't go on.
    async fn update(&mut self, number: usize, special: &Special) -> Result<bool, Failure> {
        let failure = |flow: Option<usize>, text: String| Failure {
            step: number,
            flow,
            text,
        };
        let report = loop {
            let storage = self.folder("lake").join(crate::pipeline::STORAGE);
            let config = self
                .write(&self.folder("pipeline"), &self.active, &storage)
                .map_err(|e| failure(None, e))?;
            let selected = self.selected(special);
            if selected.is_empty() {
                return Ok(true);
            }
            let options = self.options(special, &self.active, false);
            match inside::update(config, &options).await {
                Ok(report) => break report,
                Err(faults) if number == 0 => self.refuse(&faults).map_err(|e| failure(None, e))?,
                Err(faults) => {
                    let code = faults.first().map_or("", |f| f.code);
                    *self.seen.ended_early.entry(code.into()).or_default() += 1;
                    return Ok(false);
                }
            }
            if self.active.is_empty() {
                return Ok(false);
            }
        };
        self.seen.updates += 1;
        for flow in &report.flows {
            let Some(index) = index_of(&flow.flow) else {
                continue;
            };
            let sources = flow.sources.iter().map(|s| s.table.clone()).collect();
            self.reads.insert(index, sources);
            if flow.technique != Some(Technique::NoOp) {
                *self.changed.entry(flow.flow.clone()).or_default() += 1;
            }
        }
        let selected = self.selected(special);
        let mut made = BTreeMap::new();
        for level in [0, 1] {
            let mut flows = BTreeSet::new();
            for flow in &selected {
                let skipped = report
                    .flows
                    .iter()
                    .any(|f| index_of(&f.flow) == Some(*flow) && f.status == FlowStatus::Skipped);
                // What it reads is not there.
                if skipped || self.history.flows[*flow].level != level {
                    continue;
                }
                match self.made.get(flow) {
                    Some((of, rows)) if *of == self.inputs(*flow, special) => {
                        made.insert(*flow, Ok(rows.clone()));
                    }
                    _ => {
                        flows.insert(*flow);
                    }
                }
            }
            if !flows.is_empty() {
                self.recomputed(number, level, &flows, special, &report, &mut made)
                    .await
                    .map_err(|e| failure(None, e))?;
            }
            for flow in flows {
                if let Some(Ok(rows)) = made.get(&flow) {
                    let of = self.inputs(flow, special);
                    self.made.insert(flow, (of, rows.clone()));
                }
            }
        }
        for flow in self.active.clone() {
            let before = self.targets.get(&flow).cloned();
            let checked = self
                .check(flow, special, &report, made.remove(&flow), before)
                .await;
            checked.map_err(|e| failure(Some(flow), e))?;
        }
        Ok(true)
    }

    /// Everything on which the rows of a flow depend.
    fn inputs(&self, flow: usize, special: &Special) -> String {
        let sources: Vec<(&String, usize)> = self
            .reads
            .get(&flow)
            .into_iter()
            .flatten()
            .map(|s| (s, self.changed.get(s).copied().unwrap_or(0)))
            .collect();
        let filters = self.filters.iter().filter(|(f, _)| *f == flow).count();
        let predicate = match special {
            Special::Override(f, p) if *f == flow => p.sql(),
            _ => String::new(),
        };
        let day = clock(self.hours);
        format!("{sources:?} {filters} {predicate} {}", &day[..10])
    }

    /// Leaves out the flows that are at fault.
    fn refuse(&mut self, faults: &[Fault]) -> Outcome {
        let before = self.active.len();
        for fault in faults {
            let file = fault.place.as_ref().map(|p| p.source.name.clone());
            let name = |f: String| index_of(f.rsplit('/').next()?.strip_suffix(".sql")?);
            let Some(index) = file.and_then(name) else {
                continue;
            };
            if self.active.remove(&index) {
                *self.seen.refused.entry(fault.code.into()).or_default() += 1;
                let sql = self.history.sql(index, &[]);
                if std::env::var_os("WINDROW_HISTORY_TELL").is_some() {
                    eprintln!("refused: {fault}\n{sql}");
                }
            }
        }
        if self.active.len() == before {
            return Err(told(faults));
        }
        Ok(())
    }

    /// What the flows give in a storage that is empty.
    async fn recomputed(
        &mut self,
        number: usize,
        level: usize,
        flows: &BTreeSet<usize>,
        special: &Special,
        report: &UpdateReport,
        made: &mut BTreeMap<usize, Result<Rows, String>>,
    ) -> Outcome {
        // Readers of targets read them as the update left them.
        for flow in report
            .flows
            .iter()
            .filter(|f| f.status == FlowStatus::Completed)
        {
            let index = flow
                .flow
                .trim_start_matches('f')
                .parse()
                .unwrap_or(usize::MAX);
            if level == 1 && !self.targets.contains_key(&index) {
                self.targets.insert(index, Rows::default());
            }
        }
        let home = format!("fresh-{number}-{level}");
        let storage = self.folder(&home);
        let config = self.write(&self.folder("fresh"), flows, &storage)?;
        let options = self.options(special, flows, true);
        let fresh = inside::update(config, &options)
            .await
            .map_err(|faults| format!("from nothing: {}", told(&faults)))?;
        let lake = Lake::folder(&storage)?;
        for flow in flows {
            let found = fresh.flows.iter().find(|f| f.flow == format!("f{flow}"));
            let found = found.ok_or("a flow is not in the report")?;
            let rows = match (found.status, &found.error) {
                (FlowStatus::Completed, _) => Rows::read(&lake, &format!("tables/f{flow}")).await,
                (_, error) => {
                    let code = error.as_ref().map_or("", |e| e.code.as_str());
                    *self.seen.failed.entry(code.into()).or_default() += 1;
                    Err(error.as_ref().map_or(String::new(), |e| e.message.clone()))
                }
            };
            made.insert(*flow, rows);
        }
        std::fs::remove_dir_all(storage).map_err(words)
    }

    async fn check(
        &mut self,
        flow: usize,
        special: &Special,
        report: &UpdateReport,
        made: Option<Result<Rows, String>>,
        before: Option<Rows>,
    ) -> Outcome {
        let found = report.flows.iter().find(|f| f.flow == format!("f{flow}"));
        let was_there = before.as_ref().is_some_and(|b| !b.names.is_empty());
        let before = before.unwrap_or_default();
        let completed = found.is_some_and(|f| f.status == FlowStatus::Completed);
        if !completed && !was_there && found.is_none_or(|f| f.table_version.is_none()) {
            self.targets.remove(&flow);
            return match (found, made) {
                (Some(f), Some(Ok(_))) if f.status == FlowStatus::Failed => {
                    Err(format!("it failed, a full refresh does not: {:?}", f.error))
                }
                _ => Ok(()),
            };
        }
        let after = Rows::read(&self.lake, &target_of(flow)).await?;
        let stayed = before.in_columns(&after.names)?;
        self.targets.insert(flow, after.clone());
        let (Some(found), Some(made)) = (found, made) else {
            return same(&after.rows, &stayed, "it was not refreshed");
        };
        match (found.status, made) {
            (FlowStatus::Completed, Ok(made)) => {
                let technique = found.technique.map_or("", |t| t.word());
                *self.seen.techniques.entry(technique.into()).or_default() += 1;
                self.seen.flows += 1;
                self.seen.by_change_data += usize::from(!found.change_data.is_empty());
                for reason in &found.fallback_reasons {
                    *self.seen.reasons.entry(reason.word().into()).or_default() += 1;
                }
                let mut expected = made.in_columns(&after.names)?;
                let predicate = match special {
                    Special::Override(f, p) if *f == flow => Some(p),
                    Special::Full(f) if *f == flow => None,
                    _ => self.history.flows[flow].predicate.as_ref(),
                };
                if let Some(predicate) = predicate {
                    let outside = stayed
                        .into_iter()
                        .filter(|row| !in_window(predicate, &after.names, row, self.today()));
                    expected.extend(outside);
                }
                let how = format!("{technique} {:?}", found.fallback_reasons);
                same(&after.rows, &expected, &how)
            }
            (FlowStatus::Completed, Err(error)) => match found.technique.map(|t| t.word()) {
                Some("COMPLETE_RECOMPUTE") => Err(format!("from nothing it fails: {error}")),
                // What an incremental refresh does not look at can't fail it.
                _ => Ok(()),
            },
            (FlowStatus::Failed, Ok(_)) => Err(format!(
                "it failed, a full refresh does not: {:?}",
                found.error
            )),
            _ => same(&after.rows, &stayed, "it failed"),
        }
    }

    fn today(&self) -> NaiveDate {
        DateTime::parse_from_rfc3339(&clock(self.hours))
            .map(|t| t.date_naive())
            .unwrap_or_default()
    }
}

fn place(source: &str) -> String {
    format!("src/{source}")
}

/// The number of a flow.
fn index_of(name: &str) -> Option<usize> {
    name.strip_prefix('f')?.parse().ok()
}

fn target_of(flow: usize) -> String {
    target(&format!("f{flow}"))
}

fn in_window(predicate: &Predicate, names: &[String], row: &cells::Row, today: NaiveDate) -> bool {
    let value = |name: &str| {
        let at = names.iter().position(|n| n == name)?;
        row[at].as_deref()
    };
    predicate.of(&value, today) == Some(true)
}

fn same(found: &[cells::Row], expected: &[cells::Row], how: &str) -> Outcome {
    match cells::difference(found, expected) {
        None => Ok(()),
        Some(difference) => Err(format!("{how}: {difference}")),
    }
}
