//! `CREATE ... TABLE`, `CREATE MATERIALIZED VIEW` and `CREATE VIEW`, behind the word that says
//! which: column lists, constraints and table clauses.

use crate::refresh::POLICY_PROPERTY;
use sqlparser::tokenizer::Token;

use crate::definition::{
    ClusterBy, ColumnDefinition, Expectation, FlowDefinition, FlowKind, Name, OnViolation,
    Statement, TableDefinition, TableKind, ViewDefinition,
};
use crate::fault::{Fault, Place};
use crate::sql::cursor::{Cursor, check_new_column};
use crate::sql::flow::InlineTarget;

/// Which table a CREATE statement makes, by the words before TABLE or VIEW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreatedTable {
    Streaming,
    MaterializedView,
    /// `CREATE TABLE`: a table that append flows fill.
    Managed,
}

/// Words that may stand behind a table's name and columns.
const CLAUSE_WORDS: [&str; 10] = [
    "USING",
    "PARTITIONED",
    "CLUSTER",
    "COMMENT",
    "TBLPROPERTIES",
    "SCHEDULE",
    "REFRESH",
    "FLOW",
    "AS",
    "TRIGGER",
];

/// Table clauses that are known but not built here: words, name in the message.
const REFUSED_CLAUSES: [(&[&str], &str); 8] = [
    (&["LOCATION"], "LOCATION"),
    (&["WITH", "ROW", "FILTER"], "WITH ROW FILTER"),
    (&["ROW", "FILTER"], "ROW FILTER"),
    (&["DEFAULT", "COLLATION"], "DEFAULT COLLATION"),
    (&["TRIGGER", "ON"], "TRIGGER ON UPDATE"),
    (&["OPTIONS"], "OPTIONS"),
    (&["STORED"], "STORED AS"),
    (&["SKEWED", "BY"], "SKEWED BY"),
];

#[derive(Default)]
struct ColumnList {
    columns: Vec<ColumnDefinition>,
    expectations: Vec<Expectation>,
}

#[derive(Default)]
struct Clauses {
    using: Option<Place>,
    partitioned_by: Option<(Vec<Name>, Place)>,
    cluster_by: Option<(ClusterBy, Place)>,
    comment: Option<String>,
    properties: Option<Vec<(String, String)>>,
    schedule: Option<Place>,
    refresh_policy: Option<String>,
}

/// The properties of a table; its refresh policy is one of them.
fn with_policy(
    properties: Option<Vec<(String, String)>>,
    policy: Option<String>,
) -> Vec<(String, String)> {
    let mut properties = properties.unwrap_or_default();
    if let Some(policy) = policy {
        properties.retain(|(k, _)| !k.eq_ignore_ascii_case(POLICY_PROPERTY));
        properties.push((POLICY_PROPERTY.into(), policy));
    }
    properties
}

impl Cursor<'_> {
    /// Everything behind `CREATE ... TABLE` or `CREATE ... MATERIALIZED VIEW`.
    pub(crate) fn table(&mut self, created: CreatedTable) -> Result<Statement, Fault> {
        self.refuse_if_not_exists()?;
        let name = self.name("the table")?;
        let list = if self.sees_token(&Token::LParen) {
            self.table_columns()?
        } else {
            ColumnList::default()
        };
        let clauses = self.table_clauses()?;
        let flow = self.table_flow(created, &name)?;
        let kind = match created {
            CreatedTable::MaterializedView => TableKind::MaterializedView,
            CreatedTable::Streaming | CreatedTable::Managed => TableKind::StreamingTable,
        };
        let table = TableDefinition {
            name,
            kind,
            columns: list.columns,
            expectations: list.expectations,
            partitioned_by: clauses
                .partitioned_by
                .map(|(columns, _)| columns)
                .unwrap_or_default(),
            cluster_by: clauses.cluster_by.map(|(cluster_by, _)| cluster_by),
            comment: clauses.comment,
            properties: with_policy(clauses.properties, clauses.refresh_policy),
        };
        Ok(Statement::Table {
            table: Box::new(table),
            flow: flow.map(Box::new),
        })
    }

    fn refuse_if_not_exists(&self) -> Result<(), Fault> {
        if !self.sees(&["IF", "NOT", "EXISTS"]) {
            return Ok(());
        }
        Err(self
            .not_supported("IF NOT EXISTS", 3)
            .help("leave it out: an update makes what is missing and keeps what is there"))
    }

    fn table_flow(
        &mut self,
        created: CreatedTable,
        name: &Name,
    ) -> Result<Option<FlowDefinition>, Fault> {
        let flow = |kind| {
            Some(FlowDefinition {
                name: name.clone(),
                target: name.clone(),
                comment: None,
                kind,
            })
        };
        if created == CreatedTable::Managed && !self.sees(&["FLOW"]) {
            return Err(Fault::new(
                "STATEMENT_NOT_SUPPORTED",
                format!("CREATE TABLE {name} without FLOW INSERT is not supported in a pipeline"),
            )
            .at(self.here())
            .help("write CREATE STREAMING TABLE or CREATE MATERIALIZED VIEW"));
        }
        if self.sees(&["FLOW"]) {
            if created == CreatedTable::MaterializedView {
                return Err(self
                    .not_supported("FLOW in a materialized view", 1)
                    .help("write AS and the query; flows fill streaming tables"));
            }
            self.at += 1;
            let target = InlineTarget {
                name,
                managed: created == CreatedTable::Managed,
            };
            return Ok(flow(self.flow_body(Some(target))?.kind));
        }
        if self.take(&["AS"]) {
            let query = self.query()?;
            return Ok(flow(match created {
                CreatedTable::MaterializedView => FlowKind::MaterializedView { query },
                _ => FlowKind::Append { once: false, query },
            }));
        }
        if created == CreatedTable::MaterializedView {
            return Err(self.unexpected("AS and a query", &CLAUSE_WORDS));
        }
        if !self.at_end() {
            return Err(self.unexpected("a table clause, FLOW, AS or `;`", &CLAUSE_WORDS));
        }
        Ok(None)
    }

    /// Everything behind `CREATE ... VIEW`.
    pub(crate) fn view(&mut self) -> Result<Statement, Fault> {
        self.refuse_if_not_exists()?;
        let name = self.name("the view")?;
        let columns = if self.sees_token(&Token::LParen) {
            self.view_columns()?
        } else {
            Vec::new()
        };
        let mut comment = None;
        while !self.sees(&["AS"]) {
            if self.sees(&["COMMENT"]) {
                refuse_second(comment.is_some(), "COMMENT", self.here())?;
                self.at += 1;
                comment = Some(self.string("the comment")?);
            } else if self.sees(&["TBLPROPERTIES"]) {
                return Err(self.not_supported("TBLPROPERTIES of a view", 1));
            } else {
                return Err(self.unexpected("AS and a query", &["AS", "COMMENT"]));
            }
        }
        self.at += 1;
        let query = self.query()?;
        Ok(Statement::View(Box::new(ViewDefinition {
            name,
            columns,
            comment,
            query,
        })))
    }

    fn view_columns(&mut self) -> Result<Vec<ColumnDefinition>, Fault> {
        self.expect_token(&Token::LParen)?;
        let mut columns: Vec<ColumnDefinition> = Vec::new();
        loop {
            if self.sees(&["CONSTRAINT"]) {
                return Err(self
                    .not_supported("CONSTRAINT in a view", 1)
                    .help("a view has no expectations: put them on the table that reads it"));
            }
            let name = self.simple_name("a column")?;
            check_new(&columns, &name)?;
            let comment = if self.take(&["COMMENT"]) {
                Some(self.string("the comment")?)
            } else {
                None
            };
            columns.push(ColumnDefinition {
                name,
                data_type: None,
                not_null: false,
                comment,
                generated: None,
            });
            if self.take_token(&Token::RParen) {
                return Ok(columns);
            }
            if !self.take_token(&Token::Comma) {
                let fault = self.unexpected("`,`, COMMENT or `)`", &["COMMENT"]);
                return Err(fault.help("the columns of a view have no types"));
            }
        }
    }

    fn table_columns(&mut self) -> Result<ColumnList, Fault> {
        let close = self.matching_parenthesis(self.at)?;
        self.at += 1;
        let mut list = ColumnList::default();
        loop {
            if self.sees(&["CONSTRAINT"]) {
                let expectation = self.expectation()?;
                check_new_constraint(&list.expectations, &expectation)?;
                list.expectations.push(expectation);
            } else {
                self.refuse_table_constraint()?;
                let column = self.column(close)?;
                check_new(&list.columns, &column.name)?;
                list.columns.push(column);
            }
            if self.take_token(&Token::RParen) {
                return Ok(list);
            }
            if !self.take_token(&Token::Comma) {
                return Err(self.unexpected(
                    "`,` or `)`",
                    &[
                        "NOT",
                        "NULL",
                        "COMMENT",
                        "GENERATED",
                        "DEFAULT",
                        "ON",
                        "VIOLATION",
                        "EXPECT",
                    ],
                ));
            }
        }
    }

    /// PRIMARY KEY and the like, which nothing here would enforce or show.
    fn refuse_table_constraint(&self) -> Result<(), Fault> {
        for (words, what) in [
            (["PRIMARY", "KEY"], "PRIMARY KEY"),
            (["FOREIGN", "KEY"], "FOREIGN KEY"),
            (["UNIQUE", "("], "UNIQUE"),
            (["CHECK", "("], "CHECK"),
        ] {
            let [first, second] = words;
            let follows = self.peek_ahead(1).is_some_and(|next| {
                next.is_word(second) || second == "(" && next.is(&Token::LParen)
            });
            if self.sees(&[first]) && follows {
                return Err(self.not_supported(what, 2).help(
                    "declare what rows must satisfy with CONSTRAINT name EXPECT (condition)",
                ));
            }
        }
        Ok(())
    }

    /// `CONSTRAINT name EXPECT (condition) [ON VIOLATION ...]`.
    fn expectation(&mut self) -> Result<Expectation, Fault> {
        let start = self.at;
        self.at += 1;
        let name = self.simple_name("the constraint")?;
        for what in ["PRIMARY KEY", "FOREIGN KEY", "UNIQUE", "CHECK"] {
            if self.sees(&[what.split(' ').next().unwrap_or(what)]) {
                return Err(Fault::new(
                    "CLAUSE_NOT_SUPPORTED",
                    format!("{what} is not supported"),
                )
                .at(self.place_since(start))
                .help("declare what rows must satisfy with CONSTRAINT name EXPECT (condition)"));
            }
        }
        self.expect(&["EXPECT"])?;
        let condition = self.expression_in_parentheses("the condition")?;
        let on_violation = if self.take(&["ON"]) {
            self.expect(&["VIOLATION"])?;
            if self.take(&["DROP"]) {
                self.expect(&["ROW"])?;
                OnViolation::DropRow
            } else if self.take(&["FAIL"]) {
                self.expect(&["UPDATE"])?;
                OnViolation::FailUpdate
            } else {
                return Err(self.unexpected("DROP ROW or FAIL UPDATE", &["DROP", "FAIL"]));
            }
        } else {
            OnViolation::Keep
        };
        Ok(Expectation {
            name,
            condition,
            on_violation,
        })
    }

    /// `name type` and its properties, inside the list that closes at `close`.
    fn column(&mut self, close: usize) -> Result<ColumnDefinition, Fault> {
        let name = self.simple_name("a column")?;
        let untyped = self.sees_token(&Token::Comma)
            || self.sees_token(&Token::RParen)
            || ["COMMENT", "NOT", "GENERATED", "DEFAULT"]
                .iter()
                .any(|word| self.sees(&[word]));
        if untyped {
            return Err(self.unexpected(&format!("the type of column `{name}`"), &[]));
        }
        let data_type = self.data_type_before(close)?;
        let mut column = ColumnDefinition {
            name,
            data_type: Some(data_type),
            not_null: false,
            comment: None,
            generated: None,
        };
        loop {
            if self.sees(&["NOT", "NULL"]) {
                refuse_second(column.not_null, "NOT NULL", self.here())?;
                self.at += 2;
                column.not_null = true;
            } else if self.sees(&["COMMENT"]) {
                refuse_second(column.comment.is_some(), "COMMENT", self.here())?;
                self.at += 1;
                column.comment = Some(self.string("the comment")?);
            } else if self.sees(&["GENERATED"]) {
                refuse_second(column.generated.is_some(), "GENERATED", self.here())?;
                self.generated(&mut column)?;
            } else {
                self.refuse_column_property()?;
                return Ok(column);
            }
        }
    }

    fn generated(&mut self, column: &mut ColumnDefinition) -> Result<(), Fault> {
        let start = self.at;
        let always = self.take(&["GENERATED", "ALWAYS", "AS"]);
        let identity = if always {
            self.sees(&["IDENTITY"])
        } else {
            self.sees(&["GENERATED", "BY", "DEFAULT"])
        };
        if identity {
            return Err(Fault::new(
                "CLAUSE_NOT_SUPPORTED",
                "GENERATED ... AS IDENTITY is not supported",
            )
            .at(self.place_since(start)));
        }
        if !always {
            self.at += 1;
            return Err(self.unexpected("ALWAYS AS (expression)", &["ALWAYS"]));
        }
        column.generated = Some(self.expression_in_parentheses("an expression")?);
        Ok(())
    }

    fn refuse_column_property(&self) -> Result<(), Fault> {
        if self.sees(&["DEFAULT"]) {
            return Err(Fault::new(
                "COLUMN_DEFAULT_NOT_SUPPORTED",
                "DEFAULT of a column is not supported",
            )
            .at(self.here())
            .help("give the value in the query: coalesce(column, value) AS column"));
        }
        for (word, what) in [
            ("MASK", "MASK"),
            ("COLLATE", "COLLATE"),
            ("PRIMARY", "PRIMARY KEY"),
            ("REFERENCES", "REFERENCES (FOREIGN KEY)"),
            ("FOREIGN", "FOREIGN KEY"),
            ("UNIQUE", "UNIQUE"),
            ("CHECK", "CHECK"),
            ("CONSTRAINT", "CONSTRAINT inside a column"),
        ] {
            if self.sees(&[word]) {
                let fault = self.not_supported(what, 1);
                return Err(match word {
                    "CONSTRAINT" => fault.help("put a comma before CONSTRAINT"),
                    _ => fault,
                });
            }
        }
        Ok(())
    }

    /// Table clauses in any order, each at most once.
    fn table_clauses(&mut self) -> Result<Clauses, Fault> {
        let mut clauses = Clauses::default();
        loop {
            let start = self.at;
            if self.take(&["USING"]) {
                refuse_second(clauses.using.is_some(), "USING", self.place_since(start))?;
                if !self.take(&["DELTA"]) {
                    let what = format!("USING {}", self.text(self.at, self.at + 1));
                    return Err(self
                        .not_supported(&what, 1)
                        .help("all tables are Delta tables"));
                }
                clauses.using = Some(self.place_since(start));
            } else if self.take(&["PARTITIONED", "BY"]) {
                let twice = clauses.partitioned_by.is_some();
                refuse_second(twice, "PARTITIONED BY", self.place_since(start))?;
                let columns = self.clause_columns("PARTITIONED BY")?;
                clauses.partitioned_by = Some((columns, self.place_since(start)));
            } else if self.take(&["CLUSTER", "BY"]) {
                let twice = clauses.cluster_by.is_some();
                refuse_second(twice, "CLUSTER BY", self.place_since(start))?;
                let cluster_by = if self.take(&["AUTO"]) {
                    ClusterBy::Auto
                } else {
                    ClusterBy::Columns(self.clause_columns("CLUSTER BY")?)
                };
                clauses.cluster_by = Some((cluster_by, self.place_since(start)));
            } else if self.take(&["COMMENT"]) {
                refuse_second(
                    clauses.comment.is_some(),
                    "COMMENT",
                    self.place_since(start),
                )?;
                clauses.comment = Some(self.string("the comment")?);
            } else if self.take(&["TBLPROPERTIES"]) {
                let twice = clauses.properties.is_some();
                refuse_second(twice, "TBLPROPERTIES", self.place_since(start))?;
                clauses.properties = Some(self.properties()?);
            } else if self.take(&["REFRESH", "POLICY"]) {
                let twice = clauses.refresh_policy.is_some();
                refuse_second(twice, "REFRESH POLICY", self.place_since(start))?;
                clauses.refresh_policy = Some(self.refresh_policy()?.into());
            } else if self.take(&["SCHEDULE"]) {
                refuse_second(
                    clauses.schedule.is_some(),
                    "SCHEDULE",
                    self.place_since(start),
                )?;
                self.schedule(start)?;
                clauses.schedule = Some(self.place_since(start));
            } else {
                self.refuse_table_clause()?;
                check_partitioning(&clauses)?;
                return Ok(clauses);
            }
        }
    }

    fn refresh_policy(&mut self) -> Result<&'static str, Fault> {
        if self.take(&["AUTO"]) {
            Ok("auto")
        } else if self.take(&["FULL"]) {
            Ok("full")
        } else if self.take(&["INCREMENTAL", "STRICT"]) {
            Ok("incremental_strict")
        } else if self.take(&["INCREMENTAL"]) {
            Ok("incremental")
        } else {
            Err(self.unexpected("AUTO, INCREMENTAL, INCREMENTAL STRICT or FULL", &[]))
        }
    }

    fn refuse_table_clause(&self) -> Result<(), Fault> {
        match REFUSED_CLAUSES.iter().find(|(words, _)| self.sees(words)) {
            Some((words, what)) => Err(self.not_supported(what, words.len())),
            None => Ok(()),
        }
    }

    /// Columns of PARTITIONED BY or CLUSTER BY: plain names, at least one.
    fn clause_columns(&mut self, clause: &str) -> Result<Vec<Name>, Fault> {
        let start = self.at;
        if !self.sees_token(&Token::LParen) {
            return Err(self.unexpected(&format!("`(` and the columns of {clause}"), &[]));
        }
        let columns = self.column_list().map_err(|fault| {
            if fault.code == "SYNTAX_ERROR" {
                fault.help(format!(
                    "{clause} takes names of columns, without types or functions"
                ))
            } else {
                fault
            }
        })?;
        if columns.is_empty() {
            return Err(
                Fault::new("SYNTAX_ERROR", format!("{clause} names no column"))
                    .at(self.place_since(start)),
            );
        }
        Ok(columns)
    }

    /// `(key [=] value, ...)`.
    fn properties(&mut self) -> Result<Vec<(String, String)>, Fault> {
        self.expect_token(&Token::LParen)?;
        let mut properties: Vec<(String, String)> = Vec::new();
        loop {
            let start = self.at;
            let key = self.property_key()?;
            if properties.iter().any(|(known, _)| *known == key) {
                return Err(Fault::new(
                    "DUPLICATE_PROPERTY",
                    format!("the property `{key}` is set twice"),
                )
                .at(self.place_since(start)));
            }
            self.take_token(&Token::Eq);
            let value = self.property_value(&key)?;
            properties.push((key, value));
            if self.take_token(&Token::RParen) {
                return Ok(properties);
            }
            if !self.take_token(&Token::Comma) {
                return Err(self.unexpected("`,` or `)`", &[]));
            }
        }
    }

    fn property_key(&mut self) -> Result<String, Fault> {
        if let Some(Token::SingleQuotedString(key)) = self.peek().map(|lexeme| &lexeme.token) {
            self.at += 1;
            return Ok(key.clone());
        }
        let mut parts = Vec::new();
        loop {
            match self.peek().map(|lexeme| &lexeme.token) {
                Some(Token::Word(word)) => parts.push(word.value.clone()),
                _ => return Err(self.unexpected("the name of a property", &[])),
            }
            self.at += 1;
            if !self.take_token(&Token::Period) {
                return Ok(parts.join("."));
            }
        }
    }

    fn property_value(&mut self, key: &str) -> Result<String, Fault> {
        let start = self.at;
        self.take_token(&Token::Minus);
        match self.peek().map(|lexeme| &lexeme.token) {
            Some(Token::SingleQuotedString(value)) if self.at == start => {
                self.at += 1;
                Ok(value.clone())
            }
            Some(Token::Number(..)) => {
                self.at += 1;
                Ok(self.text(start, self.at).to_string())
            }
            _ if self.at == start && (self.sees(&["TRUE"]) || self.sees(&["FALSE"])) => {
                self.at += 1;
                Ok(self.text(start, self.at).to_lowercase())
            }
            _ => Err(self.unexpected(&format!("the value of `{key}`"), &["TRUE", "FALSE"])),
        }
    }

    /// `SCHEDULE [REFRESH] {EVERY n unit | CRON 'q' [AT TIME ZONE 'z']}`: read and not acted on,
    /// because updates are started from outside.
    fn schedule(&mut self, start: usize) -> Result<(), Fault> {
        self.take(&["REFRESH"]);
        if self.take(&["EVERY"]) {
            match self.peek().map(|lexeme| &lexeme.token) {
                Some(Token::Number(..)) => self.at += 1,
                _ => return Err(self.unexpected("a number", &[])),
            }
            const UNITS: [&str; 6] = ["HOUR", "HOURS", "DAY", "DAYS", "WEEK", "WEEKS"];
            if !UNITS.iter().any(|unit| self.take(&[unit])) {
                return Err(self.unexpected("HOURS, DAYS or WEEKS", &UNITS));
            }
        } else if self.take(&["CRON"]) {
            self.string("the schedule")?;
            if self.take(&["AT", "TIME", "ZONE"]) {
                self.string("the time zone")?;
            }
        } else {
            return Err(self.unexpected("EVERY or CRON", &["EVERY", "CRON"]));
        }
        self.warnings.push(
            Fault::new("SCHEDULE_NOT_ACTED_ON", "SCHEDULE is read but not acted on")
                .at(self.place_since(start))
                .help("start updates with `windrow run` from a scheduler such as cron"),
        );
        Ok(())
    }
}

pub(crate) fn refuse_second(present: bool, clause: &str, place: Place) -> Result<(), Fault> {
    if present {
        return Err(Fault::new("DUPLICATE_CLAUSE", format!("{clause} is given twice")).at(place));
    }
    Ok(())
}

fn check_partitioning(clauses: &Clauses) -> Result<(), Fault> {
    match (&clauses.partitioned_by, &clauses.cluster_by) {
        (Some(_), Some((_, place))) => Err(Fault::new(
            "CLAUSES_EXCLUDE_EACH_OTHER",
            "PARTITIONED BY and CLUSTER BY exclude each other",
        )
        .at(place.clone())),
        _ => Ok(()),
    }
}

fn check_new(columns: &[ColumnDefinition], name: &Name) -> Result<(), Fault> {
    let known: Vec<Name> = columns.iter().map(|column| column.name.clone()).collect();
    check_new_column(&known, name)
}

fn check_new_constraint(known: &[Expectation], new: &Expectation) -> Result<(), Fault> {
    let name = new.name.last();
    if known
        .iter()
        .any(|known| known.name.last().eq_ignore_ascii_case(name))
    {
        return Err(Fault::new(
            "DUPLICATE_CONSTRAINT",
            format!("the constraint `{name}` is defined twice"),
        )
        .at(new.name.place.clone()));
    }
    Ok(())
}
