//! Which tables the flows read, from their queries alone, so that they can be put in order before
//! any of them is planned.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast;
use url::Url;
use windrow_executor::session::Engine;
use windrow_flows::definition::QueryText;
use windrow_flows::fault::Fault;
use windrow_flows::graph::Dependencies;

use crate::flow::query_of;
use crate::project::{Defaults, Project, Relation};

/// The dependencies between flows, and where the tables of others lie that they read; what a query
/// reads through a view counts.
///
/// Unknown names are left to planning, which tells where they stand.
pub fn dependencies(
    project: &Project,
    engine: &Engine,
    clock: DateTime<Utc>,
    faults: &mut Vec<Fault>,
) -> (Dependencies, Vec<Url>) {
    let mut dependencies = Dependencies::new(project.flows.len());
    let mut others = BTreeSet::new();
    let state = match engine.session(clock, "UTC", false) {
        Ok(state) => state,
        Err(error) => {
            faults.push(Fault::new("SESSION_NOT_STARTED", error.to_string()));
            return (dependencies, Vec::new());
        }
    };
    for (index, flow) in project.flows.iter().enumerate() {
        let Some(query) = query_of(flow) else {
            continue;
        };
        let mut found = Found::default();
        collect(project, &state, query, &flow.defaults, &mut found);
        others.append(&mut found.others);
        for table in found.tables {
            for source in &project.tables[table].flows {
                dependencies.add(index, *source);
            }
        }
    }
    (dependencies, others.into_iter().collect())
}

/// What a query reads.
#[derive(Default)]
struct Found {
    /// Tables of this pipeline.
    tables: BTreeSet<usize>,
    views: BTreeSet<usize>,
    /// Where tables of others lie, by the first place that their name can mean.
    others: BTreeSet<Url>,
}

fn collect(
    project: &Project,
    state: &SessionState,
    query: &QueryText,
    defaults: &Defaults,
    found: &mut Found,
) {
    let ast = query.normalised.clone();
    let statement = PlannerStatement::Statement(Box::new(ast::Statement::Query(ast)));
    let Ok(references) = state.resolve_table_references(&statement) else {
        return;
    };
    for reference in references {
        match project.resolve(&reference.to_vec(), defaults) {
            Ok(Relation::Table(table)) => {
                found.tables.insert(table);
            }
            Ok(Relation::View(view)) if found.views.insert(view) => {
                let definition = &project.views[view];
                collect(
                    project,
                    state,
                    &definition.definition.query,
                    &definition.defaults,
                    found,
                );
            }
            Ok(Relation::External { candidates, .. }) => {
                found.others.extend(candidates.into_iter().next());
            }
            _ => {}
        }
    }
}
