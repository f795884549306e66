//! Which ranges of a flow's past were processed, which were tried in vain, and which never were.
//!
//! Each commit of a REPLACE WHERE flow says which range of which column of time it processed; the flow
//! state adds them up. Slices that left no trace in the table are known from the ledgers of backfills
//! alone, as are those that failed. A range counts as processed up to the clock of its update: what
//! lay in the future then was not there to be processed.

use std::collections::BTreeMap;

use chrono::{DateTime, Days, NaiveDateTime, TimeDelta, Utc};
use datafusion::arrow::datatypes::DataType;
use serde_json::{Value, json};
use windrow_delta::state::{FlowState, History};
use windrow_delta::{Table, TableError, changes};
use windrow_executor::spark;
use windrow_flows::calendar;
use windrow_flows::name;
use windrow_flows::ranges::Ranges;
use windrow_flows::window::{Bound, BoundOp, Ordinal};

use crate::flow::FlowPlan;
use crate::ledger::{Ledger, LedgerSlice, Ledgers, SliceState};

/// Ranges of one column that a flow remembers; beyond that the earliest are forgotten, and count as
/// not processed.
const MOST_RANGES: usize = 2_000;

/// The line on which the values of a column of time lie: days, instants or local times, the latter two
/// in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Axis {
    Days { zone: String },
    Instants { zone: String },
    Locals { zone: String },
}

impl Axis {
    /// `None` for a column that has no calendar.
    pub(crate) fn of(data_type: &DataType, zone: &str) -> Option<Self> {
        let zone = zone.to_string();
        match data_type {
            DataType::Date32 => Some(Self::Days { zone }),
            DataType::Timestamp(_, Some(_)) => Some(Self::Instants { zone }),
            DataType::Timestamp(_, None) => Some(Self::Locals { zone }),
            _ => None,
        }
    }

    /// The first value that is not before a local time.
    fn from(&self, local: NaiveDateTime) -> Option<i64> {
        match self {
            Self::Days { .. } if local.time() != chrono::NaiveTime::MIN => {
                self.to(local.checked_add_days(Days::new(1))?)
            }
            _ => self.to(local),
        }
    }

    /// The value before which a range ends that ends before a local time.
    fn to(&self, local: NaiveDateTime) -> Option<i64> {
        let micros = local.and_utc().timestamp_micros();
        match self {
            Self::Days { .. } => Some(i64::from(local.date().to_epoch_days())),
            Self::Instants { zone } => spark::instant(zone, micros),
            Self::Locals { .. } => Some(micros),
        }
    }

    /// The local time of a value.
    fn local(&self, value: i64) -> Option<NaiveDateTime> {
        let local = match self {
            Self::Days { .. } => {
                let day = chrono::NaiveDate::from_epoch_days(i32::try_from(value).ok()?)?;
                return day.and_hms_opt(0, 0, 0);
            }
            Self::Instants { zone } => spark::local_time(zone, value)?,
            Self::Locals { .. } => value,
        };
        Some(DateTime::from_timestamp_micros(local)?.naive_utc())
    }

    /// The local bounds of a range; where the clock shows a time twice, they take in more.
    fn bounds(&self, from: i64, to: i64) -> Option<(NaiveDateTime, NaiveDateTime)> {
        let hour = TimeDelta::hours(1);
        let (mut first, mut end) = (self.local(from)?, self.local(to)?);
        if self.to(first)? > from {
            first = first.checked_sub_signed(hour)?;
        }
        if self.to(end)? < to {
            end = end.checked_add_signed(hour)?;
        }
        Some((first, end))
    }

    /// The value that is under way at an instant: those before it are over.
    fn under_way(&self, clock: DateTime<Utc>) -> Option<i64> {
        let instant = clock.timestamp_micros();
        let (Self::Days { zone } | Self::Instants { zone } | Self::Locals { zone }) = self;
        match self {
            Self::Instants { .. } => Some(instant),
            _ => {
                let local = spark::local_time(zone, instant)?;
                self.to(DateTime::from_timestamp_micros(local)?.naive_utc())
            }
        }
    }
}

/// A range of a column that an update processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) column: String,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// What an update by this plan processes. Under an override, only a predicate that bounds one column
/// and nothing else takes in all rows of a range; the flow's own predicate says which rows there are
/// to be.
pub(crate) fn parts(plan: &FlowPlan, zone: &str, clock: DateTime<Utc>) -> Vec<Part> {
    let Some(pinned) = &plan.pinned else {
        return Vec::new();
    };
    if !pinned.deterministic {
        return Vec::new();
    }
    let conjuncts = &plan.window.conjuncts;
    let fields = plan.target_schema.fields().iter();
    fields
        .filter_map(|field| {
            let axis = Axis::of(field.data_type(), zone)?;
            let own = |b: &&Bound| b.column == *field.name();
            let bounds: Vec<&Bound> = conjuncts
                .iter()
                .filter_map(|c| c.bound.as_ref())
                .filter(own)
                .collect();
            if bounds.is_empty() || (plan.is_override && bounds.len() < conjuncts.len()) {
                return None;
            }
            let mut part = Part {
                column: name::key(field.name()),
                from: i64::MIN,
                to: axis.under_way(clock)?,
            };
            for bound in bounds {
                let Ordinal::Int { value, .. } = bound.value else {
                    return None;
                };
                let next = value.saturating_add(1);
                match bound.op {
                    BoundOp::GtEq => part.from = part.from.max(value),
                    BoundOp::Gt => part.from = part.from.max(next),
                    BoundOp::Lt => part.to = part.to.min(value),
                    BoundOp::LtEq => part.to = part.to.min(next),
                    BoundOp::Eq => {
                        part.from = part.from.max(value);
                        part.to = part.to.min(next);
                    }
                }
            }
            (part.from < part.to).then_some(part)
        })
        .collect()
}

/// The parts as a commit tells them.
pub(crate) fn told(parts: &[Part]) -> Value {
    parts
        .iter()
        .map(|p| json!({"column": p.column, "from": p.from, "to": p.to}))
        .collect()
}

/// The history of a flow after an update by this plan. `before` is the state that it follows.
pub(crate) fn after(plan: &FlowPlan, before: Option<&FlowState>, parts: &[Part]) -> History {
    let kept = before.filter(|_| plan.existing.is_some() && !plan.full_refresh);
    let mut history = match kept {
        Some(state) => state.history.clone(),
        None => History {
            since: Some(Utc::now().timestamp_millis()),
            columns: BTreeMap::new(),
        },
    };
    for part in parts {
        let ranges = history.columns.entry(part.column.clone()).or_default();
        ranges.add(part.from, part.to);
        ranges.keep_last(MOST_RANGES);
    }
    history
}

/// Why a range is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// Nobody ever tried.
    Missing,
    /// The last backfill that tried has failed.
    Failed,
    /// A backfill has it before it.
    Pending,
}

impl OpenState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Missing => "MISSING",
            Self::Failed => "FAILED",
            Self::Pending => "PENDING",
        }
    }
}

/// A range that is not processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub from: NaiveDateTime,
    pub to: NaiveDateTime,
    pub state: OpenState,
    /// The backfill that failed, or that has not come to it yet.
    pub backfill: Option<String>,
}

/// A slice of an earlier backfill that was not processed.
#[derive(Debug, Clone)]
struct Attempt {
    from: i64,
    to: i64,
    backfill: String,
    ended: DateTime<Utc>,
    /// The target's version then.
    version: i64,
}

/// What is known of a flow's past by one column.
pub(crate) struct Coverage {
    axis: Axis,
    processed: Ranges,
    /// The newest first.
    failed: Vec<Attempt>,
    pending: Vec<Attempt>,
    /// Where what is known begins, and where it ends.
    first: Option<i64>,
    end: Option<i64>,
}

impl Coverage {
    /// Reads flow state, ledgers and, where something had failed, the target's log.
    pub(crate) async fn read(
        plan: &FlowPlan,
        flow: &str,
        column: &str,
        axis: Axis,
        ledgers: &Ledgers,
    ) -> Result<Self, TableError> {
        let state = match &plan.existing {
            Some(existing) => FlowState::load(existing, flow).await?,
            None => None,
        };
        let key = name::key(column);
        let history = state.map(|s| s.history).unwrap_or_default();
        let mut coverage = Self {
            axis,
            processed: history.columns.get(&key).cloned().unwrap_or_default(),
            failed: Vec::new(),
            pending: Vec::new(),
            first: None,
            end: None,
        };
        for (from, to) in coverage.processed.clone().iter() {
            coverage.knows(from, to);
        }
        let since = history.since.and_then(DateTime::from_timestamp_millis);
        let mut done: Vec<(i64, i64, DateTime<Utc>)> = Vec::new();
        for entry in ledgers.list(Some(flow)).await? {
            let Some(kept) = ledgers.read(&entry).await? else {
                continue;
            };
            let ledger = kept.ledger;
            if name::key(&ledger.column) != key {
                continue;
            }
            for slice in &ledger.slices {
                coverage.take(plan, &ledger, slice, since, &mut done);
            }
        }
        coverage.failed.sort_by_key(|f| std::cmp::Reverse(f.ended));
        coverage.settle(&done);
        if let Some(existing) = &plan.existing {
            coverage.settle_by_log(existing, flow, &key).await?;
        }
        for (from, to, _) in done {
            coverage.processed.add(from, to);
        }
        for attempt in &coverage.failed {
            coverage.processed.remove(attempt.from, attempt.to);
        }
        Ok(coverage)
    }

    fn knows(&mut self, from: i64, to: i64) {
        if from > i64::MIN {
            self.first = Some(self.first.map_or(from, |first| first.min(from)));
        }
        self.end = Some(self.end.map_or(to, |end| end.max(to)));
    }

    /// What a ledger says of one slice. What was before the table was computed from the start counts no
    /// more.
    fn take(
        &mut self,
        plan: &FlowPlan,
        ledger: &Ledger,
        slice: &LedgerSlice,
        since: Option<DateTime<Utc>>,
        done: &mut Vec<(i64, i64, DateTime<Utc>)>,
    ) {
        let bounds = (calendar::parse(&slice.from), calendar::parse(&slice.to));
        let (Some(from), Some(to)) = bounds else {
            return;
        };
        let (Some(from), Some(to)) = (self.axis.from(from), self.axis.to(to)) else {
            return;
        };
        self.knows(from, to);
        let ended = slice.ended.unwrap_or_else(|| ledger.begun());
        let counts = plan.existing.is_some() && since.is_none_or(|since| ended >= since);
        let attempt = Attempt {
            from,
            to,
            backfill: ledger.id.clone(),
            ended,
            version: slice.version.unwrap_or(ledger.target_version),
        };
        match slice.state {
            SliceState::Completed if counts => {
                let clock = slice.clock.unwrap_or_else(|| ledger.begun());
                let over = self.axis.under_way(clock).unwrap_or(to);
                done.push((from, to.min(over), ended));
            }
            SliceState::Completed => {}
            // One that failed before there was a table has failed all the same.
            SliceState::Failed if counts || plan.existing.is_none() => self.failed.push(attempt),
            SliceState::Failed => {}
            SliceState::Pending => self.pending.push(attempt),
        }
    }

    /// Takes from what failed the ranges that backfills have done since.
    fn settle(&mut self, done: &[(i64, i64, DateTime<Utc>)]) {
        let mut left = Vec::new();
        for attempt in std::mem::take(&mut self.failed) {
            let mut open = Ranges::of(attempt.from, attempt.to);
            for (from, to, ended) in done {
                if *ended > attempt.ended {
                    open.remove(*from, *to);
                }
            }
            left.extend(attempt.parts(&open));
        }
        self.failed = left;
    }

    /// Takes from what failed the ranges that any commit of the flow has processed since. A log that no
    /// longer reaches back tells less; ranges are then processed again, which is safe.
    async fn settle_by_log(
        &mut self,
        target: &Table,
        flow: &str,
        key: &str,
    ) -> Result<(), TableError> {
        let Some(first) = self.failed.iter().map(|a| a.version).min() else {
            return Ok(());
        };
        for version in (first + 1).max(0)..=target.version() {
            let Some(commit) = changes::at(target.location(), version).await? else {
                continue;
            };
            let Some(info) = commit.windrow else { continue };
            if info.get("flow").and_then(Value::as_str) != Some(flow) {
                continue;
            }
            let processed = info.get("processed").and_then(Value::as_array);
            for part in processed.into_iter().flatten() {
                let int = |key: &str| part.get(key).and_then(Value::as_i64);
                let (Some(from), Some(to)) = (int("from"), int("to")) else {
                    continue;
                };
                if part.get("column").and_then(Value::as_str) != Some(key) {
                    continue;
                }
                let mut left = Vec::new();
                for attempt in std::mem::take(&mut self.failed) {
                    let mut open = Ranges::of(attempt.from, attempt.to);
                    if attempt.version < version {
                        open.remove(from, to);
                    }
                    left.extend(attempt.parts(&open));
                }
                self.failed = left;
            }
        }
        Ok(())
    }

    /// The span of all that is known; `None` when that is nothing.
    pub(crate) fn span(&self) -> Option<(NaiveDateTime, NaiveDateTime)> {
        let (from, to) = (self.first?, self.end?);
        (from < to).then(|| self.axis.bounds(from, to))?
    }

    /// What is open between two local times, in order.
    pub(crate) fn open(&self, from: NaiveDateTime, to: NaiveDateTime) -> Vec<Open> {
        // Outward: a day of which a part is asked for is asked for.
        let (Some(first), Some(end)) = (self.axis.to(from), self.axis.from(to)) else {
            return Vec::new();
        };
        let mut left = Ranges::of(first, end).without(&self.processed);
        let mut found = Vec::new();
        let tried = [
            (OpenState::Failed, &self.failed),
            (OpenState::Pending, &self.pending),
        ];
        for (state, attempts) in tried {
            for attempt in attempts {
                for (from, to) in left.within(attempt.from, attempt.to).iter() {
                    found.push((from, to, state, Some(attempt.backfill.clone())));
                }
                left.remove(attempt.from, attempt.to);
            }
        }
        let never = left.iter().map(|(f, t)| (f, t, OpenState::Missing, None));
        found.extend(never);
        found.sort_by_key(|(from, ..)| *from);
        let mut open: Vec<Open> = Vec::new();
        for (from, to, state, backfill) in found {
            let Some((from, to)) = self.axis.bounds(from, to) else {
                continue;
            };
            match open.last_mut() {
                Some(last)
                    if last.to == from && last.state == state && last.backfill == backfill =>
                {
                    last.to = to;
                }
                _ => open.push(Open {
                    from,
                    to,
                    state,
                    backfill,
                }),
            }
        }
        open
    }
}

impl Attempt {
    fn parts(&self, open: &Ranges) -> Vec<Self> {
        open.iter()
            .map(|(from, to)| Self {
                from,
                to,
                ..self.clone()
            })
            .collect()
    }
}
