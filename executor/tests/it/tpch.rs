//! The queries of TPC-H give Spark's results on generated data; `answers.tsv` beside the queries is
//! made by answers.py over the same tables.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::TableReference;
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionState;
use datafusion::parquet::arrow::ArrowWriter;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};
use windrow_executor::session::register_table;

use crate::golden::{outcome, run, session, sorted_rows};

const SCALE_FACTOR: f64 = 0.01;
const QUERIES: &str = include_str!("../tpch/queries.sql");
const ANSWERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tpch/answers.tsv");

/// Text in one layout, as tables have it.
fn plain(batch: RecordBatch) -> RecordBatch {
    let columns = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Utf8View => cast(column, &DataType::Utf8).unwrap(),
            _ => Arc::clone(column),
        });
    let columns: Vec<_> = columns.collect();
    let fields: Vec<Field> = batch
        .schema()
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn tables() -> Vec<(&'static str, Vec<RecordBatch>)> {
    let scale = SCALE_FACTOR;
    let all = |batches: &mut dyn Iterator<Item = RecordBatch>| batches.map(plain).collect();
    vec![
        (
            "nation",
            all(&mut NationArrow::new(NationGenerator::new(scale, 1, 1))),
        ),
        (
            "region",
            all(&mut RegionArrow::new(RegionGenerator::new(scale, 1, 1))),
        ),
        (
            "part",
            all(&mut PartArrow::new(PartGenerator::new(scale, 1, 1))),
        ),
        (
            "supplier",
            all(&mut SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
        ),
        (
            "partsupp",
            all(&mut PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
        ),
        (
            "customer",
            all(&mut CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
        ),
        (
            "orders",
            all(&mut OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
        ),
        (
            "lineitem",
            all(&mut LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        ),
    ]
}

fn write(folder: &Path, name: &str, batches: &[RecordBatch]) {
    std::fs::create_dir_all(folder).unwrap();
    let file = std::fs::File::create(folder.join(format!("{name}.parquet"))).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), None).unwrap();
    batches
        .iter()
        .for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

fn state_with_tables() -> SessionState {
    let state = session("UTC");
    for (name, batches) in tables() {
        if let Some(folder) = std::env::var_os("WINDROW_TPCH_WRITE") {
            write(Path::new(&folder), name, &batches);
        }
        let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
        register_table(&state, &TableReference::bare(name), Arc::new(table)).unwrap();
    }
    state
}

#[tokio::test]
async fn tpch_queries_give_what_spark_gives() {
    let state = state_with_tables();
    let answers = std::fs::read_to_string(ANSWERS).unwrap();
    let mut differences = vec![];
    for (query, answer) in QUERIES.split("-- q").skip(1).zip(answers.lines()) {
        let (name, query) = query.split_once('\n').unwrap();
        let fields: Vec<&str> = answer.split('\t').collect();
        assert_eq!(fields[0], format!("q{name}"));
        match run(&state, query.trim().trim_end_matches(';')).await {
            Ok(batches) => {
                let (types, rows) = outcome(&batches);
                let wanted = sorted_rows(fields[3]);
                if types != fields[2] || rows != wanted {
                    differences.push(format!(
                        "q{name}\n   Spark: {} {wanted}\n   found: {types} {rows}",
                        fields[2]
                    ));
                }
            }
            Err(error) => differences.push(format!("q{name}: {error}")),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
