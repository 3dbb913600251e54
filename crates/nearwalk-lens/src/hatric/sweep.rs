// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric sweep`.

use super::case::{Options, Ready, Report};
use super::many::{self, Format, Output};
use anyhow::{Context, bail};
use clap::Args;
use std::process::ExitCode;

/// What can be varied beside keys of the machine, which have a dot or are `clock`.
const KEYS: &str = "vcpus, policy, copy-wait, stolen-daemon, defragment, scale, turnover, accesses, seed, \
    program.base and others that --scale-program has, \
    or a key of the machine file like part.hatric.exit";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens hatric sweep canneal,graph500 --vary vcpus=4,8,16 --out vcpus.jsonl\n  \
    nearwalk lens hatric sweep canneal --vary scale=1,2,4 --vary policy=clock,clock+daemon\n  \
    nearwalk lens hatric sweep canneal --apart --vary copy-wait=0,0.5 \\\n    \
    --vary 'part.hatric.exit=650 cycles,2600 cycles' --print csv")]
pub struct SweepArgs {
    /// Programs, each in a VM of its own; a plus puts several into one VM
    #[arg(value_delimiter = ',', required = true)]
    program: Vec<String>,
    /// vCPUs of each program, a thread on each
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    vcpus: u32,
    /// An option, or a key of the machine file, and its values. Commas are between
    /// values, unless there are semicolons
    #[arg(long, value_name = "KEY=VALUE,..", required = true)]
    vary: Vec<String>,
    /// Vary one key at a time and leave all others as they are; without this, all
    /// combinations are run
    #[arg(long)]
    apart: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    output: Output,
}

/// Keys that mean nothing where a tape takes the pager's place.
const OF_THE_PAGER: [&str; 4] = ["policy", "turnover", "defragment", "stolen-daemon"];

/// A key and a value for it.
type Choice = (String, String);

fn values(text: &str) -> anyhow::Result<Vec<Choice>> {
    let pair = text
        .split_once('=')
        .filter(|(_, values)| !values.is_empty());
    let (key, values) = pair.with_context(|| format!("--vary {text}: KEY=VALUE,.. is allowed"))?;
    let between = if values.contains(';') { ';' } else { ',' };
    let values = values.split(between);
    Ok(values
        .map(|value| (key.to_owned(), value.trim().to_owned()))
        .collect())
}

/// All combinations; or, apart, one choice each after a case without any.
fn combinations(lists: &[Vec<Choice>], apart: bool) -> Vec<Vec<Choice>> {
    if apart {
        let each = lists.iter().flatten().map(|choice| vec![choice.clone()]);
        return std::iter::once(Vec::new()).chain(each).collect();
    }
    lists.iter().fold(vec![Vec::new()], |sets, list| {
        let with = |set: &Vec<Choice>| {
            let set = set.clone();
            let add = move |choice: &Choice| {
                let mut set = set.clone();
                set.push(choice.clone());
                set
            };
            list.iter().map(add).collect::<Vec<_>>()
        };
        sets.iter().flat_map(with).collect()
    })
}

fn number<T: std::str::FromStr>((key, value): &Choice) -> anyhow::Result<T> {
    let parsed = value.parse().ok();
    parsed.with_context(|| format!("--vary {key}={value}: a number is allowed"))
}

fn apply(choice: &Choice, vcpus: &mut u32, o: &mut Options) -> anyhow::Result<()> {
    let (key, value) = choice;
    if o.tape.is_some() && OF_THE_PAGER.contains(&key.as_str()) {
        bail!("--vary {key} beside --tape, which is played in place of the pager");
    }
    match key.as_str() {
        "vcpus" => *vcpus = number(choice)?,
        "policy" => o.policy.clone_from(value),
        "copy-wait" => o.copy_wait = number(choice)?,
        "stolen-daemon" => {
            o.stolen_daemon = match value.as_str() {
                "yes" => true,
                "no" => false,
                _ => bail!("--vary {key}={value}: yes or no is allowed"),
            }
        }
        "defragment" => o.defragment = number(choice)?,
        "scale" => o.scale = number(choice)?,
        "turnover" => o.turnover = number(choice)?,
        "accesses" => o.accesses = number(choice)?,
        "seed" => o.seed = number(choice)?,
        key if key.starts_with("program.") => {
            let key = &key["program.".len()..];
            o.scale_program.push(format!("{key}={value}"));
        }
        key if key.contains('.') || key == "clock" => o.set.push(format!("{key}={value}")),
        _ => bail!("--vary {key}: there are {KEYS}"),
    }
    Ok(())
}

/// Makes one choice, `KEY=VALUE`, that does not change how many vCPUs there are.
pub fn vary(text: &str, o: &mut Options) -> anyhow::Result<()> {
    let pair = text.split_once('=').with_context(|| text.to_owned())?;
    apply(&(pair.0.to_owned(), pair.1.to_owned()), &mut 0, o)
}

fn label(choices: &[Choice]) -> String {
    if choices.is_empty() {
        return "as given".to_owned();
    }
    let each = choices.iter().map(|(key, value)| format!("{key}={value}"));
    each.collect::<Vec<_>>().join(" ")
}

pub fn run(a: &SweepArgs) -> anyhow::Result<ExitCode> {
    let lists = a.vary.iter().map(|text| values(text));
    let lists = lists.collect::<anyhow::Result<Vec<_>>>()?;
    let mut labels = Vec::new();
    let mut cases = Vec::new();
    for programs in &a.program {
        let programs: Vec<String> = programs.split('+').map(str::to_owned).collect();
        for choices in combinations(&lists, a.apart) {
            let mut vcpus = a.vcpus;
            let mut options = a.options.clone();
            for choice in &choices {
                apply(choice, &mut vcpus, &mut options)?;
            }
            let what = label(&choices);
            cases.push(Ready::new(&programs, vcpus, &options).with_context(|| what.clone())?);
            labels.push(what);
        }
    }
    let reports = many::run(&cases, &a.output)?;
    match a.output.print {
        Format::Text => print!("{}", text(&labels, &reports)),
        Format::Csv => print!("{}", csv(&labels, &reports)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&reports)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Times beside memory off-chip, a line for each case; then the least and most that
/// each scheme got of each program.
fn text(labels: &[String], reports: &[Report]) -> String {
    let mut s = String::from("Time beside memory off-chip (modelled; synthetic programs)\n");
    let width = labels.iter().map(String::len).max().unwrap_or(0);
    let mut at = 0;
    while at < reports.len() {
        let of = |r: &Report| r.case.programs.join(" + ");
        let name = of(&reports[at]);
        let end = reports[at..].iter().position(|r| of(r) != name);
        let end = end.map_or(reports.len(), |n| at + n);
        let schemes: Vec<&str> = reports[at].lines[1..].iter().map(|l| &*l.scheme).collect();
        s += &format!("\n{name}\n{:width$}", "");
        for scheme in &schemes {
            s += &format!(" {scheme:>11}");
        }
        s.push('\n');
        let row = |what: &str, values: &dyn Fn(usize) -> f64| {
            let mut line = format!("{what:width$}");
            for (i, scheme) in schemes.iter().enumerate() {
                line += &format!(" {:>1$.3}", values(i + 1), scheme.len().max(11));
            }
            line + "\n"
        };
        for (what, r) in labels[at..end].iter().zip(&reports[at..end]) {
            s += &row(what, &|i| r.lines[i].relative);
        }
        let over = |i: usize, from: f64, pick: fn(f64, f64) -> f64| {
            let all = reports[at..end].iter().map(|r| r.lines[i].relative);
            all.fold(from, pick)
        };
        s += &row("least", &|i| over(i, f64::INFINITY, f64::min));
        s += &row("most", &|i| over(i, 0.0, f64::max));
        at = end;
    }
    s
}

fn csv(labels: &[String], reports: &[Report]) -> String {
    let mut s =
        String::from("programs,varied,scheme,relative,coherence,walks,copies,remaps,accesses\n");
    for (what, r) in labels.iter().zip(reports) {
        for l in &r.lines {
            let c = &l.outcome.counts;
            s += &format!(
                "{},\"{what}\",\"{}\",{:.4},{:.4},{:.4},{:.4},{},{}\n",
                r.case.programs.join("+"),
                l.scheme,
                l.relative,
                l.coherence,
                l.walks,
                l.copies,
                c.remaps(),
                c.accesses
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
        args: SweepArgs,
    }

    fn sweep(words: &[&str]) -> anyhow::Result<ExitCode> {
        // A machine on which memory is turned over at once.
        let small = [
            "--set",
            "memory.per_node=\"64 MiB\"",
            "--accesses",
            "20000",
            "--schemes",
            "ideal,software",
        ];
        let words = ["sweep"].iter().chain(words).chain(&small);
        run(&Cli::parse_from(words).args)
    }

    #[test]
    fn choices_are_combined_or_made_apart() {
        let lists = [
            values("scale=1,2").unwrap(),
            values("policy=fifo;clock+daemon").unwrap(),
        ];
        let labels = |apart| -> Vec<String> {
            let sets = combinations(&lists, apart);
            sets.iter().map(|set| label(set)).collect()
        };
        assert_eq!(
            labels(false),
            [
                "scale=1 policy=fifo",
                "scale=1 policy=clock+daemon",
                "scale=2 policy=fifo",
                "scale=2 policy=clock+daemon"
            ]
        );
        assert_eq!(
            labels(true),
            [
                "as given",
                "scale=1",
                "scale=2",
                "policy=fifo",
                "policy=clock+daemon"
            ]
        );
    }

    #[test]
    fn a_sweep_goes_on_where_it_was_and_refuses_files_of_other_models() {
        let file =
            std::env::temp_dir().join(format!("nearwalk-hatric-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let out = file.to_str().unwrap();
        let text = || std::fs::read_to_string(&file).unwrap();
        sweep(&["canneal", "--vary", "vcpus=2", "--out", out]).unwrap();
        let first = text();
        sweep(&["canneal", "--vary", "vcpus=2,4", "--out", out]).unwrap();
        assert!(text().starts_with(&first), "what was done is kept");
        let vcpus: Vec<u32> = text()
            .lines()
            .map(|line| serde_json::from_str::<Report>(line).unwrap())
            .inspect(|report| assert_eq!(report.lines.len(), 4))
            .map(|report| report.case.vcpus)
            .collect();
        assert_eq!(vcpus, [2, 4]);
        let refused = |key: &str, value: serde_json::Value, says: &str| {
            let mut line: serde_json::Value =
                serde_json::from_str(first.lines().next().unwrap()).unwrap();
            line["case"][key] = value;
            std::fs::write(&file, format!("{line}\n")).unwrap();
            let e = sweep(&["canneal", "--vary", "vcpus=2", "--out", out]).unwrap_err();
            assert!(format!("{e:#}").contains(says), "{e:#}");
        };
        refused("model", "hatric-0".into(), "line 1 is of model hatric-0");
        refused("fingerprint", 1.into(), "were others");
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_cannot_be_varied_is_named_before_anything_runs() {
        for (vary, says) in [
            ("speed=1", "--vary speed: there are vcpus"),
            ("scale", "--vary scale: KEY=VALUE"),
            ("scale=big", "--vary scale=big: a number"),
            ("scale=17", "scale is 17; 1 to 16"),
            ("stolen-daemon=maybe", "yes or no"),
            ("vcpus=33", "at most 32"),
            ("part.hatric.exits=1", "exits"),
        ] {
            let e = sweep(&["canneal", "--vary", vary]).unwrap_err();
            assert!(format!("{e:#}").contains(says), "{vary}: {e:#}");
        }
    }
}
