//! `read_files` in batch: Parquet, JSON lines and CSV files as a source of a query.
//!
//! The files are listed once, while planning, and the schema is fixed then. Text becomes values by
//! the same casts as in a query, so that a value that does not fit is an error and never a silent
//! null. Options that are not known here are refused by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result, ScalarValue, TableReference};
use datafusion::config::CsvOptions;
use datafusion::datasource::TableType;
use datafusion::datasource::ViewTable;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    CsvSource, FileGroup, FileScanConfigBuilder, FileSource, JsonSource, ParquetSource,
};
use datafusion::datasource::provider_as_source;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, ident, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::DatabricksDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use windrow_delta::{Location, TableError};
use windrow_flows::{name, types};

use crate::scan::query_name;

const OPTIONS: &[&str] = &[
    "format",
    "schema",
    "header",
    "sep",
    "delimiter",
    "quote",
    "escape",
    "nullValue",
    "inferColumnTypes",
    "pathGlobFilter",
];
/// Bytes of a file that are read to find its CSV header.
const HEADER_BYTES: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("read_files needs a path, as its first argument")]
    NoPath,
    #[error("read_files has no option `{0}`{1}")]
    UnknownOption(String, String),
    #[error("the option `{0}` of read_files must be {1}")]
    WrongValue(String, &'static str),
    #[error("read_files needs `format => 'parquet'`, 'json' or 'csv'")]
    NoFormat,
    #[error("the format `{0}` is not available in this version; parquet, json and csv are")]
    FormatNotAvailable(String),
    #[error("the schema of read_files can't be read: {0}")]
    Schema(String),
    #[error("no file matches `{0}`")]
    NoFiles(String),
    #[error(
        "no file matches `{0}`, and without a file there is no schema to infer; give one with schema => '...'"
    )]
    NothingToInfer(String),
    #[error("file `{file}`: {reason}")]
    File { file: String, reason: String },
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("{0}")]
    Query(#[from] DataFusionError),
}

impl FilesError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoPath | Self::NoFormat | Self::WrongValue(..) => "READ_FILES_ARGUMENT",
            Self::UnknownOption(..) => "UNKNOWN_OPTION",
            Self::FormatNotAvailable(_) => "FILE_FORMAT_NOT_AVAILABLE",
            Self::Schema(_) => "SCHEMA_NOT_VALID",
            Self::NoFiles(_) | Self::NothingToInfer(_) => "NO_FILES",
            Self::File { .. } => "FILE_NOT_READABLE",
            Self::Table(e) => e.code(),
            Self::Query(_) => "FILE_NOT_READABLE",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Json,
    Csv,
}

/// The arguments of one `read_files` call.
#[derive(Debug, Clone)]
pub struct FilesRequest {
    path: String,
    format: Format,
    schema: Option<Vec<(String, DataType)>>,
    header: bool,
    separator: u8,
    quote: u8,
    escape: Option<u8>,
    null_value: Option<String>,
    infer_types: bool,
    glob_filter: Option<glob::Pattern>,
}

impl FilesRequest {
    pub fn parse(args: &[ast::FunctionArg]) -> Result<Self, FilesError> {
        let mut path = None;
        let mut options: BTreeMap<String, ast::Value> = BTreeMap::new();
        for arg in args {
            match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(v)))
                    if path.is_none() =>
                {
                    path = v.value.clone().into_string();
                }
                ast::FunctionArg::Named {
                    name: option, arg, ..
                } => {
                    let key = OPTIONS
                        .iter()
                        .find(|o| name::key(o) == name::key(&option.value));
                    let Some(key) = key else {
                        let near = name::did_you_mean(&option.value, OPTIONS.iter().copied());
                        let near = near.map(|n| format!("; {n}")).unwrap_or_default();
                        return Err(FilesError::UnknownOption(option.value.clone(), near));
                    };
                    match arg {
                        ast::FunctionArgExpr::Expr(ast::Expr::Value(v)) => {
                            options.insert(key.to_string(), v.value.clone());
                        }
                        _ => return Err(FilesError::WrongValue(key.to_string(), "a constant")),
                    }
                }
                _ => return Err(FilesError::NoPath),
            }
        }
        let path = path.ok_or(FilesError::NoPath)?;
        let text = |key: &str| {
            options
                .get(key)
                .map(|v| v.clone().into_string().unwrap_or_else(|| v.to_string()))
        };
        let flag = |key: &str| match text(key).map(|t| t.to_lowercase()).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(FilesError::WrongValue(key.to_string(), "true or false")),
        };
        let byte = |key: &str| match text(key) {
            None => Ok(None),
            Some(t) if t == "\\t" => Ok(Some(b'\t')),
            Some(t) => match t.as_bytes() {
                [b] => Ok(Some(*b)),
                _ => Err(FilesError::WrongValue(
                    key.to_string(),
                    "one ASCII character",
                )),
            },
        };
        let format = match text("format").map(|f| f.to_lowercase()).as_deref() {
            Some("parquet") => Format::Parquet,
            Some("json") => Format::Json,
            Some("csv") => Format::Csv,
            Some(other) => return Err(FilesError::FormatNotAvailable(other.to_string())),
            None => return Err(FilesError::NoFormat),
        };
        let separator = byte("sep")?.or(byte("delimiter")?).unwrap_or(b',');
        let glob_filter = text("pathGlobFilter")
            .map(|p| {
                glob::Pattern::new(&p)
                    .map_err(|_| FilesError::WrongValue("pathGlobFilter".into(), "a glob"))
            })
            .transpose()?;
        Ok(Self {
            path,
            format,
            schema: text("schema").map(|t| parse_schema(&t)).transpose()?,
            header: flag("header")?.unwrap_or(false),
            separator,
            quote: byte("quote")?.unwrap_or(b'"'),
            escape: byte("escape")?,
            null_value: text("nullValue"),
            infer_types: flag("inferColumnTypes")?.unwrap_or(true),
            glob_filter,
        })
    }

    /// The path as written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The part of the path before its first wildcard.
    pub fn path_root(&self) -> String {
        match self.path.find(['*', '?', '[', '{']) {
            None => self.path.clone(),
            Some(at) => match self.path[..at].rfind('/') {
                Some(slash) => self.path[..=slash].to_string(),
                None => ".".into(),
            },
        }
    }

    fn pattern(&self) -> Option<&str> {
        let at = self.path.find(['*', '?', '[', '{'])?;
        let start = self.path[..at].rfind('/').map_or(0, |slash| slash + 1);
        Some(&self.path[start..])
    }
}

fn parse_schema(text: &str) -> Result<Vec<(String, DataType)>, FilesError> {
    let schema = |e: &dyn std::fmt::Display| FilesError::Schema(e.to_string());
    let mut parser = Parser::new(&DatabricksDialect {})
        .try_with_sql(text)
        .map_err(|e| schema(&e))?;
    let columns = parser
        .parse_comma_separated(|p| {
            let name = p.parse_identifier()?;
            // `a: INT` and `a INT` are both in use.
            let _ = p.consume_token(&datafusion::sql::sqlparser::tokenizer::Token::Colon);
            Ok((name, p.parse_data_type()?))
        })
        .map_err(|e| schema(&e))?;
    if parser.peek_token().token != datafusion::sql::sqlparser::tokenizer::Token::EOF {
        return Err(FilesError::Schema(format!(
            "`{}` was not expected",
            parser.peek_token()
        )));
    }
    columns
        .into_iter()
        .map(|(name, t)| {
            Ok((
                name.value,
                types::arrow_type(&t).map_err(FilesError::Schema)?,
            ))
        })
        .collect()
}

/// A group of files that are read alike: the same columns in the same order, one compression.
#[derive(Debug)]
struct FilesTable {
    store_url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
    format: Format,
    compression: FileCompressionType,
    csv: CsvOptions,
    files: Vec<PartitionedFile>,
    file_schema: SchemaRef,
    partition_fields: Vec<FieldRef>,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.files.is_empty() {
            return crate::scan::no_rows(&self.schema, projection);
        }
        state
            .runtime_env()
            .register_object_store(self.store_url.as_ref(), self.store.clone());
        let table = TableSchema::builder(self.file_schema.clone())
            .with_table_partition_cols(self.partition_fields.clone())
            .build();
        let source: Arc<dyn FileSource> = match self.format {
            Format::Parquet => Arc::new(
                ParquetSource::new(table)
                    .with_table_parquet_options(crate::scan::parquet_options(state)),
            ),
            Format::Json => Arc::new(JsonSource::new(table)),
            Format::Csv => Arc::new(CsvSource::new(table).with_csv_options(self.csv.clone())),
        };
        let mut groups = vec![
            Vec::new();
            state
                .config()
                .target_partitions()
                .clamp(1, self.files.len())
        ];
        let count = groups.len();
        for (i, file) in self.files.iter().enumerate() {
            groups[i % count].push(file.clone());
        }
        let config = FileScanConfigBuilder::new(self.store_url.clone(), source)
            .with_file_groups(groups.into_iter().map(FileGroup::new).collect())
            .with_file_compression_type(self.compression)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Lists the files and gives them as one table, with names as queries know them.
pub async fn provider(
    state: &SessionState,
    location: &Location,
    request: &FilesRequest,
) -> Result<Arc<dyn TableProvider>, FilesError> {
    let listed = list(location, request).await?;
    let folders = FolderColumns::of(&listed);
    let store = location.root_store();
    let metas: Vec<ObjectMeta> = listed.iter().map(|f| f.meta.clone()).collect();
    let mut columns: Option<Vec<(String, DataType)>> = request.schema.clone();
    if columns.is_none() && metas.is_empty() {
        return Err(FilesError::NothingToInfer(request.path.clone()));
    }

    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    let mut headers: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (i, file) in listed.iter().enumerate() {
        let compression = compression_of(&file.meta.location);
        let header = if request.format == Format::Csv {
            let header = csv_header(&store, &file.meta, request, compression).await?;
            let key = header.join("\u{1f}");
            headers.insert(i, header);
            key
        } else {
            String::new()
        };
        groups
            .entry((format!("{compression:?}"), header))
            .or_default()
            .push(i);
    }
    if columns.is_none() {
        columns = Some(infer(state, &store, request, &metas, &headers).await?);
    }
    let columns = columns.unwrap_or_default();
    let store_url = ObjectStoreUrl::parse(location.store_url().as_str())?;
    let mut plan: Option<LogicalPlan> = None;
    if groups.is_empty() {
        groups.insert((String::new(), String::new()), Vec::new());
    }
    for (number, members) in groups.values().enumerate() {
        let first = members.first();
        let compression = first.map_or(FileCompressionType::UNCOMPRESSED, |i| {
            compression_of(&listed[*i].meta.location)
        });
        let header = first.and_then(|i| headers.get(i)).cloned();
        let file_schema = file_schema(request, &columns, header.as_deref());
        let files = members
            .iter()
            .map(|i| {
                PartitionedFile::new_from_meta(listed[*i].meta.clone())
                    .with_partition_values(folders.values(&listed[*i]))
            })
            .collect();
        let mut fields: Vec<FieldRef> = file_schema.fields().iter().cloned().collect();
        fields.extend(folders.fields.iter().cloned());
        let table = FilesTable {
            store_url: store_url.clone(),
            store: store.clone(),
            format: request.format,
            compression,
            csv: csv_options(request),
            files,
            file_schema: file_schema.clone(),
            partition_fields: folders.fields.clone(),
            schema: Arc::new(Schema::new(fields)),
        };
        let branch = branch(table, number, &columns, &file_schema, &folders)?;
        plan = Some(match plan {
            None => branch,
            Some(plan) => LogicalPlanBuilder::from(plan).union(branch)?.build()?,
        });
    }
    let plan = plan.ok_or_else(|| FilesError::NoFiles(request.path.clone()))?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

/// One group's columns, by name, in their final types.
fn branch(
    table: FilesTable,
    number: usize,
    columns: &[(String, DataType)],
    file_schema: &Schema,
    folders: &FolderColumns,
) -> Result<LogicalPlan> {
    let name = TableReference::bare(format!("files_{number}"));
    let scan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None)?;
    let mut exprs = Vec::new();
    for (column, data_type) in columns {
        let found = file_schema
            .fields()
            .iter()
            .find(|f| name::key(f.name()) == name::key(column));
        let expr = match found {
            None => lit(ScalarValue::try_from(data_type)?),
            Some(field) if field.data_type() == data_type => ident(field.name()),
            Some(field) => cast(ident(field.name()), data_type.clone()),
        };
        exprs.push(expr.alias(query_name(column)));
    }
    for field in &folders.fields {
        if !columns
            .iter()
            .any(|(c, _)| name::key(c) == name::key(field.name()))
        {
            exprs.push(ident(field.name()).alias(query_name(field.name())));
        }
    }
    scan.project(exprs)?.build()
}

struct Listed {
    meta: ObjectMeta,
    /// Below the root of the request.
    relative: String,
}

async fn list(location: &Location, request: &FilesRequest) -> Result<Vec<Listed>, FilesError> {
    let store = location.root_store();
    let root = location.root_path()?;
    let storage = |source| TableError::Storage {
        url: location.shown(),
        source,
    };
    let pattern = request
        .pattern()
        .map(|p| glob::Pattern::new(p).map_err(|e| FilesError::WrongValue(p.to_string(), e.msg)))
        .transpose()?;
    let options = glob::MatchOptions {
        require_literal_separator: true,
        ..Default::default()
    };
    let mut files = Vec::new();
    let mut stream = store.list(Some(&root));
    while let Some(meta) = stream.next().await {
        let meta = match meta {
            Ok(meta) => meta,
            Err(object_store::Error::NotFound { .. }) => continue,
            Err(e) => return Err(storage(e).into()),
        };
        let relative = meta
            .location
            .as_ref()
            .strip_prefix(root.as_ref())
            .unwrap_or_default()
            .trim_start_matches('/')
            .to_string();
        let hidden = relative
            .split('/')
            .any(|part| part.starts_with('_') || part.starts_with('.'));
        // A folder that the pattern names is read with all that is below it.
        let matches = pattern.as_ref().is_none_or(|p| {
            p.matches_with(&relative, options)
                || relative
                    .match_indices('/')
                    .any(|(at, _)| p.matches_with(&relative[..at], options))
        });
        let wanted = request
            .glob_filter
            .as_ref()
            .is_none_or(|g| meta.location.filename().is_some_and(|n| g.matches(n)));
        if !hidden && matches && wanted && meta.size > 0 {
            files.push(Listed { meta, relative });
        }
    }
    if files.is_empty() && pattern.is_none() {
        match store.head(&root).await {
            Ok(meta) => files.push(Listed {
                relative: String::new(),
                meta,
            }),
            Err(object_store::Error::NotFound { .. }) => {}
            // A folder is no object; that is how some stores say so.
            Err(error) => tracing::debug!(%error, path = %root, "not a single file"),
        }
    }
    files.sort_by(|a, b| a.meta.location.cmp(&b.meta.location));
    Ok(files)
}

/// The columns that `key=value` folders give.
struct FolderColumns {
    fields: Vec<FieldRef>,
}

impl FolderColumns {
    fn of(files: &[Listed]) -> Self {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for file in files {
            for (key, value) in folder_pairs(&file.relative) {
                match found
                    .iter_mut()
                    .find(|(k, _)| name::key(k) == name::key(&key))
                {
                    Some((_, values)) => values.push(value),
                    None => found.push((key, vec![value])),
                }
            }
        }
        let fields = found
            .into_iter()
            .map(|(key, values)| {
                Arc::new(Field::new(query_name(&key), folder_type(&values), true)) as FieldRef
            })
            .collect();
        Self { fields }
    }

    fn values(&self, file: &Listed) -> Vec<ScalarValue> {
        let pairs = folder_pairs(&file.relative);
        self.fields
            .iter()
            .map(|field| {
                let text = pairs
                    .iter()
                    .find(|(k, _)| query_name(k) == *field.name())
                    .map(|(_, v)| v.clone());
                text.filter(|t| t != windrow_delta::partition::NULL_FOLDER)
                    .and_then(|t| ScalarValue::try_from_string(t, field.data_type()).ok())
                    .or_else(|| ScalarValue::try_from(field.data_type()).ok())
                    .unwrap_or(ScalarValue::Null)
            })
            .collect()
    }
}

fn folder_pairs(relative: &str) -> Vec<(String, String)> {
    let mut parts: Vec<&str> = relative.split('/').collect();
    parts.pop();
    parts
        .into_iter()
        .filter_map(|part| part.split_once('='))
        .map(|(k, v)| {
            let decode = |t: &str| {
                percent_encoding::percent_decode_str(t)
                    .decode_utf8_lossy()
                    .into_owned()
            };
            (decode(k), decode(v))
        })
        .collect()
}

fn folder_type(values: &[String]) -> DataType {
    let values: Vec<&String> = values
        .iter()
        .filter(|v| *v != windrow_delta::partition::NULL_FOLDER)
        .collect();
    // A leading zero is part of the text, not of a number.
    let number = |v: &str| v == "0" || !v.trim_start_matches('-').starts_with('0');
    if !values.is_empty() && values.iter().all(|v| v.parse::<i32>().is_ok() && number(v)) {
        DataType::Int32
    } else if !values.is_empty() && values.iter().all(|v| v.parse::<i64>().is_ok() && number(v)) {
        DataType::Int64
    } else if !values.is_empty()
        && values
            .iter()
            .all(|v| chrono::NaiveDate::parse_from_str(v, "%Y-%m-%d").is_ok())
    {
        DataType::Date32
    } else {
        DataType::Utf8
    }
}

fn compression_of(path: &Path) -> FileCompressionType {
    match path.extension() {
        Some("gz") => FileCompressionType::GZIP,
        Some("bz2") => FileCompressionType::BZIP2,
        Some("zst" | "zstd") => FileCompressionType::ZSTD,
        Some("xz") => FileCompressionType::XZ,
        _ => FileCompressionType::UNCOMPRESSED,
    }
}

fn csv_options(request: &FilesRequest) -> CsvOptions {
    CsvOptions {
        has_header: Some(request.header),
        delimiter: request.separator,
        quote: request.quote,
        escape: request.escape,
        null_regex: request
            .null_value
            .as_ref()
            .map(|v| format!("^({})?$", escape_regex(v))),
        newlines_in_values: Some(false),
        ..CsvOptions::default()
    }
}

fn escape_regex(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_alphanumeric() {
                vec![c]
            } else {
                vec!['\\', c]
            }
        })
        .collect()
}

/// What stands in the files: CSV as text throughout, times in JSON as text, all else as it is.
fn file_schema(
    request: &FilesRequest,
    columns: &[(String, DataType)],
    header: Option<&[String]>,
) -> SchemaRef {
    let fields: Vec<Field> = match (request.format, header) {
        (Format::Csv, Some(header)) => header
            .iter()
            .map(|h| Field::new(h, DataType::Utf8, true))
            .collect(),
        (Format::Csv, None) => columns
            .iter()
            .map(|(n, _)| Field::new(n, DataType::Utf8, true))
            .collect(),
        (Format::Json, _) => columns
            .iter()
            .map(|(n, t)| {
                let t = if matches!(t, DataType::Timestamp(..)) {
                    DataType::Utf8
                } else {
                    t.clone()
                };
                Field::new(n, t, true)
            })
            .collect(),
        (Format::Parquet, _) => columns
            .iter()
            .map(|(n, t)| Field::new(n, t.clone(), true))
            .collect(),
    };
    Arc::new(Schema::new(fields))
}

/// The columns of a CSV file: its header, or as many `_cN` as its first line has values.
async fn csv_header(
    store: &Arc<dyn ObjectStore>,
    meta: &ObjectMeta,
    request: &FilesRequest,
    compression: FileCompressionType,
) -> Result<Vec<String>, FilesError> {
    let failed = |reason: String| FilesError::File {
        file: meta.location.to_string(),
        reason,
    };
    let options = GetOptions {
        range: Some(GetRange::Bounded(0..HEADER_BYTES.min(meta.size))),
        ..Default::default()
    };
    let got = store
        .get_opts(&meta.location, options)
        .await
        .map_err(|e| failed(e.to_string()))?;
    let stream = got
        .into_stream()
        .map_err(|e| DataFusionError::ObjectStore(Box::new(e)))
        .boxed();
    let mut stream = compression.convert_stream(stream)?;
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            // Only the beginning of a compressed file was read.
            Err(_) if !bytes.is_empty() => break,
            Err(e) => return Err(e.into()),
        }
        if bytes.contains(&b'\n') {
            break;
        }
    }
    let line: Vec<u8> = bytes
        .split(|b| *b == b'\n')
        .next()
        .unwrap_or_default()
        .to_vec();
    let text = String::from_utf8(line).map_err(|_| failed("it is not UTF-8".into()))?;
    let values = split_csv(
        text.trim_start_matches('\u{feff}').trim_end_matches('\r'),
        request.separator as char,
        request.quote as char,
    );
    if request.header {
        return Ok(values);
    }
    let named = request
        .schema
        .as_ref()
        .map(|s| s.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>());
    Ok((0..values.len())
        .map(|i| {
            named
                .as_ref()
                .and_then(|n| n.get(i))
                .cloned()
                .unwrap_or_else(|| format!("_c{i}"))
        })
        .collect())
}

fn split_csv(line: &str, separator: char, quote: char) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == quote {
            if quoted && chars.peek() == Some(&quote) {
                chars.next();
                if let Some(last) = values.last_mut() {
                    last.push(quote);
                }
            } else {
                quoted = !quoted;
            }
        } else if c == separator && !quoted {
            values.push(String::new());
        } else if let Some(last) = values.last_mut() {
            last.push(c);
        }
    }
    values
}

async fn infer(
    state: &SessionState,
    store: &Arc<dyn ObjectStore>,
    request: &FilesRequest,
    metas: &[ObjectMeta],
    headers: &BTreeMap<usize, Vec<String>>,
) -> Result<Vec<(String, DataType)>, FilesError> {
    let schema = match request.format {
        Format::Parquet => {
            ParquetFormat::default()
                .with_force_view_types(false)
                .infer_schema(state, store, metas)
                .await?
        }
        Format::Json => {
            let mut merged: Option<Schema> = None;
            for meta in metas {
                let format = JsonFormat::default()
                    .with_file_compression_type(compression_of(&meta.location));
                let one = format
                    .infer_schema(state, store, std::slice::from_ref(meta))
                    .await?;
                merged = Some(match merged {
                    None => one.as_ref().clone(),
                    Some(m) => Schema::try_merge([m, one.as_ref().clone()])
                        .map_err(|e| FilesError::Schema(e.to_string()))?,
                });
            }
            Arc::new(merged.unwrap_or_else(Schema::empty))
        }
        Format::Csv => return infer_csv(state, store, request, metas, headers).await,
    };
    schema
        .fields()
        .iter()
        .map(|f| {
            let t =
                windrow_delta::schema::stored_type(f.data_type()).map_err(FilesError::Schema)?;
            let t = if request.format == Format::Json && !request.infer_types {
                DataType::Utf8
            } else {
                t
            };
            Ok((f.name().clone(), t))
        })
        .collect()
}

async fn infer_csv(
    state: &SessionState,
    store: &Arc<dyn ObjectStore>,
    request: &FilesRequest,
    metas: &[ObjectMeta],
    headers: &BTreeMap<usize, Vec<String>>,
) -> Result<Vec<(String, DataType)>, FilesError> {
    use datafusion::datasource::file_format::csv::CsvFormat;
    let mut columns: Vec<(String, DataType)> = Vec::new();
    for (i, meta) in metas.iter().enumerate() {
        let format = CsvFormat::default()
            .with_options(csv_options(request))
            .with_file_compression_type(compression_of(&meta.location));
        let inferred = format
            .infer_schema(state, store, std::slice::from_ref(meta))
            .await?;
        let names = headers.get(&i).cloned().unwrap_or_default();
        for (name, field) in names.into_iter().zip(inferred.fields()) {
            let t = match field.data_type() {
                _ if !request.infer_types => DataType::Utf8,
                DataType::Null => DataType::Utf8,
                t => windrow_delta::schema::stored_type(t).map_err(FilesError::Schema)?,
            };
            match columns
                .iter_mut()
                .find(|(n, _)| name::key(n) == name::key(&name))
            {
                None => columns.push((name, t)),
                Some((_, known)) if *known == t => {}
                Some((_, known)) => {
                    *known = match types::fit(&t, known) {
                        types::Fit::Widens => known.clone(),
                        types::Fit::Narrows => t,
                        _ => DataType::Utf8,
                    };
                }
            }
        }
    }
    Ok(columns)
}
