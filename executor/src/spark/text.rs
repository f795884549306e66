//! Functions of text. Positions and lengths count characters (code points), as in Spark.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Datum, Int32Array, Int64Array, ListArray,
    ListBuilder, Scalar, StringArray, StringBuilder,
};
use datafusion::arrow::compute;
use datafusion::arrow::compute::kernels::length::length as byte_lengths;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::functions::string;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use super::array;
use super::scalar::{Call, Definition, Param, Params, Returns, function};
use super::types;

pub(super) static FUNCTIONS: &[Definition] = &[
    function!("upper", [Text], Text, |call| change_case(call, &UPPER)),
    function!("lower", [Text], Text, |call| change_case(call, &LOWER)),
    Definition {
        name: "reverse",
        params: Params::Custom(|given| match given {
            [DataType::List(_)] => Ok(given.to_vec()),
            _ => all_text(given),
        }),
        returns: Returns::Of(Param::Any),
        evaluate: |call| match call.args[0].data_type() {
            DataType::List(_) => array::reverse(call),
            _ => map(call, |text, out| {
                text.chars().rev().try_for_each(|c| out.write_char(c))
            }),
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
    function!("octet_length", [Text], Int, |call| Ok(byte_lengths(
        &call.args[0]
    )?)),
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
        |_, n, out| (0..n).try_for_each(|_| out.write_char(' '))
    )),
    function!("substring", 2, [Text, Int, Int], Text, substring_call),
    function!("left", [Text, Int], Text, |call| with_int(
        call,
        1,
        Some(0),
        |text, n, out| out.write_str(slice(text, 0, n.max(0) as usize))
    )),
    function!("right", [Text, Int], Text, |call| with_int(
        call,
        1,
        Some(0),
        |text, n, out| {
            let skipped = characters(text).saturating_sub(n.max(0) as usize);
            out.write_str(slice(text, skipped, usize::MAX))
        }
    )),
    function!("repeat", [Text, Int], Text, |call| with_int(
        call,
        1,
        Some(0),
        |text, n, out| (0..n).try_for_each(|_| out.write_str(text))
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
        |args, out| match args {
            [text, "", ..] => out.write_str(text),
            [text, search, with @ ..] => {
                replace(text, search, with.first().copied().unwrap_or(""), out)
            }
            _ => Ok(()),
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
        compute::contains
    )),
    function!("startswith", [Text, Text], Boolean, |call| tests(
        call,
        compute::starts_with
    )),
    function!("endswith", [Text, Text], Boolean, |call| tests(
        call,
        compute::ends_with
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

/// A column of texts, written one behind the other; `write` says whether a row is there.
fn written(
    rows: usize,
    bytes: usize,
    mut write: impl FnMut(usize, &mut StringBuilder) -> std::result::Result<bool, std::fmt::Error>,
) -> Result<ArrayRef> {
    let mut builder = StringBuilder::with_capacity(rows, bytes);
    for row in 0..rows {
        match write(row, &mut builder) {
            Ok(true) => builder.append_value(""),
            Ok(false) => builder.append_null(),
            Err(_) => return exec_err!("a text could not be written"),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// As many bytes as the texts have.
fn size(texts: &StringArray) -> usize {
    let offsets = texts.value_offsets();
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (last - first) as usize,
        _ => 0,
    }
}

fn map(
    call: &Call,
    convert: impl Fn(&str, &mut StringBuilder) -> std::fmt::Result,
) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    written(call.rows, size(texts), |row, out| {
        if texts.is_null(row) {
            return Ok(false);
        }
        convert(texts.value(row), out).map(|()| true)
    })
}

static UPPER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(string::upper);
static LOWER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(string::lower);
static NO_OPTIONS: LazyLock<Arc<ConfigOptions>> = LazyLock::new(Arc::default);

/// As DataFusion does it, which is what Spark does.
fn change_case(call: &Call, function: &ScalarUDF) -> Result<ArrayRef> {
    let field = Arc::new(Field::new("text", DataType::Utf8, true));
    let args = ScalarFunctionArgs {
        args: vec![ColumnarValue::Array(Arc::clone(&call.args[0]))],
        arg_fields: vec![Arc::clone(&field)],
        number_rows: call.rows,
        return_field: field,
        config_options: Arc::clone(&NO_OPTIONS),
    };
    function.invoke_with_args(args)?.into_array(call.rows)
}

fn characters(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.chars().count(),
    }
}

/// A part of a text, in characters.
fn slice(text: &str, start: usize, length: usize) -> &str {
    if text.is_ascii() {
        let start = start.min(text.len());
        let end = start.saturating_add(length).min(text.len());
        return &text[start..end];
    }
    let from = |skipped: usize, text: &str| {
        text.char_indices()
            .nth(skipped)
            .map_or(text.len(), |(at, _)| at)
    };
    let rest = &text[from(start, text)..];
    &rest[..from(length, rest)]
}

fn replace(text: &str, search: &str, with: &str, out: &mut StringBuilder) -> std::fmt::Result {
    let mut written = 0;
    for (at, _) in text.match_indices(search) {
        out.write_str(&text[written..at])?;
        out.write_str(with)?;
        written = at + search.len();
    }
    out.write_str(&text[written..])
}

fn count(call: &Call, convert: impl Fn(&str) -> i32) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let counted = texts.iter().map(|text| text.map(&convert));
    Ok(Arc::new(counted.collect::<Int32Array>()))
}

fn length(call: &Call) -> Result<ArrayRef> {
    match call.typed::<BinaryArray>(0) {
        Ok(bytes) => {
            let lengths = bytes
                .iter()
                .map(|bytes| bytes.map(|bytes| bytes.len() as i32));
            Ok(Arc::new(lengths.collect::<Int32Array>()))
        }
        Err(_) if call.text(0)?.is_ascii() => Ok(byte_lengths(&call.args[0])?),
        Err(_) => count(call, |text| text.chars().count() as i32),
    }
}

/// Calls `convert` with all text arguments of each row where none is null.
fn texts(
    call: &Call,
    convert: impl Fn(&[&str], &mut StringBuilder) -> std::fmt::Result,
) -> Result<ArrayRef> {
    let arrays = (0..call.args.len())
        .map(|index| call.text(index))
        .collect::<Result<Vec<_>>>()?;
    let bytes = arrays.first().map_or(0, |first| size(first));
    let mut row_values = Vec::with_capacity(arrays.len());
    written(call.rows, bytes, |row, out| {
        row_values.clear();
        for array in &arrays {
            if array.is_null(row) {
                return Ok(false);
            }
            row_values.push(array.value(row));
        }
        convert(&row_values, out).map(|()| true)
    })
}

/// Tests texts against others, or against one.
fn tests(
    call: &Call,
    test: fn(&dyn Datum, &dyn Datum) -> std::result::Result<BooleanArray, ArrowError>,
) -> Result<ArrayRef> {
    let (texts, others) = (call.text(0)?, call.text(1)?);
    let tested = match call.is_constant(1) && !others.is_empty() {
        true => test(texts, &Scalar::new(others.slice(0, 1)))?,
        false => test(texts, others)?,
    };
    Ok(Arc::new(tested))
}

/// Calls `convert` with a number and, if there is one, a text.
fn with_int(
    call: &Call,
    number: usize,
    text: Option<usize>,
    convert: impl Fn(&str, i32, &mut StringBuilder) -> std::fmt::Result,
) -> Result<ArrayRef> {
    let numbers = call.typed::<Int32Array>(number)?;
    let texts = text.map(|index| call.text(index)).transpose()?;
    written(call.rows, texts.map_or(0, size), |row, out| {
        if numbers.is_null(row) || texts.is_some_and(|texts| texts.is_null(row)) {
            return Ok(false);
        }
        let text = texts.map_or("", |texts| texts.value(row));
        convert(text, numbers.value(row), out).map(|()| true)
    })
}

fn pairs(call: &Call, convert: impl for<'a> Fn(&'a str, &str, i32) -> &'a str) -> Result<ArrayRef> {
    let (texts, others, numbers) = (call.text(0)?, call.text(1)?, call.typed::<Int32Array>(2)?);
    written(call.rows, size(texts), |row, out| {
        if texts.is_null(row) || others.is_null(row) || numbers.is_null(row) {
            return Ok(false);
        }
        let converted = convert(texts.value(row), others.value(row), numbers.value(row));
        out.write_str(converted).map(|()| true)
    })
}

/// Blanks divide words; the first letter of each goes up, all others go down.
fn initcap(text: &str, out: &mut StringBuilder) -> std::fmt::Result {
    let mut at_start = true;
    for character in text.chars() {
        if at_start {
            // A letter that becomes two ones stands for a word that begins with a small second one.
            let mut upper = character.to_uppercase();
            upper
                .next()
                .into_iter()
                .try_for_each(|c| out.write_char(c))?;
            let mut rest = upper.flat_map(char::to_lowercase);
            rest.try_for_each(|c| out.write_char(c))?;
        } else {
            character
                .to_lowercase()
                .try_for_each(|c| out.write_char(c))?;
        }
        at_start = character == ' ';
    }
    Ok(())
}

fn trim(call: &Call, leading: bool, trailing: bool) -> Result<ArrayRef> {
    fn cut(text: &str, leading: bool, trailing: bool, of_set: impl Fn(char) -> bool) -> &str {
        let text = if leading {
            text.trim_start_matches(&of_set)
        } else {
            text
        };
        if trailing {
            text.trim_end_matches(&of_set)
        } else {
            text
        }
    }
    if call.args.len() == 1 {
        let texts = call.text(0)?;
        let (bytes, offsets) = (texts.value_data(), texts.value_offsets());
        let has_blank = |pair: &[i32]| {
            let text = &bytes[pair[0] as usize..pair[1] as usize];
            (leading && text.first() == Some(&b' ')) | (trailing && text.last() == Some(&b' '))
        };
        if !offsets.windows(2).any(has_blank) {
            return Ok(Arc::clone(&call.args[0]));
        }
        return map(call, |text, out| {
            let bytes = text.as_bytes();
            let is_other = |byte: &u8| *byte != b' ';
            let start = match leading {
                true => bytes.iter().position(is_other).unwrap_or(bytes.len()),
                false => 0,
            };
            let end = match trailing {
                true => bytes.iter().rposition(is_other).map_or(start, |at| at + 1),
                false => bytes.len(),
            };
            out.write_str(&text[start..end])
        });
    }
    texts(call, |args, out| match args {
        [text, set] => out.write_str(cut(text, leading, trailing, |c| set.contains(c))),
        _ => Ok(()),
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
    written(call.rows, size(texts), |row, out| {
        if texts.is_null(row) || starts.is_null(row) || lengths.is_some_and(|l| l.is_null(row)) {
            return Ok(false);
        }
        let length = lengths.map_or(i32::MAX, |lengths| lengths.value(row));
        let part = substring(texts.value(row), starts.value(row).into(), length.into());
        out.write_str(part).map(|()| true)
    })
}

/// Positions count from 1, negative ones from the end; 0 is the begin too. What lies before the
/// begin counts towards the length.
fn substring(text: &str, position: i64, length: i64) -> &str {
    let start = match position {
        1.. => position - 1,
        0 => 0,
        _ => characters(text) as i64 + position,
    };
    let end = match length == i64::from(i32::MAX) {
        true => i64::MAX,
        false => start.saturating_add(length),
    };
    let (start, end) = (start.max(0), end.max(0));
    slice(text, start as usize, (end - start).max(0) as usize)
}

fn concat(call: &Call) -> Result<ArrayRef> {
    match call.args.first().map(|first| first.data_type()) {
        None => return Ok(Arc::new(StringArray::from(vec![""; call.rows]))),
        Some(DataType::List(_)) => return array::concat(call),
        Some(DataType::Binary) => return concat_bytes(call),
        Some(_) => {}
    }
    texts(call, |args, out| {
        args.iter().try_for_each(|part| out.write_str(part))
    })
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
    enum Parts<'a> {
        Texts(&'a StringArray),
        Lists(&'a ListArray, &'a StringArray),
    }
    let separators = call.text(0)?;
    let mut columns = Vec::with_capacity(call.args.len());
    for argument in &call.args[1..] {
        let lists = argument.as_list_opt::<i32>();
        let items = lists.and_then(|lists| lists.values().as_string_opt::<i32>());
        columns.push(match (argument.as_string_opt::<i32>(), lists.zip(items)) {
            (Some(texts), _) => Parts::Texts(texts),
            (None, Some((lists, items))) => Parts::Lists(lists, items),
            (None, None) if argument.data_type() == &DataType::Null => continue,
            (None, None) => return exec_err!("concat_ws of what is no text"),
        });
    }
    written(call.rows, 0, |row, out| {
        if separators.is_null(row) {
            return Ok(false);
        }
        let mut first = true;
        let mut add = |part: &str, out: &mut StringBuilder| {
            if !std::mem::take(&mut first) {
                out.write_str(separators.value(row))?;
            }
            out.write_str(part)
        };
        for column in &columns {
            match column {
                Parts::Texts(texts) if texts.is_valid(row) => add(texts.value(row), out)?,
                Parts::Lists(lists, items) if lists.is_valid(row) => {
                    let (from, to) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
                    for at in from as usize..to as usize {
                        if items.is_valid(at) {
                            add(items.value(at), out)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    })
}

fn translate(args: &[&str], out: &mut StringBuilder) -> std::fmt::Result {
    let [text, from, to] = args else {
        return Ok(());
    };
    for character in text.chars() {
        match from.chars().position(|found| found == character) {
            None => out.write_char(character)?,
            Some(at) => to
                .chars()
                .nth(at)
                .into_iter()
                .try_for_each(|c| out.write_char(c))?,
        }
    }
    Ok(())
}

fn split_part(call: &Call) -> Result<ArrayRef> {
    let (texts, marks, parts) = (call.text(0)?, call.text(1)?, call.typed::<Int32Array>(2)?);
    let rows = (0..call.rows).map(|row| {
        if texts.is_null(row) || marks.is_null(row) || parts.is_null(row) {
            return Ok(None);
        }
        let (text, mark, part) = (texts.value(row), marks.value(row), parts.value(row));
        let at = part.unsigned_abs() as usize;
        let found = match part {
            0 => return exec_err!("INVALID_INDEX_OF_ZERO: split_part counts from 1"),
            1 | -1 if mark.is_empty() => Some(text),
            _ if mark.is_empty() => None,
            1.. => text.split(mark).nth(at - 1),
            // Marks are found from the left also where the parts are counted from the right.
            _ => {
                let count = text.split(mark).count();
                let at = count.checked_sub(at);
                at.and_then(|at| text.split(mark).nth(at))
            }
        };
        Ok(Some(found.unwrap_or_default()))
    });
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

fn substring_index<'a>(text: &'a str, mark: &str, number: i32) -> &'a str {
    if mark.is_empty() || number == 0 {
        return "";
    }
    let wanted = number.unsigned_abs() as usize - 1;
    if number > 0 {
        match text.match_indices(mark).nth(wanted) {
            Some((at, _)) => &text[..at],
            None => text,
        }
    } else {
        match text.rmatch_indices(mark).nth(wanted) {
            Some((at, _)) => &text[at + mark.len()..],
            None => text,
        }
    }
}

/// Where `needle` is found in `text` from a position on, counted from 1; 0 if it is not.
fn position(needle: &str, text: &str, from: i32) -> i32 {
    if from < 1 {
        return 0;
    }
    let skipped = from as usize - 1;
    if skipped > characters(text) {
        return 0;
    }
    let rest = slice(text, skipped, usize::MAX);
    match rest.find(needle) {
        Some(at) => (skipped + characters(&rest[..at]) + 1) as i32,
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
    written(call.rows, size(texts), |row, out| {
        if texts.is_null(row) || widths.is_null(row) || fillings.is_some_and(|f| f.is_null(row)) {
            return Ok(false);
        }
        let (text, width) = (texts.value(row), widths.value(row).max(0) as usize);
        let filling = fillings.map_or(" ", |fillings| fillings.value(row));
        let missing = width.saturating_sub(characters(text));
        let mut fill = filling.chars().cycle().take(missing);
        if left {
            fill.try_for_each(|c| out.write_char(c))?;
            out.write_str(slice(text, 0, width))?;
        } else {
            out.write_str(slice(text, 0, width))?;
            fill.try_for_each(|c| out.write_char(c))?;
        }
        Ok(true)
    })
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
