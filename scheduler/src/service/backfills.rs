//! The ledgers of a pipeline's backfills, with what of them is under way here.

use windrow_proto::v1 as pb;

use super::error::ServiceError;
use super::record::Request;
use super::{Inner, convert};
use crate::config::PipelineConfig;
use crate::ledger::{Kept, Ledgers};

/// Backfills on one page.
const PAGE: usize = 25;
const LARGEST_PAGE: usize = 100;

impl Inner {
    fn runs_backfill(&self, id: &str) -> Option<String> {
        let under_way = self.under_way();
        let found = under_way.iter().find(|live| {
            let record = live.record();
            matches!(record.request, Request::Backfill(_))
                && record.backfill_id.as_deref() == Some(id)
        });
        found.map(|live| live.id.clone())
    }

    fn shown(&self, kept: &Kept, with_slices: bool) -> pb::Backfill {
        convert::backfill(kept, self.runs_backfill(&kept.ledger.id), with_slices)
    }

    async fn ledger(ledgers: &Ledgers, id: &str) -> Result<Kept, ServiceError> {
        let found = ledgers.find(id).await?;
        found.ok_or_else(|| ServiceError::BackfillNotFound { id: id.to_string() })
    }

    pub(crate) async fn backfill(
        &self,
        config: &PipelineConfig,
        id: &str,
        with_slices: bool,
    ) -> Result<pb::Backfill, ServiceError> {
        let ledgers = Ledgers::open(config)?;
        let kept = Self::ledger(&ledgers, id).await?;
        Ok(self.shown(&kept, with_slices))
    }

    pub(crate) async fn backfills(
        &self,
        config: &PipelineConfig,
        request: &pb::ListBackfillsRequest,
    ) -> Result<pb::ListBackfillsResponse, ServiceError> {
        let ledgers = Ledgers::open(config)?;
        let flow = Some(request.flow.as_str()).filter(|flow| !flow.is_empty());
        let mut entries = ledgers.list(flow).await?;
        entries.retain(|e| request.page_token.is_empty() || e.id < request.page_token);
        let size = page_size(request.page_size, PAGE, LARGEST_PAGE);
        let mut response = pb::ListBackfillsResponse::default();
        if entries.len() > size {
            entries.truncate(size);
            response.next_page_token = entries.last().map(|e| e.id.clone()).unwrap_or_default();
        }
        for entry in &entries {
            if let Some(kept) = ledgers.read(entry).await? {
                response.backfills.push(self.shown(&kept, false));
            }
        }
        Ok(response)
    }

    pub(crate) async fn stop_backfill(
        &self,
        config: &PipelineConfig,
        id: &str,
    ) -> Result<pb::Backfill, ServiceError> {
        let ledgers = Ledgers::open(config)?;
        let kept = Self::ledger(&ledgers, id).await?;
        if !kept.ledger.is_done() {
            ledgers.request_stop(&kept.ledger).await?;
        }
        self.backfill(config, id, false).await
    }
}

/// What a client asks for, within bounds.
pub(crate) fn page_size(asked: u32, default: usize, largest: usize) -> usize {
    match usize::try_from(asked) {
        Ok(0) => default,
        Ok(size) => size.min(largest),
        Err(_) => largest,
    }
}
