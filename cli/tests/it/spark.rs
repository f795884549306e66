//! Tables that Spark wrote (`tests/spark/tables`), followed version by version: after each of them
//! Windrow's target holds the rows that Spark read then, and a window over them what a query over
//! those rows gives.

use std::path::{Path, PathBuf};

use datafusion::arrow::datatypes::DataType;
use datafusion::prelude::SessionContext;
use serde_json::Value;

use crate::lake::{Lake, arrow_schema, query, register};
use crate::pipeline::{Pipeline, target};
use crate::{Outcome, cells, python, words};

const WINDOW: &str = "SELECT d, count(*) AS n, sum(id) AS ids, sum(x) AS x FROM s WHERE d >= DATE '2026-03-08' GROUP BY d";

fn tables() -> PathBuf {
    python::folder().join("spark/tables")
}

/// Copies the table as it was at `version`: its data files, and the log up to there.
fn advance(name: &str, version: u64, to: &Path) -> Outcome {
    fn copy(from: &Path, to: &Path, version: u64) -> Outcome {
        std::fs::create_dir_all(to).map_err(words)?;
        for entry in std::fs::read_dir(from).map_err(words)? {
            let entry = entry.map_err(words)?;
            let (path, place) = (entry.path(), to.join(entry.file_name()));
            if path.is_dir() {
                copy(&path, &place, version)?;
                continue;
            }
            let file = entry.file_name().to_string_lossy().into_owned();
            let is_log = from.ends_with("_delta_log");
            let number = file.split('.').next().and_then(|n| n.parse::<u64>().ok());
            let later = is_log && number.is_none_or(|n| n > version);
            if !later && !place.exists() {
                std::fs::copy(&path, &place).map_err(words)?;
            }
        }
        Ok(())
    }
    copy(&tables().join(name), to, version)
}

/// A value of Spark as a cell of that type is shown.
fn cell(value: &Value, data_type: &DataType) -> Outcome<Option<String>> {
    let plain = |v: &Value| match v {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|v| if v.is_null() { String::new() } else { plain(v) })
                .collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(k, v)| format!("{k}: {}", plain(v)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => {
            let text = format!("'{}'", plain(other));
            return Ok(cells::expected(&[text], std::slice::from_ref(data_type))?.remove(0));
        }
    }))
}

async fn follow(name: &str, windowed: bool) -> Outcome {
    let scratch = tempfile::tempdir().map_err(words)?;
    let lake = Lake::folder(&scratch.path().join("lake"))?;
    let at = scratch.path().join("pipeline");
    std::fs::create_dir_all(&at).map_err(words)?;
    // A name that only a mapped table can have.
    let odd = if name == "column_mapping" {
        "SELECT * EXCEPT (`odd name, here`), `odd name, here` AS odd_name_here FROM s"
    } else {
        "SELECT * FROM s"
    };
    let mut sql = format!("CREATE MATERIALIZED VIEW everything AS {odd};");
    if windowed {
        sql.push_str(&format!(
            "CREATE STREAMING TABLE w FLOW REPLACE WHERE d >= '2026-03-08' BY NAME {WINDOW};"
        ));
    }
    let pipeline = Pipeline::new(&at, lake).source("s").sql(&sql);
    let text = std::fs::read_to_string(tables().join(format!("{name}.json"))).map_err(words)?;
    let history: Vec<Value> = serde_json::from_str(&text).map_err(words)?;
    let mut by_changes = 0;
    for step in &history {
        let version = step["version"].as_u64().ok_or("a version")?;
        let told = |e: String| format!("{name}, version {version} ({}): {e}", step["statement"]);
        advance(name, version, &scratch.path().join("lake/src/s"))?;
        let ended = pipeline.call("run", &[]).await?;
        let ended = ended.expect_exit(0).map_err(told)?;
        by_changes += usize::from(ended.stdout.contains("\"change_data\""));
        let table = pipeline.lake.open(&target("everything")).await?;
        let rows = step["rows"].as_array().ok_or("rows")?;
        let mut names: Vec<String> = rows
            .first()
            .and_then(Value::as_object)
            .map(|row| row.keys().cloned().collect())
            .unwrap_or_default();
        if names.is_empty() {
            let schema = arrow_schema(&table)?;
            names = schema.fields().iter().map(|f| f.name().clone()).collect();
        }
        let written: Vec<String> = names
            .iter()
            .map(|n| n.replace(", ", "_").replace(' ', "_"))
            .collect();
        let (types, found) = pipeline.lake.rows(&table, &written).await.map_err(told)?;
        let expected = rows
            .iter()
            .map(|row| {
                let cells = names.iter().zip(&types);
                cells.map(|(n, t)| cell(&row[n], t)).collect()
            })
            .collect::<Outcome<Vec<cells::Row>>>()
            .map_err(told)?;
        if let Some(difference) = cells::difference(&found, &expected) {
            return Err(told(difference));
        }
        if windowed {
            let context = SessionContext::new();
            register(&context, "s", &table).await?;
            let expected = query(&context, WINDOW).await?.1;
            let columns = ["d", "n", "ids", "x"].map(str::to_string);
            let w = pipeline.lake.open(&target("w")).await?;
            let found = pipeline.lake.rows(&w, &columns).await?.1;
            if let Some(difference) = cells::difference(&found, &expected) {
                return Err(told(format!("in the window: {difference}")));
            }
        }
    }
    if name.starts_with("change_data_of") && by_changes == 0 {
        return Err(format!("{name}: its change data were never read"));
    }
    Ok(())
}

macro_rules! tables {
    ($($name:ident $windowed:literal)*) => {
        $(#[test]
        fn $name() {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            if let Err(failure) = runtime.block_on(follow(stringify!($name), $windowed)) {
                panic!("{failure}");
            }
        })*

        /// A table that nobody follows proves nothing.
        #[test]
        fn every_table_is_followed() {
            let followed = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(tables()).expect("the tables") {
                let path = entry.expect("an entry").path();
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                assert!(followed.contains(&name.as_str()), "{name} is not followed");
            }
        }
    };
}

tables! {
    change_data_feed true
    change_data_of_mapped_rows true
    change_data_of_partitions true
    column_mapping false
    column_mapping_by_id false
    deletion_vectors true
    features true
    partition_values false
    type_widening true
    types false
}
