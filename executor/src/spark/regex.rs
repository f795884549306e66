//! Functions of regular expressions. Spark's are Java's: a pattern is translated where Java reads
//! the same sign otherwise, and one with a construct that is not known here is refused.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use regex::Regex;

use super::scalar::{Call, Definition, Param, Params, Returns};
use super::text;
use super::types::list_of;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "rlike",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text],
        },
        returns: Returns::Of(Param::Boolean),
        evaluate: rlike,
    },
    Definition {
        name: "regexp_count",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text],
        },
        returns: Returns::Of(Param::Int),
        evaluate: regexp_count,
    },
    Definition {
        name: "regexp_extract",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text, Param::Int],
        },
        returns: Returns::Of(Param::Text),
        evaluate: regexp_extract,
    },
    Definition {
        name: "regexp_replace",
        params: Params::Fixed {
            least: 3,
            all: &[Param::Text, Param::Text, Param::Text],
        },
        returns: Returns::Of(Param::Text),
        evaluate: regexp_replace,
    },
    Definition {
        name: "split",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text, Param::Int],
        },
        returns: Returns::Custom(|_, _| Ok(list_of(&DataType::Utf8))),
        evaluate: split_call,
    },
    Definition {
        name: "regexp_extract_all",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text, Param::Int],
        },
        returns: Returns::Custom(|_, _| Ok(list_of(&DataType::Utf8))),
        evaluate: regexp_extract_all,
    },
    Definition {
        name: "regexp_substr",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text],
        },
        returns: Returns::Of(Param::Text),
        evaluate: regexp_substr,
    },
    Definition {
        name: "regexp_instr",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text],
        },
        returns: Returns::Of(Param::Int),
        evaluate: regexp_instr,
    },
];

/// A translated pattern; remembers whether it looks at the end of the text.
struct Translated {
    regex: Regex,
    anchored_at_end: bool,
}

/// Remembers the last pattern, which is mostly the same for all rows.
#[derive(Default)]
struct Patterns {
    last: Option<(String, Translated)>,
}

impl Patterns {
    fn get(&mut self, pattern: &str, text: &str) -> Result<&Regex> {
        if self.last.as_ref().is_none_or(|(known, _)| known != pattern) {
            self.last = Some((pattern.to_string(), translate(pattern)?));
        }
        match &self.last {
            // Java's `$` also matches before a line break that ends the text.
            Some((_, found)) if found.anchored_at_end && text.ends_with(is_line_break) => {
                exec_err!(
                    "INVALID_PARAMETER_VALUE: '$' in the pattern '{pattern}' is not available for a text that ends in a line break"
                )
            }
            Some((_, found)) => Ok(&found.regex),
            None => exec_err!("no pattern"),
        }
    }
}

fn is_line_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Java's pattern in the words of this engine.
fn translate(pattern: &str) -> Result<Translated> {
    let refused = |what: &str| {
        exec_err!("INVALID_PARAMETER_VALUE: {what} in the pattern '{pattern}' is not available")
    };
    let mut result = String::new();
    let mut anchored_at_end = false;
    let mut in_class = false;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let Some(escaped) = characters.next() else {
                    return refused("a backslash at the end");
                };
                match (escaped, in_class) {
                    ('d', false) => result += "[0-9]",
                    ('d', true) => result += "0-9",
                    ('D', false) => result += "[^0-9]",
                    ('w', false) => result += "[a-zA-Z0-9_]",
                    ('w', true) => result += "a-zA-Z0-9_",
                    ('W', false) => result += "[^a-zA-Z0-9_]",
                    ('s', false) => result += "[ \\t\\n\\x0B\\f\\r]",
                    ('s', true) => result += " \\t\\n\\x0B\\f\\r",
                    ('S', false) => result += "[^ \\t\\n\\x0B\\f\\r]",
                    ('t' | 'n' | 'r' | 'f' | 'a', _) => result.extend(['\\', escaped]),
                    ('A' | 'z', false) => result.extend(['\\', escaped]),
                    (other, _) if other.is_ascii_alphanumeric() => {
                        return refused(&format!("'\\{other}'"));
                    }
                    (other, _) => result += &regex::escape(&other.to_string()),
                }
            }
            '[' if in_class => return refused("a class within a class"),
            '[' => {
                in_class = true;
                result.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    result.push('^');
                }
                if characters.next_if_eq(&']').is_some() {
                    result += "\\]";
                }
            }
            ']' if in_class => {
                in_class = false;
                result.push(']');
            }
            '&' | '~' if in_class && characters.peek() == Some(&character) => {
                return refused("an operation on classes");
            }
            '-' if in_class && characters.peek() == Some(&'-') => {
                return refused("an operation on classes");
            }
            '.' if !in_class => result += "[^\\n\\r\\u{85}\\u{2028}\\u{2029}]",
            '$' if !in_class => {
                anchored_at_end = true;
                result.push('$');
            }
            '(' if !in_class && characters.peek() == Some(&'?') => {
                characters.next();
                match characters.next() {
                    Some(':') => result += "(?:",
                    Some('i') if characters.next_if_eq(&')').is_some() => {
                        // Java folds only ASCII without a further flag.
                        if !pattern.is_ascii() {
                            return refused("'(?i)' with letters beyond ASCII");
                        }
                        result += "(?i)";
                    }
                    _ => return refused("a group with '?'"),
                }
            }
            '+' if !in_class && result.ends_with(['*', '+', '?', '}']) => {
                return refused("a possessive quantifier");
            }
            other => result.push(other),
        }
    }
    match Regex::new(&result) {
        Ok(regex) => Ok(Translated {
            regex,
            anchored_at_end,
        }),
        Err(error) => {
            exec_err!("INVALID_PARAMETER_VALUE: the pattern '{pattern}' can not be read: {error}")
        }
    }
}

fn rlike(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts.iter().zip(patterns.iter()).map(|pair| match pair {
        (Some(text), Some(pattern)) => Ok(Some(known.get(pattern, text)?.is_match(text))),
        _ => Ok(None),
    });
    Ok(Arc::new(rows.collect::<Result<BooleanArray>>()?))
}

fn regexp_count(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts.iter().zip(patterns.iter()).map(|pair| match pair {
        (Some(text), Some(pattern)) => Ok(Some(
            known.get(pattern, text)?.find_iter(text).count() as i32
        )),
        _ => Ok(None),
    });
    Ok(Arc::new(rows.collect::<Result<Int32Array>>()?))
}

/// The number in an optional argument.
fn number(call: &Call, index: usize, row: usize, default: i32) -> Result<Option<i32>> {
    if call.args.len() <= index {
        return Ok(Some(default));
    }
    let numbers = call.typed::<Int32Array>(index)?;
    Ok(numbers.is_valid(row).then(|| numbers.value(row)))
}

fn regexp_extract(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts.iter().zip(patterns.iter()).enumerate().map(|(row, pair)| {
        let (Some(text), Some(pattern)) = pair else { return Ok(None) };
        let Some(group) = number(call, 2, row, 1)? else { return Ok(None) };
        let regex = known.get(pattern, text)?;
        let groups = regex.captures_len() as i32 - 1;
        if !(0..=groups).contains(&group) {
            return exec_err!("INVALID_PARAMETER_VALUE: the pattern '{pattern}' has {groups} groups, not {group}");
        }
        let found = regex.captures(text).and_then(|found| found.get(group as usize));
        Ok(Some(found.map_or("", |found| found.as_str()).to_string()))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn regexp_replace(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns, replacements) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let mut known = Patterns::default();
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row) || patterns.is_null(row) || replacements.is_null(row) {
            return Ok(None);
        }
        let (text, replacement) = (texts.value(row), replacements.value(row));
        let regex = known.get(patterns.value(row), text)?;
        let replacement = translate_replacement(replacement, regex.captures_len())?;
        Ok(Some(
            regex.replace_all(text, replacement.as_str()).into_owned(),
        ))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

/// Java's `$1` and `\$` as `${1}` and `$$`.
fn translate_replacement(replacement: &str, groups: usize) -> Result<String> {
    let refused =
        || exec_err!("INVALID_PARAMETER_VALUE: the replacement '{replacement}' is not available");
    let mut result = String::new();
    let mut characters = replacement.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('$') => result += "$$",
                Some(other) => result.push(other),
                None => return refused(),
            },
            '$' => {
                let Some(digit) = characters.next_if(char::is_ascii_digit) else {
                    return refused();
                };
                let mut group = digit.to_digit(10).unwrap_or(0) as usize;
                if group >= groups {
                    return refused();
                }
                while let Some(digit) = characters.peek().and_then(|digit| digit.to_digit(10)) {
                    let longer = group * 10 + digit as usize;
                    if longer >= groups {
                        break;
                    }
                    group = longer;
                    characters.next();
                }
                result += &format!("${{{group}}}");
            }
            other => result.push(other),
        }
    }
    Ok(result)
}

fn regexp_extract_all(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts.iter().zip(patterns.iter()).enumerate().map(|(row, pair)| {
        let (Some(text), Some(pattern)) = pair else { return Ok(None) };
        let Some(group) = number(call, 2, row, 1)? else { return Ok(None) };
        let regex = known.get(pattern, text)?;
        let groups = regex.captures_len() as i32 - 1;
        if !(0..=groups).contains(&group) {
            return exec_err!("INVALID_PARAMETER_VALUE: the pattern '{pattern}' has {groups} groups, not {group}");
        }
        let found = regex.captures_iter(text).map(|found| {
            found
                .get(group as usize)
                .map_or("", |found| found.as_str())
                .to_string()
        });
        Ok(Some(found.collect()))
    });
    text::lists(rows)
}

fn regexp_substr(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts.iter().zip(patterns.iter()).map(|pair| match pair {
        (Some(text), Some(pattern)) => {
            let found = known.get(pattern, text)?.find(text);
            // An empty match counts as none.
            Ok(found
                .map(|found| found.as_str())
                .filter(|found| !found.is_empty()))
        }
        _ => Ok(None),
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn regexp_instr(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts.iter().zip(patterns.iter()).map(|pair| match pair {
        (Some(text), Some(pattern)) => {
            let found = known.get(pattern, text)?.find(text);
            Ok(Some(found.map_or(0, |found| {
                text[..found.start()].encode_utf16().count() as i32 + 1
            })))
        }
        _ => Ok(None),
    });
    Ok(Arc::new(rows.collect::<Result<Int32Array>>()?))
}

/// A text in pieces between what a pattern matches.
pub(super) fn split(text: &str, pattern: &str, limit: i32) -> Result<Vec<String>> {
    Ok(pieces(Patterns::default().get(pattern, text)?, text, limit))
}

fn split_call(call: &Call) -> Result<ArrayRef> {
    let (texts, patterns) = (call.text(0)?, call.text(1)?);
    let mut known = Patterns::default();
    let rows = texts
        .iter()
        .zip(patterns.iter())
        .enumerate()
        .map(|(row, pair)| {
            let (Some(text), Some(pattern)) = pair else {
                return Ok(None);
            };
            let Some(limit) = number(call, 2, row, -1)? else {
                return Ok(None);
            };
            Ok(Some(pieces(known.get(pattern, text)?, text, limit)))
        });
    text::lists(rows)
}

/// Java's split: a match of no width at the begin makes no piece, and a limit bounds the pieces.
fn pieces(regex: &Regex, text: &str, limit: i32) -> Vec<String> {
    if text.is_empty() {
        return vec![String::new()];
    }
    let mut pieces = vec![];
    let mut start = 0;
    for found in regex.find_iter(text) {
        if limit > 0 && pieces.len() as i32 >= limit - 1 {
            break;
        }
        let no_width = found.start() == found.end();
        if no_width && (found.start() == 0 || found.start() == text.len()) {
            continue;
        }
        pieces.push(text[start..found.start()].to_string());
        start = found.end();
    }
    pieces.push(text[start..].to_string());
    pieces
}
