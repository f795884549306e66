//! Pipeline SQL: from the text of a file to definitions.
//!
//! Headers are read here; queries, expressions and types are left to sqlparser, over the same
//! tokens. Names are not resolved and nothing is planned. One bad statement does not hide the
//! next: reading goes on behind the `;` that ends it.
//!
//! Text passes through [`expansion`] (`${name}`), [`lexer`], then [`statement`] and the modules
//! for its parts; [`rewrite`] makes Spark's forms readable for sqlparser, and [`relation`] reads
//! them out of its trees again.

mod cdc;
mod cursor;
mod embedded;
mod expansion;
mod flow;
mod lexer;
mod nearest;
mod relation;
mod rewrite;
mod statement;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sqlparser::tokenizer::{Span, Token};

pub use expansion::Expansion;
pub use relation::{Origin, STREAM_FUNCTION, Stream, files_of, stream_of};

use crate::definition::{ExprText, Parsed, QueryText};
use crate::fault::{Fault, Place};
use cursor::Cursor;
use lexer::{Lexeme, lex};

/// Reads the text of a pipeline file. `name` is shown in faults.
///
/// Statements that are well formed are returned even if others are not; every other one gives a
/// fault. A text without statements gives nothing at all.
pub fn parse_source(name: &str, text: &str, configuration: &BTreeMap<String, String>) -> Parsed {
    let (source, faults) = Expansion::new(name, text, configuration);
    let lexed = lex(&source);
    let mut parsed = Parsed {
        faults,
        ..Parsed::default()
    };
    let mut statements = lexed
        .lexemes
        .split(|lexeme| lexeme.is(&Token::SemiColon))
        .peekable();
    while let Some(lexemes) = statements.next() {
        let cut_short = statements.peek().is_none() && lexed.fault.is_some();
        let (Some(first), Some(last)) = (lexemes.first(), lexemes.last()) else {
            continue;
        };
        // What follows from a missing value, or from an end that could not be read, is no news.
        if cut_short || source.has_missing_value(first.start, last.end) {
            continue;
        }
        let mut cursor = Cursor::new(&source, lexemes);
        match cursor.statement() {
            Ok(statement) => parsed.statements.push(statement),
            Err(fault) => parsed.faults.push(fault),
        }
        parsed.warnings.append(&mut cursor.warnings);
    }
    parsed.faults.extend(lexed.fault);
    parsed
        .faults
        .sort_by_key(|fault| fault.place.as_ref().map(|place| (place.line, place.column)));
    parsed
}

/// Reads a predicate alone, such as that of `--replace-where FLOW=PREDICATE`. `name` is shown as
/// the source in the fault.
pub fn parse_predicate(
    name: &str,
    text: &str,
    configuration: &BTreeMap<String, String>,
) -> Result<ExprText, Fault> {
    let (source, mut faults) = Expansion::new(name, text, configuration);
    let lexed = lex(&source);
    if let Some(fault) = faults.pop().or(lexed.fault) {
        return Err(fault);
    }
    let mut cursor = Cursor::new(&source, &lexed.lexemes);
    let predicate = cursor.expression_before(lexed.lexemes.len(), "a predicate")?;
    match cursor.peek().map(Lexeme::bare_word) {
        None => Ok(predicate),
        Some(_) => Err(cursor.unexpected("the end of the predicate", &["AND", "OR"])),
    }
}

impl QueryText {
    /// The place in the file of a span of this query's syntax tree; `None` if the part has none.
    pub fn place_of(&self, span: Span) -> Option<Place> {
        self.origin.place_of(span)
    }
}

impl ExprText {
    /// The place in the file of a span of this expression's syntax tree; `None` if the part has
    /// none.
    pub fn place_of(&self, span: Span) -> Option<Place> {
        self.origin.place_of(span)
    }
}
