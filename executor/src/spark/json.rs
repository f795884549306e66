//! JSON as text: reading it the way Spark's parser does (single quotes allowed, the last of equal
//! keys counts where one is asked for), and the functions that look into it or write it.
//!
//! Numbers keep the text they were written with, objects the order of their keys.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;

use super::cast::format_float;
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::types;

/// How deep arrays and objects may nest.
const DEEPEST: usize = 500;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "get_json_object",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text],
        },
        returns: Returns::Of(Param::Text),
        evaluate: get_json_object,
    },
    Definition {
        name: "json_array_length",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Text],
        },
        returns: Returns::Of(Param::Int),
        evaluate: |call| {
            let lengths = call.text(0)?.iter().map(|text| match parse(text?)? {
                Json::Array(items) => i32::try_from(items.len()).ok(),
                _ => None,
            });
            Ok(Arc::new(lengths.collect::<Int32Array>()))
        },
    },
    Definition {
        name: "json_object_keys",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Text],
        },
        returns: Returns::Custom(|_, _| Ok(types::list_of(&DataType::Utf8))),
        evaluate: object_keys,
    },
];

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Boolean(bool),
    /// As it was written.
    Number(String),
    /// A number that is written as it is.
    Exact(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The field of an object; the first of equal keys.
    pub(super) fn field(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The field of an object; the last of equal keys.
    pub(super) fn last_field(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields
                .iter()
                .rev()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text of a field, null if there is none or it is null.
    pub(super) fn text_of(&self, name: &str) -> Option<String> {
        self.field(name)?.plain()
    }

    /// A string as it is, null as nothing, anything else as JSON.
    pub(super) fn plain(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            other => Some(other.to_text()),
        }
    }

    /// The JSON text without blanks.
    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(text) => out.push_str(&written_again(text)),
            Self::Exact(text) => out.push_str(text),
            Self::Text(text) => write_string(text, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// A number as it is when it was read as an integer or a double.
fn written_again(text: &str) -> std::borrow::Cow<'_, str> {
    match text.contains(['.', 'e', 'E']).then(|| text.parse::<f64>()) {
        Some(Ok(value)) => format_float(value, value.abs()).into(),
        _ => text.into(),
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Reads one JSON value; `None` if the text does not begin with one. What follows the first value
/// is not looked at, as with Spark.
pub(super) fn parse(text: &str) -> Option<Json> {
    first_value(text, false)
}

/// The same; numbers may be NaN and infinite.
pub(super) fn parse_lenient(text: &str) -> Option<Json> {
    first_value(text, true)
}

fn first_value(text: &str, lenient: bool) -> Option<Json> {
    let mut reader = Reader {
        text,
        at: 0,
        lenient,
    };
    reader.blanks();
    reader.value(0)
}

/// The fields of a document that is an object.
pub(super) fn top_level(text: &str) -> Option<Json> {
    match parse(text)? {
        object @ Json::Object(_) => Some(object),
        _ => None,
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Whether `NaN` and infinities are numbers.
    lenient: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' | b'\'' => self.string().map(Json::Text),
            b't' => self.word("true").map(|()| Json::Boolean(true)),
            b'f' => self.word("false").map(|()| Json::Boolean(false)),
            b'n' => self.word("null").map(|()| Json::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let behind = rest.strip_prefix(word)?;
        if behind.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            return None;
        }
        self.at += word.len();
        Some(())
    }

    fn number(&mut self) -> Option<Json> {
        const SPECIAL: [&str; 7] = [
            "NaN",
            "+INF",
            "-INF",
            "+Infinity",
            "-Infinity",
            "INF",
            "Infinity",
        ];
        for name in SPECIAL {
            if self.lenient && self.word(name).is_some() {
                return Some(Json::Text(name.to_string()));
            }
        }
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let digits = |reader: &mut Self| {
            let from = reader.at;
            while matches!(reader.peek(), Some(b'0'..=b'9')) {
                reader.at += 1;
            }
            reader.at - from
        };
        let first = self.peek()?;
        let whole = digits(self);
        if whole == 0 || (first == b'0' && whole > 1) {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if digits(self) == 0 {
                return None;
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if digits(self) == 0 {
                return None;
            }
        }
        let ends = !matches!(self.peek(), Some(c) if c.is_ascii_alphanumeric() || c == b'_');
        ends.then(|| Json::Number(self.text[start..self.at].to_string()))
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.peek()?;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..)?;
            let c = rest.chars().next()?;
            self.at += c.len_utf8();
            match c {
                c if c == char::from(quote) => return Some(out),
                '\\' => out.push(self.escaped()?),
                // A control character must be written with a backslash.
                c if (c as u32) < 0x20 => return None,
                c => out.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(match c {
            b'"' => '"',
            b'\'' => '\'',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4()?;
                if (0xD800..0xDC00).contains(&first) {
                    self.take(b'\\')?;
                    self.take(b'u')?;
                    let second = self.hex4()?;
                    if !(0xDC00..0xE000).contains(&second) {
                        return None;
                    }
                    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                    char::from_u32(code)?
                } else {
                    char::from_u32(first)?
                }
            }
            _ => return None,
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.take(b'[')?;
        let mut items = vec![];
        self.blanks();
        if self.take(b']').is_some() {
            return Some(Json::Array(items));
        }
        loop {
            self.blanks();
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.take(b']').is_some() {
                return Some(Json::Array(items));
            }
            self.take(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.take(b'{')?;
        let mut fields = vec![];
        self.blanks();
        if self.take(b'}').is_some() {
            return Some(Json::Object(fields));
        }
        loop {
            self.blanks();
            if !matches!(self.peek()?, b'"' | b'\'') {
                return None;
            }
            let key = self.string()?;
            self.blanks();
            self.take(b':')?;
            self.blanks();
            fields.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.take(b'}').is_some() {
                return Some(Json::Object(fields));
            }
            self.take(b',')?;
        }
    }
}

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(usize),
    Every,
}

/// Reads a path such as `$.a['b'][0]`; `None` if it is none.
fn path(text: &str) -> Option<Vec<Step>> {
    let mut rest = text.strip_prefix('$')?;
    let mut steps = vec![];
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("['") {
            let end = after.find("']")?;
            let name = &after[..end];
            steps.push(match name {
                "*" => Step::Every,
                name => Step::Field(name.to_string()),
            });
            rest = &after[end + 2..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let end = after.find(']')?;
            let inner = &after[..end];
            steps.push(match inner {
                "*" => Step::Every,
                digits => Step::Index(digits.parse().ok()?),
            });
            rest = &after[end + 1..];
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            if name.is_empty() {
                return None;
            }
            steps.push(match name {
                "*" => Step::Every,
                name => Step::Field(name.to_string()),
            });
            rest = &after[end..];
        }
    }
    Some(steps)
}

/// What a path without `*` leads to.
fn follow<'a>(value: &'a Json, steps: &[Step]) -> Option<&'a Json> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.field(name),
        Step::Index(index) => match value {
            Json::Array(items) => items.get(*index),
            _ => None,
        },
        Step::Every => None,
    })
}

fn get_json_object(call: &Call) -> Result<ArrayRef> {
    let (documents, paths) = (call.text(0)?, call.text(1)?);
    let mut last: Option<(String, Option<Vec<Step>>)> = None;
    let mut found = StringBuilder::new();
    for (document, wanted) in documents.iter().zip(paths.iter()) {
        let (Some(document), Some(wanted)) = (document, wanted) else {
            found.append_null();
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| known != wanted) {
            last = Some((wanted.to_string(), path(wanted)));
        }
        let steps = match &last {
            Some((_, Some(steps))) => steps,
            _ => {
                found.append_null();
                continue;
            }
        };
        if steps.contains(&Step::Every) {
            return datafusion::common::exec_err!(
                "SYNTAX_NOT_AVAILABLE: the path '{wanted}' of get_json_object has a *, which is not available"
            );
        }
        let value = parse(document);
        found.append_option(value.as_ref().and_then(|v| follow(v, steps)?.plain()));
    }
    Ok(Arc::new(found.finish()))
}

fn object_keys(call: &Call) -> Result<ArrayRef> {
    let documents: &StringArray = call.text(0)?;
    let field = Field::new_list_field(DataType::Utf8, true);
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(field);
    for document in documents {
        match document.and_then(top_level) {
            Some(Json::Object(fields)) => {
                for (key, _) in fields {
                    lists.values().append_value(key);
                }
                lists.append(true);
            }
            _ => lists.append(false),
        }
    }
    let lists = lists.finish();
    debug_assert_eq!(lists.len(), documents.len());
    Ok(Arc::new(lists))
}
