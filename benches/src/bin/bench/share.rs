//! Holds a process to a share of one core, by the control groups of Linux. Where a machine has fewer
//! cores than a cluster has processes, executors that may take all of it tell of the machine alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cases::Outcome;

/// Microseconds over which the kernel shares out.
const PERIOD: u64 = 20_000;

/// A control group, which ends with this value. Its process must have ended before.
pub struct Share(PathBuf);

impl Drop for Share {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

impl Share {
    /// Holds the process `pid` to `share` of a core.
    pub fn hold(pid: u32, share: f64) -> Outcome<Self> {
        let quota = (PERIOD as f64 * share) as u64;
        let (first, second) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let (root, limits) = match first.exists() {
            true => (
                first,
                vec![
                    ("cpu.cfs_period_us", PERIOD.to_string()),
                    ("cpu.cfs_quota_us", quota.to_string()),
                ],
            ),
            false => (second, vec![("cpu.max", format!("{quota} {PERIOD}"))]),
        };
        let group = root.join(format!("windrow-bench-{pid}"));
        let said = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| {
                format!("no share of a core can be set ({path}: {error}); leave out --share")
            }
        };
        fs::create_dir(&group).map_err(said(&group))?;
        let held = Self(group);
        let last = [("cgroup.procs", pid.to_string())];
        for (file, text) in limits.into_iter().chain(last) {
            let path = held.0.join(file);
            fs::write(&path, text).map_err(said(&path))?;
        }
        Ok(held)
    }
}
