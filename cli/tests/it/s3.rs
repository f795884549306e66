//! The same on object storage: a SeaweedFS of these tests' own. If it can't be started, they fail.

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use url::Url;

use crate::lake::{Column, Lake, NewTable};
use crate::pipeline::{Pipeline, STORAGE, target};
use crate::scenario::{Ground, play};
use crate::{Outcome, cells, python, words};

/// Scenarios that are played on S3 too.
const SCENARIOS: [&str; 6] = [
    "replace_where/worked_example",
    "replace_where/own_rows_by_dml",
    "replace_where/partition_values_that_look_encoded",
    "replace_where/straddling_files_are_rewritten_others_left",
    "overrides/string_bounds_on_a_date_partition",
    "overrides/full_refresh_forgets_history",
];

/// A running server; ended, by its id, when the last test lets go of it.
pub struct Server {
    variables: HashMap<String, String>,
}

impl Server {
    pub fn shared() -> Outcome<Arc<Self>> {
        static RUNNING: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(server) = running.upgrade() {
            return Ok(server);
        }
        let started = script()?.arg("start").output().map_err(words)?;
        if !started.status.success() {
            return Err(format!(
                "there is no S3 server: {}",
                String::from_utf8_lossy(&started.stderr)
            ));
        }
        let variables = String::from_utf8_lossy(&started.stdout)
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let server = Arc::new(Self { variables });
        *running = Arc::downgrade(&server);
        Ok(server)
    }

    /// A lake of its own.
    pub fn lake(&self) -> Outcome<Lake> {
        let bucket = self
            .variables
            .get("WINDROW_TEST_BUCKET")
            .ok_or("the server has no bucket")?;
        let unique = tempfile::tempdir().map_err(words)?;
        let name = unique
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .trim_start_matches('.')
            .to_string();
        let root = Url::parse(&format!("s3://{bucket}/{name}/")).map_err(words)?;
        let options = self.variables.iter().filter(|(k, _)| k.starts_with("AWS_"));
        Ok(Lake {
            root,
            options: options.map(|(k, v)| (k.clone(), v.clone())).collect(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let (Some(pid), Ok(mut script)) = (self.variables.get("SEAWEED_PID"), script()) {
            let _ = script.args(["stop", pid]).output();
        }
    }
}

fn script() -> Outcome<Command> {
    let mut command = Command::new(python::interpreter()?);
    command.arg(python::folder().join("s3/seaweed.py"));
    Ok(command)
}

pub fn on_s3<F: Future<Output = Outcome>>(test: impl FnOnce(Arc<Server>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = Server::shared().unwrap_or_else(|e| panic!("{e}"));
    if let Err(failure) = runtime.block_on(test(server)) {
        panic!("{failure}");
    }
}

#[test]
fn scenarios() {
    on_s3(async |server| {
        for name in SCENARIOS {
            play(name, Ground::Lake(server.lake()?))
                .await
                .map_err(|e| format!("on S3: {e}"))?;
        }
        Ok(())
    });
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|c| c.to_string()).collect()
}

/// A source with one row for each of ten days, and the pipeline that reads the last ones.
pub async fn pipeline(server: &Server, folder: &std::path::Path) -> Outcome<Pipeline> {
    let sql =
        "CREATE STREAMING TABLE t FLOW REPLACE WHERE d >= '2026-03-05' BY NAME SELECT d, x FROM s;";
    let pipeline = Pipeline::new(folder, server.lake()?).source("s").sql(sql);
    let columns = [("d", "date"), ("x", "long")]
        .map(|(name, t)| Column {
            name: name.into(),
            delta_type: t.into(),
            nullable: true,
        })
        .to_vec();
    pipeline
        .lake
        .create(
            "src/s",
            &NewTable {
                columns,
                ..NewTable::default()
            },
        )
        .await?;
    let rows: Vec<Vec<String>> = (1..=9)
        .map(|d| row(&[&format!("2026-03-0{d}"), "1"]))
        .collect();
    append(&pipeline, "src/s", &rows).await?;
    Ok(pipeline)
}

async fn append(pipeline: &Pipeline, place: &str, rows: &[Vec<String>]) -> Outcome {
    let schema = pipeline.lake.schema(place).await?;
    pipeline
        .lake
        .append(place, cells::batch(&row(&["d", "x"]), rows, &schema)?)
        .await
}

async fn expect_rows(pipeline: &Pipeline, expected: &[Vec<String>]) -> Outcome {
    let table = pipeline.lake.open(&target("t")).await?;
    let (types, found) = pipeline.lake.rows(&table, &row(&["d", "x"])).await?;
    let expected = expected
        .iter()
        .map(|r| cells::expected(r, &types))
        .collect::<Outcome<Vec<_>>>()?;
    cells::difference(&found, &expected).map_or(Ok(()), Err)
}

/// Two updates of one pipeline at once: each commits a whole window or nothing.
#[test]
fn two_updates_at_once() {
    on_s3(async |server| {
        let folder = tempfile::tempdir().map_err(words)?;
        let pipeline = pipeline(&server, folder.path()).await?;
        let window: Vec<Vec<String>> = (5..=9)
            .map(|d| row(&[&format!("2026-03-0{d}"), "1"]))
            .collect();
        for round in 0..4 {
            if round > 0 {
                append(
                    &pipeline,
                    &target("t"),
                    &[row(&["2026-01-01", "0"]), row(&["2026-03-06", "-1"])],
                )
                .await?;
            }
            let (one, other) = (
                pipeline.start("run", &[], &[])?,
                pipeline.start("run", &[], &[])?,
            );
            let (one, other) = tokio::join!(crate::program::end(one), crate::program::end(other));
            let ended = [one?, other?];
            if !ended.iter().any(|e| e.exit == Some(0)) {
                return Err(format!(
                    "round {round}: both failed\n{}\n{}",
                    ended[0].told(),
                    ended[1].told()
                ));
            }
            for failed in ended.iter().filter(|e| e.exit != Some(0)) {
                let report = failed.report()?;
                let code = report["error"]["code"].as_str().unwrap_or_default();
                if code != "CONCURRENT_UPDATE" {
                    return Err(format!(
                        "round {round}: not named as a concurrent update: {}",
                        failed.told()
                    ));
                }
            }
            let own = (0..round).map(|_| row(&["2026-01-01", "0"]));
            expect_rows(
                &pipeline,
                &window.iter().cloned().chain(own).collect::<Vec<_>>(),
            )
            .await
            .map_err(|e| format!("round {round}: {e}"))?;
        }
        let uris =
            [target("t"), format!("{STORAGE}/system/events")].map(|p| pipeline.lake.location(&p));
        let variables: Vec<_> = pipeline.lake.options.clone().into_iter().collect();
        python::check_tables(&uris, &["--foreign"], &variables)
    });
}

/// Ten foreign writers that commit all the time: their rows outside the window stay, each once, in
/// versions without a gap; the updates go through.
#[test]
fn foreign_writers_in_between() {
    const WRITERS: usize = 10;
    const APPENDS: usize = 6;
    on_s3(async |server| {
        let folder = tempfile::tempdir().map_err(words)?;
        let pipeline = pipeline(&server, folder.path()).await?;
        pipeline.call("run", &[]).await?.expect_exit(0)?;
        let write = async |writer: usize| {
            for index in 0..APPENDS {
                let number = (writer * APPENDS + index).to_string();
                let rows = [row(&["2026-01-01", &number])];
                // This writer gives up when files went meanwhile, or after many conflicts; its user tries again.
                while let Err(failure) = append(&pipeline, &target("t"), &rows).await {
                    let again = [
                        "concurrent transaction",
                        "Failed to commit transaction",
                        "Max",
                    ];
                    if !again.iter().any(|words| failure.contains(words)) {
                        return Err(failure);
                    }
                }
            }
            Ok(())
        };
        let running = async {
            for x in 2..=4 {
                append(&pipeline, "src/s", &[row(&["2026-03-09", &x.to_string()])]).await?;
                pipeline.call("run", &[]).await?.expect_exit(0)?;
            }
            Ok(())
        };
        let writing = futures::future::try_join_all((0..WRITERS).map(write));
        let (wrote, ran): (Outcome<Vec<()>>, Outcome) = tokio::join!(writing, running);
        wrote?;
        ran?;
        let mut expected: Vec<Vec<String>> = (5..=9)
            .map(|d| row(&[&format!("2026-03-0{d}"), "1"]))
            .collect();
        expected.extend((2..=4).map(|x| row(&["2026-03-09", &x.to_string()])));
        expected.extend((0..WRITERS * APPENDS).map(|i| row(&["2026-01-01", &i.to_string()])));
        expect_rows(&pipeline, &expected).await?;
        // The first run, three more, and each append: that many versions and no more.
        let versions = pipeline.lake.versions(&target("t")).await?;
        let newest = versions.get(&target("t")).copied().unwrap_or(0);
        let entries = pipeline
            .lake
            .objects(&format!("{}/_delta_log", target("t")))
            .await?;
        let entries = entries
            .keys()
            .filter(|path| path.ends_with(".json") && !path.contains("_staged"))
            .count();
        if (newest, entries) != (63, 64) {
            return Err(format!("version {newest} after {entries} log entries"));
        }
        Ok(())
    });
}

/// A store that replaces what is there although it was told not to can't keep two writers apart.
#[test]
fn a_store_without_conditional_puts() {
    on_s3(async |server| {
        let folder = tempfile::tempdir().map_err(words)?;
        let mut pipeline = pipeline(&server, folder.path()).await?;
        let proxy = Forgetful::start(&server)?;
        pipeline
            .lake
            .options
            .insert("AWS_ENDPOINT_URL".into(), proxy.0.endpoint.clone());
        let refused = pipeline.call("run", &[]).await?.expect_exit(2)?;
        let code = refused.report()?["error"]["code"].clone();
        if code != "STORE_WITHOUT_CONDITIONAL_PUT" {
            return Err(format!("not told: {}", refused.told()));
        }
        let tables = pipeline.lake.versions(STORAGE).await?;
        if !tables.is_empty() {
            return Err(format!("something was committed: {tables:?}"));
        }
        // This server lists the empty folder as an object of no bytes.
        let mut left = pipeline.lake.objects(STORAGE).await?;
        left.retain(|_, size| *size > 0);
        if !left.is_empty() {
            return Err(format!("something was left: {left:?}"));
        }
        Ok(())
    });
}

/// A way to the server on which `If-None-Match` is forgotten. Ended, by its id, when it is dropped.
struct Forgetful(Proxy);

impl Forgetful {
    fn start(server: &Server) -> Outcome<Self> {
        Proxy::start(server, "forgetful.py", &[]).map(Self)
    }
}

/// A way to the server on which a share of the requests goes wrong.
pub struct Faulty {
    _proxy: Proxy,
    pub endpoint: String,
}

impl Faulty {
    pub fn start(server: &Server, share: &str, seed: u64) -> Outcome<Self> {
        let arguments = ["--share", share, "--seed", &seed.to_string()];
        let proxy = Proxy::start(server, "faulty.py", &arguments)?;
        Ok(Self {
            endpoint: proxy.endpoint.clone(),
            _proxy: proxy,
        })
    }
}

/// A process between a client and the server. Ended, by its id, when it is dropped.
struct Proxy {
    process: std::process::Child,
    endpoint: String,
}

impl Proxy {
    fn start(server: &Server, script: &str, arguments: &[&str]) -> Outcome<Self> {
        use std::io::BufRead;
        let mut process = Command::new(python::interpreter()?)
            .arg(python::folder().join("s3").join(script))
            .args(arguments)
            .envs(&server.variables)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .map_err(words)?;
        let mut endpoint = String::new();
        if let Some(stdout) = process.stdout.take() {
            std::io::BufReader::new(stdout)
                .read_line(&mut endpoint)
                .map_err(words)?;
        }
        let endpoint = endpoint.trim().to_string();
        let proxy = Self { process, endpoint };
        if proxy.endpoint.is_empty() {
            return Err("the proxy did not start".into());
        }
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
