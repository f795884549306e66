//! The sample lake, read back with delta-rs and DataFusion.

use chrono::{Days, NaiveDate};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;
use url::Url;
use windrow_benches::lake::{
    LakeError, LakeOptions, LakeSummary, Table, demo, lake_root, make_lake, table_location,
};

const SCALE_FACTOR: f64 = 0.005;

fn end() -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 11, 29).unwrap()
}

async fn lake(options: &LakeOptions) -> (tempfile::TempDir, Url, LakeSummary) {
    let folder = tempfile::tempdir().unwrap();
    let root = lake_root(&folder.path().join("a lake").to_string_lossy()).unwrap();
    let summary = make_lake(&root, SCALE_FACTOR, options).await.unwrap();
    (folder, root, summary)
}

async fn context(root: &Url) -> SessionContext {
    let context = SessionContext::new();
    for table in Table::ALL {
        let location = table_location(root, table).unwrap();
        let delta = deltalake::open_table(location).await.unwrap();
        let provider = delta.table_provider().await.unwrap();
        context.register_table(table.name(), provider).unwrap();
    }
    context
}

/// The first row of a query, each value as text.
async fn first_row(context: &SessionContext, query: &str) -> Vec<String> {
    let batches = context.sql(query).await.unwrap().collect().await.unwrap();
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).unwrap();
    batch
        .columns()
        .iter()
        .map(|column| array_value_to_string(column, 0).unwrap())
        .collect()
}

#[tokio::test]
async fn dates_end_on_the_day_and_months_fit() {
    let (_folder, root, summary) = lake(&LakeOptions::new(end())).await;
    let context = context(&root).await;

    let orders = "SELECT count(*), count(DISTINCT o_orderkey), CAST(min(o_orderdate) AS VARCHAR), \
         CAST(max(o_orderdate) AS VARCHAR), count(DISTINCT o_month), \
         sum(CASE WHEN o_month = date_trunc('month', o_orderdate) THEN 0 ELSE 1 END) FROM orders";
    let first = summary.first_day.to_string();
    let expected = ["7500", "7500", first.as_str(), "2026-11-29", "80", "0"];
    assert_eq!(first_row(&context, orders).await, expected);

    let lines = "SELECT CAST(max(l_shipdate) AS VARCHAR), \
         sum(CASE WHEN l_month = date_trunc('month', l_shipdate) THEN 0 ELSE 1 END), \
         count(*) - count(o_orderkey) FROM lineitem LEFT JOIN orders ON o_orderkey = l_orderkey";
    assert_eq!(first_row(&context, lines).await, ["2026-11-29", "0", "0"]);

    // The last week is as full as a week in the middle of the history.
    let week = |from: NaiveDate| {
        format!(
            "SELECT count(*) FROM lineitem WHERE l_shipdate >= '{from}' AND l_shipdate < '{}'",
            from + Days::new(7)
        )
    };
    let count = async |from| {
        first_row(&context, &week(from)).await[0]
            .parse::<u64>()
            .unwrap()
    };
    let last = count(end() - Days::new(6)).await;
    let middle = count(end() - Days::new(1000)).await;
    assert!(
        last * 3 > middle * 2,
        "{last} rows in the last week, {middle} in another"
    );
}

#[tokio::test]
async fn the_summary_says_what_is_there() {
    let (_folder, root, summary) = lake(&LakeOptions::new(end())).await;
    let context = context(&root).await;
    for table in &summary.tables {
        let count = first_row(&context, &format!("SELECT count(*) FROM {}", table.name)).await;
        assert_eq!(count, [table.rows.to_string()], "{}", table.name);
        let delta = deltalake::open_table(table.location.clone()).await.unwrap();
        assert_eq!(delta.version(), Some(table.version));
        assert_eq!(delta.get_file_uris().unwrap().count() as u64, table.files);
        // All rows fit into memory here, so each month is one file.
        assert_eq!(table.files, table.partitions, "{}", table.name);
    }
}

#[tokio::test]
async fn little_memory_makes_more_files_of_the_same_rows() {
    let (_one, ample, much) = lake(&LakeOptions::new(end())).await;
    let mut options = LakeOptions::new(end());
    options.memory_bytes = 32 << 10;
    let (_two, tight, little) = lake(&options).await;
    let (ample, tight) = (context(&ample).await, context(&tight).await);
    for (query, table) in [
        (
            "SELECT count(*), sum(o_totalprice), sum(o_custkey * o_orderkey) FROM orders",
            1,
        ),
        (
            "SELECT count(*), sum(l_extendedprice), sum(l_orderkey * l_linenumber) FROM lineitem",
            2,
        ),
    ] {
        assert_eq!(
            first_row(&ample, query).await,
            first_row(&tight, query).await
        );
        // Rows come in small batches then, and no month's rows wait for those of all batches.
        assert!(
            little.tables[table].files > much.tables[table].files,
            "table {table}"
        );
        assert_eq!(
            little.tables[table].partitions,
            much.tables[table].partitions
        );
    }
}

#[tokio::test]
async fn a_lake_is_not_made_twice_at_one_place() {
    let (_folder, root, _) = lake(&LakeOptions::new(end())).await;
    let again = make_lake(&root, SCALE_FACTOR, &LakeOptions::new(end())).await;
    assert!(
        matches!(again, Err(LakeError::TableExists { .. })),
        "{again:?}"
    );
}

#[tokio::test]
async fn senseless_sizes_and_days_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = lake_root(&folder.path().to_string_lossy()).unwrap();
    for scale_factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        let made = make_lake(&root, scale_factor, &LakeOptions::new(end())).await;
        assert!(
            matches!(made, Err(LakeError::ScaleFactor { .. })),
            "{scale_factor}"
        );
    }
    let late = LakeOptions::new(NaiveDate::MAX);
    let made = make_lake(&root, SCALE_FACTOR, &late).await;
    assert!(matches!(made, Err(LakeError::End { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_demo_reads_columns_that_exist() {
    let (_folder, root, _) = lake(&LakeOptions::new(end())).await;
    let context = context(&root).await;
    let sql = demo::pipeline_sql();
    let query = sql
        .split("BY NAME")
        .nth(1)
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let query = query.replace("samples.tpch.", "");
    let counts = format!("SELECT count(*) FROM ({query})");
    let lines = "SELECT count(*) FROM lineitem";
    assert_eq!(
        first_row(&context, &counts).await,
        first_row(&context, lines).await
    );

    let file = demo::pipeline_yml("/a \"lake\": x", "out");
    assert!(file.contains("samples: \"/a \\\"lake\\\": x\"\n"));
}
