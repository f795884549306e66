//! Walks over the lexemes of one statement: words, names, strings and lists of its header.
//!
//! What needs sqlparser (expressions, queries, types, relations) is in [`super::embedded`].

use sqlparser::tokenizer::Token;

use crate::definition::Name;
use crate::fault::{Fault, Place};
use crate::sql::expansion::Expansion;
use crate::sql::lexer::Lexeme;
use crate::sql::nearest::nearest;
use crate::sql::rewrite::live_prefix_warning;
use std::sync::Arc;

/// The lexemes of one statement and how far they have been read.
pub(crate) struct Cursor<'a> {
    pub(crate) source: &'a Arc<Expansion>,
    pub(crate) lexemes: &'a [Lexeme],
    pub(crate) at: usize,
    pub(crate) warnings: Vec<Fault>,
}

/// Words that can't be a name without backticks; one of them where a name should stand means that
/// the name was forgotten.
const RESERVED: [&str; 14] = [
    "AS",
    "BY",
    "CONSTRAINT",
    "CREATE",
    "FROM",
    "FULL",
    "INTO",
    "ON",
    "SELECT",
    "TABLE",
    "USING",
    "VALUES",
    "WHERE",
    "WITH",
];

/// Most parts of a name: catalog, schema, table.
const MOST_NAME_PARTS: usize = 3;

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a Arc<Expansion>, lexemes: &'a [Lexeme]) -> Self {
        Self {
            source,
            lexemes,
            at: 0,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn peek(&self) -> Option<&'a Lexeme> {
        self.lexemes.get(self.at)
    }

    pub(crate) fn peek_ahead(&self, ahead: usize) -> Option<&'a Lexeme> {
        self.lexemes.get(self.at + ahead)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at >= self.lexemes.len()
    }

    /// Whether the next words are these.
    pub(crate) fn sees(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| {
            self.peek_ahead(ahead)
                .is_some_and(|lexeme| lexeme.is_word(word))
        })
    }

    /// Reads these words if they are next.
    pub(crate) fn take(&mut self, words: &[&str]) -> bool {
        let seen = self.sees(words);
        if seen {
            self.at += words.len();
        }
        seen
    }

    pub(crate) fn sees_token(&self, token: &Token) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.is(token))
    }

    pub(crate) fn take_token(&mut self, token: &Token) -> bool {
        let seen = self.sees_token(token);
        self.at += usize::from(seen);
        seen
    }

    pub(crate) fn expect(&mut self, words: &[&str]) -> Result<(), Fault> {
        for word in words {
            if !self.take(&[word]) {
                return Err(self.unexpected(word, &[word]));
            }
        }
        Ok(())
    }

    pub(crate) fn expect_token(&mut self, token: &Token) -> Result<(), Fault> {
        if self.take_token(token) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{token}`"), &[]))
    }

    /// The statement is over, or something stands that does not belong to it.
    pub(crate) fn expect_end(&self, words: &[&str]) -> Result<(), Fault> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected("the end of the statement", words))
        }
    }

    /// Place of the next lexeme, or of the end of the statement.
    pub(crate) fn here(&self) -> Place {
        match (self.peek(), self.lexemes.last()) {
            (Some(lexeme), _) => self.place(lexeme, lexeme),
            (None, Some(last)) => self.just_behind(last),
            (None, None) => self.source.place(0, 0),
        }
    }

    pub(crate) fn place(&self, first: &Lexeme, last: &Lexeme) -> Place {
        self.source.place(first.start, last.end)
    }

    fn just_behind(&self, lexeme: &Lexeme) -> Place {
        let mut place = self.source.place(lexeme.start, lexeme.end);
        place.line = place.end_line;
        place.column = place.end_column;
        place
    }

    /// Place from a lexeme to the last one read.
    pub(crate) fn place_since(&self, start: usize) -> Place {
        let last = self.at.saturating_sub(1).max(start);
        match (self.lexemes.get(start), self.lexemes.get(last)) {
            (Some(first), Some(last)) => self.place(first, last),
            _ => self.here(),
        }
    }

    /// The source text of lexemes `start..end`, as written.
    pub(crate) fn text(&self, start: usize, end: usize) -> &'a str {
        match (
            self.lexemes.get(start),
            self.lexemes.get(end.saturating_sub(1)),
        ) {
            (Some(first), Some(last)) => self
                .source
                .expanded
                .get(first.start..last.end)
                .unwrap_or_default(),
            _ => "",
        }
    }

    /// What stands next, as it is named in a message.
    pub(crate) fn found(&self) -> String {
        match self.peek() {
            Some(lexeme) => quote(self.source, lexeme),
            None => "the end of the statement".to_string(),
        }
    }

    /// A fault about what stands next. The hint is the nearest of `words`.
    pub(crate) fn unexpected(&self, expected: &str, words: &[&str]) -> Fault {
        let near = self
            .peek()
            .and_then(Lexeme::bare_word)
            .and_then(|word| nearest(word, words.iter().copied()))
            .filter(|word| !self.sees(&[word]))
            .map(|word| format!("did you mean `{word}`?"));
        let fault = Fault::new(
            "SYNTAX_ERROR",
            format!("expected {expected}, found {}", self.found()),
        )
        .at(self.here())
        .hint(near);
        self.with_letter_help(fault)
    }

    /// Letters beyond ASCII need backticks, which is easily overlooked.
    fn with_letter_help(&self, fault: Fault) -> Fault {
        let letter = self.peek().is_some_and(is_foreign_letter);
        if letter {
            fault.help(LETTER_HELP)
        } else {
            fault
        }
    }

    /// A clause or form that is known but not built here, by its name.
    pub(crate) fn not_supported(&self, what: &str, words: usize) -> Fault {
        Fault::new("CLAUSE_NOT_SUPPORTED", format!("{what} is not supported"))
            .at(self.place_of_next(words))
    }

    /// Place of the next lexemes, as many as there are.
    pub(crate) fn place_of_next(&self, count: usize) -> Place {
        let last = (self.at + count).min(self.lexemes.len()).saturating_sub(1);
        match (self.peek(), self.lexemes.get(last)) {
            (Some(first), Some(last)) => self.place(first, last),
            _ => self.here(),
        }
    }

    /// A name of up to three parts. A `LIVE.` before it is dropped with a warning.
    pub(crate) fn name(&mut self, what: &str) -> Result<Name, Fault> {
        let second_is_period = self
            .peek_ahead(1)
            .is_some_and(|next| next.is(&Token::Period));
        if let Some(live) = self
            .peek()
            .filter(|first| first.is_word("LIVE") && second_is_period)
        {
            self.warnings.push(live_prefix_warning(self.source, live));
            self.at += 2;
        }
        if self.sees(&["IDENTIFIER"]) && self.peek_ahead(1).is_some_and(|l| l.is(&Token::LParen)) {
            return Err(self
                .not_supported("IDENTIFIER(...)", 1)
                .help("write the name, or `${name}` and set it under `configuration`"));
        }
        let start = self.at;
        let mut parts = vec![self.name_part(what)?];
        while self.take_token(&Token::Period) {
            parts.push(self.name_part(what)?);
        }
        let place = self.place_since(start);
        if parts.len() > MOST_NAME_PARTS {
            return Err(Fault::new(
                "SYNTAX_ERROR",
                format!(
                    "`{}` has {} parts, a name has at most three",
                    parts.join("."),
                    parts.len()
                ),
            )
            .at(place)
            .help("write catalog.schema.table"));
        }
        Ok(Name { parts, place })
    }

    fn name_part(&mut self, what: &str) -> Result<String, Fault> {
        let expected = format!("the name of {what}");
        let Some(lexeme) = self.peek() else {
            return Err(self.unexpected(&expected, &[]));
        };
        let Token::Word(word) = &lexeme.token else {
            let fault = self.unexpected(&expected, &[]);
            return Err(match lexeme.token {
                Token::SingleQuotedString(_) => {
                    fault.help("quotes make a string; put a name in backticks")
                }
                _ => fault,
            });
        };
        let reserved = RESERVED.iter().any(|reserved| lexeme.is_word(reserved));
        if reserved || (word.quote_style.is_some() && word.value.is_empty()) {
            return Err(self.unexpected(&expected, &[]));
        }
        self.at += 1;
        let foreign = self
            .peek()
            .filter(|next| lexeme.touches(next) && is_foreign_letter(next));
        if foreign.is_some() {
            return Err(self.unexpected("the end of the name", &[]));
        }
        Ok(word.value.clone())
    }

    /// A name of one part.
    pub(crate) fn simple_name(&mut self, what: &str) -> Result<Name, Fault> {
        let start = self.at;
        let part = self.name_part(what)?;
        if self.sees_token(&Token::Period) {
            return Err(self.unexpected(&format!("the end of the name of {what}"), &[]));
        }
        Ok(Name {
            parts: vec![part],
            place: self.place_since(start),
        })
    }

    /// `(a, b, ...)`; an empty list gives no names. A column that comes twice is a fault.
    pub(crate) fn column_list(&mut self) -> Result<Vec<Name>, Fault> {
        self.expect_token(&Token::LParen)?;
        let mut columns: Vec<Name> = Vec::new();
        if self.take_token(&Token::RParen) {
            return Ok(columns);
        }
        loop {
            let column = self.name("a column")?;
            check_new_column(&columns, &column)?;
            columns.push(column);
            if self.take_token(&Token::RParen) {
                return Ok(columns);
            }
            if !self.take_token(&Token::Comma) {
                return Err(self.unexpected("`,` or `)`", &[]));
            }
        }
    }

    /// A string in either quote.
    pub(crate) fn string(&mut self, what: &str) -> Result<String, Fault> {
        match self.peek().map(|lexeme| &lexeme.token) {
            Some(Token::SingleQuotedString(value)) => {
                self.at += 1;
                Ok(value.clone())
            }
            _ => Err(self.unexpected(&format!("{what} as a string"), &[])),
        }
    }

    /// Index behind the parenthesis that closes the one at `open`.
    pub(crate) fn matching_parenthesis(&self, open: usize) -> Result<usize, Fault> {
        let mut depth = 0_usize;
        for (index, lexeme) in self.lexemes.iter().enumerate().skip(open) {
            match lexeme.token {
                Token::LParen => depth += 1,
                Token::RParen => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(index);
                    }
                }
                _ => {}
            }
        }
        let place = self
            .lexemes
            .get(open)
            .map(|lexeme| self.place(lexeme, lexeme));
        Err(Fault::new("SYNTAX_ERROR", "this parenthesis is not closed").at(place))
    }

    /// Index of the first of the word sequences that stands outside parentheses, from `start` on.
    pub(crate) fn find_outside_parentheses(
        &self,
        start: usize,
        sequences: &[&[&str]],
    ) -> Option<usize> {
        let mut depth = 0_usize;
        for (index, lexeme) in self.lexemes.iter().enumerate().skip(start) {
            match lexeme.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ if depth == 0 => {
                    let matches = |sequence: &&[&str]| {
                        sequence.iter().enumerate().all(|(ahead, word)| {
                            self.lexemes
                                .get(index + ahead)
                                .is_some_and(|l| l.is_word(word))
                        })
                    };
                    if sequences.iter().any(matches) {
                        return Some(index);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// Faults a column that is already in the list; names compare without case.
pub(crate) fn check_new_column(columns: &[Name], column: &Name) -> Result<(), Fault> {
    let written = column.to_string();
    if !columns
        .iter()
        .any(|known| known.to_string().to_lowercase() == written.to_lowercase())
    {
        return Ok(());
    }
    Err(Fault::new(
        "DUPLICATE_COLUMN",
        format!("the column `{written}` is listed twice"),
    )
    .at(column.place.clone())
    .help("names compare without case"))
}

/// A lexeme's text for a message, in backticks unless it holds some itself, and not too long.
pub(crate) fn quote(source: &Expansion, lexeme: &Lexeme) -> String {
    const LONGEST: usize = 40;
    let text = source
        .expanded
        .get(lexeme.start..lexeme.end)
        .unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(LONGEST).collect();
    let dots = if cut.len() < text.len() { "..." } else { "" };
    if cut.contains('`') {
        format!("{cut}{dots}")
    } else {
        format!("`{cut}{dots}`")
    }
}

pub(crate) const LETTER_HELP: &str = "a name with letters beyond a to z is written in backticks";

pub(crate) fn is_foreign_letter(lexeme: &Lexeme) -> bool {
    matches!(lexeme.token, Token::Char(letter) if letter.is_alphabetic())
}
