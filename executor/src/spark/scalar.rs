//! The frame of Windrow's own scalar functions: a static table entry says what a function is
//! called, what arguments it takes and how it is computed over arrays.
//!
//! A function holds no state, so that it can be found by name on every executor. Which arguments
//! are converted to which types is said here; how they are converted (with Spark's casts) is done
//! by the analyzer rule in `rules`.

use std::hash::{Hash, Hasher};

use datafusion::arrow::array::{Array, ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{interval, types};

/// What an argument may be, and what it is converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Param {
    Text,
    Date,
    Instant,
    LocalTime,
    Int,
    Long,
    Double,
    Boolean,
    Binary,
    /// Taken as it is.
    Any,
}

/// The parameters of a function.
#[derive(Debug, Clone, Copy)]
pub(super) enum Params {
    /// These, of which the last ones may be left out.
    Fixed { least: usize, all: &'static [Param] },
    /// These two, for a function that takes a constant beside rows as an array of one row.
    Two(&'static [Param; 2]),
    /// Decided by the function itself.
    Custom(fn(&[DataType]) -> Result<Vec<DataType>>),
    /// The same, for a function that takes constants as [`Self::Two`] does.
    Operands(fn(&[DataType]) -> Result<Vec<DataType>>),
}

/// How the type of the result follows from those of the (converted) arguments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Returns {
    /// This type; with [`Param::Any`] that of the first argument.
    Of(Param),
    Custom(fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>),
}

/// A table entry whose parameters are all there, or of which the last ones may be left out.
macro_rules! function {
    ($name:literal, [$($param:ident),*], $returns:ident, $evaluate:expr) => {
        function!($name, [$(Param::$param),*].len(), [$($param),*], $returns, $evaluate)
    };
    ($name:literal, $least:expr, [$($param:ident),*], $returns:ident, $evaluate:expr) => {
        Definition {
            name: $name,
            params: Params::Fixed { least: $least, all: &[$(Param::$param),*] },
            returns: Returns::Of(Param::$returns),
            evaluate: $evaluate,
        }
    };
}
pub(super) use function;

/// One call over a batch.
pub(super) struct Call<'a> {
    pub args: &'a [ArrayRef],
    pub rows: usize,
    pub return_type: &'a DataType,
    /// What the arguments are called, for messages.
    fields: &'a [FieldRef],
    /// Which arguments are one value, repeated for all rows.
    constants: Vec<bool>,
}

impl Call<'_> {
    /// A text argument.
    pub(super) fn text(&self, index: usize) -> Result<&StringArray> {
        self.typed(index)
    }

    /// An argument as an array of one type.
    pub(super) fn typed<A: Array + 'static>(&self, index: usize) -> Result<&A> {
        match self
            .args
            .get(index)
            .and_then(|array| array.as_any().downcast_ref::<A>())
        {
            Some(array) => Ok(array),
            None => exec_err!("argument {index} is missing or of another type than was planned"),
        }
    }

    /// The name of an argument for a message.
    pub(super) fn name(&self, index: usize) -> &str {
        self.fields.get(index).map_or("?", |field| field.name())
    }

    /// Whether an argument is one value for all rows, of which there are any.
    pub(super) fn is_constant(&self, index: usize) -> bool {
        self.constants.get(index).copied().unwrap_or(false)
    }
}

/// A function as the table names it.
pub(super) struct Definition {
    pub name: &'static str,
    pub params: Params,
    pub returns: Returns,
    pub evaluate: fn(&Call) -> Result<ArrayRef>,
}

/// A function of the table as DataFusion calls it.
pub(super) struct Scalar {
    definition: &'static Definition,
    signature: Signature,
}

impl Scalar {
    /// The function that `definition` describes.
    pub(super) fn udf(definition: &'static Definition) -> ScalarUDF {
        ScalarUDF::new_from_impl(Self {
            definition,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    }
}

impl std::fmt::Debug for Scalar {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.definition.name)
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for Scalar {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let unknown = vec![None; arg_types.len()];
        self.definition.returns.resolve(arg_types, &unknown)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        // Asked before the arguments are converted, too. Of a call that the analyzer will refuse nothing
        // is known.
        let data_type = match self.definition.params.coerce(self.definition.name, &types) {
            Ok(types) => self
                .definition
                .returns
                .resolve(&types, args.scalar_arguments)?,
            Err(_) => DataType::Null,
        };
        Ok(Field::new(self.definition.name, data_type, true).into())
    }

    /// Types that do not fit pass here: the planner asks this of a call that it can't place, and would put its
    /// own words around the answer. The analyzer asks the parameters.
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = self
            .definition
            .params
            .coerce(self.definition.name, arg_types);
        Ok(coerced.unwrap_or_else(|_| arg_types.to_vec()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let is_one = |arg: &ColumnarValue| !constant && matches!(arg, ColumnarValue::Scalar(_));
        let by_one = matches!(self.definition.params, Params::Operands(_) | Params::Two(_));
        let arrays = args
            .args
            .iter()
            .map(|arg| arg.to_array(if by_one && is_one(arg) { 1 } else { rows }))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let call = Call {
            args: &arrays,
            rows,
            return_type: args.return_field.data_type(),
            fields: &args.arg_fields,
            constants: args.args.iter().map(is_one).collect(),
        };
        let result = (self.definition.evaluate)(&call)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

impl Returns {
    fn resolve(self, types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
        match self {
            Self::Of(param) => Ok(param
                .data_type()
                .or_else(|| types.first().cloned())
                .unwrap_or(DataType::Null)),
            Self::Custom(decide) => decide(types, literals),
        }
    }
}

impl Params {
    /// How many there are at least, and all of them, if the function does not decide it itself.
    pub(super) fn fixed(self) -> Option<(usize, &'static [Param])> {
        match self {
            Self::Fixed { least, all } => Some((least, all)),
            Self::Two(all) => Some((all.len(), all)),
            Self::Custom(_) | Self::Operands(_) => None,
        }
    }

    pub(super) fn coerce(self, function: &str, given: &[DataType]) -> Result<Vec<DataType>> {
        let expected = |index: usize| match self {
            Self::Fixed { all, .. } => all.get(index).copied(),
            Self::Two(all) => all.get(index).copied(),
            Self::Custom(_) | Self::Operands(_) => None,
        };
        // Fields of intervals are taken by functions of their own, once the types are known.
        let of_interval = matches!(
            function,
            "year" | "month" | "day" | "hour" | "minute" | "spark_seconds" | "negative"
        );
        if of_interval && given.first().is_some_and(interval::is_interval) {
            return Ok(given.to_vec());
        }
        match self {
            Self::Custom(decide) | Self::Operands(decide) => return decide(given),
            Self::Fixed { .. } | Self::Two(_) => {
                let counts = self.fixed().map(|(least, all)| least..=all.len());
                if counts.is_some_and(|counts| !counts.contains(&given.len())) {
                    return plan_err!(
                        "WRONG_NUM_ARGS: wrong number of arguments for {function}: {}",
                        given.len()
                    );
                }
            }
        }
        given
            .iter()
            .enumerate()
            .map(|(index, given)| match expected(index) {
                Some(param) => param.coerce(function, index, given),
                None => plan_err!("wrong number of arguments for {function}"),
            })
            .collect()
    }
}

impl Param {
    /// The type; `None` if any will do.
    pub(super) fn data_type(self) -> Option<DataType> {
        Some(match self {
            Self::Text => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Instant => types::instant(),
            Self::LocalTime => types::local_time(),
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Binary => DataType::Binary,
            Self::Any => return None,
        })
    }

    fn coerce(self, function: &str, index: usize, given: &DataType) -> Result<DataType> {
        let given = types::plain_text(given);
        let Some(target) = self.data_type() else {
            return Ok(given);
        };
        let fits = given == target
            || given == DataType::Null
            || (given == DataType::Utf8 && self != Self::Binary)
            || match self {
                Self::Text => types::is_atomic(&given),
                Self::Date | Self::Instant | Self::LocalTime => types::is_time(&given),
                Self::Int => matches!(given, DataType::Int8 | DataType::Int16),
                Self::Long => matches!(given, DataType::Int8 | DataType::Int16 | DataType::Int32),
                Self::Double => types::is_number(&given),
                Self::Binary => given == DataType::Utf8,
                Self::Boolean | Self::Any => false,
            };
        if fits {
            Ok(target)
        } else {
            plan_err!(
                "DATATYPE_MISMATCH: argument {} of {function} is {}, not {}",
                index + 1,
                types::name(&given),
                types::name(&target)
            )
        }
    }
}
