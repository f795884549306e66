//! What a pipeline file says, as types: tables, flows, views and settings.
//!
//! These are definitions only: names are not resolved and queries are not planned. Every part that
//! a message may point at carries its [`Place`].

use std::fmt;
use std::sync::Arc;

use sqlparser::ast;

use crate::fault::Place;
use crate::sql::Expansion;

/// A name as written, one to three parts (`table`, `schema.table`, `catalog.schema.table`).
#[derive(Debug, Clone)]
pub struct Name {
    /// Parts without quotes, with the case as written. Names compare without case.
    pub parts: Vec<String>,
    pub place: Place,
}

impl Name {
    /// The last part: the table's, flow's or column's own name.
    pub fn last(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("."))
    }
}

/// An expression with its text as written.
#[derive(Debug, Clone)]
pub struct ExprText {
    pub ast: ast::Expr,
    /// The same with every name in lower case, since names compare without case.
    pub normalised: ast::Expr,
    pub text: String,
    pub place: Place,
    /// Leads from spans inside `ast` back to the file, see [`ExprText::place_of`].
    pub origin: Arc<Expansion>,
}

/// A query with its text as written. Streams in `ast` are read with [`crate::sql::stream_of`].
#[derive(Debug, Clone)]
pub struct QueryText {
    pub ast: Box<ast::Query>,
    /// The same with every name in lower case, since names compare without case.
    pub normalised: Box<ast::Query>,
    pub text: String,
    pub place: Place,
    /// Leads from spans inside `ast` back to the file, see [`QueryText::place_of`].
    pub origin: Arc<Expansion>,
}

/// `name type [NOT NULL] [COMMENT text] [GENERATED ALWAYS AS (e)]`.
#[derive(Debug, Clone)]
pub struct ColumnDefinition {
    pub name: Name,
    /// `None` in a view's column list, which has no types.
    pub data_type: Option<ast::DataType>,
    pub not_null: bool,
    pub comment: Option<String>,
    pub generated: Option<ExprText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnViolation {
    Keep,
    DropRow,
    FailUpdate,
}

/// `CONSTRAINT name EXPECT (condition) [ON VIOLATION ...]`.
#[derive(Debug, Clone)]
pub struct Expectation {
    pub name: Name,
    pub condition: ExprText,
    pub on_violation: OnViolation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    StreamingTable,
    MaterializedView,
}

#[derive(Debug, Clone)]
pub enum ClusterBy {
    Auto,
    Columns(Vec<Name>),
}

/// A stored table of the pipeline, without the flows that fill it.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    pub name: Name,
    pub kind: TableKind,
    /// Empty when the statement has no column list.
    pub columns: Vec<ColumnDefinition>,
    pub expectations: Vec<Expectation>,
    pub partitioned_by: Vec<Name>,
    pub cluster_by: Option<ClusterBy>,
    pub comment: Option<String>,
    /// In the order written; keys keep their case.
    pub properties: Vec<(String, String)>,
}

/// A query with a name inside the pipeline, stored nowhere.
#[derive(Debug, Clone)]
pub struct ViewDefinition {
    pub name: Name,
    pub columns: Vec<ColumnDefinition>,
    pub comment: Option<String>,
    pub query: QueryText,
}

/// How a flow's rows are applied to its target.
#[derive(Debug, Clone)]
pub enum FlowKind {
    /// `REPLACE WHERE predicate BY NAME query`.
    ReplaceWhere {
        predicate: ExprText,
        query: QueryText,
    },
    /// `REPLACE USING (keys) SEQUENCE BY e BY NAME query`.
    ReplaceUsing {
        keys: Vec<Name>,
        sequence_by: ExprText,
        query: QueryText,
    },
    /// `INSERT [ONCE] BY NAME query`, or the `AS query` of a streaming table.
    Append { once: bool, query: QueryText },
    /// `AUTO CDC` and `APPLY CHANGES`; parsed as far as its name, see [`FlowKind::word`].
    AutoCdc,
    /// `AUTO CDC FROM SNAPSHOT`.
    AutoCdcFromSnapshot,
    /// The query of a materialized view.
    MaterializedView { query: QueryText },
}

impl FlowKind {
    /// The word used in the JSON result and in messages.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ReplaceWhere { .. } => "REPLACE_WHERE",
            Self::ReplaceUsing { .. } => "REPLACE_USING",
            Self::Append { once: false, .. } => "APPEND",
            Self::Append { once: true, .. } => "APPEND_ONCE",
            Self::AutoCdc => "AUTO_CDC",
            Self::AutoCdcFromSnapshot => "AUTO_CDC_FROM_SNAPSHOT",
            Self::MaterializedView { .. } => "MATERIALIZED_VIEW",
        }
    }
}

/// A flow: a query plus the way in which its rows are applied to one target.
#[derive(Debug, Clone)]
pub struct FlowDefinition {
    /// An inline flow has its table's name.
    pub name: Name,
    pub target: Name,
    pub comment: Option<String>,
    pub kind: FlowKind,
}

/// One statement of a pipeline file. A `CREATE ... TABLE` with a flow gives a table and a flow.
#[derive(Debug, Clone)]
pub enum Statement {
    Table {
        table: Box<TableDefinition>,
        flow: Option<Box<FlowDefinition>>,
    },
    View(Box<ViewDefinition>),
    Flow(Box<FlowDefinition>),
    /// `SET key = value`.
    Set {
        key: String,
        value: String,
        place: Place,
    },
    /// `USE CATALOG c`.
    UseCatalog(Name),
    /// `USE SCHEMA s`.
    UseSchema(Name),
}

/// What was read of one file: the statements that are well formed, and the faults of the others.
#[derive(Debug, Default)]
pub struct Parsed {
    pub statements: Vec<Statement>,
    pub faults: Vec<crate::fault::Fault>,
    /// Deprecated forms that were read as their modern ones.
    pub warnings: Vec<crate::fault::Fault>,
}
