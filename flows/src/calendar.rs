//! Cutting a span of time into slices along the calendar.
//!
//! Bounds are local times without a zone: they mean what a text compared with the column means.

use chrono::{Datelike, Days, Months, NaiveDate, NaiveDateTime};

/// The calendar's unit by which a span is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Day,
    /// From Monday on.
    Week,
    Month,
    Quarter,
    Year,
}

impl Unit {
    pub const WORDS: &str = "day, week, month, quarter or year";

    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "day" => Self::Day,
            "week" => Self::Week,
            "month" => Self::Month,
            "quarter" => Self::Quarter,
            "year" => Self::Year,
            _ => return None,
        })
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// The unit by which a span is cut when nobody says: days up to two months, months beyond.
    pub fn fitting(from: NaiveDateTime, to: NaiveDateTime) -> Self {
        if (to - from).num_days() <= 62 {
            Self::Day
        } else {
            Self::Month
        }
    }

    /// The first instant of the unit after the one in which `day` lies; `None` beyond the calendar.
    fn next(self, day: NaiveDate) -> Option<NaiveDate> {
        let months = |first: Option<NaiveDate>, n: u32| first?.checked_add_months(Months::new(n));
        match self {
            Self::Day => day.checked_add_days(Days::new(1)),
            Self::Week => {
                let since_monday = u64::from(day.weekday().num_days_from_monday());
                day.checked_add_days(Days::new(7 - since_monday))
            }
            Self::Month => months(day.with_day(1), 1),
            Self::Quarter => {
                let month = day.month0() / 3 * 3 + 1;
                months(NaiveDate::from_ymd_opt(day.year(), month, 1), 3)
            }
            Self::Year => NaiveDate::from_ymd_opt(day.year().checked_add(1)?, 1, 1),
        }
    }
}

/// A half-open span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: NaiveDateTime,
    pub to: NaiveDateTime,
}

impl Span {
    /// The slices of this span: they meet without gap or overlap, and all but the outer ends lie on
    /// bounds of the unit. `None` when there would be more than `most`.
    pub fn cut(self, unit: Unit, most: usize) -> Option<Vec<Self>> {
        let mut slices = Vec::new();
        let mut from = self.from;
        while from < self.to {
            if slices.len() == most {
                return None;
            }
            let bound = unit
                .next(from.date())
                .and_then(|day| day.and_hms_opt(0, 0, 0));
            let to = bound.map_or(self.to, |bound| bound.min(self.to));
            slices.push(Self { from, to });
            from = to;
        }
        Some(slices)
    }
}

/// A day or a time as people write it: `2026-01-15`, `2026-01-15 08:00:00.5`, with `T` as well.
pub fn parse(text: &str) -> Option<NaiveDateTime> {
    let text = text.trim();
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return day.and_hms_opt(0, 0, 0);
    }
    ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"]
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

/// The shortest text that [`parse`] reads back.
pub fn shown(at: NaiveDateTime) -> String {
    if at.time() == chrono::NaiveTime::MIN {
        at.date().to_string()
    } else {
        at.format("%Y-%m-%d %H:%M:%S%.f").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(from: &str, to: &str, unit: Unit) -> Vec<String> {
        let span = Span {
            from: parse(from).expect("a time"),
            to: parse(to).expect("a time"),
        };
        let slices = span.cut(unit, 1000).expect("not too many");
        let mut bounds: Vec<String> = slices.iter().map(|s| shown(s.from)).collect();
        bounds.extend(slices.last().map(|s| shown(s.to)));
        for pair in slices.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
        bounds
    }

    #[test]
    fn slices_lie_on_the_calendar_and_meet() {
        assert_eq!(
            cut("2026-01-15", "2026-03-10", Unit::Month),
            ["2026-01-15", "2026-02-01", "2026-03-01", "2026-03-10"]
        );
        assert_eq!(
            cut("2023-11-05", "2025-01-01", Unit::Quarter),
            [
                "2023-11-05",
                "2024-01-01",
                "2024-04-01",
                "2024-07-01",
                "2024-10-01",
                "2025-01-01"
            ]
        );
        // 2026-03-02 is a Monday.
        assert_eq!(
            cut("2026-03-01 12:00:00", "2026-03-10", Unit::Week),
            [
                "2026-03-01 12:00:00",
                "2026-03-02",
                "2026-03-09",
                "2026-03-10"
            ]
        );
        assert_eq!(
            cut("2024-02-28", "2024-03-01", Unit::Day),
            ["2024-02-28", "2024-02-29", "2024-03-01"]
        );
        assert_eq!(
            cut("1969-06-01", "1971-01-01", Unit::Year),
            ["1969-06-01", "1970-01-01", "1971-01-01"]
        );
    }

    #[test]
    fn an_empty_span_has_no_slice_and_a_long_one_too_many() {
        let day = parse("2026-01-01").expect("a time");
        let empty = Span { from: day, to: day };
        assert_eq!(empty.cut(Unit::Day, 10), Some(vec![]));
        let long = Span {
            from: parse("0001-01-01").expect("a time"),
            to: parse("9999-12-31").expect("a time"),
        };
        assert_eq!(long.cut(Unit::Day, 1000), None);
        assert_eq!(long.cut(Unit::Year, 10_000).map(|s| s.len()), Some(9999));
    }
}
