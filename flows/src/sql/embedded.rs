//! Expressions, queries, types and relations inside a statement: parsed by sqlparser, over the
//! rewritten lexemes, with its errors turned into faults that point into the file.

use std::sync::Arc;

use sqlparser::ast::{DataType, Query, SetExpr, TableFactor};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token};

use crate::definition::{ExprText, QueryText};
use crate::dialect::SparkDialect;
use crate::fault::Fault;
use crate::sql::cursor::{Cursor, LETTER_HELP, is_foreign_letter, quote};
use crate::sql::lexer::Lexeme;
use crate::sql::nearest::nearest;
use crate::sql::rewrite::{rewrite, starts_query};

/// How deep parentheses, subqueries and operators may nest.
const DEEPEST_NESTING: usize = 100;

/// How many subqueries are looked at for the place of a fault.
const MOST_SUBQUERIES_LOOKED_AT: usize = 200;

/// Words of queries, for hints about slips.
const QUERY_WORDS: [&str; 44] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "QUALIFY",
    "WINDOW",
    "VALUES",
    "WITH",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "DISTINCT",
    "JOIN",
    "LEFT",
    "RIGHT",
    "FULL",
    "INNER",
    "OUTER",
    "CROSS",
    "LATERAL",
    "USING",
    "BETWEEN",
    "LIKE",
    "RLIKE",
    "EXISTS",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "CAST",
    "INTERVAL",
    "PARTITION",
    "OVER",
    "STREAM",
    "NULL",
    "AND",
    "NOT",
    "DATE",
    "TIMESTAMP",
    "TABLE",
    "END",
];

impl<'a> Cursor<'a> {
    /// An expression from here on, up to where it ends, but not behind `end`.
    pub(crate) fn expression_before(&mut self, end: usize, what: &str) -> Result<ExprText, Fault> {
        if self.at >= end || self.sees(&["SELECT"]) || self.sees(&["WITH"]) {
            return Err(self.unexpected(what, &[]));
        }
        let start = self.at;
        let ast = self.embedded(start, end, |parser| parser.parse_expr())?;
        let normalised = self.normalised(start, end, |parser| parser.parse_expr())?;
        let text = self.text(start, self.at).to_string();
        let place = self.place_since(start);
        Ok(ExprText {
            ast,
            normalised,
            text,
            place,
            origin: Arc::clone(self.source),
        })
    }

    /// An expression that ends at the latest before a `BY NAME` outside parentheses.
    pub(crate) fn expression(&mut self, what: &str) -> Result<ExprText, Fault> {
        let end = self.find_outside_parentheses(self.at, &[&["BY", "NAME"]]);
        self.expression_before(end.unwrap_or(self.lexemes.len()), what)
    }

    /// `(expression)`; the text is that between the parentheses.
    pub(crate) fn expression_in_parentheses(&mut self, what: &str) -> Result<ExprText, Fault> {
        let open = self.at;
        self.expect_token(&Token::LParen)?;
        let close = self.matching_parenthesis(open)?;
        let expression = self.expression_before(close, what)?;
        if self.at < close {
            return Err(self.unexpected("`)`", &[]));
        }
        self.at = close + 1;
        Ok(expression)
    }

    /// A query up to the end of the statement.
    pub(crate) fn query(&mut self) -> Result<QueryText, Fault> {
        self.query_before(self.lexemes.len())
    }

    /// `(query)`; the text is that between the parentheses.
    pub(crate) fn query_in_parentheses(&mut self) -> Result<QueryText, Fault> {
        let open = self.at;
        self.expect_token(&Token::LParen)?;
        let close = self.matching_parenthesis(open)?;
        let query = self.query_before(close)?;
        self.at = close + 1;
        Ok(query)
    }

    fn query_before(&mut self, end: usize) -> Result<QueryText, Fault> {
        let start = self.at;
        let begins = self
            .peek()
            .is_some_and(|l| starts_query(l) || l.is(&Token::LParen));
        if !begins || start >= end {
            return Err(self.unexpected("a query", &["SELECT", "WITH", "VALUES", "FROM"]));
        }
        let ast = self.embedded(start, end, |parser| parser.parse_query())?;
        let normalised = self.normalised(start, end, |parser| parser.parse_query())?;
        if self.at < end {
            let found = self.lexemes.get(self.at);
            return Err(self.unexpected_in_query(found, "the end of the query"));
        }
        let place = self.place_since(start);
        if changes_data(&ast) {
            return Err(Fault::new(
                "STATEMENT_NOT_SUPPORTED",
                "a query in a pipeline only reads: INSERT, UPDATE, DELETE and MERGE are not supported",
            )
            .at(place));
        }
        let text = self.text(start, end).to_string();
        Ok(QueryText {
            ast,
            normalised,
            text,
            place,
            origin: Arc::clone(self.source),
        })
    }

    pub(crate) fn data_type_before(&mut self, end: usize) -> Result<DataType, Fault> {
        self.embedded(self.at, end, |parser| parser.parse_data_type())
    }

    /// `FROM relation` from here to `end`, which the relation must reach.
    pub(crate) fn relation_behind_from(&mut self, end: usize) -> Result<TableFactor, Fault> {
        let start = self.at;
        if !self.sees(&["FROM"]) {
            return Err(self.unexpected("FROM", &["FROM"]));
        }
        let factor = self.embedded(start, end, |parser| {
            parser.next_token();
            parser.parse_table_factor()
        })?;
        if self.at < end {
            let found = self.lexemes.get(self.at);
            return Err(self.unexpected_in_query(found, "KEYS"));
        }
        Ok(factor)
    }

    /// Runs sqlparser over the lexemes `start..end` and moves behind what it took.
    fn embedded<T>(
        &mut self,
        start: usize,
        end: usize,
        parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
    ) -> Result<T, Fault> {
        let (parsed, at) = match self.run_parser(start, end, parse) {
            Ok(parsed) => parsed,
            Err(fault) => return Err(self.fault_in_subquery(start, end).unwrap_or(fault)),
        };
        self.at = at;
        Ok(parsed)
    }

    /// The tree of what was parsed before, with all names in lower case. Keywords are words too,
    /// but the parser knows them by more than their letters.
    fn normalised<T>(
        &mut self,
        start: usize,
        end: usize,
        parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
    ) -> Result<T, Fault> {
        let lexemes = self.lexemes.get(start..end).unwrap_or_default();
        let mut tokens = rewrite(self.source, lexemes)?.tokens;
        for token in &mut tokens {
            if let Token::Word(word) = &mut token.token {
                word.value = word.value.to_lowercase();
            }
        }
        let mut parser = Parser::new(&SparkDialect)
            .with_recursion_limit(DEEPEST_NESTING)
            .with_tokens_with_locations(tokens);
        parse(&mut parser).map_err(|error| self.parser_fault(&error, start, end))
    }

    /// What was parsed, and the index behind it.
    fn run_parser<T>(
        &mut self,
        start: usize,
        end: usize,
        parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
    ) -> Result<(T, usize), Fault> {
        let lexemes = self.lexemes.get(start..end).unwrap_or_default();
        let rewritten = rewrite(self.source, lexemes)?;
        let mut parser = Parser::new(&SparkDialect)
            .with_recursion_limit(DEEPEST_NESTING)
            .with_tokens_with_locations(rewritten.tokens);
        let parsed = parse(&mut parser).map_err(|error| self.parser_fault(&error, start, end))?;
        let next = parser.peek_token();
        let at = match next.token {
            Token::EOF => end,
            _ => start + lexemes.partition_point(|lexeme| lexeme.span.start < next.span.start),
        };
        self.warnings.extend(rewritten.warnings);
        Ok((parsed, at))
    }

    /// The first fault of a subquery that is in itself not well formed. sqlparser goes back to the
    /// parenthesis before a subquery that it could not read, and complains there.
    fn fault_in_subquery(&self, start: usize, end: usize) -> Option<Fault> {
        let mut innermost: Option<(usize, Fault)> = None;
        let opens = (start..end).rev().filter(|open| {
            let inner = self.lexemes.get(open + 1);
            let begins = inner.is_some_and(|l| l.is_word("SELECT") || l.is_word("WITH"));
            begins
                && self
                    .lexemes
                    .get(*open)
                    .is_some_and(|l| l.is(&Token::LParen))
        });
        for open in opens.take(MOST_SUBQUERIES_LOOKED_AT) {
            let Some(close) = self
                .matching_parenthesis(open)
                .ok()
                .filter(|close| *close < end)
            else {
                continue;
            };
            // A subquery around one with a fault tells nothing new.
            if innermost.as_ref().is_some_and(|(inner, _)| *inner < close) {
                continue;
            }
            let mut subquery = Cursor::new(self.source, self.lexemes);
            let fault = match subquery.run_parser(open + 1, close, |parser| parser.parse_query()) {
                Err(fault) => Some(fault),
                Ok((_, at)) if at < close => {
                    subquery.at = at;
                    Some(subquery.unexpected_in_query(self.lexemes.get(at), "the end of the query"))
                }
                Ok(_) => None,
            };
            if let Some(fault) = fault {
                innermost = Some((open, fault));
            }
        }
        innermost.map(|(_, fault)| fault)
    }

    fn parser_fault(&self, error: &ParserError, start: usize, end: usize) -> Fault {
        let message = match error {
            ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
            ParserError::RecursionLimitExceeded => {
                let place = self
                    .lexemes
                    .get(start)
                    .map(|lexeme| self.place(lexeme, lexeme));
                return Fault::new("NESTING_TOO_DEEP", "this nests too deeply to be read")
                    .at(place)
                    .help("give inner parts a name: WITH part AS (...)");
            }
        };
        let (message, location) = split_location(message);
        let lexemes = self.lexemes.get(start..end).unwrap_or_default();
        let index = match location {
            Some(location) => {
                let behind = lexemes.partition_point(|lexeme| lexeme.span.start <= location);
                Some(start + behind.saturating_sub(1))
            }
            // sqlparser knows no place for the end of its tokens.
            None => Some(end).filter(|_| message.contains("found: EOF")),
        };
        let found = index.and_then(|index| self.lexemes.get(index));
        if let Some((expected, _)) = message.split_once(", found: ") {
            let expected = readable(expected);
            let mut at_fault = Cursor::new(self.source, self.lexemes);
            at_fault.at = index.unwrap_or(end);
            return at_fault.unexpected_in_query(found, &expected);
        }
        let place = match found {
            Some(lexeme) => Some(self.place(lexeme, lexeme)),
            None => self
                .lexemes
                .get(start)
                .map(|first| self.place(first, first)),
        };
        let mut message = message
            .trim_start_matches("sql parser error: ")
            .trim()
            .to_string();
        if let Some(first) = message.get(..1).map(str::to_lowercase) {
            message.replace_range(..1, &first);
        }
        let named = found.map(|lexeme| quote(self.source, lexeme));
        if let Some(named) = named.filter(|named| !message.contains(named.trim_matches('`'))) {
            message = format!("{message}, near {named}");
        }
        Fault::new("SYNTAX_ERROR", message).at(place)
    }

    /// A fault about a lexeme in a query. A slip may be in the words before it: in
    /// `FROM t WHRE x = 1` it is `x` that does not fit.
    fn unexpected_in_query(&self, found: Option<&Lexeme>, expected: &str) -> Fault {
        let mut fault = self.unexpected(expected, &[]);
        if found.is_some_and(|lexeme| lexeme.is_word("CREATE"))
            || self
                .at
                .checked_sub(1)
                .and_then(|at| self.lexemes.get(at))
                .is_some_and(|l| l.is_word("CREATE"))
        {
            return fault.help("a statement ends with `;`: is one missing before CREATE?");
        }
        let first = self.at.saturating_sub(2);
        let window = self
            .lexemes
            .get(first..(self.at + 1).min(self.lexemes.len()));
        for lexeme in window.unwrap_or_default().iter().rev() {
            let Token::Word(word) = &lexeme.token else {
                continue;
            };
            // A word that sqlparser knows is hardly a slip for another one.
            if word.quote_style.is_some() || word.keyword != Keyword::NoKeyword {
                continue;
            }
            let word = word.value.as_str();
            if let Some(near) = nearest(word, QUERY_WORDS) {
                let here = found.is_some_and(|found| found.start == lexeme.start);
                fault = fault.hint(if here {
                    format!("did you mean `{near}`?")
                } else {
                    format!("did you mean `{near}` where `{word}` stands?")
                });
                break;
            }
        }
        let letter = self.peek().is_some_and(is_foreign_letter);
        if letter {
            fault.help(LETTER_HELP)
        } else {
            fault
        }
    }
}

/// Takes sqlparser's ` at Line: 1, Column: 2` off a message.
fn split_location(message: &str) -> (&str, Option<Location>) {
    let Some((text, place)) = message.rsplit_once(" at Line: ") else {
        return (message, None);
    };
    let location = place.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location::new(
            line.trim().parse().ok()?,
            column.trim().parse().ok()?,
        ))
    });
    match location {
        Some(_) => (text, location),
        None => (message, None),
    }
}

/// What sqlparser expected, in the words of the other messages: symbols stand in backticks.
fn readable(expected: &str) -> String {
    let words = expected
        .trim_start_matches("Expected")
        .trim_start_matches([':', ' ']);
    let words = words.trim_start_matches("Expected ");
    if words.chars().any(char::is_alphanumeric) {
        words.to_string()
    } else {
        format!("`{words}`")
    }
}

fn changes_data(query: &Query) -> bool {
    matches!(
        *query.body,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
    )
}
