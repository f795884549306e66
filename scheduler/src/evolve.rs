//! The target's columns after this update: made from the definition and the query, or the existing
//! ones with what the query adds. Changes that would need a full refresh are refused here.

use datafusion::arrow::datatypes::DataType;
use serde_json::Value;
use windrow_delta::schema::{COMMENT, Column, GENERATION_EXPRESSION, TableSchema, stored_type};
use windrow_flows::definition::{ColumnDefinition, TableDefinition};
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::types::{Fit, arrow_type, fit, sql_name};

use windrow_executor::scan::RESERVED_PREFIX;

/// A column of a query's result.
#[derive(Debug, Clone)]
pub struct OutputColumn {
    /// Lower-cased, as the plan knows it.
    pub query_name: String,
    /// With the case as written.
    pub shown_name: String,
    pub data_type: DataType,
}

/// How a column of the target gets its values.
#[derive(Debug, Clone, PartialEq)]
pub enum Fill {
    /// From the query's column of that index; `exact` when a value that does not survive the
    /// change of type must fail the flow.
    Query {
        index: usize,
        exact: bool,
    },
    Null,
    /// Computed from the other columns.
    Generated(String),
}

#[derive(Debug, Clone)]
pub struct Evolved {
    pub schema: TableSchema,
    /// One for each column of `schema`.
    pub fills: Vec<Fill>,
    /// Whether the table's metadata must be written anew.
    pub columns_changed: bool,
}

/// Columns that Delta can't name without column mapping.
const NOT_IN_NAMES: &[char] = &[' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// Decides on the target's columns.
///
/// `existing` is `None` for a table that is made now or fully refreshed. `replace_columns` is set
/// for a materialized view, whose columns are those of its query.
pub fn evolve(
    table: &str,
    existing: Option<&TableSchema>,
    definition: &TableDefinition,
    outputs: &[OutputColumn],
    replace_columns: bool,
) -> Result<Evolved, Fault> {
    check_outputs(table, outputs)?;
    let partitioned = partition_columns(definition);
    let base = match existing {
        Some(schema) if !replace_columns => schema.clone(),
        _ => declared(table, definition)?,
    };
    if let Some(existing) = existing {
        let same = existing.partition_columns.len() == partitioned.len()
            && existing
                .partition_columns
                .iter()
                .zip(&partitioned)
                .all(|(a, b)| name::key(a) == name::key(b));
        if !same && !(replace_columns) {
            return Err(Fault::new(
                "PARTITIONING_CHANGED",
                format!(
                    "`{table}` is partitioned by ({}), its definition says ({}): the partitioning of a table can't change",
                    existing.partition_columns.join(", "),
                    partitioned.join(", ")
                ),
            )
            .at(definition.name.place.clone())
            .help(format!("keep the partitioning, or do a full refresh: windrow run --full-refresh {table}")));
        }
        check_declared(table, existing, definition)?;
    }
    let mut columns: Vec<Column> = Vec::new();
    let mut fills = Vec::new();
    let mut changed = existing.is_none();
    let mut base_columns = base.columns;
    if let Some(existing) = existing.filter(|_| !replace_columns) {
        // Columns that were declared since the table was made.
        for column in declared(table, definition)?.columns {
            if existing.column(&column.name).is_some() {
                continue;
            }
            let is_generated =
                declaration(definition, &column.name).is_some_and(|d| d.generated.is_some());
            if is_generated {
                return Err(Fault::new(
                    "SCHEMA_CHANGE_NOT_ALLOWED",
                    format!("column `{}` of `{table}` is new and GENERATED, but older rows would not have its value", column.name),
                )
                .at(definition.name.place.clone())
                .help(format!("compute it in the query, or do a full refresh: windrow run --full-refresh {table}")));
            }
            if !column.nullable {
                return Err(Fault::new(
                    "SCHEMA_CHANGE_NOT_ALLOWED",
                    format!("column `{}` of `{table}` is new and NOT NULL, but older rows have no value for it", column.name),
                )
                .at(definition.name.place.clone())
                .help(format!("leave NOT NULL out, or do a full refresh: windrow run --full-refresh {table}")));
            }
            base_columns.push(column);
            changed = true;
        }
    }
    for mut column in base_columns {
        let declared = declaration(definition, &column.name);
        let is_old = existing.is_some_and(|e| !replace_columns && e.column(&column.name).is_some());
        if is_old {
            check_rules_kept(table, &column, declared)?;
        }
        changed |= apply_declaration(&mut column, declared);
        let index = outputs
            .iter()
            .position(|o| o.query_name == name::key(&column.name));
        let fill = match (index, column.generation_expression()) {
            (Some(index), _) => fill_from(
                existing.is_none(),
                table,
                &column,
                &outputs[index],
                index,
                declared.is_some(),
                definition,
            )?,
            (None, Some(expression)) => Fill::Generated(expression.to_string()),
            (None, None) if !column.nullable => {
                return Err(Fault::new(
                    "NOT_NULL_COLUMN_MISSING",
                    format!(
                        "column `{}` of `{table}` is NOT NULL, but the query does not have it",
                        column.name
                    ),
                )
                .at(definition.name.place.clone()));
            }
            (None, None) => Fill::Null,
        };
        columns.push(column);
        fills.push(fill);
    }
    for (index, output) in outputs.iter().enumerate() {
        if columns
            .iter()
            .any(|c| name::key(&c.name) == output.query_name)
        {
            continue;
        }
        if !definition.columns.is_empty() && existing.is_none() {
            return Err(Fault::new(
                "COLUMN_NOT_DECLARED",
                format!(
                    "the query has a column `{}`, which the column list of `{table}` lacks",
                    output.shown_name
                ),
            )
            .at(definition.name.place.clone())
            .help("add it to the column list, or leave it out of the query"));
        }
        let column = new_column(table, output)?;
        columns.push(column);
        fills.push(Fill::Query {
            index,
            exact: false,
        });
        changed = true;
    }
    let partition_columns = partitioned
        .iter()
        .map(
            |p| match columns.iter().find(|c| name::key(&c.name) == name::key(p)) {
                Some(column) if column.data_type.is_nested() => Err(Fault::new(
                    "PARTITION_COLUMN_TYPE",
                    format!(
                        "`{table}` can't be partitioned by `{p}`, which is {}",
                        sql_name(&column.data_type)
                    ),
                )
                .at(definition.name.place.clone())),
                Some(column) => Ok(column.name.clone()),
                None => Err(Fault::new(
                    "PARTITION_COLUMN_NOT_FOUND",
                    format!("`{table}` is to be partitioned by `{p}`, which is no column of it"),
                )
                .hint(name::did_you_mean(
                    p,
                    columns.iter().map(|c| c.name.as_str()),
                ))
                .at(definition.name.place.clone())),
            },
        )
        .collect::<Result<Vec<_>, _>>()?;
    if columns.len() == partition_columns.len() {
        return Err(Fault::new(
            "ONLY_PARTITION_COLUMNS",
            format!("every column of `{table}` partitions it; a table needs one that does not"),
        )
        .at(definition.name.place.clone()));
    }
    let columns_changed = changed || existing.is_some_and(|e| e.columns != columns);
    Ok(Evolved {
        schema: TableSchema {
            columns,
            partition_columns,
        },
        fills,
        columns_changed,
    })
}

fn check_outputs(table: &str, outputs: &[OutputColumn]) -> Result<(), Fault> {
    for (i, output) in outputs.iter().enumerate() {
        if let Some(other) = outputs[..i]
            .iter()
            .find(|o| o.query_name == output.query_name)
        {
            return Err(Fault::new(
                "DUPLICATE_COLUMN",
                format!(
                    "the query for `{table}` has two columns called `{}` and `{}`; names compare without case",
                    other.shown_name, output.shown_name
                ),
            )
            .help("give one of the two another name with AS"));
        }
        if output.query_name.starts_with(RESERVED_PREFIX) {
            return Err(Fault::new(
                "RESERVED_COLUMN_NAME",
                format!(
                    "column `{}` begins with {RESERVED_PREFIX}, which Windrow keeps for itself",
                    output.shown_name
                ),
            ));
        }
        if output.shown_name.contains(NOT_IN_NAMES) || output.shown_name.is_empty() {
            return Err(Fault::new(
                "COLUMN_NAME_NOT_SUPPORTED",
                format!(
                    "column `{}` of `{table}` has a blank or one of ,;{{}}()= in its name, which a Delta table can't have",
                    output.shown_name
                ),
            )
            .help(format!("give it another name: `{}` AS {}", output.shown_name, plain(&output.shown_name))));
        }
    }
    Ok(())
}

fn plain(name: &str) -> String {
    let text: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    text.trim_matches('_').to_string()
}

fn partition_columns(definition: &TableDefinition) -> Vec<String> {
    definition
        .partitioned_by
        .iter()
        .map(|n| n.last().to_string())
        .collect()
}

fn declaration<'a>(definition: &'a TableDefinition, column: &str) -> Option<&'a ColumnDefinition> {
    definition
        .columns
        .iter()
        .find(|c| name::key(c.name.last()) == name::key(column))
}

fn declared_type(definition: &ColumnDefinition) -> Result<Option<DataType>, Fault> {
    definition
        .data_type
        .as_ref()
        .map(|t| {
            arrow_type(t).map_err(|e| {
                Fault::new(
                    "COLUMN_TYPE_NOT_SUPPORTED",
                    format!("column `{}`: {e}", definition.name),
                )
                .at(definition.name.place.clone())
            })
        })
        .transpose()
}

fn declared(table: &str, definition: &TableDefinition) -> Result<TableSchema, Fault> {
    let mut columns: Vec<Column> = Vec::new();
    for column in &definition.columns {
        let Some(data_type) = declared_type(column)? else {
            continue;
        };
        if columns
            .iter()
            .any(|c| name::key(&c.name) == name::key(column.name.last()))
        {
            return Err(Fault::new(
                "DUPLICATE_COLUMN",
                format!("`{table}` declares column `{}` twice", column.name),
            )
            .at(column.name.place.clone()));
        }
        let made = Column::new(column.name.last(), data_type, !column.not_null).map_err(|e| {
            Fault::new("COLUMN_TYPE_NOT_SUPPORTED", e).at(column.name.place.clone())
        })?;
        columns.push(made);
    }
    Ok(TableSchema {
        columns,
        partition_columns: Vec::new(),
    })
}

/// Declared types must be those that the table has.
fn check_declared(
    table: &str,
    existing: &TableSchema,
    definition: &TableDefinition,
) -> Result<(), Fault> {
    for column in &definition.columns {
        let Some(data_type) = declared_type(column)? else {
            continue;
        };
        let Some(old) = existing.column(column.name.last()) else {
            continue;
        };
        if fit(&data_type, &old.data_type) != Fit::Same {
            return Err(change_refused(table, &old.name, &old.data_type, &data_type)
                .at(column.name.place.clone()));
        }
    }
    Ok(())
}

fn change_refused(table: &str, column: &str, old: &DataType, new: &DataType) -> Fault {
    Fault::new(
        "SCHEMA_CHANGE_NOT_ALLOWED",
        format!(
            "column `{column}` of `{table}` is {}, its definition now gives {}: this type can't change in place",
            sql_name(old),
            sql_name(new)
        ),
    )
    .help(format!(
        "write it to a new column, or do a full refresh: windrow run --full-refresh {table}"
    ))
}

/// A rule that older rows may break can't be declared for a column that has rows.
fn check_rules_kept(
    table: &str,
    column: &Column,
    declared: Option<&ColumnDefinition>,
) -> Result<(), Fault> {
    let Some(declared) = declared else {
        return Ok(());
    };
    let refuse = |what: &str| {
        Err(Fault::new(
            "SCHEMA_CHANGE_NOT_ALLOWED",
            format!(
                "column `{}` of `{table}` is now declared {what}, which its older rows may break",
                column.name
            ),
        )
        .at(declared.name.place.clone())
        .help(format!(
            "undo that, or do a full refresh: windrow run --full-refresh {table}"
        )))
    };
    if declared.not_null && column.nullable {
        return refuse("NOT NULL");
    }
    match (&declared.generated, column.generation_expression()) {
        (Some(new), Some(old)) if new.text == old => Ok(()),
        (None, _) => Ok(()),
        (Some(_), _) => refuse("GENERATED with another expression"),
    }
}

/// Comments and generation expressions of the definition; tells whether anything is new.
fn apply_declaration(column: &mut Column, declared: Option<&ColumnDefinition>) -> bool {
    let Some(declared) = declared else {
        return false;
    };
    let before = column.clone();
    if let Some(comment) = &declared.comment {
        column
            .metadata
            .insert(COMMENT.into(), Value::String(comment.clone()));
    }
    if let Some(generated) = &declared.generated {
        column.metadata.insert(
            GENERATION_EXPRESSION.into(),
            Value::String(generated.text.clone()),
        );
    }
    before != *column
}

fn fill_from(
    is_new: bool,
    table: &str,
    column: &Column,
    output: &OutputColumn,
    index: usize,
    is_declared: bool,
    definition: &TableDefinition,
) -> Result<Fill, Fault> {
    let from = stored_type(&output.data_type).unwrap_or_else(|_| output.data_type.clone());
    let is_number = |t: &DataType| t.is_numeric();
    match fit(&from, &column.data_type) {
        Fit::Same => Ok(Fill::Query {
            index,
            exact: false,
        }),
        Fit::Widens if is_declared || from == DataType::Null => Ok(Fill::Query {
            index,
            exact: false,
        }),
        // The definition gives a narrower type than the table has.
        Fit::Widens => Err(
            change_refused(table, &column.name, &column.data_type, &from)
                .at(definition.name.place.clone()),
        ),
        // A wider value is written in the table's type where it loses nothing.
        Fit::Narrows => Ok(Fill::Query {
            index,
            exact: !is_declared,
        }),
        Fit::Differs if is_declared && is_number(&from) && is_number(&column.data_type) => {
            Ok(Fill::Query {
                index,
                exact: false,
            })
        }
        Fit::Differs if is_new => Err(Fault::new(
            "COLUMN_TYPE_DIFFERS",
            format!(
                "column `{}` of `{table}` is declared {}, but the query gives {}",
                column.name,
                sql_name(&column.data_type),
                sql_name(&from)
            ),
        )
        .at(definition.name.place.clone())
        .help(format!(
            "write CAST({} AS {}) in the query",
            output.shown_name,
            sql_name(&column.data_type)
        ))),
        Fit::Differs => Err(
            change_refused(table, &column.name, &column.data_type, &from)
                .at(definition.name.place.clone()),
        ),
    }
}

fn new_column(table: &str, output: &OutputColumn) -> Result<Column, Fault> {
    if output.data_type == DataType::Null {
        return Err(Fault::new(
            "COLUMN_TYPE_NOT_KNOWN",
            format!(
                "column `{}` of `{table}` is NULL in every row, so it has no type",
                output.shown_name
            ),
        )
        .help(format!("write CAST(NULL AS type) AS {}", output.shown_name)));
    }
    stored_type(&output.data_type)
        .and_then(|t| Column::new(&output.shown_name, t, true))
        .map_err(|e| {
            Fault::new(
                "COLUMN_TYPE_NOT_SUPPORTED",
                format!("column `{}` of `{table}`: {e}", output.shown_name),
            )
        })
}
