//! Types as Spark writes them: `array<int>`, `struct<a:int,b:string>`, `a INT, b STRING`.

use datafusion::arrow::datatypes::{DataType, Field};

use super::types::{self, list_of, map_of};

/// How deep types may nest.
const DEEPEST: usize = 50;

/// Reads a type, or a list of columns as a struct; `None` if the text is neither.
pub(super) fn parse(text: &str) -> Option<DataType> {
    let mut reader = Reader { rest: text.trim() };
    if let Some(found) = reader.data_type(0)
        && reader.rest.is_empty()
    {
        return Some(found);
    }
    let mut reader = Reader { rest: text.trim() };
    let fields = reader.fields(None, 0)?;
    reader
        .rest
        .is_empty()
        .then(|| DataType::Struct(fields.into()))
}

/// Reads a type alone.
pub(super) fn parse_type(text: &str) -> Option<DataType> {
    let mut reader = Reader { rest: text.trim() };
    let found = reader.data_type(0)?;
    reader.rest.is_empty().then_some(found)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn take(&mut self, sign: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(sign)?.trim_start();
        Some(())
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        self.rest = behind.trim_start();
        (!word.is_empty()).then_some(word)
    }

    fn name(&mut self) -> Option<String> {
        let rest = self.rest.trim_start();
        let Some(quoted) = rest.strip_prefix('`') else {
            return self.word().map(str::to_string);
        };
        let mut name = String::new();
        let mut characters = quoted.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '`' if characters.next_if(|(_, next)| *next == '`').is_some() => name.push('`'),
                '`' => {
                    self.rest = quoted[at + 1..].trim_start();
                    return Some(name);
                }
                other => name.push(other),
            }
        }
        None
    }

    fn number(&mut self) -> Option<i64> {
        self.word()?.parse().ok()
    }

    fn data_type(&mut self, depth: usize) -> Option<DataType> {
        if depth > DEEPEST {
            return None;
        }
        let word = self.word()?.to_lowercase();
        Some(match word.as_str() {
            "array" => {
                self.take('<')?;
                let element = self.data_type(depth + 1)?;
                self.take('>')?;
                list_of(&element)
            }
            "map" => {
                self.take('<')?;
                let key = self.data_type(depth + 1)?;
                self.take(',')?;
                let value = self.data_type(depth + 1)?;
                self.take('>')?;
                map_of(&key, &value)
            }
            "struct" => {
                self.take('<')?;
                let fields = self.fields(Some('>'), depth + 1)?;
                DataType::Struct(fields.into())
            }
            "decimal" | "dec" | "numeric" => {
                let (mut precision, mut scale) = (10, 0);
                if self.take('(').is_some() {
                    precision = self.number()?;
                    if self.take(',').is_some() {
                        scale = self.number()?;
                    }
                    self.take(')')?;
                }
                if !(1..=38).contains(&precision) || !(0..=precision).contains(&scale) {
                    return None;
                }
                DataType::Decimal128(precision as u8, scale as i8)
            }
            "varchar" | "char" => {
                self.take('(')?;
                self.number()?;
                self.take(')')?;
                DataType::Utf8
            }
            "byte" => DataType::Int8,
            "short" => DataType::Int16,
            "integer" => DataType::Int32,
            "long" => DataType::Int64,
            "real" => DataType::Float32,
            "timestamp_ltz" => types::instant(),
            other => types::scalar(other)?,
        })
    }

    fn fields(&mut self, end: Option<char>, depth: usize) -> Option<Vec<Field>> {
        let mut fields = vec![];
        if let Some(end) = end
            && self.take(end).is_some()
        {
            return Some(fields);
        }
        loop {
            let name = self.name()?;
            let _ = self.take(':');
            let data_type = self.data_type(depth)?;
            let before = self.rest;
            match self.word().map(str::to_uppercase).as_deref() {
                // A value that is missing is null all the same.
                Some("NOT") if self.word()?.eq_ignore_ascii_case("NULL") => {}
                Some(_) => return None,
                None => self.rest = before,
            }
            fields.push(Field::new(name, data_type, true));
            if self.take(',').is_some() {
                continue;
            }
            return match end {
                Some(end) => self.take(end).map(|()| fields),
                None => Some(fields),
            };
        }
    }
}
