//! Rows as text: what a scenario file writes in a cell, as a value of a column, and back.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, StringArray, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::util::display::array_value_to_string;

use crate::Outcome;

/// One row; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// The cells of a line, as they are written.
pub fn split(line: &str) -> Vec<String> {
    line.split('|')
        .map(|cell| cell.trim().to_string())
        .collect()
}

/// A cell without its quotes: `null` is NULL, `'null'` and `''` are text.
fn content(cell: &str) -> Option<&str> {
    match cell {
        "null" => None,
        _ => Some(
            cell.strip_prefix('\'')
                .and_then(|c| c.strip_suffix('\''))
                .unwrap_or(cell),
        ),
    }
}

/// A column of `data_type` with these cells.
pub fn column(cells: &[&str], data_type: &DataType) -> Outcome<ArrayRef> {
    let texts: ArrayRef = Arc::new(StringArray::from_iter(
        cells.iter().map(|cell| content(cell)),
    ));
    cast(&texts, data_type)
}

pub fn cast(array: &ArrayRef, data_type: &DataType) -> Outcome<ArrayRef> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, data_type, &options).map_err(|e| format!("{e} (as {data_type})"))
}

/// Rows of some columns of a table; the other columns are NULL.
pub fn batch(names: &[String], rows: &[Vec<String>], schema: &SchemaRef) -> Outcome<RecordBatch> {
    for name in names {
        if !schema
            .fields()
            .iter()
            .any(|f| f.name().eq_ignore_ascii_case(name))
        {
            return Err(format!("the table has no column `{name}`"));
        }
    }
    if let Some(row) = rows.iter().find(|row| row.len() != names.len()) {
        return Err(format!(
            "{} cells for {} columns: {}",
            row.len(),
            names.len(),
            row.join(" | ")
        ));
    }
    let columns = schema
        .fields()
        .iter()
        .map(|field| {
            match names
                .iter()
                .position(|n| n.eq_ignore_ascii_case(field.name()))
            {
                None => Ok(new_null_array(field.data_type(), rows.len())),
                Some(at) => {
                    let cells: Vec<&str> = rows.iter().map(|row| row[at].as_str()).collect();
                    column(&cells, field.data_type())
                }
            }
        })
        .collect::<Outcome<Vec<_>>>()?;
    RecordBatch::try_new(schema.clone(), columns).map_err(crate::words)
}

/// A value as it is compared and shown.
pub fn shown(array: &dyn Array, index: usize) -> Outcome<Option<String>> {
    if array.is_null(index) {
        return Ok(None);
    }
    let text = array_value_to_string(array, index).map_err(crate::words)?;
    // Zero has one value, whatever its sign.
    Ok(Some(if text == "-0.0" { "0.0".into() } else { text }))
}

pub fn rows(batches: &[RecordBatch]) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for batch in batches {
        for index in 0..batch.num_rows() {
            rows.push(
                batch
                    .columns()
                    .iter()
                    .map(|c| shown(c, index))
                    .collect::<Outcome<Row>>()?,
            );
        }
    }
    Ok(rows)
}

/// The cells of an expected row, each in the form in which a value of its column is shown.
pub fn expected(cells: &[String], types: &[DataType]) -> Outcome<Row> {
    if cells.len() != types.len() {
        return Err(format!(
            "{} cells for {} columns: {}",
            cells.len(),
            types.len(),
            cells.join(" | ")
        ));
    }
    cells
        .iter()
        .zip(types)
        .map(|(cell, data_type)| {
            if data_type.is_nested() || matches!(data_type, DataType::Binary | DataType::BinaryView)
            {
                return Ok(content(cell).map(str::to_string));
            }
            shown(&column(&[cell], data_type)?, 0)
        })
        .collect()
}

/// Nothing if both are the same multiset of rows, else the rows that only one of them has.
pub fn difference(found: &[Row], expected: &[Row]) -> Option<String> {
    let (mut surplus, mut missing) = (found.to_vec(), Vec::new());
    for row in expected {
        match surplus.iter().position(|r| r == row) {
            Some(at) => {
                surplus.swap_remove(at);
            }
            None => missing.push(row.clone()),
        }
    }
    if surplus.is_empty() && missing.is_empty() {
        return None;
    }
    surplus.sort();
    missing.sort();
    let mut text = String::new();
    for (sign, rows) in [("-", missing), ("+", surplus)] {
        for row in rows {
            let cells: Vec<&str> = row.iter().map(|c| c.as_deref().unwrap_or("null")).collect();
            text.push_str(&format!("\n    {sign} {}", cells.join(" | ")));
        }
    }
    Some(format!(
        "{} rows, expected {} (- is missing, + is too much):{text}",
        found.len(),
        expected.len()
    ))
}
