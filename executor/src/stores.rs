//! Object stores of plans that come from elsewhere: opened when a plan first names them.
//!
//! Credentials are those of this process's environment; where a store is and how to speak to it may
//! come with the plan.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use object_store::ObjectStore;
use url::{Position, Url};
use windrow_delta::{Location, StoreOptions};

/// What a plan brings with it for the executors. DataFusion's own macro for such options names them
/// without their prefix when they are listed, so that they would be lost on the way.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Where stores are and how to speak to them, as JSON; never a secret.
    pub stores: String,
    /// The span that its tasks belong to; empty if nobody collects traces.
    pub traceparent: String,
    /// What its tasks are for, in logs and traces.
    pub update: String,
    pub flow: String,
    pub slice: u64,
}

impl ConfigExtension for PlanOptions {
    const PREFIX: &'static str = "windrow";
}

impl ExtensionOptions for PlanOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let field = match key {
            "stores" => &mut self.stores,
            "traceparent" => &mut self.traceparent,
            "update" => &mut self.update,
            "flow" => &mut self.flow,
            "slice" => {
                self.slice = value.parse().map_err(|e| {
                    DataFusionError::Configuration(format!("windrow.slice is `{value}`: {e}"))
                })?;
                return Ok(());
            }
            _ => {
                return Err(DataFusionError::Configuration(format!(
                    "there is no option windrow.{key}"
                )));
            }
        };
        *field = value.to_string();
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        [
            ("stores", self.stores.clone()),
            ("traceparent", self.traceparent.clone()),
            ("update", self.update.clone()),
            ("flow", self.flow.clone()),
            ("slice", self.slice.to_string()),
        ]
        .map(|(key, value)| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value: Some(value),
            description: "",
        })
        .into()
    }
}

/// How the stores of a plan are written into its options.
pub fn written(options: &StoreOptions) -> String {
    serde_json::json!(options.without_secrets()).to_string()
}

/// Runtimes for tasks, one for each set of store options: with its own stores, and memory and spill
/// files that all share.
#[derive(Debug)]
pub(crate) struct Runtimes {
    pool: Arc<dyn MemoryPool>,
    spill: std::path::PathBuf,
    open: Mutex<BTreeMap<String, Arc<RuntimeEnv>>>,
}

/// Different sets of store options that are kept; a pipeline has one.
const MOST_RUNTIMES: usize = 64;

impl Runtimes {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, spill: std::path::PathBuf) -> Self {
        Self {
            pool,
            spill,
            open: Mutex::default(),
        }
    }

    /// # Errors
    /// If the options are no JSON, or the folder for spilling can't be used.
    pub(crate) fn of(&self, config: &SessionConfig) -> Result<Arc<RuntimeEnv>> {
        let stores = config
            .options()
            .extensions
            .get::<PlanOptions>()
            .map(|o| o.stores.clone())
            .unwrap_or_default();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = open.get(&stores) {
            return Ok(runtime.clone());
        }
        let own: BTreeMap<String, String> = match stores.as_str() {
            "" => BTreeMap::new(),
            json => serde_json::from_str(json).map_err(|e| {
                DataFusionError::Plan(format!("the plan's store options can't be read: {e}"))
            })?,
        };
        let registry = OnDemand {
            options: StoreOptions::from_environment().overlaid(own),
            open: Mutex::default(),
        };
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(self.pool.clone())
            .with_temp_file_path(&self.spill)
            .with_object_store_registry(Arc::new(registry))
            .build_arc()?;
        if open.len() >= MOST_RUNTIMES {
            open.clear();
        }
        open.insert(stores, runtime.clone());
        Ok(runtime)
    }
}

#[derive(Debug)]
struct OnDemand {
    options: StoreOptions,
    /// By scheme, host and port.
    open: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
}

impl OnDemand {
    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn ObjectStore>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn root_of(url: &Url) -> String {
    url[..Position::BeforePath].to_string()
}

impl ObjectStoreRegistry for OnDemand {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.open().insert(root_of(url), store)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if let Some(store) = self.open().get(&root_of(url)) {
            return Ok(store.clone());
        }
        let mut root = url.clone();
        root.set_path("/");
        let location = Location::open(&root, &self.options).map_err(crate::scan::external)?;
        let store = location.root_store();
        self.open().insert(root_of(url), store.clone());
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use ballista_core::extension::SessionConfigHelperExt;

    use super::*;

    #[test]
    fn options_of_a_plan_arrive() {
        let sent = PlanOptions {
            stores: r#"{"aws_endpoint":"http://127.0.0.1:1"}"#.into(),
            traceparent: "00-a-b-01".into(),
            update: "u".into(),
            flow: "f".into(),
            slice: 7,
        };
        let pairs = SessionConfig::new()
            .with_option_extension(sent.clone())
            .to_key_value_pairs();
        let config = crate::process::task_config().update_from_key_value_pair(&pairs);
        let found = config.options().extensions.get::<PlanOptions>();
        assert_eq!(format!("{:?}", Some(&sent)), format!("{found:?}"));
    }
}
