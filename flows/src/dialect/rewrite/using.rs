//! RIGHT and FULL joins USING columns. Each goes in parentheses with what stands before it, where the
//! engine makes one key of those of both sides. The keys of the sides are lost by that, so that they
//! must not be asked for by the name of a side.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, Select, SelectItem, SelectItemQualifiedWildcardKind,
    Spanned, TableFactor, TableWithJoins, Visit, Visitor,
};
use sqlparser::tokenizer::Span;

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    let (JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)) = operator
    else {
        return None;
    };
    let by_name = matches!(
        constraint,
        JoinConstraint::Using(_) | JoinConstraint::Natural
    );
    by_name.then_some(constraint)
}

/// Puts each such join and what stands before it in parentheses.
pub(super) fn enclose(from: &mut TableWithJoins) {
    while let Some(at) = first(from) {
        enclose_to(from, at);
    }
}

/// The same within parentheses, where the last join has them already.
pub(super) fn enclose_before_last(from: &mut TableWithJoins) {
    while let Some(at) = first(from).filter(|at| at + 1 < from.joins.len()) {
        enclose_to(from, at);
    }
}

fn first(from: &TableWithJoins) -> Option<usize> {
    from.joins
        .iter()
        .position(|join| constraint(&join.join_operator).is_some())
}

fn enclose_to(from: &mut TableWithJoins, at: usize) {
    let rest = from.joins.split_off(at + 1);
    let joins = std::mem::replace(&mut from.joins, rest);
    let hole = TableFactor::NestedJoin {
        table_with_joins: Box::new(from.clone()),
        alias: None,
    };
    let relation = std::mem::replace(&mut from.relation, hole);
    from.relation = TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins { relation, joins }),
        alias: None,
    };
}

/// Where a SELECT asks for a key by the name of a side: the side, the key and the place.
pub(super) fn keys_of_sides(select: &Select) -> Vec<(String, String, Span)> {
    let mut sides = Sides::default();
    for from in &select.from {
        sides.gather(from);
    }
    if sides.keys.is_empty() {
        return vec![];
    }
    for item in &select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) =
            item
            && let Some(side) = name.0.last().and_then(|part| part.as_ident())
            && sides.names.contains(&side.value)
        {
            let found = (side.value.clone(), "*".to_string(), name.span());
            sides.found.push(found);
        }
    }
    let _ = select.visit(&mut sides);
    sides.found
}

#[derive(Default)]
struct Sides {
    /// Names of relations on the sides of such joins.
    names: HashSet<String>,
    /// `None` stands for every column of a natural join.
    keys: HashSet<Option<String>>,
    found: Vec<(String, String, Span)>,
}

impl Sides {
    fn gather(&mut self, from: &TableWithJoins) {
        self.gather_factor(&from.relation);
        let mut before: Vec<String> = names(&from.relation);
        for join in &from.joins {
            self.gather_factor(&join.relation);
            if let Some(constraint) = constraint(&join.join_operator) {
                self.names.extend(before.iter().cloned());
                self.names.extend(names(&join.relation));
                match constraint {
                    JoinConstraint::Using(columns) => {
                        let idents = columns
                            .iter()
                            .filter_map(|name| name.0.last().and_then(|part| part.as_ident()));
                        self.keys
                            .extend(idents.map(|ident| Some(ident.value.clone())));
                    }
                    _ => {
                        self.keys.insert(None);
                    }
                }
            }
            before.extend(names(&join.relation));
        }
    }

    fn gather_factor(&mut self, factor: &TableFactor) {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        {
            self.gather(table_with_joins);
        }
    }
}

/// What relations are called.
fn names(factor: &TableFactor) -> Vec<String> {
    match factor {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => vec![alias.name.value.clone()],
            None => {
                let last = name.0.last().and_then(|part| part.as_ident());
                last.map(|ident| ident.value.clone()).into_iter().collect()
            }
        },
        TableFactor::Derived { alias, .. } | TableFactor::Function { alias, .. } => {
            alias.iter().map(|alias| alias.name.value.clone()).collect()
        }
        TableFactor::NestedJoin {
            table_with_joins,
            alias,
        } => match alias {
            Some(alias) => vec![alias.name.value.clone()],
            None => std::iter::once(&table_with_joins.relation)
                .chain(table_with_joins.joins.iter().map(|join| &join.relation))
                .flat_map(names)
                .collect(),
        },
        _ => vec![],
    }
}

impl Visitor for Sides {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [.., side, column] = parts.as_slice()
            && self.names.contains(&side.value)
            && self
                .keys
                .iter()
                .any(|key| key.as_ref().is_none_or(|key| *key == column.value))
        {
            let found = (side.value.clone(), column.value.clone(), expr.span());
            self.found.push(found);
        }
        ControlFlow::Continue(())
    }
}
