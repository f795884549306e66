//! The demo pipeline: two REPLACE WHERE flows over the sample lake.
//!
//! Only text is made here; running and explaining it is up to the command line.

/// The scale factor at which the demo lake is ready in seconds: 150,000 orders.
pub const SCALE_FACTOR: f64 = 0.1;

/// Where [`pipeline_sql`] belongs in the pipeline's folder.
pub const SQL_FILE: &str = "transformations/shipments.sql";

/// The window's column in both tables: a backfill over the demo names it.
pub const WINDOW_COLUMN: &str = "ship_date";

const SQL: &str = "\
-- Each night the last seven days are computed anew and replaced; older days are never touched.
-- The window is on ship_date, which is l_shipdate of the lines. Their files hold one month each, so
-- l_shipdate's file statistics leave one or two months of seven years to read. Orders and customers
-- have no such column and are read whole: `windrow plan` shows both.
CREATE OR REFRESH STREAMING TABLE shipments
COMMENT 'Shipped lines with their order and customer'
FLOW REPLACE WHERE ship_date >= date_add(current_date(), -7) BY NAME
SELECT
  l.l_shipdate AS ship_date,
  l.l_orderkey AS order_key,
  l.l_linenumber AS line_number,
  o.o_orderdate AS order_date,
  o.o_orderpriority AS priority,
  c.c_mktsegment AS segment,
  l.l_shipmode AS ship_mode,
  l.l_quantity AS quantity,
  CAST(l.l_extendedprice * (1 - l.l_discount) AS DECIMAL(18, 4)) AS net_price
FROM samples.tpch.lineitem AS l
JOIN samples.tpch.orders AS o ON o.o_orderkey = l.l_orderkey
JOIN samples.tpch.customer AS c ON c.c_custkey = o.o_custkey;

-- ship_date is a grouping key, so the same window prunes `shipments` to its last days.
CREATE OR REFRESH STREAMING TABLE daily_sales
COMMENT 'Sales by day and market segment'
FLOW REPLACE WHERE ship_date >= date_add(current_date(), -7) BY NAME
SELECT
  ship_date,
  segment,
  COUNT(*) AS line_count,
  COUNT(DISTINCT order_key) AS order_count,
  SUM(quantity) AS quantity,
  SUM(net_price) AS net_sales
FROM shipments
GROUP BY ship_date, segment;
";

/// The demo pipeline's SQL. Its sources are `samples.tpch.orders`, `lineitem` and `customer`.
pub fn pipeline_sql() -> &'static str {
    SQL
}

/// The demo pipeline's `windrow.yml`: targets below `storage`, the sample lake at `lake`. Both are
/// URLs, absolute paths, or paths from the pipeline's folder.
pub fn pipeline_yml(lake: &str, storage: &str) -> String {
    format!(
        "name: demo\n\
         storage: {}\n\
         libraries:\n  - glob: {{include: \"transformations/**\"}}\n\
         catalogs:\n  samples: {}\n",
        quoted(storage),
        quoted(lake),
    )
}

/// A YAML scalar in double quotes; YAML takes JSON's strings as they are.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
