//! The promise of incremental refresh, for tables, histories, queries, predicates and clocks that
//! chance makes: after each update every target holds
//!
//! the rows of before outside the window + the rows that the query gives when its window is computed
//! from nothing,
//!
//! as multisets. The right-hand side comes from another storage that is empty before each update.
//!
//! `WINDROW_HISTORIES` sets how many histories are played, `WINDROW_HISTORY_FLOWS` how many of the eight
//! flows that each one has (more where one reads another's target), `WINDROW_HISTORY_SEED` where their
//! seeds begin: `WINDROW_HISTORIES=1 WINDROW_HISTORY_SEED=17 WINDROW_HISTORY_FLOWS=8` plays the whole
//! history of seed 17. `WINDROW_HISTORY_TELL=1` tells what was refused and passed over. A failure is
//! cut down before it is told, as a scenario.

mod chance;
mod history;
mod play;
mod predicate;
mod query;
mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use windrow_flows::refresh::Technique;

use history::{History, Special};
use play::{Failure, Seen, play};

use crate::inside;

/// Histories that are played at the same time.
const SIDE_BY_SIDE: usize = 2;
/// Histories of a run without settings.
const HISTORIES: u64 = 500;
/// Flows of each that are played in a run without settings.
const FLOWS: u64 = 1;
/// Each technique must have been reached when so many flows were refreshed.
const FLOWS_FOR_ALL: usize = 1_000;
/// Failures that are cut down; of others only the seed is told.
const CUT_DOWN: usize = 3;
const CUT_DOWN_TIME: Duration = Duration::from_secs(90);

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|t| t.parse().ok()).unwrap_or(default)
}

/// A way to make a history smaller, where there is something to leave out.
type Cut = Box<dyn Fn(&History) -> Option<History> + Send>;

/// Leaves out what the failure does not need.
async fn cut_down(history: History, failure: Failure) -> (History, Failure) {
    let started = Instant::now();
    let (mut best, mut told) = (history, failure);
    let mut tries: Vec<Cut> = Vec::new();
    let flow = told.flow;
    // A failure of the whole update stays the same one as long as it says the same.
    let gist = |failure: &Failure| match failure.flow {
        Some(_) => String::new(),
        None => failure.text.chars().take(40).collect(),
    };
    let told_first = gist(&told);
    tries.push(Box::new(move |h: &History| {
        let mut less = h.clone();
        for (i, f) in less.flows.iter_mut().enumerate() {
            f.active = Some(i) == flow;
        }
        Some(less)
    }));
    for out in 0..best.flows.len() {
        tries.push(Box::new(move |h: &History| {
            let mut less = h.clone();
            less.flows[out].active = false;
            less.flows.iter().any(|f| f.active).then_some(less)
        }));
    }
    let last = told.step;
    tries.push(Box::new(move |h: &History| {
        let mut less = h.clone();
        less.steps.truncate(last + 1);
        Some(less)
    }));
    for step in 0..=last {
        tries.push(Box::new(move |h: &History| {
            let mut less = h.clone();
            less.steps.get_mut(step)?.special = Special::Nothing;
            Some(less)
        }));
        for event in (0..4).rev() {
            tries.push(Box::new(move |h: &History| {
                let mut less = h.clone();
                let events = &mut less.steps.get_mut(step)?.events;
                if event >= events.len() {
                    return None;
                }
                events.remove(event);
                Some(less)
            }));
        }
    }
    for step in (1..last).rev() {
        tries.push(Box::new(move |h: &History| {
            let mut less = h.clone();
            if step + 1 >= less.steps.len() {
                return None;
            }
            let gone = less.steps.remove(step);
            let next = less.steps.get_mut(step)?;
            next.hours += gone.hours;
            let mut events = gone.events;
            events.append(&mut next.events);
            next.events = events;
            Some(less)
        }));
    }
    for source in 0..3 {
        for file in (0..4).rev() {
            for row in (0..8).rev() {
                tries.push(Box::new(move |h: &History| {
                    let mut less = h.clone();
                    let files = &mut less.sources.get_mut(source)?.files;
                    let rows = files.get_mut(file)?;
                    if row >= rows.len() {
                        return None;
                    }
                    rows.remove(row);
                    if rows.is_empty() {
                        files.remove(file);
                    }
                    Some(less)
                }));
            }
        }
    }
    for attempt in tries {
        if started.elapsed() > CUT_DOWN_TIME {
            break;
        }
        let Some(less) = attempt(&best) else { continue };
        if let (_, Err(failure)) = play(&less).await
            && failure.flow == flow
            && gist(&failure) == told_first
        {
            (best, told) = (less, failure);
        }
    }
    (best, told)
}

fn description(history: &History, failure: &Failure) -> String {
    let flow = match failure.flow {
        Some(flow) => format!("f{flow}"),
        None => "the update".into(),
    };
    format!(
        "seed {}: after run {} {flow}: {}\n{}",
        history.seed,
        failure.step + 1,
        failure.text,
        history.told(failure.step)
    )
}

#[test]
fn incremental_equals_full() {
    let first = setting("WINDROW_HISTORY_SEED", 1);
    let count = setting("WINDROW_HISTORIES", HISTORIES);
    let flows = setting("WINDROW_HISTORY_FLOWS", FLOWS);
    let next = Arc::new(AtomicU64::new(first));
    let all: Vec<_> = (0..SIDE_BY_SIDE)
        .map(|_| {
            let next = next.clone();
            inside::run(move || async move {
                let (mut seen, mut failures) = (Seen::default(), Vec::new());
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return (seen, failures);
                    }
                    let history = History::new(seed).with_flows(flows as usize);
                    let (one, result) = play(&history).await;
                    seen.add(one);
                    if let Err(failure) = result {
                        let text: String = failure.text.chars().take(300).collect();
                        eprintln!("seed {seed} failed: {text}");
                        failures.push((history, failure));
                    }
                }
            })
        })
        .collect();
    let (mut seen, mut failures) = (Seen::default(), Vec::new());
    for played in all {
        match played.join() {
            Ok((one, more)) => {
                seen.add(one);
                failures.extend(more);
            }
            Err(panicked) => std::panic::resume_unwind(panicked),
        }
    }
    failures.sort_by_key(|(h, _)| h.seed);
    let failures: Vec<String> = failures
        .into_iter()
        .enumerate()
        .map(|(number, (history, failure))| {
            if number >= CUT_DOWN {
                let text: String = failure.text.chars().take(300).collect();
                return format!("seed {}: {text}", history.seed);
            }
            let smaller = inside::run(move || cut_down(history, failure));
            match smaller.join() {
                Ok((history, failure)) => description(&history, &failure),
                Err(panicked) => std::panic::resume_unwind(panicked),
            }
        })
        .collect();
    eprintln!("{count} histories from seed {first} with {flows} flows each: {seen:#?}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    if seen.flows >= FLOWS_FOR_ALL {
        assert!(seen.by_change_data > 0, "change data were never read");
        for technique in Technique::ALL {
            let word = technique.word();
            assert!(
                seen.techniques.contains_key(word),
                "{word} was never reached"
            );
        }
    }
}
