//! Faults: what is wrong with a pipeline, where, and what to do about it.
//!
//! A fault is data; how it is shown on a terminal is decided by its `Display`, which prints the
//! source line with a caret. Faults are collected: one bad statement does not hide the next one.

use std::fmt;
use std::sync::Arc;

/// A text that was read from a pipeline file (or from an option), with the name it is shown under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    /// Path as shown to the user, relative to the pipeline's folder.
    pub name: String,
    /// The text as it stands in the file.
    pub text: String,
}

/// A range inside a [`SourceText`]; lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub source: Arc<SourceText>,
    pub line: u64,
    pub column: u64,
    /// Line and column just behind the last character.
    pub end_line: u64,
    pub end_column: u64,
}

/// One thing that is wrong, with a stable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Stable upper-case word, listed in docs/errors.md.
    pub code: &'static str,
    pub message: String,
    /// Printed next to the caret, for example "did you mean `date`?".
    pub hint: Option<String>,
    /// The way out, as a sentence.
    pub help: Option<String>,
    pub place: Option<Place>,
}

impl Fault {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            help: None,
            place: None,
        }
    }

    pub fn at(mut self, place: impl Into<Option<Place>>) -> Self {
        self.place = place.into();
        self
    }

    pub fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A fault that is only warned of, for display.
struct Warning<'a>(&'a Fault);

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "warning")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "error")
    }
}

impl Fault {
    /// The same text for something that is read all the same.
    pub fn as_warning(&self) -> String {
        Warning(self).to_string()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, word: &str) -> fmt::Result {
        write!(f, "{word}[{}]: {}", self.code, self.message)?;
        let mut margin = 1;
        if let Some(place) = &self.place {
            let number = place.line.to_string();
            margin = number.len();
            write!(
                f,
                "\n{:margin$}--> {}:{}:{}",
                "", place.source.name, place.line, place.column
            )?;
            let line = place
                .source
                .text
                .lines()
                .nth(place.line.saturating_sub(1) as usize);
            if let Some(line) = line {
                let start = place.column.saturating_sub(1) as usize;
                let length = line.chars().count();
                let end = if place.end_line == place.line {
                    place.end_column.saturating_sub(1) as usize
                } else {
                    length
                };
                // A tab stays a tab in the line of carets, so that both lines move alike.
                let indent: String = line
                    .chars()
                    .take(start)
                    .map(|c| if c == '\t' { '\t' } else { ' ' })
                    .collect();
                let carets = "^".repeat(end.min(length).saturating_sub(start).max(1));
                write!(
                    f,
                    "\n{:margin$} |\n{number} | {line}\n{:margin$} | {indent}{carets}",
                    "", ""
                )?;
                if let Some(hint) = &self.hint {
                    write!(f, " {hint}")?;
                }
            }
        } else if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n{:margin$} = help: {help}", "")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
