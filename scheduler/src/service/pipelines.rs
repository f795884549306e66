//! The pipelines that a scheduler keeps.
//!
//! All are known by id, name and storage; their specs stay on the storage until they are needed. One
//! change is made at a time.

use std::collections::BTreeMap;

use chrono::Utc;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{Mutex, MutexGuard};

use super::Inner;
use super::error::ServiceError;
use super::record::{FORMAT, PipelineRecord};
use super::store::{Records, is_id};
use crate::spec::PipelineSpec;

/// Records that are read side by side at the start.
const READ_AT_A_TIME: usize = 16;

/// A pipeline, without its spec.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) storage: String,
    pub(crate) revision: u64,
    pub(crate) created: chrono::DateTime<Utc>,
    pub(crate) modified: chrono::DateTime<Utc>,
}

impl Known {
    fn of(record: &PipelineRecord) -> Self {
        Self {
            name: record.spec.name.clone(),
            storage: record.spec.storage.clone(),
            revision: record.revision,
            created: record.created,
            modified: record.modified,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Index(Mutex<BTreeMap<String, Known>>);

impl Index {
    pub(crate) async fn read(records: &Records) -> Result<Self, ServiceError> {
        let ids = records.pipeline_ids().await?;
        let found: Vec<Option<(String, Known)>> = futures::stream::iter(ids)
            .map(|id| async move {
                match records.pipeline(&id).await {
                    Ok(found) => Ok(found.map(|(record, _)| (id, Known::of(&record)))),
                    // One that can't be read must not keep the others from running.
                    Err(ServiceError::Damaged { path, reason }) => {
                        tracing::error!(
                            path,
                            reason,
                            "a pipeline can't be read and is passed over"
                        );
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(READ_AT_A_TIME)
            .try_collect()
            .await?;
        Ok(Self(Mutex::new(found.into_iter().flatten().collect())))
    }

    async fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().await
    }
}

fn same(known: &BTreeMap<String, Known>, spec: &PipelineSpec) -> Option<String> {
    let found = known
        .iter()
        .find(|(_, k)| k.name == spec.name && k.storage == spec.storage);
    found.map(|(id, _)| id.clone())
}

impl Inner {
    /// The spec as it is kept: its storage in one spelling. What can't be used is refused.
    fn checked(&self, mut spec: PipelineSpec) -> Result<PipelineSpec, ServiceError> {
        let config = spec.config(&self.guard)?;
        spec.storage = config.storage.to_string();
        Ok(spec)
    }

    pub(crate) async fn create_pipeline(
        &self,
        spec: PipelineSpec,
    ) -> Result<PipelineRecord, ServiceError> {
        let spec = self.checked(spec)?;
        let mut known = self.pipelines.locked().await;
        if let Some(id) = same(&known, &spec) {
            return Err(ServiceError::PipelineExists {
                name: spec.name,
                id,
            });
        }
        self.add(&mut known, spec).await
    }

    async fn add(
        &self,
        known: &mut BTreeMap<String, Known>,
        spec: PipelineSpec,
    ) -> Result<PipelineRecord, ServiceError> {
        let now = Utc::now();
        let record = PipelineRecord {
            format: FORMAT,
            id: uuid::Uuid::now_v7().to_string(),
            revision: 1,
            created: now,
            modified: now,
            spec,
        };
        self.records.put_pipeline(&record, None).await?;
        known.insert(record.id.clone(), Known::of(&record));
        Ok(record)
    }

    pub(crate) async fn pipeline(&self, id: &str) -> Result<PipelineRecord, ServiceError> {
        let found = if is_id(id) {
            self.records.pipeline(id).await?
        } else {
            None
        };
        found
            .map(|(record, _)| record)
            .ok_or_else(|| ServiceError::PipelineNotFound { id: id.to_string() })
    }

    /// The pipeline of a spec that a client sent to start something: edited, or created.
    pub(crate) async fn keep_pipeline(
        &self,
        spec: PipelineSpec,
    ) -> Result<PipelineRecord, ServiceError> {
        let spec = self.checked(spec)?;
        let mut known = self.pipelines.locked().await;
        match same(&known, &spec) {
            None => self.add(&mut known, spec).await,
            Some(id) => self.replace(&mut known, &id, spec, 0).await,
        }
    }

    pub(crate) async fn edit_pipeline(
        &self,
        id: &str,
        spec: PipelineSpec,
        expected: u64,
    ) -> Result<PipelineRecord, ServiceError> {
        let spec = self.checked(spec)?;
        let mut known = self.pipelines.locked().await;
        if let Some(other) = same(&known, &spec).filter(|other| other != id) {
            return Err(ServiceError::PipelineExists {
                name: spec.name,
                id: other,
            });
        }
        self.replace(&mut known, id, spec, expected).await
    }

    async fn replace(
        &self,
        known: &mut BTreeMap<String, Known>,
        id: &str,
        spec: PipelineSpec,
        expected: u64,
    ) -> Result<PipelineRecord, ServiceError> {
        let missing = || ServiceError::PipelineNotFound { id: id.to_string() };
        if !is_id(id) {
            return Err(missing());
        }
        let (mut record, version) = self.records.pipeline(id).await?.ok_or_else(missing)?;
        if expected != 0 && record.revision != expected {
            return Err(ServiceError::Edited {
                id: id.to_string(),
                expected,
                found: record.revision,
            });
        }
        if record.spec == spec {
            return Ok(record);
        }
        record.revision += 1;
        record.modified = Utc::now();
        record.spec = spec;
        self.records.put_pipeline(&record, Some(&version)).await?;
        known.insert(id.to_string(), Known::of(&record));
        Ok(record)
    }

    /// Forgets a pipeline and its updates, unless one is under way.
    pub(crate) async fn delete_pipeline(&self, id: &str) -> Result<(), ServiceError> {
        self.until_taken_over().await;
        let mut known = self.pipelines.locked().await;
        let Some(pipeline) = known.get(id) else {
            return Err(ServiceError::PipelineNotFound { id: id.to_string() });
        };
        if let Some(update) = self.active_update(id) {
            return Err(ServiceError::AlreadyRunning {
                pipeline: pipeline.name.clone(),
                update,
            });
        }
        self.records.delete_pipeline(id).await?;
        known.remove(id);
        drop(known);
        for update in self.records.update_ids(id).await? {
            self.records.delete_update(id, &update).await?;
        }
        Ok(())
    }

    pub(crate) async fn known_pipelines(&self) -> Vec<(String, Known)> {
        let known = self.pipelines.locked().await;
        let mut all: Vec<_> = known.iter().map(|(i, k)| (i.clone(), k.clone())).collect();
        all.sort_by(|(a_id, a), (b_id, b)| (&a.name, a_id).cmp(&(&b.name, b_id)));
        all
    }

    /// The pipeline that a spec is of, if it is kept.
    pub(crate) async fn id_of(&self, spec: PipelineSpec) -> Result<Option<String>, ServiceError> {
        let spec = self.checked(spec)?;
        let known = self.pipelines.locked().await;
        Ok(same(&known, &spec))
    }
}
