//! The lake under the measure of reach: small tables of TPC-H, and tables like those of TPC-DI.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow,
    RecordBatchIterator, RegionArrow, SupplierArrow,
};

use crate::lake::{Column, Lake, NewTable, arrow_schema, batches};
use crate::{Outcome, cells, words};

const SCALE: f64 = 0.002;

/// Tables that are not TPC-H's: name, files, query.
const FURTHER: [(&str, usize, &str); 8] = [
    (
        "di_trade",
        6,
        "SELECT value AS t_id, CAST('1998-06-25T00:00:00Z' AS TIMESTAMP) + CAST(value * 850 || ' seconds' AS INTERVAL) AS t_dts, \
         CASE WHEN value % 9 = 0 THEN 'PNDG' ELSE 'CMPT' END AS status, CASE WHEN value % 3 = 0 THEN 'SELL' ELSE 'BUY' END AS kind, \
         'S' || (value * 7 % 20) AS symbol, CAST(value % 50 + 1 AS INT) AS qty, CAST(value % 997 / 10.0 AS DECIMAL(10,2)) AS price, \
         value * 13 % 60 AS account FROM generate_series(1, 4000) AS g(value)",
    ),
    (
        "di_account",
        1,
        "SELECT value AS account, value % 30 AS customer, 'B' || (value % 7) AS broker FROM generate_series(0, 61) AS g(value)",
    ),
    (
        "di_customer",
        1,
        "SELECT value AS customer, 'name ' || value AS name, 'city ' || (value % 5) AS city, value % 3 AS tier FROM generate_series(0, 27) AS g(value)",
    ),
    (
        "di_customer_version",
        2,
        "SELECT value % 30 AS customer, value / 30 AS version, value % 3 AS tier, 'city ' || (value % 5) AS city, \
         CAST('1998-01-01' AS DATE) + CAST(value * 2 || ' days' AS INTERVAL) AS valid_from FROM generate_series(0, 105) AS g(value)",
    ),
    (
        "di_security",
        1,
        "SELECT 'S' || value AS symbol, 'security ' || value AS name, 'E' || (value % 3) AS exchange FROM generate_series(0, 18) AS g(value)",
    ),
    (
        "di_market_day",
        8,
        "SELECT 'S' || (value % 20) AS symbol, CAST('1997-07-01' AS DATE) + CAST(value / 20 || ' days' AS INTERVAL) AS day, \
         CAST(value % 97 AS DECIMAL(10,2)) AS close, CAST(value % 97 + 3 AS DECIMAL(10,2)) AS high, CAST(value % 97 - 2 AS DECIMAL(10,2)) AS low, \
         value % 1000 AS volume FROM generate_series(0, 7959) AS g(value)",
    ),
    (
        "di_watch",
        4,
        "SELECT value % 29 AS customer, 'S' || (value % 20) AS symbol, CASE WHEN value % 4 = 3 THEN 'CNCL' ELSE 'ACTV' END AS action, \
         CAST('1998-02-01' AS DATE) + CAST(value / 3 || ' days' AS INTERVAL) AS day FROM generate_series(0, 540) AS g(value)",
    ),
    (
        "di_prospect",
        2,
        "SELECT value AS prospect, 'name ' || (value % 40) AS name, 'city ' || (value % 5) AS city, \
         CAST('1998-01-01' AS DATE) + CAST(value || ' days' AS INTERVAL) AS since FROM generate_series(0, 210) AS g(value)",
    ),
];

/// Makes all tables; gives their names.
pub async fn make(lake: &Lake) -> Outcome<Vec<String>> {
    let tables: [(&str, usize, &str, Box<dyn RecordBatchIterator>); 8] = [
        (
            "region",
            1,
            "r_regionkey",
            Box::new(RegionArrow::new(RegionGenerator::new(SCALE, 1, 1))),
        ),
        (
            "nation",
            1,
            "n_nationkey",
            Box::new(NationArrow::new(NationGenerator::new(SCALE, 1, 1))),
        ),
        (
            "supplier",
            1,
            "s_suppkey",
            Box::new(SupplierArrow::new(SupplierGenerator::new(SCALE, 1, 1))),
        ),
        (
            "part",
            2,
            "p_partkey",
            Box::new(PartArrow::new(PartGenerator::new(SCALE, 1, 1))),
        ),
        (
            "partsupp",
            2,
            "ps_partkey",
            Box::new(PartSuppArrow::new(PartSuppGenerator::new(SCALE, 1, 1))),
        ),
        (
            "customer",
            2,
            "c_custkey",
            Box::new(CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1))),
        ),
        (
            "orders",
            10,
            "o_orderdate",
            Box::new(OrderArrow::new(OrderGenerator::new(SCALE, 1, 1))),
        ),
        (
            "lineitem",
            14,
            "l_shipdate",
            Box::new(LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1))),
        ),
    ];
    let mut names = Vec::new();
    for (name, files, order, rows) in tables {
        let schema = rows.schema().clone();
        let rows: Vec<RecordBatch> = rows.collect();
        let context = SessionContext::new();
        let memory = MemTable::try_new(schema, vec![rows]).map_err(words)?;
        context
            .register_table("t", Arc::new(memory))
            .map_err(words)?;
        let sorted = batches(&context, &format!("SELECT * FROM t ORDER BY {order}")).await?;
        write(lake, name, files, &sorted).await?;
        names.push(name.to_string());
    }
    for (name, files, sql) in FURTHER {
        let rows = batches(&SessionContext::new(), sql).await?;
        write(lake, name, files, &rows).await?;
        names.push(name.to_string());
    }
    Ok(names)
}

pub fn place(table: &str) -> String {
    format!("src/{table}")
}

async fn write(lake: &Lake, name: &str, files: usize, rows: &[RecordBatch]) -> Outcome {
    let first = rows.first().ok_or("a table without rows")?;
    let columns = first
        .schema()
        .fields()
        .iter()
        .map(|f| {
            Ok(Column {
                name: f.name().clone(),
                delta_type: delta_type(f.data_type())?,
                nullable: true,
            })
        })
        .collect::<Outcome<Vec<_>>>()?;
    let new = NewTable {
        columns,
        ..NewTable::default()
    };
    let schema = arrow_schema(&lake.create(&place(name), &new).await?)?;
    let all = concat_batches(&first.schema(), rows).map_err(words)?;
    let part = all.num_rows().div_ceil(files);
    for from in (0..all.num_rows()).step_by(part) {
        let slice = all.slice(from, part.min(all.num_rows() - from));
        lake.append(&place(name), as_table(&slice, &schema)?)
            .await?;
    }
    Ok(())
}

/// Rows with the types of a table.
pub fn as_table(rows: &RecordBatch, schema: &SchemaRef) -> Outcome<RecordBatch> {
    let columns = rows
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(c, f)| cells::cast(c, f.data_type()))
        .collect::<Outcome<Vec<_>>>()?;
    RecordBatch::try_new(schema.clone(), columns).map_err(words)
}

fn delta_type(data_type: &DataType) -> Outcome<String> {
    Ok(match data_type {
        DataType::Int64 | DataType::UInt64 => "long".into(),
        DataType::Int32 => "integer".into(),
        DataType::Utf8 | DataType::Utf8View => "string".into(),
        DataType::Date32 => "date".into(),
        DataType::Timestamp(..) => "timestamp".into(),
        DataType::Decimal128(p, s) => format!("decimal({p},{s})"),
        other => return Err(format!("{other} is no type of these tables")),
    })
}
