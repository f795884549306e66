//! Functions of arrays.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListArray, StringArray, UInt64Array,
    make_comparator, new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{interleave, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};

use super::map;
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::types::{self, list_of};

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "spark_array",
        params: Params::Custom(elements),
        returns: Returns::Custom(|given, _| {
            Ok(list_of(elements(given)?.first().unwrap_or(&DataType::Null)))
        }),
        evaluate: array,
    },
    Definition {
        name: "spark_get_item",
        params: Params::Custom(list_and_index),
        returns: Returns::Custom(element_type),
        evaluate: |call| pick(call, Access::Item),
    },
    Definition {
        name: "spark_get",
        params: Params::Custom(list_and_index),
        returns: Returns::Custom(element_type),
        evaluate: |call| pick(call, Access::ItemOrNull),
    },
    Definition {
        name: "element_at",
        params: Params::Custom(list_and_index),
        returns: Returns::Custom(element_type),
        evaluate: |call| pick(call, Access::FromOne),
    },
    Definition {
        name: "try_element_at",
        params: Params::Custom(list_and_index),
        returns: Returns::Custom(element_type),
        evaluate: |call| pick(call, Access::FromOneOrNull),
    },
    Definition {
        name: "array_contains",
        params: Params::Custom(list_and_element),
        returns: Returns::Of(Param::Boolean),
        evaluate: array_contains,
    },
    Definition {
        name: "array_join",
        params: Params::Custom(join_params),
        returns: Returns::Of(Param::Text),
        evaluate: array_join,
    },
    Definition {
        name: "size",
        params: Params::Custom(size_params),
        returns: Returns::Of(Param::Int),
        evaluate: size,
    },
];

/// All elements of one type.
fn elements(given: &[DataType]) -> Result<Vec<DataType>> {
    let mut common = DataType::Null;
    for given in given {
        let given = types::plain_text(given);
        common = match types::common(&common, &given) {
            Some(found) => found,
            None => {
                return plan_err!(
                    "DATATYPE_MISMATCH: {} and {} can not be in one array",
                    types::name(&common),
                    types::name(&given)
                );
            }
        };
    }
    Ok(vec![common; given.len()])
}

fn element<'a>(given: &'a [DataType], what: &str) -> Result<&'a DataType> {
    match given.first() {
        Some(DataType::List(field)) => Ok(field.data_type()),
        Some(other) => plan_err!(
            "DATATYPE_MISMATCH: {what} of {} is not available",
            types::name(other)
        ),
        None => plan_err!("an array is needed"),
    }
}

fn element_type(given: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    match given.first() {
        Some(map @ DataType::Map(..)) => match types::map_entry(map) {
            Some((_, value)) => Ok(value),
            None => plan_err!("a map without a value"),
        },
        Some(DataType::Struct(fields)) => {
            let name = literals
                .get(1)
                .copied()
                .flatten()
                .and_then(|value| value.try_as_str().flatten());
            match name.and_then(|name| fields.iter().find(|field| field.name() == name)) {
                Some(field) => Ok(field.data_type().clone()),
                None => plan_err!(
                    "FIELD_NOT_FOUND: {} has no field {}",
                    types::name(&given[0]),
                    name.unwrap_or("of that name")
                ),
            }
        }
        _ => element(given, "an element").cloned(),
    }
}

fn list_and_index(given: &[DataType]) -> Result<Vec<DataType>> {
    match given.first() {
        Some(DataType::Map(..)) => return map::map_and_key(given),
        Some(DataType::Struct(_)) => return Ok(given.to_vec()),
        _ => {}
    }
    element(given, "an element")?;
    match given {
        [
            list,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Null,
        ] => Ok(vec![list.clone(), DataType::Int32]),
        _ => plan_err!("DATATYPE_MISMATCH: an element is found by an INT"),
    }
}

fn list_and_element(given: &[DataType]) -> Result<Vec<DataType>> {
    let wanted = element(given, "array_contains")?;
    match given {
        [_, value] if wanted == &DataType::Null => Ok(vec![list_of(value), value.clone()]),
        [list, value] => match types::common(wanted, value) {
            Some(common) if types::is_atomic(&common) && &common == wanted => {
                Ok(vec![list.clone(), common])
            }
            Some(common) if types::is_number(&common) && types::is_number(wanted) => {
                Ok(vec![list_of(&common), common])
            }
            _ => plan_err!(
                "DATATYPE_MISMATCH: {} in {}",
                types::name(value),
                types::name(list)
            ),
        },
        _ => plan_err!("array_contains takes two arguments"),
    }
}

fn join_params(given: &[DataType]) -> Result<Vec<DataType>> {
    if !types::is_atomic(element(given, "array_join")?) {
        return plan_err!("DATATYPE_MISMATCH: array_join takes an array of STRING");
    }
    let texts = given.iter().skip(1).map(|_| DataType::Utf8);
    Ok(std::iter::once(list_of(&DataType::Utf8))
        .chain(texts)
        .collect())
}

fn size_params(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [DataType::Map(..)] => return Ok(given.to_vec()),
        [DataType::Null] => return Ok(vec![list_of(&DataType::Null)]),
        _ => {}
    }
    element(given, "size")?;
    Ok(given.to_vec())
}

fn array(call: &Call) -> Result<ArrayRef> {
    let width = call.args.len();
    let DataType::List(field) = call.return_type else {
        return plan_err!("an array was planned");
    };
    let values = if width == 0 {
        new_null_array(field.data_type(), 0)
    } else {
        let arrays: Vec<&dyn Array> = call.args.iter().map(|array| array.as_ref()).collect();
        let picks: Vec<(usize, usize)> = (0..call.rows)
            .flat_map(|row| (0..width).map(move |index| (index, row)))
            .collect();
        interleave(&arrays, &picks)?
    };
    let offsets = OffsetBuffer::from_repeated_length(width, call.rows);
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        offsets,
        values,
        None,
    )?))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Item,
    ItemOrNull,
    FromOne,
    FromOneOrNull,
}

fn pick(call: &Call, access: Access) -> Result<ArrayRef> {
    if matches!(call.args[0].data_type(), DataType::Map(..)) {
        return map::value_of(call);
    }
    if let Some(structs) = call.args[0].as_struct_opt() {
        let name = call.text(1)?;
        let found = match name.is_empty() {
            false => structs.column_by_name(name.value(0)),
            true => None,
        };
        return match found {
            Some(column) => {
                let set = (0..structs.len()).map(|row| structs.is_valid(row).then_some(row as u64));
                Ok(take(column, &set.collect::<UInt64Array>(), None)?)
            }
            None => Ok(new_null_array(call.return_type, call.rows)),
        };
    }
    let lists = call.typed::<ListArray>(0)?;
    let indices = call.typed::<Int32Array>(1)?;
    let picks = (0..call.rows).map(|row| {
        if lists.is_null(row) || indices.is_null(row) {
            return Ok(None);
        }
        let (start, length) = (
            i64::from(lists.value_offsets()[row]),
            i64::from(lists.value_length(row)),
        );
        let index = i64::from(indices.value(row));
        let from_zero = match access {
            Access::Item | Access::ItemOrNull => index,
            Access::FromOne | Access::FromOneOrNull if index == 0 => {
                return exec_err!("INVALID_INDEX_OF_ZERO: element_at counts from 1");
            }
            Access::FromOne | Access::FromOneOrNull if index < 0 => length + index,
            Access::FromOne | Access::FromOneOrNull => index - 1,
        };
        if (0..length).contains(&from_zero) {
            return Ok(Some((start + from_zero) as u64));
        }
        match access {
            Access::ItemOrNull | Access::FromOneOrNull => Ok(None),
            _ => exec_err!(
                "INVALID_ARRAY_INDEX: the index {index} is outside an array of {length} elements"
            ),
        }
    });
    let picks = picks.collect::<Result<UInt64Array>>()?;
    Ok(take(lists.values(), &picks, None)?)
}

fn array_contains(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let wanted = &call.args[1];
    let values = lists.values();
    let compare = make_comparator(values, wanted, Default::default())?;
    let found = (0..call.rows).map(|row| {
        if lists.is_null(row) || wanted.is_null(row) {
            return None;
        }
        let start = lists.value_offsets()[row] as usize;
        let range = start..start + lists.value_length(row) as usize;
        let mut has_null = false;
        for at in range {
            if values.is_null(at) {
                has_null = true;
            } else if compare(at, row).is_eq() {
                return Some(true);
            }
        }
        (!has_null).then_some(false)
    });
    Ok(Arc::new(found.collect::<BooleanArray>()))
}

fn array_join(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let separators = call.text(1)?;
    let fillings = match call.args.len() {
        3 => Some(call.text(2)?),
        _ => None,
    };
    let rows = (0..call.rows).map(|row| {
        if lists.is_null(row) || separators.is_null(row) || fillings.is_some_and(|f| f.is_null(row))
        {
            return None;
        }
        let filling = fillings.map(|fillings| fillings.value(row));
        let items = lists.value(row);
        let items = items
            .as_string::<i32>()
            .iter()
            .filter_map(|item| item.or(filling));
        Some(items.collect::<Vec<_>>().join(separators.value(row)))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn size(call: &Call) -> Result<ArrayRef> {
    if let Some(maps) = call.args[0].as_map_opt() {
        let sizes = (0..call.rows).map(|row| maps.is_valid(row).then(|| maps.value_length(row)));
        return Ok(Arc::new(sizes.collect::<Int32Array>()));
    }
    let lists = call.typed::<ListArray>(0)?;
    let sizes = (0..call.rows).map(|row| lists.is_valid(row).then(|| lists.value_length(row)));
    Ok(Arc::new(sizes.collect::<Int32Array>()))
}
