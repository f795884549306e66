//! Figures of a process, as Prometheus reads them: counters that live as long as it does, and the text.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// Text in the format of Prometheus, metric by metric.
#[derive(Debug, Default)]
pub struct Figures(String);

impl Figures {
    /// A number that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help, [(String::new(), value)]);
    }

    /// A number that stands for now.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help, [(String::new(), value)]);
    }

    /// One number for each value of a label.
    pub fn by(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        let values = values.into_iter();
        self.family(
            name,
            kind,
            help,
            values.map(|(of, value)| (format!("{{{label}=\"{of}\"}}"), value)),
        );
    }

    /// The same for labels that are written already.
    pub fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    pub fn text(self) -> String {
        self.0
    }
}
