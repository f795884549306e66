//! Aggregates of the moments of one or two columns: covariance, correlation, regression, skewness
//! and kurtosis. Values are taken in one by one with the same steps as in Spark, so that the last
//! digits are the same too.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::types;

const ALL: [(&str, Kind); 14] = [
    ("corr", Kind::Corr),
    ("covar_pop", Kind::CovarPop),
    ("covar_samp", Kind::CovarSamp),
    ("regr_count", Kind::Count),
    ("regr_avgx", Kind::AvgX),
    ("regr_avgy", Kind::AvgY),
    ("regr_sxx", Kind::Sxx),
    ("regr_syy", Kind::Syy),
    ("regr_sxy", Kind::Sxy),
    ("regr_slope", Kind::Slope),
    ("regr_intercept", Kind::Intercept),
    ("regr_r2", Kind::R2),
    ("skewness", Kind::Skewness),
    ("kurtosis", Kind::Kurtosis),
];

/// All functions of this module.
pub(super) fn functions() -> Vec<AggregateUDF> {
    ALL.into_iter()
        .map(|(name, kind)| {
            let signature = Signature::user_defined(Volatility::Immutable);
            AggregateUDF::new_from_impl(Moments {
                name,
                kind,
                signature,
            })
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Corr,
    CovarPop,
    CovarSamp,
    Count,
    AvgX,
    AvgY,
    Sxx,
    Syy,
    Sxy,
    Slope,
    Intercept,
    R2,
    Skewness,
    Kurtosis,
}

impl Kind {
    fn arguments(self) -> usize {
        match self {
            Self::Skewness | Self::Kurtosis => 1,
            _ => 2,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Moments {
    name: &'static str,
    kind: Kind,
    signature: Signature,
}

impl AggregateUDFImpl for Moments {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let number = |given: &DataType| {
            types::is_number(given) || matches!(given, DataType::Null | DataType::Utf8)
        };
        if given.len() != self.kind.arguments() || !given.iter().all(number) {
            return plan_err!(
                "DATATYPE_MISMATCH: {} takes {} numbers",
                self.name,
                self.kind.arguments()
            );
        }
        Ok(vec![DataType::Float64; given.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Count => DataType::Int64,
            _ => DataType::Float64,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return plan_err!("DISTINCT in {} is not available", self.name);
        }
        Ok(Box::new(Held {
            kind: self.kind,
            state: State::default(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok((0..State::WIDTH)
            .map(|index| {
                let name = format_state_name(args.name, &format!("m{index}"));
                Field::new(name, DataType::Float64, true).into()
            })
            .collect())
    }
}

/// One variable: mean and central moments.
#[derive(Debug, Default, Clone, Copy)]
struct One {
    mean: f64,
    m2: f64,
    m3: f64,
    m4: f64,
    sum: f64,
}

impl One {
    /// Takes in a value, the `n`-th.
    fn add(&mut self, value: f64, n: f64) {
        let delta = value - self.mean;
        let delta_n = delta / n;
        let (delta2, delta_n2) = (delta * delta, delta_n * delta_n);
        let m2 = self.m2 + delta * (delta - delta_n);
        let m3 = self.m3 - 3.0 * delta_n * m2 + delta * (delta2 - delta_n2);
        self.m4 = self.m4 - 4.0 * delta_n * m3 - 6.0 * delta_n2 * m2
            + delta * (delta * delta2 - delta_n * delta_n2);
        (self.m2, self.m3) = (m2, m3);
        self.mean += delta_n;
        self.sum += value;
    }

    fn merge(&mut self, n1: f64, other: &Self, n2: f64) {
        let n = n1 + n2;
        let delta = other.mean - self.mean;
        let delta_n = if n == 0.0 { 0.0 } else { delta / n };
        let m2 = self.m2 + other.m2 + delta * delta_n * n1 * n2;
        let m3 = self.m3
            + other.m3
            + delta_n * delta_n * delta * n1 * n2 * (n1 - n2)
            + 3.0 * delta_n * (n1 * other.m2 - n2 * self.m2);
        self.m4 = self.m4
            + other.m4
            + delta_n * delta_n * delta_n * delta * n1 * n2 * (n1 * n1 - n1 * n2 + n2 * n2)
            + 6.0 * delta_n * delta_n * (n1 * n1 * other.m2 + n2 * n2 * self.m2)
            + 4.0 * delta_n * (n1 * other.m3 - n2 * self.m3);
        (self.m2, self.m3) = (m2, m3);
        self.mean += delta_n * n2;
        self.sum += other.sum;
    }
}

/// Two variables together.
#[derive(Debug, Default, Clone, Copy)]
struct State {
    n: f64,
    x: One,
    y: One,
    /// The sum of the products of both distances from their means.
    ck: f64,
    /// Squares as the correlation takes them in.
    x_mk: f64,
    y_mk: f64,
}

impl State {
    const WIDTH: usize = 14;

    fn to_array(self) -> [f64; Self::WIDTH] {
        let Self {
            n,
            x,
            y,
            ck,
            x_mk,
            y_mk,
        } = self;
        [
            n, x.mean, x.m2, x.m3, x.m4, x.sum, y.mean, y.m2, y.m3, y.m4, y.sum, ck, x_mk, y_mk,
        ]
    }

    fn from_array(values: [f64; Self::WIDTH]) -> Self {
        let one = |at: usize| One {
            mean: values[at],
            m2: values[at + 1],
            m3: values[at + 2],
            m4: values[at + 3],
            sum: values[at + 4],
        };
        Self {
            n: values[0],
            x: one(1),
            y: one(6),
            ck: values[11],
            x_mk: values[12],
            y_mk: values[13],
        }
    }

    fn add(&mut self, x: f64, y: f64) {
        self.n += 1.0;
        let (dx, dy) = (x - self.x.mean, y - self.y.mean);
        self.x.add(x, self.n);
        self.y.add(y, self.n);
        self.ck += dx * (y - self.y.mean);
        self.x_mk += dx * (x - self.x.mean);
        self.y_mk += dy * (y - self.y.mean);
    }

    fn merge(&mut self, other: &Self) {
        let (n1, n2) = (self.n, other.n);
        let n = n1 + n2;
        let (dx, dy) = (other.x.mean - self.x.mean, other.y.mean - self.y.mean);
        let share = |distance: f64| if n == 0.0 { 0.0 } else { distance / n };
        let (dx_n, dy_n) = (share(dx), share(dy));
        self.ck = self.ck + other.ck + dx * dy_n * n1 * n2;
        self.x_mk = self.x_mk + other.x_mk + dx * dx_n * n1 * n2;
        self.y_mk = self.y_mk + other.y_mk + dy * dy_n * n1 * n2;
        self.x.merge(n1, &other.x, n2);
        self.y.merge(n1, &other.y, n2);
        self.n = n;
    }
}

#[derive(Debug)]
struct Held {
    kind: Kind,
    state: State,
}

impl Held {
    fn result(&self) -> Option<f64> {
        let State {
            n,
            x,
            y,
            ck,
            x_mk,
            y_mk,
        } = self.state;
        let some = n > 0.0;
        // The first argument is x here; of regr_... it is the dependent variable.
        match self.kind {
            Kind::Count => Some(n),
            Kind::Corr => (n > 1.0).then(|| ck / (x_mk * y_mk).sqrt()),
            Kind::CovarPop => some.then(|| ck / n),
            Kind::CovarSamp => (n > 1.0).then(|| ck / (n - 1.0)),
            Kind::AvgX => some.then(|| y.sum / n),
            Kind::AvgY => some.then(|| x.sum / n),
            Kind::Sxx => some.then_some(y.m2),
            Kind::Syy => some.then_some(x.m2),
            Kind::Sxy => some.then_some(ck),
            Kind::Slope => (y.m2 != 0.0).then(|| ck / y.m2),
            Kind::Intercept => (y.m2 != 0.0).then(|| x.mean - ck / y.m2 * y.mean),
            Kind::R2 if y_mk == 0.0 => None,
            Kind::R2 if x_mk == 0.0 => Some(1.0),
            Kind::R2 => {
                let corr = ck / (x_mk * y_mk).sqrt();
                Some(corr * corr)
            }
            Kind::Skewness => {
                (some && x.m2 != 0.0).then(|| n.sqrt() * x.m3 / (x.m2 * x.m2 * x.m2).sqrt())
            }
            Kind::Kurtosis => (some && x.m2 != 0.0).then(|| n * x.m4 / (x.m2 * x.m2) - 3.0),
        }
    }
}

impl Accumulator for Held {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let first = values[0].as_primitive::<Float64Type>();
        let second = match values.get(1) {
            Some(second) => second.as_primitive::<Float64Type>(),
            None => first,
        };
        for row in 0..first.len() {
            if first.is_valid(row) && second.is_valid(row) {
                self.state.add(first.value(row), second.value(row));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.result();
        Ok(match self.kind {
            Kind::Count => ScalarValue::Int64(result.map(|count| count as i64)),
            _ => ScalarValue::Float64(result),
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.state.to_array();
        Ok(values
            .into_iter()
            .map(|value| ScalarValue::Float64(Some(value)))
            .collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let columns: Vec<_> = states
            .iter()
            .map(|column| column.as_primitive::<Float64Type>())
            .collect();
        for row in 0..states[0].len() {
            let mut values = [0.0; State::WIDTH];
            for (value, column) in values.iter_mut().zip(&columns) {
                *value = if column.is_valid(row) {
                    column.value(row)
                } else {
                    0.0
                };
            }
            self.state.merge(&State::from_array(values));
        }
        Ok(())
    }
}
