//! Which statement it is, by its first words; SET and USE are read here.

use sqlparser::tokenizer::Token;

use crate::definition::{FlowDefinition, Statement};
use crate::fault::Fault;
use crate::sql::cursor::Cursor;
use crate::sql::table::CreatedTable;

/// Statements that pipelines are made of, for hints.
const STATEMENT_WORDS: [&str; 3] = ["CREATE", "SET", "USE"];

/// Words between CREATE and what is created, for hints.
const CREATE_WORDS: [&str; 12] = [
    "OR",
    "REFRESH",
    "REPLACE",
    "STREAMING",
    "LIVE",
    "MATERIALIZED",
    "TEMPORARY",
    "PRIVATE",
    "TABLE",
    "VIEW",
    "FLOW",
    "TEMP",
];

/// First words of statements that are SQL but have no place in a pipeline file.
const REFUSED_STATEMENTS: [&str; 39] = [
    "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLONE", "COMMENT", "COMMIT", "CONVERT", "COPY",
    "DECLARE", "DELETE", "DESC", "DESCRIBE", "DROP", "EXECUTE", "EXPLAIN", "FROM", "FSCK", "GRANT",
    "INSERT", "LIST", "LOAD", "MERGE", "MSCK", "OPTIMIZE", "REORG", "REPAIR", "RESET", "RESTORE",
    "REVOKE", "ROLLBACK", "SELECT", "SHOW", "SYNC", "TRUNCATE", "UNDROP", "UPDATE", "VACUUM",
];

/// Things that CREATE makes elsewhere.
const REFUSED_OBJECTS: [&str; 20] = [
    "CATALOG",
    "CONNECTION",
    "DATABASE",
    "EXTERNAL",
    "FUNCTION",
    "GLOBAL",
    "GROUP",
    "INDEX",
    "LOCATION",
    "POLICY",
    "PROCEDURE",
    "PROVIDER",
    "RECIPIENT",
    "ROLE",
    "SCHEMA",
    "SERVER",
    "SHARE",
    "SINK",
    "USER",
    "VOLUME",
];

/// The words between CREATE and what is created.
#[derive(Default)]
struct Modifiers {
    streaming: bool,
    live: bool,
    materialized: bool,
    temporary: bool,
    private: bool,
}

impl Cursor<'_> {
    /// The whole statement.
    pub(crate) fn statement(&mut self) -> Result<Statement, Fault> {
        let statement = if self.take(&["CREATE"]) {
            self.create()?
        } else if self.take(&["SET"]) {
            self.set()?
        } else if self.take(&["USE"]) {
            self.use_default()?
        } else if self.sees(&["APPLY", "CHANGES"]) || self.sees(&["AUTO", "CDC"]) {
            self.flow_without_create()?
        } else {
            return Err(self.refused_statement());
        };
        self.expect_end(&[])?;
        Ok(statement)
    }

    fn refused_statement(&self) -> Fault {
        let refuse =
            |message: String| Fault::new("STATEMENT_NOT_SUPPORTED", message).at(self.here());
        if self.sees(&["REFRESH"]) {
            return refuse("REFRESH is not a statement of a pipeline file".to_string()).help(
                "start it from the command line: `windrow sql`, or `windrow run --refresh TABLE`",
            );
        }
        if ["SELECT", "FROM", "WITH", "VALUES", "TABLE"]
            .iter()
            .any(|word| self.sees(&[word]))
        {
            return refuse("a query alone is not a statement of a pipeline file".to_string())
                .help("store it with CREATE MATERIALIZED VIEW name AS, or name it with CREATE TEMPORARY VIEW");
        }
        if let Some(word) = REFUSED_STATEMENTS.iter().find(|word| self.sees(&[word])) {
            return refuse(format!("{word} is not a statement of a pipeline file"))
                .help("a pipeline file holds CREATE, SET and USE statements");
        }
        self.unexpected("CREATE, SET or USE", &STATEMENT_WORDS)
    }

    fn create(&mut self) -> Result<Statement, Fault> {
        let start = self.at;
        if self.take(&["OR", "REPLACE"]) {
            self.warnings.push(
                Fault::new("OR_REPLACE_DEPRECATED", "OR REPLACE is read as OR REFRESH")
                    .at(self.place_since(start))
                    .help("write CREATE OR REFRESH"),
            );
        } else if self.take(&["OR"]) {
            self.expect(&["REFRESH"])?;
        }
        let modifiers = self.modifiers()?;
        if self.take(&["TABLE"]) {
            return self.table(created_table(&modifiers));
        }
        if self.take(&["VIEW"]) {
            return match modifiers.materialized {
                true => self.table(CreatedTable::MaterializedView),
                false => self.view(),
            };
        }
        if self.take(&["FLOW"]) {
            return self.create_flow();
        }
        if let Some(word) = REFUSED_OBJECTS.iter().find(|word| self.sees(&[word])) {
            return Err(Fault::new(
                "STATEMENT_NOT_SUPPORTED",
                format!("CREATE {word} is not a statement of a pipeline file"),
            )
            .at(self.here()));
        }
        let expected = if modifiers.streaming {
            "TABLE"
        } else if modifiers.materialized {
            "VIEW"
        } else {
            "STREAMING TABLE, MATERIALIZED VIEW, TEMPORARY VIEW or FLOW"
        };
        Err(self.unexpected(expected, &CREATE_WORDS))
    }

    fn modifiers(&mut self) -> Result<Modifiers, Fault> {
        let start = self.at;
        let mut modifiers = Modifiers::default();
        loop {
            let here = self.at;
            let (word, present) = if self.take(&["STREAMING"]) {
                ("STREAMING", &mut modifiers.streaming)
            } else if self.take(&["LIVE"]) {
                self.warnings.push(
                    Fault::new(
                        "LIVE_DEPRECATED",
                        "the word LIVE is deprecated and has no effect",
                    )
                    .at(self.place_since(here))
                    .help("leave it out"),
                );
                ("LIVE", &mut modifiers.live)
            } else if self.take(&["MATERIALIZED"]) {
                ("MATERIALIZED", &mut modifiers.materialized)
            } else if self.take(&["TEMPORARY"]) || self.take(&["TEMP"]) {
                ("TEMPORARY", &mut modifiers.temporary)
            } else if self.take(&["PRIVATE"]) {
                ("PRIVATE", &mut modifiers.private)
            } else {
                break;
            };
            crate::sql::table::refuse_second(*present, word, self.place_since(here))?;
            *present = true;
        }
        self.check_modifiers(&modifiers, start)?;
        Ok(modifiers)
    }

    fn check_modifiers(&self, modifiers: &Modifiers, start: usize) -> Result<(), Fault> {
        let refuse = |what: &str| {
            Fault::new("CLAUSE_NOT_SUPPORTED", format!("{what} is not supported"))
                .at(self.place_since(start))
        };
        let hidden = modifiers.temporary || modifiers.private;
        let word = if modifiers.private {
            "PRIVATE"
        } else {
            "TEMPORARY"
        };
        if self.sees(&["TABLE"]) {
            if modifiers.materialized {
                return Err(refuse("MATERIALIZED TABLE").help("write CREATE MATERIALIZED VIEW"));
            }
            if hidden {
                return Err(refuse(&format!("{word} before TABLE"))
                    .help("write CREATE TEMPORARY VIEW for what need not be stored"));
            }
        } else if self.sees(&["VIEW"]) {
            if modifiers.streaming {
                return Err(refuse("STREAMING before VIEW")
                    .help("a temporary view may read streams: write CREATE TEMPORARY VIEW"));
            }
            if modifiers.materialized && hidden {
                return Err(refuse(&format!("{word} before MATERIALIZED VIEW"))
                    .help("write CREATE TEMPORARY VIEW for what need not be stored"));
            }
        } else if self.sees(&["FLOW"]) && self.at > start {
            return Err(refuse(&format!(
                "{} before FLOW",
                self.text(start, self.at)
            )));
        }
        Ok(())
    }

    /// `APPLY CHANGES INTO t ...` alone is a flow with the name of its target.
    fn flow_without_create(&mut self) -> Result<Statement, Fault> {
        let start = self.at;
        let words = self.text(start, start + 2).to_uppercase();
        let place = self.place_of_next(2);
        let body = self.flow_body(None)?;
        self.warnings.push(
            Fault::new(
                "FLOW_WITHOUT_CREATE_DEPRECATED",
                format!("{words} is read as the flow `{}`", body.target.last()),
            )
            .at(place)
            .help(format!("write CREATE FLOW name AS {words} INTO ...")),
        );
        Ok(Statement::Flow(Box::new(FlowDefinition {
            name: body.target.clone(),
            target: body.target,
            comment: None,
            kind: body.kind,
        })))
    }

    /// `SET key = value`; the value is a string or what is written up to the end.
    fn set(&mut self) -> Result<Statement, Fault> {
        let start = self.at;
        for form in [["TIME", "ZONE"], ["VAR", ""], ["VARIABLE", ""]] {
            let words: Vec<&str> = form
                .iter()
                .copied()
                .filter(|word| !word.is_empty())
                .collect();
            let assigns = self
                .peek_ahead(words.len())
                .is_some_and(|next| next.is(&Token::Eq));
            if self.sees(&words) && !assigns {
                let fault = self.not_supported(&format!("SET {}", words.join(" ")), words.len());
                return Err(match words.first() {
                    Some(&"TIME") => fault.help("write SET spark.sql.session.timeZone = 'zone'"),
                    _ => fault,
                });
            }
        }
        let key = self.setting_key()?;
        let place = self.place_since(start);
        if !self.take_token(&Token::Eq) {
            return Err(self.unexpected("`=` and a value", &[]));
        }
        let value_start = self.at;
        if self.at_end() {
            return Err(self.unexpected(&format!("the value of `{key}`"), &[]));
        }
        let value = match self.peek().map(|lexeme| &lexeme.token) {
            Some(Token::SingleQuotedString(value)) if value_start + 1 == self.lexemes.len() => {
                value.clone()
            }
            _ => self.text(value_start, self.lexemes.len()).to_string(),
        };
        self.at = self.lexemes.len();
        Ok(Statement::Set { key, value, place })
    }

    /// The text up to `=`, without the quotes of quoted parts.
    fn setting_key(&mut self) -> Result<String, Fault> {
        let start = self.at;
        let mut key = String::new();
        while let Some(lexeme) = self.peek().filter(|lexeme| !lexeme.is(&Token::Eq)) {
            let broken = self
                .at
                .checked_sub(1)
                .filter(|before| *before >= start)
                .and_then(|before| self.lexemes.get(before))
                .is_some_and(|before| !before.touches(lexeme));
            match &lexeme.token {
                _ if broken => return Err(self.unexpected("`=` and a value", &[])),
                Token::Word(word) => key.push_str(&word.value),
                Token::Period | Token::Minus | Token::Colon | Token::Number(..) => {
                    key.push_str(self.text(self.at, self.at + 1));
                }
                _ => return Err(self.unexpected("the name of a setting", &[])),
            }
            self.at += 1;
        }
        if key.is_empty() {
            return Err(self.unexpected("the name of a setting", &[]));
        }
        Ok(key)
    }

    fn use_default(&mut self) -> Result<Statement, Fault> {
        if self.take(&["CATALOG"]) {
            return Ok(Statement::UseCatalog(self.simple_name("the catalog")?));
        }
        if self.take(&["SCHEMA"]) {
            return Ok(Statement::UseSchema(self.simple_name("the schema")?));
        }
        if self.sees(&["DATABASE"]) {
            return Err(self
                .not_supported("USE DATABASE", 1)
                .help("write USE SCHEMA"));
        }
        let fault = self.unexpected("CATALOG or SCHEMA", &["CATALOG", "SCHEMA"]);
        Err(fault.help("write USE CATALOG name or USE SCHEMA name"))
    }
}

fn created_table(modifiers: &Modifiers) -> CreatedTable {
    if modifiers.streaming {
        CreatedTable::Streaming
    } else if modifiers.live {
        // CREATE LIVE TABLE was the first name of a materialized view.
        CreatedTable::MaterializedView
    } else {
        CreatedTable::Managed
    }
}
