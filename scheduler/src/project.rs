//! A pipeline as a whole: its tables, flows and views with resolved names, and every fault that can
//! be told without opening a table.

use std::collections::BTreeMap;

use url::Url;
use windrow_flows::definition::{
    FlowDefinition, FlowKind, Name, Statement, TableDefinition, TableKind, ViewDefinition,
};
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::refresh::RefreshPolicy;
use windrow_flows::sql::parse_source;

use crate::config::PipelineConfig;

/// The table property that says how a table is to be refreshed; the clause REFRESH POLICY sets it.
pub const REFRESH_POLICY: &str = windrow_flows::refresh::POLICY_PROPERTY;

/// A name with all its parts, lower-cased: catalog, schema, table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullName {
    pub catalog: String,
    pub schema: String,
    pub table: String,
}

/// Catalog and schema that complete a short name.
#[derive(Debug, Clone)]
pub struct Defaults {
    pub catalog: String,
    pub schema: String,
}

impl Defaults {
    /// `None` for a name of more than three parts.
    pub fn complete(&self, parts: &[String]) -> Option<FullName> {
        let key = |s: &str| name::key(s);
        let (catalog, schema, table) = match parts {
            [t] => (key(&self.catalog), key(&self.schema), key(t)),
            [s, t] => (key(&self.catalog), key(s), key(t)),
            [c, s, t] => (key(c), key(s), key(t)),
            _ => return None,
        };
        Some(FullName {
            catalog,
            schema,
            table,
        })
    }
}

#[derive(Debug)]
pub struct ProjectTable {
    pub full_name: FullName,
    /// The name shown to people: without the pipeline's own catalog and schema.
    pub shown: String,
    pub definition: TableDefinition,
    pub flows: Vec<usize>,
    pub location: Url,
}

#[derive(Debug)]
pub struct ProjectFlow {
    pub name: String,
    pub definition: FlowDefinition,
    pub table: usize,
    /// Where the names of its query start.
    pub defaults: Defaults,
}

#[derive(Debug)]
pub struct ProjectView {
    pub full_name: FullName,
    pub definition: ViewDefinition,
    pub defaults: Defaults,
}

/// What a name in a query stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Relation {
    Table(usize),
    View(usize),
    /// A table that no flow of this pipeline writes; several places where it may lie, best first.
    External {
        shown: String,
        candidates: Vec<Url>,
    },
}

#[derive(Debug)]
pub struct Project {
    pub config: PipelineConfig,
    /// The pipeline's settings after `SET`.
    pub settings: BTreeMap<String, String>,
    pub tables: Vec<ProjectTable>,
    pub flows: Vec<ProjectFlow>,
    pub views: Vec<ProjectView>,
    pub warnings: Vec<Fault>,
    /// Set when faults were found in other files: these definitions are then not all there are.
    external: BTreeMap<FullName, (String, Url)>,
}

impl Project {
    /// Reads all SQL files. Faults of one statement do not hide those of another: the project holds
    /// what is well formed, the list what is not.
    pub fn read(config: PipelineConfig) -> (Self, Vec<Fault>) {
        let mut faults = Vec::new();
        let base = Defaults {
            catalog: config.catalog.clone(),
            schema: config.schema.clone(),
        };
        let mut external = BTreeMap::new();
        for (written, url) in &config.tables {
            let parts: Vec<String> = written.split('.').map(str::to_string).collect();
            match base.complete(&parts) {
                Some(full) => {
                    if let Some((other, _)) = external.get(&full) {
                        faults.push(Fault::new(
                            "DUPLICATE_TABLE",
                            format!("`tables` names `{other}` and `{written}`, which are one name"),
                        ));
                    }
                    external.insert(full, (written.clone(), url.clone()));
                }
                None => faults.push(Fault::new(
                    "NAME_TOO_LONG",
                    format!("`tables` names `{written}`; a name has one to three parts"),
                )),
            }
        }
        let mut project = Self {
            settings: config.configuration.clone(),
            config,
            tables: Vec::new(),
            flows: Vec::new(),
            views: Vec::new(),
            warnings: Vec::new(),
            external,
        };
        let mut loose_flows = Vec::new();
        for source in project.config.sources.clone() {
            let parsed = parse_source(&source.name, &source.text, &project.config.configuration);
            faults.extend(parsed.faults);
            project.warnings.extend(parsed.warnings);
            let mut defaults = base.clone();
            for statement in parsed.statements {
                match statement {
                    Statement::Table { table, flow } => {
                        project.add_table(*table, flow.map(|f| *f), &defaults, &mut faults);
                    }
                    Statement::View(view) => project.add_view(*view, &defaults, &mut faults),
                    Statement::Flow(flow) => loose_flows.push((*flow, defaults.clone())),
                    Statement::Set { key, value, .. } => {
                        project.settings.insert(key, value);
                    }
                    Statement::UseCatalog(name) => defaults.catalog = name.last().to_string(),
                    Statement::UseSchema(name) => match name.parts.as_slice() {
                        [catalog, schema] => {
                            defaults.catalog = catalog.clone();
                            defaults.schema = schema.clone();
                        }
                        _ => defaults.schema = name.last().to_string(),
                    },
                }
            }
        }
        for (flow, defaults) in loose_flows {
            project.add_flow(flow, &defaults, &mut faults);
        }
        project.check_targets(&mut faults);
        (project, faults)
    }

    /// The session's time zone.
    pub fn time_zone(&self) -> &str {
        self.setting("spark.sql.session.timeZone").unwrap_or("UTC")
    }

    /// How a table is to be refreshed: by its own property, else by the pipeline's setting.
    pub fn refresh_policy(&self, table: usize) -> RefreshPolicy {
        let own = self.tables[table]
            .definition
            .properties
            .iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(REFRESH_POLICY))
            .map(|(_, v)| v.as_str());
        own.or_else(|| self.setting("windrow.refreshPolicy"))
            .and_then(RefreshPolicy::of_word)
            .unwrap_or_default()
    }

    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    fn shown(&self, full: &FullName) -> String {
        let own_catalog = full.catalog == name::key(&self.config.catalog);
        let own_schema = full.schema == name::key(&self.config.schema);
        match (own_catalog, own_schema) {
            (true, true) => full.table.clone(),
            (true, false) => format!("{}.{}", full.schema, full.table),
            _ => format!("{}.{}.{}", full.catalog, full.schema, full.table),
        }
    }

    fn full_name(
        &self,
        name: &Name,
        defaults: &Defaults,
        faults: &mut Vec<Fault>,
    ) -> Option<FullName> {
        let full = defaults.complete(&name.parts);
        match full {
            None => {
                faults.push(
                    Fault::new(
                        "NAME_TOO_LONG",
                        format!("`{name}` has more than three parts"),
                    )
                    .at(name.place.clone()),
                );
                None
            }
            Some(full) if full.catalog != windrow_flows::name::key(&self.config.catalog) => {
                faults.push(
                    Fault::new(
                        "OTHER_CATALOG",
                        format!(
                            "`{name}` lies in catalog `{}`, but this pipeline writes to `{}`",
                            full.catalog, self.config.catalog
                        ),
                    )
                    .at(name.place.clone()),
                );
                None
            }
            full => full,
        }
    }

    /// A name that nothing in this pipeline has yet.
    fn new_name(
        &self,
        name: &Name,
        defaults: &Defaults,
        faults: &mut Vec<Fault>,
    ) -> Option<FullName> {
        let full = self.full_name(name, defaults, faults)?;
        let taken = self.tables.iter().any(|t| t.full_name == full)
            || self.views.iter().any(|v| v.full_name == full);
        if taken {
            faults.push(
                Fault::new(
                    "DUPLICATE_TABLE",
                    format!("`{name}` is defined twice in this pipeline"),
                )
                .at(name.place.clone())
                .help("names compare without case; give one of the two another name"),
            );
            return None;
        }
        Some(full)
    }

    fn add_table(
        &mut self,
        definition: TableDefinition,
        flow: Option<FlowDefinition>,
        defaults: &Defaults,
        faults: &mut Vec<Fault>,
    ) {
        let Some(full_name) = self.new_name(&definition.name, defaults, faults) else {
            return;
        };
        for part in [&full_name.schema, &full_name.table] {
            if !is_folder_name(part) {
                faults.push(
                    Fault::new(
                        "TABLE_NAME_NOT_SUPPORTED",
                        format!("`{part}` can't be a table's name: its folder would be called so"),
                    )
                    .at(definition.name.place.clone())
                    .help("use letters, digits, _ and -"),
                );
                return;
            }
        }
        let folder = if full_name.schema == name::key(&self.config.schema) {
            full_name.table.clone()
        } else {
            format!("{}/{}", full_name.schema, full_name.table)
        };
        let mut location = self.config.storage.clone();
        location.set_path(&format!(
            "{}tables/{}/",
            location.path(),
            encode_segments(&folder)
        ));
        let table = ProjectTable {
            shown: self.shown(&full_name),
            full_name,
            definition,
            flows: Vec::new(),
            location,
        };
        self.tables.push(table);
        if let Some(flow) = flow {
            self.add_flow(flow, defaults, faults);
        }
    }

    fn add_view(
        &mut self,
        definition: ViewDefinition,
        defaults: &Defaults,
        faults: &mut Vec<Fault>,
    ) {
        let Some(full_name) = self.new_name(&definition.name, defaults, faults) else {
            return;
        };
        self.views.push(ProjectView {
            full_name,
            definition,
            defaults: defaults.clone(),
        });
    }

    fn add_flow(
        &mut self,
        definition: FlowDefinition,
        defaults: &Defaults,
        faults: &mut Vec<Fault>,
    ) {
        let Some(target) = self.full_name(&definition.target, defaults, faults) else {
            return;
        };
        let Some(table) = self.tables.iter().position(|t| t.full_name == target) else {
            let known: Vec<&str> = self.tables.iter().map(|t| t.shown.as_str()).collect();
            let is_view = self.views.iter().any(|v| v.full_name == target);
            let message = if is_view {
                format!(
                    "flow `{}` writes to `{}`, which is a view",
                    definition.name, definition.target
                )
            } else {
                format!(
                    "flow `{}` writes to `{}`, which no statement of this pipeline creates",
                    definition.name, definition.target
                )
            };
            faults.push(
                Fault::new("TARGET_NOT_FOUND", message)
                    .hint(name::did_you_mean(definition.target.last(), known))
                    .help(format!(
                        "add `CREATE STREAMING TABLE {};`",
                        definition.target
                    ))
                    .at(definition.target.place.clone()),
            );
            return;
        };
        let flow_name = match self.tables[table].definition.name.parts == definition.name.parts {
            true => self.tables[table].shown.clone(),
            false => definition.name.last().to_string(),
        };
        if self
            .flows
            .iter()
            .any(|f| name::key(&f.name) == name::key(&flow_name))
        {
            faults.push(
                Fault::new(
                    "DUPLICATE_FLOW",
                    format!("two flows are called `{flow_name}`"),
                )
                .at(definition.name.place.clone()),
            );
            return;
        }
        let index = self.flows.len();
        self.tables[table].flows.push(index);
        self.flows.push(ProjectFlow {
            name: flow_name,
            definition,
            table,
            defaults: defaults.clone(),
        });
    }

    /// Which flows may stand on one target, and what this version can run.
    fn check_targets(&self, faults: &mut Vec<Fault>) {
        let inside = |outer: &ProjectTable, inner: &ProjectTable| {
            inner.location != outer.location
                && inner.location.path().starts_with(outer.location.path())
        };
        for outer in &self.tables {
            for inner in self.tables.iter().filter(|inner| inside(outer, inner)) {
                faults.push(
                    Fault::new(
                        "TABLE_PLACES_OVERLAP",
                        format!(
                            "`{}` would lie inside the folder of `{}`",
                            inner.shown, outer.shown
                        ),
                    )
                    .at(inner.definition.name.place.clone())
                    .help("a table of the default schema can't have the name of a schema"),
                );
            }
        }
        for table in &self.tables {
            let flows: Vec<&ProjectFlow> = table.flows.iter().map(|i| &self.flows[*i]).collect();
            if flows.is_empty() && table.definition.kind == TableKind::StreamingTable {
                faults.push(
                    Fault::new(
                        "TABLE_WITHOUT_FLOW",
                        format!("no flow writes to `{}`", table.shown),
                    )
                    .at(table.definition.name.place.clone())
                    .help("add a FLOW clause, or a CREATE FLOW statement"),
                );
            }
            for flow in &flows {
                self.check_flow(table, flow, &flows, faults);
            }
        }
    }

    fn check_flow(
        &self,
        table: &ProjectTable,
        flow: &ProjectFlow,
        all: &[&ProjectFlow],
        faults: &mut Vec<Fault>,
    ) {
        let place = flow.definition.name.place.clone();
        let missing = match &flow.definition.kind {
            FlowKind::ReplaceWhere { .. } | FlowKind::MaterializedView { .. } => None,
            FlowKind::ReplaceUsing { .. } => Some("REPLACE USING"),
            FlowKind::Append { once: false, .. } => Some("append"),
            FlowKind::Append { once: true, .. } => Some("append once (INSERT ONCE)"),
            FlowKind::AutoCdc => Some("AUTO CDC"),
            FlowKind::AutoCdcFromSnapshot => Some("AUTO CDC FROM SNAPSHOT"),
        };
        if let Some(kind) = missing {
            faults.push(
                Fault::new(
                    "FLOW_KIND_NOT_AVAILABLE",
                    format!(
                        "{kind} flows are not available in this version (flow `{}`)",
                        flow.name
                    ),
                )
                .at(place.clone()),
            );
        }
        let exclusive = matches!(
            flow.definition.kind,
            FlowKind::ReplaceWhere { .. } | FlowKind::ReplaceUsing { .. }
        );
        let is_first = all.first().is_some_and(|f| std::ptr::eq(*f, flow));
        if all.len() > 1
            && (exclusive || table.definition.kind == TableKind::MaterializedView)
            && is_first
        {
            let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
            faults.push(
                Fault::new(
                    "FLOWS_DO_NOT_MIX",
                    format!(
                        "`{}` has the flows {}; beside {} there can be no other",
                        table.shown,
                        names.join(", "),
                        flow.definition.kind.word().replace('_', " ")
                    ),
                )
                .at(place.clone())
                .help("give each flow a table of its own"),
            );
        }
        let has_expectations = !table.definition.expectations.is_empty();
        if has_expectations && matches!(flow.definition.kind, FlowKind::ReplaceWhere { .. }) {
            faults.push(
                Fault::new(
                    "EXPECTATIONS_NOT_ALLOWED",
                    format!(
                        "`{}` has an expectation, which REPLACE WHERE flows do not take",
                        table.shown
                    ),
                )
                .at(table.definition.expectations[0].name.place.clone())
                .help("filter in the query, or check in a materialized view over the table"),
            );
        } else if has_expectations && missing.is_none() {
            faults.push(
                Fault::new(
                    "EXPECTATIONS_NOT_AVAILABLE",
                    format!(
                        "expectations are not available in this version (table `{}`)",
                        table.shown
                    ),
                )
                .at(table.definition.expectations[0].name.place.clone()),
            );
        }
    }

    /// What a name in a query stands for, or a fault code and words for one that stands for nothing.
    pub fn resolve(&self, parts: &[String], defaults: &Defaults) -> Result<Relation, Fault> {
        let written = parts.join(".");
        let Some(full) = defaults.complete(parts) else {
            return Err(Fault::new(
                "NAME_TOO_LONG",
                format!("`{written}` has more than three parts"),
            ));
        };
        if let Some(i) = self.tables.iter().position(|t| t.full_name == full) {
            return Ok(Relation::Table(i));
        }
        if let Some(i) = self.views.iter().position(|v| v.full_name == full) {
            return Ok(Relation::View(i));
        }
        if let Some((shown, url)) = self.external.get(&full) {
            return self.external_at(shown.clone(), vec![url.clone()]);
        }
        if let [catalog, schema, table] = parts
            && let Some((_, root)) = self
                .config
                .catalogs
                .iter()
                .find(|(c, _)| name::key(c) == name::key(catalog))
        {
            let mut candidates: Vec<Url> = Vec::new();
            for (schema, table) in [
                (name::key(schema), name::key(table)),
                (schema.clone(), table.clone()),
            ] {
                let mut url = root.clone();
                if !is_folder_name(&schema) || !is_folder_name(&table) {
                    continue;
                }
                let folder = encode_segments(&format!("{schema}/{table}"));
                url.set_path(&format!("{}{folder}/", root.path()));
                if !candidates.contains(&url) {
                    candidates.push(url);
                }
            }
            return self.external_at(written, candidates);
        }
        Err(self.unknown(&written, parts))
    }

    fn external_at(&self, shown: String, candidates: Vec<Url>) -> Result<Relation, Fault> {
        if let Some(url) = candidates.iter().find(|u| !self.config.allows(u)) {
            return Err(Fault::new(
                "PATH_NOT_ALLOWED",
                format!("table `{shown}` lies at `{url}`, which is under none of `allowed_paths`"),
            ));
        }
        Ok(Relation::External { shown, candidates })
    }

    fn unknown(&self, written: &str, parts: &[String]) -> Fault {
        let mut known: Vec<String> = self.tables.iter().map(|t| t.shown.clone()).collect();
        known.extend(self.views.iter().map(|v| self.shown(&v.full_name)));
        known.extend(self.external.values().map(|(shown, _)| shown.clone()));
        let nearest = name::nearest(written, known.iter().map(String::as_str));
        let mut fault = Fault::new("TABLE_NOT_FOUND", format!("there is no table `{written}`"))
            .hint(nearest.map(|n| format!("did you mean `{n}`?")));
        if let [catalog, _, _] = parts {
            let catalogs: Vec<&str> = self
                .config
                .catalogs
                .iter()
                .map(|(c, _)| c.as_str())
                .collect();
            fault = fault.help(match name::nearest(catalog, catalogs.iter().copied()) {
                Some(near) => format!("the pipeline file's `catalogs` has `{near}`"),
                None => format!("add `{catalog}` under `catalogs`, or the table under `tables`"),
            });
        } else if known.is_empty() {
            fault = fault.help("name it under `tables` in the pipeline file");
        } else {
            known.sort();
            known.truncate(12);
            fault = fault.help(format!(
                "known are {}; sources are named under `tables`",
                known.join(", ")
            ));
        }
        fault
    }
}

/// A name that is one folder on every store, and no special one.
fn is_folder_name(name: &str) -> bool {
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.' | ' ' | '+' | '@');
    !name.is_empty()
        && name.chars().all(plain)
        && !name.starts_with(['.', ' '])
        && !name.ends_with(['.', ' '])
        && name != "_delta_log"
        && name.len() <= 200
}

fn encode_segments(path: &str) -> String {
    path.split('/')
        .map(|s| {
            percent_encoding::utf8_percent_encode(s, percent_encoding::NON_ALPHANUMERIC)
                .to_string()
                .replace("%5F", "_")
                .replace("%2D", "-")
                .replace("%2E", ".")
        })
        .collect::<Vec<_>>()
        .join("/")
}
