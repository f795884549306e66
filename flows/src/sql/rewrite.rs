//! Makes the tokens of a query or expression fit for sqlparser.
//!
//! Spark forms that sqlparser does not know are rewritten, token by token, to forms that it keeps
//! in the syntax tree. New tokens carry the span of what they stand for.
//!
//! | written | handed to sqlparser |
//! | --- | --- |
//! | `STREAM t`, `STREAM(t)` | `__windrow_stream(t)`, see [`super::relation`] |
//! | `STREAM f(...)`, `STREAM(f(...))` | `__windrow_stream(f(...))` |
//! | `STREAM t WITH (k = v)` | `__windrow_stream(t, k => v)` |
//! | `LIVE.t` as a relation | `t` |
//! | `1.5D`, `1F`, `1S`, `1Y`, `1.50BD` | `CAST(1.5 AS DOUBLE)` ... |
//! | `INTERVAL 1 DAY 2 HOURS` | `(INTERVAL 1 DAY + INTERVAL 2 HOURS)` |
//! | `'a' 'b'`, `r'\d'` | one string |
//! | `LATERAL VIEW f(...) AS c` | `LATERAL VIEW f(...) __windrow_lateral AS c` |
//! | `struct(*)` | a call of the function `struct` |

use std::collections::BTreeSet;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::fault::Fault;
use crate::sql::expansion::Expansion;
use crate::sql::lexer::{Lexeme, NUMBER_SUFFIXES};
use crate::sql::relation::STREAM_FUNCTION;

/// The name of a LATERAL VIEW that was written without one.
const LATERAL_VIEW_NAME: &str = "__windrow_lateral";

/// Tokens for sqlparser, and what was deprecated about them.
pub(crate) struct Rewritten {
    pub(crate) tokens: Vec<TokenWithSpan>,
    pub(crate) warnings: Vec<Fault>,
}

/// Longest run of tokens without a comma, parenthesis or clause keyword. It bounds the depth of
/// operator chains, whose trees are taken apart by recursion.
const LONGEST_RUN: usize = 3000;
/// Most set operations in one statement, for the same reason.
const MOST_SET_OPERATIONS: usize = 400;

pub(crate) fn rewrite(source: &Expansion, lexemes: &[Lexeme]) -> Result<Rewritten, Fault> {
    let mut first = Rewriter::new(source, lexemes, BTreeSet::new());
    first.run()?;
    if first.live_names_found.is_empty() {
        return Ok(first.done());
    }
    // Columns may be qualified by a LIVE name before the FROM that tells which names are such.
    let mut second = Rewriter::new(source, lexemes, first.live_names_found);
    second.run()?;
    Ok(second.done())
}

/// What the parentheses around the current token mean for it.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// The next word names a relation.
    expects_relation: bool,
    /// Inside a FROM clause, where a comma parts relations.
    in_from: bool,
    /// A SELECT was seen, so that FROM begins its relations and not part of a function's arguments.
    selecting: bool,
    /// Parentheses to close, and options to read, when this one closes.
    stream: StreamEnd,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum StreamEnd {
    #[default]
    No,
    /// The parenthesis is that of the stream function.
    Own,
    /// The parenthesis is that of a function inside the stream function.
    Inner,
}

struct Rewriter<'a> {
    source: &'a Expansion,
    lexemes: &'a [Lexeme],
    at: usize,
    out: Vec<TokenWithSpan>,
    levels: Vec<Level>,
    level: Level,
    run: usize,
    set_operations: usize,
    /// How many parentheses were open at a LATERAL VIEW whose function has not ended.
    lateral_view: Option<usize>,
    /// In lower case.
    live_names: BTreeSet<String>,
    live_names_found: BTreeSet<String>,
    warnings: Vec<Fault>,
}

impl<'a> Rewriter<'a> {
    fn new(source: &'a Expansion, lexemes: &'a [Lexeme], live_names: BTreeSet<String>) -> Self {
        Self {
            source,
            lexemes,
            at: 0,
            out: Vec::with_capacity(lexemes.len()),
            levels: Vec::new(),
            level: Level::default(),
            run: 0,
            set_operations: 0,
            lateral_view: None,
            live_names,
            live_names_found: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    fn done(self) -> Rewritten {
        Rewritten {
            tokens: self.out,
            warnings: self.warnings,
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        while let Some(lexeme) = self.lexemes.get(self.at) {
            self.step(lexeme)?;
        }
        Ok(())
    }

    fn step(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        self.check_limits(lexeme)?;
        match &lexeme.token {
            Token::SingleQuotedString(_) => self.string(lexeme),
            Token::Number(digits, long) => self.number(lexeme, digits, *long)?,
            Token::LParen => self.open(lexeme),
            Token::RParen => self.close(lexeme)?,
            Token::Comma => {
                self.level.expects_relation = self.level.in_from;
                self.copy(lexeme);
            }
            Token::Colon => self.colon(lexeme)?,
            Token::Question | Token::Placeholder(_) => {
                return Err(self
                    .refuse(lexeme, "a parameter marker")
                    .help("write ${name} and set it under `configuration`"));
            }
            Token::Word(_) => self.word(lexeme)?,
            _ => {
                self.level.expects_relation = false;
                self.copy(lexeme);
            }
        }
        Ok(())
    }

    fn check_limits(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        self.run += 1;
        if matches!(lexeme.token, Token::Comma | Token::LParen) || starts_clause(lexeme) {
            self.run = 0;
        }
        if ["UNION", "EXCEPT", "INTERSECT", "MINUS"]
            .iter()
            .any(|word| lexeme.is_word(word))
        {
            self.set_operations += 1;
        }
        if self.run <= LONGEST_RUN && self.set_operations <= MOST_SET_OPERATIONS {
            return Ok(());
        }
        Err(Fault::new(
            "EXPRESSION_TOO_LONG",
            "this chain of operators is too long to be planned",
        )
        .at(self.source.place(lexeme.start, lexeme.end))
        .help("use IN with a list, or join with a table of the values"))
    }

    fn copy(&mut self, lexeme: &Lexeme) {
        self.out
            .push(TokenWithSpan::new(lexeme.token.clone(), lexeme.span));
        self.at += 1;
    }

    fn emit(&mut self, token: Token, span: Span) {
        self.out.push(TokenWithSpan::new(token, span));
    }

    fn peek(&self, ahead: usize) -> Option<&'a Lexeme> {
        self.lexemes.get(self.at + ahead)
    }

    fn peek_is(&self, ahead: usize, token: &Token) -> bool {
        self.peek(ahead).is_some_and(|lexeme| lexeme.is(token))
    }

    fn peek_word(&self, ahead: usize, word: &str) -> bool {
        self.peek(ahead).is_some_and(|lexeme| lexeme.is_word(word))
    }

    fn refuse(&self, lexeme: &Lexeme, what: &str) -> Fault {
        Fault::new("CLAUSE_NOT_SUPPORTED", format!("{what} is not supported"))
            .at(self.source.place(lexeme.start, lexeme.end))
    }

    fn open(&mut self, lexeme: &Lexeme) {
        let inner = Level {
            expects_relation: self.level.expects_relation,
            in_from: self.level.expects_relation,
            ..Level::default()
        };
        self.push_level(inner);
        self.copy(lexeme);
    }

    fn push_level(&mut self, inner: Level) {
        self.level.expects_relation = false;
        self.levels.push(self.level);
        self.level = inner;
    }

    fn close(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        let stream = self.level.stream;
        self.level = self.levels.pop().unwrap_or_default();
        match stream {
            StreamEnd::No => {
                self.copy(lexeme);
                self.end_lateral_view(lexeme.span);
            }
            StreamEnd::Inner => {
                self.copy(lexeme);
                self.end_stream(lexeme.span)?;
            }
            StreamEnd::Own => {
                self.at += 1;
                self.end_stream(lexeme.span)?;
            }
        }
        Ok(())
    }

    /// Gives a name to a LATERAL VIEW without one, which sqlparser asks for.
    fn end_lateral_view(&mut self, span: Span) {
        if self.lateral_view == Some(self.levels.len()) {
            self.lateral_view = None;
            if self.peek_word(0, "AS") {
                self.emit(Token::make_word(LATERAL_VIEW_NAME, None), span);
            }
        }
    }

    fn word(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        let previous_is_period = self
            .out
            .last()
            .is_some_and(|last| last.token == Token::Period);
        if previous_is_period || lexeme.bare_word().is_none() {
            self.level.expects_relation = false;
            self.copy(lexeme);
            return Ok(());
        }
        if self.level.expects_relation {
            return self.relation(lexeme);
        }
        if lexeme.is_word("LIVE") && self.is_live_qualifier() {
            self.at += 2;
            return Ok(());
        }
        if lexeme.is_word("INTERVAL") && self.interval(lexeme) {
            return Ok(());
        }
        if lexeme.is_word("R") && self.raw_string(lexeme)? {
            return Ok(());
        }
        let opens = self.peek_is(1, &Token::LParen);
        if opens && lexeme.is_word("WITH") && self.level.in_from {
            return Err(self
                .refuse(lexeme, "WITH (...) here")
                .help("options of a stream stand right behind its name: STREAM t WITH (option = value) AS alias"));
        }
        if opens && lexeme.is_word("STRUCT") && self.peek_is(2, &Token::Mul) {
            self.emit(Token::make_word("struct", Some('`')), lexeme.span);
            self.at += 1;
            return Ok(());
        }
        if lexeme.is_word("LATERAL") && self.peek_word(1, "VIEW") {
            self.lateral_view = Some(self.levels.len());
        }
        if lexeme.is_word("WATERMARK") && self.peek_word(2, "DELAY") && self.peek_word(3, "OF") {
            return Err(self.refuse(lexeme, "WATERMARK ... DELAY OF"));
        }
        if lexeme.is_word("JOIN") || lexeme.is_word("FROM") && self.relations_begin_with_from() {
            self.level.expects_relation = true;
            self.level.in_from = true;
        } else if starts_clause(lexeme) {
            self.leave_from(lexeme);
        }
        self.copy(lexeme);
        Ok(())
    }

    /// Not so in `IS DISTINCT FROM x`, `extract(year FROM x)` and `trim(BOTH ' ' FROM x)`.
    fn relations_begin_with_from(&self) -> bool {
        let Some(last) = self.out.last() else {
            return true;
        };
        match &last.token {
            Token::Word(word) if word.keyword == Keyword::DISTINCT => false,
            Token::LParen | Token::RParen => true,
            Token::Word(word) if matches!(word.keyword, Keyword::ALL | Keyword::UNION) => true,
            _ => self.level.selecting,
        }
    }

    fn leave_from(&mut self, lexeme: &Lexeme) {
        self.level.in_from = false;
        self.level.selecting |= lexeme.is_word("SELECT");
    }

    /// A bare word where a relation stands.
    fn relation(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        if lexeme.is_word("LATERAL") {
            self.copy(lexeme);
            return Ok(());
        }
        if lexeme.is_word("STREAM") {
            if self.peek_is(1, &Token::LParen) {
                return self.stream_in_parentheses(lexeme);
            }
            let names_relation = self.peek(1).is_some_and(|next| {
                matches!(next.token, Token::Word(_)) && !follows_relation(next)
            });
            if names_relation {
                return self.stream_word(lexeme);
            }
        }
        self.level.expects_relation = false;
        self.skip_live();
        if let Some(lexeme) = self.lexemes.get(self.at) {
            if starts_clause(lexeme) {
                self.leave_from(lexeme);
            }
            self.copy(lexeme);
        }
        Ok(())
    }

    /// `STREAM t` or `STREAM f(...)`.
    fn stream_word(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        self.emit(Token::make_word(STREAM_FUNCTION, None), lexeme.span);
        self.emit(Token::LParen, lexeme.span);
        self.at += 1;
        self.skip_live();
        let end = self.stream_name();
        self.level.expects_relation = false;
        if self.peek_is(0, &Token::LParen) {
            if let Some(parenthesis) = self.peek(0) {
                self.push_level(Level {
                    stream: StreamEnd::Inner,
                    ..Level::default()
                });
                self.copy(parenthesis);
            }
            return Ok(());
        }
        self.end_stream(end.unwrap_or(lexeme.span))
    }

    /// `STREAM(t)` or `STREAM(f(...))`.
    fn stream_in_parentheses(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        if let Some(inner) = self.peek(2)
            && (starts_query(inner) || inner.is(&Token::LParen))
        {
            return Err(self
                .refuse(inner, "a query inside STREAM")
                .help("name a table, read_files(...) or a temporary view that holds the query"));
        }
        self.emit(Token::make_word(STREAM_FUNCTION, None), lexeme.span);
        self.emit(Token::LParen, lexeme.span);
        self.at += 2;
        self.push_level(Level {
            stream: StreamEnd::Own,
            ..Level::default()
        });
        self.skip_live();
        if matches!(self.peek(0).map(|l| &l.token), Some(Token::Word(_))) {
            self.stream_name();
        }
        Ok(())
    }

    /// A name of up to any parts, each in backticks so that no word of it is read as a keyword.
    fn stream_name(&mut self) -> Option<Span> {
        let mut end = None;
        while let Some(lexeme) = self.peek(0) {
            let Token::Word(word) = &lexeme.token else {
                break;
            };
            let is_function = self.peek_is(1, &Token::LParen);
            let quote = if is_function { None } else { Some('`') };
            self.emit(Token::make_word(&word.value, quote), lexeme.span);
            end = Some(lexeme.span);
            self.at += 1;
            match self.peek(0) {
                Some(period) if period.is(&Token::Period) => self.copy(period),
                _ => break,
            }
        }
        end
    }

    /// Reads `WITH (k = v, ...)` if it follows, and closes the stream function.
    fn end_stream(&mut self, span: Span) -> Result<(), Fault> {
        if self.peek_word(0, "WITH") && self.peek_is(1, &Token::LParen) {
            self.at += 2;
            self.stream_options()?;
        }
        self.emit(Token::RParen, span);
        Ok(())
    }

    fn stream_options(&mut self) -> Result<(), Fault> {
        let mut depth = 0_usize;
        let mut expects_key = true;
        while let Some(lexeme) = self.peek(0) {
            if expects_key {
                let key = match &lexeme.token {
                    Token::Word(word) => word.value.as_str(),
                    Token::SingleQuotedString(key) => key.as_str(),
                    _ => return Err(self.bad_stream_option(lexeme)),
                };
                self.emit(Token::Comma, lexeme.span);
                self.emit(Token::make_word(key, Some('`')), lexeme.span);
                self.at += 1;
                match self.peek(0) {
                    Some(sign) if sign.is(&Token::Eq) || sign.is(&Token::RArrow) => {
                        self.emit(Token::RArrow, sign.span);
                        self.at += 1;
                    }
                    other => return Err(self.bad_stream_option(other.unwrap_or(lexeme))),
                }
                expects_key = false;
                continue;
            }
            match lexeme.token {
                Token::Comma if depth == 0 => {
                    self.at += 1;
                    expects_key = true;
                }
                Token::RParen if depth == 0 => {
                    self.at += 1;
                    return Ok(());
                }
                _ => {
                    match lexeme.token {
                        Token::LParen => depth += 1,
                        Token::RParen => depth -= 1,
                        _ => {}
                    }
                    self.copy(lexeme);
                }
            }
        }
        Ok(())
    }

    fn bad_stream_option(&self, lexeme: &Lexeme) -> Fault {
        Fault::new(
            "SYNTAX_ERROR",
            "expected `option = value` in WITH (...) of a stream",
        )
        .at(self.source.place(lexeme.start, lexeme.end))
    }

    /// Drops a `LIVE.` that stands before a relation's name.
    fn skip_live(&mut self) {
        let (Some(live), Some(name)) = (self.peek(0), self.peek(2)) else {
            return;
        };
        let Token::Word(word) = &name.token else {
            return;
        };
        if live.is_word("LIVE") && self.peek_is(1, &Token::Period) {
            self.live_names_found.insert(word.value.to_lowercase());
            self.warnings.push(live_prefix_warning(self.source, live));
            self.at += 2;
        }
    }

    /// Whether `LIVE.t.` stands before a column, of a relation that was written `LIVE.t`.
    fn is_live_qualifier(&self) -> bool {
        let name = match self.peek(2).map(|lexeme| &lexeme.token) {
            Some(Token::Word(word)) => word.value.to_lowercase(),
            _ => return false,
        };
        self.peek_is(1, &Token::Period)
            && self.peek_is(3, &Token::Period)
            && self.live_names.contains(&name)
    }

    /// Strings side by side are one string.
    fn string(&mut self, first: &Lexeme) {
        let mut value = String::new();
        let mut span = first.span;
        while let Some(Token::SingleQuotedString(part)) = self.peek(0).map(|lexeme| &lexeme.token) {
            value.push_str(part);
            span = span.union(&self.peek(0).map_or(span, |lexeme| lexeme.span));
            self.at += 1;
        }
        self.level.expects_relation = false;
        self.emit(Token::SingleQuotedString(value), span);
    }

    /// `r'...'`, in which a backslash is a character like others.
    fn raw_string(&mut self, prefix: &Lexeme) -> Result<bool, Fault> {
        let Some(string) = self.peek(1) else {
            return Ok(false);
        };
        if !matches!(string.token, Token::SingleQuotedString(_)) || !prefix.touches(string) {
            return Ok(false);
        }
        let written = self
            .source
            .expanded
            .get(string.start..string.end)
            .unwrap_or_default();
        let inner = written
            .get(1..written.len().saturating_sub(1))
            .unwrap_or_default();
        if inner.contains(['\'', '"']) {
            return Err(
                Fault::new("SYNTAX_ERROR", "a raw string may not hold a quote")
                    .at(self.source.place(prefix.start, string.end))
                    .help("write a plain string with the backslashes doubled"),
            );
        }
        self.emit(
            Token::SingleQuotedString(inner.to_string()),
            prefix.span.union(&string.span),
        );
        self.at += 2;
        Ok(true)
    }

    /// A number with a suffix that gives its type.
    fn number(&mut self, lexeme: &Lexeme, digits: &str, long: bool) -> Result<(), Fault> {
        self.level.expects_relation = false;
        let suffix = self
            .peek(1)
            .filter(|next| !long && lexeme.touches(next))
            .and_then(|next| Some((next, next.bare_word()?.to_uppercase())));
        let Some((next, suffix)) = suffix else {
            self.copy(lexeme);
            return Ok(());
        };
        if !NUMBER_SUFFIXES.contains(&suffix.as_str()) {
            return Err(Fault::new(
                "SYNTAX_ERROR",
                format!("`{digits}{suffix}` is not a number"),
            )
            .at(self.source.place(lexeme.start, next.end)));
        }
        let span = lexeme.span.union(&next.span);
        self.at += 2;
        if suffix == "L" {
            self.emit(Token::Number(digits.to_string(), true), span);
            return Ok(());
        }
        // The smallest value of a type has no positive counterpart: the sign goes into the cast.
        let minus = if matches!(suffix.as_str(), "S" | "Y") {
            self.take_sign()
        } else {
            None
        };
        self.emit(Token::make_word("CAST", None), span);
        self.emit(Token::LParen, span);
        self.out.extend(minus);
        self.emit(Token::Number(digits.to_string(), false), span);
        self.emit(Token::make_word("AS", None), span);
        match suffix.as_str() {
            "S" => self.emit(Token::make_word("SMALLINT", None), span),
            "Y" => self.emit(Token::make_word("TINYINT", None), span),
            "F" => self.emit(Token::make_word("FLOAT", None), span),
            "D" => self.emit(Token::make_word("DOUBLE", None), span),
            _ => self.decimal_type(digits, span),
        }
        self.emit(Token::RParen, span);
        Ok(())
    }

    fn decimal_type(&mut self, digits: &str, span: Span) {
        let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
        let scale = mantissa
            .split_once('.')
            .map_or(0, |(_, fraction)| fraction.len());
        let precision = mantissa
            .bytes()
            .filter(u8::is_ascii_digit)
            .count()
            .clamp(1, 38);
        self.emit(Token::make_word("DECIMAL", None), span);
        self.emit(Token::LParen, span);
        self.emit(Token::Number(precision.to_string(), false), span);
        self.emit(Token::Comma, span);
        self.emit(Token::Number(scale.min(38).to_string(), false), span);
        self.emit(Token::RParen, span);
    }

    /// Takes back a minus that is a sign and not a subtraction.
    fn take_sign(&mut self) -> Option<TokenWithSpan> {
        let (last, before) = match self.out.as_slice() {
            [.., before, last] => (last, Some(before)),
            [last] => (last, None),
            [] => return None,
        };
        let is_operand = before.is_some_and(|before| match &before.token {
            Token::Word(word) => word.keyword == Keyword::NoKeyword || word.quote_style.is_some(),
            Token::Number(..) | Token::SingleQuotedString(_) => true,
            Token::RParen | Token::RBracket => true,
            _ => false,
        });
        if last.token == Token::Minus && !is_operand {
            self.out.pop()
        } else {
            None
        }
    }

    /// `INTERVAL` with several parts, each a number or string and a unit.
    fn interval(&mut self, lexeme: &Lexeme) -> bool {
        let mut parts = Vec::new();
        let mut next = 1;
        loop {
            // Only the first part may have a sign; behind it a minus is a subtraction.
            let signed = self.peek_is(next, &Token::Minus);
            let value = next + usize::from(signed);
            let is_value = self.peek(value).is_some_and(|l| {
                matches!(l.token, Token::Number(..) | Token::SingleQuotedString(_))
            });
            let has_unit = self.peek(value + 1).is_some_and(is_interval_unit);
            if !is_value || !has_unit || (signed && !parts.is_empty()) {
                break;
            }
            parts.push((next, value + 2));
            next = value + 2;
        }
        if parts.len() < 2 {
            return false;
        }
        self.emit(Token::LParen, lexeme.span);
        for (index, (from, to)) in parts.iter().enumerate() {
            if index > 0 {
                self.emit(Token::Plus, lexeme.span);
            }
            self.emit(Token::make_word("INTERVAL", None), lexeme.span);
            for ahead in *from..*to {
                if let Some(part) = self.peek(ahead) {
                    self.emit(part.token.clone(), part.span);
                }
            }
        }
        self.emit(Token::RParen, lexeme.span);
        self.at += next;
        true
    }

    /// `:name` where a value stands is a parameter; elsewhere a colon is a path or a field's type.
    fn colon(&mut self, lexeme: &Lexeme) -> Result<(), Fault> {
        self.level.expects_relation = false;
        let named = self
            .peek(1)
            .filter(|next| lexeme.touches(next))
            .and_then(Lexeme::bare_word);
        let before_value = self.out.last().is_none_or(|last| match &last.token {
            Token::Word(word) => {
                word.quote_style.is_none()
                    && STARTS_VALUE.contains(&word.value.to_uppercase().as_str())
            }
            Token::Comma | Token::LParen | Token::Eq | Token::Neq | Token::Lt | Token::Gt => true,
            Token::LtEq | Token::GtEq | Token::Plus | Token::Minus | Token::Mul => true,
            Token::Div | Token::RArrow => true,
            _ => false,
        });
        match named {
            Some(name) if before_value => Err(self
                .refuse(lexeme, &format!("the parameter marker `:{name}`"))
                .help(format!(
                    "write ${{{name}}} and set it under `configuration`"
                ))),
            _ => {
                self.copy(lexeme);
                Ok(())
            }
        }
    }
}

/// Words behind which a value stands.
const STARTS_VALUE: [&str; 16] = [
    "SELECT", "WHERE", "AND", "OR", "NOT", "ON", "HAVING", "QUALIFY", "BETWEEN", "LIKE", "IN",
    "THEN", "ELSE", "WHEN", "LIMIT", "BY",
];

pub(crate) fn live_prefix_warning(source: &Expansion, lexeme: &Lexeme) -> Fault {
    Fault::new(
        "LIVE_PREFIX_DEPRECATED",
        "the prefix `LIVE.` is deprecated and has no effect",
    )
    .at(source.place(lexeme.start, lexeme.end))
    .help("leave it out: the tables of a pipeline are found by their names")
}

/// Whether a query may begin with this word.
pub(crate) fn starts_query(lexeme: &Lexeme) -> bool {
    ["SELECT", "WITH", "VALUES", "FROM", "TABLE"]
        .iter()
        .any(|word| lexeme.is_word(word))
}

fn starts_clause(lexeme: &Lexeme) -> bool {
    const WORDS: [&str; 16] = [
        "SELECT",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "QUALIFY",
        "WINDOW",
        "LIMIT",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "MINUS",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
        "OFFSET",
    ];
    WORDS.iter().any(|word| lexeme.is_word(word))
}

/// Words that may follow a relation called `stream`, so that it is not read as `STREAM word`.
fn follows_relation(lexeme: &Lexeme) -> bool {
    const WORDS: [&str; 15] = [
        "AS",
        "JOIN",
        "ON",
        "USING",
        "LEFT",
        "RIGHT",
        "FULL",
        "INNER",
        "CROSS",
        "NATURAL",
        "SEMI",
        "ANTI",
        "LATERAL",
        "VERSION",
        "TIMESTAMP",
    ];
    starts_clause(lexeme) || WORDS.iter().any(|word| lexeme.is_word(word))
}

fn is_interval_unit(lexeme: &Lexeme) -> bool {
    const UNITS: [&str; 9] = [
        "YEAR",
        "MONTH",
        "WEEK",
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "MILLISECOND",
        "MICROSECOND",
    ];
    lexeme.bare_word().is_some_and(|word| {
        let upper = word.to_uppercase();
        UNITS.contains(&upper.strip_suffix('S').unwrap_or(&upper))
    })
}
