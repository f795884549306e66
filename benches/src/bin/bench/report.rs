//! What a measurement came to: a table for people, JSON for machines.

use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::{Sample, median};

/// Bytes in one MiB.
const MIB: f64 = 1_048_576.0;

/// The bound that the project sets itself for a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target {
    /// Times the baseline's wall time.
    pub ratio: Option<f64>,
    pub wall: Option<Duration>,
    /// Above the baseline's wall time.
    pub extra_wall: Option<Duration>,
    /// Bytes above the baseline's peak.
    pub extra_peak: Option<u64>,
    pub peak: Option<u64>,
    /// Times the bytes that the baseline reads.
    pub bytes_ratio: Option<f64>,
    /// Files that may go from the target.
    pub files_removed: Option<u64>,
}

/// Windrow and its baseline, run in turn.
pub struct Measurement {
    pub name: String,
    /// What the baseline does.
    pub against: &'static str,
    pub windrow: Vec<Sample>,
    /// Empty where there is nothing to compare with.
    pub baseline: Vec<Sample>,
    pub target: Target,
    /// Bounds that are special to the measurement, in words, with whether they are kept.
    pub more: Vec<(String, bool)>,
}

struct Figures {
    wall: Duration,
    fastest: Duration,
    slowest: Duration,
    peak: u64,
}

fn figures(samples: &[Sample]) -> Figures {
    let walls = || samples.iter().map(|s| s.wall);
    Figures {
        wall: median(walls()).unwrap_or_default(),
        fastest: walls().min().unwrap_or_default(),
        slowest: walls().max().unwrap_or_default(),
        peak: median(samples.iter().map(|s| s.peak_bytes)).unwrap_or_default(),
    }
}

impl Measurement {
    /// Not a number where there is no baseline.
    fn ratio(&self) -> f64 {
        let (windrow, baseline) = (figures(&self.windrow), figures(&self.baseline));
        match self.baseline.is_empty() {
            true => f64::NAN,
            false => windrow.wall.as_secs_f64() / baseline.wall.as_secs_f64(),
        }
    }

    /// Each bound with whether it is kept.
    fn bounds(&self) -> Vec<(String, bool)> {
        let (windrow, baseline) = (figures(&self.windrow), figures(&self.baseline));
        let mut bounds = self.more.clone();
        if let Some(most) = self.target.ratio {
            let digits = if most < 1.0 { 3 } else { 1 };
            bounds.push((format!("{most:.digits$}x"), self.ratio() <= most));
        }
        if let Some(most) = self.target.wall {
            bounds.push((format!("{} ms", most.as_millis()), windrow.wall <= most));
        }
        if let Some(most) = self.target.extra_wall {
            let kept = windrow.wall <= baseline.wall + most;
            bounds.push((format!("+{} ms", most.as_millis()), kept));
        }
        if let Some(most) = self.target.extra_peak {
            let kept = windrow.peak <= baseline.peak + most;
            bounds.push((format!("+{:.0} MiB", most as f64 / MIB), kept));
        }
        if let Some(most) = self.target.peak {
            bounds.push((
                format!("{:.0} MiB", most as f64 / MIB),
                windrow.peak <= most,
            ));
        }
        let (ours, theirs) = (&self.windrow, &self.baseline);
        if let Some(most) = self.target.bytes_ratio {
            let (read, all) = (
                middle(ours, |s| s.bytes_read),
                middle(theirs, |s| s.bytes_read),
            );
            let share = read as f64 / all.max(1) as f64;
            bounds.push((
                format!("{:.1} of {:.0} % of the bytes", share * 100.0, most * 100.0),
                share <= most,
            ));
        }
        if let Some(most) = self.target.files_removed {
            let gone = middle(ours, |s| s.files_removed);
            bounds.push((format!("{gone} of {most} files rewritten"), gone <= most));
        }
        bounds
    }

    fn to_json(&self) -> Value {
        let side = |samples: &[Sample]| {
            let figures = figures(samples);
            json!({"wall_ms": ms(figures.wall), "fastest_ms": ms(figures.fastest),
                "slowest_ms": ms(figures.slowest), "peak_bytes": figures.peak})
        };
        let bounds: Vec<Value> = self
            .bounds()
            .into_iter()
            .map(|(bound, kept)| json!({"bound": bound, "kept": kept}))
            .collect();
        json!({"name": self.name, "against": self.against, "repeats": self.windrow.len(),
            "windrow": side(&self.windrow), "baseline": side(&self.baseline),
            "ratio": (self.ratio() * 1000.0).round() / 1000.0, "targets": bounds})
    }
}

fn middle(samples: &[Sample], figure: impl Fn(&Sample) -> Option<u64>) -> u64 {
    median(samples.iter().filter_map(figure)).unwrap_or(u64::MAX)
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// The table of all measurements.
pub fn table(measurements: &[Measurement]) -> String {
    let mut text = format!(
        "{:<22} {:>22} {:>22} {:>6} {:>9} {:>9}  {}\n",
        "", "windrow ms (range)", "baseline ms (range)", "ratio", "peak MiB", "baseline", "targets"
    );
    for measurement in measurements {
        let wall = |samples: &[Sample]| {
            let f = figures(samples);
            format!(
                "{:.0} ({:.0}-{:.0})",
                ms(f.wall),
                ms(f.fastest),
                ms(f.slowest)
            )
        };
        let peak = |samples: &[Sample]| figures(samples).peak as f64 / MIB;
        let bounds: Vec<String> = measurement
            .bounds()
            .into_iter()
            .map(|(bound, kept)| format!("{bound} {}", if kept { "kept" } else { "MISSED" }))
            .collect();
        text.push_str(&format!(
            "{:<22} {:>22} {:>22} {:>6.2} {:>9.0} {:>9.0}  {}\n",
            measurement.name,
            wall(&measurement.windrow),
            wall(&measurement.baseline),
            measurement.ratio(),
            peak(&measurement.windrow),
            peak(&measurement.baseline),
            bounds.join(", "),
        ));
    }
    text
}

/// All measurements as one JSON object.
pub fn to_json(measurements: &[Measurement]) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({"cores": cores, "measurements":
        measurements.iter().map(Measurement::to_json).collect::<Vec<_>>()})
}
