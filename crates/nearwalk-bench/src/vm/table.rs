// SPDX-License-Identifier: GPL-2.0-or-later
//! The findings as text and as CSV.

use std::fmt::Write as _;

use super::model::{CLASSES, Findings, Sample, Walks};

/// Seconds between the lines of a guest that moves.
const STEP: f64 = 5.0;

/// Shares with a digit behind the point, but for those that are exact.
pub fn percent(part: u64, of: u64) -> String {
    match (part, of) {
        (0, _) => "0 %".into(),
        (part, of) if part == of => "100 %".into(),
        (part, of) => {
            let share = 100.0 * part as f64 / of as f64;
            // What is not all or nothing does not look so.
            format!("{:.1} %", share.clamp(0.1, 99.9))
        }
    }
}

/// Everything, for people.
pub fn text(findings: &Findings) -> String {
    let mut text = String::new();
    walks(findings, &mut text);
    tables(findings, &mut text);
    samples(findings, &mut text);
    faults(findings, &mut text);
    costs(findings, &mut text);
    for why in &findings.failures {
        let _ = writeln!(text, "failed: {why}");
    }
    text
}

fn walks(findings: &Findings, text: &mut String) {
    for same in findings.walks.chunk_by(|a, b| a.guest == b.guest) {
        let _ = writeln!(
            text,
            "Walks of a process of {} pages in a guest ({}), by where the leaf entry of the\n\
             guest's half and that of the nested half are; counted",
            same[0].pages, same[0].guest
        );
        let _ = write!(text, "{:34}{:>8}", "tables by domain", "on node");
        for class in CLASSES {
            let _ = write!(text, "{class:>9}");
        }
        let _ = writeln!(text, "{:>15}", "nested tables");
        for walks in same {
            for (index, classes) in walks.classes.iter().enumerate() {
                let name = if index == 0 { &walks.setting } else { "" };
                let _ = write!(text, "{name:34}{:>8}", classes.node);
                for count in walks.counts(classes) {
                    let _ = write!(text, "{:>9}", percent(count, walks.pages));
                }
                match index {
                    0 => drop(writeln!(text, "{:>15}", walks.tables)),
                    _ => text.push('\n'),
                }
            }
        }
        text.push('\n');
    }
}

fn tables(findings: &Findings, text: &mut String) {
    let Some(first) = findings.tables.first() else {
        return;
    };
    let one = first.pages.max(1);
    let _ = writeln!(
        text,
        "Pages of nested tables of a guest ({}); counted\n{:26}{:>6}{:>8}{:>8}   pages by node",
        first.guest, "setting", "trees", "pages", "ratio"
    );
    for tables in &findings.tables {
        let on: Vec<String> = tables.on.iter().map(|(n, c)| format!("{n}:{c}")).collect();
        let _ = writeln!(
            text,
            "{:26}{:>6}{:>8}{:>8.2}   {}",
            tables.setting,
            tables.trees,
            tables.pages,
            tables.pages as f64 / one as f64,
            on.join(" ")
        );
    }
    text.push('\n');
}

/// The samples of each setting.
pub fn by_setting(findings: &Findings) -> impl Iterator<Item = &[Sample]> {
    findings.samples.chunk_by(|a, b| a.setting == b.setting)
}

fn samples(findings: &Findings, text: &mut String) {
    if findings.samples.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "A thin guest whose CPU and memory go to another node: nested leaves that are there on\n\
         its CPU's node, and pages of nested tables; counted\n\
         {:10}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "setting", "seconds", "local", "absent", "tables", "faults"
    );
    for same in by_setting(findings) {
        let mut due = f64::MIN;
        for (index, sample) in same.iter().enumerate() {
            // All of them are in the CSV; here every fifth second and the ends are enough.
            if sample.seconds < due && index + 1 < same.len() {
                continue;
            }
            due = match sample.seconds {
                before if before < 0.0 => 0.0,
                after => after + STEP,
            };
            let there = sample.local + sample.remote;
            let _ = writeln!(
                text,
                "{:10}{:>9.1}{:>9}{:>9}{:>9}{:>9}",
                sample.setting,
                sample.seconds,
                match there {
                    0 => "-".into(),
                    there => percent(sample.local, there),
                },
                sample.absent,
                sample.tables,
                sample.faults
            );
        }
        let peak = same.iter().map(|sample| sample.tables).max();
        let _ = writeln!(
            text,
            "{:10}at most {} pages of tables, {} at the end",
            same[0].setting,
            peak.unwrap_or(0),
            same.last().map_or(0, |sample| sample.tables)
        );
    }
    text.push('\n');
}

fn faults(findings: &Findings, text: &mut String) {
    let Some(first) = findings.faults.first() else {
        return;
    };
    let _ = writeln!(
        text,
        "Nested page faults (KVM's pf_fixed), {} pages, guest: {}; counted\n{:8}{:10}{:34}{:>10}{:>12}",
        first.pages, first.guest, "kernel", "trees", "action", "faults", "for a page"
    );
    for faults in &findings.faults {
        let _ = writeln!(
            text,
            "{:8}{:10}{:34}{:>10}{:>12.3}",
            faults.kernel,
            faults.setting,
            faults.action,
            faults.faults,
            faults.faults as f64 / faults.pages.max(1) as f64
        );
    }
    text.push('\n');
}

fn costs(findings: &Findings, text: &mut String) {
    let Some(first) = findings.costs.first() else {
        return;
    };
    let each = |faults: u64, instructions: u64| instructions as f64 / faults.max(1) as f64;
    let base = each(first.faults, first.instructions).max(1.0);
    let _ = writeln!(
        text,
        "Instructions of a nested page fault, guest: a CPU, no kernel, 2M; counted\n\
         {:8}{:10}{:>10}{:>14}{:>10}",
        "kernel", "trees", "faults", "for a fault", "ratio"
    );
    for cost in &findings.costs {
        let each = each(cost.faults, cost.instructions);
        let _ = writeln!(
            text,
            "{:8}{:10}{:>10}{:>14.1}{:>10.3}",
            cost.kernel,
            cost.setting,
            cost.faults,
            each,
            each / base
        );
    }
    text.push('\n');
}

/// Everything, a number a line.
pub fn csv(findings: &Findings) -> String {
    let mut csv = Csv("part,guest,kernel,setting,where,what,count\n".into());
    for walks in &findings.walks {
        let add = |csv: &mut Csv, node: &str, what: &str, count: u64| {
            csv.line(
                ["walks", &walks.guest, "ours", &walks.setting, node, what],
                count,
            );
        };
        for classes in &walks.classes {
            let node = format!("node {}", classes.node);
            for (class, count) in CLASSES.iter().zip(walks.counts(classes)) {
                add(&mut csv, &node, class, count);
            }
        }
        add(&mut csv, "all", "nested tables", walks.tables);
    }
    for tables in &findings.tables {
        for (node, pages) in &tables.on {
            let node = format!("node {node}");
            csv.line(
                [
                    "tables",
                    &tables.guest,
                    "ours",
                    &tables.setting,
                    &node,
                    "nested tables",
                ],
                *pages,
            );
        }
    }
    for sample in &findings.samples {
        let at = format!("{:.1} s", sample.seconds);
        for (what, count) in [
            ("local", sample.local),
            ("remote", sample.remote),
            ("absent", sample.absent),
            ("nested tables", sample.tables),
            ("faults", sample.faults),
        ] {
            csv.line(["move", "thin", "ours", &sample.setting, &at, what], count);
        }
    }
    for f in &findings.faults {
        csv.line(
            [
                "faults", &f.guest, &f.kernel, &f.setting, &f.action, "faults",
            ],
            f.faults,
        );
    }
    for c in &findings.costs {
        let words = ["cost", "no kernel", &c.kernel, &c.setting, "all"];
        let [part, guest, kernel, setting, place] = words;
        csv.line([part, guest, kernel, setting, place, "faults"], c.faults);
        csv.line(
            [part, guest, kernel, setting, place, "instructions"],
            c.instructions,
        );
    }
    csv.0
}

struct Csv(String);

impl Csv {
    fn line(&mut self, words: [&str; 6], count: u64) {
        for word in words {
            // Guests are described with commas.
            match word.contains(',') {
                true => drop(write!(self.0, "\"{word}\",")),
                false => drop(write!(self.0, "{word},")),
            }
        }
        let _ = writeln!(self.0, "{count}");
    }
}

/// One word for who reads a picture.
pub fn label(walks: &Walks) -> String {
    match walks.guest.split_once(',') {
        Some(("wide", rest)) if rest.contains("next node") => {
            format!("{} (memory on the next node)", walks.setting)
        }
        _ => walks.setting.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::model::{Cost, Event, Faults, Tables};
    use nearwalk_vm::guest::Classes;

    fn findings() -> Findings {
        let mut findings = Findings::default();
        for event in [
            Event::Step("words".into()),
            Event::Walks(Walks {
                guest: "wide, 2 nodes".into(),
                setting: "one tree, guest one".into(),
                pages: 16,
                classes: vec![
                    Classes {
                        ll: 1,
                        lr: 3,
                        rl: 3,
                        rr: 9,
                        ..Classes::default()
                    },
                    Classes {
                        domain: 1,
                        node: 1,
                        ll: 10,
                        ..Classes::default()
                    },
                ],
                tables: 7,
            }),
            Event::Tables(Tables {
                guest: "wide".into(),
                setting: "off".into(),
                trees: 1,
                pages: 100,
                on: [(0, 60), (1, 40)].into(),
            }),
            Event::Sample(Sample {
                setting: "off".into(),
                seconds: -1.5,
                local: 1,
                remote: 2,
                absent: 0,
                tables: 5,
                faults: 0,
            }),
            Event::Faults(Faults {
                kernel: "stock".into(),
                guest: "wide".into(),
                setting: "off".into(),
                action: "CPU 0 fills".into(),
                pages: 100,
                faults: 101,
            }),
            Event::Cost(Cost {
                kernel: "stock".into(),
                setting: "off".into(),
                faults: 10,
                instructions: 12345,
            }),
            Event::Failed("move: no".into()),
        ] {
            let line = serde_json::to_string(&event).unwrap();
            findings.add(serde_json::from_str(&line).unwrap());
        }
        findings
    }

    #[test]
    fn tables_say_what_was_counted_on_what_guest() {
        let text = text(&findings());
        for part in [
            "a process of 16 pages in a guest (wide, 2 nodes)",
            "one tree, guest one                      0    6.2 %   18.8 %   18.8 %   56.2 %      0 %              7",
            "                                         1   62.5 %      0 %      0 %      0 %   37.5 %\n",
            "off                            1     100    1.00   0:60 1:40",
            "off            -1.5   33.3 %        0        5        0",
            "CPU 0 fills                              101       1.010",
            "stock   off               10        1234.5     1.000",
            "failed: move: no",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        assert!(text.matches("counted").count() == 5, "{text}");
    }

    #[test]
    fn what_is_not_all_does_not_look_so() {
        assert_eq!(percent(99_999, 100_000), "99.9 %");
        assert_eq!(percent(1, 100_000), "0.1 %");
        assert_eq!(percent(7, 7), "100 %");
        assert_eq!(percent(0, 0), "0 %");
    }

    #[test]
    fn a_line_of_csv_is_a_number() {
        let csv = csv(&findings());
        assert!(
            csv.contains(
                "\nwalks,\"wide, 2 nodes\",ours,\"one tree, guest one\",node 1,absent,6\n"
            ),
            "{csv}"
        );
        assert!(
            csv.lines().all(|line| line
                .split('"')
                .step_by(2)
                .map(|p| p.matches(',').count())
                .sum::<usize>()
                == 6),
            "{csv}"
        );
    }
}
