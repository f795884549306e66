//! Java's patterns of dates and times (`yyyy-MM-dd HH:mm:ss`), for writing and reading.
//!
//! Only the letters that mean the same everywhere are taken; a pattern with another one is refused
//! rather than guessed at.

use datafusion::common::{Result, plan_err};

use super::time::{MICROS_PER_DAY, MICROS_PER_SECOND, civil, from_civil};

/// A pattern that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern {
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
enum Item {
    Text(String),
    Field(Field, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Year,
    Month,
    Day,
    DayOfYear,
    Quarter,
    Weekday,
    Hour,
    HourOfHalf,
    Minute,
    Second,
    Fraction,
    Half,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

impl Pattern {
    /// Reads a pattern; refuses letters that are not known here.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut items: Vec<Item> = vec![];
        let mut characters = text.chars().peekable();
        let mut literal = String::new();
        while let Some(character) = characters.next() {
            if character == '\'' {
                if characters.next_if_eq(&'\'').is_some() {
                    literal.push('\'');
                    continue;
                }
                loop {
                    match characters.next() {
                        Some('\'') if characters.next_if_eq(&'\'').is_some() => literal.push('\''),
                        Some('\'') => break,
                        Some(other) => literal.push(other),
                        None => {
                            return plan_err!(
                                "INVALID_DATETIME_PATTERN: a quote is open in '{text}'"
                            );
                        }
                    }
                }
                continue;
            }
            if !character.is_ascii_alphabetic() {
                if matches!(character, '[' | ']' | '{' | '}' | '#') {
                    return plan_err!(
                        "INVALID_DATETIME_PATTERN: '{character}' is not available in '{text}'"
                    );
                }
                literal.push(character);
                continue;
            }
            let mut count = 1;
            while characters.next_if_eq(&character).is_some() {
                count += 1;
            }
            let Some(field) = field(character, count) else {
                let letters = character.to_string().repeat(count);
                return plan_err!(
                    "INVALID_DATETIME_PATTERN: '{letters}' is not available in '{text}'"
                );
            };
            if !literal.is_empty() {
                items.push(Item::Text(std::mem::take(&mut literal)));
            }
            items.push(Item::Field(field, count));
        }
        if !literal.is_empty() {
            items.push(Item::Text(literal));
        }
        Ok(Self { items })
    }

    /// Writes a local time.
    pub(super) fn format(&self, local: i64) -> String {
        let days = local.div_euclid(MICROS_PER_DAY);
        let micros = local.rem_euclid(MICROS_PER_DAY);
        let seconds = micros / MICROS_PER_SECOND;
        let (year, month, day) = civil(days);
        let hour = seconds / 3600;
        let mut text = String::new();
        for item in &self.items {
            let (field, width) = match item {
                Item::Text(literal) => {
                    text += literal;
                    continue;
                }
                Item::Field(field, width) => (*field, *width),
            };
            let number = match field {
                Field::Year if width == 2 => year.rem_euclid(100),
                Field::Year => {
                    text += &format_year(year, width);
                    continue;
                }
                Field::Month if width >= 3 => {
                    text += shortened(MONTHS[month as usize - 1], width);
                    continue;
                }
                Field::Month => month.into(),
                Field::Day => day.into(),
                Field::DayOfYear => days - from_civil(year, 1, 1).unwrap_or(days) + 1,
                Field::Quarter => month.div_ceil(3).into(),
                Field::Weekday => {
                    text += shortened(WEEKDAYS[(days + 3).rem_euclid(7) as usize], width);
                    continue;
                }
                Field::Hour => hour,
                Field::HourOfHalf => (hour + 11) % 12 + 1,
                Field::Minute => seconds / 60 % 60,
                Field::Second => seconds % 60,
                Field::Fraction => {
                    let digits = format!("{:06}000", micros % MICROS_PER_SECOND);
                    text += &digits[..width];
                    continue;
                }
                Field::Half => {
                    text += if hour < 12 { "AM" } else { "PM" };
                    continue;
                }
            };
            text += &format!("{number:0width$}");
        }
        text
    }

    /// Reads a local time; `None` if the value does not follow the pattern.
    pub(super) fn parse_value(&self, value: &str) -> Result<Option<i64>> {
        let readable = self.items.iter().all(|item| match item {
            Item::Field(Field::Month, width) => *width <= 3,
            Item::Field(field, _) => {
                !matches!(field, Field::Quarter | Field::Weekday | Field::DayOfYear)
            }
            Item::Text(_) => true,
        });
        if !readable {
            return plan_err!(
                "INVALID_DATETIME_PATTERN: a field of the pattern can only be written, not read"
            );
        }
        Ok(self.parse_items(value))
    }

    fn parse_items(&self, value: &str) -> Option<i64> {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        let (mut hour, mut half, mut minute, mut second, mut micros) = (0, None, 0, 0, 0);
        let mut halved = false;
        let mut rest = value;
        for (index, item) in self.items.iter().enumerate() {
            let (field, width) = match item {
                Item::Text(literal) => {
                    rest = rest.strip_prefix(literal.as_str())?;
                    continue;
                }
                Item::Field(field, width) => (*field, *width),
            };
            match (field, width) {
                (Field::Month, 3) => {
                    let found = MONTHS.iter().position(|name| {
                        rest.get(..3).is_some_and(|text| name.starts_with(text))
                    })?;
                    month = found as i64 + 1;
                    rest = &rest[3..];
                    continue;
                }
                (Field::Half, _) => {
                    half = match rest.get(..2)? {
                        "AM" => Some(0),
                        "PM" => Some(12),
                        _ => return None,
                    };
                    rest = &rest[2..];
                    continue;
                }
                _ => {}
            }
            let adjacent = matches!(self.items.get(index + 1), Some(Item::Field(..)));
            let (least, most) = match (field, width) {
                // Spark reads up to as many digits of a fraction as there are letters.
                (Field::Fraction, width) => (1, width),
                (Field::Year, 2) => (2, 2),
                (Field::Year, 4) if !adjacent => (4, 10),
                (_, 1) if !adjacent => (1, 19),
                (_, width) => (width, width),
            };
            let length = rest
                .bytes()
                .take(most)
                .take_while(u8::is_ascii_digit)
                .count();
            if length < least {
                return None;
            }
            let digits = &rest[..length];
            rest = &rest[length..];
            let number: i64 = digits.parse().ok()?;
            match field {
                Field::Year if width == 2 => year = 2000 + number,
                Field::Year => year = number,
                Field::Month => month = number,
                Field::Day => day = number,
                Field::Hour if number < 24 => hour = number,
                Field::HourOfHalf if (1..=12).contains(&number) => {
                    halved = true;
                    hour = number % 12;
                }
                Field::Minute if number < 60 => minute = number,
                Field::Second if number < 60 => second = number,
                Field::Fraction => micros = format!("{digits:0<6}").get(..6)?.parse().ok()?,
                _ => return None,
            }
        }
        if !rest.is_empty() {
            return None;
        }
        if halved {
            hour += half?;
        }
        let days = from_civil(year, u32::try_from(month).ok()?, u32::try_from(day).ok()?)?;
        let seconds = hour * 3600 + minute * 60 + second;
        days.checked_mul(MICROS_PER_DAY)?
            .checked_add(seconds * MICROS_PER_SECOND + micros)
    }
}

fn field(letter: char, count: usize) -> Option<Field> {
    let (field, most) = match letter {
        'y' => (Field::Year, 6),
        'M' | 'L' => (Field::Month, 4),
        'd' => (Field::Day, 2),
        'D' => (Field::DayOfYear, 3),
        'q' | 'Q' => (Field::Quarter, 2),
        'E' => (Field::Weekday, 4),
        'H' => (Field::Hour, 2),
        'h' => (Field::HourOfHalf, 2),
        'm' => (Field::Minute, 2),
        's' => (Field::Second, 2),
        'S' => (Field::Fraction, 9),
        'a' => (Field::Half, 1),
        _ => return None,
    };
    (count <= most).then_some(field)
}

fn format_year(year: i64, width: usize) -> String {
    let digits = format!("{:0width$}", year.abs());
    match (year < 0, width >= 4 && digits.len() > width) {
        (true, _) => format!("-{digits}"),
        (false, true) => format!("+{digits}"),
        (false, false) => digits,
    }
}

/// Three letters of a name, or with four letters in the pattern all of it.
fn shortened(name: &str, width: usize) -> &str {
    if width == 4 {
        name
    } else {
        name.get(..3).unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::time;
    use super::*;

    #[test]
    fn writes_and_reads_back() {
        let local = time::parse_timestamp("2024-02-29 13:05:09.5").and_then(|stamp| stamp.local());
        let pattern = Pattern::parse("yyyy-MM-dd'T'HH:mm:ss.SSS").unwrap();
        let text = pattern.format(local.unwrap());
        assert_eq!(text, "2024-02-29T13:05:09.500");
        assert_eq!(pattern.parse_value(&text).unwrap(), local);
        assert!(Pattern::parse("YYYY").is_err());
        assert_eq!(
            Pattern::parse("yyyy-MM-dd HH:mm:ss").unwrap().format(0),
            "1970-01-01 00:00:00"
        );
    }
}
