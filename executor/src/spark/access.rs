//! Fields by name of what is no struct: `list.field` is the list of the fields, `map.key` the value.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::{Expr, lit};

use super::{functions, types};

/// Plans `a.b.c` where a part of it is no struct; others are left to DataFusion.
#[derive(Debug)]
pub struct FieldAccess;

/// The type of a field, and whether it is one of a struct.
pub(super) fn field_type(of: &DataType, name: &str) -> Option<(DataType, bool)> {
    match of {
        DataType::Struct(fields) => {
            let field = fields.iter().find(|field| field.name() == name)?;
            Some((field.data_type().clone(), true))
        }
        DataType::List(element) => {
            let (inner, in_struct) = field_type(element.data_type(), name)?;
            in_struct.then(|| (types::list_of(&inner), false))
        }
        DataType::Map(..) => Some((types::map_entry(of)?.1, false)),
        _ => None,
    }
}

impl ExprPlanner for FieldAccess {
    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let mut data_type = field.data_type().clone();
        let mut plain = true;
        for name in nested_names {
            let Some((inner, in_struct)) = field_type(&data_type, name) else {
                return Ok(PlannerResult::Original(vec![]));
            };
            plain &= in_struct;
            data_type = inner;
        }
        if plain {
            return Ok(PlannerResult::Original(vec![]));
        }
        let column = Expr::Column(Column::from((qualifier, field)));
        let access = |value: Expr, name: &String| {
            functions::call("spark_field", vec![value, lit(name.clone())])
        };
        Ok(PlannerResult::Planned(
            nested_names.iter().fold(column, access),
        ))
    }
}
