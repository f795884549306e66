//! Locations and the object stores behind them.
//!
//! Credentials come from the environment or from the pipeline's `object_store` keys and stay in
//! [`StoreOptions`], whose `Debug` shows the keys only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use deltalake::logstore::{LogStoreRef, StorageConfig, logstore_for};
use object_store::ObjectStore;
use object_store::path::Path;
use url::Url;

use crate::error::TableError;

/// Keys as object_store knows them (`aws_region`, `aws_endpoint`, ...).
#[derive(Clone, Default)]
pub struct StoreOptions(BTreeMap<String, String>);

impl StoreOptions {
    pub fn new(options: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(options.into_iter().collect())
    }

    /// What the environment of this process says about stores.
    pub fn from_environment() -> Self {
        Self(environment())
    }

    /// These options, and `others` over them.
    #[must_use]
    pub fn overlaid(mut self, others: impl IntoIterator<Item = (String, String)>) -> Self {
        self.0.extend(others);
        self
    }

    /// The options that say where a store is and how to speak to it, without any that could open
    /// it: what may be written into a plan or a message.
    pub fn without_secrets(&self) -> BTreeMap<String, String> {
        self.0
            .iter()
            .filter(|(key, _)| tells_a_place(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }
}

/// Every `AWS_*`, `GOOGLE_*` and `AZURE_*` variable, in the spelling that object stores know.
pub fn environment() -> BTreeMap<String, String> {
    let known = |key: &str| {
        ["AWS_", "GOOGLE_", "AZURE_"]
            .iter()
            .any(|p| key.starts_with(p))
    };
    std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .filter(|(k, _)| known(k))
        .map(|(k, v)| (k.to_lowercase(), v))
        .collect()
}

/// Whether an option is about a place or a manner, by the words in its name; any other might be a
/// secret.
fn tells_a_place(key: &str) -> bool {
    const PLACES: [&str; 8] = [
        "region",
        "endpoint",
        "allow_http",
        "virtual_hosted",
        "s3_express",
        "unsigned_payload",
        "conditional_put",
        "account_name",
    ];
    let key = key.to_lowercase();
    PLACES.iter().any(|word| key.contains(word)) && !key.contains("credential")
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A folder on some object store: where a table, or a set of files, lives.
#[derive(Clone)]
pub struct Location {
    url: Url,
    log_store: LogStoreRef,
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({})", self.url)
    }
}

impl Location {
    /// Opens the store of `url`; nothing is read yet.
    pub fn open(url: &Url, options: &StoreOptions) -> Result<Self, TableError> {
        register_handlers();
        let mut url = url.clone();
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let refused = |e: &dyn fmt::Display| TableError::Location {
            url: shown(&url),
            reason: e.to_string(),
        };
        if !matches!(
            url.scheme(),
            "file" | "memory" | "s3" | "s3a" | "gs" | "abfss" | "abfs" | "az"
        ) {
            return Err(refused(&format!(
                "the scheme `{}` is unknown",
                url.scheme()
            )));
        }
        let config = StorageConfig::parse_options(options.0.clone()).map_err(|e| refused(&e))?;
        let log_store = logstore_for(&url, config).map_err(|e| refused(&e))?;
        Ok(Self { url, log_store })
    }

    /// Always ends with a slash.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The location as shown to people.
    pub fn shown(&self) -> String {
        shown(&self.url)
    }

    pub fn log_store(&self) -> &LogStoreRef {
        &self.log_store
    }

    /// The store whose root is this folder.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        self.log_store.object_store(None)
    }

    /// The store whose root is the bucket (or `/`).
    pub fn root_store(&self) -> Arc<dyn ObjectStore> {
        self.log_store.root_object_store(None)
    }

    /// This folder inside [`Location::root_store`].
    pub fn root_path(&self) -> Result<Path, TableError> {
        Path::from_url_path(self.url.path()).map_err(|e| TableError::Location {
            url: self.shown(),
            reason: e.to_string(),
        })
    }

    /// `scheme://bucket/`, under which DataFusion finds [`Location::root_store`].
    pub fn store_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_path("/");
        url.set_query(None);
        url
    }
}

fn shown(url: &Url) -> String {
    let text = match url.to_file_path() {
        Ok(path) if url.scheme() == "file" => path.display().to_string(),
        _ => url.to_string(),
    };
    text.trim_end_matches('/').to_string()
}

fn register_handlers() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        #[cfg(feature = "gs")]
        deltalake::gcp::register_handlers(None);
        #[cfg(feature = "azure")]
        deltalake::azure::register_handlers(None);
        deltalake::aws::register_handlers(None);
        crate::s3::register();
    });
}
