//! The pipeline file: what it may say, where its paths start, and the SQL files that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use url::Url;
use windrow_delta::StoreOptions;
use windrow_flows::fault::{Fault, Place, SourceText};
use windrow_flows::name;

use crate::paths::PathGuard;

/// File names looked for in a pipeline folder, in this order.
const FILE_NAMES: &[&str] = &["windrow.yml", "spark-pipeline.yml"];

const KEYS: &[&str] = &[
    "name",
    "storage",
    "catalog",
    "database",
    "schema",
    "libraries",
    "configuration",
    "tables",
    "catalogs",
    "allowed_paths",
    "object_store",
];

/// A pipeline as its file describes it.
#[derive(Debug, Clone)]
pub struct PipelineConfig {
    pub name: String,
    /// Ends with a slash.
    pub storage: Url,
    pub catalog: String,
    pub schema: String,
    /// The folder in which relative paths start.
    pub folder: PathBuf,
    pub configuration: BTreeMap<String, String>,
    /// Name as written to location.
    pub tables: Vec<(String, Url)>,
    /// Catalog to the root of its tables.
    pub catalogs: Vec<(String, Url)>,
    pub allowed_paths: Vec<Url>,
    pub store_options: StoreOptions,
    /// The SQL files, in order of their names.
    pub sources: Vec<SourceText>,
    pub(crate) written: Written,
    /// Where a scheduler lets the pipelines of its clients go; none binds one's own.
    pub(crate) guard: Option<Arc<PathGuard>>,
}

/// What the pipeline file itself says where the environment or a default says more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub(crate) object_store: BTreeMap<String, String>,
    pub(crate) allowed_paths: Option<Vec<Url>>,
}

/// What the command line says about the pipeline.
#[derive(Debug, Clone, Default)]
pub struct ConfigOverrides {
    pub storage: Option<String>,
    pub configuration: Vec<(String, String)>,
}

impl PipelineConfig {
    /// Reads a pipeline file, a folder that holds one, or a single `.sql` file (with `storage`).
    pub fn load(path: &Path, overrides: &ConfigOverrides) -> Result<Self, Vec<Fault>> {
        let path = std::path::absolute(path).map_err(|e| vec![unreadable(path, &e.to_string())])?;
        let metadata = std::fs::metadata(&path).map_err(|e| {
            vec![unreadable(&path, &io_words(&e)).help(
                "give a pipeline file, a folder that holds windrow.yml or spark-pipeline.yml, \
                 or a .sql file with --storage",
            )]
        })?;
        if metadata.is_dir() {
            let file = FILE_NAMES
                .iter()
                .map(|n| path.join(n))
                .find(|p| p.is_file());
            return match file {
                Some(file) => Self::load_file(&file, overrides),
                None => Err(vec![Fault::new(
                    "PIPELINE_NOT_FOUND",
                    format!("folder `{}` holds no pipeline file", path.display()),
                )
                .help("a pipeline folder holds windrow.yml or spark-pipeline.yml; `windrow init NAME` makes one")]),
            };
        }
        if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("sql"))
        {
            return Self::load_sql(&path, overrides);
        }
        Self::load_file(&path, overrides)
    }

    fn load_sql(path: &Path, overrides: &ConfigOverrides) -> Result<Self, Vec<Fault>> {
        let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let Some(storage) = &overrides.storage else {
            return Err(vec![
                Fault::new(
                    "STORAGE_MISSING",
                    "a single .sql file needs a place for its tables",
                )
                .help("add --storage DIR"),
            ]);
        };
        let cwd = std::env::current_dir().unwrap_or_else(|_| folder.clone());
        let storage = location(storage, &cwd).map_err(|f| vec![f])?;
        let name = path
            .file_stem()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        let shown = path
            .file_name()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        let source = read_source(path, shown).map_err(|f| vec![f])?;
        let mut config = Self {
            name,
            storage,
            catalog: String::new(),
            schema: "default".into(),
            folder: folder.clone(),
            configuration: overrides.configuration.iter().cloned().collect(),
            tables: Vec::new(),
            catalogs: Vec::new(),
            allowed_paths: Vec::new(),
            store_options: StoreOptions::from_environment(),
            sources: vec![source],
            written: Written::default(),
            guard: None,
        };
        config.allow_defaults()?;
        config.check_sources()?;
        Ok(config)
    }

    fn load_file(path: &Path, overrides: &ConfigOverrides) -> Result<Self, Vec<Fault>> {
        let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let shown = path
            .file_name()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        let source = Arc::new(read_source(path, shown).map_err(|f| vec![f])?);
        if source.text.trim().is_empty() {
            return Err(vec![
                Fault::new(
                    "PIPELINE_FILE_EMPTY",
                    format!("pipeline file `{}` is empty", source.name),
                )
                .help("it needs at least `name`, `storage` and `libraries`"),
            ]);
        }
        let value: Value = serde_saphyr::from_str(&source.text).map_err(|e| {
            vec![Fault::new(
                "PIPELINE_FILE_NOT_YAML",
                yaml_words(&source.name, &e.to_string()),
            )]
        })?;
        let Value::Object(keys) = value else {
            return Err(vec![Fault::new(
                "PIPELINE_FILE_NOT_YAML",
                format!("`{}` is no mapping of keys to values", source.name),
            )]);
        };
        Reader {
            source,
            keys,
            folder,
            faults: Vec::new(),
        }
        .read(overrides)
    }

    fn allow_defaults(&mut self) -> Result<(), Vec<Fault>> {
        if !self.allowed_paths.is_empty() {
            return Ok(());
        }
        let folder = Url::from_directory_path(&self.folder)
            .map_err(|()| vec![unreadable(&self.folder, "it is no absolute path")])?;
        self.allowed_paths = vec![self.storage.clone(), folder];
        self.allowed_paths
            .extend(self.tables.iter().map(|(_, u)| u.clone()));
        self.allowed_paths
            .extend(self.catalogs.iter().map(|(_, u)| u.clone()));
        Ok(())
    }

    pub(crate) fn check_sources(&self) -> Result<(), Vec<Fault>> {
        if self.sources.iter().all(|s| s.text.trim().is_empty()) {
            return Err(vec![Fault::new(
                "PIPELINE_EMPTY",
                format!("pipeline `{}` has no statements", self.name),
            )
            .help("name its SQL files under `libraries`, for example `- glob: {include: \"transformations/**\"}`")]);
        }
        Ok(())
    }

    /// Whether tables and files at `url` may be read.
    pub fn allows(&self, url: &Url) -> bool {
        let under = |root: &Url| {
            let path = root.path().trim_end_matches('/');
            root.scheme() == url.scheme()
                && root.host_str() == url.host_str()
                && (url.path().trim_end_matches('/') == path
                    || url.path().starts_with(&format!("{path}/")))
        };
        self.allowed_paths.iter().any(under)
            && self.guard.as_ref().is_none_or(|guard| guard.permits(url))
    }

    /// A path in SQL, relative ones from the pipeline's folder.
    pub fn locate(&self, text: &str) -> Result<Url, Fault> {
        location(text, &self.folder)
    }
}

struct Reader {
    source: Arc<SourceText>,
    keys: Map<String, Value>,
    folder: PathBuf,
    faults: Vec<Fault>,
}

impl Reader {
    fn read(mut self, overrides: &ConfigOverrides) -> Result<PipelineConfig, Vec<Fault>> {
        for key in self.keys.keys().cloned().collect::<Vec<_>>() {
            if !KEYS.contains(&key.as_str()) {
                let fault = Fault::new(
                    "UNKNOWN_KEY",
                    format!("the pipeline file has a key `{key}`, which is unknown"),
                )
                .hint(name::did_you_mean(&key, KEYS.iter().copied()))
                .help(format!("the known keys are {}", KEYS.join(", ")))
                .at(self.place(&key));
                self.faults.push(fault);
            }
        }
        let name = self.text("name").unwrap_or_else(|| {
            self.folder
                .file_name()
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default()
        });
        let storage = match (&overrides.storage, self.text("storage")) {
            (Some(path), _) => {
                let cwd = std::env::current_dir().unwrap_or_else(|_| self.folder.clone());
                self.keep(location(path, &cwd))
            }
            (None, Some(path)) => {
                let folder = self.folder.clone();
                let place = self.place("storage");
                self.keep(location(&path, &folder).map_err(|f| f.at(place)))
            }
            (None, None) => {
                self.faults.push(
                    Fault::new("STORAGE_MISSING", "the pipeline file has no `storage`")
                        .help("add `storage: ./lake` or an s3:// location"),
                );
                None
            }
        };
        let catalog = self.text("catalog").unwrap_or_default();
        let schema = self
            .text("schema")
            .or_else(|| self.text("database"))
            .unwrap_or_else(|| "default".into());
        let mut configuration: BTreeMap<String, String> =
            self.pairs("configuration").into_iter().collect();
        configuration.extend(overrides.configuration.iter().cloned());
        let tables = self.locations("tables");
        let catalogs = self.locations("catalogs");
        let allowed_paths = self.allowed();
        let written = Written {
            object_store: self.pairs("object_store").into_iter().collect(),
            allowed_paths: Some(allowed_paths.clone()).filter(|paths| !paths.is_empty()),
        };
        let store_options = StoreOptions::from_environment().overlaid(written.object_store.clone());
        self.refuse_secrets();
        let sources = self.libraries();
        let Some(storage) = storage else {
            return Err(self.faults);
        };
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        let mut config = PipelineConfig {
            name,
            storage,
            catalog,
            schema,
            folder: self.folder,
            configuration,
            tables,
            catalogs,
            allowed_paths,
            store_options,
            sources,
            written,
            guard: None,
        };
        config.allow_defaults()?;
        config.check_sources()?;
        Ok(config)
    }

    fn keep<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|f| self.faults.push(f)).ok()
    }

    /// The line of a key, found by looking for it.
    fn place(&self, key: &str) -> Option<Place> {
        let (number, line) = self.source.text.lines().enumerate().find(|(_, line)| {
            let line = line.trim_start();
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with(':'))
        })?;
        let column = line.chars().take_while(|c| c.is_whitespace()).count() as u64 + 1;
        Some(Place {
            source: self.source.clone(),
            line: number as u64 + 1,
            column,
            end_line: number as u64 + 1,
            end_column: column + key.chars().count() as u64,
        })
    }

    fn wrong(&mut self, key: &str, wanted: &str) {
        let fault =
            Fault::new("WRONG_VALUE", format!("`{key}` must be {wanted}")).at(self.place(key));
        self.faults.push(fault);
    }

    fn text(&mut self, key: &str) -> Option<String> {
        match self.keys.get(key)? {
            Value::Null => None,
            value => match scalar(value) {
                Some(text) => Some(text),
                None => {
                    self.wrong(key, "a text");
                    None
                }
            },
        }
    }

    fn pairs(&mut self, key: &str) -> Vec<(String, String)> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(map)) => {
                let read: Option<Vec<_>> = map
                    .iter()
                    .map(|(k, v)| Some((k.clone(), scalar(v)?)))
                    .collect();
                read.unwrap_or_else(|| {
                    self.wrong(key, "a mapping of names to plain values");
                    Vec::new()
                })
            }
            Some(_) => {
                self.wrong(key, "a mapping of names to plain values");
                Vec::new()
            }
        }
    }

    fn locations(&mut self, key: &str) -> Vec<(String, Url)> {
        let folder = self.folder.clone();
        self.pairs(key)
            .into_iter()
            .filter_map(|(name, path)| {
                let place = self.place(&name).or_else(|| self.place(key));
                let url = self.keep(location(&path, &folder).map_err(|f| f.at(place)))?;
                Some((name, url))
            })
            .collect()
    }

    fn allowed(&mut self) -> Vec<Url> {
        let folder = self.folder.clone();
        match self.keys.get("allowed_paths").cloned() {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list
                .iter()
                .filter_map(|v| {
                    let path = scalar(v)?;
                    self.keep(location(&path, &folder))
                })
                .collect(),
            Some(_) => {
                self.wrong("allowed_paths", "a list of locations");
                Vec::new()
            }
        }
    }

    fn refuse_secrets(&mut self) {
        let secrets = ["secret", "token", "password", "session_key", "private_key"];
        let found: Vec<String> = self
            .keys
            .get("object_store")
            .and_then(Value::as_object)
            .map(|m| {
                m.keys()
                    .filter(|k| secrets.iter().any(|s| k.to_lowercase().contains(s)))
                    .cloned()
                    .collect()
            })
            .unwrap_or_default();
        for key in found {
            let fault = Fault::new(
                "SECRET_IN_FILE",
                format!("`object_store` names `{key}`, which is a secret"),
            )
            .help("secrets come from the environment, for example AWS_SECRET_ACCESS_KEY")
            .at(self.place(&key).or_else(|| self.place("object_store")));
            self.faults.push(fault);
        }
    }

    fn libraries(&mut self) -> Vec<SourceText> {
        let mut files: Vec<PathBuf> = Vec::new();
        match self.keys.get("libraries").cloned() {
            None | Some(Value::Null) => files = matching(&self.folder, "transformations/**"),
            Some(Value::Array(list)) => {
                for entry in list {
                    let include = entry.pointer("/glob/include").and_then(Value::as_str);
                    let file = entry.pointer("/file/path").and_then(Value::as_str);
                    match (include, file) {
                        (Some(pattern), None) => {
                            if glob::Pattern::new(pattern).is_err() {
                                self.wrong("libraries", &format!("globs; `{pattern}` is none"));
                            }
                            files.extend(matching(&self.folder, pattern));
                        }
                        (None, Some(file)) => {
                            let path = self.folder.join(file);
                            if path.is_file() {
                                files.push(path);
                            } else {
                                self.faults.push(
                                    unreadable(&path, "there is no such file")
                                        .at(self.place("libraries")),
                                );
                            }
                        }
                        _ => self.wrong(
                            "libraries",
                            "a list of `glob: {include: PATTERN}` and `file: {path: FILE}`",
                        ),
                    }
                }
            }
            Some(_) => self.wrong("libraries", "a list"),
        }
        files.sort();
        files.dedup();
        let mut sources = Vec::new();
        for file in files {
            let shown = file
                .strip_prefix(&self.folder)
                .unwrap_or(&file)
                .display()
                .to_string();
            match file.extension().and_then(|e| e.to_str()) {
                Some(e) if e.eq_ignore_ascii_case("sql") => {
                    if let Some(source) = self.keep(read_source(&file, shown)) {
                        sources.push(source);
                    }
                }
                Some(e) if e.eq_ignore_ascii_case("py") => self.faults.push(
                    Fault::new(
                        "PYTHON_NOT_AVAILABLE",
                        format!("`{shown}` is a Python file; pipelines in Python are not available in this version"),
                    )
                    .help("write its tables in SQL, or leave the file out of `libraries`"),
                ),
                _ => {}
            }
        }
        sources
    }
}

fn yaml_words(name: &str, error: &str) -> String {
    let plain = error
        .lines()
        .next()
        .unwrap_or_default()
        .replace("<input>", name);
    let plain = plain
        .split(", set DuplicateKeyPolicy")
        .next()
        .unwrap_or_default()
        .to_string();
    format!("`{name}` is no YAML that can be read: {plain}")
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

fn unreadable(path: &Path, why: &str) -> Fault {
    Fault::new(
        "FILE_NOT_READABLE",
        format!("`{}` cannot be read: {why}", path.display()),
    )
}

fn io_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file or folder".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::InvalidData => "it is not UTF-8".into(),
        _ => error.to_string(),
    }
}

fn read_source(path: &Path, name: String) -> Result<SourceText, Fault> {
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(path, &io_words(&e)))?;
    // Some editors begin a file with a byte order mark.
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_string(),
        None => text,
    };
    Ok(SourceText { name, text })
}

/// A location as a URL with a slash at its end.
pub fn location(text: &str, folder: &Path) -> Result<Url, Fault> {
    let wrong = |why: String| {
        Fault::new(
            "LOCATION_NOT_USABLE",
            format!("location `{text}` cannot be used: {why}"),
        )
    };
    let mut url = if text.contains("://") || text.starts_with("file:/") {
        Url::parse(text).map_err(|e| wrong(e.to_string()))?
    } else {
        let path = std::path::absolute(folder.join(text)).map_err(|e| wrong(e.to_string()))?;
        Url::from_directory_path(clean(&path))
            .map_err(|()| wrong("it is no absolute path".into()))?
    };
    if url.scheme() == "s3a" {
        // The same store under Hadoop's name.
        url = Url::parse(&text.replacen("s3a://", "s3://", 1)).map_err(|e| wrong(e.to_string()))?;
    }
    if !url.username().is_empty() && url.scheme() != "abfss" && url.scheme() != "abfs" {
        return Err(wrong(
            "it names a user; credentials come from the environment".into(),
        ));
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// `a/../b` without its dots, so that equal places have equal URLs.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The files below `folder` whose relative path matches `pattern`.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let fixed: PathBuf = Path::new(pattern)
        .components()
        .take_while(|c| !has_wildcard(c))
        .collect();
    let root = clean(&folder.join(&fixed));
    let absolute = clean(&folder.join(pattern)).display().to_string();
    let Ok(wanted) = glob::Pattern::new(&absolute) else {
        return Vec::new();
    };
    let options = glob::MatchOptions {
        require_literal_separator: true,
        ..Default::default()
    };
    let all = pattern.ends_with("**");
    let mut files = Vec::new();
    let mut open = vec![root];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let hidden = |p: &Path| {
                p.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with('.'))
            };
            if let Ok(entries) = std::fs::read_dir(&path) {
                open.extend(
                    entries
                        .filter_map(Result::ok)
                        .map(|e| e.path())
                        .filter(|p| !hidden(p)),
                );
            }
        } else if path.is_file() {
            let parent_matches = all
                && path
                    .ancestors()
                    .skip(1)
                    .any(|p| wanted.matches_path_with(p, options));
            if parent_matches || wanted.matches_path_with(&path, options) {
                files.push(path);
            }
        }
    }
    files
}

fn has_wildcard(part: &std::path::Component<'_>) -> bool {
    part.as_os_str()
        .to_string_lossy()
        .contains(['*', '?', '[', '{'])
}
