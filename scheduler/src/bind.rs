//! Queries with their tables: from the text of a flow to a logical plan over pinned sources.
//!
//! Every table that a query names is looked up, opened at one version per update, and registered in
//! a session of its own. Errors of the planner become faults that point into the file.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, SchemaError, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    self, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};
use futures::{FutureExt, StreamExt, future, stream};
use tokio::sync::Mutex;
use url::Url;
use windrow_delta::{Location, Table, TableError};
pub use windrow_executor::failure::words_of;
use windrow_executor::files;
use windrow_executor::scan::{DeltaSource, PlannedTable, ScanLog};
use windrow_executor::session::{Engine, register_table};
use windrow_executor::spark::{WrongCall, refused_call};
use windrow_flows::definition::QueryText;
use windrow_flows::dialect;
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::sql::stream_of;

use crate::evolve::OutputColumn;
use crate::project::{Defaults, Project, Relation};

/// A source of a query at the version at which it is read.
#[derive(Debug, Clone)]
pub struct Read {
    /// The name as scans record it.
    pub shown: String,
    pub kind: ReadKind,
}

#[derive(Debug, Clone)]
pub enum ReadKind {
    Delta(Table),
    /// A table of this pipeline that is not there yet.
    Planned,
    Files,
}

/// A query with everything that planning found out about it.
#[derive(Debug)]
pub struct Bound {
    pub state: SessionState,
    pub plan: LogicalPlan,
    pub outputs: Vec<OutputColumn>,
    pub reads: Vec<Read>,
    pub log: ScanLog,
    /// Normalised text of the query and of the views below it.
    pub fingerprint: String,
    /// The query (not the predicate) asks for the clock.
    pub uses_clock: bool,
    /// The query uses rand, uuid and the like.
    pub nondeterministic: bool,
}

/// What a table of this pipeline is to its readers right now.
#[derive(Debug, Clone)]
pub enum Upstream {
    Planned(SchemaRef),
    Existing(Table),
}

/// Source tables of one update, each opened once and then read at that version by every flow.
#[derive(Debug, Default)]
pub struct Sources {
    opened: Mutex<HashMap<Url, Option<Table>>>,
    /// By the location's own URL.
    pinned: HashMap<String, Table>,
}

impl Sources {
    /// Sources of which some are read at versions that are given.
    pub fn pinned(tables: impl IntoIterator<Item = Table>) -> Self {
        let by_url = |t: Table| (t.location().url().to_string(), t);
        Self {
            opened: Mutex::default(),
            pinned: tables.into_iter().map(by_url).collect(),
        }
    }

    async fn open(&self, project: &Project, url: &Url) -> Result<Option<Table>, TableError> {
        let mut opened = self.opened.lock().await;
        if let Some(table) = opened.get(url) {
            return Ok(table.clone());
        }
        let location = Location::open(url, &project.config.store_options)?;
        if let Some(table) = self.pinned.get(location.url().as_str()) {
            return Ok(Some(table.clone()));
        }
        let table = Table::open(&location, None).await?;
        opened.insert(url.clone(), table.clone());
        Ok(table)
    }

    /// Opens tables side by side, so that the queries that read them find them open. What can't be
    /// opened is left to the query that names it, which has a place in a file to show.
    pub async fn open_ahead(&self, project: &Project, urls: Vec<Url>) {
        let options = &project.config.store_options;
        let opened: Vec<(Url, Option<Table>)> = stream::iter(urls)
            .map(|url| {
                async move {
                    let location = Location::open(&url, options).ok()?;
                    let table = Table::open(&location, None).await.ok()?;
                    Some((url, table))
                }
                .boxed()
            })
            .buffer_unordered(OPENED_AT_ONCE)
            .filter_map(future::ready)
            .collect()
            .await;
        self.opened.lock().await.extend(opened);
    }
}

/// Tables that are opened side by side.
const OPENED_AT_ONCE: usize = 16;

/// The targets of a pipeline as they are, in the project's order.
pub async fn open_targets(project: &Project) -> Vec<Result<Option<Table>, TableError>> {
    let options = &project.config.store_options;
    let places: Vec<Url> = project.tables.iter().map(|t| t.location.clone()).collect();
    stream::iter(places)
        .map(|place| {
            async move {
                let location = Location::open(&place, options)?;
                Table::open(&location, None).await
            }
            .boxed()
        })
        .buffered(OPENED_AT_ONCE)
        .collect()
        .await
}

/// Everything that binding a query needs.
pub struct Binder<'a> {
    pub project: &'a Project,
    pub engine: &'a Engine,
    pub clock: DateTime<Utc>,
    pub sources: &'a Sources,
    /// By table index.
    pub upstream: &'a BTreeMap<usize, Upstream>,
}

struct Work {
    reads: Vec<Read>,
    log: ScanLog,
    fingerprint: String,
    uses_clock: bool,
    nondeterministic: bool,
    /// Views being bound, to find circles among them.
    open_views: Vec<usize>,
    registered: Vec<TableReference>,
    /// `read_files` calls so far, over the query and its views.
    files: usize,
    case: HashMap<String, String>,
}

impl Binder<'_> {
    /// Binds the query of a flow.
    pub async fn bind(
        &self,
        query: &QueryText,
        defaults: &Defaults,
        spilling_joins: bool,
    ) -> Result<Bound, Vec<Fault>> {
        let state = self
            .engine
            .session(self.clock, self.project.time_zone(), spilling_joins)
            .map_err(|e| vec![Fault::new("SESSION_NOT_STARTED", e.to_string())])?;
        let mut work = Work {
            reads: Vec::new(),
            log: ScanLog::default(),
            fingerprint: String::new(),
            uses_clock: false,
            nondeterministic: false,
            open_views: Vec::new(),
            registered: Vec::new(),
            files: 0,
            case: HashMap::new(),
        };
        let plan = self.plan_query(&state, query, defaults, &mut work).await?;
        // A call that its function does not take is a column without a type until the analyzer refuses it.
        let untyped = |field: &FieldRef| field.data_type() == &DataType::Null;
        if plan.schema().fields().iter().any(untyped) {
            let config = state.config_options();
            let analyzer = state.analyzer();
            analyzer
                .execute_and_check(plan.clone(), config, |_, _| {})
                .map_err(|e| vec![fault_of(&e, query)])?;
        }
        let outputs = outputs(&plan, query, &work.case);
        Ok(Bound {
            state,
            plan,
            outputs,
            reads: work.reads,
            log: work.log,
            fingerprint: work.fingerprint,
            uses_clock: work.uses_clock,
            nondeterministic: work.nondeterministic,
        })
    }

    async fn plan_query(
        &self,
        state: &SessionState,
        query: &QueryText,
        defaults: &Defaults,
        work: &mut Work,
    ) -> Result<LogicalPlan, Vec<Fault>> {
        let mut ast = query.normalised.clone();
        work.fingerprint.push_str(&ast.to_string());
        work.fingerprint.push('\n');
        let mut factors = Factors {
            read_files: Vec::new(),
            first: work.files,
            faults: duplicate_names(query),
            query,
        };
        let _ = ast.visit(&mut factors);
        if !factors.faults.is_empty() {
            return Err(factors.faults);
        }
        work.files += factors.read_files.len();
        let mut functions = FunctionNames::default();
        let _ = ast::Visit::visit(&ast, &mut functions);
        work.uses_clock |= functions.names.iter().any(|n| dialect::is_temporal(n));
        work.nondeterministic |= functions
            .names
            .iter()
            .any(|n| dialect::is_nondeterministic(n));
        let faults: Vec<Fault> = dialect::rewrite_query(&mut ast)
            .into_iter()
            .map(|f| {
                let mut fault = Fault::new(f.code, f.message)
                    .hint(f.hint)
                    .at(query.place_of(f.span).or_else(|| Some(query.place.clone())));
                fault.help = f.help;
                fault
            })
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        for (table, args) in factors.read_files {
            self.bind_files(state, query, &table, &args, work)
                .await
                .map_err(|f| vec![f])?;
        }
        let statement = PlannerStatement::Statement(Box::new(ast::Statement::Query(ast)));
        let references = state
            .resolve_table_references(&statement)
            .map_err(|e| vec![fault_of(&e, query)])?;
        let mut faults = Vec::new();
        let mut bound = true;
        for reference in references {
            if work.registered.contains(&reference) || reference.table().starts_with(FILES_PREFIX) {
                continue;
            }
            if let Err(more) = self
                .bind_table(state, query, &reference, defaults, work)
                .await
            {
                bound = false;
                faults.extend(more);
            }
        }
        if !bound {
            return Err(faults);
        }
        state
            .statement_to_plan(statement)
            .await
            .map_err(|e| vec![fault_of(&e, query)])
    }

    async fn bind_table(
        &self,
        state: &SessionState,
        query: &QueryText,
        reference: &TableReference,
        defaults: &Defaults,
        work: &mut Work,
    ) -> Result<(), Vec<Fault>> {
        let parts: Vec<String> = reference.to_vec();
        let shown = parts.join(".");
        let at = |f: Fault| {
            let place = find_name(query, parts.last().map_or("", String::as_str));
            f.at(place.or_else(|| Some(query.place.clone())))
        };
        let relation = self
            .project
            .resolve(&parts, defaults)
            .map_err(|f| vec![at(f)])?;
        let provider: Arc<dyn TableProvider> = match relation {
            Relation::Table(index) => match self.upstream.get(&index) {
                Some(Upstream::Existing(table)) => {
                    let name = self.project.tables[index].shown.clone();
                    self.delta(table, name, work).map_err(|f| vec![at(f)])?
                }
                Some(Upstream::Planned(schema)) => {
                    let shown = self.project.tables[index].shown.clone();
                    work.reads.push(Read {
                        shown,
                        kind: ReadKind::Planned,
                    });
                    Arc::new(PlannedTable::new(schema.clone()))
                }
                // The faults of the table that it reads are reported with that table.
                None => return Err(Vec::new()),
            },
            Relation::External { shown, candidates } => {
                let mut found = None;
                for url in &candidates {
                    let table = self.sources.open(self.project, url).await.map_err(|e| {
                        vec![at(Fault::new(e.code(), e.to_string()).help(format!(
                            "check the location of `{shown}` and the access to it"
                        )))]
                    })?;
                    if table.is_some() {
                        found = table;
                        break;
                    }
                }
                let Some(table) = found else {
                    let place = candidates.first().map(Url::to_string).unwrap_or_default();
                    return Err(vec![at(Fault::new(
                        "SOURCE_NOT_FOUND",
                        format!(
                            "source `{shown}` is no Delta table: there is no _delta_log at {place}"
                        ),
                    )
                    .help(
                        "correct its location under `tables` or `catalogs` in the pipeline file",
                    ))]);
                };
                self.delta(&table, shown, work).map_err(|f| vec![at(f)])?
            }
            Relation::View(index) => {
                if work.open_views.contains(&index) {
                    return Err(vec![at(Fault::new(
                        "DEPENDENCY_CYCLE",
                        format!("view `{shown}` reads itself"),
                    ))]);
                }
                work.open_views.push(index);
                let view = &self.project.views[index];
                let plan =
                    Box::pin(self.plan_query(state, &view.definition.query, &view.defaults, work))
                        .await?;
                work.open_views.pop();
                let plan = renamed(plan, view).map_err(|f| vec![f])?;
                Arc::new(ViewTable::new(plan, None))
            }
        };
        register_table(state, reference, provider)
            .map_err(|e| vec![at(Fault::new("TABLE_NOT_REGISTERED", e.to_string()))])?;
        work.registered.push(reference.clone());
        Ok(())
    }

    fn delta(
        &self,
        table: &Table,
        shown: String,
        work: &mut Work,
    ) -> Result<Arc<dyn TableProvider>, Fault> {
        for column in &table.schema().columns {
            work.case
                .entry(name::key(&column.name))
                .or_insert_with(|| column.name.clone());
        }
        let source = DeltaSource::new(table.clone(), shown.clone(), work.log.clone())
            .map_err(|e| Fault::new("SOURCE_NOT_READABLE", format!("table `{shown}`: {e}")))?;
        work.reads.push(Read {
            shown,
            kind: ReadKind::Delta(table.clone()),
        });
        Ok(Arc::new(source))
    }

    async fn bind_files(
        &self,
        state: &SessionState,
        query: &QueryText,
        table: &str,
        args: &[ast::FunctionArg],
        work: &mut Work,
    ) -> Result<(), Fault> {
        let place = || find_name(query, "read_files").or_else(|| Some(query.place.clone()));
        let request = files::FilesRequest::parse(args)
            .map_err(|e| Fault::new(e.code(), e.to_string()).at(place()))?;
        let url = self
            .project
            .config
            .locate(&request.path_root())
            .map_err(|f| f.at(place()))?;
        if !self.project.config.allows(&url) {
            return Err(Fault::new(
                "PATH_NOT_ALLOWED",
                format!(
                    "read_files reads `{}`, which is under none of `allowed_paths`",
                    request.path()
                ),
            )
            .at(place()));
        }
        let location = Location::open(&url, &self.project.config.store_options)
            .map_err(|e| Fault::new(e.code(), e.to_string()).at(place()))?;
        let provider = files::provider(state, &location, &request)
            .await
            .map_err(|e| Fault::new(e.code(), e.to_string()).at(place()))?;
        for field in provider.schema().fields() {
            work.case
                .entry(name::key(field.name()))
                .or_insert_with(|| field.name().clone());
        }
        work.reads.push(Read {
            shown: request.path().to_string(),
            kind: ReadKind::Files,
        });
        register_table(state, &TableReference::bare(table), provider)
            .map_err(|e| Fault::new("TABLE_NOT_REGISTERED", e.to_string()).at(place()))
    }
}

/// Names of the tables that stand for `read_files` calls.
const FILES_PREFIX: &str = "__windrow_files_";

/// Two columns of the result with one name, as far as the query's text shows them.
fn duplicate_names(query: &QueryText) -> Vec<Fault> {
    let SetExpr::Select(select) = query.ast.body.as_ref() else {
        return Vec::new();
    };
    let mut seen: Vec<&ast::Ident> = Vec::new();
    let mut faults = Vec::new();
    for item in &select.projection {
        let ident = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias,
            SelectItem::UnnamedExpr(ast::Expr::Identifier(i)) => i,
            SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts)) => match parts.last() {
                Some(last) => last,
                None => continue,
            },
            _ => continue,
        };
        match seen.iter().find(|s| name::key(&s.value) == name::key(&ident.value)) {
            Some(first) => faults.push(
                Fault::new(
                    "DUPLICATE_COLUMN",
                    format!(
                        "the query has two columns called `{}` and `{}`; names compare without case",
                        first.value, ident.value
                    ),
                )
                .at(query.place_of(ident.span).or_else(|| Some(query.place.clone())))
                .help("give one of the two another name with AS"),
            ),
            None => seen.push(ident),
        }
    }
    faults
}

/// Takes table functions out of the tree: streams are refused here, `read_files` becomes a table.
struct Factors<'a> {
    read_files: Vec<(String, Vec<ast::FunctionArg>)>,
    /// The number of the first call.
    first: usize,
    faults: Vec<Fault>,
    query: &'a QueryText,
}

impl VisitorMut for Factors<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(stream) = stream_of(factor) {
            let place = self.query.place_of(stream.span);
            self.faults.push(
                Fault::new("STREAM_NOT_ALLOWED", "STREAM reads only what is new, which this kind of flow does not do")
                    .at(place.or_else(|| Some(self.query.place.clone())))
                    .help("leave STREAM out: the query of a REPLACE WHERE flow or a view is a batch query"),
            );
            return ControlFlow::Continue(());
        }
        if let TableFactor::Derived {
            subquery, alias, ..
        } = factor
            && let SetExpr::Values(values) = subquery.body.as_ref()
            && alias.as_ref().is_none_or(|a| a.columns.is_empty())
        {
            // Spark calls the columns of VALUES col1, col2, and so on.
            let count = values.rows.first().map_or(0, |row| row.len());
            let columns = (1..=count)
                .map(|i| ast::TableAliasColumnDef::from_name(format!("col{i}")))
                .collect();
            match alias {
                Some(alias) => alias.columns = columns,
                None => {
                    *alias = Some(ast::TableAlias {
                        name: ast::Ident::new("values"),
                        columns,
                        explicit: true,
                        at: None,
                    });
                }
            }
            return ControlFlow::Continue(());
        }
        let TableFactor::Table {
            name,
            args,
            alias,
            version,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        if version.is_some() {
            self.faults.push(
                Fault::new(
                    "SYNTAX_NOT_AVAILABLE",
                    format!("`{name}` VERSION AS OF is not available in this version"),
                )
                .at(Some(self.query.place.clone())),
            );
        }
        let Some(call) = args else {
            return ControlFlow::Continue(());
        };
        let called = name.to_string();
        if dialect::is_table_function(&called) {
            return ControlFlow::Continue(());
        }
        if name::key(&called) != "read_files" {
            self.faults.push(
                Fault::new(
                    "FUNCTION_NOT_AVAILABLE",
                    format!("the table function `{called}` is not available in this version"),
                )
                .hint(name::did_you_mean(&called, ["read_files"]))
                .at(find_name(self.query, &called).or_else(|| Some(self.query.place.clone()))),
            );
            return ControlFlow::Continue(());
        }
        let table = format!("{FILES_PREFIX}{}", self.first + self.read_files.len());
        self.read_files.push((table.clone(), call.args.clone()));
        if alias.is_none() {
            *alias = Some(ast::TableAlias {
                name: ast::Ident::new("read_files"),
                columns: Vec::new(),
                explicit: true,
                at: None,
            });
        }
        *name = ast::ObjectName::from(vec![ast::Ident::new(table)]);
        *args = None;
        ControlFlow::Continue(())
    }
}

#[derive(Default)]
struct FunctionNames {
    names: Vec<String>,
}

impl ast::Visitor for FunctionNames {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        match expr {
            ast::Expr::Function(f) => self.names.push(f.name.to_string()),
            // `current_date` without parentheses is a plain name to the parser.
            ast::Expr::Identifier(i) if dialect::is_temporal(&i.value) => {
                self.names.push(i.value.clone());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn renamed(plan: LogicalPlan, view: &crate::project::ProjectView) -> Result<LogicalPlan, Fault> {
    let definition = &view.definition;
    let names: Vec<String> = definition
        .columns
        .iter()
        .map(|c| name::key(c.name.last()))
        .collect();
    if names.is_empty() {
        return Ok(plan);
    }
    let fields = plan.schema().fields().len();
    if names.len() != fields {
        return Err(Fault::new(
            "VIEW_COLUMNS",
            format!(
                "view `{}` names {} columns, its query has {fields}",
                definition.name,
                names.len()
            ),
        )
        .at(definition.name.place.clone()));
    }
    let exprs: Vec<_> = plan
        .schema()
        .columns()
        .into_iter()
        .zip(&names)
        .map(|(c, n)| datafusion::logical_expr::Expr::Column(c).alias(n))
        .collect();
    LogicalPlanBuilder::from(plan)
        .project(exprs)
        .and_then(LogicalPlanBuilder::build)
        .map_err(|e| fault_of(&e, &definition.query))
}

/// The result's columns, with the case in which the query or the source writes them.
fn outputs(
    plan: &LogicalPlan,
    query: &QueryText,
    sources: &HashMap<String, String>,
) -> Vec<OutputColumn> {
    let mut written: HashMap<String, String> = HashMap::new();
    let mut body = query.ast.body.as_ref();
    // The names of a set operation are those of its first query.
    loop {
        body = match body {
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(inner) => inner.body.as_ref(),
            _ => break,
        };
    }
    if let SetExpr::Select(select) = body {
        for item in &select.projection {
            let ident = match item {
                SelectItem::ExprWithAlias { alias, .. } => Some(alias),
                SelectItem::UnnamedExpr(ast::Expr::Identifier(i)) => Some(i),
                SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts)) => parts.last(),
                _ => None,
            };
            if let Some(ident) = ident {
                written.insert(name::key(&ident.value), ident.value.clone());
            }
        }
    }
    plan.schema()
        .fields()
        .iter()
        .map(|f| {
            let key = name::key(f.name());
            let shown = written.get(&key).or_else(|| sources.get(&key)).cloned();
            OutputColumn {
                query_name: key,
                shown_name: shown.unwrap_or_else(|| f.name().clone()),
                data_type: f.data_type().clone(),
            }
        })
        .collect()
}

/// Where a word stands in a query, for faults whose place the planner does not tell.
pub fn find_name(query: &QueryText, word: &str) -> Option<windrow_flows::fault::Place> {
    find_word(&query.place, word)
}

/// Where a word stands in a part of a text.
fn find_word(
    part: &windrow_flows::fault::Place,
    word: &str,
) -> Option<windrow_flows::fault::Place> {
    if word.is_empty() {
        return None;
    }
    let lines: Vec<&str> = part.source.text.lines().collect();
    let first = part.line.saturating_sub(1) as usize;
    let last = (part.end_line as usize).min(lines.len());
    let word_chars: Vec<char> = word.to_lowercase().chars().collect();
    for (number, line) in lines.iter().enumerate().take(last).skip(first) {
        let lower: Vec<char> = line.chars().flat_map(char::to_lowercase).collect();
        let is_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
        let from = if number == first {
            part.column.saturating_sub(1) as usize
        } else {
            0
        };
        let found = (from..lower.len()).find(|at| {
            lower[*at..].starts_with(&word_chars)
                && (*at == 0 || !is_word(lower.get(at - 1)))
                && !is_word(lower.get(at + word_chars.len()))
        });
        if let Some(at) = found {
            return Some(windrow_flows::fault::Place {
                source: part.source.clone(),
                line: number as u64 + 1,
                column: at as u64 + 1,
                end_line: number as u64 + 1,
                end_column: (at + word_chars.len()) as u64 + 1,
            });
        }
    }
    None
}

/// A planner's error as a fault, with the nearest known name where a name is unknown.
pub fn fault_of(error: &DataFusionError, query: &QueryText) -> Fault {
    let whole = || Some(query.place.clone());
    let span = error
        .diagnostic()
        .and_then(|d| d.span)
        .and_then(|s| query.place_of(ast_span(s)));
    let root = error.find_root();
    if let DataFusionError::SchemaError(schema_error, _) = root {
        match schema_error.as_ref() {
            SchemaError::FieldNotFound {
                field,
                valid_fields,
            } => {
                let known: Vec<&str> = valid_fields.iter().map(|c| c.name.as_str()).collect();
                let place = span
                    .or_else(|| find_name(query, &field.name))
                    .or_else(whole);
                let mut names: Vec<&str> = known.clone();
                names.sort_unstable();
                names.dedup();
                names.truncate(20);
                let mut fault = Fault::new(
                    "COLUMN_NOT_FOUND",
                    format!("there is no column `{}`", field.flat_name()),
                )
                .hint(name::did_you_mean(&field.name, known.iter().copied()))
                .at(place);
                if !names.is_empty() {
                    fault = fault.help(format!("the columns here are {}", names.join(", ")));
                }
                return fault;
            }
            SchemaError::AmbiguousReference { field } => {
                let place = span
                    .or_else(|| find_name(query, &field.name))
                    .or_else(whole);
                return Fault::new(
                    "AMBIGUOUS_COLUMN",
                    format!("column `{}` is in more than one of the tables", field.name),
                )
                .at(place)
                .help(format!("write the table before it: t.{}", field.name));
            }
            _ => {}
        }
    }
    let (code, message) = fault_words(error);
    let fault = Fault::new(code, message);
    if let DataFusionError::External(inner) = root
        && let Some(wrong) = inner.downcast_ref::<WrongCall>()
    {
        let column = || {
            let mut names = wrong.columns.iter();
            names.find_map(|name| find_name(query, name))
        };
        let place = find_call(query, &wrong.function, &wrong.columns).or_else(column);
        return called_as(fault.at(place.or_else(whole)), &wrong.signatures);
    }
    if let Some((function, signatures)) = refused_call(&root.to_string()) {
        let place = span.or_else(|| find_call(query, &function, &[]));
        return called_as(fault.at(place.or_else(whole)), &signatures);
    }
    fault.at(span.or_else(whole))
}

fn called_as(fault: Fault, signatures: &[String]) -> Fault {
    match signatures {
        [] => fault,
        calls => fault.help(format!("it is called as {}", calls.join(" or "))),
    }
}

/// Where a function is called with these columns among its arguments; the first call if none is like it.
fn find_call(
    query: &QueryText,
    function: &str,
    columns: &[String],
) -> Option<windrow_flows::fault::Place> {
    let lines: Vec<&str> = query.place.source.text.lines().collect();
    let mut from = query.place.clone();
    let mut first = None;
    loop {
        let found = find_word(&from, function)?;
        let line = lines.get(found.line as usize - 1).copied().unwrap_or("");
        let behind: String = line.chars().skip(found.end_column as usize - 1).collect();
        let arguments = behind.trim_start().strip_prefix('(');
        if let Some(arguments) = arguments {
            let lower = arguments.to_lowercase();
            if columns.iter().all(|column| lower.contains(column.as_str())) {
                return Some(found);
            }
            first.get_or_insert(found.clone());
        }
        from.line = found.end_line;
        from.column = found.end_column;
        if find_word(&from, function).is_none() {
            return first;
        }
    }
}

fn ast_span(span: datafusion::common::Span) -> datafusion::sql::sqlparser::tokenizer::Span {
    use datafusion::sql::sqlparser::tokenizer::{Location, Span};
    Span::new(
        Location::new(span.start.line, span.start.column),
        Location::new(span.end.line, span.end.column),
    )
}

/// Code and message for an error of planning, which happened in this process.
pub fn fault_words(error: &DataFusionError) -> (&'static str, String) {
    match words_of(error) {
        (std::borrow::Cow::Borrowed(code), message) => (code, message),
        (std::borrow::Cow::Owned(_), message) => ("QUERY_FAILED", message),
    }
}
