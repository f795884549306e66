//! What is staged on executors: real processes, which these tests also kill.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::process::Child;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::RoutesBuilder;
use tonic::transport::Server;
use windrow_scheduler::cluster::{Cluster, ClusterOptions};
use windrow_scheduler::engine::StageEngine;
use windrow_scheduler::report::{UpdateReport, UpdateState};
use windrow_scheduler::update::UpdateOptions;

use crate::inside::{self, Rows, told};
use crate::lake::{Column, Lake, NewTable};
use crate::pipeline::{Pipeline, target};
use crate::{Outcome, program, words};

/// A scheduler in this process with executors of their own.
pub struct TestCluster {
    pub engine: Arc<Cluster>,
    address: SocketAddr,
    executors: Vec<Child>,
    work: tempfile::TempDir,
}

impl TestCluster {
    pub async fn start(executors: usize, slots: usize) -> Outcome<Self> {
        let options = ClusterOptions {
            executor_timeout: Duration::from_secs(8),
            no_executor_wait: Duration::from_secs(20),
            ..ClusterOptions::default()
        };
        let engine = Arc::new(Cluster::start(options).await.map_err(words)?);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(words)?;
        let address = listener.local_addr().map_err(words)?;
        let mut routes = RoutesBuilder::default();
        engine.add_routes(&mut routes);
        tokio::spawn(
            Server::builder()
                .add_routes(routes.routes())
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let mut cluster = Self {
            engine,
            address,
            executors: Vec::new(),
            work: tempfile::tempdir().map_err(words)?,
        };
        for _ in 0..executors {
            cluster.add(slots)?;
        }
        cluster.wait_for(executors).await?;
        Ok(cluster)
    }

    fn add(&mut self, slots: usize) -> Outcome {
        let (scheduler, slots) = (self.address.to_string(), slots.to_string());
        let work = self.work.path().join("work");
        let arguments = [
            "executor",
            "--scheduler",
            &scheduler,
            "--slots",
            &slots,
            "--work-dir",
            &work.to_string_lossy(),
            "--memory-limit",
            "512m",
        ];
        let variables = HashMap::from([("WINDROW_LOG".to_string(), "error".to_string())]);
        let child = program::start(self.work.path(), &arguments, &variables)?;
        self.executors.push(child);
        Ok(())
    }

    async fn wait_for(&self, count: usize) -> Outcome {
        let begun = Instant::now();
        while self.engine.executors().await.len() != count {
            if begun.elapsed() > Duration::from_secs(60) {
                let there = self.engine.executors().await;
                return Err(format!("{count} executors should be there: {there:?}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn options(&self) -> UpdateOptions {
        UpdateOptions {
            engine: Some(self.engine.clone()),
            now: Some(NOW.parse().unwrap_or_default()),
            ..UpdateOptions::default()
        }
    }
}

/// The engine that the suites of whole pipelines run on: this process, or with `WINDROW_TEST_CLUSTER`
/// set two executors which all of them share.
pub fn engine() -> Option<Arc<dyn StageEngine>> {
    static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
    std::env::var_os("WINDROW_TEST_CLUSTER")?;
    let shared = SHARED.get_or_init(|| {
        let (give, take) = std::sync::mpsc::channel();
        inside::run(move || async move {
            match TestCluster::start(2, 1).await {
                Ok(cluster) => {
                    let _ = give.send(cluster.engine.clone());
                    std::future::pending::<()>().await;
                }
                Err(failure) => panic!("{failure}"),
            }
        });
        take.recv().unwrap_or_else(|e| panic!("no cluster: {e}"))
    });
    Some(shared.clone())
}

const NOW: &str = "2026-03-10T00:00:00Z";

fn play<F>(test: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = Outcome>,
{
    match inside::run(test).join() {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => panic!("{failure}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn column(name: &str, delta_type: &str) -> Column {
    Column {
        name: name.into(),
        delta_type: delta_type.into(),
        nullable: true,
    }
}

/// Days with rows, and a dimension of which some keys are missing.
async fn sources(lake: &Lake, rows_a_day: u32) -> Outcome {
    let fact = NewTable {
        columns: vec![
            column("d", "date"),
            column("k", "long"),
            column("x", "long"),
            column("r", "string"),
        ],
        partitioned_by: vec!["r".into()],
        ..NewTable::default()
    };
    lake.create("src/fact", &fact).await?;
    let rows = format!(
        "SELECT CAST(DATE '2026-03-01' + CAST(a.value || ' days' AS INTERVAL) AS DATE) AS d, b.value % 97 AS k, \
         b.value AS x, CASE b.value % 3 WHEN 0 THEN 'a b/c=%41' WHEN 1 THEN 'é:' END AS r \
         FROM generate_series(0, 9) a CROSS JOIN generate_series(1, {rows_a_day}) b"
    );
    append(lake, "src/fact", &rows).await?;
    let dim = NewTable {
        columns: vec![column("k", "long"), column("name", "string")],
        ..NewTable::default()
    };
    lake.create("src/dim", &dim).await?;
    append(
        lake,
        "src/dim",
        "SELECT value AS k, 'n' || value AS name FROM generate_series(0, 120, 2)",
    )
    .await
}

async fn append(lake: &Lake, at: &str, sql: &str) -> Outcome {
    let context = datafusion::prelude::SessionContext::new();
    let rows = crate::lake::batches(&context, sql).await?;
    let schema = rows.first().map(|b| b.schema()).ok_or("no rows")?;
    let rows = datafusion::arrow::compute::concat_batches(&schema, &rows).map_err(words)?;
    lake.append(at, rows).await
}

fn pipeline(folder: &Path, lake: &Lake, sql: &str) -> Outcome<Pipeline> {
    let at = folder.join("pipeline");
    std::fs::create_dir_all(&at).map_err(words)?;
    let pipeline = Pipeline::new(&at, lake.clone())
        .source("fact")
        .source("dim")
        .sql(sql);
    pipeline.write()?;
    Ok(pipeline)
}

async fn update(
    pipeline: &Pipeline,
    storage: &Path,
    options: &UpdateOptions,
) -> Outcome<UpdateReport> {
    let config = inside::pipeline(&pipeline.folder, Some(storage))?;
    inside::update(config, options).await.map_err(|f| told(&f))
}

/// Joins of all kinds, also by inequality, aggregates, windows, unions, partitions with odd names.
const QUERIES: &str = "
CREATE MATERIALIZED VIEW by_key PARTITIONED BY (r) AS SELECT r, k, count(*) AS n, sum(x) AS s, max(d) AS last FROM fact GROUP BY r, k;
CREATE MATERIALIZED VIEW inner_join AS SELECT f.d, f.k, f.x, m.name FROM fact f JOIN dim m ON f.k = m.k;
CREATE MATERIALIZED VIEW left_join AS SELECT f.d, f.k, f.x, m.name FROM fact f LEFT JOIN dim m ON f.k = m.k;
CREATE MATERIALIZED VIEW right_join AS SELECT f.d, m.k, f.x, m.name FROM fact f RIGHT JOIN dim m ON f.k = m.k;
CREATE MATERIALIZED VIEW full_join AS SELECT f.d, f.k, m.k AS mk, f.x, m.name FROM (SELECT * FROM fact WHERE x < 50) f FULL JOIN dim m ON f.k = m.k;
CREATE MATERIALIZED VIEW left_unequal AS SELECT m.k, m.name, f.x FROM dim m LEFT JOIN (SELECT * FROM fact WHERE x < 9) f ON m.k < f.x;
CREATE MATERIALIZED VIEW full_unequal AS SELECT m.k, f.x FROM dim m FULL JOIN (SELECT * FROM fact WHERE x < 9) f ON m.k < f.x - 5;
CREATE MATERIALIZED VIEW semi AS SELECT k, name FROM dim WHERE EXISTS (SELECT 1 FROM fact f WHERE f.k = dim.k AND f.x > 3);
CREATE MATERIALIZED VIEW anti AS SELECT k, name FROM dim WHERE k NOT IN (SELECT k FROM fact WHERE k IS NOT NULL);
CREATE MATERIALIZED VIEW scalar AS SELECT k, x FROM fact WHERE x > (SELECT avg(x) FROM fact);
CREATE MATERIALIZED VIEW ranked AS SELECT d, k, x, row_number() OVER (PARTITION BY d, k ORDER BY x, r) AS place, sum(x) OVER (PARTITION BY k) AS of_key FROM fact;
CREATE MATERIALIZED VIEW united AS SELECT k, 'f' AS src FROM fact WHERE x < 100 UNION ALL SELECT k, name FROM dim UNION ALL SELECT max(k), 'm' FROM dim;
CREATE MATERIALIZED VIEW different AS SELECT DISTINCT k, r FROM fact;
CREATE MATERIALIZED VIEW top AS SELECT d, k, x FROM fact ORDER BY x DESC, d, k, r LIMIT 7;
CREATE MATERIALIZED VIEW after AS SELECT k, sum(n) AS n FROM by_key GROUP BY k;
CREATE STREAMING TABLE recent FLOW REPLACE WHERE d >= date_add(current_date(), -4) BY NAME SELECT d, r, count(*) AS n, sum(x) AS s FROM fact GROUP BY d, r;
";

#[test]
fn executors_make_the_same_tables_as_one_process() {
    play(|| async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        sources(&lake, 300).await?;
        let pipeline = pipeline(scratch.path(), &lake, QUERIES)?;
        let cluster = TestCluster::start(2, 1).await?;
        let alone = UpdateOptions {
            engine: None,
            ..cluster.options()
        };
        let mut tables = Vec::new();
        for (name, options) in [("alone", alone), ("together", cluster.options())] {
            let storage = scratch.path().join("lake").join(name);
            let report = update(&pipeline, &storage, &options).await?;
            if report.state != UpdateState::Completed {
                return Err(format!("{name}: {:#?}", report.error));
            }
            let mut rows = Vec::new();
            for flow in &report.flows {
                let mut table =
                    Rows::read(&lake, &format!("{name}/tables/{}", flow.target)).await?;
                table.rows.sort();
                rows.push((flow.target.clone(), table.names, table.rows));
            }
            tables.push(rows);
        }
        for (one, many) in tables[0].iter().zip(&tables[1]) {
            if one != many {
                return Err(format!(
                    "{}: {} rows alone, {} rows on executors",
                    one.0,
                    one.2.len(),
                    many.2.len()
                ));
            }
        }
        // DataFusion decodes the constants of a union's branch as columns of its input, which is
        // found out before the plan is sent. When that is mended, this plan goes too.
        let (flows, jobs) = (tables[0].len(), cluster.engine.jobs_done());
        let stayed = cluster.engine.stayed_here();
        match (flows, jobs, stayed.as_slice()) {
            (16, 15, [one]) if one.starts_with("united: ") => Ok(()),
            _ => Err(format!(
                "{flows} flows, {jobs} on executors; stayed: {stayed:#?}"
            )),
        }
    });
}

#[test]
fn a_fault_of_a_row_keeps_its_code_and_words() {
    play(|| async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        sources(&lake, 30).await?;
        let sql = "CREATE STREAMING TABLE t (k BIGINT, name STRING NOT NULL) FLOW REPLACE WHERE k >= 0 BY NAME
            SELECT f.k, m.name FROM fact f LEFT JOIN dim m ON f.k = m.k;
            CREATE MATERIALIZED VIEW z AS SELECT 1 DIV (k - 5) AS z FROM fact;";
        let pipeline = pipeline(scratch.path(), &lake, sql)?;
        let cluster = TestCluster::start(1, 2).await?;
        let alone = UpdateOptions {
            engine: None,
            ..cluster.options()
        };
        let mut errors = Vec::new();
        for (name, options) in [("alone", alone), ("together", cluster.options())] {
            let storage = scratch.path().join("lake").join(name);
            let report = update(&pipeline, &storage, &options).await?;
            let mut found: Vec<(String, Option<String>)> = report
                .flows
                .iter()
                .map(|f| (f.flow.clone(), f.error.as_ref().map(|e| e.code.clone())))
                .collect();
            found.sort();
            errors.push(found);
        }
        let broken = ("t".to_string(), Some("NOT_NULL_VIOLATED".to_string()));
        if errors[0] != errors[1] || !errors[0].contains(&broken) {
            return Err(format!("{errors:#?}"));
        }
        Ok(())
    });
}

/// While updates run, executors die; new ones come. How long an update takes is another matter on
/// each machine, so updates follow each other until enough were hit.
#[test]
fn lost_executors_cost_time_and_no_rows() {
    const HITS: u64 = 3;
    const UPDATES: usize = 30;
    play(|| async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        sources(&lake, 60_000).await?;
        let sql = "CREATE MATERIALIZED VIEW t AS SELECT d, k, r, count(*) AS n, sum(x) AS s, count(DISTINCT x) AS c,
            max(place) AS p FROM (SELECT *, row_number() OVER (PARTITION BY k, r ORDER BY x, d) AS place FROM fact) GROUP BY d, k, r;";
        let pipeline = pipeline(scratch.path(), &lake, sql)?;
        let mut cluster = TestCluster::start(2, 1).await?;
        let alone = UpdateOptions {
            engine: None,
            ..cluster.options()
        };
        update(&pipeline, &scratch.path().join("lake/alone"), &alone).await?;
        let mut expected = Rows::read(&lake, "alone/tables/t").await?.rows;
        expected.sort();
        for number in 0..UPDATES {
            if cluster.engine.jobs_retried() >= HITS {
                return Ok(());
            }
            let (folder, config_lake) = (pipeline.folder.clone(), lake.clone());
            let (name, options) = (format!("together-{number}"), cluster.options());
            let storage = scratch.path().join("lake").join(&name);
            let running = tokio::spawn(async move {
                let pipeline = Pipeline::new(&folder, config_lake);
                update(&pipeline, &storage, &options).await
            });
            let soon = Duration::from_millis(5);
            while cluster.engine.jobs_running() == 0 && !running.is_finished() {
                tokio::time::sleep(soon).await;
            }
            // A little later in each update, so that another part of the work is struck.
            tokio::time::sleep(Duration::from_millis(150 * (number as u64 % 5))).await;
            if !running.is_finished() {
                cluster.executors.remove(0).kill().await.map_err(words)?;
                cluster.add(1)?;
            }
            let limit = Duration::from_secs(150);
            let report = tokio::time::timeout(limit, running)
                .await
                .map_err(|_| "the update hangs".to_string())?
                .map_err(words)??;
            if report.state != UpdateState::Completed {
                return Err(format!("{name}: {:#?}", report.error));
            }
            let mut rows = Rows::read(&lake, &format!("{name}/tables/t")).await?.rows;
            rows.sort();
            if rows != expected {
                return Err(format!(
                    "{name}: {} rows, not {}",
                    rows.len(),
                    expected.len()
                ));
            }
            cluster.wait_for(2).await?;
        }
        Err(format!(
            "{UPDATES} updates were over before {HITS} attempts were lost"
        ))
    });
}

/// Without executors an update fails in time, and the table stays as it was.
#[test]
fn an_update_without_executors_fails_and_changes_nothing() {
    play(|| async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        sources(&lake, 3).await?;
        let sql = "CREATE MATERIALIZED VIEW t AS SELECT k FROM fact;";
        let pipeline = pipeline(scratch.path(), &lake, sql)?;
        let cluster = TestCluster::start(0, 1).await?;
        let storage = scratch.path().join("lake/out");
        let report = update(&pipeline, &storage, &cluster.options()).await?;
        let code = report.flows[0].error.as_ref().map(|e| e.code.as_str());
        if report.state != UpdateState::Failed || code != Some("NO_EXECUTOR") {
            return Err(format!("{report:#?}"));
        }
        match lake.objects(&target("t")).await?.is_empty() {
            true => Ok(()),
            false => Err("files are left".into()),
        }
    });
}

/// The rows of some targets after an update on a cluster of so many executors and slots.
async fn on_a_cluster(
    pipeline: &Pipeline,
    (executors, slots): (usize, usize),
    targets: &[&str],
) -> Outcome<Vec<Vec<crate::cells::Row>>> {
    let cluster = TestCluster::start(executors, slots).await?;
    let name = format!("out-{executors}-{slots}");
    let storage = Path::new(&pipeline.dir()).join(&name);
    let report = update(pipeline, &storage, &cluster.options()).await?;
    if report.state != UpdateState::Completed {
        return Err(format!("{name}: {report:#?}"));
    }
    let mut tables = Vec::new();
    for target in targets {
        let mut rows = Rows::read(&pipeline.lake, &format!("{name}/tables/{target}"))
            .await?
            .rows;
        rows.sort();
        tables.push(rows);
    }
    Ok(tables)
}

fn row(cells: &[Option<&str>]) -> crate::cells::Row {
    cells.iter().map(|c| c.map(str::to_string)).collect()
}

/// Every row of every file is read once, whether there are fewer tasks at a time than files or more: of
/// a table's files, of files of lines, and of both in one query.
#[test]
fn each_file_is_read_once_by_one_task() {
    const FILES: usize = 64;
    play(|| async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        let fact = NewTable {
            columns: vec![column("d", "date"), column("x", "long")],
            ..NewTable::default()
        };
        lake.create("src/fact", &fact).await?;
        let rows =
            "SELECT DATE '2026-03-09' AS d, CAST(1 AS BIGINT) AS x FROM generate_series(1, 1000)";
        let lines = "{\"d\": \"2026-03-09\", \"x\": 1}\n".repeat(1000);
        for number in 0..FILES {
            append(&lake, "src/fact", rows).await?;
            let file = format!("lines/{number}.json");
            lake.write(&file, lines.clone().into_bytes()).await?;
        }
        let read = "read_files('{dir}/lines', format => 'json', schema => 'd DATE, x BIGINT')";
        let flow = |name: &str, from: &str| {
            format!(
                "CREATE STREAMING TABLE {name} FLOW REPLACE WHERE d >= DATE '2026-03-05' BY NAME
                SELECT d, COUNT(*) AS n, SUM(x) AS x FROM {from} GROUP BY ALL;\n"
            )
        };
        let both = format!("(SELECT d, x FROM fact UNION ALL SELECT d, x FROM {read})");
        let sql = [flow("a", "fact"), flow("b", read), flow("c", &both)].concat();
        let at = scratch.path().join("pipeline");
        std::fs::create_dir_all(&at).map_err(words)?;
        let mut pipeline = Pipeline::new(&at, lake).source("fact").sql(&sql);
        pipeline.keys = "allowed_paths: [\"{dir}/\"]\n".into();
        pipeline.write()?;
        let sum = |n: &str| vec![row(&[Some("2026-03-09"), Some(n), Some(n)])];
        let expected = [sum("64000"), sum("64000"), sum("128000")];
        for shape in [(2, 2), (1, 1), (1, FILES)] {
            let found = on_a_cluster(&pipeline, shape, &["a", "b", "c"]).await?;
            if found != expected {
                return Err(format!("{shape:?} executors and slots: {found:?}"));
            }
        }
        Ok(())
    });
}

/// Zeros of both signs, all kinds of NaN and nulls are one group each, in whatever tasks they are met.
#[test]
fn equal_keys_meet_in_one_task() {
    play(|| async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        let fact = NewTable {
            columns: vec![column("k", "double"), column("x", "long")],
            ..NewTable::default()
        };
        lake.create("src/fact", &fact).await?;
        for key in [
            "0.0",
            "-0.0",
            "'NaN'",
            "-CAST('NaN' AS DOUBLE)",
            "NULL",
            "NULL",
            "1.0",
        ] {
            let row = format!("SELECT CAST({key} AS DOUBLE) AS k, CAST(1 AS BIGINT) AS x");
            append(&lake, "src/fact", &row).await?;
        }
        let sql = "CREATE STREAMING TABLE g FLOW REPLACE WHERE k IS NULL OR k = k BY NAME
            SELECT k, COUNT(*) AS n, SUM(x) AS x FROM fact GROUP BY k;
            CREATE STREAMING TABLE kinds FLOW REPLACE WHERE n >= 0 BY NAME SELECT COUNT(DISTINCT k) AS n FROM fact;
            CREATE STREAMING TABLE j FLOW REPLACE WHERE n >= 0 BY NAME
            SELECT a.k, COUNT(*) AS n FROM fact a JOIN fact b ON a.k = b.k GROUP BY a.k;";
        let at = scratch.path().join("pipeline");
        std::fs::create_dir_all(&at).map_err(words)?;
        let pipeline = Pipeline::new(&at, lake).source("fact").sql(sql);
        pipeline.write()?;
        for shape in [(1, 1), (4, 2)] {
            let found = on_a_cluster(&pipeline, shape, &["g", "kinds", "j"]).await?;
            let counts = |rows: &[crate::cells::Row], at: usize| {
                let mut counts: Vec<String> = rows.iter().filter_map(|r| r[at].clone()).collect();
                counts.sort();
                counts
            };
            let (groups, kinds, joined) = (&found[0], &found[1], &found[2]);
            let sums = (counts(groups, 1), counts(groups, 2), counts(joined, 1));
            let four = ["1", "2", "2", "2"].map(str::to_string).to_vec();
            let three = ["1", "4", "4"].map(str::to_string).to_vec();
            if sums != (four.clone(), four, three) || counts(kinds, 0) != ["3"] {
                return Err(format!("{shape:?} executors and slots: {found:?}"));
            }
        }
        Ok(())
    });
}
