// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric mix`: sequential programs in one VM, drawn, as in Figure 2.13.

use super::case::{Line, Options, Ready, Report};
use super::inputs;
use super::many::{self, Format, Output};
use clap::Args;
use lens::hash::{Rng, mix};
use std::process::ExitCode;

/// Accesses after which a mix is timed though little is paged: one that nearly fits
/// into stacked memory turns it over hardly ever.
const PATIENCE: u64 = 400_000_000;

#[derive(Debug, Args)]
#[command(
    after_help = "The programs are drawn from those that `list` marks with `mixes`; all are synthetic.\n\n\
    Examples:\n  \
    nearwalk lens hatric mix --out mixes.jsonl\n  \
    nearwalk lens hatric mix --mixes 8 --schemes hatric,software --accesses 1000000 --print csv"
)]
pub struct MixArgs {
    /// How many mixes
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mixes: u32,
    /// Programs of a mix, each on a vCPU
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=64))]
    of: u32,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    output: Output,
}

/// Programs of mix `number`. Each may be drawn several times.
fn draw(names: &[String], number: u32, of: u32, seed: u64) -> Vec<String> {
    let mut rng = Rng::new(mix(seed) ^ mix(u64::from(number) << 32 | 1));
    let mut one = || names[rng.below(names.len() as u64) as usize].clone();
    (0..of).map(|_| one()).collect()
}

/// The first `mixes` mixes of `of` programs.
pub fn cases(mixes: u32, of: u32, options: &Options) -> anyhow::Result<Vec<Ready>> {
    let mut options = options.clone();
    options.patience.get_or_insert(PATIENCE);
    let (all, _) = inputs::programs(options.programs.as_deref())?;
    let names: Vec<String> = all
        .iter()
        .filter(|(_, program)| program.sequential)
        .map(|(name, _)| name.clone())
        .collect();
    anyhow::ensure!(
        !names.is_empty(),
        "no program can be drawn: `sequential = true` marks those that can"
    );
    (0..mixes)
        .map(|i| Ready::new(&draw(&names, i, of, options.seed), 1, &options))
        .collect()
}

pub fn run(a: &MixArgs) -> anyhow::Result<ExitCode> {
    let cases = cases(a.mixes, a.of, &a.options)?;
    let reports = many::run(&cases, &a.output)?;
    match a.output.print {
        Format::Text => print!("{}", text(&reports)),
        Format::Csv => print!("{}", csv(&reports)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&reports)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a scheme does to many mixes, by one measure.
struct Summary {
    mean: f64,
    most: f64,
    /// Mixes that are slower than with memory off-chip alone.
    slower: usize,
    /// Of these, more than twice as slow.
    doubled: usize,
}

fn summary(values: impl Iterator<Item = f64>) -> Summary {
    let values: Vec<f64> = values.collect();
    let over = |limit| values.iter().filter(|&&v| v > limit).count();
    Summary {
        mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
        most: values.iter().copied().fold(0.0, f64::max),
        slower: over(1.0),
        doubled: over(2.0),
    }
}

fn text(reports: &[Report]) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    let rare = reports
        .iter()
        .filter(|r| r.turnovers < r.case.turnover)
        .count();
    let mut s = format!(
        "{} mixes of {} sequential programs (modelled; synthetic), time beside memory off-chip\n",
        reports.len(),
        first.case.programs.len()
    );
    if rare > 0 {
        s += &format!("{rare} page so rarely that stacked memory was not turned over\n");
    }
    let width = first
        .lines
        .iter()
        .map(|l| l.scheme.len())
        .max()
        .unwrap_or(0);
    s += &format!(
        "\n{:width$}  weighted                        slowest program\n\
         {:width$}      mean    most  slower   > 2x      mean    most  slower   > 2x\n",
        "", "scheme"
    );
    for (i, line) in first.lines.iter().enumerate().skip(1) {
        s += &format!("{:width$}", line.scheme);
        let measures: [fn(&Line) -> f64; 2] = [Line::weighted, Line::slowest];
        for measure in measures {
            let m = summary(reports.iter().map(|r| measure(&r.lines[i])));
            s += &format!(
                "  {:>8.3} {:>7.3} {:>7} {:>6}",
                m.mean, m.most, m.slower, m.doubled
            );
        }
        s.push('\n');
    }
    s
}

fn csv(reports: &[Report]) -> String {
    let mut s = String::from("mix,programs,turnovers,scheme,weighted,slowest,coherence,remaps\n");
    for (i, r) in reports.iter().enumerate() {
        for l in &r.lines {
            s += &format!(
                "{i},{},{:.2},\"{}\",{:.4},{:.4},{:.4},{}\n",
                r.case.programs.join("+"),
                r.turnovers,
                l.scheme,
                l.weighted(),
                l.slowest(),
                l.coherence,
                l.outcome.counts.remaps()
            );
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MixArgs,
    }

    fn mixes(words: &[&str]) -> MixArgs {
        Cli::parse_from(["mix"].iter().chain(words)).args
    }

    #[test]
    fn mixes_are_drawn_alike_by_a_seed_and_differ_by_number_and_seed() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let one = draw(&names, 1, 16, 7);
        assert_eq!(one.len(), 16);
        assert_eq!(draw(&names, 1, 16, 7), one);
        assert_ne!(draw(&names, 2, 16, 7), one);
        assert_ne!(draw(&names, 1, 16, 8), one);
        let all: Vec<String> = (0..9).flat_map(|i| draw(&names, i, 16, 7)).collect();
        for name in &names {
            let share = all.iter().filter(|drawn| *drawn == name).count();
            assert!((20..=52).contains(&share), "{name}: {share} of 144");
        }
    }

    #[test]
    fn a_summary_counts_what_is_slower() {
        let m = summary([0.5, 1.0, 1.5, 2.5].into_iter());
        assert_eq!((m.mean, m.most, m.slower, m.doubled), (1.375, 2.5, 2, 1));
    }

    #[test]
    fn a_mix_of_programs_runs_each_on_a_vcpu_of_its_own() {
        let a = mixes(&[
            "--mixes",
            "2",
            "--of",
            "3",
            "--accesses",
            "30000",
            "--patience",
            "300000",
            "--set",
            "memory.per_node=\"64 MiB\"",
            "--schemes",
            "ideal,hatric,software",
        ]);
        let names = vec!["chase".to_owned(), "trees".to_owned()];
        let cases: Vec<Ready> = (0..2)
            .map(|i| Ready::new(&draw(&names, i, 3, 1), 1, &a.options).unwrap())
            .collect();
        let reports = many::run(&cases, &a.output).unwrap();
        for r in &reports {
            let weighted: Vec<f64> = r.lines.iter().map(Line::weighted).collect();
            let [off, stacked, ideal, hatric, software] = weighted[..] else {
                panic!("{weighted:?}");
            };
            assert_eq!(off, 1.0);
            assert!(stacked < ideal && ideal <= hatric * 1.001 && hatric < software);
            assert!(r.lines.iter().all(|l| l.slowest() >= l.weighted()));
            assert_eq!(r.lines[4].programs.len(), 3);
        }
        let text = text(&reports);
        assert!(
            text.contains("2 mixes of 3") && text.contains("software"),
            "{text}"
        );
        assert_eq!(csv(&reports).lines().count(), 1 + 2 * 5);
    }
}
