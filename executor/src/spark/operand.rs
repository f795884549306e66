//! Operands of an operation over a batch: a value for each row, or one for all of them; and the loops
//! over them.
//!
//! A loop that only sets a mark where a row fails runs over whole arrays at once. Which row it was, and
//! whether it counts (it may be null), is found out by the loop that asks row by row.

use std::ops::BitOr;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::{binary, try_binary, try_unary};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::error::ArrowError;

use super::cast::Failure;

/// What an operation says of a row: whether it went wrong. Marks of many rows are put together bit by bit.
pub(super) trait Mark: Copy + Default + BitOr<Output = Self> {
    fn is_wrong(self) -> bool;
}

impl Mark for bool {
    fn is_wrong(self) -> bool {
        self
    }
}

/// A number is a mark by its sign. One as wide as the values takes no narrowing in the loop.
macro_rules! mark {
    ($($native:ty),*) => {$(
        impl Mark for $native {
            fn is_wrong(self) -> bool {
                self < 0
            }
        }
    )*};
}

mark!(i8, i16, i32, i64);

/// All values at once, if each is at least -2^`bits` and less than 2^`bits`, for `bits` up to 62.
pub(super) fn all_within<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<Int64Type>,
    bits: u32,
    apply: impl Fn(i64) -> T::Native,
) -> Option<PrimitiveArray<T>> {
    let half = 1_i64.checked_shl(bits).filter(|half| *half > 0)?;
    // Moved up, they have no higher bit. It takes the loop two steps to see to it.
    let mut seen = 0;
    let look = |value: &i64| {
        seen |= value.wrapping_add(half) as u64;
        apply(*value)
    };
    let made: Vec<T::Native> = values.values().iter().map(look).collect();
    (seen >> (bits + 1) == 0).then(|| PrimitiveArray::new(made.into(), values.nulls().cloned()))
}

pub(super) enum Operand<T: ArrowPrimitiveType> {
    Rows(PrimitiveArray<T>),
    One(Option<T::Native>),
}

impl<T: ArrowPrimitiveType> Operand<T> {
    /// The operand in an array; of a constant the first row is taken.
    pub(super) fn new(array: &ArrayRef, constant: bool) -> Self {
        let values = array.as_primitive::<T>();
        match constant && !values.is_empty() {
            true => Self::One(values.is_valid(0).then(|| values.value(0))),
            false => Self::Rows(values.clone()),
        }
    }
}

/// Two operands of one operation; at least one of them has rows.
pub(super) struct Pair<L: ArrowPrimitiveType, R: ArrowPrimitiveType> {
    pub left: Operand<L>,
    pub right: Operand<R>,
}

impl<L: ArrowPrimitiveType, R: ArrowPrimitiveType> Pair<L, R> {
    /// Row by row; a failure ends it, or makes a null.
    pub(super) fn each<O: ArrowPrimitiveType>(
        &self,
        failure: Failure,
        apply: impl Fn(L::Native, R::Native) -> Result<O::Native, ArrowError>,
    ) -> Result<PrimitiveArray<O>, ArrowError> {
        let strict = failure == Failure::Error;
        match (&self.left, &self.right) {
            (Operand::Rows(left), Operand::Rows(right)) if strict => try_binary(left, right, apply),
            (Operand::Rows(left), Operand::Rows(right)) => {
                let pairs = left.iter().zip(right.iter());
                Ok(pairs
                    .map(|(left, right)| apply(left?, right?).ok())
                    .collect())
            }
            (Operand::Rows(left), Operand::One(Some(right))) => match strict {
                true => try_unary(left, |left| apply(left, *right)),
                false => Ok(left.unary_opt(|left| apply(left, *right).ok())),
            },
            (Operand::One(Some(left)), Operand::Rows(right)) => match strict {
                true => try_unary(right, |right| apply(*left, right)),
                false => Ok(right.unary_opt(|right| apply(*left, right).ok())),
            },
            _ => Ok(self.nulls()),
        }
    }

    /// All rows at once, by an operation that cannot fail; it is done for nulls, too.
    pub(super) fn all<O: ArrowPrimitiveType>(
        &self,
        apply: impl Fn(L::Native, R::Native) -> O::Native,
    ) -> Result<PrimitiveArray<O>, ArrowError> {
        match (&self.left, &self.right) {
            (Operand::Rows(left), Operand::Rows(right)) => binary(left, right, apply),
            (Operand::Rows(left), Operand::One(Some(right))) => {
                Ok(left.unary(|left| apply(left, *right)))
            }
            (Operand::One(Some(left)), Operand::Rows(right)) => {
                Ok(right.unary(|right| apply(*left, right)))
            }
            _ => Ok(self.nulls()),
        }
    }

    /// All rows at once, by an operation that marks those that went wrong. `None` if one did, be it a
    /// row that is null.
    pub(super) fn all_or_none<O: ArrowPrimitiveType, M: Mark>(
        &self,
        apply: impl Fn(L::Native, R::Native) -> (O::Native, M),
    ) -> Option<PrimitiveArray<O>> {
        let mut marks = M::default();
        let mut mark = |(value, mark): (O::Native, M)| {
            marks = marks | mark;
            value
        };
        let (values, nulls): (Vec<O::Native>, Option<NullBuffer>) = match (&self.left, &self.right)
        {
            (Operand::Rows(left), Operand::Rows(right)) if left.len() == right.len() => {
                let pairs = left.values().iter().zip(right.values().iter());
                (
                    pairs
                        .map(|(left, right)| mark(apply(*left, *right)))
                        .collect(),
                    NullBuffer::union(left.nulls(), right.nulls()),
                )
            }
            (Operand::Rows(left), Operand::One(Some(right))) => (
                left.values()
                    .iter()
                    .map(|left| mark(apply(*left, *right)))
                    .collect(),
                left.nulls().cloned(),
            ),
            (Operand::One(Some(left)), Operand::Rows(right)) => (
                right
                    .values()
                    .iter()
                    .map(|right| mark(apply(*left, *right)))
                    .collect(),
                right.nulls().cloned(),
            ),
            _ => return None,
        };
        (!marks.is_wrong()).then(|| PrimitiveArray::new(values.into(), nulls))
    }

    fn nulls<O: ArrowPrimitiveType>(&self) -> PrimitiveArray<O> {
        let rows = match (&self.left, &self.right) {
            (Operand::Rows(rows), _) => rows.len(),
            (_, Operand::Rows(rows)) => rows.len(),
            _ => 1,
        };
        PrimitiveArray::new_null(rows)
    }
}
