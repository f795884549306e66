//! How a flow will be refreshed: its state and what changed since are read, and the technique is
//! decided. What is in doubt is computed as a whole.

use windrow_delta::state::FlowState;
use windrow_flows::refresh::{FallbackReason, RefreshPolicy, Technique, decide, decision_for};

use crate::bind::words_of;
use crate::facts;
use crate::flow::{FlowPlan, ScanFilters, Scope};
use crate::incremental;
use crate::learned::Learned;
use crate::report::{ChangeDataRead, Considered, Problem};
use crate::run::{RowsForm, Work};
use crate::update::Inner;

/// How a flow will be refreshed.
pub(crate) struct Prepared {
    pub(crate) state: Option<FlowState>,
    pub(crate) filters: ScanFilters,
    pub(crate) work: Work,
    pub(crate) considered: Vec<Considered>,
    pub(crate) change_data: Vec<ChangeDataRead>,
}

impl Inner {
    /// Decides how a planned flow is refreshed. With `all_costs` also those are worked out that
    /// decide nothing, to be shown.
    pub(crate) async fn prepare(
        &self,
        plan: &mut FlowPlan,
        all_costs: bool,
    ) -> Result<Prepared, Problem> {
        let flow = &self.project.flows[plan.flow];
        let table_problem = |e: windrow_delta::TableError| Problem {
            code: e.code().into(),
            message: e.to_string(),
            help: None,
        };
        let query_problem = |e: datafusion::error::DataFusionError| {
            let (code, message) = words_of(&e);
            Problem {
                code: code.into(),
                message,
                help: None,
            }
        };
        let state = async {
            match &plan.existing {
                Some(existing) => FlowState::load(existing, &flow.name).await,
                None => Ok(None),
            }
        };
        let (state, filters) = futures::join!(state, ScanFilters::of(plan));
        let state = state.map_err(table_problem)?;
        let filters = filters.map_err(query_problem)?;
        let gathered = facts::gather(
            plan,
            state.as_ref(),
            &filters,
            self.project.time_zone(),
            &self.clock,
        )
        .await
        .map_err(table_problem)?;
        let policy = self.project.refresh_policy(flow.table);
        let decided = match policy {
            RefreshPolicy::Full if !plan.full_refresh => {
                Some(decision_for(vec![FallbackReason::FullRefreshRequested]))
            }
            _ => decide(&gathered.facts),
        };
        // A window that only grew needs the new range and what changed in the rest.
        let grew = !gathered.facts.window_covered
            && !plan.is_override
            && gathered.facts.predicate_reaches
            && decided
                .as_ref()
                .is_some_and(|d| d.reasons == [FallbackReason::UnsupportedReplaceWherePredicate]);
        let uncovered = gathered.uncovered.clone().filter(|_| grew);
        let (mut considered, mut change_data) = (Vec::new(), Vec::new());
        let mut work = match decided.filter(|_| uncovered.is_none()) {
            Some(decision) => Work {
                rows: match decision.technique {
                    Technique::NoOp => None,
                    _ => Some(plan.windowed().map_err(query_problem)?),
                },
                form: RowsForm::Logical,
                decision,
                bytes_read: 0,
            },
            None => {
                let rules = incremental::Rules {
                    base_is_exact: gathered.base_is_exact,
                    at_any_cost: matches!(
                        policy,
                        RefreshPolicy::Incremental | RefreshPolicy::IncrementalStrict
                    ),
                    uncovered,
                    all_costs,
                    learned: Learned::of(state.as_ref(), &plan.fingerprint()),
                    only: self
                        .project
                        .setting("windrow.technique")
                        .map(|words| words.split(',').filter_map(Technique::of_word).collect())
                        .unwrap_or_default(),
                };
                match incremental::choose(plan, gathered.changed, rules).await {
                    Ok(chosen) => {
                        considered = chosen.considered;
                        change_data = chosen.change_data;
                        Work {
                            rows: chosen.rows,
                            form: match chosen.typed {
                                true => RowsForm::Typed,
                                false => RowsForm::Logical,
                            },
                            decision: chosen.decision,
                            bytes_read: chosen.bytes_read,
                        }
                    }
                    // What can't be told is computed.
                    Err(error) => {
                        let (_, message) = words_of(&error);
                        tracing::debug!(%error, flow = flow.name, "the change could not be told");
                        plan.scope = Scope::default();
                        plan.bound.log.take();
                        considered = incremental::not_told(&message);
                        Work {
                            rows: Some(plan.windowed().map_err(query_problem)?),
                            form: RowsForm::Logical,
                            decision: decision_for(vec![FallbackReason::PlanNotIncrementalizable]),
                            bytes_read: 0,
                        }
                    }
                }
            }
        };
        if work.decision.technique == Technique::CompleteRecompute
            && let Some(optimized) = filters.optimized(plan)
        {
            work.form = RowsForm::Optimized(Box::new(optimized));
        }
        if policy == RefreshPolicy::IncrementalStrict {
            check_strict(&flow.name, &work.decision.reasons)?;
        }
        Ok(Prepared {
            state,
            filters,
            work,
            considered,
            change_data,
        })
    }
}

/// Under the strict policy a flow is not recomputed for want of a technique. The first computation
/// and one that was asked for are no such case.
fn check_strict(flow: &str, reasons: &[FallbackReason]) -> Result<(), Problem> {
    let unwanted: Vec<&str> = reasons
        .iter()
        .filter(|r| {
            !matches!(
                r,
                FallbackReason::ChangeSetMissing | FallbackReason::FullRefreshRequested
            )
        })
        .map(|r| r.word())
        .collect();
    if unwanted.is_empty() || reasons.contains(&FallbackReason::ChangeSetMissing) {
        return Ok(());
    }
    Err(Problem {
        code: "INCREMENTAL_REFRESH_NOT_POSSIBLE".into(),
        message: format!(
            "flow `{flow}` has the refresh policy INCREMENTAL STRICT and can't be refreshed incrementally: {}",
            unwanted.join(", ")
        ),
        help: Some(
            "`windrow plan` shows what stands against it; run a full refresh, or choose the policy AUTO"
                .into(),
        ),
    })
}
