//! Functions of text. Positions and lengths count characters (code points), as in Spark.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int32Array, Int64Array, ListBuilder,
    PrimitiveArray, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::{Result, exec_err, plan_err};

use super::array;
use super::scalar::{Call, Definition, Param, Params, Returns, function};
use super::types;

pub(super) static FUNCTIONS: &[Definition] = &[
    function!("upper", [Text], Text, |call| map(call, str::to_uppercase)),
    function!("lower", [Text], Text, |call| map(call, str::to_lowercase)),
    Definition {
        name: "reverse",
        params: Params::Custom(|given| match given {
            [DataType::List(_)] => Ok(given.to_vec()),
            _ => all_text(given),
        }),
        returns: Returns::Of(Param::Any),
        evaluate: |call| match call.args[0].data_type() {
            DataType::List(_) => array::reverse(call),
            _ => map(call, |text| text.chars().rev().collect()),
        },
    },
    function!("initcap", [Text], Text, |call| map(call, initcap)),
    function!("btrim", 1, [Text, Text], Text, |call| trim(
        call, true, true
    )),
    function!("ltrim", 1, [Text, Text], Text, |call| trim(
        call, true, false
    )),
    function!("rtrim", 1, [Text, Text], Text, |call| trim(
        call, false, true
    )),
    Definition {
        name: "length",
        params: Params::Custom(text_or_bytes),
        returns: Returns::Of(Param::Int),
        evaluate: length,
    },
    function!("octet_length", [Text], Int, |call| count(
        call,
        |text| text.len() as i32
    )),
    function!("bit_length", [Text], Int, |call| count(
        call,
        |text| text.len() as i32 * 8
    )),
    function!("ascii", [Text], Int, |call| count(call, |text| text
        .chars()
        .next()
        .map_or(0, |c| c as i32))),
    function!("chr", [Long], Text, chr),
    function!("space", [Int], Text, |call| with_int(
        call,
        0,
        None,
        |_, n| " ".repeat(n.max(0) as usize)
    )),
    function!("substring", 2, [Text, Int, Int], Text, substring_call),
    function!("left", [Text, Int], Text, |call| with_int(
        call,
        1,
        Some(0),
        |text, n| { text.chars().take(n.max(0) as usize).collect() }
    )),
    function!("right", [Text, Int], Text, |call| with_int(
        call,
        1,
        Some(0),
        |text, n| {
            let skipped = text.chars().count().saturating_sub(n.max(0) as usize);
            text.chars().skip(skipped).collect()
        }
    )),
    function!("repeat", [Text, Int], Text, |call| with_int(
        call,
        1,
        Some(0),
        |text, n| { text.repeat(n.max(0) as usize) }
    )),
    Definition {
        name: "concat",
        params: Params::Custom(|given| match given {
            lists if lists.iter().any(|t| matches!(t, DataType::List(_))) => {
                array::like_lists(given)
            }
            [bytes, ..]
                if given
                    .iter()
                    .all(|t| types::plain_text(t) == DataType::Binary) =>
            {
                Ok(vec![types::plain_text(bytes); given.len()])
            }
            _ => all_text(given),
        }),
        returns: Returns::Custom(|given, _| Ok(given.first().cloned().unwrap_or(DataType::Utf8))),
        evaluate: concat,
    },
    Definition {
        name: "concat_ws",
        params: Params::Custom(concat_ws_params),
        returns: Returns::Of(Param::Text),
        evaluate: concat_ws,
    },
    function!("replace", 2, [Text, Text, Text], Text, |call| texts(
        call,
        |args| match args {
            [text, "", ..] => text.to_string(),
            [text, search, with] => text.replace(search, with),
            [text, search] => text.replace(search, ""),
            _ => String::new(),
        }
    )),
    function!("translate", [Text, Text, Text], Text, |call| texts(
        call, translate
    )),
    function!("split_part", [Text, Text, Int], Text, split_part),
    function!("substring_index", [Text, Text, Int], Text, |call| pairs(
        call,
        |text, mark, n| { substring_index(text, mark, n) }
    )),
    function!("contains", [Text, Text], Boolean, |call| tests(
        call,
        |text, other| text.contains(other)
    )),
    function!("startswith", [Text, Text], Boolean, |call| tests(
        call,
        |text, other| text.starts_with(other)
    )),
    function!("endswith", [Text, Text], Boolean, |call| tests(
        call,
        |text, other| text.ends_with(other)
    )),
    function!("instr", [Text, Text], Int, |call| {
        let (texts, needles) = (call.text(0)?, call.text(1)?);
        let found = texts
            .iter()
            .zip(needles.iter())
            .map(|(text, needle)| Some(position(needle?, text?, 1)));
        Ok(Arc::new(found.collect::<Int32Array>()))
    }),
    function!("locate", 2, [Text, Text, Int], Int, locate),
    function!("lpad", 2, [Text, Int, Text], Text, |call| pad(call, true)),
    function!("rpad", 2, [Text, Int, Text], Text, |call| pad(call, false)),
];

fn text_or_bytes(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [one] => match types::plain_text(one) {
            DataType::Binary => Ok(vec![DataType::Binary]),
            other if types::is_atomic(&other) => Ok(vec![DataType::Utf8]),
            other => plan_err!("DATATYPE_MISMATCH: length of {}", types::name(&other)),
        },
        _ => plan_err!("one argument is needed"),
    }
}

fn all_text(given: &[DataType]) -> Result<Vec<DataType>> {
    let plain = given.iter().map(types::plain_text);
    plain
        .map(|given| match given {
            DataType::Binary => plan_err!("DATATYPE_MISMATCH: concat of BINARY is not available"),
            given if types::is_atomic(&given) => Ok(DataType::Utf8),
            other => plan_err!(
                "DATATYPE_MISMATCH: concat of {} is not available",
                types::name(&other)
            ),
        })
        .collect()
}

fn concat_ws_params(given: &[DataType]) -> Result<Vec<DataType>> {
    given
        .iter()
        .map(|given| match types::plain_text(given) {
            DataType::List(field) if types::plain_text(field.data_type()) == DataType::Utf8 => Ok(
                DataType::List(Field::new_list_field(DataType::Utf8, true).into()),
            ),
            given if types::is_atomic(&given) => Ok(DataType::Utf8),
            other => plan_err!("DATATYPE_MISMATCH: concat_ws of {}", types::name(&other)),
        })
        .collect()
}

fn map(call: &Call, convert: impl Fn(&str) -> String) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    Ok(Arc::new(
        texts
            .iter()
            .map(|text| text.map(&convert))
            .collect::<StringArray>(),
    ))
}

fn count(call: &Call, convert: impl Fn(&str) -> i32) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let counted = texts.iter().map(|text| text.map(&convert));
    Ok(Arc::new(counted.collect::<PrimitiveArray<Int32Type>>()))
}

fn length(call: &Call) -> Result<ArrayRef> {
    match call.typed::<BinaryArray>(0) {
        Ok(bytes) => {
            let lengths = bytes
                .iter()
                .map(|bytes| bytes.map(|bytes| bytes.len() as i32));
            Ok(Arc::new(lengths.collect::<Int32Array>()))
        }
        Err(_) => count(call, |text| text.chars().count() as i32),
    }
}

/// Calls `convert` with all text arguments of each row where none is null.
fn texts(call: &Call, convert: impl Fn(&[&str]) -> String) -> Result<ArrayRef> {
    let arrays = (0..call.args.len())
        .map(|index| call.text(index))
        .collect::<Result<Vec<_>>>()?;
    let mut row_values = Vec::with_capacity(arrays.len());
    let rows = (0..call.rows).map(|row| {
        row_values.clear();
        for array in &arrays {
            if array.is_null(row) {
                return None;
            }
            row_values.push(array.value(row));
        }
        Some(convert(&row_values))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn tests(call: &Call, test: impl Fn(&str, &str) -> bool) -> Result<ArrayRef> {
    let (texts, others) = (call.text(0)?, call.text(1)?);
    let tested = texts
        .iter()
        .zip(others.iter())
        .map(|(text, other)| Some(test(text?, other?)));
    Ok(Arc::new(tested.collect::<BooleanArray>()))
}

/// Calls `convert` with a number and, if there is one, a text.
fn with_int(
    call: &Call,
    number: usize,
    text: Option<usize>,
    convert: impl Fn(&str, i32) -> String,
) -> Result<ArrayRef> {
    let numbers = call.typed::<Int32Array>(number)?;
    let texts = text.map(|index| call.text(index)).transpose()?;
    let rows = (0..call.rows).map(|row| {
        if numbers.is_null(row) || texts.is_some_and(|texts| texts.is_null(row)) {
            return None;
        }
        Some(convert(
            texts.map_or("", |texts| texts.value(row)),
            numbers.value(row),
        ))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn pairs(call: &Call, convert: impl Fn(&str, &str, i32) -> String) -> Result<ArrayRef> {
    let (texts, others, numbers) = (call.text(0)?, call.text(1)?, call.typed::<Int32Array>(2)?);
    let rows = (0..call.rows).map(|row| {
        let null = texts.is_null(row) || others.is_null(row) || numbers.is_null(row);
        (!null).then(|| convert(texts.value(row), others.value(row), numbers.value(row)))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// Blanks divide words; the first letter of each goes up, all others go down.
fn initcap(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut at_start = true;
    for character in text.chars() {
        if at_start {
            // A letter that becomes two ones stands for a word that begins with a small second one.
            let mut upper = character.to_uppercase();
            result.extend(upper.next());
            result.extend(upper.flat_map(char::to_lowercase));
        } else {
            result.extend(character.to_lowercase());
        }
        at_start = character == ' ';
    }
    result
}

fn trim(call: &Call, leading: bool, trailing: bool) -> Result<ArrayRef> {
    let cut = |text: &str, set: &str| {
        let text = if leading {
            text.trim_start_matches(|c| set.contains(c))
        } else {
            text
        };
        let text = if trailing {
            text.trim_end_matches(|c| set.contains(c))
        } else {
            text
        };
        text.to_string()
    };
    texts(call, |args| match args {
        [text, set] => cut(text, set),
        [text] => cut(text, " "),
        _ => String::new(),
    })
}

fn chr(call: &Call) -> Result<ArrayRef> {
    let codes = call.typed::<Int64Array>(0)?;
    let converted = codes.iter().map(|code| {
        code.map(|code| match code {
            ..0 => String::new(),
            code => char::from(code.rem_euclid(256) as u8).to_string(),
        })
    });
    Ok(Arc::new(converted.collect::<StringArray>()))
}

fn substring_call(call: &Call) -> Result<ArrayRef> {
    let (texts, starts) = (call.text(0)?, call.typed::<Int32Array>(1)?);
    let lengths = match call.args.len() {
        3 => Some(call.typed::<Int32Array>(2)?),
        _ => None,
    };
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row) || starts.is_null(row) || lengths.is_some_and(|l| l.is_null(row)) {
            return None;
        }
        let length = lengths.map_or(i32::MAX, |lengths| lengths.value(row));
        Some(substring(
            texts.value(row),
            starts.value(row).into(),
            length.into(),
        ))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// Positions count from 1, negative ones from the end; 0 is the begin too. What lies before the
/// begin counts towards the length.
fn substring(text: &str, position: i64, length: i64) -> String {
    let count = text.chars().count() as i64;
    let start = match position {
        1.. => position - 1,
        0 => 0,
        _ => count + position,
    };
    let end = if length == i64::from(i32::MAX) {
        count
    } else {
        start.saturating_add(length)
    };
    let (start, end) = (start.clamp(0, count), end.clamp(0, count));
    text.chars()
        .skip(start as usize)
        .take((end - start).max(0) as usize)
        .collect()
}

fn concat(call: &Call) -> Result<ArrayRef> {
    match call.args.first().map(|first| first.data_type()) {
        None => return Ok(Arc::new(StringArray::from(vec![""; call.rows]))),
        Some(DataType::List(_)) => return array::concat(call),
        Some(DataType::Binary) => return concat_bytes(call),
        Some(_) => {}
    }
    texts(call, |args| args.concat())
}

fn concat_bytes(call: &Call) -> Result<ArrayRef> {
    let arrays = (0..call.args.len())
        .map(|index| call.typed::<BinaryArray>(index))
        .collect::<Result<Vec<_>>>()?;
    let rows = (0..call.rows).map(|row| {
        let parts = arrays
            .iter()
            .map(|array| array.is_valid(row).then(|| array.value(row)))
            .collect::<Option<Vec<&[u8]>>>()?;
        Some(parts.concat())
    });
    Ok(Arc::new(rows.collect::<BinaryArray>()))
}

fn concat_ws(call: &Call) -> Result<ArrayRef> {
    let separators = call.text(0)?;
    let rows = (0..call.rows).map(|row| {
        if separators.is_null(row) {
            return Ok(None);
        }
        let mut parts: Vec<String> = vec![];
        for argument in &call.args[1..] {
            if argument.is_null(row) {
                continue;
            }
            if let Some(texts) = argument.as_any().downcast_ref::<StringArray>() {
                parts.push(texts.value(row).to_string());
            } else if let Some(lists) = argument
                .as_any()
                .downcast_ref::<datafusion::arrow::array::ListArray>()
            {
                let items = lists.value(row);
                match items.as_any().downcast_ref::<StringArray>() {
                    Some(items) => parts.extend(items.iter().flatten().map(str::to_string)),
                    None => return exec_err!("concat_ws of an array that is not of text"),
                }
            }
        }
        Ok(Some(parts.join(separators.value(row))))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn translate(args: &[&str]) -> String {
    let [text, from, to] = args else {
        return String::new();
    };
    let to: Vec<char> = to.chars().collect();
    text.chars()
        .filter_map(
            |character| match from.chars().position(|found| found == character) {
                None => Some(character),
                Some(at) => to.get(at).copied(),
            },
        )
        .collect()
}

fn split_part(call: &Call) -> Result<ArrayRef> {
    let (texts, marks, parts) = (call.text(0)?, call.text(1)?, call.typed::<Int32Array>(2)?);
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row) || marks.is_null(row) || parts.is_null(row) {
            return Ok(None);
        }
        let (text, mark, part) = (texts.value(row), marks.value(row), parts.value(row));
        let pieces: Vec<&str> = if mark.is_empty() {
            vec![text]
        } else {
            text.split(mark).collect()
        };
        let found = match part {
            0 => return exec_err!("INVALID_INDEX_OF_ZERO: split_part counts from 1"),
            1.. => pieces.get(part as usize - 1),
            _ => pieces
                .len()
                .checked_sub(part.unsigned_abs() as usize)
                .and_then(|at| pieces.get(at)),
        };
        Ok(Some(found.copied().unwrap_or_default().to_string()))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn substring_index(text: &str, mark: &str, number: i32) -> String {
    if mark.is_empty() || number == 0 {
        return String::new();
    }
    let wanted = number.unsigned_abs() as usize - 1;
    if number > 0 {
        match text.match_indices(mark).nth(wanted) {
            Some((at, _)) => text[..at].to_string(),
            None => text.to_string(),
        }
    } else {
        match text.rmatch_indices(mark).nth(wanted) {
            Some((at, _)) => text[at + mark.len()..].to_string(),
            None => text.to_string(),
        }
    }
}

/// Where `needle` is found in `text` from a position on, counted from 1; 0 if it is not.
fn position(needle: &str, text: &str, from: i32) -> i32 {
    if from < 1 {
        return 0;
    }
    let skipped = from as usize - 1;
    let Some(start) = text
        .char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .nth(skipped)
    else {
        return 0;
    };
    match text[start..].find(needle) {
        Some(at) => (text[..start + at].chars().count() + 1) as i32,
        None => 0,
    }
}

fn locate(call: &Call) -> Result<ArrayRef> {
    let (needles, texts) = (call.text(0)?, call.text(1)?);
    let starts = match call.args.len() {
        3 => Some(call.typed::<Int32Array>(2)?),
        _ => None,
    };
    let rows = (0..call.rows).map(|row| {
        // Without a position to start from Spark finds nothing, not null.
        let start = match starts {
            Some(starts) if starts.is_null(row) => return Some(0),
            Some(starts) => starts.value(row),
            None => 1,
        };
        if needles.is_null(row) || texts.is_null(row) {
            return None;
        }
        Some(position(needles.value(row), texts.value(row), start))
    });
    Ok(Arc::new(rows.collect::<Int32Array>()))
}

fn pad(call: &Call, left: bool) -> Result<ArrayRef> {
    let (texts, widths) = (call.text(0)?, call.typed::<Int32Array>(1)?);
    let fillings = match call.args.len() {
        3 => Some(call.text(2)?),
        _ => None,
    };
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row) || widths.is_null(row) || fillings.is_some_and(|f| f.is_null(row)) {
            return None;
        }
        let (text, width) = (texts.value(row), widths.value(row).max(0) as usize);
        let filling = fillings.map_or(" ", |fillings| fillings.value(row));
        let missing = width.saturating_sub(text.chars().count());
        let fill: String = filling.chars().cycle().take(missing).collect();
        let kept: String = text.chars().take(width).collect();
        Some(if left { fill + &kept } else { kept + &fill })
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// An array of text, built piece by piece.
pub(super) fn lists(rows: impl Iterator<Item = Result<Option<Vec<String>>>>) -> Result<ArrayRef> {
    let mut builder = ListBuilder::new(StringBuilder::new());
    for row in rows {
        match row? {
            Some(items) => {
                items
                    .into_iter()
                    .for_each(|item| builder.values().append_value(item));
                builder.append(true);
            }
            None => builder.append(false),
        }
    }
    Ok(Arc::new(builder.finish()))
}
