//! Tables by chance: columns, rows, and what other writers do to them.

use chrono::{Days, NaiveDate};

use super::chance::Chance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Int,
    Long,
    Decimal,
    Double,
    Text,
    Date,
    Time,
    Bool,
    /// A double whose last digits depend on the order of rows: it is shown, and used for nothing.
    Approximate,
}

impl Type {
    pub fn delta(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Long => "long",
            Self::Decimal => "decimal(12,2)",
            Self::Double | Self::Approximate => "double",
            Self::Text => "string",
            Self::Date => "date",
            Self::Time => "timestamp",
            Self::Bool => "boolean",
        }
    }

    pub fn sql(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::Long => "BIGINT",
            Self::Decimal => "DECIMAL(12,2)",
            Self::Double | Self::Approximate => "DOUBLE",
            Self::Text => "STRING",
            Self::Date => "DATE",
            Self::Time => "TIMESTAMP",
            Self::Bool => "BOOLEAN",
        }
    }

    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Long | Self::Decimal | Self::Double)
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int | Self::Long)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Col {
    pub name: String,
    pub kind: Type,
    /// It is a source's column all the way down, so that a predicate over it reaches that source.
    pub traced: bool,
}

impl Col {
    /// A column that is computed.
    pub fn made(name: String, kind: Type) -> Self {
        Self {
            name,
            kind,
            traced: false,
        }
    }

    pub fn untraced(self) -> Self {
        Self {
            traced: false,
            ..self
        }
    }
}

pub type Cells = Vec<String>;

/// A source.
#[derive(Debug, Clone)]
pub struct Source {
    pub name: String,
    pub cols: Vec<Col>,
    pub partitioned_by: Option<String>,
    /// Rows go by deletion vectors, and by nothing else.
    pub vectors: bool,
    /// Its writers leave change data.
    pub feed: bool,
    pub files: Vec<Vec<Cells>>,
    /// The next id.
    pub next: usize,
}

pub fn day(offset: i64) -> NaiveDate {
    let first = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap_or_default();
    match offset < 0 {
        true => first - Days::new(offset.unsigned_abs()),
        false => first + Days::new(offset.unsigned_abs()),
    }
}

/// A value as a cell; `null` now and then.
pub fn cell(chance: &mut Chance, kind: Type, nulls: usize) -> String {
    if chance.of_hundred(nulls) {
        return "null".into();
    }
    match kind {
        Type::Int | Type::Long => (chance.below(7) as i64 - 1).to_string(),
        Type::Decimal => chance
            .pick(&["0.00", "1.25", "-3.50", "99.99", "7.01"])
            .into(),
        Type::Double | Type::Approximate => chance
            .pick(&["0.0", "-0.0", "1.5", "-2.25", "NaN", "100.0", "1.5", "0.5"])
            .into(),
        Type::Text => format!("'{}'", chance.pick(&["a", "b", "c", "A", "a b", "ß"])),
        Type::Date => day(chance.below(14) as i64).to_string(),
        Type::Time => format!(
            "{}T{:02}:00:00Z",
            day(chance.below(14) as i64),
            chance.pick(&[0, 6, 23])
        ),
        Type::Bool => chance.pick(&["true", "false"]).into(),
    }
}

/// A value as a literal, in the SQL of pipelines and of DataFusion alike.
pub fn literal(chance: &mut Chance, kind: Type) -> String {
    let cell = cell(chance, kind, 0);
    as_literal(&cell, kind)
}

pub fn as_literal(cell: &str, kind: Type) -> String {
    match kind {
        Type::Date => format!("DATE '{cell}'"),
        Type::Time => format!(
            "TIMESTAMP '{}'",
            cell.trim_end_matches('Z').replace('T', " ")
        ),
        Type::Double | Type::Approximate => format!("CAST('{cell}' AS DOUBLE)"),
        Type::Decimal => format!("CAST('{cell}' AS DECIMAL(12,2))"),
        _ => cell.to_string(),
    }
}

impl Source {
    pub fn new(chance: &mut Chance, index: usize, key: Type) -> Self {
        let col = |name: &str, kind| Col {
            name: name.into(),
            kind,
            traced: true,
        };
        let mut cols = vec![col("id", Type::Long), col("d", Type::Date), col("k", key)];
        let further = [
            ("n", chance.pick(&[Type::Int, Type::Long])),
            ("m", Type::Decimal),
            ("x", Type::Double),
            ("t", Type::Text),
            ("ts", Type::Time),
            ("b", Type::Bool),
        ];
        for (name, kind) in further {
            if chance.of_hundred(55) {
                cols.push(col(name, kind));
            }
        }
        let vectors = chance.of_hundred(12);
        let partitioned_by = match chance.below(10) {
            0 | 1 if !vectors => Some("d".to_string()),
            2 if !vectors => Some("k".to_string()),
            _ => None,
        };
        let mut source = Self {
            name: format!("s{index}"),
            cols,
            partitioned_by,
            vectors,
            feed: chance.of_hundred(30),
            files: Vec::new(),
            next: 0,
        };
        for _ in 0..chance.between(0, 4) {
            let rows = source.rows(chance, 8);
            source.files.push(rows);
        }
        source
    }

    /// Whether updates are made by a writer that leaves all of their change data.
    pub fn leaves_changes(&self) -> bool {
        self.feed && self.partitioned_by.is_none()
    }

    /// The properties with which it is made.
    pub fn properties(&self) -> Vec<(&'static str, &'static str)> {
        let all = [
            (self.vectors, "delta.enableDeletionVectors"),
            (self.feed, "delta.enableChangeDataFeed"),
        ];
        let set = all.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, name)| (name, "true")).collect()
    }

    /// Up to so many new rows; some of them twice.
    pub fn rows(&mut self, chance: &mut Chance, most: usize) -> Vec<Cells> {
        let mut rows: Vec<Cells> = Vec::new();
        for _ in 0..chance.between(1, most) {
            if !rows.is_empty() && chance.of_hundred(10) {
                rows.push(chance.pick(&rows));
                continue;
            }
            let id = match self.next > 3 && chance.of_hundred(10) {
                true => chance.below(self.next),
                false => {
                    self.next += 1;
                    self.next
                }
            };
            let nulls = if chance.of_hundred(50) { 0 } else { 20 };
            let mut row = vec![id.to_string()];
            for col in &self.cols[1..] {
                row.push(cell(chance, col.kind, nulls));
            }
            rows.push(row);
        }
        rows
    }

    /// A condition over the source for another writer.
    fn condition(&self, chance: &mut Chance) -> String {
        let col = chance.pick(&self.cols);
        let name = &col.name;
        match chance.below(6) {
            0 => format!("id % 3 = {}", chance.below(3)),
            1 => format!("id = {}", chance.below(self.next + 1)),
            2 => format!("d = {}", literal(chance, Type::Date)),
            3 => format!("d >= {}", literal(chance, Type::Date)),
            4 => format!("{name} IS NULL"),
            _ => format!("{name} = {}", literal(chance, col.kind)),
        }
    }
}

/// What another writer does.
#[derive(Debug, Clone)]
pub enum Event {
    Append(usize, Vec<Cells>),
    Overwrite(usize, Vec<Cells>),
    Delete(usize, String),
    Update(usize, String, String, String),
    /// By id: rows that are there get the new values, others are added.
    Merge(usize, Vec<Cells>),
    Optimize(usize),
    ZOrder(usize, String),
    SoftDelete(usize, String),
    Recreate(usize, Vec<Cells>),
    AddColumn(usize, Col),
    Restore(usize, u64),
    Checkpoint(usize),
    /// On the target of a flow: rows that are there once more, with another value in one column.
    TargetInsert(usize, Option<(String, String)>),
    TargetDelete(usize, String),
    TargetUpdate(usize, String, String, String),
    TargetOptimize(usize),
}

impl Event {
    pub fn on_source(chance: &mut Chance, index: usize, source: &mut Source) -> Self {
        if source.vectors {
            return match chance.below(10) {
                0..=4 => Self::Append(index, source.rows(chance, 5)),
                5..=8 => Self::SoftDelete(index, source.condition(chance)),
                _ => Self::Checkpoint(index),
            };
        }
        let most = if chance.of_hundred(20) { 20 } else { 4 };
        match chance.below(40) {
            0..=12 => Self::Append(index, source.rows(chance, most)),
            13..=18 => Self::Delete(index, source.condition(chance)),
            19..=25 => {
                let cols: Vec<Col> = source.cols[1..]
                    .iter()
                    .filter(|c| source.partitioned_by.as_ref() != Some(&c.name))
                    .cloned()
                    .collect();
                let col = chance.pick(&cols);
                let value = match chance.of_hundred(15) {
                    true => "NULL".to_string(),
                    false => literal(chance, col.kind),
                };
                let condition = source.condition(chance);
                Self::Update(index, col.name, value, condition)
            }
            26..=28 => {
                // One row for each id, and ids that are mostly there.
                let mut rows = source.rows(chance, 4);
                for row in &mut rows {
                    if chance.of_hundred(60) {
                        row[0] = chance.below(source.next + 1).to_string();
                    }
                }
                rows.sort();
                rows.dedup_by(|a, b| a[0] == b[0]);
                Self::Merge(index, rows)
            }
            29 | 30 => Self::Overwrite(index, source.rows(chance, 8)),
            31..=33 => Self::Optimize(index),
            34 => Self::ZOrder(index, "id".into()),
            35 if chance.of_hundred(50) => Self::Recreate(index, source.rows(chance, 8)),
            36 if chance.of_hundred(60) => {
                let name = format!("z{}", source.cols.len());
                let col = Col {
                    name,
                    kind: chance.pick(&[Type::Int, Type::Text, Type::Date]),
                    traced: true,
                };
                source.cols.push(col.clone());
                Self::AddColumn(index, col)
            }
            37 | 38 => Self::Restore(index, chance.between(1, 3) as u64),
            _ => Self::Checkpoint(index),
        }
    }

    pub fn on_target(chance: &mut Chance, index: usize, cols: &[Col]) -> Self {
        let usable: Vec<Col> = cols
            .iter()
            .filter(|c| c.kind != Type::Approximate && c.kind != Type::Bool)
            .cloned()
            .collect();
        if usable.is_empty() {
            return Self::TargetOptimize(index);
        }
        let (a, b) = (chance.pick(&usable), chance.pick(&usable));
        let condition = match chance.below(3) {
            0 => format!("{} IS NOT NULL", a.name),
            1 => format!("{} >= {}", a.name, literal(chance, a.kind)),
            _ => format!("{} = {}", a.name, literal(chance, a.kind)),
        };
        match chance.below(8) {
            0 | 1 => {
                let changed = chance
                    .of_hundred(50)
                    .then(|| (b.name.clone(), literal(chance, b.kind)));
                Self::TargetInsert(index, changed)
            }
            2 | 3 => Self::TargetDelete(index, condition),
            4..=6 => Self::TargetUpdate(index, b.name.clone(), literal(chance, b.kind), condition),
            _ => Self::TargetOptimize(index),
        }
    }

    /// The table that it changes.
    pub fn table(&self) -> String {
        match self {
            Self::Append(s, _)
            | Self::Overwrite(s, _)
            | Self::Delete(s, _)
            | Self::Update(s, ..)
            | Self::Merge(s, _)
            | Self::Optimize(s)
            | Self::ZOrder(s, _)
            | Self::SoftDelete(s, _)
            | Self::Recreate(s, _)
            | Self::AddColumn(s, _)
            | Self::Restore(s, _)
            | Self::Checkpoint(s) => format!("s{s}"),
            Self::TargetInsert(f, _)
            | Self::TargetDelete(f, _)
            | Self::TargetUpdate(f, ..)
            | Self::TargetOptimize(f) => format!("f{f}"),
        }
    }

    /// As a step of a scenario.
    pub fn told(&self, sources: &[Source]) -> String {
        let rows = |source: usize, rows: &[Cells]| {
            let width = rows.first().map_or(0, Vec::len);
            let names: Vec<&str> = sources[source]
                .cols
                .iter()
                .take(width)
                .map(|c| c.name.as_str())
                .collect();
            let mut text = format!("\n  {}", names.join(" | "));
            for row in rows {
                text.push_str(&format!("\n  {}", row.join(" | ")));
            }
            text
        };
        match self {
            Self::Append(s, r) => format!("append s{s}{}", rows(*s, r)),
            Self::Overwrite(s, r) => format!("overwrite s{s}{}", rows(*s, r)),
            Self::Delete(s, c) => format!("delete s{s} where {c}"),
            Self::Update(s, col, value, c) => {
                let verb = if sources[*s].leaves_changes() {
                    "change"
                } else {
                    "update"
                };
                format!("{verb} s{s} where {c}\n  {col} = {value}")
            }
            Self::Merge(s, r) => format!("merge s{s} by id{}", rows(*s, r)),
            Self::Optimize(s) => format!("optimize s{s} if needed"),
            Self::ZOrder(s, by) => format!("optimize s{s} by {by}"),
            Self::SoftDelete(s, c) => format!("soft-delete s{s} where {c}"),
            Self::Recreate(s, r) => format!("recreate s{s}{}", rows(*s, r)),
            Self::AddColumn(s, col) => format!("add to s{s} {} {}", col.name, col.kind.sql()),
            Self::Restore(s, back) => format!("restore s{s} by {back} versions"),
            Self::Checkpoint(s) => format!("checkpoint s{s}"),
            Self::TargetInsert(f, None) => format!("insert into f{f} two of its rows again"),
            Self::TargetInsert(f, Some((col, value))) => {
                format!("insert into f{f} two of its rows again with {col} = {value}")
            }
            Self::TargetDelete(f, c) => format!("delete f{f} where {c}"),
            Self::TargetUpdate(f, col, value, c) => {
                format!("update f{f} where {c}\n  {col} = {value}")
            }
            Self::TargetOptimize(f) => format!("optimize f{f} if needed"),
        }
    }
}
