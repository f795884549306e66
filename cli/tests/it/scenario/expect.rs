//! What a scenario says about a call of `windrow`: its exit, its words, and the facts of its flows.

use serde_json::Value;

use crate::Outcome;
use crate::program::Ended;

/// Compares a call with the lines below it.
///
/// `exit N`, `error CODE`, `says TEXT` and `prints LINE` are about the call; every other line begins with the name
/// of a flow and goes on with facts, parted by semicolons.
pub fn call(ended: &Ended, command: &str, lines: &[&str]) -> Outcome {
    let mut exit = 0;
    for line in lines {
        if let Some(code) = line.strip_prefix("exit ") {
            exit = code.trim().parse().map_err(|e| format!("`{line}`: {e}"))?;
        }
    }
    if ended.exit != Some(exit) {
        return Err(format!("expected exit {exit}: {}", ended.told()));
    }
    let report = ended.report().ok();
    if command == "run" && report.is_none() {
        return Err(format!("there is no JSON report: {}", ended.told()));
    }
    let all = format!("{}\n{}", ended.stdout, ended.stderr).to_lowercase();
    if exit != 0 && ended.stderr.trim().is_empty() {
        return Err("it failed without a word on stderr".into());
    }
    if let Some(report) = report.as_ref().filter(|_| command == "run" && exit != 2) {
        states(report, exit)?;
    }
    printed(ended, lines)?;
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let checked = match word {
            "exit" | "prints" => Ok(()),
            "error" => error_code(report.as_ref(), rest.trim()),
            "says" if all.contains(&rest.trim().to_lowercase()) => Ok(()),
            "says" => Err(format!("nothing is said about `{}`", rest.trim())),
            flow => {
                let report = report.as_ref().ok_or("there is no JSON report")?;
                facts(report, flow, rest)
            }
        };
        checked.map_err(|e| format!("`{line}`: {e}\n{}", ended.told()))?;
    }
    Ok(())
}

/// Where there are `prints` lines, they are what stands on stdout: these lines, in this order, and no
/// others. Blanks count as one, and `*` stands for any word.
fn printed(ended: &Ended, lines: &[&str]) -> Outcome {
    let wanted: Vec<Vec<&str>> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("prints "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let found: Vec<Vec<&str>> = ended
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let fits = |found: &[&str], wanted: &[&str]| {
        let mut words = found.iter().zip(wanted);
        found.len() == wanted.len() && words.all(|(f, w)| *w == "*" || f == w)
    };
    let mut both = found.iter().zip(&wanted);
    if found.len() == wanted.len() && both.all(|(f, w)| fits(f, w)) {
        return Ok(());
    }
    Err(format!("something else is printed: {}", ended.told()))
}

fn flows(report: &Value) -> &[Value] {
    report["flows"].as_array().map_or(&[], Vec::as_slice)
}

fn states(report: &Value, exit: i32) -> Outcome {
    let wanted = if exit == 0 { "COMPLETED" } else { "FAILED" };
    if report["state"] != wanted {
        return Err(format!(
            "exit {exit} goes with state {wanted}, not {}",
            report["state"]
        ));
    }
    for flow in flows(report) {
        let failed = flow["status"] == "FAILED";
        if exit == 0 && flow["status"] != "COMPLETED" {
            return Err(format!(
                "exit 0, but flow {} is {}",
                flow["flow"], flow["status"]
            ));
        }
        if failed && flow["error"]["message"].as_str().is_none_or(str::is_empty) {
            return Err(format!("flow {} failed without a message", flow["flow"]));
        }
    }
    Ok(())
}

fn error_code(report: Option<&Value>, code: &str) -> Outcome {
    let report = report.ok_or("there is no JSON report")?;
    let faults = report["faults"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|f| &f["code"]);
    let of_flows = flows(report).iter().map(|f| &f["error"]["code"]);
    let codes: Vec<&Value> = faults
        .chain(of_flows)
        .chain([&report["error"]["code"]])
        .collect();
    if codes.iter().any(|c| **c == code) {
        Ok(())
    } else {
        Err(format!("the codes are {codes:?}"))
    }
}

fn facts(report: &Value, name: &str, text: &str) -> Outcome {
    let flow = flows(report).iter().find(|f| {
        f["flow"]
            .as_str()
            .is_some_and(|n| n.eq_ignore_ascii_case(name))
    });
    if text.trim() == "not run" {
        return if flow.is_none() {
            Ok(())
        } else {
            Err("it ran".into())
        };
    }
    let flow = flow.ok_or(format!("there is no flow `{name}` in the report"))?;
    text.split(';')
        .try_for_each(|one| fact(flow, one.trim()).map_err(|e| format!("{one}: {e}")))
}

fn fact(flow: &Value, text: &str) -> Outcome {
    let is = |what: &str, found: &Value, wanted: &str| {
        if *found == wanted {
            Ok(())
        } else {
            Err(format!("{what} is {found}"))
        }
    };
    let number = |found: &Value, wanted: &str| {
        if wanted
            .parse::<u64>()
            .is_ok_and(|n| found.as_u64() == Some(n))
        {
            Ok(())
        } else {
            Err(format!("it is {found}"))
        }
    };
    let within = |found: &Value, part: &str| {
        let found = found.as_str().unwrap_or_default();
        let holds = found.to_lowercase().contains(&part.to_lowercase());
        if holds {
            Ok(())
        } else {
            Err(format!("it is {found:?}"))
        }
    };
    let metrics = &flow["metrics"];
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [status @ ("COMPLETED" | "FAILED" | "SKIPPED" | "PLANNED")] => {
            is("its status", &flow["status"], status)
        }
        ["incremental"] => {
            let full = flow["technique"] == "COMPLETE_RECOMPUTE" || flow["technique"].is_null();
            if full {
                Err(format!(
                    "{} because {}",
                    flow["technique"], flow["fallback_reasons"]
                ))
            } else {
                Ok(())
            }
        }
        [technique]
            if technique
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_') =>
        {
            is("its technique", &flow["technique"], technique)
        }
        ["because", reasons @ ..] => {
            let listed = flow["fallback_reasons"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let missing = reasons.iter().find(|r| !listed.iter().any(|l| l == **r));
            missing.map_or(Ok(()), |r| Err(format!("{r} is not among {listed:?}")))
        }
        [n, "slices"] => number(&flow["slices"]["total"], n),
        ["kind", kind] => is("its kind", &flow["kind"], kind),
        ["writes", n, "rows"] => number(&metrics["num_output_rows"], n),
        ["removes", n, "rows"] => number(&metrics["num_deleted_rows"], n),
        ["copies", n, "rows"] => number(&metrics["num_copied_rows"], n),
        ["adds", n, "files"] => number(&metrics["num_files_added"], n),
        ["drops", n, "files"] => number(&metrics["num_files_removed"], n),
        ["reads", source, rest @ ..] => reads(flow, source, rest),
        ["changes", source, "in", n, "files"] => {
            let read = flow["change_data"].as_array().cloned().unwrap_or_default();
            let found = read.iter().find(|r| r["table"] == *source);
            number(found.map_or(&Value::from(0), |r| &r["files"]), n)
        }
        ["predicate", ..] => within(&flow["predicate"], text["predicate".len()..].trim()),
        ["fails", code] => is("its code", &flow["error"]["code"], code),
        ["message", ..] => within(&flow["error"]["message"], text["message".len()..].trim()),
        _ => Err("this is no fact that the runner knows".into()),
    }
}

fn reads(flow: &Value, name: &str, rest: &[&str]) -> Outcome {
    let sources = flow["sources"].as_array().cloned().unwrap_or_default();
    let named = |s: &&Value| {
        s["table"].as_str().is_some_and(|t| {
            t.eq_ignore_ascii_case(name) || t.to_lowercase().ends_with(&format!(".{name}"))
        })
    };
    let source = sources
        .iter()
        .find(named)
        .ok_or(format!("its sources are {sources:?}"))?;
    let holds = match rest {
        [n, "of", total, "files"] => {
            let is = |key: &str, wanted: &str| {
                wanted
                    .parse::<u64>()
                    .is_ok_and(|n| source[key].as_u64() == Some(n))
            };
            is("files_scanned", n) && is("files_total", total)
        }
        ["pruned"] => source["pruned_by_predicate"] == true,
        ["whole"] => source["pruned_by_predicate"] == false,
        _ => return Err("after `reads S` come `N of M files`, `pruned` or `whole`".into()),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("it is {source}"))
    }
}
