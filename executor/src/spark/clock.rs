//! The functions that ask for the update's clock and the session's time zone. All become literals
//! while the query is planned.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::time::{MICROS_PER_DAY, Zone};
use super::types;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    Date,
    Instant,
    LocalTime,
    Zone,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    question: Question,
    signature: Signature,
}

/// All functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    [
        Question::Date,
        Question::Instant,
        Question::LocalTime,
        Question::Zone,
    ]
    .into_iter()
    .map(|question| {
        let volatility = Volatility::Stable;
        let signature = Signature::new(TypeSignature::Nullary, volatility);
        ScalarUDF::new_from_impl(Clock {
            question,
            signature,
        })
    })
    .collect()
}

fn zone_name(config: &ConfigOptions) -> String {
    config
        .execution
        .time_zone
        .clone()
        .unwrap_or_else(|| "UTC".into())
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &str {
        match self.question {
            Question::Date => "current_date",
            Question::Instant => "current_timestamp",
            Question::LocalTime => "localtimestamp",
            Question::Zone => "spark_zone",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(match self.question {
            Question::Date => DataType::Date32,
            Question::Instant => types::instant(),
            Question::LocalTime => types::local_time(),
            Question::Zone => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.question {
            Question::Zone => Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone_name(
                &args.config_options,
            ))))),
            _ => exec_err!(
                "{} was not resolved while the query was planned",
                self.name()
            ),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let name = zone_name(info.config_options());
        let literal = |value| Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)));
        if self.question == Question::Zone {
            return literal(ScalarValue::Utf8(Some(name)));
        }
        let Some(now) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let instant = now.timestamp_micros();
        let local = Zone::parse(&name)?.to_local(instant).unwrap_or(instant);
        literal(match self.question {
            Question::Instant => {
                ScalarValue::TimestampMicrosecond(Some(instant), Some("UTC".into()))
            }
            Question::LocalTime => ScalarValue::TimestampMicrosecond(Some(local), None),
            _ => ScalarValue::Date32(i32::try_from(local.div_euclid(MICROS_PER_DAY)).ok()),
        })
    }
}
