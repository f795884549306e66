//! Casts of arrays, structs and maps: part by part, and to text.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, StringArray, StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::cast::{self, Target};
use super::types;

/// Whether Spark has a cast between two types of which one is nested at least.
pub(super) fn exists(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::List(one), DataType::List(other)) => {
            cast::exists(one.data_type(), other.data_type())
        }
        (DataType::Struct(one), DataType::Struct(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| cast::exists(one.data_type(), other.data_type()))
        }
        (DataType::Map(..), DataType::Map(..)) => {
            match (types::map_entry(from), types::map_entry(to)) {
                (Some(one), Some(other)) => {
                    cast::exists(&one.0, &other.0) && cast::exists(&one.1, &other.1)
                }
                _ => false,
            }
        }
        (DataType::List(field), DataType::Utf8) => cast::exists(field.data_type(), to),
        (DataType::Struct(fields), DataType::Utf8) => fields
            .iter()
            .all(|field| cast::exists(field.data_type(), to)),
        (DataType::Map(..), DataType::Utf8) => types::map_entry(from)
            .is_some_and(|(key, value)| cast::exists(&key, to) && cast::exists(&value, to)),
        _ => false,
    }
}

/// The part of `values` that a list array's rows lie in, and where they lie in it.
fn in_use(offsets: &OffsetBuffer<i32>, values: &ArrayRef) -> (OffsetBuffer<i32>, ArrayRef) {
    let first = offsets.first().copied().unwrap_or(0);
    let last = offsets.last().copied().unwrap_or(0);
    let moved: Vec<i32> = offsets.iter().map(|offset| offset - first).collect();
    let length = (last - first) as usize;
    (
        OffsetBuffer::new(moved.into()),
        values.slice(first as usize, length),
    )
}

/// Casts an array of nested values.
pub(super) fn cast(value: &ArrayRef, to: &DataType, target: Target) -> Result<ArrayRef> {
    if to == &DataType::Utf8 {
        return text(value, target);
    }
    match (value.data_type(), to) {
        (DataType::List(_), DataType::List(field)) => {
            let lists = value.as_list::<i32>();
            let (offsets, values) = in_use(lists.offsets(), lists.values());
            let values = cast::cast(&values, field.data_type(), target)?;
            let nulls = lists.nulls().cloned();
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(field),
                offsets,
                values,
                nulls,
            )?))
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let structs = value.as_struct();
            let columns = structs
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| cast::cast(column, field.data_type(), target))
                .collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                structs.nulls().cloned(),
                structs.len(),
            )?))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return exec_err!("a map was planned");
            };
            let maps = value.as_map();
            let (offsets, keys) = in_use(maps.offsets(), maps.keys());
            let (_, values) = in_use(maps.offsets(), maps.values());
            let columns = vec![
                cast::cast(&keys, fields[0].data_type(), target)?,
                cast::cast(&values, fields[1].data_type(), target)?,
            ];
            Ok(Arc::new(MapArray::try_new(
                Arc::clone(entries),
                offsets,
                StructArray::try_new(fields.clone(), columns, None)?,
                maps.nulls().cloned(),
                *sorted,
            )?))
        }
        (from, to) => exec_err!("cannot cast {} to {}", types::name(from), types::name(to)),
    }
}

fn shown(texts: &StringArray, row: usize) -> &str {
    match texts.is_valid(row) {
        true => texts.value(row),
        false => "null",
    }
}

/// `[1, null]`, `{1, a}` and `{k -> v}`.
fn text(value: &ArrayRef, target: Target) -> Result<ArrayRef> {
    let texts_of = |array: &ArrayRef| -> Result<StringArray> {
        Ok(cast::cast(array, &DataType::Utf8, target)?
            .as_string::<i32>()
            .clone())
    };
    let rows = 0..value.len();
    let texts: StringArray = match value.data_type() {
        DataType::List(_) => {
            let lists = value.as_list::<i32>();
            let (offsets, values) = in_use(lists.offsets(), lists.values());
            let items = texts_of(&values)?;
            rows.map(|row| {
                let slots = offsets[row] as usize..offsets[row + 1] as usize;
                let parts: Vec<&str> = slots.map(|at| shown(&items, at)).collect();
                lists
                    .is_valid(row)
                    .then(|| format!("[{}]", parts.join(", ")))
            })
            .collect()
        }
        DataType::Struct(_) => {
            let structs = value.as_struct();
            let columns = structs
                .columns()
                .iter()
                .map(texts_of)
                .collect::<Result<Vec<_>>>()?;
            rows.map(|row| {
                let parts: Vec<&str> = columns.iter().map(|column| shown(column, row)).collect();
                structs
                    .is_valid(row)
                    .then(|| format!("{{{}}}", parts.join(", ")))
            })
            .collect()
        }
        DataType::Map(..) => {
            let maps = value.as_map();
            let (offsets, keys) = in_use(maps.offsets(), maps.keys());
            let (_, values) = in_use(maps.offsets(), maps.values());
            let (keys, items) = (texts_of(&keys)?, texts_of(&values)?);
            rows.map(|row| {
                let slots = offsets[row] as usize..offsets[row + 1] as usize;
                let parts: Vec<String> = slots
                    .map(|at| format!("{} -> {}", shown(&keys, at), shown(&items, at)))
                    .collect();
                maps.is_valid(row)
                    .then(|| format!("{{{}}}", parts.join(", ")))
            })
            .collect()
        }
        other => return exec_err!("cannot cast {} to STRING", types::name(other)),
    };
    Ok(Arc::new(texts))
}
