//! What a flow's commit says: the table's metadata where it changes, the files that come and go, and
//! Windrow's own part of the commit info.

use chrono::Utc;
use serde_json::{Value, json};
use windrow_delta::Table;
use windrow_delta::commit::Commit;
use windrow_delta::protocol::{protocol_for, upgraded};
use windrow_delta::state::{FlowState, StagedState};
use windrow_executor::stage::StagedFile;
use windrow_flows::definition::{ClusterBy, TableDefinition};

use crate::coverage;
use crate::facts;
use crate::flow::{FlowPlan, KIND, OWNER, kind_word};
use crate::project::{Project, ProjectTable};
use crate::removal::Removal;
use crate::run::{RunContext, Stopped, Work};
use crate::stager::Stager;

/// The table's properties after this update: those it has, then those of the definition, then ours.
pub(crate) fn wanted_properties(
    plan: &FlowPlan,
    project: &Project,
    table: &ProjectTable,
) -> Vec<(String, String)> {
    let mut wanted: Vec<(String, String)> = match &plan.existing {
        Some(existing) => existing
            .properties()
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        None => Vec::new(),
    };
    let mut set = |key: &str, value: String| match wanted.iter_mut().find(|(k, _)| k == key) {
        Some((_, old)) => *old = value,
        None => wanted.push((key.to_string(), value)),
    };
    for (key, value) in &table.definition.properties {
        set(key, value.clone());
    }
    set(OWNER, project.config.name.clone());
    set(KIND, kind_word(table.definition.kind).into());
    match &table.definition.cluster_by {
        Some(ClusterBy::Auto) => set("windrow.clusterBy", "auto".into()),
        Some(ClusterBy::Columns(columns)) => {
            let names: Vec<&str> = columns.iter().map(|c| c.last()).collect();
            set("windrow.clusterBy", names.join(","));
        }
        None => {}
    }
    wanted.sort();
    wanted
}

fn wanted_comment<'a>(plan: &'a FlowPlan, definition: &'a TableDefinition) -> Option<&'a str> {
    definition
        .comment
        .as_deref()
        .or_else(|| plan.existing.as_ref().and_then(Table::comment))
}

pub(crate) fn metadata_differs(
    plan: &FlowPlan,
    project: &Project,
    table: &ProjectTable,
) -> Result<bool, Stopped> {
    let Some(existing) = &plan.existing else {
        return Ok(true);
    };
    let properties = wanted_properties(plan, project, table);
    let mut current: Vec<(String, String)> = existing
        .properties()
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    current.sort();
    Ok(
        plan.full_refresh && *existing.schema().as_ref() != plan.evolved.schema
            || plan.evolved.columns_changed && *existing.schema().as_ref() != plan.evolved.schema
            || current != properties
            || existing.comment() != wanted_comment(plan, &table.definition),
    )
}

/// The `metaData` and `protocol` actions, where they are needed.
fn metadata_actions(
    plan: &FlowPlan,
    project: &Project,
    table: &ProjectTable,
    target: Option<&Table>,
) -> Result<Vec<Value>, Stopped> {
    if !metadata_differs(plan, project, table)? {
        return Ok(Vec::new());
    }
    let properties = wanted_properties(plan, project, table);
    let configuration: serde_json::Map<String, Value> = properties
        .iter()
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect();
    let schema = &plan.evolved.schema;
    let mut actions = Vec::new();
    let mut metadata = match target {
        None => {
            actions.push(json!({"protocol": protocol_for(schema, &properties)}));
            json!({"id": uuid::Uuid::new_v4().to_string(), "name": table.full_name.table,
                "format": {"provider": "parquet", "options": {}},
                "createdTime": Utc::now().timestamp_millis()})
        }
        Some(target) => {
            if let Some(protocol) = upgraded(&target.protocol_json()?, schema) {
                actions.push(json!({"protocol": protocol}));
            }
            target.metadata_json()?
        }
    };
    metadata["schemaString"] = json!(schema.to_schema_string());
    metadata["partitionColumns"] = json!(schema.partition_columns);
    metadata["configuration"] = Value::Object(configuration);
    match wanted_comment(plan, &table.definition) {
        Some(comment) => metadata["description"] = json!(comment),
        None => {
            if let Some(map) = metadata.as_object_mut() {
                map.remove("description");
            }
        }
    }
    actions.push(json!({"metaData": metadata}));
    Ok(actions)
}

pub(crate) fn commit_of(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    work: &Work,
    target: Option<&Table>,
    removal: &Removal,
    kept: &[StagedFile],
    stager: &Stager<'_>,
    state: &FlowState,
    staged_state: &StagedState,
) -> Result<Commit, Stopped> {
    let flow = &context.project.flows[plan.flow];
    let table = &context.project.tables[flow.table];
    let now_ms = Utc::now().timestamp_millis();
    let mut actions = metadata_actions(plan, context.project, table, target)?;
    actions.push(staged_state.txn.clone());
    actions.extend(
        removal
            .remove
            .iter()
            .chain(&removal.rewrite)
            .map(|f| f.remove_action(now_ms, true)),
    );
    actions.extend(stager.files.iter().chain(kept).map(|f| f.add.clone()));
    let predicate = plan.predicate_text();
    let mode = if plan.scope.appends {
        "Append"
    } else {
        "Overwrite"
    };
    let mut parameters = vec![("mode".to_string(), mode.to_string())];
    if let Some(predicate) = &predicate {
        parameters.push(("predicate".into(), predicate.clone()));
    }
    let rows: u64 = stager.files.iter().map(|f| f.rows.unsigned_abs()).sum();
    Ok(Commit {
        run_id: state.run_id.clone(),
        operation: flow.definition.kind.word().replace('_', " "),
        parameters,
        info: json!({"pipeline": context.project.config.name, "update": context.update_id,
            "flow": flow.name, "sequence": state.sequence, "state": staged_state.file,
            "technique": work.decision.technique.word(), "predicate": predicate,
            "override": plan.is_override,
            "processed": coverage::told(&coverage::parts(plan, context.project.time_zone(), context.clock)),
            "backfill": context.slice.map(|s| json!({"id": s.backfill, "from": s.from, "to": s.to})),
            "fingerprint": facts::run_fingerprint(plan, context.project.time_zone(), &context.clock)}),
        metrics: vec![
            ("numOutputRows".into(), rows),
            ("numDeletedRows".into(), removal.deleted_rows),
            ("numCopiedRows".into(), removal.copied_rows),
            (
                "numAddedFiles".into(),
                (stager.files.len() + kept.len()) as u64,
            ),
            (
                "numRemovedFiles".into(),
                (removal.remove.len() + removal.rewrite.len()) as u64,
            ),
        ],
        actions,
    })
}
