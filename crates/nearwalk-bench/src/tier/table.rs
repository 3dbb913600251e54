// SPDX-License-Identifier: GPL-2.0-or-later
//! The findings as text and CSV.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::{
    model::{Findings, Run, Sample},
    plan::{Policy, Program},
};

/// Table 3.1 of the thesis: ns that a load takes of the fast and of the slow node.
const LATENCY: [f64; 2] = [84.9, 199.2];
/// Of the steps, as columns.
const POINTS: [(u32, &str); 5] = [
    (0, "first"),
    (25, "25 %"),
    (50, "50 %"),
    (75, "75 %"),
    (100, "last"),
];

/// By program, each with its policies in the order in which they ran.
fn by_program(findings: &Findings) -> Vec<&Run> {
    let mut runs: Vec<&Run> = findings.runs.iter().collect();
    runs.sort_by_key(|run| {
        let program = Program::from_str(&run.begin.program, false).ok();
        Program::value_variants()
            .iter()
            .position(|&p| Some(p) == program)
    });
    runs
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// How much faster loads are than those of the slow node alone.
fn faster(share: f64) -> f64 {
    LATENCY[1] / (share * LATENCY[0] + (1.0 - share) * LATENCY[1])
}

/// All of it, for people.
pub fn text(findings: &Findings) -> String {
    let mut text = String::from(
        "Accesses that the fast node serves (Figure 3.12). Counted: by the program, before any\n\
         cache, in the first step, later ones and the last, and the mean of all; 'neither' are\n\
         those of pages on neither node, of which there should be none. Modelled: how much\n\
         faster loads are than with all memory on the slow node, by the latencies of Table 3.1\n\
         alone, without copies, caches and bandwidth. Published: how much faster programs were\n\
         on hardware, on average.\n\n",
    );
    let _ = write!(text, "{:<8}{:<15}", "program", "policy");
    for (_, name) in POINTS {
        let _ = write!(text, "{name:>9}");
    }
    let _ = writeln!(
        text,
        "{:>9}{:>8}{:>10}{:>11}",
        "mean", "neither", "modelled", "published"
    );
    lines(&mut text, findings, |text, run| {
        let last = run.samples.len().saturating_sub(1);
        for (at, _) in POINTS {
            let sample = run.samples.get(last * at as usize / 100);
            let share = sample.map_or_else(|| "-".into(), |sample| percent(sample.share()));
            let _ = write!(text, "{share:>9}");
        }
        let mean = run.share(false);
        let sum = |part: fn(&Sample) -> u64| run.samples.iter().map(part).sum::<u64>();
        let all = sum(|sample| sample.fast + sample.slow + sample.other);
        let other = sum(|sample| sample.other) as f64 / all.max(1) as f64;
        let policy = Policy::from_str(&run.begin.policy, false).ok();
        let _ = writeln!(
            text,
            "{:>9}{:>8}{:>10}{:>11}",
            mean.map_or_else(|| "-".into(), percent),
            percent(other),
            mean.map_or_else(|| "-".into(), |mean| format!("{:.2}", faster(mean))),
            policy.and_then(Policy::published).unwrap_or("-"),
        );
    });
    text.push_str(
        "\nWhat rounds did, counted, in MiB of all rounds: moved to the fast node, there in\n\
         exchange, moved to the slow node, busy, hot but nothing cold; copied ahead by the copy\n\
         engine, of this by helpers; and huge pages that were split.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<8}{:<15}{:>9}{:>10}{:>9}{:>7}{:>9}{:>9}{:>8}{:>7}",
        "program",
        "policy",
        "up",
        "exchanged",
        "down",
        "busy",
        "no room",
        "ahead",
        "helped",
        "split"
    );
    lines(&mut text, findings, |text, run| {
        let Some(last) = run.samples.last() else {
            text.push('\n');
            return;
        };
        let mib = |pages: u64| format!("{:.1}", pages as f64 / 256.0);
        let busy = ["failed_promote", "failed_exchange", "failed_demote"];
        let busy = busy.iter().map(|name| last.pages(name)).sum();
        let _ = writeln!(
            text,
            "{:>9}{:>10}{:>9}{:>7}{:>9}{:>9}{:>8}{:>7}",
            mib(last.pages("promoted")),
            mib(last.pages("exchanged")),
            mib(last.pages("demoted")),
            mib(busy),
            mib(last.pages("no_room")),
            mib(last.copied),
            mib(last.helped),
            last.pages("split"),
        );
    });
    text
}

/// A line for each run, with an empty one between programs.
fn lines(text: &mut String, findings: &Findings, each: impl Fn(&mut String, &Run)) {
    let runs = by_program(findings);
    for (nr, run) in runs.iter().enumerate() {
        if nr > 0 && runs[nr - 1].begin.program != run.begin.program {
            text.push('\n');
        }
        let _ = write!(text, "{:<8}{:<15}", run.begin.program, run.begin.policy);
        each(text, run);
    }
}

/// A line for each step of each program with each policy, with a head.
pub fn csv(findings: &Findings) -> String {
    const TIER: [&str; 8] = [
        "looked_at",
        "promoted",
        "exchanged",
        "demoted",
        "no_room",
        "failed_promote",
        "failed_exchange",
        "failed_demote",
    ];
    let mut text = format!(
        "program,policy,footprint_bytes,fast_bytes,step,accesses_fast,accesses_slow,\
         accesses_other,{}\n",
        TIER.join(",")
    );
    for run in &findings.runs {
        for sample in &run.samples {
            let _ = write!(
                text,
                "{},{},{},{},{},{},{},{}",
                run.begin.program,
                run.begin.policy,
                run.begin.footprint_bytes,
                run.begin.fast_bytes,
                sample.step,
                sample.fast,
                sample.slow,
                sample.other,
            );
            for name in TIER {
                let _ = write!(text, ",{}", sample.pages(name));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::model::tests::findings, *};

    #[test]
    fn each_policy_has_its_shares_beside_what_was_published() {
        let text = text(&findings());
        let line = text.lines().find(|line| line.contains("thp")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..4], ["kv", "thp", "0.0", "%"], "{text}");
        assert_eq!(words[words.len() - 1], "1.31");
        // A mean of 37.5 %: 199.2 / (0.375 * 84.9 + 0.625 * 199.2).
        assert_eq!(words[words.len() - 2], "1.27");
    }

    #[test]
    fn the_model_is_one_where_all_is_slow() {
        assert_eq!(faster(0.0), 1.0);
        assert!((faster(1.0) - 2.346).abs() < 0.001);
    }

    #[test]
    fn scripts_have_a_line_a_step() {
        let csv = csv(&findings());
        assert_eq!(csv.lines().count(), 9);
        assert!(
            csv.contains("kv,thp,2097152,1048576,3,75,25,0,0,768,0,0,0,0,0,0\n"),
            "{csv}"
        );
    }
}
