//! Functions of maps. Keys are never null and never twice in one map; both are errors, as with
//! Spark's default for duplicates.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, ListArray, MapArray, MapBuilder, MapFieldNames, StringBuilder,
    StructArray, UInt64Array, make_comparator, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{cast as arrow_cast, interleave, take};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, exec_err, plan_err};

use super::floats::normalize;
use super::regex;
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::types::{self, list_of, map_of};

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "spark_map",
        params: Params::Custom(pairs),
        returns: Returns::Custom(|given, _| {
            let (keys, values) = common_pair(given)?;
            Ok(map_of(&keys, &values))
        }),
        evaluate: map,
    },
    Definition {
        name: "map_keys",
        params: Params::Custom(one_map),
        returns: Returns::Custom(|given, _| Ok(list_of(&entry(given)?.0))),
        evaluate: |call| part(call, |map| Arc::clone(map.keys())),
    },
    Definition {
        name: "map_values",
        params: Params::Custom(one_map),
        returns: Returns::Custom(|given, _| Ok(list_of(&entry(given)?.1))),
        evaluate: |call| part(call, |map| Arc::clone(map.values())),
    },
    Definition {
        name: "map_entries",
        params: Params::Custom(one_map),
        returns: Returns::Custom(|given, _| {
            let (key, value) = entry(given)?;
            let fields = vec![
                Field::new("key", key, false),
                Field::new("value", value, true),
            ];
            Ok(list_of(&DataType::Struct(fields.into())))
        }),
        evaluate: entries,
    },
    Definition {
        name: "map_from_arrays",
        params: Params::Custom(two_lists),
        returns: Returns::Custom(|given, _| match given {
            [DataType::List(keys), DataType::List(values)] => {
                Ok(map_of(keys.data_type(), values.data_type()))
            }
            _ => plan_err!("DATATYPE_MISMATCH: map_from_arrays takes two arrays"),
        }),
        evaluate: from_arrays,
    },
    Definition {
        name: "map_from_entries",
        params: Params::Custom(|given| {
            entry_fields(given)?;
            Ok(given.to_vec())
        }),
        returns: Returns::Custom(|given, _| {
            let (key, value) = entry_fields(given)?;
            Ok(map_of(&key, &value))
        }),
        evaluate: from_entries,
    },
    Definition {
        name: "map_concat",
        params: Params::Custom(like_maps),
        returns: Returns::Of(Param::Any),
        evaluate: concat,
    },
    Definition {
        name: "map_contains_key",
        params: Params::Custom(map_and_key),
        returns: Returns::Of(Param::Boolean),
        evaluate: contains_key,
    },
    Definition {
        name: "spark_map_get",
        params: Params::Custom(map_and_key),
        returns: Returns::Custom(|given, _| Ok(entry(given)?.1)),
        evaluate: value_of,
    },
    Definition {
        name: "str_to_map",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Text, Param::Text, Param::Text],
        },
        returns: Returns::Custom(|_, _| Ok(map_of(&DataType::Utf8, &DataType::Utf8))),
        evaluate: str_to_map,
    },
];

fn entry(given: &[DataType]) -> Result<(DataType, DataType)> {
    match given.first().and_then(types::map_entry) {
        Some(entry) => Ok(entry),
        None if given.first() == Some(&DataType::Null) => Ok((DataType::Null, DataType::Null)),
        None => plan_err!(
            "DATATYPE_MISMATCH: a MAP is needed, not {}",
            given.first().map_or_else(|| "nothing".into(), types::name)
        ),
    }
}

fn one_map(given: &[DataType]) -> Result<Vec<DataType>> {
    let (key, value) = entry(given)?;
    Ok(match given {
        [DataType::Null] => vec![map_of(&key, &value)],
        _ => given.to_vec(),
    })
}

fn meet(types_given: impl Iterator<Item = DataType>) -> Result<DataType> {
    let mut common = DataType::Null;
    for given in types_given {
        common = match types::common(&common, &given) {
            Some(found) => found,
            None => {
                return plan_err!(
                    "DATATYPE_MISMATCH: {} and {} can not be in one map",
                    types::name(&common),
                    types::name(&given)
                );
            }
        };
    }
    Ok(common)
}

fn common_pair(given: &[DataType]) -> Result<(DataType, DataType)> {
    if !given.len().is_multiple_of(2) {
        return plan_err!("WRONG_NUM_ARGS: map takes a value for each key");
    }
    Ok((
        meet(given.iter().step_by(2).cloned())?,
        meet(given.iter().skip(1).step_by(2).cloned())?,
    ))
}

fn pairs(given: &[DataType]) -> Result<Vec<DataType>> {
    let (key, value) = common_pair(given)?;
    Ok((0..given.len())
        .map(|index| match index % 2 {
            0 => key.clone(),
            _ => value.clone(),
        })
        .collect())
}

fn two_lists(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [DataType::List(_), DataType::List(_)] => Ok(given.to_vec()),
        [
            DataType::Null | DataType::List(_),
            DataType::Null | DataType::List(_),
        ] => {
            let list = |given: &DataType| match given {
                DataType::Null => list_of(&DataType::Null),
                other => other.clone(),
            };
            Ok(given.iter().map(list).collect())
        }
        _ => plan_err!("DATATYPE_MISMATCH: map_from_arrays takes two arrays"),
    }
}

fn entry_fields(given: &[DataType]) -> Result<(DataType, DataType)> {
    if let Some(DataType::List(field)) = given.first()
        && let DataType::Struct(fields) = field.data_type()
        && fields.len() == 2
    {
        return Ok((fields[0].data_type().clone(), fields[1].data_type().clone()));
    }
    plan_err!("DATATYPE_MISMATCH: map_from_entries takes an ARRAY of STRUCT of two fields")
}

fn like_maps(given: &[DataType]) -> Result<Vec<DataType>> {
    if given.contains(&DataType::Null) {
        return plan_err!("DATATYPE_MISMATCH: map_concat takes MAPs, not VOID");
    }
    let entries = given
        .iter()
        .map(|given| entry(std::slice::from_ref(given)))
        .collect::<Result<Vec<_>>>()?;
    let key = meet(entries.iter().map(|(key, _)| key.clone()))?;
    let value = meet(entries.iter().map(|(_, value)| value.clone()))?;
    Ok(vec![map_of(&key, &value); given.len()])
}

/// A map and a key of its type.
pub(super) fn map_and_key(given: &[DataType]) -> Result<Vec<DataType>> {
    let (key, value) = entry(given)?;
    let Some(wanted) = given.get(1) else {
        return plan_err!("WRONG_NUM_ARGS: a key is needed beside the map");
    };
    let text = |t: &DataType| types::plain_text(t) == DataType::Utf8;
    let common = match wanted != &DataType::Null && text(&key) == text(wanted) {
        true => types::common(&key, wanted),
        false => None,
    };
    match common {
        Some(common) if common == key => Ok(vec![given[0].clone(), key]),
        Some(common) => Ok(vec![map_of(&common, &value), common]),
        None => plan_err!(
            "DATATYPE_MISMATCH: {} is no key of {}",
            types::name(wanted),
            types::name(&given[0])
        ),
    }
}

fn range(offsets: &OffsetBuffer<i32>, row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}

/// Keys and values picked from some arrays, row after row.
struct Entries {
    picks: Vec<(usize, usize)>,
    offsets: Vec<i32>,
    valid: Vec<bool>,
}

impl Entries {
    fn new() -> Self {
        Self {
            picks: vec![],
            offsets: vec![0],
            valid: vec![],
        }
    }

    fn end(&mut self, valid: bool) {
        self.offsets.push(self.picks.len() as i32);
        self.valid.push(valid);
    }

    /// The maps whose entries are `picks` into both pools.
    fn finish(self, call: &Call, keys: &[ArrayRef], values: &[ArrayRef]) -> Result<ArrayRef> {
        let DataType::Map(field, _) = call.return_type else {
            return plan_err!("a map was planned");
        };
        let DataType::Struct(fields) = field.data_type() else {
            return plan_err!("a map was planned");
        };
        let gather = |pool: &[ArrayRef], to: &DataType| -> Result<ArrayRef> {
            if self.picks.is_empty() {
                return Ok(new_null_array(to, 0));
            }
            let pool = pool
                .iter()
                .map(|array| Ok(arrow_cast(array, to)?))
                .collect::<Result<Vec<_>>>()?;
            let pool: Vec<&dyn Array> = pool.iter().map(|array| array.as_ref()).collect();
            Ok(interleave(&pool, &self.picks)?)
        };
        let keys = gather(keys, fields[0].data_type())?;
        let values = gather(values, fields[1].data_type())?;
        let offsets = OffsetBuffer::new(self.offsets.into());
        unique_keys(&keys, &offsets)?;
        let entries = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
        Ok(Arc::new(MapArray::try_new(
            Arc::clone(field),
            offsets,
            entries,
            Some(NullBuffer::from(self.valid)),
            false,
        )?))
    }
}

/// Fails if a key is twice in one map, or null.
pub(super) fn unique_keys(keys: &ArrayRef, offsets: &OffsetBuffer<i32>) -> Result<()> {
    if keys.null_count() > 0 {
        return exec_err!("NULL_MAP_KEY: a key of a map is null");
    }
    let plain = normalize(keys, true);
    let compare = make_comparator(&plain, &plain, Default::default())?;
    for row in 0..offsets.len() - 1 {
        let slots = range(offsets, row);
        for at in slots.clone() {
            if (slots.start..at).any(|before| compare(before, at).is_eq()) {
                let key = datafusion::common::ScalarValue::try_from_array(keys, at)?;
                return exec_err!("DUPLICATED_MAP_KEY: the key {key} is twice in one map");
            }
        }
    }
    Ok(())
}

fn map(call: &Call) -> Result<ArrayRef> {
    let width = call.args.len() / 2;
    let mut entries = Entries::new();
    for row in 0..call.rows {
        entries.picks.extend((0..width).map(|index| (index, row)));
        entries.end(true);
    }
    let keys: Vec<ArrayRef> = call.args.iter().step_by(2).cloned().collect();
    let values: Vec<ArrayRef> = call.args.iter().skip(1).step_by(2).cloned().collect();
    entries.finish(call, &keys, &values)
}

fn part(call: &Call, pick: fn(&MapArray) -> ArrayRef) -> Result<ArrayRef> {
    let maps = call.typed::<MapArray>(0)?;
    let DataType::List(field) = call.return_type else {
        return plan_err!("an array was planned");
    };
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        maps.offsets().clone(),
        pick(maps),
        maps.nulls().cloned(),
    )?))
}

fn entries(call: &Call) -> Result<ArrayRef> {
    let maps = call.typed::<MapArray>(0)?;
    let DataType::List(field) = call.return_type else {
        return plan_err!("an array was planned");
    };
    let DataType::Struct(fields) = field.data_type() else {
        return plan_err!("an array of structs was planned");
    };
    let columns = vec![Arc::clone(maps.keys()), Arc::clone(maps.values())];
    let rows = StructArray::try_new(fields.clone(), columns, None)?;
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        maps.offsets().clone(),
        Arc::new(rows),
        maps.nulls().cloned(),
    )?))
}

fn from_arrays(call: &Call) -> Result<ArrayRef> {
    let (keys, values) = (call.typed::<ListArray>(0)?, call.typed::<ListArray>(1)?);
    let mut entries = Entries::new();
    let mut value_picks = vec![];
    for row in 0..call.rows {
        let valid = keys.is_valid(row) && values.is_valid(row);
        if valid {
            if keys.value_length(row) != values.value_length(row) {
                return exec_err!(
                    "INVALID_PARAMETER_VALUE: map_from_arrays of arrays of unlike length"
                );
            }
            entries
                .picks
                .extend(range(keys.offsets(), row).map(|at| (0, at)));
            value_picks.extend(range(values.offsets(), row).map(|at| at as u64));
        }
        entries.end(valid);
    }
    // The values are laid out like the keys, so that one pick serves both.
    let mut aligned: Vec<Option<u64>> = vec![None; keys.values().len()];
    for ((_, at), value) in entries.picks.iter().zip(value_picks) {
        aligned[*at] = Some(value);
    }
    let values = take(values.values(), &UInt64Array::from(aligned), None)?;
    entries.finish(call, &[Arc::clone(keys.values())], &[values])
}

fn from_entries(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let Some(rows) = lists.values().as_any().downcast_ref::<StructArray>() else {
        return exec_err!("an array of structs was planned");
    };
    let mut entries = Entries::new();
    for row in 0..call.rows {
        let slots = range(lists.offsets(), row);
        // A null entry makes the whole map null.
        let valid = lists.is_valid(row) && slots.clone().all(|at| rows.is_valid(at));
        if valid {
            entries.picks.extend(slots.map(|at| (0, at)));
        }
        entries.end(valid);
    }
    let (keys, values) = (Arc::clone(rows.column(0)), Arc::clone(rows.column(1)));
    entries.finish(call, &[keys], &[values])
}

fn concat(call: &Call) -> Result<ArrayRef> {
    let maps = (0..call.args.len())
        .map(|index| call.typed::<MapArray>(index))
        .collect::<Result<Vec<_>>>()?;
    let mut entries = Entries::new();
    for row in 0..call.rows {
        let valid = maps.iter().all(|map| map.is_valid(row));
        if valid {
            for (index, map) in maps.iter().enumerate() {
                let slots = range(map.offsets(), row);
                entries.picks.extend(slots.map(|at| (index, at)));
            }
        }
        entries.end(valid);
    }
    let keys: Vec<ArrayRef> = maps.iter().map(|map| Arc::clone(map.keys())).collect();
    let values: Vec<ArrayRef> = maps.iter().map(|map| Arc::clone(map.values())).collect();
    entries.finish(call, &keys, &values)
}

/// The slot of each row's key.
fn find(call: &Call) -> Result<Vec<Option<usize>>> {
    let maps = call.typed::<MapArray>(0)?;
    let wanted = &call.args[1];
    let (keys, plain) = (normalize(maps.keys(), true), normalize(wanted, true));
    let compare = make_comparator(&keys, &plain, Default::default())?;
    Ok((0..call.rows)
        .map(|row| {
            if maps.is_null(row) || wanted.is_null(row) {
                return None;
            }
            range(maps.offsets(), row).find(|at| compare(*at, row).is_eq())
        })
        .collect())
}

fn contains_key(call: &Call) -> Result<ArrayRef> {
    let maps = call.typed::<MapArray>(0)?;
    let found = find(call)?.into_iter().enumerate().map(|(row, slot)| {
        let known = maps.is_valid(row) && call.args[1].is_valid(row);
        known.then_some(slot.is_some())
    });
    Ok(Arc::new(found.collect::<BooleanArray>()))
}

/// The value of each row's key; null if there is none.
pub(super) fn value_of(call: &Call) -> Result<ArrayRef> {
    let maps = call.typed::<MapArray>(0)?;
    let slots = find(call)?.into_iter().map(|slot| slot.map(|at| at as u64));
    Ok(take(maps.values(), &slots.collect::<UInt64Array>(), None)?)
}

fn str_to_map(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let separator = |index: usize, default: &str, row: usize| -> Result<Option<String>> {
        match call.args.len() > index {
            false => Ok(Some(default.to_string())),
            true => {
                let given = call.text(index)?;
                Ok(given.is_valid(row).then(|| given.value(row).to_string()))
            }
        }
    };
    let names = MapFieldNames {
        entry: "entries".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for row in 0..call.rows {
        let (pairs, keys) = (separator(1, ",", row)?, separator(2, ":", row)?);
        let (Some(pairs), Some(keys), true) = (pairs, keys, texts.is_valid(row)) else {
            maps.append(false)?;
            continue;
        };
        let mut seen: Vec<String> = vec![];
        for pair in regex::split(texts.value(row), &pairs, -1)? {
            let mut parts = regex::split(&pair, &keys, 2)?.into_iter();
            let key = parts.next().unwrap_or_default();
            if seen.contains(&key) {
                return exec_err!("DUPLICATED_MAP_KEY: the key {key} is twice in one map");
            }
            maps.keys().append_value(&key);
            maps.values().append_option(parts.next());
            seen.push(key);
        }
        maps.append(true)?;
    }
    Ok(Arc::new(maps.finish()))
}
