//! Records on object storage, below `<root>/system/scheduler`.
//!
//! ```text
//! pipelines/<id>.json            a pipeline
//! updates/<pipeline>/<id>.json   an update; ids begin with their time, so names sort by it
//! active/<id>.json               an update that has not ended
//! ```
//!
//! A record is made only where there is none, and replaced only as it was read. An answer of the store
//! that is lost, or that says "somebody else was first", is settled by reading the record back.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;
use windrow_delta::{Location, StoreOptions, TableError};

use super::error::ServiceError;
use super::record::{ActiveRecord, PipelineRecord, UpdateRecord};
use crate::events::below;

/// The version of a record that was read or written.
pub(crate) type Version = UpdateVersion;

#[derive(Debug, Clone)]
pub(crate) struct Records {
    location: Location,
}

/// Ids are made by a scheduler; one with other characters names nothing.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

pub(crate) fn pipeline_path(id: &str) -> Path {
    Path::from_iter(["pipelines", &format!("{id}.json")])
}

fn update_path(pipeline: &str, id: &str) -> Path {
    Path::from_iter(["updates", pipeline, &format!("{id}.json")])
}

fn active_path(id: &str) -> Path {
    Path::from_iter(["active", &format!("{id}.json")])
}

impl Records {
    pub(crate) fn open(root: &Url, options: &StoreOptions) -> Result<Self, TableError> {
        let location = Location::open(&below(root, "system/scheduler"), options)?;
        Ok(Self { location })
    }

    fn failed(&self, source: object_store::Error) -> ServiceError {
        ServiceError::Table(TableError::Storage {
            url: self.location.shown(),
            source,
        })
    }

    async fn read<T: DeserializeOwned>(
        &self,
        path: &Path,
    ) -> Result<Option<(T, Version)>, ServiceError> {
        let Some((bytes, version)) = self.bytes(path).await? else {
            return Ok(None);
        };
        let value = serde_json::from_slice(&bytes).map_err(|e| ServiceError::Damaged {
            path: path.to_string(),
            reason: e.to_string(),
        })?;
        Ok(Some((value, version)))
    }

    async fn bytes(&self, path: &Path) -> Result<Option<(Bytes, Version)>, ServiceError> {
        let got = match self.location.store().get(path).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(self.failed(source)),
        };
        let version = UpdateVersion {
            e_tag: got.meta.e_tag.clone(),
            version: got.meta.version.clone(),
        };
        let bytes = got.bytes().await.map_err(|e| self.failed(e))?;
        Ok(Some((bytes, version)))
    }

    /// Puts a record where there is none, or in place of the version that was read.
    async fn write<T: Serialize>(
        &self,
        path: &Path,
        value: &T,
        before: Option<&Version>,
    ) -> Result<Version, ServiceError> {
        let body = serde_json::to_vec(value).map_err(|e| ServiceError::Damaged {
            path: path.to_string(),
            reason: e.to_string(),
        })?;
        let body = Bytes::from(body);
        let mode = match before {
            None => PutMode::Create,
            Some(version) => PutMode::Update(version.clone()),
        };
        match self.put(path, body.clone(), mode).await {
            Ok(result) => Ok(version_of(result)),
            Err(
                object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. },
            ) => {
                // A local folder knows no versions. It belongs to one scheduler, which changes each record in
                // one place at a time.
                let put = self.put(path, body, PutMode::Overwrite).await;
                put.map(version_of).map_err(|e| self.failed(e))
            }
            Err(source) => match self.bytes(path).await? {
                Some((there, version)) if there == body => Ok(version),
                _ => Err(match source {
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. } => ServiceError::Contended {
                        path: path.to_string(),
                    },
                    other => self.failed(other),
                }),
            },
        }
    }

    async fn put(
        &self,
        path: &Path,
        body: Bytes,
        mode: PutMode,
    ) -> Result<PutResult, object_store::Error> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let store = self.location.store();
        store.put_opts(path, PutPayload::from(body), options).await
    }

    async fn delete(&self, path: &Path) -> Result<(), ServiceError> {
        match self.location.store().delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// The ids of the records of a folder, sorted.
    async fn ids(&self, folder: &Path) -> Result<Vec<String>, ServiceError> {
        let store = self.location.store();
        let listed = store.list(Some(folder)).map_ok(|m| m.location);
        let paths: Vec<Path> = match listed.try_collect().await {
            Ok(paths) => paths,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(source) => return Err(self.failed(source)),
        };
        let mut ids: Vec<String> = paths
            .iter()
            .filter_map(|p| p.filename()?.strip_suffix(".json").map(str::to_string))
            .filter(|id| is_id(id))
            .collect();
        ids.sort();
        Ok(ids)
    }

    pub(crate) async fn pipeline_ids(&self) -> Result<Vec<String>, ServiceError> {
        self.ids(&Path::from("pipelines")).await
    }

    pub(crate) async fn pipeline(
        &self,
        id: &str,
    ) -> Result<Option<(PipelineRecord, Version)>, ServiceError> {
        self.read(&pipeline_path(id)).await
    }

    pub(crate) async fn put_pipeline(
        &self,
        record: &PipelineRecord,
        before: Option<&Version>,
    ) -> Result<Version, ServiceError> {
        self.write(&pipeline_path(&record.id), record, before).await
    }

    pub(crate) async fn delete_pipeline(&self, id: &str) -> Result<(), ServiceError> {
        self.delete(&pipeline_path(id)).await
    }

    /// The oldest first.
    pub(crate) async fn update_ids(&self, pipeline: &str) -> Result<Vec<String>, ServiceError> {
        self.ids(&Path::from_iter(["updates", pipeline])).await
    }

    pub(crate) async fn update(
        &self,
        pipeline: &str,
        id: &str,
    ) -> Result<Option<(UpdateRecord, Version)>, ServiceError> {
        self.read(&update_path(pipeline, id)).await
    }

    pub(crate) async fn put_update(
        &self,
        record: &UpdateRecord,
        before: Option<&Version>,
    ) -> Result<Version, ServiceError> {
        let path = update_path(&record.pipeline_id, &record.id);
        self.write(&path, record, before).await
    }

    pub(crate) async fn delete_update(&self, pipeline: &str, id: &str) -> Result<(), ServiceError> {
        self.delete(&update_path(pipeline, id)).await
    }

    pub(crate) async fn active(&self) -> Result<Vec<ActiveRecord>, ServiceError> {
        let mut found = Vec::new();
        for id in self.ids(&Path::from("active")).await? {
            if let Some((record, _)) = self.read(&active_path(&id)).await? {
                found.push(record);
            }
        }
        Ok(found)
    }

    pub(crate) async fn put_active(&self, record: &ActiveRecord) -> Result<(), ServiceError> {
        let path = active_path(&record.update);
        self.write(&path, record, None).await.map(|_| ())
    }

    pub(crate) async fn delete_active(&self, id: &str) -> Result<(), ServiceError> {
        self.delete(&active_path(id)).await
    }
}

fn version_of(result: PutResult) -> Version {
    UpdateVersion {
        e_tag: result.e_tag,
        version: result.version,
    }
}
