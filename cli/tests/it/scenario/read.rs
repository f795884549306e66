//! Takes the text of a scenario apart into steps. Knows nothing of what the steps mean.

use crate::Outcome;

/// A line at the margin and the indented lines below it.
#[derive(Debug, Clone)]
pub struct Step {
    pub line: usize,
    pub verb: String,
    /// What follows the verb.
    pub rest: String,
    pub body: Vec<String>,
}

impl Step {
    /// The lines of the body that say something.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.body.iter().map(|l| l.trim()).filter(|l| !l.is_empty())
    }

    pub fn text(&self) -> String {
        self.body.join("\n")
    }
}

/// The steps of a text; `repeat` blocks are written out.
pub fn steps(text: &str) -> Outcome<Vec<Step>> {
    let lines: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .map(|(i, l)| (i + 1, l.trim_end().to_string()))
        .collect();
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in unrolled(lines)? {
        if line.starts_with('#') {
            continue;
        }
        match steps.last_mut() {
            Some(step) if line.starts_with(' ') || line.is_empty() => {
                step.body
                    .push(line.strip_prefix("  ").unwrap_or(&line).to_string());
            }
            _ if line.is_empty() => {}
            None if line.starts_with(' ') => {
                return Err(format!("line {number} belongs to no step"));
            }
            _ => {
                let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
                steps.push(Step {
                    line: number,
                    verb: verb.to_string(),
                    rest: rest.trim().to_string(),
                    body: Vec::new(),
                });
            }
        }
    }
    for step in &mut steps {
        while step.body.last().is_some_and(|l| l.is_empty()) {
            step.body.pop();
        }
    }
    Ok(steps)
}

/// Writes `repeat i=1..3 k=a,b,c` ... `end` out, with `{i}` and `{k}` filled in.
fn unrolled(lines: Vec<(usize, String)>) -> Outcome<Vec<(usize, String)>> {
    let mut out = Vec::new();
    let mut lines = lines.into_iter();
    while let Some((number, line)) = lines.next() {
        let Some(lists) = line.strip_prefix("repeat ") else {
            out.push((number, line));
            continue;
        };
        let lists = lists
            .split_whitespace()
            .map(values)
            .collect::<Outcome<Vec<_>>>()?;
        let block: Vec<(usize, String)> = lines.by_ref().take_while(|(_, l)| l != "end").collect();
        let times = lists.first().map_or(0, |(_, list)| list.len());
        if times == 0 || lists.iter().any(|(_, list)| list.len() != times) {
            return Err(format!(
                "line {number}: the lists of repeat must have the same length"
            ));
        }
        for turn in 0..times {
            for (number, line) in &block {
                let mut line = line.clone();
                for (name, list) in &lists {
                    line = line.replace(&format!("{{{name}}}"), &list[turn]);
                }
                out.push((*number, line));
            }
        }
    }
    Ok(out)
}

fn values(list: &str) -> Outcome<(String, Vec<String>)> {
    let (name, list) = list
        .split_once('=')
        .ok_or(format!("`{list}` is no list of repeat"))?;
    let values = match list.split_once("..") {
        None => list.split(',').map(str::to_string).collect(),
        Some((from, to)) => {
            let number = |text: &str| text.parse::<i64>().map_err(|e| format!("`{text}`: {e}"));
            (number(from)?..=number(to)?)
                .map(|n| n.to_string())
                .collect()
        }
    };
    Ok((name.to_string(), values))
}

/// Splits arguments as a shell does: blanks part them, double quotes keep them together.
pub fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut current, mut quoted, mut open) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, open) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if open {
                    found.push(std::mem::take(&mut current));
                    open = false;
                }
            }
            c => {
                current.push(c);
                open = true;
            }
        }
    }
    if open {
        found.push(current);
    }
    found
}
