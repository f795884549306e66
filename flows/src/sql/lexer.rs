//! Lexemes: sqlparser's tokens without blanks and comments, with byte offsets, and with strings
//! decoded by Spark's rules.

use sqlparser::tokenizer::{Location, Span, Token, Tokenizer};

use crate::dialect::SparkDialect;
use crate::fault::Fault;
use crate::sql::expansion::Expansion;

/// A token and where it stands in the expanded text.
#[derive(Debug, Clone)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) span: Span,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Lexeme {
    /// The word, if this is one without quotes.
    pub(crate) fn bare_word(&self) -> Option<&str> {
        match &self.token {
            Token::Word(word) if word.quote_style.is_none() => Some(&word.value),
            _ => None,
        }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.bare_word()
            .is_some_and(|own| own.eq_ignore_ascii_case(word))
    }

    pub(crate) fn is(&self, token: &Token) -> bool {
        self.token == *token
    }

    /// Whether `next` follows without a blank.
    pub(crate) fn touches(&self, next: &Lexeme) -> bool {
        self.end == next.start
    }
}

/// Letters behind a number that give it a type, in upper case.
pub(crate) const NUMBER_SUFFIXES: [&str; 6] = ["L", "S", "Y", "F", "D", "BD"];

/// What was read of a text. With a fault, the lexemes go as far as the text could be read.
pub(crate) struct Lexed {
    pub(crate) lexemes: Vec<Lexeme>,
    pub(crate) fault: Option<Fault>,
}

pub(crate) fn lex(source: &Expansion) -> Lexed {
    let text = source.expanded.as_str();
    let mut lexemes: Vec<Lexeme> = Vec::new();
    let mut walker = Walker::new(text);
    loop {
        let base = walker.at;
        let mut tokens = Vec::new();
        let outcome = Tokenizer::new(&SparkDialect, walker.rest.as_str())
            .tokenize_with_location_into_buf(&mut tokens);
        for token in tokens {
            let span = Span::new(shift(token.span.start, base), shift(token.span.end, base));
            let start = walker.advance_to(span.start);
            let end = walker.advance_to(span.end);
            if !matches!(token.token, Token::Whitespace(_) | Token::EOF) {
                push(
                    &mut lexemes,
                    Lexeme {
                        token: token.token,
                        span,
                        start,
                        end,
                    },
                    text,
                );
            }
        }
        let Err(error) = outcome else {
            return Lexed {
                lexemes,
                fault: None,
            };
        };
        // sqlparser stops at the period of `f(x)._y`, where a field is meant.
        if !walker.rest.as_str().starts_with("._") {
            let fault = Some(unreadable(source, walker.offset, &error.message));
            return Lexed { lexemes, fault };
        }
        let (start, before) = (walker.offset, walker.at);
        let after = Location::new(before.line, before.column + 1);
        let end = walker.advance_to(after);
        let span = Span::new(before, after);
        push(
            &mut lexemes,
            Lexeme {
                token: Token::Period,
                span,
                start,
                end,
            },
            text,
        );
    }
}

fn push(lexemes: &mut Vec<Lexeme>, mut lexeme: Lexeme, text: &str) {
    decode_string(&mut lexeme, text);
    match lexemes.last_mut() {
        Some(last) if joins_to_name(last, &lexeme) => join(last, &lexeme, text),
        _ => lexemes.push(lexeme),
    }
}

/// A location in a rest of the text, as one in the whole text.
fn shift(location: Location, base: Location) -> Location {
    if location.line <= 1 {
        return Location::new(base.line, base.column + location.column.saturating_sub(1));
    }
    Location::new(base.line + location.line - 1, location.column)
}

/// Follows the tokenizer's lines and columns through the text.
struct Walker<'a> {
    rest: std::str::Chars<'a>,
    offset: usize,
    at: Location,
}

impl<'a> Walker<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text.chars(),
            offset: 0,
            at: Location::new(1, 1),
        }
    }

    fn advance_to(&mut self, location: Location) -> usize {
        while self.at < location {
            let Some(character) = self.rest.next() else {
                break;
            };
            self.offset += character.len_utf8();
            if character == '\n' {
                self.at = Location::new(self.at.line + 1, 1);
            } else {
                self.at.column += 1;
            }
        }
        self.offset
    }
}

/// A name may begin with digits: `2024_events` comes as a number and a word.
fn joins_to_name(number: &Lexeme, word: &Lexeme) -> bool {
    let digits = matches!(&number.token, Token::Number(digits, false)
        if digits.bytes().all(|byte| byte.is_ascii_digit()));
    let suffix = |word: &str| NUMBER_SUFFIXES.iter().any(|s| s.eq_ignore_ascii_case(word));
    digits && number.touches(word) && word.bare_word().is_some_and(|word| !suffix(word))
}

fn join(number: &mut Lexeme, word: &Lexeme, text: &str) {
    number.end = word.end;
    number.span.end = word.span.end;
    let name = text.get(number.start..number.end).unwrap_or_default();
    number.token = Token::make_word(name, None);
}

/// Strings of either quote become single-quoted ones with the value that Spark gives them.
fn decode_string(lexeme: &mut Lexeme, text: &str) {
    let quoted = matches!(
        lexeme.token,
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_)
    );
    let raw = text.get(lexeme.start..lexeme.end).unwrap_or_default();
    if quoted && raw.len() >= 2 {
        let quote = if raw.starts_with('"') { '"' } else { '\'' };
        let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
        lexeme.token = Token::SingleQuotedString(unescape(inner, quote));
    }
}

/// Spark's escapes: `\n` and the like, `\u0041`, octal `\101`; `\%` and `\_` stay as they are, any
/// other escaped character stands for itself, a doubled quote for one.
fn unescape(inner: &str, quote: char) -> String {
    let mut value = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        if character == quote {
            value.push(quote);
            if rest.as_str().starts_with(quote) {
                rest.next();
            }
            continue;
        }
        if character != '\\' {
            value.push(character);
            continue;
        }
        let coded = coded_character(rest.as_str());
        if let Some((decoded, length)) = coded {
            value.push(decoded);
            rest = rest.as_str().get(length..).unwrap_or_default().chars();
            continue;
        }
        match rest.next() {
            Some('0') => value.push('\0'),
            Some('b') => value.push('\u{8}'),
            Some('n') => value.push('\n'),
            Some('r') => value.push('\r'),
            Some('t') => value.push('\t'),
            Some('Z') => value.push('\u{1a}'),
            Some(wildcard @ ('%' | '_')) => value.extend(['\\', wildcard]),
            Some(other) => value.push(other),
            None => value.push('\\'),
        }
    }
    value
}

/// A character written by its number, and how many bytes that takes: `u0041`, `U00000041`, `101`.
fn coded_character(text: &str) -> Option<(char, usize)> {
    let (digits, radix, length) = if text.starts_with('u') {
        (text.get(1..5)?, 16, 5)
    } else if text.starts_with('U') {
        (text.get(1..9)?, 16, 9)
    } else {
        (
            text.get(..3)
                .filter(|octal| octal.starts_with(['0', '1']))?,
            8,
            3,
        )
    };
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let character = char::from_u32(u32::from_str_radix(digits, radix).ok()?)?;
    Some((character, length))
}

fn unreadable(source: &Expansion, offset: usize, message: &str) -> Fault {
    let rest = source.expanded.get(offset..).unwrap_or_default();
    let (what, width) = match rest.chars().next() {
        Some('\'' | '"') => ("the string that begins here is not closed", 1),
        Some('`') => ("the name that begins here is not closed", 1),
        Some('/') => ("the comment that begins here is not closed", 2),
        Some('$') => ("`$` has no meaning here", 1),
        Some(first) => (message, first.len_utf8()),
        None => (message, 0),
    };
    Fault::new("SYNTAX_ERROR", what).at(source.place(offset, offset + width))
}
