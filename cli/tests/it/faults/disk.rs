//! A disk that is full where an executor keeps what it shuffles and spills.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Executor, Machines, busy, left, until};
use crate::crash::{NOW, play, vacuumed};
use crate::program::Ended;
use crate::{Outcome, words};

/// With one task at a time nothing would be shuffled.
const TWO: [&str; 2] = ["--slots", "2"];

/// A file system of its own; gone when this is dropped.
struct Small {
    folder: PathBuf,
}

impl Small {
    /// `None` where this user may not mount one.
    fn mount(folder: &Path, size: &str) -> Outcome<Option<Self>> {
        std::fs::create_dir_all(folder).map_err(words)?;
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder)
            .output();
        Ok(mounted
            .is_ok_and(|done| done.status.success())
            .then(|| Self {
                folder: folder.to_path_buf(),
            }))
    }

    fn resize(&self, size: &str) -> Outcome {
        let options = format!("remount,size={size}");
        let done = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.folder)
            .status();
        match done.map_err(words)?.success() {
            true => Ok(()),
            false => Err("the small disk was not made larger".into()),
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

async fn run(machines: &Machines) -> Outcome<Ended> {
    let call = machines.scheduler.call(&machines.pipeline, "run", &NOW);
    call.await
}

/// The update failed for the disk, says whose, and left the table as it was.
async fn refused(machines: &Machines, ended: Ended, executor: &Executor) -> Outcome {
    let ended = ended.expect_exit(1)?;
    let report = ended.report()?;
    let error = &report["flows"][0]["error"];
    let message = error["message"].as_str().unwrap_or_default();
    let place = executor.address.to_string();
    if error["code"] != "DISK_FULL" || !message.contains(&place) || error["help"].is_null() {
        return Err(format!("the cause is not told: {}", ended.told()));
    }
    machines.expect(&machines.old).await
}

/// With room again, the same process computes the update; what failed tasks wrote has gone.
async fn recovered(machines: &Machines, executor: &mut Executor) -> Outcome {
    if let Some(exit) = executor.ended()? {
        return Err(format!(
            "the executor ended with {exit}: {}",
            executor.told()
        ));
    }
    let work = executor.work.clone();
    until(
        "the files of failed tasks go",
        async || Ok(left(&work) == 0),
    )
    .await?;
    run(machines).await?.expect_exit(0)?;
    machines.expect(&machines.new).await?;
    // What is shuffled is kept for half a minute after the end of a job, and no longer.
    until("the files of a job that is done go", async || {
        Ok(left(&work) == 0)
    })
    .await?;
    vacuumed(&machines.pipeline).await
}

#[test]
fn a_full_disk_is_told_and_changes_nothing() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let Some(disk) = Small::mount(&scratch.path().join("small"), "256k")? else {
            eprintln!("left out: this user may not mount a small disk");
            return Ok(());
        };
        let machines = Machines::start(scratch.path(), 30_000, &busy(), &[]).await?;
        let scheduler = &machines.scheduler.address;
        let mut small = machines.executor("small", scheduler, &TWO).await?;
        machines.wait_for(1).await?;
        refused(&machines, run(&machines).await?, &small).await?;
        // Beside one with room it may come out either way, but right.
        let roomy = machines.executor("roomy", scheduler, &TWO).await?;
        machines.wait_for(2).await?;
        let ended = run(&machines).await?;
        if ended.exit == Some(0) {
            machines.expect(&machines.new).await?;
        } else {
            refused(&machines, ended, &small).await?;
        }
        drop(roomy);
        machines.wait_for(1).await?;
        disk.resize("256m")?;
        recovered(&machines, &mut small).await
    });
}

/// The same where files may not grow, which needs no rights.
#[test]
fn a_file_that_may_not_grow_is_told_and_changes_nothing() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let machines = Machines::start(scratch.path(), 30_000, &busy(), &[]).await?;
        let scheduler = &machines.scheduler.address;
        let mut limited = machines.executor("limited", scheduler, &TWO).await?;
        machines.wait_for(1).await?;
        limit(&limited, "65536")?;
        refused(&machines, run(&machines).await?, &limited).await?;
        limit(&limited, "unlimited")?;
        recovered(&machines, &mut limited).await
    });
}

/// Sets how large files of a process may grow.
fn limit(executor: &Executor, bytes: &str) -> Outcome {
    let id = executor.child.id().ok_or("it has ended")?.to_string();
    let limit = format!("--fsize={bytes}:unlimited");
    let done = Command::new("prlimit")
        .args(["--pid", &id, &limit])
        .status()
        .map_err(|e| format!("prlimit: {e}"))?;
    match done.success() {
        true => Ok(()),
        false => Err("prlimit set no limit".into()),
    }
}
