//! What a flow's past runs tell of its estimates.
//!
//! Estimates come from the logs: they count whole files, where a query may read few of their columns,
//! and take it that what is written is as large as what it replaces. The flow state keeps what the
//! last runs of each technique were estimated to read and write and what they did. From that comes a
//! factor for each technique, damped as long as there are few runs and bounded always. It weighs
//! techniques that apply; whether one applies is not asked here. Only bytes count: a choice that hangs
//! on times would be another one on each day.

use windrow_delta::state::{FlowState, PastRun};
use windrow_flows::refresh::Technique;

/// Runs of one technique that are remembered.
const KEPT_OF_EACH: usize = 4;
/// A run of fewer bytes tells nothing of larger ones: most of what it reads and writes are the ends of files.
const LEAST: u64 = 1 << 20;
/// How far the bytes of past runs may move an estimate, either way.
const FURTHEST: f64 = 8.0;

/// Bytes that a technique reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub read: u64,
    pub written: u64,
}

impl Cost {
    pub fn total(self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// The past runs of a flow, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    runs: Vec<PastRun>,
}

impl Learned {
    /// What a flow state knows of the query with this fingerprint; runs of another query tell nothing.
    pub fn of(state: Option<&FlowState>, fingerprint: &str) -> Self {
        let same = |s: &&FlowState| {
            let defined = s.defined.as_ref();
            defined.is_some_and(|d| d.fingerprint == fingerprint)
        };
        Self {
            runs: state
                .filter(same)
                .map(|s| s.runs.clone())
                .unwrap_or_default(),
        }
    }

    /// The estimate as past runs correct it, and by how many of them; `None` when they say nothing.
    pub fn corrected(&self, technique: Technique, estimated: Cost) -> Option<(Cost, usize)> {
        let reads: Vec<Pair> = self.runs.iter().filter_map(Pair::read).collect();
        let own: Vec<Pair> = self
            .of_technique(technique)
            .filter_map(Pair::read)
            .collect();
        let written: Vec<Pair> = self
            .of_technique(technique)
            .filter_map(Pair::written)
            .collect();
        let used = reads.len().max(written.len());
        if used == 0 {
            return None;
        }
        // How much of its files a query reads hangs on the query first, so all runs tell of it. What
        // is written beside what it replaces is the technique's own affair.
        let all = ratio(&reads);
        let read = (weighed(ratio(&own), own.len()) + weight_of_rest(own.len()) * all)
            * share(reads.len());
        let written = weighed(ratio(&written), written.len());
        let times = |bytes: u64, log: f64| (bytes as f64 * log.exp()).round() as u64;
        Some((
            Cost {
                read: times(estimated.read, read),
                written: times(estimated.written, written),
            },
            used,
        ))
    }

    /// The record with one more run, without those that are too old.
    pub fn with(mut self, run: PastRun) -> Vec<PastRun> {
        self.runs.push(run);
        let mut seen: Vec<(String, usize)> = Vec::new();
        let mut kept: Vec<PastRun> = Vec::with_capacity(self.runs.len());
        for run in self.runs.into_iter().rev() {
            let place = seen.iter().position(|(t, _)| *t == run.technique);
            let place = place.unwrap_or_else(|| {
                seen.push((run.technique.clone(), 0));
                seen.len() - 1
            });
            seen[place].1 += 1;
            if seen[place].1 <= KEPT_OF_EACH {
                kept.push(run);
            }
        }
        kept.reverse();
        kept
    }

    fn of_technique(&self, technique: Technique) -> impl Iterator<Item = &PastRun> {
        self.runs
            .iter()
            .filter(move |r| r.technique == technique.word())
    }
}

/// An estimate of bytes and what came of it.
struct Pair {
    estimated: u64,
    real: u64,
}

impl Pair {
    fn tells(&self) -> bool {
        self.estimated > 0 && self.estimated.max(self.real) >= LEAST
    }

    fn read(run: &PastRun) -> Option<Self> {
        let pair = Self {
            estimated: run.estimated_read,
            real: run.read?,
        };
        pair.tells().then_some(pair)
    }

    fn written(run: &PastRun) -> Option<Self> {
        let pair = Self {
            estimated: run.estimated_written,
            real: run.written,
        };
        pair.tells().then_some(pair)
    }
}

/// The logarithm of real to estimated bytes over some runs, within bounds; none say nothing.
fn ratio(pairs: &[Pair]) -> f64 {
    let sum = |of: fn(&Pair) -> u64| pairs.iter().map(|p| of(p) as f64).sum::<f64>();
    let (estimated, real) = (sum(|p| p.estimated), sum(|p| p.real));
    if estimated <= 0.0 {
        return 0.0;
    }
    (real / estimated).clamp(1.0 / FURTHEST, FURTHEST).ln()
}

/// How much is believed of what so many runs say.
fn share(runs: usize) -> f64 {
    runs as f64 / (runs as f64 + 1.0)
}

fn weighed(log: f64, runs: usize) -> f64 {
    log * share(runs)
}

fn weight_of_rest(runs: usize) -> f64 {
    1.0 - share(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of so many MiB.
    fn run(technique: Technique, estimated: (u64, u64), real: (u64, u64)) -> PastRun {
        PastRun {
            technique: technique.word().into(),
            estimated_read: estimated.0 << 20,
            estimated_written: estimated.1 << 20,
            read: Some(real.0 << 20),
            written: real.1 << 20,
            duration_ms: 1,
        }
    }

    fn cost(read: u64, written: u64) -> Cost {
        Cost { read, written }
    }

    #[test]
    fn without_runs_an_estimate_stands() {
        let learned = Learned::default();
        assert_eq!(learned.corrected(Technique::RowBased, cost(100, 100)), None);
        // Nor does a run that was estimated to do nothing tell anything.
        let nothing = run(Technique::RowBased, (0, 0), (50, 50));
        // And a small one tells of its overhead.
        let small = PastRun {
            estimated_read: 20_000,
            estimated_written: 20_000,
            read: Some(50_000),
            written: 50_000,
            ..nothing.clone()
        };
        let runs = vec![nothing, small];
        let learned = Learned { runs };
        assert_eq!(learned.corrected(Technique::RowBased, cost(100, 100)), None);
    }

    #[test]
    fn few_runs_move_it_less_than_many_and_none_beyond_the_bounds() {
        let of = |n: usize, real: u64| {
            let runs = vec![run(Technique::RowBased, (100, 100), (100, real)); n];
            let learned = Learned { runs };
            let (corrected, used) = learned
                .corrected(Technique::RowBased, cost(1_000, 1_000))
                .unwrap();
            assert_eq!((corrected.read, used), (1_000, n));
            corrected.written
        };
        assert_eq!(of(1, 400), 2_000);
        assert!(of(3, 400) > of(1, 400) && of(3, 400) < 4_000);
        assert!(of(100, 1_000_000) < 8_000);
        assert!(of(100, 0) > 125);
    }

    #[test]
    fn how_much_is_read_is_learned_for_techniques_that_never_ran_too() {
        let runs = vec![run(Technique::CompleteRecompute, (100, 100), (25, 800))];
        let learned = Learned { runs };
        let never = learned.corrected(Technique::RowBased, cost(1_000, 1_000));
        assert_eq!(never, Some((cost(500, 1_000), 1)));
        // Where all tell the same, having run makes no difference.
        let (ran, _) = learned
            .corrected(Technique::CompleteRecompute, cost(1_000, 1_000))
            .unwrap();
        assert_eq!(ran.read, 500);
    }

    #[test]
    fn the_last_runs_of_each_technique_are_kept() {
        let mut learned = Learned::default();
        for i in 0..20 {
            let technique = match i % 2 {
                0 => Technique::RowBased,
                _ => Technique::PartitionOverwrite,
            };
            let runs = learned.with(run(technique, (i, i), (i, i)));
            learned = Learned { runs };
        }
        let kept: Vec<u64> = learned
            .runs
            .iter()
            .map(|r| r.estimated_read >> 20)
            .collect();
        assert_eq!(kept, [12, 13, 14, 15, 16, 17, 18, 19]);
    }
}
