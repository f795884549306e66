//! Which rows of a query's result a change can touch, by differentiating its plan.
//!
//! For a node N of the plan this derives a relation D(N) over some of N's output columns: every
//! output row that occurs more or less often after the change than before has its values of those
//! columns in D(N). D(N) may hold more than that, never less. It needs no older version of a table:
//! besides the changed rows it reads only the new state. Which columns D(N) has (the *known* ones)
//! depends on the nodes: a projection keeps what it can compute, an aggregate its group keys, a
//! window function its partition keys. Where nothing is known, everything may be touched.
//!
//! The plan must be analyzed and optimized: filters then stand at the scans, and correlated
//! subqueries are joins.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, NullEquality, Result, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, GroupingSet, Join, JoinType, LogicalPlan,
    LogicalPlanBuilder, Projection, TableScan, Union, Unnest, Window, lit,
};
use windrow_executor::scan::ScanLog;

use super::changed_rows::{changed_rows, changed_source};
use crate::changed::ChangedSource;

/// Keys of CUBE of which all sets are looked at.
const MOST_CUBE_KEYS: usize = 6;

/// Rows of which some columns are known: D(N) for the columns that are there.
#[derive(Debug, Clone)]
pub struct Affected {
    pub plan: LogicalPlan,
    /// For each output column of the node its column in `plan`, where it is known.
    pub known: Vec<Option<Column>>,
}

/// Derives D for one flow.
pub struct Differ<'a> {
    changed: &'a [ChangedSource],
    log: &'a ScanLog,
    /// Rows that are on both sides of a change are left out.
    net: bool,
    /// Numbers the columns that are made, so that no two names meet in a join.
    next: usize,
}

impl<'a> Differ<'a> {
    /// `log` takes the records of the scans of changed files. With `net` rows that are on both sides
    /// of a change are left out, which takes a comparison of all of them.
    pub fn new(changed: &'a [ChangedSource], log: &'a ScanLog, net: bool) -> Self {
        Self {
            changed,
            log,
            net,
            next: 0,
        }
    }

    /// D of the node, or `None` when nothing below it changed. Columns in `wanted` are made known
    /// even where that takes a join; others only where they come for free.
    pub fn of(&mut self, node: &LogicalPlan, wanted: &BTreeSet<usize>) -> Result<Option<Affected>> {
        if !self.mentions(node)? {
            return Ok(None);
        }
        let through_expressions = self.subqueries(node)?;
        let below = match node {
            LogicalPlan::TableScan(scan) => self.scan(scan)?,
            LogicalPlan::Projection(p) => self.projection(p, wanted)?,
            LogicalPlan::Filter(f) => self.filter(f, wanted)?,
            LogicalPlan::Aggregate(a) => self.aggregate(a, wanted)?,
            LogicalPlan::Window(w) => self.window(w, wanted)?,
            LogicalPlan::Union(u) => self.union(u, wanted)?,
            LogicalPlan::Join(j) => self.join(j, wanted)?,
            LogicalPlan::Unnest(u) => self.unnest(u, wanted)?,
            LogicalPlan::Distinct(Distinct::All(input)) => self.of(input, wanted)?,
            LogicalPlan::SubqueryAlias(alias) => self.of(&alias.input, wanted)?,
            LogicalPlan::Repartition(r) => self.of(&r.input, wanted)?,
            LogicalPlan::Sort(s) if s.fetch.is_none() => self.of(&s.input, wanted)?,
            other => {
                let mut parts = Vec::new();
                for input in other.inputs() {
                    parts.extend(self.of(input, &BTreeSet::new())?);
                }
                self.everything(parts, width(other))?
            }
        };
        if through_expressions.is_empty() {
            return Ok(below);
        }
        let parts = below.into_iter().chain(through_expressions).collect();
        self.everything(parts, width(node))
    }

    /// Whether a changed table is read at or below the node, subqueries included.
    fn mentions(&self, node: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        node.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && self.change_of(scan).is_some()
            {
                found = true;
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }

    fn change_of(&self, scan: &TableScan) -> Option<&'a ChangedSource> {
        changed_source(self.changed, scan)
    }

    /// D of the subqueries in the node's own expressions: what they give may go into every row.
    fn subqueries(&mut self, node: &LogicalPlan) -> Result<Vec<Affected>> {
        let mut plans = Vec::new();
        for expr in node.expressions() {
            expr.apply(|e| {
                match e {
                    Expr::ScalarSubquery(s) => plans.push(s.subquery.clone()),
                    Expr::Exists(e) => plans.push(e.subquery.subquery.clone()),
                    Expr::InSubquery(i) => plans.push(i.subquery.subquery.clone()),
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let mut found = Vec::new();
        for plan in plans {
            found.extend(self.of(&plan, &BTreeSet::new())?);
        }
        Ok(found)
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        format!("__windrow_a{}", self.next)
    }

    /// `plan` with fresh names for the columns that are known.
    fn project(&mut self, plan: LogicalPlan, known: Vec<Option<Expr>>) -> Result<Option<Affected>> {
        let mut exprs = Vec::new();
        let mut names = Vec::with_capacity(known.len());
        for expr in known {
            names.push(match expr {
                None => None,
                Some(expr) => {
                    let name = self.fresh();
                    exprs.push(expr.alias(&name));
                    Some(Column::new_unqualified(name))
                }
            });
        }
        // A relation without columns can't be planned everywhere.
        if exprs.is_empty() {
            exprs.push(lit(true).alias(self.fresh()));
        }
        let plan = LogicalPlanBuilder::from(plan).project(exprs)?.build()?;
        Ok(Some(Affected { plan, known: names }))
    }

    /// All rows of the node may be touched, if any of the parts has a row.
    fn everything(&mut self, parts: Vec<Affected>, width: usize) -> Result<Option<Affected>> {
        let blank = parts
            .into_iter()
            .map(|a| Affected {
                known: vec![None; width],
                ..a
            })
            .collect();
        self.together(blank)
    }

    /// The union of several, with the columns that are known in all.
    fn together(&mut self, parts: Vec<Affected>) -> Result<Option<Affected>> {
        let Some(first) = parts.first() else {
            return Ok(None);
        };
        if parts.len() == 1 {
            return Ok(parts.into_iter().next());
        }
        let shared: Vec<bool> = (0..first.known.len())
            .map(|i| parts.iter().all(|p| p.known[i].is_some()))
            .collect();
        // All parts have the same names: the optimizer may leave one of them alone in the place of
        // the union, whose names are those of the first.
        let known: Vec<Option<Column>> = shared
            .iter()
            .map(|shared| shared.then(|| Column::new_unqualified(self.fresh())))
            .collect();
        let blank = self.fresh();
        let mut union: Option<LogicalPlan> = None;
        for part in parts {
            let mut exprs: Vec<Expr> = part
                .known
                .into_iter()
                .zip(&known)
                .filter_map(|(own, name)| Some(Expr::Column(own?).alias(&name.as_ref()?.name)))
                .collect();
            if exprs.is_empty() {
                exprs.push(lit(true).alias(&blank));
            }
            let plan = LogicalPlanBuilder::from(part.plan)
                .project(exprs)?
                .build()?;
            union = Some(match union {
                None => plan,
                Some(so_far) => LogicalPlanBuilder::from(so_far).union(plan)?.build()?,
            });
        }
        Ok(union.map(|plan| Affected { plan, known }))
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Option<Affected>> {
        let Some(change) = self.change_of(scan) else {
            return Ok(None);
        };
        let fields = scan.projected_schema.fields().len();
        let Some(rows) = changed_rows(change, scan, self.log, self.net)? else {
            return Ok(None);
        };
        if scan.fetch.is_some() {
            let part = Affected {
                plan: rows,
                known: vec![None; fields],
            };
            return self.everything(vec![part], fields);
        }
        let known = scan
            .projected_schema
            .fields()
            .iter()
            .map(|f| Some(Expr::Column(Column::new_unqualified(f.name()))))
            .collect();
        self.project(rows, known)
    }

    fn projection(
        &mut self,
        projection: &Projection,
        wanted: &BTreeSet<usize>,
    ) -> Result<Option<Affected>> {
        let schema = projection.input.schema();
        let wanted = columns_of(
            wanted.iter().filter_map(|i| projection.expr.get(*i)),
            schema,
        );
        let Some(input) = self.of(&projection.input, &wanted)? else {
            return Ok(None);
        };
        let known = projection
            .expr
            .iter()
            .map(|e| translated(e, schema, &input.known))
            .collect::<Result<_>>()?;
        self.project(input.plan, known)
    }

    fn filter(&mut self, filter: &Filter, wanted: &BTreeSet<usize>) -> Result<Option<Affected>> {
        let Some(input) = self.of(&filter.input, wanted)? else {
            return Ok(None);
        };
        let mut held = Vec::new();
        for part in split_conjunction(&filter.predicate) {
            held.extend(translated(part, filter.input.schema(), &input.known)?);
        }
        let plan = match conjunction(held) {
            None => input.plan,
            Some(predicate) => LogicalPlanBuilder::from(input.plan)
                .filter(predicate)?
                .build()?,
        };
        Ok(Some(Affected {
            plan,
            known: input.known,
        }))
    }

    fn aggregate(
        &mut self,
        aggregate: &Aggregate,
        wanted: &BTreeSet<usize>,
    ) -> Result<Option<Affected>> {
        let schema = aggregate.input.schema();
        let width = aggregate.schema.fields().len();
        let sets = match aggregate.group_expr.as_slice() {
            [Expr::GroupingSet(set)] => Some(set),
            _ => None,
        };
        let distinct: Vec<Expr> = match sets {
            // Beyond that the sets of CUBE are too many to go through.
            Some(GroupingSet::Cube(keys)) if keys.len() > MOST_CUBE_KEYS => Vec::new(),
            Some(set) => set.distinct_expr().into_iter().cloned().collect(),
            None => Vec::new(),
        };
        let keys: &[Expr] = match sets {
            Some(_) => &distinct,
            None => &aggregate.group_expr,
        };
        let wanted = columns_of(wanted.iter().filter_map(|i| keys.get(*i)), schema);
        let Some(input) = self.of(&aggregate.input, &wanted)? else {
            return Ok(None);
        };
        let mut known = keys
            .iter()
            .map(|e| translated(e, schema, &input.known))
            .collect::<Result<Vec<_>>>()?;
        known.resize(width, None);
        let Some(set) = sets else {
            return self.project(input.plan, known);
        };
        // In each set of keys the others are null.
        let mut parts = Vec::new();
        let sets = if keys.is_empty() {
            vec![Vec::new()]
        } else {
            key_sets(set)
        };
        for set in sets {
            let in_set = keys
                .iter()
                .zip(&known)
                .map(|(key, known)| match known {
                    Some(_) if !set.contains(key) => {
                        let data_type = key.get_type(schema.as_ref())?;
                        Ok(Some(lit(ScalarValue::try_from(&data_type)?)))
                    }
                    known => Ok(known.clone()),
                })
                .chain((keys.len()..width).map(|_| Ok(None)))
                .collect::<Result<Vec<_>>>()?;
            parts.extend(self.project(input.plan.clone(), in_set)?);
        }
        self.together(parts)
    }

    fn window(&mut self, window: &Window, wanted: &BTreeSet<usize>) -> Result<Option<Affected>> {
        let schema = window.input.schema();
        let mut shared: Option<BTreeSet<usize>> = None;
        for expr in &window.window_expr {
            let mut keys = BTreeSet::new();
            if let Expr::WindowFunction(function) = expr.clone().unalias() {
                for key in &function.params.partition_by {
                    if let Expr::Column(c) = key {
                        keys.extend(schema.maybe_index_of_column(c));
                    }
                }
            }
            shared = Some(match shared {
                None => keys,
                Some(before) => before.intersection(&keys).copied().collect(),
            });
        }
        let shared = shared.unwrap_or_default();
        let wanted = wanted.intersection(&shared).copied().collect();
        let Some(input) = self.of(&window.input, &wanted)? else {
            return Ok(None);
        };
        let width = window.schema.fields().len();
        let known = (0..width)
            .map(|i| {
                let column = input.known.get(i).cloned().flatten()?;
                shared.contains(&i).then_some(Expr::Column(column))
            })
            .collect();
        self.project(input.plan, known)
    }

    fn union(&mut self, union: &Union, wanted: &BTreeSet<usize>) -> Result<Option<Affected>> {
        let mut parts = Vec::new();
        for input in &union.inputs {
            parts.extend(self.of(input, wanted)?);
        }
        self.together(parts)
    }

    fn unnest(&mut self, unnest: &Unnest, wanted: &BTreeSet<usize>) -> Result<Option<Affected>> {
        let source: Vec<Option<usize>> = unnest
            .dependency_indices
            .iter()
            .map(|i| {
                let unnested = unnest.list_type_columns.iter().any(|(l, _)| l == i)
                    || unnest.struct_type_columns.contains(i);
                (!unnested).then_some(*i)
            })
            .collect();
        let wanted = wanted
            .iter()
            .filter_map(|i| source.get(*i).copied().flatten())
            .collect();
        let Some(input) = self.of(&unnest.input, &wanted)? else {
            return Ok(None);
        };
        let known = source
            .iter()
            .map(|i| {
                let column = input.known.get((*i)?)?.clone()?;
                Some(Expr::Column(column))
            })
            .collect();
        self.project(input.plan, known)
    }

    fn join(&mut self, join: &Join, wanted: &BTreeSet<usize>) -> Result<Option<Affected>> {
        let (left_width, right_width) = (width(&join.left), width(&join.right));
        let shape = Shape::of(join.join_type);
        // Positions of the output that are columns of either side.
        let on_left = |i: usize| (shape.left_out && i < left_width).then_some(i);
        let on_right = |i: usize| {
            let first = if shape.left_out { left_width } else { 0 };
            (shape.right_out && i >= first && i < first + right_width).then(|| i - first)
        };
        let left_wanted: BTreeSet<usize> = wanted.iter().filter_map(|i| on_left(*i)).collect();
        let right_wanted: BTreeSet<usize> = wanted.iter().filter_map(|i| on_right(*i)).collect();
        let keys = |left: bool| -> BTreeSet<usize> {
            let schema = if left {
                join.left.schema()
            } else {
                join.right.schema()
            };
            let sides = join.on.iter().map(|(l, r)| if left { l } else { r });
            let mut found = columns_of(sides, schema);
            if let Some(filter) = &join.filter {
                found.extend(columns_of([filter].into_iter(), schema));
            }
            found
        };
        let with_keys = |own: &BTreeSet<usize>, left: bool| -> BTreeSet<usize> {
            own.union(&keys(left)).copied().collect()
        };
        let left = self.of(&join.left, &with_keys(&left_wanted, true))?;
        let right = self.of(&join.right, &with_keys(&right_wanted, false))?;
        // NOT IN: one null on the right side takes every row away.
        if join.null_aware && right.is_some() {
            let parts = left.into_iter().chain(right).collect();
            return self.everything(parts, width(&LogicalPlan::Join(join.clone())));
        }
        let mut parts = Vec::new();
        if let Some(changed) = &left {
            let other = self.any(&join.right, right.as_ref())?;
            let sides = Sides {
                join,
                changed_is_left: true,
                shape,
                other_wanted: !right_wanted.is_empty(),
                own_wanted: !left_wanted.is_empty(),
            };
            parts.extend(self.one_side(&sides, changed, &other)?);
        }
        if let Some(changed) = &right {
            let other = self.any(&join.left, left.as_ref())?;
            let sides = Sides {
                join,
                changed_is_left: false,
                shape,
                other_wanted: !left_wanted.is_empty(),
                own_wanted: !right_wanted.is_empty(),
            };
            parts.extend(self.one_side(&sides, changed, &other)?);
        }
        self.together(parts)
    }

    /// The rows of a node as they are now or were before, as far as that matters to `changed`.
    fn any(&mut self, node: &LogicalPlan, changed: Option<&Affected>) -> Result<Affected> {
        let now = node
            .schema()
            .columns()
            .into_iter()
            .map(|c| Some(Expr::Column(c)))
            .collect();
        let now = self
            .project(node.clone(), now)?
            .ok_or_else(|| DataFusionError::Internal("a projection without a plan".into()))?;
        let Some(changed) = changed else {
            return Ok(now);
        };
        self.together(vec![now, changed.clone()])?
            .ok_or_else(|| DataFusionError::Internal("a union without a plan".into()))
    }

    /// What a change of one side of a join does to its output.
    fn one_side(
        &mut self,
        sides: &Sides<'_>,
        changed: &Affected,
        other: &Affected,
    ) -> Result<Option<Affected>> {
        let Sides {
            join,
            changed_is_left,
            shape,
            ..
        } = *sides;
        let (own_out, other_out, own_kept, other_kept) = if changed_is_left {
            (
                shape.left_out,
                shape.right_out,
                shape.left_kept,
                shape.right_kept,
            )
        } else {
            (
                shape.right_out,
                shape.left_out,
                shape.right_kept,
                shape.left_kept,
            )
        };
        let output = |own: Vec<Option<Expr>>, other: Vec<Option<Expr>>| -> Vec<Option<Expr>> {
            let (left, right) = if changed_is_left {
                (own, other)
            } else {
                (other, own)
            };
            let mut all = Vec::new();
            if shape.left_out {
                all.extend(left);
            }
            if shape.right_out {
                all.extend(right);
            }
            if shape.mark {
                all.push(None);
            }
            all
        };
        let (own_node, other_node) = if changed_is_left {
            (&join.left, &join.right)
        } else {
            (&join.right, &join.left)
        };
        let none = |node: &LogicalPlan| vec![None; width(node)];
        let nulls = |node: &LogicalPlan| -> Result<Vec<Option<Expr>>> {
            node.schema()
                .fields()
                .iter()
                .map(|f| Ok(Some(lit(ScalarValue::try_from(f.data_type())?))))
                .collect()
        };
        let columns = |known: &[Option<Column>]| -> Vec<Option<Expr>> {
            known.iter().map(|c| c.clone().map(Expr::Column)).collect()
        };
        // A semi, anti or mark join gives rows of one side alone.
        if own_out && !other_out {
            let known = output(columns(&changed.known), Vec::new());
            return self.project(changed.plan.clone(), known);
        }
        // Without a need for the other side's columns its rows need not be looked up.
        let enough = !other_kept && own_out && !sides.other_wanted;
        let linked = if enough {
            None
        } else {
            self.link(join, changed_is_left, changed, other)?
        };
        let Some(linked) = linked else {
            return if other_kept || !own_out {
                self.everything(
                    vec![changed.clone()],
                    width(&LogicalPlan::Join(join.clone())),
                )
            } else {
                let known = output(columns(&changed.known), none(other_node));
                self.project(changed.plan.clone(), known)
            };
        };
        if !own_out {
            let known = output(Vec::new(), columns(&other.known));
            return self.project(linked, known);
        }
        if other_kept && !own_kept && !sides.own_wanted {
            let known = output(none(own_node), columns(&other.known));
            return self.project(linked, known);
        }
        let mut parts = Vec::new();
        let both = output(columns(&changed.known), columns(&other.known));
        parts.extend(self.project(linked.clone(), both)?);
        if own_kept {
            let alone = output(columns(&changed.known), nulls(other_node)?);
            parts.extend(self.project(changed.plan.clone(), alone)?);
        }
        if other_kept {
            let alone = output(nulls(own_node)?, columns(&other.known));
            parts.extend(self.project(linked, alone)?);
        }
        self.together(parts)
    }

    /// The changed rows of one side with the rows of the other that they may meet. `None` when no
    /// condition of the join can be told from what is known.
    fn link(
        &mut self,
        join: &Join,
        changed_is_left: bool,
        changed: &Affected,
        other: &Affected,
    ) -> Result<Option<LogicalPlan>> {
        let (left, right) = if changed_is_left {
            (changed, other)
        } else {
            (other, changed)
        };
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let (mut left_exprs, mut right_exprs) = (own_columns(left), own_columns(right));
        let (mut left_keys, mut right_keys) = (Vec::new(), Vec::new());
        for (l, r) in &join.on {
            let pair = translated(l, left_schema, &left.known)?.zip(translated(
                r,
                right_schema,
                &right.known,
            )?);
            let Some((l, r)) = pair else { continue };
            let (l_name, r_name) = (self.fresh(), self.fresh());
            left_exprs.push(l.alias(&l_name));
            right_exprs.push(r.alias(&r_name));
            left_keys.push(Column::new_unqualified(l_name));
            right_keys.push(Column::new_unqualified(r_name));
        }
        let combined = left_schema.as_ref().join(right_schema)?;
        let known: Vec<Option<Column>> = left.known.iter().chain(&right.known).cloned().collect();
        let mut rest = Vec::new();
        for part in join.filter.iter().flat_map(split_conjunction) {
            rest.extend(translated(part, &combined, &known)?);
        }
        if left_keys.is_empty() && rest.is_empty() {
            return Ok(None);
        }
        let left = LogicalPlanBuilder::from(left.plan.clone()).project(left_exprs)?;
        let right = LogicalPlanBuilder::from(right.plan.clone())
            .project(right_exprs)?
            .build()?;
        let null_equality = if left_keys.is_empty() {
            NullEquality::NullEqualsNothing
        } else {
            join.null_equality
        };
        let joined = left.join_detailed(
            right,
            JoinType::Inner,
            (left_keys, right_keys),
            conjunction(rest),
            null_equality,
        )?;
        Ok(Some(joined.build()?))
    }
}

/// A join of which one side changed.
struct Sides<'a> {
    join: &'a Join,
    changed_is_left: bool,
    shape: Shape,
    /// Columns of the side that did not change are wanted.
    other_wanted: bool,
    /// Columns of the changed side are wanted.
    own_wanted: bool,
}

/// What a kind of join gives.
#[derive(Clone, Copy)]
struct Shape {
    /// Its output has the columns of the left side.
    left_out: bool,
    right_out: bool,
    /// Rows of the left side without a match come out with nulls beside them.
    left_kept: bool,
    right_kept: bool,
    /// Its output has a column that tells whether there was a match.
    mark: bool,
}

impl Shape {
    fn of(kind: JoinType) -> Self {
        let shape = |left_out, right_out, left_kept, right_kept, mark| Self {
            left_out,
            right_out,
            left_kept,
            right_kept,
            mark,
        };
        match kind {
            JoinType::Inner => shape(true, true, false, false, false),
            JoinType::Left => shape(true, true, true, false, false),
            JoinType::Right => shape(true, true, false, true, false),
            JoinType::Full => shape(true, true, true, true, false),
            JoinType::LeftSemi | JoinType::LeftAnti => shape(true, false, false, false, false),
            JoinType::RightSemi | JoinType::RightAnti => shape(false, true, false, false, false),
            JoinType::LeftMark => shape(true, false, false, false, true),
            JoinType::RightMark => shape(false, true, false, false, true),
        }
    }
}

/// The sets of keys by which the rows are grouped.
fn key_sets(set: &GroupingSet) -> Vec<Vec<Expr>> {
    match set {
        GroupingSet::Rollup(keys) => (0..=keys.len()).map(|n| keys[..n].to_vec()).collect(),
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Cube(keys) => {
            let mut sets = vec![Vec::new()];
            for key in keys {
                for at in 0..sets.len() {
                    let mut with: Vec<Expr> = sets[at].clone();
                    with.push(key.clone());
                    sets.push(with);
                }
            }
            sets
        }
    }
}

fn width(node: &LogicalPlan) -> usize {
    node.schema().fields().len()
}

fn own_columns(affected: &Affected) -> Vec<Expr> {
    affected
        .plan
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect()
}

/// The positions in `schema` of the columns that the expressions name.
fn columns_of<'a>(exprs: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> BTreeSet<usize> {
    exprs
        .flat_map(Expr::column_refs)
        .filter_map(|c| schema.maybe_index_of_column(c))
        .collect()
}

/// The expression over the known columns, or `None` where it needs more than those.
fn translated(expr: &Expr, schema: &DFSchema, known: &[Option<Column>]) -> Result<Option<Expr>> {
    let mut possible = true;
    let moved = expr.clone().unalias().transform(|e| {
        match &e {
            Expr::Column(c) => {
                let place = schema
                    .maybe_index_of_column(c)
                    .and_then(|i| known.get(i).cloned().flatten());
                return Ok(match place {
                    Some(column) => Transformed::yes(Expr::Column(column)),
                    None => {
                        possible = false;
                        Transformed::no(e)
                    }
                });
            }
            Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Placeholder(_)
            | Expr::AggregateFunction(_)
            | Expr::WindowFunction(_) => possible = false,
            other => possible &= !other.is_volatile_node(),
        }
        Ok(Transformed::no(e))
    })?;
    Ok(possible.then_some(moved.data))
}
