//! A network that is cut between the scheduler and one executor, for longer than the scheduler waits
//! and for shorter. Neither side closes a connection: what is sent does not arrive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Executor, Machines, RUNNING, Running, SUCCEEDED, UPDATES, busy, until};
use crate::crash::{NOW, play, vacuumed};
use crate::{Outcome, words};

/// A way to an address that can be cut.
struct Wire {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    carried: Arc<AtomicU64>,
}

impl Wire {
    /// Listens at `at` and passes on to `target`.
    async fn new(at: SocketAddr, target: SocketAddr) -> Outcome<Self> {
        let listener = TcpListener::bind(at).await.map_err(words)?;
        let address = listener.local_addr().map_err(words)?;
        let (is_cut, state) = watch::channel(false);
        let carried = Arc::new(AtomicU64::new(0));
        let count = carried.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (state, count) = (state.clone(), count.clone());
                tokio::spawn(async move {
                    if whole(&mut state.clone()).await.is_none() {
                        return;
                    }
                    let Ok(far) = TcpStream::connect(target).await else {
                        return;
                    };
                    let ((from_near, to_near), (from_far, to_far)) =
                        (near.into_split(), far.into_split());
                    let there = carry(from_near, to_far, state.clone(), count.clone());
                    let back = carry(from_far, to_near, state, count);
                    tokio::join!(there, back);
                });
            }
        });
        Ok(Self {
            address,
            is_cut,
            carried,
        })
    }

    fn cut(&self, is_cut: bool) {
        let _ = self.is_cut.send(is_cut);
    }
}

/// Waits until the wire is whole; `None` when the test is over.
async fn whole(state: &mut watch::Receiver<bool>) -> Option<()> {
    state.wait_for(|is_cut| !is_cut).await.ok().map(|_| ())
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut state: watch::Receiver<bool>,
    count: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if whole(&mut state).await.is_none() {
            return;
        }
        let Ok(bytes) = from.read(&mut buffer).await else {
            return;
        };
        // What was on the wire when it was cut arrives when it is mended, as what is sent again does.
        if whole(&mut state).await.is_none() || bytes == 0 {
            return;
        }
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Two executors, of which one is reached, and reaches the scheduler, over wires.
struct Cut {
    machines: Machines,
    far: Executor,
    near: Executor,
    wires: [Wire; 2],
}

impl Cut {
    async fn prepare(folder: &std::path::Path) -> Outcome<Self> {
        // The scheduler itself asks for six seconds at least.
        let options = ["--executor-timeout-seconds", "6"];
        let machines = Machines::start(folder, 30_000, &busy(), &options).await?;
        let scheduler: SocketAddr = machines.scheduler.address.parse().map_err(words)?;
        let out = Wire::new(([127, 0, 0, 1], 0).into(), scheduler).await?;
        // Under another address of this machine, at the same port: that is where others fetch from it.
        let more = ["--advertise", "127.0.0.2"];
        let far = machines
            .executor("far", &out.address.to_string(), &more)
            .await?;
        let into = Wire::new(([127, 0, 0, 2], far.address.port()).into(), far.address).await?;
        let near = machines
            .executor("near", &machines.scheduler.address, &[])
            .await?;
        machines.wait_for(2).await?;
        Ok(Self {
            machines,
            far,
            near,
            wires: [out, into],
        })
    }

    fn cut(&self, is_cut: bool) {
        for wire in &self.wires {
            wire.cut(is_cut);
        }
    }

    /// An update during which the wires are cut as soon as the far executor works, and whole again
    /// after `time`. Gives whether the cut came while it worked.
    async fn update(&self, number: usize, time: Duration) -> Outcome<bool> {
        let running = Running::begin(&self.machines, number)?;
        let is_hit = running.until_grown(&self.far, RUNNING, 0).await?;
        if is_hit {
            self.cut(true);
            tokio::time::sleep(time).await;
            self.cut(false);
        }
        running.end().await?.expect_exit(0)?;
        Ok(is_hit)
    }
}

/// Updates until three were hit: by a cut of `seconds`, one that is over before it is noticed, and
/// once more the first.
fn cut_for(seconds: u64) {
    play(async move {
        let scratch = tempfile::tempdir().map_err(words)?;
        let mut cut = Cut::prepare(scratch.path()).await?;
        let expected = cut.machines.undisturbed().await?;
        let mut hits = 0;
        let long = Duration::from_secs(seconds);
        let times = [long, Duration::from_secs(2), long];
        for number in 0..UPDATES {
            if hits == times.len() {
                break;
            }
            hits += usize::from(cut.update(number, times[hits]).await?);
            cut.machines.check(number, &expected).await?;
            // It is taken back, whatever was taken for lost.
            cut.machines.wait_for(2).await?;
            if cut.far.ended()?.is_some() || cut.near.ended()?.is_some() {
                return Err(format!(
                    "an executor gave up: {}{}",
                    cut.far.told(),
                    cut.near.told()
                ));
            }
        }
        if hits < times.len() {
            return Err(format!(
                "{UPDATES} updates were over before {} were hit",
                times.len()
            ));
        }
        if cut.machines.figure("windrow_retried_slices_total").await? == 0 {
            return Err("no work was begun anew: the cuts were not noticed".into());
        }
        // The far one is of use again: alone, it computes a whole update.
        let before = cut.far.figure(SUCCEEDED).await?;
        cut.near.child.kill().await.map_err(words)?;
        cut.machines.wait_for(1).await?;
        let call = cut
            .machines
            .scheduler
            .call(&cut.machines.pipeline, "run", &NOW);
        call.await?.expect_exit(0)?;
        cut.machines.expect(&cut.machines.new).await?;
        let after = cut.far.figure(SUCCEEDED).await?;
        if after == before || cut.wires[0].carried.load(Ordering::Relaxed) == 0 {
            return Err("the far executor computed nothing".into());
        }
        vacuumed(&cut.machines.pipeline).await
    });
}

#[test]
fn an_executor_that_is_cut_off_costs_time_and_no_rows() {
    cut_for(9);
}

/// As long as cuts are in the field; `WINDROW_TEST_LONG_CUT` asks for it.
#[test]
fn an_executor_that_is_cut_off_for_a_minute() {
    if std::env::var_os("WINDROW_TEST_LONG_CUT").is_none() {
        eprintln!("left out: it takes minutes; set WINDROW_TEST_LONG_CUT=1 to run it");
        return;
    }
    cut_for(60);
}

/// All executors out of reach: the update fails in its time, and changes nothing.
#[test]
fn a_cluster_that_is_cut_off_whole_fails_the_update() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let options = [
            "--executor-timeout-seconds",
            "6",
            "--no-executor-seconds",
            "6",
        ];
        let machines = Machines::start(scratch.path(), 30_000, &busy(), &options).await?;
        let scheduler: SocketAddr = machines.scheduler.address.parse().map_err(words)?;
        let wire = Wire::new(([127, 0, 0, 1], 0).into(), scheduler).await?;
        let far = machines
            .executor("far", &wire.address.to_string(), &[])
            .await?;
        machines.wait_for(1).await?;
        wire.cut(true);
        let call = machines.scheduler.call(&machines.pipeline, "run", &NOW);
        let failed = call.await?.expect_exit(1)?;
        let code = failed.report()?["flows"][0]["error"]["code"].clone();
        if code != "NO_EXECUTOR" && code != "TASKS_FAILED" {
            return Err(failed.told());
        }
        machines.expect(&machines.old).await?;
        wire.cut(false);
        until("the executor is back", async || {
            Ok(machines.figure("windrow_executors").await? == 1)
        })
        .await
        .map_err(|e| format!("{e}: {}", far.told()))?;
        let call = machines.scheduler.call(&machines.pipeline, "run", &NOW);
        call.await?.expect_exit(0)?;
        machines.expect(&machines.new).await
    });
}
