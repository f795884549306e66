//! `CREATE FLOW` and the inline `FLOW` of a table: how the rows of a query reach their target.

use sqlparser::tokenizer::Token;

use crate::definition::{ExprText, FlowDefinition, FlowKind, Name, Statement};
use crate::fault::{Fault, Place};
use crate::sql::cursor::Cursor;
use crate::sql::rewrite::starts_query;
use crate::sql::table::refuse_second;

/// The table that an inline flow belongs to.
#[derive(Clone, Copy)]
pub(crate) struct InlineTarget<'a> {
    pub(crate) name: &'a Name,
    /// A `CREATE TABLE`, which takes append flows only.
    pub(crate) managed: bool,
}

/// A flow's target and kind.
pub(crate) struct FlowBody {
    pub(crate) target: Name,
    pub(crate) kind: FlowKind,
}

enum Replace {
    Where(ExprText),
    Using {
        keys: Vec<Name>,
        sequence_by: ExprText,
    },
}

const FLOW_WORDS: [&str; 4] = ["INSERT", "REPLACE", "AUTO", "APPLY"];

impl Cursor<'_> {
    /// Everything behind `CREATE FLOW`.
    pub(crate) fn create_flow(&mut self) -> Result<Statement, Fault> {
        let name = self.name("the flow")?;
        let comment = if self.take(&["COMMENT"]) {
            Some(self.string("the comment")?)
        } else {
            None
        };
        if !self.take(&["AS"]) {
            return Err(self.unexpected("AS", &["AS", "COMMENT"]));
        }
        if self.sees(&["REPLACE"]) {
            return Err(self
                .unexpected("INSERT INTO and the target", &[])
                .help("write INSERT INTO target BY NAME REPLACE WHERE predicate query"));
        }
        let body = self.flow_body(None)?;
        Ok(Statement::Flow(Box::new(FlowDefinition {
            name,
            target: body.target,
            comment,
            kind: body.kind,
        })))
    }

    /// A flow from INSERT, REPLACE, AUTO CDC or APPLY CHANGES on, to the end of the statement.
    pub(crate) fn flow_body(
        &mut self,
        inline: Option<InlineTarget<'_>>,
    ) -> Result<FlowBody, Fault> {
        if self.sees(&["AUTO", "CDC"]) || self.sees(&["APPLY", "CHANGES"]) {
            if inline.is_some_and(|target| target.managed) {
                return Err(Fault::new(
                    "MANAGED_TABLE_DOES_NOT_SUPPORT_CDC",
                    "AUTO CDC needs a streaming table as its target",
                )
                .at(self.here())
                .help("write CREATE STREAMING TABLE"));
            }
            return self.auto_cdc(inline);
        }
        if self.sees(&["INSERT"]) {
            return self.insert(inline);
        }
        if let Some(target) = inline
            && self.sees(&["REPLACE"])
        {
            return self.applied(target.name.clone(), false, inline);
        }
        let expected = match inline {
            Some(_) => "INSERT, REPLACE WHERE, REPLACE USING or AUTO CDC",
            None => "INSERT INTO or AUTO CDC",
        };
        Err(self.unexpected(expected, &FLOW_WORDS))
    }

    fn insert(&mut self, inline: Option<InlineTarget<'_>>) -> Result<FlowBody, Fault> {
        self.at += 1;
        let mut once = self.take(&["ONCE"]);
        if self.sees(&["OVERWRITE"]) {
            return Err(self
                .not_supported("INSERT OVERWRITE", 1)
                .help("write INSERT INTO target BY NAME REPLACE WHERE predicate query"));
        }
        let target = match inline {
            Some(target) => {
                if self.sees(&["INTO"]) {
                    return Err(self.unexpected("BY NAME", &[]).help(
                        "a flow inside CREATE STREAMING TABLE fills that table: leave INTO out",
                    ));
                }
                target.name.clone()
            }
            None => {
                self.expect(&["INTO"])?;
                if self.sees(&["ONCE"]) && !self.once_is_the_target() {
                    refuse_second(once, "ONCE", self.here())?;
                    self.at += 1;
                    once = true;
                }
                self.take(&["TABLE"]);
                self.name("the target table")?
            }
        };
        self.applied(target, once, inline)
    }

    /// A table may be called `once`.
    fn once_is_the_target(&self) -> bool {
        let next = self.peek_ahead(1);
        next.is_none_or(|next| {
            next.is(&Token::Period)
                || next.is(&Token::LParen)
                || next.is_word("BY")
                || next.is_word("REPLACE")
                || starts_query(next)
        })
    }

    /// `BY NAME` and REPLACE in either order, then the query.
    fn applied(
        &mut self,
        target: Name,
        once: bool,
        inline: Option<InlineTarget<'_>>,
    ) -> Result<FlowBody, Fault> {
        let mut by_name = false;
        let mut replace = None;
        loop {
            if self.sees(&["BY", "NAME"]) {
                refuse_second(by_name, "BY NAME", self.here())?;
                self.at += 2;
                by_name = true;
            } else if self.sees(&["REPLACE"]) {
                let place = self.here();
                refuse_second(replace.is_some(), "REPLACE", place.clone())?;
                check_replace_allowed(once, inline, place)?;
                self.at += 1;
                replace = Some(self.replace()?);
            } else {
                break;
            }
        }
        self.refuse_target_columns()?;
        if !by_name {
            return Err(self.by_name_missing());
        }
        let query = self.query()?;
        let kind = match replace {
            Some(Replace::Where(predicate)) => FlowKind::ReplaceWhere { predicate, query },
            Some(Replace::Using { keys, sequence_by }) => FlowKind::ReplaceUsing {
                keys,
                sequence_by,
                query,
            },
            None => FlowKind::Append { once, query },
        };
        Ok(FlowBody { target, kind })
    }

    fn by_name_missing(&self) -> Fault {
        let query_follows = self
            .peek()
            .is_some_and(|next| starts_query(next) || next.is(&Token::LParen));
        if !query_follows {
            return self.unexpected("BY NAME and a query", &["BY", "SELECT", "WITH", "REPLACE"]);
        }
        Fault::new(
            "BY_NAME_REQUIRED",
            format!(
                "BY NAME is missing before {}: columns are matched by name only",
                self.found()
            ),
        )
        .at(self.here())
        .hint("BY NAME is missing here".to_string())
        .help("write BY NAME before the query")
    }

    /// `INSERT INTO t (a, b)`: the list would match columns by place.
    fn refuse_target_columns(&self) -> Result<(), Fault> {
        let lists = self.sees_token(&Token::LParen)
            && self
                .peek_ahead(1)
                .is_some_and(|inner| matches!(inner.token, Token::Word(_)) && !starts_query(inner));
        if !lists {
            return Ok(());
        }
        Err(self
            .not_supported("a column list behind the target", 1)
            .help("columns are matched by name: give them their names in the query"))
    }

    /// What follows the word REPLACE.
    fn replace(&mut self) -> Result<Replace, Fault> {
        if self.take(&["WHERE"]) {
            return Ok(Replace::Where(self.expression("a predicate")?));
        }
        if self.take(&["USING"]) {
            let start = self.at;
            let keys = self.column_list()?;
            if keys.is_empty() {
                return Err(keys_required("REPLACE USING", self.place_since(start)));
            }
            if !self.sees(&["SEQUENCE"]) {
                return Err(self.sequence_by_missing("REPLACE USING"));
            }
            self.expect(&["SEQUENCE", "BY"])?;
            let sequence_by = self.expression("the sequence")?;
            return Ok(Replace::Using { keys, sequence_by });
        }
        if self.sees(&["ON"]) {
            return Err(self
                .not_supported("REPLACE ON", 1)
                .help("write REPLACE WHERE predicate or REPLACE USING (keys) SEQUENCE BY column"));
        }
        Err(self.unexpected("WHERE or USING", &["WHERE", "USING"]))
    }

    pub(crate) fn sequence_by_missing(&self, clause: &str) -> Fault {
        Fault::new(
            "SEQUENCE_BY_REQUIRED",
            format!("{clause} needs SEQUENCE BY, found {}", self.found()),
        )
        .at(self.here())
        .help("name the column that tells which of several rows of a key is the newest")
    }
}

pub(crate) fn keys_required(clause: &str, place: Place) -> Fault {
    Fault::new("KEYS_REQUIRED", format!("{clause} names no column"))
        .at(place)
        .help("name the columns that identify a row")
}

fn check_replace_allowed(
    once: bool,
    inline: Option<InlineTarget<'_>>,
    place: Place,
) -> Result<(), Fault> {
    if once {
        return Err(Fault::new(
            "CLAUSES_EXCLUDE_EACH_OTHER",
            "ONCE and REPLACE exclude each other: a once-flow only adds rows",
        )
        .at(place));
    }
    if inline.is_some_and(|target| target.managed) {
        return Err(Fault::new(
            "CLAUSE_NOT_SUPPORTED",
            "REPLACE in CREATE TABLE is not supported: such a table takes append flows only",
        )
        .at(place)
        .help("write CREATE STREAMING TABLE"));
    }
    Ok(())
}
