//! More functions of text: numbers written as text, words compared, texts taken apart by patterns.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use datafusion::common::{Result, exec_err, plan_err};

use super::cast::{decimals, divide_half_even, format_decimal, power_of_ten};
use super::scalar::{Call, Definition, Param, Params, Returns, function};
use super::types;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "elt",
        params: Params::Custom(|given| match given {
            [index, _, ..] if types::is_integer(index) || index == &DataType::Null => {
                let texts = given[1..].iter().map(|_| DataType::Utf8);
                Ok(std::iter::once(DataType::Int32).chain(texts).collect())
            }
            _ => plan_err!("DATATYPE_MISMATCH: elt takes an INT and texts"),
        }),
        returns: Returns::Of(Param::Text),
        evaluate: elt,
    },
    function!("find_in_set", [Text, Text], Int, |call| {
        let (words, lists) = (call.text(0)?, call.text(1)?);
        let found = words.iter().zip(lists.iter()).map(|(word, list)| {
            let (word, list) = (word?, list?);
            match word.contains(',') {
                true => Some(0),
                false => Some(
                    list.split(',')
                        .position(|item| item == word)
                        .map_or(0, |at| at as i32 + 1),
                ),
            }
        });
        Ok(Arc::new(found.collect::<Int32Array>()))
    }),
    function!("levenshtein", 2, [Text, Text, Int], Int, levenshtein),
    function!("overlay", 3, [Text, Text, Int, Int], Text, overlay),
    function!("mask", 1, [Text, Text, Text, Text, Text], Text, mask),
    function!("bin", [Long], Text, |call| {
        let values = call.args[0].as_primitive::<Int64Type>();
        let texts = values
            .iter()
            .map(|value| value.map(|value| format!("{value:b}")));
        Ok(Arc::new(texts.collect::<StringArray>()))
    }),
    function!("conv", [Text, Int, Int], Text, conv),
    Definition {
        name: "format_number",
        params: Params::Custom(|given| match given {
            [value, digits] if types::is_number(value) || matches!(value, DataType::Null) => {
                if !matches!(
                    digits,
                    DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Null
                ) {
                    return plan_err!(
                        "DATATYPE_MISMATCH: format_number by a pattern is not available"
                    );
                }
                let value = match value {
                    DataType::Float32 => DataType::Float64,
                    integer if types::is_integer(integer) => DataType::Int64,
                    DataType::Null => DataType::Float64,
                    other => other.clone(),
                };
                Ok(vec![value, DataType::Int32])
            }
            _ => plan_err!("DATATYPE_MISMATCH: format_number takes a number and an INT"),
        }),
        returns: Returns::Of(Param::Text),
        evaluate: format_number,
    },
];

fn elt(call: &Call) -> Result<ArrayRef> {
    let indices = call.typed::<Int32Array>(0)?;
    let rows = (0..call.rows).map(|row| {
        if indices.is_null(row) {
            return Ok(None);
        }
        let index = indices.value(row);
        if index < 1 || index as usize >= call.args.len() {
            return exec_err!(
                "INVALID_ARRAY_INDEX: elt of {index}, of {} values",
                call.args.len() - 1
            );
        }
        let texts = call.text(index as usize)?;
        Ok(texts.is_valid(row).then(|| texts.value(row)))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn levenshtein(call: &Call) -> Result<ArrayRef> {
    let (left, right) = (call.text(0)?, call.text(1)?);
    let limits = match call.args.len() {
        3 => Some(call.typed::<Int32Array>(2)?),
        _ => None,
    };
    let rows = (0..call.rows).map(|row| {
        if left.is_null(row) || right.is_null(row) || limits.is_some_and(|l| l.is_null(row)) {
            return None;
        }
        let distance = distance(left.value(row), right.value(row));
        match limits.map(|limits| limits.value(row)) {
            Some(limit) if distance > limit => Some(-1),
            _ => Some(distance),
        }
    });
    Ok(Arc::new(rows.collect::<Int32Array>()))
}

fn distance(left: &str, right: &str) -> i32 {
    let right: Vec<char> = right.chars().collect();
    let mut costs: Vec<i32> = (0..=right.len() as i32).collect();
    for (row, one) in left.chars().enumerate() {
        let mut diagonal = costs[0];
        costs[0] = row as i32 + 1;
        for (column, other) in right.iter().enumerate() {
            let above = costs[column + 1];
            let replaced = diagonal + i32::from(one != *other);
            costs[column + 1] = replaced.min(above + 1).min(costs[column] + 1);
            diagonal = above;
        }
    }
    costs[right.len()]
}

fn overlay(call: &Call) -> Result<ArrayRef> {
    let (texts, others) = (call.text(0)?, call.text(1)?);
    let starts = call.typed::<Int32Array>(2)?;
    let lengths = match call.args.len() {
        4 => Some(call.typed::<Int32Array>(3)?),
        _ => None,
    };
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row)
            || others.is_null(row)
            || starts.is_null(row)
            || lengths.is_some_and(|l| l.is_null(row))
        {
            return None;
        }
        let (text, other) = (texts.value(row), others.value(row));
        let start = i64::from(starts.value(row));
        let length = match lengths.map(|lengths| i64::from(lengths.value(row))) {
            Some(length) if length >= 0 => length,
            _ => other.chars().count() as i64,
        };
        let head: String = text.chars().take((start - 1).max(0) as usize).collect();
        let tail: String = text
            .chars()
            .skip((start - 1 + length).max(0) as usize)
            .collect();
        Some(head + other + &tail)
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn mask(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let replacement = |index: usize, default: Option<char>, row: usize| -> Result<Option<char>> {
        if call.args.len() <= index {
            return Ok(default);
        }
        let given = call.text(index)?;
        match given.is_valid(row) {
            false => Ok(None),
            true => {
                let mut characters = given.value(row).chars();
                match (characters.next(), characters.next()) {
                    (Some(character), None) => Ok(Some(character)),
                    _ => exec_err!(
                        "DATATYPE_MISMATCH.INPUT_SIZE_NOT_ONE: mask replaces by one character"
                    ),
                }
            }
        }
    };
    let rows = (0..call.rows).map(|row| {
        let upper = replacement(1, Some('X'), row)?;
        let lower = replacement(2, Some('x'), row)?;
        let digit = replacement(3, Some('n'), row)?;
        let other = replacement(4, None, row)?;
        if texts.is_null(row) {
            return Ok(None);
        }
        let masked = texts.value(row).chars().map(|c| {
            let by = if c.is_uppercase() {
                upper
            } else if c.is_lowercase() {
                lower
            } else if c.is_numeric() {
                digit
            } else {
                other
            };
            by.unwrap_or(c)
        });
        Ok(Some(masked.collect::<String>()))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn conv(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let (from, to) = (call.typed::<Int32Array>(1)?, call.typed::<Int32Array>(2)?);
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row) || from.is_null(row) || to.is_null(row) {
            return Ok(None);
        }
        converted(texts.value(row), from.value(row), to.value(row))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

/// A number in another base; a negative base stands for signed digits.
fn converted(text: &str, from: i32, to: i32) -> Result<Option<String>> {
    let bases = 2..=36;
    if !bases.contains(&from) || !bases.contains(&to.abs()) {
        return Ok(None);
    }
    let text = text.trim_matches(' ');
    if text.is_empty() {
        return Ok(None);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut value: u64 = 0;
    for character in digits.chars() {
        let Some(digit) = character.to_digit(from as u32) else {
            break;
        };
        value = match value
            .checked_mul(from as u64)
            .and_then(|v| v.checked_add(digit.into()))
        {
            Some(value) => value,
            None => return exec_err!("ARITHMETIC_OVERFLOW: overflow in conv of '{text}'"),
        };
    }
    let mut negative = negative;
    if negative && to > 0 {
        // As with Hive: the two's complement, unless the number does not fit with a sign.
        value = match i64::try_from(value) {
            Ok(small) => small.wrapping_neg() as u64,
            Err(_) => u64::MAX,
        };
        negative = false;
    }
    if to < 0 && !negative && (value as i64) < 0 {
        value = (value as i64).unsigned_abs();
        negative = true;
    }
    let base = u64::from(to.unsigned_abs());
    let mut out = vec![];
    while value > 0 || out.is_empty() {
        let digit = char::from_digit((value % base) as u32, to.unsigned_abs());
        out.extend(digit.map(|digit| digit.to_ascii_uppercase()));
        value /= base;
    }
    if negative {
        out.push('-');
    }
    Ok(Some(out.into_iter().rev().collect()))
}

fn format_number(call: &Call) -> Result<ArrayRef> {
    let digits = call.args[1].as_primitive::<Int32Type>();
    let value = &call.args[0];
    let mut texts = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if value.is_null(row) || digits.is_null(row) || digits.value(row) < 0 {
            texts.push(None);
            continue;
        }
        let places = digits.value(row) as usize;
        let plain = match value.data_type() {
            DataType::Float64 => {
                let number = value.as_primitive::<Float64Type>().value(row);
                if number.is_nan() {
                    texts.push(Some("NaN".to_string()));
                    continue;
                }
                if number.is_infinite() {
                    texts.push(Some(if number > 0.0 { "∞" } else { "-∞" }.to_string()));
                    continue;
                }
                format!("{number:.places$}")
            }
            DataType::Decimal128(_, scale) => {
                let unscaled = decimals(value)?.value(row);
                let cut = i32::from(*scale) - places as i32;
                let (unscaled, scale) = match (cut > 0, power_of_ten(cut)) {
                    (true, Some(by)) => (
                        divide_half_even(unscaled, by).unwrap_or(unscaled),
                        places as i8,
                    ),
                    _ => (unscaled, *scale),
                };
                let mut text = format_decimal(unscaled, scale);
                let fraction = text
                    .split_once('.')
                    .map_or(0, |(_, fraction)| fraction.len());
                if fraction == 0 && places > 0 {
                    text.push('.');
                }
                text.extend(std::iter::repeat_n('0', places.saturating_sub(fraction)));
                text
            }
            _ => {
                let number = value.as_primitive::<Int64Type>().value(row);
                match places {
                    0 => number.to_string(),
                    _ => format!("{number}.{}", "0".repeat(places)),
                }
            }
        };
        texts.push(Some(grouped(&plain)));
    }
    Ok(Arc::new(StringArray::from(texts)))
}

/// Commas between thousands.
fn grouped(plain: &str) -> String {
    let (sign, unsigned) = match plain.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", plain),
    };
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (unsigned, String::new()),
    };
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}{fraction}")
}
