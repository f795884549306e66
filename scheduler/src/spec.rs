//! A pipeline as a client sends it and a scheduler keeps it: whole, with absolute places and without
//! secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use url::Url;
use windrow_delta::StoreOptions;
use windrow_flows::fault::{Fault, SourceText};

use crate::config::{PipelineConfig, Written, location};
use crate::paths::PathGuard;

/// Options of an object store that a client may choose: they change neither who asks nor whom.
const CLIENT_OPTIONS: &[&str] = &[
    "aws_region",
    "aws_default_region",
    "region",
    "default_region",
    "aws_virtual_hosted_style_request",
    "virtual_hosted_style_request",
    "aws_bucket_key_enabled",
    "aws_server_side_encryption",
    "aws_sse_kms_key_id",
    "aws_sse_bucket_key_enabled",
];

/// Text of SQL that one pipeline may have.
const MOST_TEXT: usize = 8 << 20;
const MOST_NAMES: usize = 10_000;

/// A pipeline, whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSpec {
    pub name: String,
    pub storage: String,
    #[serde(default)]
    pub catalog: String,
    #[serde(default)]
    pub schema: String,
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    #[serde(default)]
    pub tables: Vec<(String, String)>,
    #[serde(default)]
    pub catalogs: Vec<(String, String)>,
    /// Only when the pipeline says so itself; empty for the default.
    #[serde(default)]
    pub allowed_paths: Vec<String>,
    #[serde(default)]
    pub object_store: BTreeMap<String, String>,
    #[serde(default)]
    pub sources: Vec<SpecSource>,
    /// Where relative paths in SQL begin.
    #[serde(default)]
    pub base_url: String,
}

/// A file of pipeline SQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecSource {
    pub name: String,
    pub text: String,
}

impl PipelineSpec {
    /// The pipeline that was read from files here, for a scheduler elsewhere.
    pub fn of(config: &PipelineConfig) -> Self {
        let named = |list: &[(String, Url)]| {
            list.iter()
                .map(|(name, url)| (name.clone(), url.to_string()))
                .collect()
        };
        let written = &config.written;
        Self {
            name: config.name.clone(),
            storage: config.storage.to_string(),
            catalog: config.catalog.clone(),
            schema: config.schema.clone(),
            configuration: config.configuration.clone(),
            tables: named(&config.tables),
            catalogs: named(&config.catalogs),
            allowed_paths: written
                .allowed_paths
                .iter()
                .flatten()
                .map(Url::to_string)
                .collect(),
            object_store: written.object_store.clone(),
            sources: config
                .sources
                .iter()
                .map(|s| SpecSource {
                    name: s.name.clone(),
                    text: s.text.clone(),
                })
                .collect(),
            base_url: Url::from_directory_path(&config.folder)
                .map(|url| url.to_string())
                .unwrap_or_default(),
        }
    }

    /// Whether two specs are about the same tables: then they are one pipeline.
    pub fn is_same_pipeline(&self, other: &Self) -> bool {
        self.name == other.name && self.storage == other.storage
    }

    /// The pipeline as this process runs it, with this process's credentials.
    ///
    /// # Errors
    /// `PATH_NOT_ALLOWED` when a place of it is outside of what `guard` permits, `OPTION_NOT_ALLOWED`
    /// for an option of the object store that is the scheduler's own affair, `LOCATION_NOT_USABLE`,
    /// `STORAGE_MISSING`, `WRONG_VALUE` and `PIPELINE_EMPTY` for what no pipeline can be.
    pub fn config(&self, guard: &Arc<PathGuard>) -> Result<PipelineConfig, Fault> {
        self.check_size()?;
        if self.storage.is_empty() {
            return Err(Fault::new(
                "STORAGE_MISSING",
                "the pipeline has no `storage`",
            ));
        }
        let storage = permitted(guard, "storage", &self.storage)?;
        let named = |what: &str, list: &[(String, String)]| {
            let list = list.iter().map(|(name, url)| {
                let url = permitted(guard, &format!("`{name}` under `{what}`"), url)?;
                Ok((name.clone(), url))
            });
            list.collect::<Result<Vec<_>, Fault>>()
        };
        let tables = named("tables", &self.tables)?;
        let catalogs = named("catalogs", &self.catalogs)?;
        let allowed = self.allowed_paths.iter();
        let allowed = allowed
            .map(|url| permitted(guard, "allowed_paths", url))
            .collect::<Result<Vec<_>, Fault>>()?;
        // The folder of a pipeline file may be out of reach. Relative paths in SQL still begin there, and
        // are refused then; they must not mean another place than on the client's machine.
        let base = Url::parse(&self.base_url).ok();
        let folder = base
            .as_ref()
            .or(Some(&storage))
            .and_then(|url| url.to_file_path().ok())
            .unwrap_or_else(|| PathBuf::from("/"));
        let base = base.filter(|url| guard.permits(url));
        let allowed_paths = if allowed.is_empty() {
            let places = tables.iter().chain(&catalogs).map(|(_, url)| url.clone());
            let mut all = vec![storage.clone()];
            all.extend(base);
            all.extend(places);
            all
        } else {
            allowed.clone()
        };
        let config = PipelineConfig {
            name: self.name.clone(),
            storage,
            catalog: self.catalog.clone(),
            schema: if self.schema.is_empty() {
                "default".into()
            } else {
                self.schema.clone()
            },
            folder,
            configuration: self.configuration.clone(),
            tables,
            catalogs,
            allowed_paths,
            store_options: StoreOptions::new(self.options()?),
            sources: self
                .sources
                .iter()
                .map(|s| SourceText {
                    name: s.name.clone(),
                    text: s.text.clone(),
                })
                .collect(),
            written: Written {
                object_store: self.object_store.clone(),
                allowed_paths: Some(allowed).filter(|paths| !paths.is_empty()),
            },
            guard: Some(guard.clone()),
        };
        config
            .check_sources()
            .map_err(|faults| first(faults, "PIPELINE_EMPTY"))?;
        Ok(config)
    }

    fn check_size(&self) -> Result<(), Fault> {
        let text: usize = self.sources.iter().map(|s| s.text.len()).sum();
        let names = self.sources.len()
            + self.tables.len()
            + self.catalogs.len()
            + self.allowed_paths.len()
            + self.configuration.len();
        if text > MOST_TEXT || names > MOST_NAMES {
            return Err(Fault::new(
                "PIPELINE_TOO_LARGE",
                format!(
                    "pipeline `{}` has {text} bytes of SQL and {names} names; a scheduler takes {MOST_TEXT} and {MOST_NAMES}",
                    self.name
                ),
            )
            .help("split it into several pipelines"));
        }
        if self.name.is_empty() || self.name.len() > 256 {
            return Err(Fault::new(
                "WRONG_VALUE",
                "a pipeline's `name` has 1 to 256 bytes",
            ));
        }
        Ok(())
    }

    /// The environment's options, with what the client may add.
    fn options(&self) -> Result<BTreeMap<String, String>, Fault> {
        let mut options = windrow_delta::store::environment();
        for (key, value) in &self.object_store {
            let key = key.to_lowercase();
            // What the scheduler has anyway may be said again.
            if options.get(&key) == Some(value) {
                continue;
            }
            if !CLIENT_OPTIONS.contains(&key.as_str()) {
                return Err(Fault::new(
                    "OPTION_NOT_ALLOWED",
                    format!("`object_store` sets `{key}`, which only the scheduler's own environment may set"),
                )
                .help(format!(
                    "set {} where `windrow scheduler` and its executors are started, and leave the key out or give it the same value",
                    key.to_uppercase()
                )));
            }
            options.insert(key, value.clone());
        }
        Ok(options)
    }
}

fn first(faults: Vec<Fault>, code: &'static str) -> Fault {
    let found = faults.into_iter().next();
    found.unwrap_or_else(|| Fault::new(code, "the pipeline can't be used"))
}

/// The URL of a place that a client names.
fn permitted(guard: &PathGuard, what: &str, text: &str) -> Result<Url, Fault> {
    if !text.contains("://") {
        return Err(Fault::new(
            "LOCATION_NOT_USABLE",
            format!("{what} `{text}` is no absolute URL"),
        ));
    }
    let url = location(text, std::path::Path::new("/"))?;
    if guard.permits(&url) {
        return Ok(url);
    }
    Err(Fault::new(
        "PATH_NOT_ALLOWED",
        format!("{what} `{text}` is outside of what this scheduler lets its clients use"),
    )
    .help(
        "the scheduler is started with --allow-path for each place; its default is its own storage",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Arc<PathGuard> {
        let root = Url::parse("s3://lake/").expect("a URL");
        Arc::new(PathGuard::new(&[root]).expect("a root"))
    }

    fn spec() -> PipelineSpec {
        PipelineSpec {
            name: "p".into(),
            storage: "s3://lake/p/".into(),
            tables: vec![("t".into(), "s3://lake/t/".into())],
            sources: vec![SpecSource {
                name: "a.sql".into(),
                text: "CREATE MATERIALIZED VIEW v AS SELECT 1;".into(),
            }],
            base_url: "file:///home/somebody/p/".into(),
            ..PipelineSpec::default()
        }
    }

    fn code(spec: &PipelineSpec) -> &'static str {
        spec.config(&guard()).map_or_else(|f| f.code, |_| "none")
    }

    #[test]
    fn a_spec_comes_back_from_its_config() {
        let config = spec().config(&guard()).expect("a config");
        let again = PipelineSpec::of(&config);
        assert_eq!(again.storage, "s3://lake/p/");
        assert_eq!(again.tables, spec().tables);
        assert_eq!(again.sources, spec().sources);
        assert!(again.allowed_paths.is_empty());
        // The client's folder is out of reach.
        let allowed: Vec<String> = config.allowed_paths.iter().map(Url::to_string).collect();
        assert_eq!(allowed, ["s3://lake/p/", "s3://lake/t/"]);
    }

    #[test]
    fn places_outside_are_refused_wherever_they_stand() {
        let mut storage = spec();
        storage.storage = "s3://other/p/".into();
        assert_eq!(code(&storage), "PATH_NOT_ALLOWED");
        let mut table = spec();
        table.tables[0].1 = "file:///etc/".into();
        assert_eq!(code(&table), "PATH_NOT_ALLOWED");
        let mut catalog = spec();
        catalog.catalogs = vec![("c".into(), "s3://other/".into())];
        assert_eq!(code(&catalog), "PATH_NOT_ALLOWED");
        let mut allowed = spec();
        allowed.allowed_paths = vec!["s3://lake/a/".into(), "s3://".into()];
        assert_ne!(code(&allowed), "none");
        let mut relative = spec();
        relative.storage = "p".into();
        assert_eq!(code(&relative), "LOCATION_NOT_USABLE");
        assert_eq!(code(&spec()), "none");
    }

    #[test]
    fn queries_are_held_to_the_same_places() {
        let mut wide = spec();
        wide.allowed_paths = vec!["s3://lake/".into()];
        let config = wide.config(&guard()).expect("a config");
        let allows = |url: &str| config.allows(&Url::parse(url).expect("a URL"));
        assert!(allows("s3://lake/any/"));
        assert!(!allows("s3://lake/any/x%2f..%2f..%2f/"));
        assert!(!allows("s3://other/any/"));
    }

    #[test]
    fn whom_the_scheduler_asks_is_its_own_affair() {
        let with = |key: &str| {
            let mut spec = spec();
            spec.object_store.insert(key.into(), "x".into());
            code(&spec)
        };
        assert_eq!(with("aws_region"), "none");
        for key in [
            "aws_endpoint",
            "AWS_ENDPOINT_URL",
            "aws_secret_access_key",
            "aws_skip_signature",
            "aws_container_credentials_full_uri",
            "aws_web_identity_token_file",
            "aws_proxy_url",
            "google_service_account_path",
        ] {
            assert_eq!(with(key), "OPTION_NOT_ALLOWED", "{key}");
        }
    }
}
