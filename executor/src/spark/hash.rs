//! Spark's hash functions `hash` (Murmur3) and `xxhash64`, both with seed 42, over the columns one
//! after the other: the hash of one is the seed of the next, and a null leaves it as it is.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int32Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_err};

use super::scalar::{Call, Definition, Param, Params, Returns};
use super::types;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "hash",
        params: Params::Custom(hashable),
        returns: Returns::Of(Param::Int),
        evaluate: |call| {
            let hashes = hashed(call, 42_u32, murmur3)?;
            Ok(Arc::new(
                hashes
                    .into_iter()
                    .map(|hash| hash as i32)
                    .collect::<Int32Array>(),
            ))
        },
    },
    Definition {
        name: "xxhash64",
        params: Params::Custom(hashable),
        returns: Returns::Of(Param::Long),
        evaluate: |call| {
            let hashes = hashed(call, 42_u64, xxhash64)?;
            Ok(Arc::new(
                hashes
                    .into_iter()
                    .map(|hash| hash as i64)
                    .collect::<Int64Array>(),
            ))
        },
    },
];

fn hashable(given: &[DataType]) -> Result<Vec<DataType>> {
    let plain = given.iter().map(types::plain_text);
    plain
        .map(|given| match given {
            given if types::is_atomic(&given) => Ok(given),
            other => plan_err!(
                "DATATYPE_MISMATCH: a hash of {} is not available",
                types::name(&other)
            ),
        })
        .collect()
}

/// A value as the hash functions see it.
enum Input<'a> {
    Int(i32),
    Long(i64),
    Bytes(&'a [u8]),
}

/// Gives the inputs of a row, one after the other.
type Inputs<'a> = dyn Fn(usize, &mut dyn FnMut(Input)) + 'a;

fn hashed<H: Copy>(call: &Call, seed: H, hash: fn(Input, H) -> H) -> Result<Vec<H>> {
    let mut hashes = vec![seed; call.rows];
    for array in call.args {
        let mut visit = |inputs: &Inputs<'_>| {
            for (row, state) in hashes.iter_mut().enumerate() {
                if array.is_valid(row) {
                    inputs(row, &mut |input| *state = hash(input, *state));
                }
            }
        };
        match array.data_type() {
            DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::Int32 => {
                let ints = cast(array, &DataType::Int32)?;
                let ints = ints.as_primitive::<Int32Type>();
                visit(&|row, hash| hash(Input::Int(ints.value(row))));
            }
            DataType::Date32 => {
                let days = array.as_primitive::<Date32Type>();
                visit(&|row, hash| hash(Input::Int(days.value(row))));
            }
            DataType::Int64 => {
                let longs = array.as_primitive::<Int64Type>();
                visit(&|row, hash| hash(Input::Long(longs.value(row))));
            }
            DataType::Timestamp(..) => {
                let micros = array.as_primitive::<TimestampMicrosecondType>();
                visit(&|row, hash| hash(Input::Long(micros.value(row))));
            }
            DataType::Float32 => {
                let floats = array.as_primitive::<Float32Type>();
                visit(&|row, hash| {
                    let value = floats.value(row);
                    let value = if value.is_nan() {
                        f32::NAN
                    } else {
                        value + 0.0
                    };
                    hash(Input::Int(value.to_bits() as i32));
                });
            }
            DataType::Float64 => {
                let floats = array.as_primitive::<Float64Type>();
                visit(&|row, hash| {
                    let value = floats.value(row);
                    let value = if value.is_nan() {
                        f64::NAN
                    } else {
                        value + 0.0
                    };
                    hash(Input::Long(value.to_bits() as i64));
                });
            }
            DataType::Decimal128(precision, _) => {
                let decimals = array.as_primitive::<Decimal128Type>();
                let small = *precision <= 18;
                visit(&|row, hash| match small {
                    true => hash(Input::Long(decimals.value(row) as i64)),
                    false => hash(Input::Bytes(shortest(&decimals.value(row).to_be_bytes()))),
                });
            }
            DataType::Utf8 => {
                let texts = array.as_string::<i32>();
                visit(&|row, hash| hash(Input::Bytes(texts.value(row).as_bytes())));
            }
            DataType::Binary => {
                let bytes = array.as_binary::<i32>();
                visit(&|row, hash| hash(Input::Bytes(bytes.value(row))));
            }
            DataType::Null => {}
            other => return plan_err!("DATATYPE_MISMATCH: a hash of {other} is not available"),
        }
    }
    Ok(hashes)
}

/// The fewest big-endian bytes that still show the sign.
fn shortest(bytes: &[u8; 16]) -> &[u8] {
    let filling = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
    let mut start = 0;
    while start < 15 && bytes[start] == filling && (bytes[start + 1] ^ filling) & 0x80 == 0 {
        start += 1;
    }
    &bytes[start..]
}

fn murmur3(input: Input, seed: u32) -> u32 {
    let mix = |hash: u32, word: u32| {
        let word = word
            .wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593);
        (hash ^ word)
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64)
    };
    let finish = |hash: u32, length: u32| {
        let mut hash = hash ^ length;
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        hash ^ (hash >> 16)
    };
    match input {
        Input::Int(value) => finish(mix(seed, value as u32), 4),
        Input::Long(value) => {
            let low = mix(seed, value as u32);
            finish(mix(low, (value >> 32) as u32), 8)
        }
        Input::Bytes(bytes) => {
            let (words, rest) = bytes.as_chunks::<4>();
            let hash = words
                .iter()
                .fold(seed, |hash, word| mix(hash, u32::from_le_bytes(*word)));
            // Spark mixes each byte that is left over as a signed word of its own.
            let hash = rest
                .iter()
                .fold(hash, |hash, byte| mix(hash, i32::from(*byte as i8) as u32));
            finish(hash, bytes.len() as u32)
        }
    }
}

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

fn xxhash64(input: Input, seed: u64) -> u64 {
    let finish = |hash: u64| {
        let hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
        let hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
        hash ^ (hash >> 32)
    };
    let round = |hash: u64, word: u64| {
        hash.wrapping_add(word.wrapping_mul(P2))
            .rotate_left(31)
            .wrapping_mul(P1)
    };
    let eight = |hash: u64, word: u64| {
        (hash ^ round(0, word))
            .rotate_left(27)
            .wrapping_mul(P1)
            .wrapping_add(P4)
    };
    let four = |hash: u64, word: u32| {
        (hash ^ u64::from(word).wrapping_mul(P1))
            .rotate_left(23)
            .wrapping_mul(P2)
            .wrapping_add(P3)
    };
    let start = |length: u64| seed.wrapping_add(P5).wrapping_add(length);
    match input {
        Input::Int(value) => finish(four(start(4), value as u32)),
        Input::Long(value) => finish(eight(start(8), value as u64)),
        Input::Bytes(bytes) => {
            let (blocks, rest) = bytes.as_chunks::<32>();
            let mut hash = if blocks.is_empty() {
                seed.wrapping_add(P5)
            } else {
                let mut lanes = [
                    seed.wrapping_add(P1).wrapping_add(P2),
                    seed.wrapping_add(P2),
                    seed,
                    seed.wrapping_sub(P1),
                ];
                for block in blocks {
                    let (words, _) = block.as_chunks::<8>();
                    for (lane, word) in lanes.iter_mut().zip(words) {
                        *lane = round(*lane, u64::from_le_bytes(*word));
                    }
                }
                let [a, b, c, d] = lanes;
                let joined = a
                    .rotate_left(1)
                    .wrapping_add(b.rotate_left(7))
                    .wrapping_add(c.rotate_left(12))
                    .wrapping_add(d.rotate_left(18));
                lanes.iter().fold(joined, |hash, lane| {
                    (hash ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4)
                })
            };
            hash = hash.wrapping_add(bytes.len() as u64);
            let (words, rest) = rest.as_chunks::<8>();
            hash = words
                .iter()
                .fold(hash, |hash, word| eight(hash, u64::from_le_bytes(*word)));
            let (words, rest) = rest.as_chunks::<4>();
            hash = words
                .iter()
                .fold(hash, |hash, word| four(hash, u32::from_le_bytes(*word)));
            hash = rest.iter().fold(hash, |hash, byte| {
                (hash ^ u64::from(*byte).wrapping_mul(P5))
                    .rotate_left(11)
                    .wrapping_mul(P1)
            });
            finish(hash)
        }
    }
}
