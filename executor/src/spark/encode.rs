//! Bytes and texts: character sets, hexadecimal and base 64.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::scalar::{Call, Definition, Param, Params, Returns, function};
use super::types;

pub(super) static FUNCTIONS: &[Definition] = &[
    function!("unbase64", [Text], Binary, |call| to_bytes(call, |text| {
        match from_base64(text) {
            Some(bytes) => Ok(bytes),
            None => exec_err!("CONVERSION_INVALID_INPUT: '{text}' is no text in base 64"),
        }
    })),
    function!("unhex", [Text], Binary, |call| {
        let texts = call.text(0)?;
        let mut bytes = BinaryBuilder::new();
        for text in texts {
            bytes.append_option(text.and_then(from_hex));
        }
        Ok(Arc::new(bytes.finish()))
    }),
    function!("encode", [Text, Text], Binary, encode),
    function!("decode", [Binary, Text], Text, decode),
    Definition {
        name: "typeof",
        params: Params::Custom(|given| Ok(given.to_vec())),
        returns: Returns::Of(Param::Text),
        evaluate: |call| {
            let name = types::simple_string(call.args[0].data_type());
            Ok(Arc::new(StringArray::from(vec![name; call.rows])))
        },
    },
    function!("is_valid_utf8", [Text], Boolean, |call| {
        // Text is always valid here.
        let texts = call.text(0)?;
        let valid = texts.iter().map(|text| text.map(|_| true));
        Ok(Arc::new(valid.collect::<BooleanArray>()))
    }),
    function!("make_valid_utf8", [Text], Text, |call| Ok(Arc::clone(
        &call.args[0]
    ))),
    function!("url_encode", [Text], Text, |call| {
        let texts = call.text(0)?.iter().map(|text| text.map(url_encoded));
        Ok(Arc::new(texts.collect::<StringArray>()))
    }),
    function!("url_decode", [Text], Text, |call| {
        let texts = call.text(0)?.iter().map(|text| {
            let Some(text) = text else { return Ok(None) };
            match url_decoded(text) {
                Some(decoded) => Ok(Some(decoded)),
                None => exec_err!("CANNOT_DECODE_URL: '{text}' can not be decoded"),
            }
        });
        Ok(Arc::new(texts.collect::<Result<StringArray>>()?))
    }),
    function!("try_url_decode", [Text], Text, |call| {
        let texts = call.text(0)?.iter().map(|text| url_decoded(text?));
        Ok(Arc::new(texts.collect::<StringArray>()))
    }),
];

fn to_bytes(call: &Call, convert: impl Fn(&str) -> Result<Vec<u8>>) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let mut bytes = BinaryBuilder::new();
    for text in texts {
        bytes.append_option(text.map(&convert).transpose()?);
    }
    Ok(Arc::new(bytes.finish()))
}

/// The bytes of a text in base 64; other signs are passed over.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let value = |c: u8| {
        Some(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    let signs: Vec<u8> = text
        .bytes()
        .filter(|c| value(*c).is_some() || *c == b'=')
        .collect();
    let padding = signs.iter().rev().take_while(|c| **c == b'=').count();
    let digits = &signs[..signs.len() - padding];
    if padding > 2 || digits.len() % 4 == 1 || (padding > 0 && !signs.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut held, mut bits) = (0_u32, 0);
    for digit in digits {
        held = held << 6 | u32::from(value(*digit)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

/// The bytes of hexadecimal digits; an odd one stands before all pairs.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text
        .chars()
        .map(|digit| digit.to_digit(16))
        .collect::<Option<Vec<u32>>>()?;
    let (odd, pairs) = digits.split_at(digits.len() % 2);
    let mut bytes: Vec<u8> = odd.iter().map(|digit| *digit as u8).collect();
    bytes.extend(pairs.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8));
    Some(bytes)
}

#[derive(Clone, Copy)]
enum Charset {
    Utf8,
    Ascii,
    Latin1,
    /// Two bytes a unit, perhaps after a mark of their order.
    Utf16 {
        big: bool,
        mark: bool,
    },
}

fn charset(name: &str) -> Result<Charset> {
    Ok(match name.to_uppercase().as_str() {
        "UTF-8" => Charset::Utf8,
        "US-ASCII" => Charset::Ascii,
        "ISO-8859-1" => Charset::Latin1,
        "UTF-16BE" => Charset::Utf16 {
            big: true,
            mark: false,
        },
        "UTF-16LE" => Charset::Utf16 {
            big: false,
            mark: false,
        },
        "UTF-16" => Charset::Utf16 {
            big: true,
            mark: true,
        },
        _ => {
            return exec_err!(
                "INVALID_PARAMETER_VALUE.CHARSET: there is no character set '{name}'; UTF-8, US-ASCII, ISO-8859-1 and UTF-16 are known"
            );
        }
    })
}

fn encode(call: &Call) -> Result<ArrayRef> {
    let (texts, names) = (call.text(0)?, call.text(1)?);
    let mut bytes = BinaryBuilder::new();
    for (text, name) in texts.iter().zip(names.iter()) {
        let (Some(text), Some(name)) = (text, name) else {
            bytes.append_null();
            continue;
        };
        let encoded: Option<Vec<u8>> = match charset(name)? {
            Charset::Utf8 => Some(text.as_bytes().to_vec()),
            Charset::Ascii => text.is_ascii().then(|| text.as_bytes().to_vec()),
            Charset::Latin1 => text.chars().map(|c| u8::try_from(c as u32).ok()).collect(),
            Charset::Utf16 { big, mark } => {
                let units = mark
                    .then_some(0xFEFF)
                    .into_iter()
                    .chain(text.encode_utf16());
                Some(
                    units
                        .flat_map(|unit: u16| match big {
                            true => unit.to_be_bytes(),
                            false => unit.to_le_bytes(),
                        })
                        .collect(),
                )
            }
        };
        match encoded {
            Some(encoded) => bytes.append_value(encoded),
            None => {
                return exec_err!(
                    "MALFORMED_CHARACTER_CODING: '{text}' can not be written in {name}"
                );
            }
        }
    }
    Ok(Arc::new(bytes.finish()))
}

fn decode(call: &Call) -> Result<ArrayRef> {
    let (values, names) = (call.typed::<BinaryArray>(0)?, call.text(1)?);
    let mut texts = StringBuilder::new();
    for row in 0..call.rows {
        if values.is_null(row) || names.is_null(row) {
            texts.append_null();
            continue;
        }
        let (bytes, name) = (values.value(row), names.value(row));
        let decoded = match charset(name)? {
            Charset::Utf8 => std::str::from_utf8(bytes).ok().map(str::to_string),
            Charset::Ascii => bytes
                .is_ascii()
                .then(|| bytes.iter().map(|byte| char::from(*byte)).collect()),
            Charset::Latin1 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
            Charset::Utf16 { big, mark } => from_utf16(bytes, big, mark),
        };
        match decoded {
            Some(decoded) => texts.append_value(decoded),
            None => {
                return exec_err!("MALFORMED_CHARACTER_CODING: the bytes are no text in {name}");
            }
        }
    }
    Ok(Arc::new(texts.finish()))
}

fn from_utf16(bytes: &[u8], big: bool, mark: bool) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let (big, pairs) = match (mark, pairs.first()) {
        (true, Some([0xFE, 0xFF])) => (true, &pairs[1..]),
        (true, Some([0xFF, 0xFE])) => (false, &pairs[1..]),
        _ => (big, pairs),
    };
    let units: Vec<u16> = pairs
        .iter()
        .map(|pair| match big {
            true => u16::from_be_bytes(*pair),
            false => u16::from_le_bytes(*pair),
        })
        .collect();
    rest.is_empty()
        .then(|| String::from_utf16(&units).ok())
        .flatten()
}

fn url_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

fn url_decoded(text: &str) -> Option<String> {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            (b'%', [high, low, behind @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                rest = behind;
            }
            (b'%', _) => return None,
            (other, _) => {
                bytes.push(*other);
                rest = tail;
            }
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Standard base 64 with padding.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let held = chunk
            .iter()
            .fold(0_u32, |held, byte| held << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for position in 0..4 {
            match position <= chunk.len() {
                true => {
                    let sign = SIGNS[(held >> (18 - 6 * position) & 63) as usize];
                    out.push(char::from(sign));
                }
                false => out.push('='),
            }
        }
    }
    out
}

/// The bytes of a binary column's row.
pub(super) fn bytes_of(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(row)),
        _ => None,
    }
}
