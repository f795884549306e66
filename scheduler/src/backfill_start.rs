//! How a backfill begins or goes on: its range, the column by which it is told, its slices.

use chrono::NaiveDateTime;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, Operator};
use windrow_delta::{Table, TableError, changes};
use windrow_executor::scan::query_name;
use windrow_flows::calendar::{self, Span, Unit};
use windrow_flows::fault::Fault;
use windrow_flows::name;

use crate::backfill::{BackfillOptions, Only, Resume};
use crate::coverage::{Axis, Coverage, Open, OpenState};
use crate::facts::short_fingerprint;
use crate::flow::FlowPlan;
use crate::ledger::{Definition, FORMAT, Ledger, LedgerSlice, Ledgers, SliceState};

/// More slices than this are no plan but a slip of the pen.
const MOST_SLICES: usize = 100_000;

fn wrong(message: impl Into<String>) -> Fault {
    Fault::new("WRONG_OPTION", message)
}

pub(crate) fn table_fault(error: TableError) -> Vec<Fault> {
    vec![Fault::new(error.code(), error.to_string())]
}

fn time(text: &str, option: &str) -> Result<NaiveDateTime, Fault> {
    calendar::parse(text).ok_or_else(|| {
        wrong(format!("{option} `{text}` is no day and no time"))
            .help("write 2026-01-15 or 2026-01-15 08:00:00")
    })
}

fn definition(plan: &FlowPlan) -> Definition {
    Definition {
        query: short_fingerprint(&plan.bound.fingerprint),
        columns: short_fingerprint(&plan.evolved.schema.to_schema_string()),
    }
}

/// A backfill that begins.
pub(crate) struct Begun {
    pub(crate) ledger: Ledger,
    /// What is not processed, where only that is computed.
    pub(crate) open: Option<Vec<Open>>,
}

pub(crate) async fn begin(
    plan: &FlowPlan,
    flow: &str,
    zone: &str,
    id: &str,
    ledgers: &Ledgers,
    options: &BackfillOptions,
) -> Result<Begun, Vec<Fault>> {
    let one = |fault: Fault| vec![fault];
    let from = bound(options.from.as_deref(), "--from").map_err(one)?;
    let to = bound(options.to.as_deref(), "--to").map_err(one)?;
    let column = column(plan, flow, options.column.as_deref()).map_err(one)?;
    let (span, open) = match options.only {
        Only::All => {
            let (Some(from), Some(to)) = (from, to) else {
                return Err(one(wrong("a backfill needs --from and --to")));
            };
            (ordered(from, to).map_err(one)?, None)
        }
        Only::Missing | Only::Failed => {
            let field = plan.target_schema.field_with_name(&column);
            let axis = field.ok().and_then(|f| Axis::of(f.data_type(), zone));
            let axis = axis.ok_or_else(|| one(unclear(flow, &column)))?;
            let known = Coverage::read(plan, flow, &column, axis, ledgers).await;
            let known = known.map_err(table_fault)?;
            let (first, end) = known.span().unzip();
            let (Some(from), Some(to)) = (from.or(first), to.or(end)) else {
                return Err(one(wrong(format!(
                    "nothing is known of the past of `{flow}` by column `{column}` yet"
                ))
                .help("say which range is meant: --from TIME --to TIME")));
            };
            let span = ordered(from, to).map_err(one)?;
            (span, Some(known.open(span.from, span.to)))
        }
    };
    if options.atomic && options.only != Only::All {
        return Err(one(wrong(format!(
            "--atomic commits one range, and what is {} may be several",
            options.only.word()
        ))
        .help("leave one of them out")));
    }
    let unit = options
        .by
        .unwrap_or_else(|| Unit::fitting(span.from, span.to));
    let spans = spans(options, unit, span, open.as_deref()).ok_or_else(|| {
        one(wrong(format!(
            "by {} this range has more than {MOST_SLICES} slices",
            unit.word()
        ))
        .help("choose a larger unit"))
    })?;
    let ledger = Ledger {
        format: FORMAT,
        id: id.to_string(),
        flow: flow.to_string(),
        column,
        from: calendar::shown(span.from),
        to: calendar::shown(span.to),
        by: (!options.atomic).then(|| unit.word().to_string()),
        definition: definition(plan),
        target_version: plan.existing.as_ref().map_or(-1, Table::version),
        update: String::new(),
        slices: spans
            .into_iter()
            .map(|s| LedgerSlice::new(calendar::shown(s.from), calendar::shown(s.to)))
            .collect(),
    };
    Ok(Begun { ledger, open })
}

fn bound(text: Option<&str>, option: &str) -> Result<Option<NaiveDateTime>, Fault> {
    text.map(|text| time(text, option)).transpose()
}

fn ordered(from: NaiveDateTime, to: NaiveDateTime) -> Result<Span, Fault> {
    if from >= to {
        return Err(wrong(format!(
            "--from {} is not before --to {}",
            calendar::shown(from),
            calendar::shown(to)
        ))
        .help("the bounds are half-open: the day of --to is no longer part of it"));
    }
    Ok(Span { from, to })
}

/// The slices of what is asked for; `None` when they are too many.
fn spans(
    options: &BackfillOptions,
    unit: Unit,
    span: Span,
    open: Option<&[Open]>,
) -> Option<Vec<Span>> {
    if options.atomic {
        return Some(vec![span]);
    }
    let Some(open) = open else {
        return span.cut(unit, MOST_SLICES);
    };
    let mut spans = Vec::new();
    for range in open {
        if options.only == Only::Failed && range.state != OpenState::Failed {
            continue;
        }
        let range = Span {
            from: range.from,
            to: range.to,
        };
        spans.extend(range.cut(unit, MOST_SLICES - spans.len())?);
    }
    Some(spans)
}

fn unclear(flow: &str, column: &str) -> Fault {
    Fault::new(
        "BACKFILL_COLUMN_UNCLEAR",
        format!("column `{column}` of `{flow}` has no calendar"),
    )
    .help("name a DATE or TIMESTAMP column with --column")
}

/// The column by which the range is told.
fn column(plan: &FlowPlan, flow: &str, named: Option<&str>) -> Result<String, Fault> {
    let is_time =
        |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    let columns = &plan.evolved.schema.columns;
    if let Some(named) = named {
        let found = columns
            .iter()
            .find(|c| name::key(&c.name) == name::key(named));
        return match found {
            Some(c) if is_time(&c.data_type) => Ok(query_name(&c.name)),
            Some(c) => Err(Fault::new(
                "BACKFILL_COLUMN_UNCLEAR",
                format!(
                    "column `{}` of `{flow}` is a {}, which has no calendar",
                    c.name, c.data_type
                ),
            )
            .help("name a DATE or TIMESTAMP column with --column")),
            None => Err(Fault::new(
                "COLUMN_NOT_FOUND",
                format!("the target of `{flow}` has no column `{named}`"),
            )
            .hint(name::did_you_mean(
                named,
                columns.iter().map(|c| c.name.as_str()),
            ))),
        };
    }
    let mut bounded: Vec<String> = Vec::new();
    if let Some(pinned) = &plan.pinned {
        for name in compared_columns(&pinned.typed.expr) {
            let field = plan.target_schema.field_with_name(&name);
            if field.is_ok_and(|f| is_time(f.data_type())) && !bounded.contains(&name) {
                bounded.push(name);
            }
        }
    }
    match bounded.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Fault::new(
            "BACKFILL_COLUMN_UNCLEAR",
            format!("the predicate of `{flow}` compares no DATE or TIMESTAMP column"),
        )
        .help("say which column the range is about: --column NAME")),
        several => Err(Fault::new(
            "BACKFILL_COLUMN_UNCLEAR",
            format!(
                "the predicate of `{flow}` compares several columns with times: {}",
                several.join(", ")
            ),
        )
        .help("say which of them the range is about: --column NAME")),
    }
}

/// The columns that a predicate compares with something.
fn compared_columns(predicate: &Expr) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut take = |expr: &Expr| {
        let mut names: Vec<String> = expr.column_refs().iter().map(|c| c.name.clone()).collect();
        names.sort();
        found.extend(names);
    };
    // The visitor itself never fails.
    let _ = predicate.apply(|expr| {
        match expr {
            Expr::BinaryExpr(b)
                if matches!(
                    b.op,
                    Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                ) =>
            {
                take(&b.left);
                take(&b.right);
            }
            Expr::Between(between) => take(&between.expr),
            Expr::InList(list) => take(&list.expr),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// The ledger of the backfill that goes on, with what the target's log knows of its slices.
pub(crate) async fn resume(
    plan: &FlowPlan,
    flow: &str,
    ledgers: &Ledgers,
    options: &BackfillOptions,
) -> Result<Ledger, Vec<Fault>> {
    let mut ledger = find(flow, ledgers, &options.resume).await?;
    let mut faults = Vec::new();
    let now = definition(plan);
    if ledger.definition != now {
        let mut changed = Vec::new();
        if ledger.definition.query != now.query {
            changed.push("the query, or a view that it reads");
        }
        if ledger.definition.columns != now.columns {
            changed.push("the columns of the target");
        }
        faults.push(
            Fault::new(
                "BACKFILL_DEFINITION_CHANGED",
                format!(
                    "backfill {} of `{flow}` can't go on: since it began these have changed: {}",
                    ledger.id,
                    changed.join(", and ")
                ),
            )
            .help("start the whole range anew, without --resume"),
        );
    }
    let mut agree = |option: &str, given: Option<&str>, known: &str| {
        if let Some(given) = given
            && given != known
        {
            faults.push(
                wrong(format!(
                    "{option} {given} is not that of backfill {}, which is {known}",
                    ledger.id
                ))
                .help("leave the option out, or start another backfill without --resume"),
            );
        }
    };
    let same_time = |text: &Option<String>| {
        let text = text.as_deref()?;
        Some(calendar::parse(text).map_or(text.to_string(), calendar::shown))
    };
    agree("--from", same_time(&options.from).as_deref(), &ledger.from);
    agree("--to", same_time(&options.to).as_deref(), &ledger.to);
    agree(
        "--by",
        options.by.map(Unit::word),
        ledger.by.as_deref().unwrap_or("one slice"),
    );
    agree(
        "--column",
        options.column.as_deref().map(query_name).as_deref(),
        &ledger.column,
    );
    if !faults.is_empty() {
        return Err(faults);
    }
    if let Some(existing) = &plan.existing {
        let commits = changes::between(
            existing.location(),
            ledger.target_version,
            existing.version(),
        );
        // A log that no longer reaches back tells nothing; slices are then done again, which is safe.
        for commit in commits.await.map_err(table_fault)?.into_iter().flatten() {
            let Some(done) = commit.windrow.as_ref().and_then(|w| w.get("backfill")) else {
                continue;
            };
            let text = |key: &str| done.get(key).and_then(|v| v.as_str()).unwrap_or_default();
            if text("id") != ledger.id {
                continue;
            }
            for slice in &mut ledger.slices {
                if slice.from == text("from") && slice.to == text("to") {
                    slice.state = SliceState::Completed;
                    slice.version = Some(commit.version);
                }
            }
        }
    }
    Ok(ledger)
}

async fn find(flow: &str, ledgers: &Ledgers, which: &Resume) -> Result<Ledger, Vec<Fault>> {
    for entry in ledgers.list(Some(flow)).await.map_err(table_fault)? {
        if matches!(which, Resume::Id(id) if *id != entry.id) {
            continue;
        }
        let kept = ledgers.read(&entry).await.map_err(table_fault)?;
        let wanted = |ledger: &Ledger| matches!(which, Resume::Id(_)) || !ledger.is_done();
        if let Some(kept) = kept.filter(|k| wanted(&k.ledger)) {
            return Ok(kept.ledger);
        }
    }
    Err(vec![match which {
        Resume::Id(id) => Fault::new(
            "BACKFILL_NOT_FOUND",
            format!("flow `{flow}` has no backfill {id}"),
        ),
        _ => Fault::new(
            "BACKFILL_NOT_FOUND",
            format!("flow `{flow}` has no backfill that is not done"),
        )
        .help("start one without --resume"),
    }])
}
