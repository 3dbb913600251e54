// SPDX-License-Identifier: GPL-2.0-or-later
//! The closing summary: a screen of text.

use std::fmt::Write;

use super::{kind_of_numbers, stage_name, waits};
use crate::{
    model::{Modelled, Run, Stage, View},
    number::{count, percent, plural, size, time},
    verdict::{Finding, passed, verdicts},
};

/// Table pages have 4 KiB.
const PAGE_SHIFT: u32 = 12;
/// Differences, failed requests and the like are shown up to here.
const MAX_PROBLEMS: usize = 4;

pub fn summary(run: &Run) -> String {
    let mut text = String::new();
    if !run.pictures.is_empty() {
        table(run, &mut text);
        text.push('\n');
    }
    clients(run, &mut text);
    kernel(run, &mut text);
    if let Some(kind) = kind_of_numbers(run) {
        let _ = writeln!(text, "{:9}{kind}\n", "measured");
    }
    if let Some(modelled) = &run.modelled {
        // Beside the measured, and not among it.
        text.truncate(text.trim_end().len());
        let _ = writeln!(text, "\n{}\n", modelled_lines(modelled));
    }
    text += &verdict(run);
    text
}

/// Remote shares and table pages, a line for each stage, a column for each node.
fn table(run: &Run, text: &mut String) {
    let nodes: Vec<u32> = run.pictures[0].views.iter().map(|view| view.node).collect();
    let width = (nodes.len() * 7).max(20);
    let _ = writeln!(
        text,
        "{:12}{:<width$}   table pages on node",
        "", "remote leaf PTEs from node"
    );
    let heads: String = nodes.iter().map(|node| format!("{node:>7}")).collect();
    let _ = writeln!(text, "{:12}{heads:<width$}   {heads}", "");
    for stage in [Stage::Before, Stage::Replicated, Stage::OneNode, Stage::Off] {
        let Some(picture) = run.picture(stage) else {
            continue;
        };
        let column = |show: &dyn Fn(&View) -> String| -> String {
            let cells = picture.views.iter().map(show);
            cells.map(|cell| format!("{cell:>7}")).collect()
        };
        let shares = column(&|view| percent(view.remote_share()));
        let pages = column(&|view| count(view.canonical_pages + view.replica_pages));
        let name = stage_name(run, stage);
        let _ = writeln!(text, "{name:12}{shares:<width$}   {pages}");
    }
}

fn clients(run: &Run, text: &mut String) {
    let Some(load) = &run.load else {
        return;
    };
    let _ = writeln!(
        text,
        "{:9}{} requests, each byte of each answer looked at: {} failed, {} wrong",
        "clients",
        count(load.gets + load.sets),
        count(load.failed),
        count(load.wrong)
    );
    let waits = waits(load);
    let _ = writeln!(
        text,
        "{:9}longest wait for an answer {}; {} while the setting was changed",
        "",
        time(waits.stay),
        time(waits.switch)
    );
}

fn kernel(run: &Run, text: &mut String) {
    if let Some(picture) = run.picture(Stage::Replicated) {
        let pages: u64 = picture.views.iter().map(|view| view.replica_pages).sum();
        let took = |stage| match run.switch(stage) {
            Some(switch) => time(switch.seconds),
            None => "?".into(),
        };
        let _ = writeln!(
            text,
            "{:9}{} of copies made in {}, cut to one node in {}, dropped in {}",
            "kernel",
            size(pages << PAGE_SHIFT),
            took(Stage::Replicated),
            took(Stage::OneNode),
            took(Stage::Off)
        );
    }
    if !run.checks.is_empty() {
        let entries = run.checks.iter().map(|check| check.entries).sum();
        let differences: u64 = run.checks.iter().map(|check| check.differences).sum();
        let log = match run.kernel_report {
            None => "no warning in its log",
            Some(_) => "warnings in its log",
        };
        let _ = writeln!(
            text,
            "{:9}{} entries of copies compared: {}; {log}",
            "",
            count(entries),
            plural(differences as usize, "difference"),
        );
    }
}

/// Three lines: the others have what the first stands for, and how sure it is.
fn modelled_lines(m: &Modelled) -> String {
    format!(
        "{:9}{} cycles a request before, {} with a copy on every node ({:+.0} %): the lens'\n\
         {:9}estimate for {} on {}, tables placed as here;\n\
         {:9}nine of ten published runs like it would lie between {:+.0} and {:+.0} %",
        "modelled",
        count(m.before.round() as u64),
        count(m.replicated.round() as u64),
        (m.replicated / m.before - 1.0) * 100.0,
        "",
        size(m.bytes),
        m.machine,
        "",
        (m.low - 1.0) * 100.0,
        (m.high - 1.0) * 100.0,
    )
}

fn verdict(run: &Run) -> String {
    if passed(run) {
        return "PASSED\n".into();
    }
    let mut text = String::from("FAILED\n");
    let mut not_reached = 0;
    for verdict in verdicts(run) {
        let problems = match verdict.finding {
            Finding::Holds => continue,
            Finding::NotReached => {
                not_reached += 1;
                continue;
            }
            Finding::Fails(problems) => problems,
        };
        let _ = writeln!(text, "  not so: {}", verdict.claim);
        for line in problems
            .iter()
            .take(MAX_PROBLEMS)
            .flat_map(|problem| problem.lines())
        {
            let _ = writeln!(text, "    {line}");
        }
        if problems.len() > MAX_PROBLEMS {
            let _ = writeln!(text, "    ... and more; see the page");
        }
    }
    if not_reached > 0 {
        let _ = writeln!(text, "  not reached: {}", plural(not_reached, "claim"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    #[test]
    fn a_good_run_fits_on_a_screen() {
        let text = summary(&run());
        assert!(text.lines().count() <= 20, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 90, "{line}");
        }
        assert!(text.ends_with("PASSED\n"));
    }

    #[test]
    fn what_is_modelled_is_labelled() {
        let mut run = run();
        assert!(!summary(&run).contains("modelled"));
        run.modelled = Some(Modelled {
            machine: "a server".into(),
            bytes: 363 << 30,
            before: 4000.0,
            replicated: 3400.0,
            low: 0.75,
            high: 0.98,
        });
        let text = summary(&run);
        let line =
            "modelled 4,000 cycles a request before, 3,400 with a copy on every node (-15 %)";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("between -25 and -2 %"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 90),
            "{text}"
        );
    }

    #[test]
    fn the_table_has_a_line_for_each_stage_and_a_column_for_each_node() {
        let text = summary(&run());
        for line in [
            "before         75 %   75 %   75 %   75 %        50     50     50     50",
            "replicated      0 %    0 %    0 %    0 %       215    215    215    215",
            "node 2 only    75 %   75 %    0 %   75 %        50     50    215     50",
            "off again      75 %   75 %   75 %   75 %        50     50     50     50",
        ] {
            assert!(text.contains(line), "no line '{line}' in\n{text}");
        }
    }

    #[test]
    fn a_failure_says_what_is_not_so() {
        let mut run = run();
        run.checks[0].differences = 9;
        run.checks[0].examples = (0..8).map(|n| format!("difference {n}")).collect();
        let text = summary(&run);
        assert!(text.contains("FAILED\n  not so: the copies never differed"));
        assert!(text.contains("    9 differences\n    difference 0\n"));
        assert!(text.ends_with("... and more; see the page\n"), "{text}");
    }

    #[test]
    fn a_machine_that_never_came_up_leaves_only_the_reason() {
        let run = Run {
            kernel_report: Some("the guest kernel stopped\nKernel panic".into()),
            ..Run::default()
        };
        let text = summary(&run);
        assert!(text.starts_with("FAILED\n"), "{text}");
        assert!(text.contains("    Kernel panic\n  not reached: 6 claims\n"));
    }
}
