//! A history: sources, flows over them, and what happens, all of it plain data, so that it can be
//! told as text and cut down when it fails.

use windrow_flows::refresh::Technique;

use super::chance::Chance;
use super::predicate::Predicate;
use super::query::{Maker, Rel};
use super::tables::{Col, Event, Source, Type};

#[derive(Debug, Clone)]
pub struct Flow {
    pub query: String,
    pub cols: Vec<Col>,
    /// `None` for a materialized view.
    pub predicate: Option<Predicate>,
    pub partitioned_by: Option<String>,
    /// 1 for a flow that reads targets of other flows.
    pub level: usize,
    /// Left out of a history that is cut down.
    pub active: bool,
}

/// What is special about an update.
#[derive(Debug, Clone)]
pub enum Special {
    Nothing,
    Override(usize, Predicate),
    Only(Vec<usize>),
    Full(usize),
    /// The flow's query gets another filter.
    Filter(usize, String),
}

#[derive(Debug, Clone)]
pub struct Step {
    /// By how much the clock moves before the update.
    pub hours: i64,
    pub events: Vec<Event>,
    pub special: Special,
}

#[derive(Debug, Clone)]
pub struct History {
    pub seed: u64,
    pub sources: Vec<Source>,
    pub flows: Vec<Flow>,
    pub steps: Vec<Step>,
    /// Bytes of the targets' files.
    pub file_size: &'static str,
    /// The only technique that is taken where it applies, or empty.
    pub technique: &'static str,
}

const FLOWS: usize = 8;

impl History {
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let key = chance.pick(&[Type::Int, Type::Long, Type::Text, Type::Int]);
        let mut sources: Vec<Source> = (0..chance.pick(&[1, 2, 2, 2, 3]))
            .map(|i| Source::new(&mut chance, i, key))
            .collect();
        let mut tables: Vec<Rel> = sources
            .iter()
            .map(|s| Rel::table(&s.name, &s.cols))
            .collect();
        let mut flows: Vec<Flow> = Vec::new();
        for index in 0..FLOWS {
            // The last flows may read the targets of the first ones.
            let level = usize::from(index >= FLOWS - 2);
            if index == FLOWS - 2 {
                let made: Vec<Rel> = flows
                    .iter()
                    .enumerate()
                    .map(|(i, f)| Rel::table(&format!("f{i}"), &f.cols))
                    .collect();
                tables.extend(made);
            }
            flows.push(flow(&mut chance.branch(), &tables, level));
        }
        let mut history = Self {
            seed,
            file_size: chance.pick(&["128m", "1k", "3k"]),
            technique: "",
            sources: sources.clone(),
            flows,
            steps: Vec::new(),
        };
        let mut chance = chance.branch();
        for number in 0..chance.between(6, 9) {
            let step = history.step(&mut chance, &mut sources, number);
            history.steps.push(step);
        }
        if chance.of_hundred(40) {
            let all: Vec<&str> = Technique::ALL.iter().map(|t| t.word()).collect();
            history.technique = chance.pick(&all[1..all.len() - 1]);
        }
        history
    }

    /// The same history with only so many of its flows, other ones for each seed, and those whose
    /// targets they read.
    pub fn with_flows(mut self, count: usize) -> Self {
        let all = self.flows.len();
        let mut kept: Vec<usize> = (0..count.min(all))
            .map(|i| (self.seed as usize + i) % all)
            .collect();
        for index in kept.clone() {
            let query = &self.flows[index].query;
            let words: Vec<&str> = query.split(|c: char| !c.is_alphanumeric()).collect();
            let read = (0..all).filter(|i| words.contains(&format!("f{i}").as_str()));
            kept.extend(read.filter(|i| self.flows[*i].level < self.flows[index].level));
        }
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.active = kept.contains(&index);
        }
        self
    }

    fn step(&self, chance: &mut Chance, sources: &mut [Source], number: usize) -> Step {
        let mut events = Vec::new();
        let mut special = Special::Nothing;
        if number > 0 {
            for _ in 0..chance.pick(&[0, 1, 1, 1, 1, 2, 2, 3, 4]) {
                let at = chance.below(sources.len());
                events.push(Event::on_source(chance, at, &mut sources[at]));
            }
            if chance.of_hundred(20) {
                let at = chance.below(self.flows.len());
                events.push(Event::on_target(chance, at, &self.flows[at].cols));
            }
            let flow = chance.below(self.flows.len());
            special = match chance.below(14) {
                0 | 1 => match self.flows[flow].predicate {
                    Some(_) => Predicate::new(chance, &self.flows[flow].cols)
                        .map_or(Special::Nothing, |p| Special::Override(flow, p)),
                    None => Special::Nothing,
                },
                2 => {
                    let all: Vec<usize> = (0..self.flows.len()).collect();
                    Special::Only(chance.some(&all, 5))
                }
                3 if chance.of_hundred(50) => Special::Full(flow),
                4 if chance.of_hundred(50) => {
                    let col = chance.pick(&self.flows[flow].cols);
                    Special::Filter(flow, format!("{} IS NOT NULL", col.name))
                }
                _ => Special::Nothing,
            };
        }
        Step {
            hours: chance.pick(&[0, 0, 0, 1, 24, 24, 24, 49, -24]),
            events,
            special,
        }
    }

    /// The definition of a flow, with the filters that it got.
    pub fn sql(&self, index: usize, filters: &[(usize, String)]) -> String {
        let flow = &self.flows[index];
        let mut query = flow.query.clone();
        for (_, filter) in filters.iter().filter(|(i, _)| *i == index) {
            query = format!("SELECT * FROM ({query}) AS narrowed WHERE {filter}");
        }
        let partitions = match &flow.partitioned_by {
            Some(column) => format!(" PARTITIONED BY ({column})"),
            None => String::new(),
        };
        match &flow.predicate {
            Some(predicate) => format!(
                "CREATE OR REFRESH STREAMING TABLE f{index}{partitions} FLOW REPLACE WHERE {} BY NAME {query};\n",
                predicate.sql()
            ),
            None => {
                format!("CREATE OR REFRESH MATERIALIZED VIEW f{index}{partitions} AS {query};\n")
            }
        }
    }

    /// As a scenario, up to a step.
    pub fn told(&self, last: usize) -> String {
        let mut text = format!(
            "keys\n  configuration: {{windrow.targetFileSize: \"{}\"{}}}\n",
            self.file_size,
            match self.technique {
                "" => String::new(),
                only => format!(", windrow.technique: {only}"),
            }
        );
        for source in &self.sources {
            let cols: Vec<String> = source
                .cols
                .iter()
                .map(|c| format!("{} {}", c.name, c.kind.sql()))
                .collect();
            text.push_str(&format!("table {}", source.name));
            if let Some(column) = &source.partitioned_by {
                text.push_str(&format!(" partitioned by {column}"));
            }
            let properties: Vec<String> = source
                .properties()
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            if !properties.is_empty() {
                text.push_str(&format!(" with {}", properties.join(", ")));
            }
            text.push_str(&format!("\n  {}\n", cols.join(" | ")));
            for (number, file) in source.files.iter().enumerate() {
                if number > 0 {
                    let names: Vec<&str> = source.cols.iter().map(|c| c.name.as_str()).collect();
                    text.push_str(&format!(
                        "append {}\n  {}\n",
                        source.name,
                        names.join(" | ")
                    ));
                }
                for row in file {
                    text.push_str(&format!("  {}\n", row.join(" | ")));
                }
            }
        }
        let pipeline = |filters: &[(usize, String)]| {
            let mut text = String::from("pipeline\n");
            for index in (0..self.flows.len()).filter(|i| self.flows[*i].active) {
                text.push_str(&format!("  {}", self.sql(index, filters)));
            }
            text
        };
        text.push_str(&pipeline(&[]));
        let mut filters: Vec<(usize, String)> = Vec::new();
        let mut hours = 0;
        for step in self.steps.iter().take(last + 1) {
            for event in &step.events {
                text.push_str(&event.told(&self.sources));
                text.push('\n');
            }
            hours += step.hours;
            text.push_str(&format!("now {}\n", clock(hours)));
            match &step.special {
                Special::Nothing => text.push_str("run\n"),
                Special::Override(f, p) => {
                    text.push_str(&format!("run --replace-where \"f{f}={}\"\n", p.sql()));
                }
                Special::Only(flows) => {
                    let list: Vec<String> =
                        flows.iter().map(|f| format!("--refresh f{f}")).collect();
                    text.push_str(&format!("run {}\n", list.join(" ")));
                }
                Special::Full(f) => text.push_str(&format!("run --full-refresh f{f} --yes\n")),
                Special::Filter(f, filter) => {
                    filters.push((*f, filter.clone()));
                    text.push_str(&pipeline(&filters));
                    text.push_str("run\n");
                }
            }
        }
        text
    }
}

/// The clock so many hours after its start.
pub fn clock(hours: i64) -> String {
    let start = chrono::DateTime::from_timestamp(1_773_144_000, 0).unwrap_or_default();
    let now = start + chrono::TimeDelta::hours(hours);
    now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn flow(chance: &mut Chance, tables: &[Rel], level: usize) -> Flow {
    let is_view = chance.of_hundred(20);
    loop {
        let rel = Maker::new(chance, tables).make();
        let predicate = Predicate::new(chance, &rel.cols);
        if predicate.is_none() && !is_view {
            continue;
        }
        let dates: Vec<&Col> = rel
            .cols
            .iter()
            .filter(|c| matches!(c.kind, Type::Date | Type::Int))
            .collect();
        let partitioned_by = match dates.first() {
            Some(col) if rel.cols.len() > 1 && chance.of_hundred(25) => Some(col.name.clone()),
            _ => None,
        };
        return Flow {
            query: rel.query(),
            cols: rel.cols,
            predicate: predicate.filter(|_| !is_view),
            partitioned_by,
            level,
            active: true,
        };
    }
}
