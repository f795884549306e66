//! A pipeline folder for tests, over tables of a lake.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::lake::Lake;
use crate::program::{self, Ended};
use crate::{Outcome, words};

/// Where Windrow keeps the tables of these tests, relative to the lake.
pub const STORAGE: &str = "out";

pub struct Pipeline {
    pub folder: PathBuf,
    pub lake: Lake,
    /// Name to place in the lake.
    pub sources: BTreeMap<String, String>,
    /// SQL files by name.
    pub files: BTreeMap<String, String>,
    /// Further keys of the pipeline file; they win over those written here.
    pub keys: String,
    pub file_name: String,
}

impl Pipeline {
    pub fn new(folder: &Path, lake: Lake) -> Self {
        Self {
            folder: folder.to_path_buf(),
            lake,
            sources: BTreeMap::new(),
            files: BTreeMap::new(),
            keys: String::new(),
            file_name: "windrow.yml".into(),
        }
    }

    pub fn sql(mut self, text: &str) -> Self {
        self.files.insert("pipeline.sql".into(), text.into());
        self
    }

    pub fn source(mut self, name: &str) -> Self {
        self.sources.insert(name.into(), format!("src/{name}"));
        self
    }

    /// The place of a source, or else of a target.
    pub fn place(&self, table: &str) -> String {
        let key = table.to_lowercase();
        let source = self
            .sources
            .iter()
            .find(|(name, _)| name.to_lowercase() == key);
        source.map_or_else(|| target(table), |(_, place)| place.clone())
    }

    fn yaml(&self) -> String {
        let quoted = |text: &str| serde_json::Value::String(text.to_string()).to_string();
        let mut tables = String::new();
        let mut catalogs: BTreeMap<&str, String> = BTreeMap::new();
        for (name, place) in &self.sources {
            match name.split('.').collect::<Vec<_>>().as_slice() {
                [catalog, _, _] => {
                    catalogs.insert(catalog, self.lake.location(&format!("lake/{catalog}")));
                }
                _ => tables.push_str(&format!(
                    "  {}: {}\n",
                    quoted(name),
                    quoted(&self.lake.location(place))
                )),
            }
        }
        let catalogs: String = catalogs
            .iter()
            .map(|(name, root)| format!("  {}: {}\n", quoted(name), quoted(root)))
            .collect();
        let defaults = [
            ("name", " pipeline_under_test\n".to_string()),
            (
                "storage",
                format!(" {}\n", quoted(&self.lake.location(STORAGE))),
            ),
            (
                "libraries",
                "\n  - glob: {include: \"transformations/**\"}\n".to_string(),
            ),
            (
                "tables",
                if tables.is_empty() {
                    " {}\n".into()
                } else {
                    format!("\n{tables}")
                },
            ),
            (
                "catalogs",
                if catalogs.is_empty() {
                    " {}\n".into()
                } else {
                    format!("\n{catalogs}")
                },
            ),
        ];
        let mut text = String::new();
        for (key, value) in defaults {
            if !self.keys.lines().any(|l| l.starts_with(&format!("{key}:"))) {
                text.push_str(&format!("{key}:{value}"));
            }
        }
        format!("{text}{}\n", self.keys.replace("{dir}", &self.dir()))
    }

    /// The lake's root, as `{dir}` stands for it.
    pub fn dir(&self) -> String {
        self.lake.location("").trim_end_matches('/').to_string()
    }

    /// Writes the pipeline's files. Those that are there already stay untouched: another call may be
    /// reading them.
    pub fn write(&self) -> Outcome {
        let sql = self.folder.join("transformations");
        let wanted: BTreeMap<PathBuf, String> = self
            .files
            .iter()
            .map(|(name, text)| (sql.join(name), text.replace("{dir}", &self.dir())))
            .collect();
        let mut there = BTreeMap::new();
        read_all(&sql, &mut there)?;
        if there != wanted {
            if sql.exists() {
                std::fs::remove_dir_all(&sql).map_err(words)?;
            }
            std::fs::create_dir_all(&sql).map_err(words)?;
            for (path, text) in wanted {
                std::fs::create_dir_all(path.parent().unwrap_or(&sql)).map_err(words)?;
                std::fs::write(path, text).map_err(words)?;
            }
        }
        let (file, yaml) = (self.folder.join(&self.file_name), self.yaml());
        if std::fs::read_to_string(&file).is_ok_and(|old| old == yaml) {
            return Ok(());
        }
        std::fs::write(file, yaml).map_err(words)
    }

    /// Calls `windrow COMMAND FOLDER ...` with JSON output unless it is asked for another, after writing the files.
    pub async fn call(&self, command: &str, arguments: &[&str]) -> Outcome<Ended> {
        program::end(self.start(command, arguments, &[])?).await
    }

    pub fn start(
        &self,
        command: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Outcome<tokio::process::Child> {
        self.write()?;
        let folder = self.folder.to_string_lossy().into_owned();
        let mut all = vec![command];
        // `verify FLOW PIPELINE`, `backfill list PIPELINE`: the word comes first.
        let (word, arguments) = match arguments {
            [flow, rest @ ..] if command == "verify" => (Some(flow), rest),
            [word, rest @ ..] if command == "backfill" && *word == "list" => (Some(word), rest),
            _ => (None, arguments),
        };
        all.extend(word);
        all.push(folder.as_str());
        all.extend(arguments);
        if !arguments.contains(&"--output") {
            all.extend(["--output", "json"]);
        }
        let mut environment = self.lake.options.clone();
        environment.extend(
            variables
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string())),
        );
        program::start(&self.folder, &all, &environment)
    }
}

/// The place of a target.
pub fn target(table: &str) -> String {
    format!("{STORAGE}/tables/{}", table.replace('.', "/"))
}

/// The texts of all files below a folder.
fn read_all(folder: &Path, found: &mut BTreeMap<PathBuf, String>) -> Outcome {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry.map_err(words)?.path();
        if path.is_dir() {
            read_all(&path, found)?;
        } else {
            let bytes = std::fs::read(&path).map_err(words)?;
            found.insert(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(())
}
