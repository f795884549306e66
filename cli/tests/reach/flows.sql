-- Flows as people write them, over a small TPC-H lake and tables like those of TPC-DI. Each has a
-- window of some weeks or months. `-- name | what it is` stands before each.

-- tpch_01 | TPC-H 1: sums and averages per day, flag and status
CREATE STREAMING TABLE tpch_01 FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 90) BY NAME
SELECT l_shipdate, l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
  sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
  avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
FROM lineitem GROUP BY l_shipdate, l_returnflag, l_linestatus;

-- tpch_03 | TPC-H 3: revenue of unshipped orders of a market segment
CREATE STREAMING TABLE tpch_03 FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 120) BY NAME
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_shipdate > o_orderdate
GROUP BY l_orderkey, o_orderdate, o_shippriority;

-- tpch_04 | TPC-H 4: orders with a late line, by priority
CREATE STREAMING TABLE tpch_04 FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 120) BY NAME
SELECT o_orderdate, o_orderpriority, count(*) AS order_count FROM orders
WHERE EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderdate, o_orderpriority;

-- tpch_05 | TPC-H 5: revenue by nation of local suppliers
CREATE STREAMING TABLE tpch_05 FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 180) BY NAME
SELECT o_orderdate, n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
GROUP BY o_orderdate, n_name;

-- tpch_06 | TPC-H 6: revenue that a discount cost, per day
CREATE STREAMING TABLE tpch_06 FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 90) BY NAME
SELECT l_shipdate, sum(l_extendedprice * l_discount) AS revenue FROM lineitem
WHERE l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24 GROUP BY l_shipdate;

-- tpch_10 | TPC-H 10: returned items per customer and day
CREATE STREAMING TABLE tpch_10 FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 180) BY NAME
SELECT o_orderdate, c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_phone
FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey JOIN nation ON c_nationkey = n_nationkey
WHERE l_returnflag <> 'A'
GROUP BY o_orderdate, c_custkey, c_name, c_acctbal, c_phone, n_name;

-- tpch_12 | TPC-H 12: ship modes and order priority
CREATE STREAMING TABLE tpch_12 FLOW REPLACE WHERE l_receiptdate >= date_sub(current_date(), 90) BY NAME
SELECT l_receiptdate, l_shipmode,
  sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
  sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
GROUP BY l_receiptdate, l_shipmode;

-- tpch_14 | TPC-H 14: share of promotion revenue per day
CREATE STREAMING TABLE tpch_14 FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 90) BY NAME
SELECT l_shipdate, 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
  / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM lineitem, part WHERE l_partkey = p_partkey GROUP BY l_shipdate;

-- tpch_15 | TPC-H 15: the top supplier of each day
CREATE STREAMING TABLE tpch_15 FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 60) BY NAME
WITH revenue AS (
  SELECT l_shipdate, l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
  FROM lineitem GROUP BY l_shipdate, l_suppkey)
SELECT r.l_shipdate, s_suppkey, s_name, s_address, s_phone, total_revenue
FROM supplier JOIN revenue r ON s_suppkey = supplier_no
JOIN (SELECT l_shipdate, max(total_revenue) AS most FROM revenue GROUP BY l_shipdate) m
  ON m.l_shipdate = r.l_shipdate AND m.most = r.total_revenue;

-- tpch_17 | TPC-H 17: revenue of small orders of a part
CREATE STREAMING TABLE tpch_17 FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 180) BY NAME
SELECT l_shipdate, sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part
WHERE p_partkey = l_partkey AND p_size < 30
  AND l_quantity < (SELECT 0.5 * avg(l2.l_quantity) FROM lineitem l2 WHERE l2.l_partkey = p_partkey)
GROUP BY l_shipdate;

-- tpch_18 | TPC-H 18: large orders
CREATE STREAMING TABLE tpch_18 FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 365) BY NAME
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 200)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice;

-- tpch_20 | TPC-H 20: suppliers with a surplus of a part, per day
CREATE STREAMING TABLE tpch_20 FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 90) BY NAME
SELECT DISTINCT q.l_shipdate, s_name, s_address FROM supplier JOIN nation ON s_nationkey = n_nationkey
JOIN partsupp ON ps_suppkey = s_suppkey
JOIN (SELECT l_shipdate, l_partkey, l_suppkey, 0.5 * sum(l_quantity) AS half FROM lineitem GROUP BY l_shipdate, l_partkey, l_suppkey) q
  ON q.l_partkey = ps_partkey AND q.l_suppkey = ps_suppkey AND ps_availqty > half
WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_size < 25) AND n_name <> 'CANADA';

-- tpch_21 | TPC-H 21: suppliers who kept orders waiting
CREATE STREAMING TABLE tpch_21 FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 180) BY NAME
SELECT o_orderdate, s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation
WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND l1.l_receiptdate > l1.l_commitdate
  AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
  AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
    AND l3.l_receiptdate > l3.l_commitdate)
  AND s_nationkey = n_nationkey AND n_regionkey <= 2
GROUP BY o_orderdate, s_name;

-- copy_lines | a projection and a filter
CREATE STREAMING TABLE copy_lines FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 60) BY NAME
SELECT l_orderkey, l_linenumber, l_shipdate, upper(l_shipmode) AS mode, l_extendedprice * (1 - l_discount) AS net
FROM lineitem WHERE l_returnflag <> 'R';

-- copy_orders_partitioned | a projection into partitions
CREATE STREAMING TABLE copy_orders_partitioned PARTITIONED BY (o_orderdate) FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 30) BY NAME
SELECT * FROM orders;

-- copy_by_alias | the predicate is over a renamed column
CREATE STREAMING TABLE copy_by_alias FLOW REPLACE WHERE day >= date_sub(current_date(), 30) BY NAME
SELECT o_orderdate AS day, o_orderkey AS id, coalesce(o_clerk, 'none') AS clerk FROM orders;

-- copy_by_month | the predicate is over an expression of the source's column
CREATE STREAMING TABLE copy_by_month FLOW REPLACE WHERE month >= DATE '1998-06-01' BY NAME
SELECT trunc(o_orderdate, 'MM') AS month, o_orderkey, o_totalprice FROM orders;

-- wide_lines | lines with order and customer
CREATE STREAMING TABLE wide_lines FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 30) BY NAME
SELECT l.l_orderkey, l.l_linenumber, l.l_shipdate, l.l_extendedprice, o.o_orderstatus, o.o_orderdate, c.c_name, c.c_mktsegment
FROM lineitem l JOIN orders o ON l.l_orderkey = o.o_orderkey JOIN customer c ON o.o_custkey = c.c_custkey;

-- wide_orders_left | orders with what is known of the customer
CREATE STREAMING TABLE wide_orders_left FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o.o_orderkey, o.o_orderdate, o.o_totalprice, c.c_name, c.c_phone FROM orders o LEFT JOIN customer c ON o.o_custkey = c.c_custkey;

-- wide_orders_right | the same, the other way round
CREATE STREAMING TABLE wide_orders_right FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o.o_orderkey, o.o_orderdate, c.c_acctbal FROM customer c RIGHT JOIN orders o ON o.o_custkey = c.c_custkey;

-- full_days | days of orders and days of shipping side by side
CREATE STREAMING TABLE full_days FLOW REPLACE WHERE day >= date_sub(current_date(), 60) BY NAME
SELECT coalesce(a.d, b.d) AS day, a.orders, b.lines
FROM (SELECT o_orderdate AS d, count(*) AS orders FROM orders GROUP BY o_orderdate) a
FULL JOIN (SELECT l_shipdate AS d, count(*) AS lines FROM lineitem GROUP BY l_shipdate) b ON a.d = b.d;

-- semi_orders | orders with an expensive line
CREATE STREAMING TABLE semi_orders FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 120) BY NAME
SELECT o.o_orderkey, o.o_orderdate, o.o_totalprice FROM orders o
LEFT SEMI JOIN lineitem l ON o.o_orderkey = l.l_orderkey AND l.l_extendedprice > 50000;

-- anti_orders | orders without a returned line
CREATE STREAMING TABLE anti_orders FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 120) BY NAME
SELECT o.o_orderkey, o.o_orderdate FROM orders o
WHERE NOT EXISTS (SELECT 1 FROM lineitem l WHERE l.l_orderkey = o.o_orderkey AND l.l_returnflag = 'R');

-- in_customers | orders of some customers
CREATE STREAMING TABLE in_customers FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o_orderkey, o_orderdate, o_totalprice FROM orders WHERE o_custkey IN (SELECT c_custkey FROM customer WHERE c_acctbal > 5000);

-- union_events | orders and shippings as one list
CREATE STREAMING TABLE union_events FLOW REPLACE WHERE day >= date_sub(current_date(), 45) BY NAME
SELECT o_orderdate AS day, 'order' AS kind, o_orderkey AS id, o_totalprice AS amount FROM orders
UNION ALL SELECT l_shipdate, 'line', l_orderkey, l_extendedprice FROM lineitem;

-- union_sums | sums over such a list
CREATE STREAMING TABLE union_sums FLOW REPLACE WHERE day >= date_sub(current_date(), 45) BY NAME
SELECT day, kind, count(*) AS n, sum(amount) AS amount FROM (
  SELECT o_orderdate AS day, 'order' AS kind, o_totalprice AS amount FROM orders
  UNION ALL SELECT l_receiptdate, 'receipt', l_extendedprice FROM lineitem) GROUP BY day, kind;

-- daily_counts | counts per day
CREATE STREAMING TABLE daily_counts FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 90) BY NAME
SELECT l_shipdate, l_shipmode, count(*) AS lines, sum(l_quantity) AS quantity FROM lineitem GROUP BY l_shipdate, l_shipmode;

-- daily_distinct | distinct customers per day
CREATE STREAMING TABLE daily_distinct FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT o_orderdate, count(DISTINCT o_custkey) AS customers, count(DISTINCT o_clerk) AS clerks FROM orders GROUP BY o_orderdate;

-- daily_extremes | least and greatest
CREATE STREAMING TABLE daily_extremes FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT o_orderdate, min(o_totalprice) AS least, max(o_totalprice) AS most, max(o_clerk) AS last_clerk FROM orders GROUP BY o_orderdate;

-- daily_deviation | averages and deviations of doubles
CREATE STREAMING TABLE daily_deviation FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 60) BY NAME
SELECT l_shipdate, avg(CAST(l_quantity AS DOUBLE)) AS mean, stddev_pop(CAST(l_quantity AS DOUBLE)) AS deviation FROM lineitem GROUP BY l_shipdate;

-- daily_having | busy days only
CREATE STREAMING TABLE daily_having FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 365) BY NAME
SELECT o_orderdate, count(*) AS n, sum(o_totalprice) AS total FROM orders GROUP BY o_orderdate HAVING count(*) >= 2;

-- daily_of_clerks | groups that do not hold the predicate's column alone
CREATE STREAMING TABLE daily_of_clerks FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT o_orderdate, o_clerk, o_orderpriority, count(*) AS n, sum(o_totalprice) AS total, min(o_orderkey) AS first_order FROM orders
GROUP BY o_orderdate, o_clerk, o_orderpriority;

-- distinct_pairs | which customer ordered on which day
CREATE STREAMING TABLE distinct_pairs FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT DISTINCT o_orderdate, o_custkey FROM orders;

-- ranked_orders | the three largest orders of each day
CREATE STREAMING TABLE ranked_orders FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT * FROM (SELECT o_orderdate, o_orderkey, o_totalprice, row_number() OVER (PARTITION BY o_orderdate ORDER BY o_totalprice DESC, o_orderkey) AS place
  FROM orders) WHERE place <= 3;

-- shares_of_day | each order's share of its day
CREATE STREAMING TABLE shares_of_day FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o_orderdate, o_orderkey, o_totalprice, sum(o_totalprice) OVER (PARTITION BY o_orderdate) AS of_day FROM orders;

-- running_total | a running total by day and priority
CREATE STREAMING TABLE running_total FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o_orderdate, o_orderpriority, o_orderkey,
  sum(o_totalprice) OVER (PARTITION BY o_orderdate, o_orderpriority ORDER BY o_orderkey) AS so_far FROM orders;

-- previous_order | the customer's previous order: a partition that does not hold the predicate's column
CREATE STREAMING TABLE previous_order FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o_custkey, o_orderdate, o_orderkey, lag(o_orderdate) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS before_that FROM orders;

-- latest_of_customer | deduplication: the last order of each customer
CREATE STREAMING TABLE latest_of_customer FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 365) BY NAME
SELECT o_custkey, o_orderdate, o_orderkey FROM (
  SELECT *, row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderdate DESC, o_orderkey DESC) AS rn FROM orders) WHERE rn = 1;

-- parts_of_day | join, then sums, then a window function
CREATE STREAMING TABLE parts_of_day FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 60) BY NAME
SELECT l_shipdate, p_brand, revenue, rank() OVER (PARTITION BY l_shipdate ORDER BY revenue DESC, p_brand) AS place FROM (
  SELECT l_shipdate, p_brand, sum(l_extendedprice) AS revenue FROM lineitem JOIN part ON l_partkey = p_partkey GROUP BY l_shipdate, p_brand);

-- segment_days | sums over a join with a dimension
CREATE STREAMING TABLE segment_days FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT o_orderdate, c_mktsegment, n_name, count(*) AS orders, sum(o_totalprice) AS total
FROM orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey GROUP BY o_orderdate, c_mktsegment, n_name;

-- segment_days_left | the same with customers that are not known
CREATE STREAMING TABLE segment_days_left FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 90) BY NAME
SELECT o_orderdate, coalesce(c_mktsegment, 'UNKNOWN') AS segment, count(*) AS orders, sum(o_totalprice) AS total
FROM orders LEFT JOIN customer ON o_custkey = c_custkey GROUP BY o_orderdate, coalesce(c_mktsegment, 'UNKNOWN');

-- order_totals | lines summed below a join
CREATE STREAMING TABLE order_totals FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 60) BY NAME
SELECT o.o_orderkey, o.o_orderdate, o.o_totalprice, t.lines, t.total FROM orders o
LEFT JOIN (SELECT l_orderkey, count(*) AS lines, sum(l_extendedprice) AS total FROM lineitem GROUP BY l_orderkey) t ON t.l_orderkey = o.o_orderkey;

-- suppliers_scalar | lines above the average of all
CREATE STREAMING TABLE suppliers_scalar FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 30) BY NAME
SELECT l_shipdate, l_orderkey, l_linenumber, l_extendedprice FROM lineitem WHERE l_extendedprice > (SELECT avg(s_acctbal) FROM supplier);

-- two_columns | a predicate over two columns
CREATE STREAMING TABLE two_columns FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 90) AND l_shipmode IN ('AIR', 'RAIL') BY NAME
SELECT l_shipdate, l_shipmode, count(*) AS n FROM lineitem GROUP BY l_shipdate, l_shipmode;

-- either_column | a predicate with OR
CREATE STREAMING TABLE either_column FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 30) OR o_orderstatus = 'P' BY NAME
SELECT o_orderkey, o_orderdate, o_orderstatus, o_totalprice FROM orders;

-- status_in | a predicate over a code, not a date
CREATE STREAMING TABLE status_in FLOW REPLACE WHERE o_orderpriority IN ('1-URGENT', '2-HIGH') BY NAME
SELECT o_orderpriority, count(*) AS n, sum(o_totalprice) AS total FROM orders GROUP BY o_orderpriority;

-- top_ten | the ten largest orders of the window's source: a limit
CREATE STREAMING TABLE top_ten FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 365) BY NAME
SELECT o_orderdate, o_orderkey, o_totalprice FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 10;

-- self_join | pairs of orders of one customer on one day
CREATE STREAMING TABLE self_join FLOW REPLACE WHERE o_orderdate >= date_sub(current_date(), 365) BY NAME
SELECT a.o_orderdate, a.o_custkey, a.o_orderkey AS one, b.o_orderkey AS other FROM orders a
JOIN orders b ON a.o_custkey = b.o_custkey AND a.o_orderdate = b.o_orderdate AND a.o_orderkey < b.o_orderkey;

-- mv_customers | a view: one row per customer
CREATE MATERIALIZED VIEW mv_customers AS
SELECT o_custkey, count(*) AS orders, sum(o_totalprice) AS total, max(o_orderdate) AS last_order FROM orders GROUP BY o_custkey;

-- mv_months | a view of sums per month
CREATE MATERIALIZED VIEW mv_months AS
SELECT trunc(l_shipdate, 'MM') AS month, l_shipmode, count(*) AS lines, sum(l_quantity) AS quantity FROM lineitem GROUP BY trunc(l_shipdate, 'MM'), l_shipmode;

-- mv_joined | a view over a join
CREATE MATERIALIZED VIEW mv_joined AS
SELECT c.c_custkey, c.c_name, n.n_name, r.r_name FROM customer c JOIN nation n ON c.c_nationkey = n.n_nationkey JOIN region r ON n.n_regionkey = r.r_regionkey;

-- mv_chain | a view over a flow's table
CREATE MATERIALIZED VIEW mv_chain AS SELECT l_shipmode, sum(lines) AS lines FROM daily_counts GROUP BY l_shipmode;

-- chain_days | a flow over a flow's table
CREATE STREAMING TABLE chain_days FLOW REPLACE WHERE l_shipdate >= date_sub(current_date(), 30) BY NAME
SELECT l_shipdate, sum(lines) AS lines, max(quantity) AS most FROM daily_counts GROUP BY l_shipdate;

-- di_trades | TPC-DI: trades with account, customer and security
CREATE STREAMING TABLE di_trades FLOW REPLACE WHERE day >= date_sub(current_date(), 10) BY NAME
SELECT t.t_id, CAST(t.t_dts AS DATE) AS day, t.t_dts, t.status, t.qty, t.price, t.qty * t.price AS volume, a.broker, c.tier, s.exchange
FROM di_trade t LEFT JOIN di_account a ON t.account = a.account LEFT JOIN di_customer c ON a.customer = c.customer LEFT JOIN di_security s ON t.symbol = s.symbol;

-- di_current_customers | TPC-DI: a customer's current version
CREATE STREAMING TABLE di_current_customers FLOW REPLACE WHERE valid_from >= date_sub(current_date(), 60) BY NAME
SELECT customer, tier, city, valid_from FROM (
  SELECT *, row_number() OVER (PARTITION BY customer ORDER BY valid_from DESC, version DESC) AS rn FROM di_customer_version) WHERE rn = 1;

-- di_customer_history | TPC-DI: validity of each version
CREATE STREAMING TABLE di_customer_history FLOW REPLACE WHERE valid_from >= date_sub(current_date(), 60) BY NAME
SELECT customer, version, tier, city, valid_from, lead(valid_from) OVER (PARTITION BY customer ORDER BY valid_from, version) AS valid_to FROM di_customer_version;

-- di_market | TPC-DI: each day's price against the year's extremes
CREATE STREAMING TABLE di_market FLOW REPLACE WHERE day >= date_sub(current_date(), 10) BY NAME
SELECT m.symbol, m.day, m.close, m.volume, s.name, s.exchange,
  max(m.high) OVER (PARTITION BY m.symbol ORDER BY m.day ROWS BETWEEN 51 PRECEDING AND CURRENT ROW) AS high_52,
  min(m.low) OVER (PARTITION BY m.symbol ORDER BY m.day ROWS BETWEEN 51 PRECEDING AND CURRENT ROW) AS low_52
FROM di_market_day m JOIN di_security s ON m.symbol = s.symbol;

-- di_holdings | TPC-DI: what an account holds, by the day's trades
CREATE STREAMING TABLE di_holdings FLOW REPLACE WHERE day >= date_sub(current_date(), 10) BY NAME
SELECT account, symbol, CAST(t_dts AS DATE) AS day, sum(CASE WHEN kind = 'BUY' THEN qty ELSE -qty END) AS moved, count(*) AS trades
FROM di_trade WHERE status = 'CMPT' GROUP BY account, symbol, CAST(t_dts AS DATE);

-- di_cash | TPC-DI: cash balances per account and day
CREATE STREAMING TABLE di_cash FLOW REPLACE WHERE day >= date_sub(current_date(), 10) BY NAME
SELECT a.customer, t.account, t.day, t.cash FROM (
  SELECT account, CAST(t_dts AS DATE) AS day, sum(CASE WHEN kind = 'SELL' THEN qty * price ELSE -qty * price END) AS cash
  FROM di_trade GROUP BY account, CAST(t_dts AS DATE)) t JOIN di_account a ON a.account = t.account;

-- di_watches | TPC-DI: open watches: placed and not removed
CREATE STREAMING TABLE di_watches FLOW REPLACE WHERE placed >= date_sub(current_date(), 60) BY NAME
SELECT w.customer, w.symbol, min(w.day) AS placed, max(x.day) AS removed
FROM (SELECT * FROM di_watch WHERE action = 'ACTV') w LEFT JOIN (SELECT * FROM di_watch WHERE action = 'CNCL') x
  ON w.customer = x.customer AND w.symbol = x.symbol GROUP BY w.customer, w.symbol;

-- di_prospects | TPC-DI: prospects that are no customers
CREATE STREAMING TABLE di_prospects FLOW REPLACE WHERE since >= date_sub(current_date(), 60) BY NAME
SELECT p.prospect, p.city, p.since FROM di_prospect p LEFT ANTI JOIN di_customer c ON p.city = c.city AND p.name = c.name;

-- di_accounts_as_of | TPC-DI: trades with the version of the customer that held on their day
CREATE STREAMING TABLE di_accounts_as_of FLOW REPLACE WHERE day >= date_sub(current_date(), 10) BY NAME
SELECT t.t_id, CAST(t.t_dts AS DATE) AS day, v.customer, v.version, v.tier
FROM di_trade t JOIN di_account a ON t.account = a.account
JOIN (SELECT customer, version, tier, valid_from, lead(valid_from) OVER (PARTITION BY customer ORDER BY valid_from, version) AS valid_to FROM di_customer_version) v
  ON v.customer = a.customer AND CAST(t.t_dts AS DATE) >= v.valid_from AND (v.valid_to IS NULL OR CAST(t.t_dts AS DATE) < v.valid_to);

-- di_brokers | TPC-DI: brokers' volume per day, with brokers that have none
CREATE STREAMING TABLE di_brokers FLOW REPLACE WHERE day >= date_sub(current_date(), 10) BY NAME
SELECT CAST(t.t_dts AS DATE) AS day, a.broker, count(t.t_id) AS trades, sum(t.qty * t.price) AS volume
FROM di_account a LEFT JOIN di_trade t ON t.account = a.account GROUP BY CAST(t.t_dts AS DATE), a.broker;
