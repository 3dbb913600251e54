// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench tape`: boots a machine for each number of vCPUs, follows the driver in
//! it, and writes the tapes and what was counted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use lens_hatric::tape::Tape;
use nearwalk_lab::{AccelChoice, Kernel, NodeSpec, Size, VmConfig, build_dir};

use super::{
    driver,
    guest::PAGE,
    model::{Event, Findings, Plan},
    table,
};
use crate::drive::{follow, sayer};

/// Far above any recording that gets on.
const TIME_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// What the kernel, the driver and the trace have of the fast node.
const OWN: u64 = 512;
const LEAST: Size = Size::mib(4);
const MOST: Size = Size::mib(512);

pub const HELP: &str = "\
Each number of vCPUs is a machine of its own, of a fast node and a slow one. In it a guest without
a kernel uses its memory by a seeded pattern, and CLOCK moves pages between the nodes. What that
makes KVM do comes from the kernel's trace and KVM's counters. Tapes are written to kvm-N.tape, the
table is printed and written to tape.txt, everything to tape.json and tape.csv in the output
directory. What fails is named, the others go on, and the exit status is 1.

Examples:
  nearwalk bench tape
  nearwalk bench tape --vcpus 4 --memory 64M --fast 16M --changes 5000
  nearwalk lens hatric tape build/bench/kvm-*.tape       what a move costs, by vCPUs";

#[derive(Debug, clap::Args)]
pub struct TapeArgs {
    /// vCPUs of the guest, a recording each: 1 to 8
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(1..=8))]
    vcpus: Vec<u32>,

    /// Memory that the guest uses, a power of two: 4M to 512M
    #[arg(long, value_name = "SIZE", default_value_t = Size::mib(32))]
    memory: Size,

    /// Memory that it may have on the fast node
    #[arg(long, value_name = "SIZE", default_value_t = Size::mib(8))]
    fast: Size,

    /// Pages to move, 2 to 20000
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(2..=20000))]
    changes: u32,

    /// Accesses of all vCPUs from one move to the next
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(8..=1_000_000_000))]
    pace: u32,

    /// What vCPUs draw their pages from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// What to boot, as for `nearwalk lab run`
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// Where to write results [default: bench in the build directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Be the driver in the machine
    #[arg(long, hide = true)]
    drive: bool,
}

impl TapeArgs {
    fn check(&self) -> anyhow::Result<()> {
        let (memory, fast) = (self.memory, self.fast);
        if !memory.bytes().is_power_of_two() || memory < LEAST || memory > MOST {
            bail!("--memory {memory}; allowed: a power of two from {LEAST} to {MOST}");
        }
        let most = Size::mib(memory.in_mib() - 1);
        if fast < Size::mib(1) || fast > most {
            bail!("--fast {fast} of {memory}; allowed: 1M to {most}");
        }
        Ok(())
    }

    fn plan(&self, vcpus: u32) -> Plan {
        Plan {
            vcpus,
            pages: self.memory.bytes() as usize / PAGE,
            fast: self.fast.bytes() as usize / PAGE,
            nodes: [0, 1],
            changes: self.changes as usize,
            share: self.pace / vcpus,
            seed: self.seed,
        }
    }

    /// A CPU for each vCPU, and one for the pager.
    fn config(&self, vcpus: u32) -> VmConfig {
        let [memory, fast] = [self.memory, self.fast].map(Size::in_mib);
        VmConfig {
            nodes: vec![
                NodeSpec {
                    cpus: 1 + vcpus,
                    memory: Size::mib(fast + OWN),
                },
                NodeSpec {
                    cpus: 0,
                    memory: Size::mib(memory + 96),
                },
            ],
            kernel: self.kernel.clone(),
            accel: AccelChoice::Tcg,
            // What moves pages by itself is not what is recorded.
            sysctls: vec![("kernel.numa_balancing".into(), "0".into())],
            timeout: Some(TIME_LIMIT),
            ..VmConfig::default()
        }
    }

    /// This program, to be run in the machine.
    fn driver(&self, vcpus: u32) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program = program
            .to_str()
            .with_context(|| format!("{} is no text", program.display()))?;
        let mut words: Vec<String> = [program, "bench", "tape"].map(String::from).into();
        words.extend([
            format!("--vcpus={vcpus}"),
            format!("--memory={}", self.memory),
            format!("--fast={}", self.fast),
            format!("--changes={}", self.changes),
            format!("--pace={}", self.pace),
            format!("--seed={}", self.seed),
            "--drive".into(),
        ]);
        Ok(words)
    }
}

/// Runs `nearwalk bench tape`.
pub fn run(args: &TapeArgs) -> anyhow::Result<ExitCode> {
    let status = |good: bool| match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    args.check()?;
    if args.drive {
        let done = args.vcpus.iter().all(|&n| driver::drive(&args.plan(n)));
        return Ok(status(done));
    }
    let output = match args.output.clone() {
        Some(output) => output,
        None => build_dir().join("bench"),
    };
    // Before the work, not after it.
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let findings = record(args, &output)?;
    eprintln!("results are in {}/tape.*", output.display());
    print!("{}", table::text(&findings));
    for why in &findings.failures {
        eprintln!("nearwalk: {why}");
    }
    Ok(status(findings.failures.is_empty()))
}

/// A machine for each number of vCPUs; what there is is written after each.
fn record(args: &TapeArgs, output: &Path) -> anyhow::Result<Findings> {
    let begin = Instant::now();
    let mut findings = Findings::default();
    for (index, &vcpus) in args.vcpus.iter().enumerate() {
        let label = format!("{}/{} {vcpus} vCPUs", index + 1, args.vcpus.len());
        let say = sayer(begin, label);
        say("booting the machine");
        let driver = args.driver(vcpus)?;
        let mut tapes = Vec::new();
        let told = |event| match event {
            Event::Step(text) => say(&text),
            Event::Recorded { sums, tape } => {
                findings.recorded.push(sums);
                tapes.push(tape);
            }
            Event::Failed(why) => findings.failures.push(format!("{vcpus} vCPUs: {why}")),
        };
        if let Err(error) = follow(&args.config(vcpus), driver, told, &say) {
            findings.failures.push(format!("{vcpus} vCPUs: {error:#}"));
        }
        for tape in tapes {
            let path = output.join(format!("kvm-{vcpus}.tape"));
            // The model is to take it.
            Tape::read(tape.as_bytes()).with_context(|| path.display().to_string())?;
            write(&path, &tape)?;
        }
        let json = serde_json::to_string_pretty(&findings)? + "\n";
        write(&output.join("tape.txt"), &table::text(&findings))?;
        write(&output.join("tape.csv"), &table::csv(&findings))?;
        write(&output.join("tape.json"), &json)?;
    }
    Ok(findings)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::guest::MOST_PAGES;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(flatten)]
        args: TapeArgs,
    }

    fn parse(words: &[&str]) -> Result<TapeArgs, String> {
        let words = ["tape"].iter().chain(words);
        Bench::try_parse_from(words)
            .map(|bench| bench.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_driver_gets_the_same_plan() {
        let args = parse(&["--memory=16M", "--fast=3M", "--changes=9", "--seed=7"]).unwrap();
        let words = args.driver(4).unwrap();
        let words: Vec<&str> = words[3..].iter().map(String::as_str).collect();
        let driver = parse(&words).unwrap();
        assert!(driver.drive);
        assert_eq!(driver.vcpus, [4]);
        assert_eq!(driver.plan(4), args.plan(4));
        assert_eq!((driver.plan(4).fast, driver.plan(4).share), (768, 2500));
    }

    #[test]
    fn vcpus_and_the_pager_have_a_cpu_each() {
        let args = parse(&[]).unwrap();
        args.check().unwrap();
        assert_eq!(args.vcpus, [2, 4, 8]);
        let config = args.config(8);
        assert_eq!((config.nodes[0].cpus, config.nodes[1].cpus), (9, 0));
        config.validate().unwrap();
        assert!(MOST.bytes() as usize <= MOST_PAGES * PAGE);
    }

    #[test]
    fn what_cannot_be_names_the_value_and_what_can() {
        for (words, value, allowed) in [
            (vec!["--memory=24M"], "--memory 24M", "power of two from 4M"),
            (vec!["--memory=1G"], "--memory 1G", "to 512M"),
            (vec!["--fast=32M"], "--fast 32M of 32M", "1M to 31M"),
            (vec!["--fast=0M"], "--fast 0M", "1M to 31M"),
        ] {
            let error = parse(&words).unwrap().check().unwrap_err().to_string();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
        for (word, value, allowed) in [
            ("--vcpus=0", "0", "1..=8"),
            ("--vcpus=2,9", "9", "1..=8"),
            ("--changes=1", "1", "2..=20000"),
            ("--pace=7", "7", "8..=1000000000"),
            ("--fast=512K", "512K", "a whole number with M"),
            ("--kernel=none", "none", "stock"),
        ] {
            let error = parse(&[word]).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }
}
