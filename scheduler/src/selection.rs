//! What of a pipeline an update takes: the selected tables, full refreshes, overrides, settings.
//!
//! Every option that names what is not there, or asks for what can't be, is a fault here.

use std::collections::{BTreeMap, BTreeSet};

use windrow_delta::Table;
use windrow_executor::session::EngineOptions;
use windrow_flows::definition::{ExprText, FlowKind};
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::refresh::{RefreshPolicy, Technique};
use windrow_flows::sql::parse_predicate;

use crate::flow::FlowRequest;
use crate::project::{Project, REFRESH_POLICY, Relation};
use crate::update::UpdateOptions;

/// The engine's limits from the pipeline's settings.
pub fn engine_options(project: &Project) -> Result<EngineOptions, Fault> {
    let number = |key: &str| match project.setting(key) {
        None => Ok(None),
        Some(text) => crate::stager::parse_bytes(text)
            .map(|n| Some(n as usize))
            .ok_or_else(|| {
                Fault::new(
                    "WRONG_VALUE",
                    format!("setting `{key}` is `{text}`, which is no number of bytes"),
                )
            }),
    };
    Ok(EngineOptions {
        memory_limit: number("windrow.memoryLimit")?,
        partitions: number("windrow.partitions")?,
        distributed: false,
    })
}

/// A number of bytes as settings write it, such as `64m` or `4g`.
pub fn bytes(text: &str) -> Option<u64> {
    crate::stager::parse_bytes(text)
}

/// Windrow's own settings; those of other engines are passed over.
const SETTINGS: &[&str] = &[
    "windrow.memoryLimit",
    "windrow.partitions",
    "windrow.refreshPolicy",
    "windrow.targetFileSize",
    "windrow.technique",
];

/// Refuses settings that do not exist, and time zones that are none.
pub fn check_settings(project: &Project, faults: &mut Vec<Fault>) {
    for key in project
        .settings
        .keys()
        .filter(|k| k.starts_with("windrow."))
    {
        if !SETTINGS.contains(&key.as_str()) {
            faults.push(
                Fault::new("UNKNOWN_SETTING", format!("there is no setting `{key}`"))
                    .hint(name::did_you_mean(key, SETTINGS.iter().copied())),
            );
        }
    }
    let policies = project
        .setting("windrow.refreshPolicy")
        .map(|value| ("setting `windrow.refreshPolicy`".to_string(), value, None))
        .into_iter()
        .chain(project.tables.iter().flat_map(|table| {
            let definition = &table.definition;
            let own = definition
                .properties
                .iter()
                .filter(|(k, _)| k.eq_ignore_ascii_case(REFRESH_POLICY));
            own.map(|(k, v)| {
                let what = format!("`{k}` of `{}`", table.shown);
                (what, v.as_str(), Some(definition.name.place.clone()))
            })
        }));
    for (what, value, place) in policies {
        if RefreshPolicy::of_word(value).is_none() {
            faults.push(
                Fault::new(
                    "WRONG_VALUE",
                    format!("{what} is `{value}`, which is no refresh policy"),
                )
                .at(place)
                .help(format!("write {}", RefreshPolicy::WORDS)),
            );
        }
    }
    if let Some(value) = project.setting("windrow.technique")
        && value.split(',').any(|t| Technique::of_word(t).is_none())
    {
        faults.push(Fault::new(
            "WRONG_VALUE",
            format!("setting `windrow.technique` is `{value}`, which is no technique"),
        ));
    }
    let zone = project.time_zone();
    if !is_zone(zone) {
        faults.push(
            Fault::new(
                "UNKNOWN_TIME_ZONE",
                format!("spark.sql.session.timeZone is `{zone}`, which is no time zone"),
            )
            .help("use a name such as Europe/Berlin, or an offset such as +02:00"),
        );
    }
}

fn is_zone(zone: &str) -> bool {
    use std::str::FromStr;
    datafusion::arrow::array::timezone::Tz::from_str(zone).is_ok()
}

/// The flows that run, and what is special about some of them.
pub type Selection = (BTreeSet<usize>, BTreeMap<usize, FlowRequest>);

/// Which flows run, and what is special about them.
pub fn select(
    project: &Project,
    options: &UpdateOptions,
    existing: &BTreeMap<usize, Table>,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<String>,
) -> Selection {
    let tables: Vec<&str> = project.tables.iter().map(|t| t.shown.as_str()).collect();
    let defaults = crate::project::Defaults {
        catalog: project.config.catalog.clone(),
        schema: project.config.schema.clone(),
    };
    let find = |written: &str| {
        let parts: Vec<String> = written.split('.').map(str::to_string).collect();
        match project.resolve(&parts, &defaults) {
            Ok(Relation::Table(index)) => Some(index),
            _ => project
                .flows
                .iter()
                .find(|f| name::key(&f.name) == name::key(written))
                .map(|f| f.table),
        }
    };
    let lookup = |list: &[String], option: &str, faults: &mut Vec<Fault>| -> Vec<usize> {
        let mut found = Vec::new();
        for written in list {
            match find(written) {
                Some(index) => found.push(index),
                None => faults.push(
                    Fault::new(
                        "TABLE_NOT_FOUND",
                        format!("{option} names `{written}`, which is no table of this pipeline"),
                    )
                    .hint(name::did_you_mean(written, tables.iter().copied()))
                    .help(format!("its tables are {}", tables.join(", "))),
                ),
            }
        }
        found
    };
    let refresh = lookup(&options.refresh, "--refresh", faults);
    let full = lookup(&options.full_refresh, "--full-refresh", faults);
    let chosen: BTreeSet<usize> = if options.refresh.is_empty() && options.full_refresh.is_empty() {
        (0..project.tables.len()).collect()
    } else {
        refresh.iter().chain(&full).copied().collect()
    };
    let selected: BTreeSet<usize> = chosen
        .iter()
        .flat_map(|t| project.tables[*t].flows.iter().copied())
        .collect();
    let mut requests: BTreeMap<usize, FlowRequest> = BTreeMap::new();
    let guarded = |table: usize| {
        let key = "pipelines.reset.allowed";
        let defined = project.tables[table]
            .definition
            .properties
            .iter()
            .find(|(k, _)| k == key);
        let value = defined.map(|(_, v)| v.clone()).or_else(|| {
            existing
                .get(&table)
                .and_then(|t| t.properties().get(key).cloned())
        });
        value.is_some_and(|v| v.eq_ignore_ascii_case("false"))
    };
    for table in &full {
        if guarded(*table) {
            faults.push(
                Fault::new(
                    "FULL_REFRESH_NOT_ALLOWED",
                    format!(
                        "`{}` has pipelines.reset.allowed = false, so it can't be fully refreshed",
                        project.tables[*table].shown
                    ),
                )
                .help("set the property to true first, if its rows may go"),
            );
        }
    }
    let mut full: BTreeSet<usize> = full.into_iter().collect();
    if options.full_refresh_all {
        for table in 0..project.tables.len() {
            if guarded(table) {
                warnings.push(format!(
                    "warning: `{}` has pipelines.reset.allowed = false: it is updated, not fully refreshed",
                    project.tables[table].shown
                ));
            } else {
                full.insert(table);
            }
        }
    }
    for table in &full {
        for flow in &project.tables[*table].flows {
            requests.entry(*flow).or_default().full_refresh = true;
        }
    }
    overrides(project, options, &selected, &mut requests, faults);
    (selected, requests)
}

fn overrides(
    project: &Project,
    options: &UpdateOptions,
    selected: &BTreeSet<usize>,
    requests: &mut BTreeMap<usize, FlowRequest>,
    faults: &mut Vec<Fault>,
) {
    let known: Vec<&str> = project
        .flows
        .iter()
        .filter(|f| matches!(f.definition.kind, FlowKind::ReplaceWhere { .. }))
        .map(|f| f.name.as_str())
        .collect();
    for (flow, text) in &options.replace_where {
        let option = format!("--replace-where {flow}");
        let index = project
            .flows
            .iter()
            .position(|f| name::key(&f.name) == name::key(flow));
        let Some(index) = index else {
            faults.push(
                Fault::new(
                    "FLOW_NOT_FOUND",
                    format!("--replace-where names `{flow}`, which is no flow of this pipeline"),
                )
                .hint(name::did_you_mean(flow, known.iter().copied()))
                .help(format!("its REPLACE WHERE flows are {}", known.join(", "))),
            );
            continue;
        };
        let fault = if !matches!(
            project.flows[index].definition.kind,
            FlowKind::ReplaceWhere { .. }
        ) {
            Some(Fault::new(
                "OVERRIDE_NOT_ALLOWED",
                format!("--replace-where names `{flow}`, which is no REPLACE WHERE flow"),
            ))
        } else if !selected.contains(&index) {
            Some(
                Fault::new(
                    "OVERRIDE_NOT_SELECTED",
                    format!("--replace-where names `{flow}`, which this update does not refresh"),
                )
                .help(format!("add --refresh {flow}, or leave --refresh out")),
            )
        } else if requests
            .get(&index)
            .is_some_and(|r| r.override_predicate.is_some())
        {
            Some(Fault::new(
                "OVERRIDE_TWICE",
                format!("--replace-where names `{flow}` twice"),
            ))
        } else if requests.get(&index).is_some_and(|r| r.full_refresh) {
            Some(
                Fault::new(
                    "OVERRIDE_WITH_FULL_REFRESH",
                    format!("`{flow}` can't be fully refreshed and take an override in one update"),
                )
                .help("a full refresh uses the flow's own predicate; run the override afterwards"),
            )
        } else {
            None
        };
        match fault {
            Some(fault) => faults.push(fault),
            None => match parse_predicate(&option, text, &project.config.configuration) {
                Ok(predicate) => {
                    let predicate: ExprText = predicate;
                    requests.entry(index).or_default().override_predicate = Some(predicate);
                }
                Err(fault) => faults.push(fault),
            },
        }
    }
}
