//! Dates, instants and local times as numbers: the calendar, time zones, and Spark's way to read
//! and write them as text.
//!
//! A date is a count of days since 1970-01-01, an instant and a local time are counts of
//! microseconds since 1970-01-01 00:00:00 (in UTC, or without a zone).

use chrono::{NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;
use datafusion::common::{Result, plan_err};

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(super) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
const SECONDS_PER_DAY: i64 = 86_400;

/// A time zone: a region, or a fixed distance from UTC in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zone {
    Region(Tz),
    Fixed(i32),
}

impl Zone {
    /// Reads a zone as Spark names it.
    pub(super) fn parse(name: &str) -> Result<Self> {
        match Self::find(name.trim()) {
            Some(zone) => Ok(zone),
            None => plan_err!("INVALID_TIMEZONE: there is no time zone '{name}'"),
        }
    }

    /// Reads a zone; `None` if there is no such one.
    pub(super) fn find(name: &str) -> Option<Self> {
        if matches!(name, "Z" | "UTC" | "GMT" | "UT") {
            return Some(Self::Fixed(0));
        }
        let offset = ["UTC", "GMT", "UT"]
            .into_iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        if let Some(seconds) = parse_offset(offset) {
            return Some(Self::Fixed(seconds));
        }
        name.parse::<Tz>().ok().map(Self::Region)
    }

    /// The local time of an instant.
    pub(super) fn to_local(self, instant: i64) -> Option<i64> {
        let seconds = instant.div_euclid(MICROS_PER_SECOND);
        let offset = self.offset_at(seconds)?;
        instant.checked_add(i64::from(offset) * MICROS_PER_SECOND)
    }

    /// The instant of a local time. A time that the clock skips is moved on by what it skips; of
    /// one that comes twice the first is taken.
    pub(super) fn to_instant(self, local: i64) -> Option<i64> {
        let offset = match self {
            Self::Fixed(offset) => offset,
            Self::Region(tz) => {
                let seconds = local.div_euclid(MICROS_PER_SECOND);
                match tz.offset_from_local_datetime(&naive(known_year(seconds))?) {
                    chrono::LocalResult::Single(offset) => offset.fix().local_minus_utc(),
                    chrono::LocalResult::Ambiguous(one, other) => one
                        .fix()
                        .local_minus_utc()
                        .max(other.fix().local_minus_utc()),
                    chrono::LocalResult::None => self.offset_at(seconds - SECONDS_PER_DAY)?,
                }
            }
        };
        local.checked_sub(i64::from(offset) * MICROS_PER_SECOND)
    }

    fn offset_at(self, seconds: i64) -> Option<i32> {
        match self {
            Self::Fixed(offset) => Some(offset),
            Self::Region(tz) => Some(
                tz.offset_from_utc_datetime(&naive(known_year(seconds))?)
                    .fix()
                    .local_minus_utc(),
            ),
        }
    }
}

/// The first year whose changes of the clock are not listed.
const FIRST_UNKNOWN_YEAR: i64 = 2100;

/// A time of a far year in a year like it whose changes of the clock are listed: the rules of the
/// last listed years hold for ever.
fn known_year(seconds: i64) -> i64 {
    let days = seconds.div_euclid(SECONDS_PER_DAY);
    let (year, ..) = civil(days);
    if year < FIRST_UNKNOWN_YEAR {
        return seconds;
    }
    let shape = |year: i64| {
        let first = from_civil(year, 1, 1)?;
        Some((first, first.rem_euclid(7), days_in_month(year, 2)))
    };
    let Some((first, weekday, february)) = shape(year) else {
        return seconds;
    };
    let alike = (FIRST_UNKNOWN_YEAR - 28..FIRST_UNKNOWN_YEAR)
        .filter_map(shape)
        .find(|(_, other, days)| (*other, *days) == (weekday, february));
    match alike {
        Some((known, ..)) => seconds - (first - known) * SECONDS_PER_DAY,
        None => seconds,
    }
}

fn naive(seconds: i64) -> Option<NaiveDateTime> {
    chrono::DateTime::from_timestamp(seconds, 0).map(|instant| instant.naive_utc())
}

fn parse_offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let parts: Vec<&str> = rest.split(':').collect();
    let number = |part: &str| -> Option<i32> {
        let digits =
            !part.is_empty() && part.len() <= 2 && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    };
    let (hours, minutes, seconds) = match parts.as_slice() {
        [compact] if compact.len() == 4 && compact.is_ascii() => {
            (number(&compact[..2])?, number(&compact[2..])?, 0)
        }
        [hours] => (number(hours)?, 0, 0),
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    let total = hours * 3600 + minutes * 60 + seconds;
    (minutes < 60 && seconds < 60 && total <= 18 * 3600).then_some(sign * total)
}

/// Year, month and day of a date.
pub(super) fn civil(days: i64) -> (i64, u32, u32) {
    /// Periods of 400 years that make all days here positive.
    const ERAS: i64 = 2000;
    // Whole years, 32 bits and divisors that are known suffice for some 750,000 years to either side
    // (C. Neri, L. Schneider: Euclidean affine functions and their application to calendar algorithms,
    // 2022, section 6).
    if days.abs() > 280_000_000 {
        return far_civil(days);
    }
    let shifted = 4 * (days + 719_468 + ERAS * 146_097) as u32 + 3;
    let (century, of_century) = (shifted / 146_097, shifted % 146_097 / 4);
    let product = 2_939_745 * u64::from(4 * of_century + 3);
    let year = 100 * century + (product >> 32) as u32;
    let day_of_year = product as u32 / 2_939_745 / 4;
    let month_and_day = 2141 * day_of_year + 197_913;
    let (month, day) = (month_and_day >> 16, (month_and_day & 0xffff) / 2141 + 1);
    // The year of this calendar begins in March.
    let next_year = day_of_year >= 306;
    let month = if next_year { month - 12 } else { month };
    let year = i64::from(year) - 400 * ERAS + i64::from(next_year);
    (year, month, day)
}

/// The same for any day.
fn far_civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (
        year_of_era + era * 400 + i64::from(month <= 2),
        month as u32,
        day,
    )
}

/// The date of a year, month and day; `None` if there is no such day.
pub(super) fn from_civil(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let month_from_march = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

pub(super) fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A date moved by months; a day beyond the month's end becomes its last.
pub(super) fn add_months(days: i64, months: i64) -> Option<i64> {
    let (year, month, day) = civil(days);
    let total = (year * 12 + i64::from(month) - 1).checked_add(months)?;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
    from_civil(year, month, day.min(days_in_month(year, month)))
}

/// The text of a date.
pub(super) fn format_date(days: i64) -> String {
    let (year, month, day) = civil(days);
    format!("{}-{month:02}-{day:02}", format_year(year))
}

fn format_year(year: i64) -> String {
    match year {
        10_000.. => format!("+{year}"),
        0..10_000 => format!("{year:04}"),
        _ => format!("-{:04}", -year),
    }
}

/// The text of a local time, without zeros at the end of its fraction.
pub(super) fn format_local(local: i64) -> String {
    let days = local.div_euclid(MICROS_PER_DAY);
    let micros = local.rem_euclid(MICROS_PER_DAY);
    let seconds = micros / MICROS_PER_SECOND;
    let fraction = micros % MICROS_PER_SECOND;
    let mut text = format!(
        "{} {:02}:{:02}:{:02}",
        format_date(days),
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    if fraction != 0 {
        text += format!(".{fraction:06}").trim_end_matches('0');
    }
    text
}

/// A date read by the rules of Spark's cast: a year, month and day of which the last ones may be
/// missing, and anything after a complete date and `T` or a blank.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    if let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text.as_bytes()
        && let Some(year) = number([*y1, *y2, *y3, *y4])
        && let Some(month) = number([*m1, *m2])
        && let Some(day) = number([*d1, *d2])
    {
        return from_civil(year.into(), month, day);
    }
    let text = trim(text);
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut parts = rest.splitn(3, '-');
    let year = digits(parts.next()?, 4, 7)?;
    let month = parts.next().map_or(Some(1), |part| digits(part, 1, 2))?;
    let day = match parts.next() {
        Some(part) => {
            let end = part.find(['T', ' ']).unwrap_or(part.len());
            digits(&part[..end], 1, 2)?
        }
        None => 1,
    };
    let year = if negative { -year } else { year };
    let days = from_civil(year, month as u32, day as u32)?;
    i32::try_from(days).ok().map(i64::from)
}

/// The number of some digits.
fn number<const N: usize>(digits: [u8; N]) -> Option<u32> {
    digits.into_iter().try_fold(0, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u32::from(digit))
    })
}

/// What a text of a timestamp says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stamp {
    /// The date, unless only a time was given.
    pub days: Option<i64>,
    pub micros_of_day: i64,
    pub zone: Option<Zone>,
}

impl Stamp {
    /// The instant meant, with local times in `session`.
    pub(super) fn instant(self, session: Zone) -> Option<i64> {
        let zone = self.zone.unwrap_or(session);
        zone.to_instant(self.local()?)
    }

    /// The local time meant.
    pub(super) fn local(self) -> Option<i64> {
        self.days?
            .checked_mul(MICROS_PER_DAY)?
            .checked_add(self.micros_of_day)
    }
}

/// A timestamp read by the rules of Spark's cast; one without a date is not read, for it would
/// depend on the day of the call.
pub(super) fn parse_timestamp(text: &str) -> Option<Stamp> {
    let text = trim(text);
    let split = text.find(['T', ' ']).unwrap_or(text.len());
    let date = &text[..split];
    let days = parse_date(date)?;
    let time = text.get(split + 1..).unwrap_or("");
    if split == text.len() {
        return Some(Stamp {
            days: Some(days),
            micros_of_day: 0,
            zone: None,
        });
    }
    let end = time
        .char_indices()
        .find(|(_, c)| !(c.is_ascii_digit() || matches!(c, ':' | '.')))
        .map_or(time.len(), |(at, _)| at);
    let zone = match trim(&time[end..]) {
        "" => None,
        name => Some(Zone::find(name)?),
    };
    let micros_of_day = parse_time(&time[..end])?;
    Some(Stamp {
        days: Some(days),
        micros_of_day,
        zone,
    })
}

fn parse_time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let hour = digits(parts.next()?, 1, 2)?;
    let minute = digits(parts.next().unwrap_or("0"), 1, 2)?;
    let (second, fraction) = match parts.next() {
        Some(rest) => rest.split_once('.').unwrap_or((rest, "")),
        None => ("0", ""),
    };
    let second = digits(second, 1, 2)?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(6)];
    let micros: i64 = format!("{kept:0<6}").parse().ok()?;
    (hour < 24 && minute < 60 && second < 60)
        .then_some((hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
}

fn digits(text: &str, least: usize, most: usize) -> Option<i64> {
    let valid = (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    valid.then(|| text.parse().ok()).flatten()
}

/// Spark's casts pass over blanks and control characters at both ends.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ' || c == '\u{7f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_to_a_date_gives_the_same_dates() {
        let near = -800_000..800_000;
        let far = (-280_000_005..280_000_005).step_by(9973);
        for days in near.chain(far) {
            let date = civil(days);
            assert_eq!(date, far_civil(days), "{days}");
            assert_eq!(from_civil(date.0, date.1, date.2), Some(days), "{date:?}");
        }
    }
}
