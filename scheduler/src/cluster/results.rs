//! What a job staged, fetched from the executors that ran its last tasks.

use ballista_core::client::BallistaClient;
use ballista_core::serde::protobuf::SuccessfulJob;
use datafusion::arrow::array::RecordBatch;
use futures::TryStreamExt;
use windrow_executor::link::Link;
use windrow_executor::process::MESSAGE_BYTES;
use windrow_executor::stage::StagedFile;

/// Fetches the rows of the result. The error says in words why a part can't be had any more.
pub(crate) async fn fetch(link: &Link, job: SuccessfulJob) -> Result<Vec<StagedFile>, String> {
    let mut files = Vec::new();
    for location in job.partition_location {
        let layout = location.layout();
        let (Some(executor), Some(partition)) = (location.executor_meta, location.partition_id)
        else {
            return Err("a part of the result has no place".into());
        };
        let batches = async {
            let port = u16::try_from(executor.port).unwrap_or_default();
            let mut client = BallistaClient::try_new(
                &executor.host,
                port,
                MESSAGE_BYTES,
                link.has_tls(),
                link.customized(),
                1,
                300,
                0,
                0,
            )
            .await?;
            let rows = client
                .fetch_partition(
                    &executor.id,
                    &partition.into(),
                    location.file_id,
                    layout,
                    true,
                )
                .await?;
            Ok::<_, ballista_core::error::BallistaError>(
                rows.try_collect::<Vec<RecordBatch>>().await?,
            )
        };
        let batches = batches.await.map_err(|e| {
            format!(
                "a part of the result can't be had from executor {}:{}: {e}",
                executor.host, executor.port
            )
        })?;
        for batch in &batches {
            files.extend(StagedFile::from_batch(batch).map_err(|e| e.to_string())?);
        }
    }
    Ok(files)
}
