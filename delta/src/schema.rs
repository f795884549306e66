//! A table's columns: Delta's schema string, the arrow types, and the names inside the files.
//!
//! With column mapping the files carry physical names; everything above this module speaks logical
//! names. Rules: Delta protocol, "Schema Serialization Format" and "Column Mapping".

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use serde_json::{Map, Value, json};

/// Column mapping's key for the name inside the files.
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";
/// Spark's key for a column's comment.
pub const COMMENT: &str = "comment";
/// The expression of a generated column.
pub const GENERATION_EXPRESSION: &str = "delta.generationExpression";

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Logical name, with the table's case.
    pub name: String,
    /// Name inside the files and in the log's statistics and partition values.
    pub physical_name: String,
    pub data_type: DataType,
    /// The same type with the names inside the files.
    pub physical_type: DataType,
    pub nullable: bool,
    pub metadata: Map<String, Value>,
    /// The type as it stands in the schema string, so that a rewrite of the schema keeps what this
    /// crate does not look at.
    pub json_type: Value,
}

impl Column {
    /// A column of a table that is about to be made.
    pub fn new(
        name: impl Into<String>,
        data_type: DataType,
        nullable: bool,
    ) -> Result<Self, String> {
        let name = name.into();
        let json_type = type_to_json(&data_type)?;
        Ok(Self {
            physical_name: name.clone(),
            name,
            physical_type: data_type.clone(),
            data_type,
            nullable,
            metadata: Map::new(),
            json_type,
        })
    }

    pub fn comment(&self) -> Option<&str> {
        self.metadata.get(COMMENT).and_then(Value::as_str)
    }

    pub fn generation_expression(&self) -> Option<&str> {
        self.metadata
            .get(GENERATION_EXPRESSION)
            .and_then(Value::as_str)
    }
}

/// Columns in the table's order, and which of them partition it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    pub columns: Vec<Column>,
    /// Logical names, in the order of partitioning.
    pub partition_columns: Vec<String>,
}

impl TableSchema {
    /// Reads `schemaString`; partition columns are named logically in the log.
    pub fn parse(schema_string: &str, partition_columns: &[String]) -> Result<Self, String> {
        let value: Value = serde_json::from_str(schema_string).map_err(|e| e.to_string())?;
        let fields = value
            .get("fields")
            .and_then(Value::as_array)
            .ok_or("schema without fields")?;
        let columns = fields
            .iter()
            .map(column_from_json)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            columns,
            partition_columns: partition_columns.to_vec(),
        })
    }

    pub fn to_schema_string(&self) -> String {
        let fields: Vec<Value> = self
            .columns
            .iter()
            .map(|c| {
                json!({"name": c.name, "type": c.json_type, "nullable": c.nullable, "metadata": c.metadata})
            })
            .collect();
        json!({"type": "struct", "fields": fields}).to_string()
    }

    /// The column of that name, compared without case.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| same_name(&c.name, name))
    }

    pub fn is_partition_column(&self, name: &str) -> bool {
        self.partition_columns.iter().any(|p| same_name(p, name))
    }

    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(
            self.columns
                .iter()
                .map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable))
                .collect::<Vec<_>>(),
        ))
    }

    /// Columns that live in the files, in the table's order.
    pub fn file_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns
            .iter()
            .filter(|c| !self.is_partition_column(&c.name))
    }

    /// Whether any column (nested ones too) is a timestamp without zone, which is a table feature.
    pub fn has_timestamp_ntz(&self) -> bool {
        self.columns.iter().any(|c| contains_ntz(&c.data_type))
    }
}

/// Names are compared without case, as Spark and Delta do.
pub fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

fn contains_ntz(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, None) => true,
        DataType::Struct(fields) => fields.iter().any(|f| contains_ntz(f.data_type())),
        DataType::List(f) | DataType::Map(f, _) => contains_ntz(f.data_type()),
        _ => false,
    }
}

fn column_from_json(field: &Value) -> Result<Column, String> {
    let name = field
        .get("name")
        .and_then(Value::as_str)
        .ok_or("a field without a name")?;
    let json_type = field
        .get("type")
        .ok_or_else(|| format!("field `{name}` without a type"))?;
    let metadata = field
        .get("metadata")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let physical_name = metadata
        .get(PHYSICAL_NAME)
        .and_then(Value::as_str)
        .unwrap_or(name)
        .to_string();
    Ok(Column {
        name: name.to_string(),
        physical_name,
        data_type: type_from_json(json_type, false).map_err(|e| format!("column `{name}`: {e}"))?,
        physical_type: type_from_json(json_type, true)?,
        nullable: field
            .get("nullable")
            .and_then(Value::as_bool)
            .unwrap_or(true),
        metadata,
        json_type: json_type.clone(),
    })
}

/// Arrow's type for one of Delta's, with logical or physical names inside structs.
fn type_from_json(value: &Value, physical: bool) -> Result<DataType, String> {
    if let Some(name) = value.as_str() {
        return primitive(name);
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let part = |key: &str| {
        value
            .get(key)
            .ok_or_else(|| format!("type without {key}"))
            .and_then(|v| type_from_json(v, physical))
    };
    let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(true);
    match text("type") {
        Some("struct") => {
            let fields = value
                .get("fields")
                .and_then(Value::as_array)
                .ok_or("struct without fields")?;
            let fields = fields
                .iter()
                .map(|f| {
                    let column = column_from_json(f)?;
                    Ok(if physical {
                        Field::new(column.physical_name, column.physical_type, column.nullable)
                    } else {
                        Field::new(column.name, column.data_type, column.nullable)
                    })
                })
                .collect::<Result<Fields, String>>()?;
            Ok(DataType::Struct(fields))
        }
        Some("array") => Ok(DataType::List(Arc::new(Field::new(
            "element",
            part("elementType")?,
            flag("containsNull"),
        )))),
        Some("map") => {
            let entries = Fields::from(vec![
                Field::new("key", part("keyType")?, false),
                Field::new("value", part("valueType")?, flag("valueContainsNull")),
            ]);
            Ok(DataType::Map(
                Arc::new(Field::new("key_value", DataType::Struct(entries), false)),
                false,
            ))
        }
        _ => Err(format!("unknown type {value}")),
    }
}

fn primitive(name: &str) -> Result<DataType, String> {
    Ok(match name {
        "string" => DataType::Utf8,
        "long" => DataType::Int64,
        "integer" => DataType::Int32,
        "short" => DataType::Int16,
        "byte" => DataType::Int8,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => {
            let digits = name
                .strip_prefix("decimal(")
                .and_then(|rest| rest.strip_suffix(')'))
                .and_then(|inner| inner.split_once(','))
                .and_then(|(p, s)| Some((p.trim().parse().ok()?, s.trim().parse().ok()?)));
            match digits {
                Some((precision, scale)) => DataType::Decimal128(precision, scale),
                None => return Err(format!("unknown type `{name}`")),
            }
        }
    })
}

/// Delta's type for one of arrow's; text, list and dictionary encodings are folded together.
pub fn type_to_json(data_type: &DataType) -> Result<Value, String> {
    Ok(match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => json!("string"),
        DataType::Int64 | DataType::UInt32 => json!("long"),
        DataType::Int32 | DataType::UInt16 => json!("integer"),
        DataType::Int16 | DataType::UInt8 => json!("short"),
        DataType::Int8 => json!("byte"),
        DataType::UInt64 => json!("decimal(20,0)"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Boolean => json!("boolean"),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => json!("binary"),
        DataType::Date32 | DataType::Date64 => json!("date"),
        DataType::Timestamp(_, Some(_)) => json!("timestamp"),
        DataType::Timestamp(_, None) => json!("timestamp_ntz"),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            json!(format!("decimal({p},{s})"))
        }
        DataType::Decimal256(p, s) if *p <= 38 => json!(format!("decimal({p},{s})")),
        DataType::Dictionary(_, value) => type_to_json(value)?,
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|f| {
                    Ok(
                        json!({"name": f.name(), "type": type_to_json(f.data_type())?,
                        "nullable": f.is_nullable(), "metadata": {}}),
                    )
                })
                .collect::<Result<Vec<_>, String>>()?;
            json!({"type": "struct", "fields": fields})
        }
        DataType::List(f)
        | DataType::LargeList(f)
        | DataType::ListView(f)
        | DataType::FixedSizeList(f, _) => {
            json!({"type": "array", "elementType": type_to_json(f.data_type())?,
                "containsNull": f.is_nullable()})
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                json!({"type": "map", "keyType": type_to_json(kv[0].data_type())?,
                    "valueType": type_to_json(kv[1].data_type())?,
                    "valueContainsNull": kv[1].is_nullable()})
            }
            other => return Err(format!("map of {other}")),
        },
        other => return Err(format!("Delta has no type for {other}")),
    })
}

/// The arrow type that a column of `data_type` has once it is stored in a Delta table.
pub fn stored_type(data_type: &DataType) -> Result<DataType, String> {
    type_from_json(&type_to_json(data_type)?, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_string_keeps_names_types_comments_and_nesting() {
        let text = r#"{"type":"struct","fields":[
          {"name":"Id","type":"long","nullable":false,"metadata":{}},
          {"name":"m","type":"decimal(38,4)","nullable":true,"metadata":{"comment":"money"}},
          {"name":"t","type":"timestamp_ntz","nullable":true,"metadata":{}},
          {"name":"s","type":{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":"date","containsNull":true},"nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
          {"name":"kv","type":{"type":"map","keyType":"string","valueType":"binary","valueContainsNull":true},"nullable":true,"metadata":{}}]}"#;
        let schema = TableSchema::parse(text, &["Id".into()]).unwrap();
        assert_eq!(schema.column("ID").unwrap().data_type, DataType::Int64);
        assert_eq!(schema.column("m").unwrap().comment(), Some("money"));
        assert!(schema.has_timestamp_ntz());
        assert!(schema.is_partition_column("id"));
        let again = TableSchema::parse(&schema.to_schema_string(), &["Id".into()]).unwrap();
        assert_eq!(schema, again);
        for column in &schema.columns {
            assert_eq!(stored_type(&column.data_type).unwrap(), column.data_type);
        }
    }

    #[test]
    fn mapped_columns_have_two_names_at_every_depth() {
        let text = r#"{"type":"struct","fields":[{"name":"s","nullable":true,
          "metadata":{"delta.columnMapping.physicalName":"col-1"},
          "type":{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,
            "metadata":{"delta.columnMapping.physicalName":"col-2"}}]}}]}"#;
        let schema = TableSchema::parse(text, &[]).unwrap();
        let column = &schema.columns[0];
        assert_eq!(
            (column.name.as_str(), column.physical_name.as_str()),
            ("s", "col-1")
        );
        let name = |t: &DataType| match t {
            DataType::Struct(fields) => fields[0].name().clone(),
            other => panic!("{other}"),
        };
        assert_eq!(name(&column.data_type), "a");
        assert_eq!(name(&column.physical_type), "col-2");
    }
}
