//! `AUTO CDC`, `APPLY CHANGES` and `AUTO CDC FROM SNAPSHOT`: read in full, so that a slip is found,
//! and kept by kind only.

use sqlparser::tokenizer::Token;

use crate::definition::{FlowKind, Name};
use crate::fault::{Fault, Place};
use crate::sql::cursor::Cursor;
use crate::sql::flow::{FlowBody, InlineTarget, keys_required};
use crate::sql::table::refuse_second;

/// Words that begin the clauses behind KEYS.
const CLAUSE_WORDS: [&str; 8] = [
    "KEYS", "IGNORE", "APPLY", "SEQUENCE", "COLUMNS", "STORED", "TRACK", "SYSTEM",
];

/// The clauses behind the relation: where each stands, if it does.
#[derive(Default)]
struct Clauses {
    keys: Option<Place>,
    ignore_null_updates: Option<Place>,
    delete_when: Option<Place>,
    truncate_when: Option<Place>,
    sequence_by: Option<Place>,
    columns: Option<Place>,
    stored_as: Option<Place>,
    scd_type_2: bool,
    track_history: Option<Place>,
}

impl Cursor<'_> {
    /// From AUTO or APPLY on, to the end of the statement.
    pub(crate) fn auto_cdc(&mut self, inline: Option<InlineTarget<'_>>) -> Result<FlowBody, Fault> {
        self.at += 2;
        let once = self.take(&["ONCE"]);
        let mut snapshot = self.take(&["FROM", "SNAPSHOT"]);
        let target = match inline {
            Some(target) => {
                if self.sees(&["INTO"]) {
                    return Err(self.unexpected("FROM", &[]).help(
                        "a flow inside CREATE STREAMING TABLE fills that table: leave INTO out",
                    ));
                }
                target.name.clone()
            }
            None => {
                self.expect(&["INTO"])?;
                if self.sees(&["ONCE"]) && !self.peek_ahead(1).is_some_and(|l| l.is_word("FROM")) {
                    refuse_second(once, "ONCE", self.here())?;
                    self.at += 1;
                }
                self.name("the target table")?
            }
        };
        snapshot = self.cdc_relation(snapshot)?;
        let clauses = self.cdc_clauses()?;
        self.check_cdc(&clauses, snapshot)?;
        let kind = if snapshot {
            FlowKind::AutoCdcFromSnapshot
        } else {
            FlowKind::AutoCdc
        };
        Ok(FlowBody { target, kind })
    }

    /// `FROM relation`, `FROM SNAPSHOT (query)` and `WITH VERSION (query)`. Returns whether it is a
    /// snapshot.
    fn cdc_relation(&mut self, mut snapshot: bool) -> Result<bool, Fault> {
        let newest_form = self.sees(&["FROM", "SNAPSHOT"])
            && self
                .peek_ahead(2)
                .is_some_and(|next| next.is(&Token::LParen));
        if newest_form && !snapshot {
            snapshot = true;
            self.at += 2;
            self.query_in_parentheses()?;
        } else {
            let start = self.at + 2;
            let end = self.find_outside_parentheses(
                start,
                &[
                    &["KEYS"],
                    &["WITH", "VERSION"],
                    &["SEQUENCE", "BY"],
                    &["STORED", "AS"],
                ],
            );
            let end = end.unwrap_or(self.lexemes.len());
            self.relation_behind_from(end)?;
        }
        if self.sees(&["WITH", "VERSION"]) {
            if !snapshot {
                return Err(self.not_supported("WITH VERSION without FROM SNAPSHOT", 2));
            }
            self.at += 2;
            self.query_in_parentheses()?;
        }
        Ok(snapshot)
    }

    fn cdc_clauses(&mut self) -> Result<Clauses, Fault> {
        let mut clauses = Clauses::default();
        while !self.at_end() {
            let place = self.here();
            let slot = if self.sees(&["KEYS"]) {
                self.at += 1;
                let start = self.at;
                if self.column_list()?.is_empty() {
                    return Err(keys_required("KEYS", self.place_since(start)));
                }
                ("KEYS", &mut clauses.keys)
            } else if self.take(&["IGNORE", "NULL", "UPDATES"]) {
                if self.take(&["ON"]) {
                    self.columns_or_except()?;
                }
                ("IGNORE NULL UPDATES", &mut clauses.ignore_null_updates)
            } else if self.take(&["APPLY", "AS", "DELETE", "WHEN"]) {
                self.expression("a condition")?;
                ("APPLY AS DELETE WHEN", &mut clauses.delete_when)
            } else if self.take(&["APPLY", "AS", "TRUNCATE", "WHEN"]) {
                self.expression("a condition")?;
                ("APPLY AS TRUNCATE WHEN", &mut clauses.truncate_when)
            } else if self.take(&["SEQUENCE", "BY"]) {
                self.expression("the sequence")?;
                ("SEQUENCE BY", &mut clauses.sequence_by)
            } else if self.sees(&["COLUMNS", "TO", "UPDATE"]) {
                return Err(self.not_supported("COLUMNS TO UPDATE", 3));
            } else if self.take(&["COLUMNS"]) {
                self.columns_or_except()?;
                ("COLUMNS", &mut clauses.columns)
            } else if self.take(&["STORED", "AS"]) {
                clauses.scd_type_2 = self.scd_type()?;
                ("STORED AS", &mut clauses.stored_as)
            } else if self.take(&["TRACK", "HISTORY", "ON"]) {
                self.columns_or_except()?;
                ("TRACK HISTORY ON", &mut clauses.track_history)
            } else if self.sees(&["SYSTEM", "SEQUENCE"]) {
                return Err(self.not_supported("SYSTEM SEQUENCE BY", 2));
            } else {
                return Err(self.unexpected("a clause of AUTO CDC or `;`", &CLAUSE_WORDS));
            };
            let (name, present) = slot;
            refuse_second(present.is_some(), name, place.clone())?;
            *present = Some(place);
        }
        Ok(clauses)
    }

    /// `SCD TYPE 1` or `SCD TYPE 2`; true for 2.
    fn scd_type(&mut self) -> Result<bool, Fault> {
        if self.sees(&["BITEMPORAL"]) {
            return Err(self.not_supported("STORED AS BITEMPORAL", 1));
        }
        self.expect(&["SCD", "TYPE"])?;
        let digits = match self.peek().map(|lexeme| &lexeme.token) {
            Some(Token::Number(digits, _)) => digits.as_str(),
            _ => "",
        };
        match digits {
            "1" | "2" => {
                self.at += 1;
                Ok(digits == "2")
            }
            _ => Err(self.unexpected("1 or 2", &[])),
        }
    }

    /// `(a, b)`, `a, b`, `*` or `* EXCEPT (a, b)`.
    fn columns_or_except(&mut self) -> Result<(), Fault> {
        if self.take_token(&Token::Mul) {
            if self.take(&["EXCEPT"]) {
                self.column_list()?;
            }
            return Ok(());
        }
        if self.sees_token(&Token::LParen) {
            self.column_list()?;
            return Ok(());
        }
        let mut columns: Vec<Name> = Vec::new();
        loop {
            columns.push(self.name("a column")?);
            if !self.take_token(&Token::Comma) {
                return Ok(());
            }
        }
    }

    fn check_cdc(&self, clauses: &Clauses, snapshot: bool) -> Result<(), Fault> {
        let clause = if snapshot {
            "AUTO CDC FROM SNAPSHOT"
        } else {
            "AUTO CDC"
        };
        if clauses.keys.is_none() {
            return Err(
                Fault::new("KEYS_REQUIRED", format!("{clause} needs KEYS (columns)"))
                    .at(self.here())
                    .help("name the columns that identify a row"),
            );
        }
        if !snapshot && clauses.sequence_by.is_none() {
            return Err(self.sequence_by_missing(clause));
        }
        if snapshot {
            let live_only = [
                ("SEQUENCE BY", &clauses.sequence_by),
                ("IGNORE NULL UPDATES", &clauses.ignore_null_updates),
                ("APPLY AS DELETE WHEN", &clauses.delete_when),
                ("APPLY AS TRUNCATE WHEN", &clauses.truncate_when),
                ("COLUMNS", &clauses.columns),
            ];
            if let Some((name, Some(place))) = live_only.iter().find(|(_, place)| place.is_some()) {
                return Err(Fault::new(
                    "CLAUSE_NOT_SUPPORTED",
                    format!("{name} in AUTO CDC FROM SNAPSHOT is not supported"),
                )
                .at(place.clone()));
            }
        }
        let excluded = if clauses.scd_type_2 {
            (
                &clauses.truncate_when,
                "APPLY AS TRUNCATE WHEN needs STORED AS SCD TYPE 1",
            )
        } else {
            (
                &clauses.track_history,
                "TRACK HISTORY ON needs STORED AS SCD TYPE 2",
            )
        };
        match excluded {
            (Some(place), message) => {
                Err(Fault::new("CLAUSES_EXCLUDE_EACH_OTHER", message).at(place.clone()))
            }
            (None, _) => Ok(()),
        }
    }
}
