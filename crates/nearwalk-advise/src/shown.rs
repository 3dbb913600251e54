// SPDX-License-Identifier: GPL-2.0-or-later
//! Advice as text and as JSON. `docs/advise.md` names every member; members are
//! added, never renamed or removed, without a new `schema`.

use nearwalk_perf::Missing;
use serde::Serialize;
use serde_json::{Value, json};

use crate::advice::{Advice, First, Verdict, whom};
use crate::exposure::{CpuTime, Tables};
use crate::gain::Range;
use crate::print::{bytes, percent};
use crate::report::Known;
use crate::subject::{From, Subject};

const SCHEMA: &str = "nearwalk.advice.v1";

fn title(subject: &Subject) -> String {
    if subject.is_group {
        format!("group {}", subject.name)
    } else {
        format!("process {} ({})", subject.pids[0], subject.name)
    }
}

fn list(nodes: &[u32]) -> String {
    let words: Vec<String> = nodes.iter().map(u32::to_string).collect();
    words.join(", ")
}

/// From 3.2 to 4.7 is 3 to 5.
fn interval(gain: Range) -> String {
    let [low, middle, high] = [gain.low, gain.middle, gain.high].map(|share| 100.0 * share);
    format!("{low:.0} to {high:.0} % less time, most likely {middle:.0} % (modelled)")
}

fn verdict(advice: &Advice) -> String {
    let what = match &advice.verdict {
        Verdict::Nothing => return "nothing to do".to_owned(),
        Verdict::Measure => "measure".to_owned(),
        Verdict::Move(node) => format!("have the tables on node {node}"),
        Verdict::Copy(nodes) => format!("have copies on nodes {}", list(nodes)),
        Verdict::First(First::HugePages) => {
            "something else first: huge pages, which are switched off on this host".to_owned()
        }
        Verdict::First(First::Data) => {
            "something else first: most of its memory is on other nodes, too; move that, and the \
             tables with it"
                .to_owned()
        }
    };
    let mut text = what;
    if let (Some(gain), false) = (advice.gain, advice.verdict == Verdict::Nothing) {
        text += &match advice.verdict {
            Verdict::First(_) => format!("; tables alone are worth {}", interval(gain)),
            Verdict::Measure => format!(": cannot tell, {}", interval(gain)),
            _ => format!(": {}", interval(gain)),
        };
    }
    if let Some(memory) = advice.memory {
        text += &format!(", {} more memory", bytes(memory));
    }
    if let Some(confidence) = advice.confidence {
        text += &format!("; confidence {}", confidence.name());
    }
    text
}

/// The answer for people.
pub fn text(subject: &Subject, advice: &Advice) -> String {
    let mut head = vec![title(subject)];
    if subject.nodes.len() > 1 {
        let mut used = format!("{:.1} CPUs", subject.cpus);
        if let CpuTime::Shares(shares) = &subject.time {
            let parts: Vec<String> = shares
                .iter()
                .zip(&subject.nodes)
                .filter(|(share, _)| **share > 0.0)
                .map(|(share, node)| format!("{} % on node {}", percent(*share), node.id))
                .collect();
            used += &format!(" ({})", parts.join(", "));
        }
        head.push(used);
        head.push(format!("page tables {}", bytes(subject.tables_bytes)));
        head.push(format!(
            "looked for {:.1} s, changed nothing",
            subject.length.as_secs_f64()
        ));
    }
    let (first, rest) = head.split_first().expect("there is a title");
    let mut out = format!("{first}: {}\n", rest.join("; "));
    if rest.is_empty() {
        out = format!("{first}\n");
    }
    let mut line = |label: &str, text: &str| out += &format!("  {label:8}  {text}\n");
    line("verdict", &verdict(advice));
    for text in &advice.because {
        line("because", text);
    }
    for text in &advice.instead {
        line("instead", text);
    }
    for text in &advice.without {
        line("without", text);
    }
    if let Some((set, undo)) = &advice.commands {
        line("do it", set);
        line("undo", undo);
    }
    if let (Verdict::Measure, Err(Missing::Refused { .. })) = (&advice.verdict, &subject.counters) {
        line("next", &format!("sudo nearwalk advise {}", whom(subject)));
    } else if let Some(check) = &advice.check {
        line("check", check);
    }
    out
}

/// Six digits are more than any of this is right to.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// A value and where it is from, or why there is none.
fn input(name: &str, value: Option<Value>, source: &str, missing: Option<String>) -> Value {
    match (value, missing) {
        (Some(value), _) => json!({ "name": name, "value": value, "source": source }),
        (None, missing) => {
            json!({ "name": name, "value": null, "source": source, "missing": missing })
        }
    }
}

fn inputs(subject: &Subject) -> Vec<Value> {
    if subject.nodes.len() <= 1 {
        return Vec::new();
    }
    let reading = subject.counters.as_ref();
    let missing = || reading.err().map(ToString::to_string);
    let why = |what: &str| missing().or_else(|| Some(format!("this CPU does not count {what}")));
    let model = reading.map_or("counters", |reading| reading.model.as_str());
    let number = |value: Option<f64>| value.map(|value| json!(round(value)));
    let counted = |of: fn(&nearwalk_perf::Reading) -> Option<f64>| reading.ok().and_then(of);
    let (tables, hinders) = match &subject.tables_from {
        From::Read(..) => ("read", None),
        From::Group(why) => ("group", Some(why.clone())),
        From::Host(why) => ("host", Some(why.clone())),
    };
    let by_node = match &subject.tables {
        Tables::Known(bytes) => Some(json!(bytes)),
        Tables::Within { .. } => None,
    };
    let time = match &subject.time {
        CpuTime::Shares(shares) => {
            Some(json!(shares.iter().map(|&s| round(s)).collect::<Vec<_>>()))
        }
        CpuTime::Among(_) => None,
    };
    let known = match subject.known {
        Known::OneNode => "one-node",
        Known::Cpuset => "cpuset",
        Known::Observed => "sampled",
        Known::Counted => "counted",
        Known::No => "no",
    };
    let seen = subject.seen.map_or(0.0, |seen| 100.0 * seen);
    vec![
        input("cpus", number(Some(subject.cpus)), "cpu time", None),
        input(
            "cpu_time",
            time,
            known,
            Some(format!("only {seen:.0} % was seen")),
        ),
        input(
            "tables_bytes",
            Some(json!(subject.tables_bytes)),
            "kernel",
            None,
        ),
        input("tables_by_node", by_node, tables, hinders),
        input(
            "remote_lower",
            number(Some(subject.bounds.lower)),
            "bounds",
            None,
        ),
        input(
            "remote_upper",
            number(Some(subject.bounds.upper)),
            "bounds",
            None,
        ),
        input(
            "walk_share",
            number(counted(|r| r.walk_share())),
            model,
            why("cycles with walks"),
        ),
        input(
            "cycles_per_walk",
            number(counted(|r| r.cycles_per_walk())),
            model,
            why("cycles of walks"),
        ),
        input("walks", number(counted(|r| r.walks())), model, why("walks")),
        input(
            "counted",
            number(counted(|r| Some(r.counted()))),
            model,
            missing(),
        ),
    ]
}

/// The answer for scripts.
pub fn json(subject: &Subject, advice: &Advice) -> impl Serialize {
    let (verdict, nodes): (&str, Vec<u32>) = match &advice.verdict {
        Verdict::Nothing => ("nothing", Vec::new()),
        Verdict::Measure => ("measure", Vec::new()),
        Verdict::Move(node) => ("move", vec![*node]),
        Verdict::Copy(nodes) => ("copy", nodes.clone()),
        Verdict::First(First::HugePages) => ("huge-pages-first", Vec::new()),
        Verdict::First(First::Data) => ("data-first", Vec::new()),
    };
    let gain = advice.gain.map(|gain| {
        json!({ "low": round(gain.low), "middle": round(gain.middle), "high": round(gain.high) })
    });
    let commands = advice
        .commands
        .as_ref()
        .map(|(set, undo)| json!({ "do": set, "undo": undo }));
    json!({
        "schema": SCHEMA,
        "kernel": subject.kernel,
        "subject": {
            "kind": if subject.is_group { "cgroup" } else { "process" },
            "name": subject.name,
            "pid": (!subject.is_group).then(|| subject.pids[0]),
            "processes": subject.pids.len(),
            "threads": subject.threads,
        },
        "seconds": round(subject.length.as_secs_f64()),
        "inputs": inputs(subject),
        "verdict": verdict,
        "nodes": nodes,
        "gain": gain,
        "memory_bytes": advice.memory,
        "confidence": advice.confidence.map(|confidence| confidence.name()),
        "because": advice.because,
        "instead": advice.instead,
        "without": advice.without,
        "commands": commands,
        "check": advice.check,
        "supported": subject.ours,
    })
}
