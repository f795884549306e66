//! How the Delta kernel reads a table's log here: the engine of the store, with a reader of log
//! entries that parses only the lines that can matter.
//!
//! A log entry is read several times, each time for other actions: first for protocol and metadata,
//! then for transactions, then for files. A line in which none of the wanted names stands in quotes
//! holds no wanted action, so it is passed over unparsed; the kernel would have passed over its
//! empty row. Lines that are left are parsed by the store's engine, several batches at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine::arrow_utils::{build_json_reorder_indices, fixup_json_read};
use delta_kernel::engine_data::FilteredEngineData;
use delta_kernel::schema::{SchemaRef, StructField};
use delta_kernel::{
    DeltaResult, DeltaResultIterator, Engine, EngineData, Error, EvaluationHandler,
    FileDataReadResultIterator, FileMeta, FileSize, JsonHandler, ParquetHandler, PredicateRef,
    StorageHandler,
};
use memchr::{memchr, memmem, memrchr};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use url::Url;

use crate::store::Location;

/// Longer log entries are streamed by the store's engine instead of being read at once.
const LONGEST_ENTRY: u64 = 16 << 20;
/// Entries that are fetched ahead, and the most bytes of them.
const FETCHED_AHEAD: usize = 16;
const FETCHED_BYTES: u64 = 32 << 20;
/// Lines that are parsed at once, and batches of them that are parsed ahead.
const LINES: usize = 1000;
const PARSED_AHEAD: usize = 3;

/// See the module.
pub(crate) struct LogEngine {
    inner: Arc<dyn Engine>,
    json: Arc<LogReader>,
}

impl LogEngine {
    /// Must be called within a tokio runtime, which then does the reading.
    pub(crate) fn new(location: &Location) -> Self {
        let inner = location.log_store().engine(None);
        let json = LogReader {
            inner: inner.json_handler(),
            store: location.root_store(),
            runtime: Handle::current(),
        };
        Self {
            inner,
            json: Arc::new(json),
        }
    }
}

impl Engine for LogEngine {
    fn evaluation_handler(&self) -> Arc<dyn EvaluationHandler> {
        self.inner.evaluation_handler()
    }

    fn storage_handler(&self) -> Arc<dyn StorageHandler> {
        self.inner.storage_handler()
    }

    fn json_handler(&self) -> Arc<dyn JsonHandler> {
        self.json.clone()
    }

    fn parquet_handler(&self) -> Arc<dyn ParquetHandler> {
        self.inner.parquet_handler()
    }
}

struct LogReader {
    inner: Arc<dyn JsonHandler>,
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
}

impl JsonHandler for LogReader {
    fn parse_json(
        &self,
        json_strings: Box<dyn EngineData>,
        output_schema: SchemaRef,
    ) -> DeltaResult<Box<dyn EngineData>> {
        self.inner.parse_json(json_strings, output_schema)
    }

    fn read_json_files(
        &self,
        files: &[FileMeta],
        physical_schema: SchemaRef,
        predicate: Option<PredicateRef>,
    ) -> DeltaResult<FileDataReadResultIterator> {
        let is_in_file = |field: &StructField| !field.is_metadata_column();
        let parsed = physical_schema.with_fields_filtered(is_in_file)?;
        let wanted = parsed
            .fields()
            .map(|field| format!("\"{}\"", field.name()))
            .collect();
        let whole: Option<Whole> = if parsed.num_fields() == physical_schema.num_fields() {
            None
        } else {
            let order = build_json_reorder_indices(&physical_schema)?;
            Some(Arc::new(move |rows: Box<dyn EngineData>, file: &str| {
                let rows = (*ArrowEngineData::try_from_engine_data(rows)?).into();
                Ok(Box::new(fixup_json_read(rows, &order, file)?) as Box<dyn EngineData>)
            }))
        };
        Ok(Box::new(Entries {
            inner: self.inner.clone(),
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            schema: physical_schema,
            predicate,
            parsed: Arc::new(parsed),
            whole,
            wanted,
            files: files.to_vec().into(),
            fetching: VecDeque::new(),
            lines: None,
            parsing: VecDeque::new(),
            streamed: None,
        }))
    }

    fn write_json_file(
        &self,
        path: &Url,
        data: DeltaResultIterator<'_, FilteredEngineData>,
        overwrite: bool,
    ) -> DeltaResult<FileSize> {
        self.inner.write_json_file(path, data, overwrite)
    }
}

/// Puts the columns into parsed rows that are not in the file, such as its name.
type Whole =
    Arc<dyn Fn(Box<dyn EngineData>, &str) -> DeltaResult<Box<dyn EngineData>> + Send + Sync>;

/// The wanted lines of one entry that are not parsed yet.
struct Lines {
    file: Arc<str>,
    text: Bytes,
    ranges: VecDeque<Range<usize>>,
}

enum Fetch {
    Whole(JoinHandle<DeltaResult<Lines>>, u64),
    Streamed(FileMeta),
}

/// Log entries one after the other, as batches of rows.
struct Entries {
    inner: Arc<dyn JsonHandler>,
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    schema: SchemaRef,
    predicate: Option<PredicateRef>,
    /// The part of `schema` that is in the files.
    parsed: SchemaRef,
    whole: Option<Whole>,
    /// Names of the wanted actions, in quotes.
    wanted: Arc<[String]>,
    files: VecDeque<FileMeta>,
    fetching: VecDeque<Fetch>,
    lines: Option<Lines>,
    parsing: VecDeque<JoinHandle<DeltaResult<Box<dyn EngineData>>>>,
    streamed: Option<FileDataReadResultIterator>,
}

impl Entries {
    fn fetch_ahead(&mut self) {
        while let Some(file) = self.files.front() {
            let ahead: u64 = self
                .fetching
                .iter()
                .map(|fetch| match fetch {
                    Fetch::Whole(_, size) => *size,
                    Fetch::Streamed(_) => 0,
                })
                .sum();
            let is_next = self.fetching.is_empty();
            if !is_next
                && (self.fetching.len() >= FETCHED_AHEAD || ahead + file.size > FETCHED_BYTES)
            {
                return;
            }
            let Some(file) = self.files.pop_front() else {
                return;
            };
            self.fetching.push_back(if file.size > LONGEST_ENTRY {
                Fetch::Streamed(file)
            } else {
                let fetch = fetch(
                    self.store.clone(),
                    file.location.clone(),
                    self.wanted.clone(),
                );
                Fetch::Whole(self.runtime.spawn(fetch), file.size)
            });
        }
    }

    fn parse_ahead(&mut self) -> DeltaResult<()> {
        let Some(lines) = &mut self.lines else {
            return Ok(());
        };
        while self.parsing.len() < PARSED_AHEAD && !lines.ranges.is_empty() {
            let count = lines.ranges.len().min(LINES);
            let text: Vec<&str> = lines
                .ranges
                .drain(..count)
                .map(|range| std::str::from_utf8(&lines.text[range]).map_err(Error::generic_err))
                .collect::<DeltaResult<_>>()?;
            let rows = StringArray::from_iter_values(text);
            let schema = Schema::new(vec![Field::new("line", DataType::Utf8, false)]);
            let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(rows)])?;
            let (inner, schema) = (self.inner.clone(), self.parsed.clone());
            let (whole, file) = (self.whole.clone(), lines.file.clone());
            self.parsing.push_back(self.runtime.spawn_blocking(move || {
                let rows = inner.parse_json(Box::new(ArrowEngineData::new(batch)), schema)?;
                match whole {
                    Some(whole) => whole(rows, &file),
                    None => Ok(rows),
                }
            }));
        }
        Ok(())
    }

    fn advance(&mut self) -> DeltaResult<Option<Box<dyn EngineData>>> {
        loop {
            if let Some(streamed) = &mut self.streamed {
                match streamed.next() {
                    Some(batch) => return batch.map(Some),
                    None => self.streamed = None,
                }
            }
            self.fetch_ahead();
            self.parse_ahead()?;
            if let Some(parsed) = self.parsing.pop_front() {
                return self
                    .runtime
                    .block_on(parsed)
                    .map_err(Error::generic_err)?
                    .map(Some);
            }
            match self.fetching.pop_front() {
                Some(Fetch::Whole(lines, _)) => {
                    let lines = self.runtime.block_on(lines).map_err(Error::generic_err)?;
                    self.lines = Some(lines?);
                }
                Some(Fetch::Streamed(file)) => {
                    self.streamed = Some(self.inner.read_json_files(
                        &[file],
                        self.schema.clone(),
                        self.predicate.clone(),
                    )?);
                }
                None => return Ok(None),
            }
        }
    }
}

impl Iterator for Entries {
    type Item = DeltaResult<Box<dyn EngineData>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            // An error is the last thing that is said.
            self.files.clear();
            self.fetching.clear();
            self.lines = None;
            self.parsing.clear();
            self.streamed = None;
        }
        next.transpose()
    }
}

async fn fetch(
    store: Arc<dyn ObjectStore>,
    location: Url,
    wanted: Arc<[String]>,
) -> DeltaResult<Lines> {
    let path = Path::from_url_path(location.path()).map_err(Error::generic_err)?;
    let text = store.get(&path).await?.bytes().await?;
    let ranges = matching_lines(&text, &wanted);
    let file = location.as_str().into();
    Ok(Lines { file, text, ranges })
}

/// Where the lines stand in which one of the names occurs, in order.
fn matching_lines(text: &[u8], names: &[String]) -> VecDeque<Range<usize>> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for name in names {
        let mut line_end = 0;
        for at in memmem::find_iter(text, name.as_bytes()) {
            if at < line_end {
                continue;
            }
            let start = memrchr(b'\n', &text[..at]).map_or(0, |before| before + 1);
            line_end = memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length);
            found.push((start, text[..line_end].trim_ascii_end().len()));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_hold_no_wanted_name_are_passed_over() {
        let text = "{\"add\":{\"path\":\"\\\"remove\\\"\"}}\r\n\n{\"remove\":{\"path\":\"x\"}}\n{\"txn\":{}}";
        let lines = |names: &[&str]| -> Vec<&str> {
            let names: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
            let ranges = matching_lines(text.as_bytes(), &names);
            ranges.into_iter().map(|range| &text[range]).collect()
        };
        assert_eq!(lines(&["txn"]), ["{\"txn\":{}}"]);
        assert_eq!(lines(&["add", "remove"]).len(), 2);
        assert_eq!(
            lines(&["txn", "remove"]),
            [r#"{"remove":{"path":"x"}}"#, "{\"txn\":{}}"]
        );
        assert_eq!(lines(&["protocol", "metaData"]).len(), 0);
    }
}
