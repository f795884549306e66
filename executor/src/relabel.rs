//! Nested columns of a column-mapped table: the same values under their logical field names.
//!
//! Structs inside the files carry physical names at every depth; nothing is copied, only the types
//! are written anew.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, make_array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::convert::{Convert, function};

/// `column` itself when its type is the wanted one already, else a view of it with `to`'s type.
pub(crate) fn relabel(
    column: Arc<dyn PhysicalExpr>,
    from: &Field,
    to: &FieldRef,
) -> Arc<dyn PhysicalExpr> {
    if from.data_type() == to.data_type() {
        return column;
    }
    let to_type = to.data_type().clone();
    let function = Arc::new(function(Relabel { to: to_type }));
    Arc::new(ScalarFunctionExpr::new(
        "relabel",
        function,
        vec![column],
        to.clone(),
        Arc::new(datafusion::config::ConfigOptions::default()),
    ))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relabel {
    pub(crate) to: DataType,
}

impl Convert for Relabel {
    const NAME: &str = "__windrow_relabel";

    fn to(&self) -> &DataType {
        &self.to
    }

    fn convert(&self, array: &ArrayRef) -> Result<ArrayRef> {
        with_type(array, &self.to)
    }
}

/// Rebuilds `array` under a type of the same shape.
fn with_type(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let data = array.to_data();
    let children: Vec<DataType> = match to {
        DataType::Struct(fields) => fields.iter().map(|f| f.data_type().clone()).collect(),
        DataType::List(f) | DataType::Map(f, _) => vec![f.data_type().clone()],
        _ => Vec::new(),
    };
    let child_data = data
        .child_data()
        .iter()
        .zip(&children)
        .map(|(child, to)| Ok(with_type(&make_array(child.clone()), to)?.to_data()))
        .collect::<Result<Vec<_>>>()?;
    let data = data
        .into_builder()
        .data_type(to.clone())
        .child_data(child_data)
        .build()?;
    Ok(make_array(data))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array, ListArray, StructArray};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn names_change_at_every_depth_and_values_stay() {
        let inner =
            |name: &str| DataType::Struct(vec![Field::new(name, DataType::Int64, true)].into());
        let list = |name: &str| DataType::List(Arc::new(Field::new("element", inner(name), true)));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let DataType::Struct(fields) = inner("col-1") else {
            unreachable!()
        };
        let structs = StructArray::new(fields, vec![numbers], None);
        let DataType::List(field) = list("col-1") else {
            unreachable!()
        };
        let lists: ArrayRef = Arc::new(ListArray::new(
            field,
            OffsetBuffer::from_lengths([2, 1]),
            Arc::new(structs),
            None,
        ));
        let renamed = with_type(&lists, &list("a")).unwrap();
        assert_eq!(renamed.data_type(), &list("a"));
        let second = renamed.as_list::<i32>().value(1);
        assert_eq!(
            second
                .as_struct()
                .column(0)
                .as_primitive::<Int64Type>()
                .value(0),
            3
        );
    }
}
