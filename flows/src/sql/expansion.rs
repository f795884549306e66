//! The text of a source after `${name}` was replaced, and the way back to the text as written.
//!
//! Everything behind this module works on the expanded text; every [`Place`] that leaves it points
//! into the original one. Which values there are is decided by the pipeline file, not here.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlparser::tokenizer::{Location, Span};

use crate::fault::{Fault, Place, SourceText};
use crate::sql::nearest::nearest;

/// A source text with its configuration values filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// The text as it stands in the file.
    pub original: Arc<SourceText>,
    /// The text with the values filled in. Spans of syntax trees count lines and columns here.
    pub expanded: String,
    /// Byte offset of each line's first character.
    original_lines: Vec<usize>,
    expanded_lines: Vec<usize>,
    /// In the order of the text; what lies between them is the same in both texts.
    substitutions: Vec<Substitution>,
}

/// Byte ranges of a `${name}` and of the value that stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Substitution {
    original_start: usize,
    original_end: usize,
    expanded_start: usize,
    expanded_end: usize,
    missing: bool,
}

/// What stands for a value that is missing, so that the rest of the text can still be looked at.
const MISSING_VALUE: &str = "NULL";

impl Expansion {
    /// Fills in the values of `configuration`. Each name without a value is a fault; a `${name}`
    /// inside a comment stays as it is.
    pub fn new(
        name: &str,
        text: &str,
        configuration: &BTreeMap<String, String>,
    ) -> (Arc<Self>, Vec<Fault>) {
        let original = Arc::new(SourceText {
            name: name.to_string(),
            text: text.to_string(),
        });
        let mut expansion = Self {
            original_lines: line_starts(text),
            original,
            expanded: String::with_capacity(text.len()),
            expanded_lines: Vec::new(),
            substitutions: Vec::new(),
        };
        let mut missing_names = Vec::new();
        let mut copied = 0;
        for reference in references(text) {
            expansion
                .expanded
                .push_str(text.get(copied..reference.start).unwrap_or_default());
            let value = configuration.get(reference.name);
            let expanded_start = expansion.expanded.len();
            expansion
                .expanded
                .push_str(value.map_or(MISSING_VALUE, String::as_str));
            expansion.substitutions.push(Substitution {
                original_start: reference.start,
                original_end: reference.end,
                expanded_start,
                expanded_end: expansion.expanded.len(),
                missing: value.is_none(),
            });
            if value.is_none() {
                missing_names.push((reference.name, reference.start, reference.end));
            }
            copied = reference.end;
        }
        expansion
            .expanded
            .push_str(text.get(copied..).unwrap_or_default());
        expansion.expanded_lines = line_starts(&expansion.expanded);

        let faults = missing_names
            .into_iter()
            .map(|(name, start, end)| {
                let known = nearest(name, configuration.keys().map(String::as_str));
                Fault::new(
                    "CONFIGURATION_VALUE_MISSING",
                    format!("the configuration has no value for `{name}`"),
                )
                .at(expansion.place_in_original(start, end))
                .hint(known.map(|known| format!("did you mean `{known}`?")))
                .help(format!(
                    "set it under `configuration` in the pipeline file, or with --conf {name}=VALUE"
                ))
            })
            .collect();
        (Arc::new(expansion), faults)
    }

    /// The place in the original text of a span of a syntax tree or token; `None` for an empty
    /// span, which sqlparser uses for parts without a place.
    pub fn place_of(&self, span: Span) -> Option<Place> {
        if span.start.line == 0 || span.start > span.end {
            return None;
        }
        Some(self.place(self.offset_of(span.start), self.offset_of(span.end)))
    }

    /// The place in the original text of a byte range of the expanded text.
    pub(crate) fn place(&self, start: usize, end: usize) -> Place {
        let (original_start, _) = self.original_range(start);
        // The end belongs to the character before it: a range that ends just behind a value must
        // not run into the text that follows.
        let original_end = if end > start {
            self.original_range(end - 1).1
        } else {
            original_start
        };
        self.place_in_original(original_start, original_end.max(original_start))
    }

    /// Whether a byte range of the expanded text holds the stand-in of a missing value.
    pub(crate) fn has_missing_value(&self, start: usize, end: usize) -> bool {
        self.substitutions
            .iter()
            .any(|s| s.missing && s.expanded_start < end && s.expanded_end > start)
    }

    /// Byte offset in the expanded text of a line and column; the nearest one if there is no such.
    pub(crate) fn offset_of(&self, location: Location) -> usize {
        let line = usize::try_from(location.line)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        let column = usize::try_from(location.column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        let Some(start) = self.expanded_lines.get(line).copied() else {
            return self.expanded.len();
        };
        let rest = self.expanded.get(start..).unwrap_or_default();
        let within = rest
            .char_indices()
            .nth(column)
            .map_or(rest.len(), |(offset, _)| offset);
        start + within
    }

    /// Range in the original text of the character at an offset of the expanded text.
    fn original_range(&self, offset: usize) -> (usize, usize) {
        let behind = self
            .substitutions
            .partition_point(|s| s.expanded_start <= offset);
        let Some(last) = behind
            .checked_sub(1)
            .and_then(|index| self.substitutions.get(index))
        else {
            return (offset, offset + 1);
        };
        if offset < last.expanded_end {
            return (last.original_start, last.original_end);
        }
        let start = last.original_end + (offset - last.expanded_end);
        (start, start + 1)
    }

    fn place_in_original(&self, start: usize, end: usize) -> Place {
        let (line, column) = self.position_in_original(start);
        let (end_line, end_column) = self.position_in_original(end);
        Place {
            source: Arc::clone(&self.original),
            line,
            column,
            end_line,
            end_column,
        }
    }

    /// Line and column from 1, of the character that holds the byte or begins behind it.
    fn position_in_original(&self, offset: usize) -> (u64, u64) {
        let text = &self.original.text;
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset += 1;
        }
        let line = self
            .original_lines
            .partition_point(|start| *start <= offset);
        let start = line
            .checked_sub(1)
            .and_then(|i| self.original_lines.get(i))
            .copied();
        let before = text.get(start.unwrap_or(0)..offset).unwrap_or_default();
        (line as u64, before.chars().count() as u64 + 1)
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0)
        .chain(text.match_indices('\n').map(|(offset, _)| offset + 1))
        .collect()
}

/// A `${name}` outside of comments.
struct Reference<'a> {
    name: &'a str,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy)]
enum Lexical {
    Plain,
    Quoted(u8),
    LineComment,
    BlockComment(usize),
}

/// Finds the references. Only ASCII bytes are looked at, so that offsets are character boundaries.
fn references(text: &str) -> Vec<Reference<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut state = Lexical::Plain;
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let next = bytes.get(at + 1).copied();
        let mut width = 1;
        let commented = matches!(state, Lexical::LineComment | Lexical::BlockComment(_));
        if byte == b'$' && next == Some(b'{') && !commented {
            if let Some(reference) = reference_at(text, at) {
                width = reference.end - reference.start;
                found.push(reference);
            }
        } else {
            state = match (state, byte, next) {
                (Lexical::Plain, b'\'' | b'"' | b'`', _) => Lexical::Quoted(byte),
                (Lexical::Plain, b'-', Some(b'-')) => Lexical::LineComment,
                (Lexical::Plain, b'/', Some(b'*')) => {
                    width = 2;
                    Lexical::BlockComment(1)
                }
                (Lexical::Quoted(quote), b'\\', Some(_)) if quote != b'`' => {
                    width = 2;
                    state
                }
                // A doubled quote closes and opens again, which comes to the same.
                (Lexical::Quoted(quote), _, _) if byte == quote => Lexical::Plain,
                (Lexical::LineComment, b'\n', _) => Lexical::Plain,
                (Lexical::BlockComment(depth), b'/', Some(b'*')) => {
                    width = 2;
                    Lexical::BlockComment(depth + 1)
                }
                (Lexical::BlockComment(depth), b'*', Some(b'/')) => {
                    width = 2;
                    if depth == 1 {
                        Lexical::Plain
                    } else {
                        Lexical::BlockComment(depth - 1)
                    }
                }
                _ => state,
            };
        }
        at += width;
    }
    found
}

/// A reference whose `$` stands at `start`. What is no plain name between the braces is text, such
/// as the end of a regular expression.
fn reference_at(text: &str, start: usize) -> Option<Reference<'_>> {
    let inside = text.get(start + 2..)?;
    let length = inside.find('}')?;
    let name = inside.get(..length)?.trim();
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':'));
    is_name.then_some(Reference {
        name,
        start,
        end: start + 2 + length + 1,
    })
}
