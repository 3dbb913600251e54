// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench tier`: boots a machine for each policy, follows the driver in it, and
//! writes the results.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nearwalk_lab::{AccelChoice, Kernel, NodeSpec, Size, VmConfig, build_dir};

use super::{
    driver::{self, Task},
    model::{Event, Findings},
    plan::{Load, Policy, Program},
    table,
};
use crate::{
    drive::{follow, sayer},
    guest::install_as,
};

const TIERED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tiered"));

/// Far above any policy that gets on.
const TIME_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);
/// What the kernel and the driver have of the fast node.
const OWN: u64 = 384;
const LEAST: Size = Size::mib(32);
const MOST: Size = Size::gib(4);

pub const HELP: &str = "\
Each policy is a machine of its own, of two nodes. Fast memory, slow memory and what a program uses
are 1 : 2.5 : 2, as in the thesis. A program does step after step, with a round of memory.tier
before each, and counts its accesses by the node that has the page. Tables are printed and written
to tier.txt, everything to tier.json and tier.csv in the output directory. What fails is named, the
others go on, and the exit status is 1.

Examples:
  nearwalk bench tier
  nearwalk bench tier --programs kv --policies thp,exchange --steps 30
  nearwalk bench tier --fast 32M --of 16           the fast node has an eighth of the footprint";

#[derive(Debug, clap::Args)]
pub struct TierArgs {
    /// What runs
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PROGRAM",
        default_value = "kv,xs,graph"
    )]
    programs: Vec<Program>,

    /// What moves pages
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "POLICY",
        default_value = "all-slow,stay,base,base-exchange,thp,exchange,all-fast"
    )]
    policies: Vec<Policy>,

    /// Memory that a program may have on the fast node, 32M to 4G
    #[arg(long, value_name = "SIZE", default_value_t = Size::mib(128))]
    fast: Size,

    /// The footprint is so many times that, in halves: 4 is twice
    #[arg(long, value_name = "HALVES", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=16))]
    of: u32,

    /// Steps of each program
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(4..=1000))]
    steps: u32,

    /// Accesses of a step
    #[arg(long, value_name = "N", default_value_t = 500_000,
          value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    accesses: u64,

    /// What programs draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Nearwalk's kernel, as for `nearwalk lab run`
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// Where to write results [default: bench in the build directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Be the driver in the machine
    #[arg(long, hide = true)]
    drive: bool,
}

impl TierArgs {
    fn check(&self) -> anyhow::Result<()> {
        if self.fast < LEAST || self.fast > MOST {
            bail!("--fast {}; allowed: {LEAST} to {MOST}", self.fast);
        }
        Ok(())
    }

    fn load(&self) -> Load {
        Load {
            footprint: self.fast.bytes() / 2 * u64::from(self.of),
            fast: self.fast.bytes(),
            steps: self.steps,
            accesses: self.accesses,
            seed: self.seed,
        }
    }

    /// The fast node has room for what programs do not have there, too; how much they
    /// have is bounded by their group.
    fn config(&self, policy: Policy) -> VmConfig {
        let load = self.load();
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let on_fast = match policy {
            Policy::AllFast => load.footprint,
            _ => load.fast,
        };
        // 1.25 times what is used, as 40 GB are of 32.
        let on_slow = load.footprint / 4 * 5;
        let sysctls = [("kernel.numa_balancing", "0"), ("vm.swappiness", "0")];
        VmConfig {
            nodes: vec![
                NodeSpec {
                    cpus: 4,
                    memory: Size::mib(mib(on_fast) + OWN),
                },
                NodeSpec {
                    cpus: 0,
                    memory: Size::mib(mib(on_slow) + 32),
                },
            ],
            kernel: self.kernel.clone(),
            accel: AccelChoice::Tcg,
            sysctls: sysctls.map(|(n, v)| (n.into(), v.into())).into(),
            timeout: Some(TIME_LIMIT),
            ..VmConfig::default()
        }
    }

    /// This program, to be run in the machine.
    fn driver(&self, policy: Policy) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program = program
            .to_str()
            .with_context(|| format!("{} is no text", program.display()))?;
        let programs: Vec<String> = self.programs.iter().map(Program::to_string).collect();
        let mut words: Vec<String> = [program, "bench", "tier"].map(String::from).into();
        words.extend([
            format!("--programs={}", programs.join(",")),
            format!("--policies={policy}"),
            format!("--fast={}", self.fast),
            format!("--of={}", self.of),
            format!("--steps={}", self.steps),
            format!("--accesses={}", self.accesses),
            format!("--seed={}", self.seed),
            "--drive".into(),
        ]);
        Ok(words)
    }

    fn task(&self) -> anyhow::Result<Task> {
        Ok(Task {
            policy: *self.policies.first().context("no policy")?,
            programs: self.programs.clone(),
            load: self.load(),
            tools: build_dir().join("bench"),
        })
    }
}

/// Runs `nearwalk bench tier`.
pub fn run(args: &TierArgs) -> anyhow::Result<ExitCode> {
    let status = |good: bool| match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    args.check()?;
    if args.drive {
        return Ok(status(driver::drive(&args.task()?)));
    }
    let output = match args.output.clone() {
        Some(output) => output,
        None => build_dir().join("bench"),
    };
    // Before the work, not after it.
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    install_as("tiered", TIERED)?;
    let findings = count(args, &output)?;
    eprintln!("results are in {}/tier.*", output.display());
    print!("{}", table::text(&findings));
    for why in &findings.failures {
        eprintln!("nearwalk: {why}");
    }
    Ok(status(findings.failures.is_empty()))
}

/// A machine for each policy, one after the other; what there is is written after each.
fn count(args: &TierArgs, output: &Path) -> anyhow::Result<Findings> {
    let begin = Instant::now();
    let mut findings = Findings::default();
    for (index, &policy) in args.policies.iter().enumerate() {
        let label = format!("{}/{} {policy}", index + 1, args.policies.len());
        let say = sayer(begin, label);
        say("booting the machine");
        let driver = args.driver(policy)?;
        let told = |event| match event {
            Event::Step(text) => say(&text),
            event => findings.add(event),
        };
        if let Err(error) = follow(&args.config(policy), driver, told, &say) {
            findings.failures.push(format!("{policy}: {error:#}"));
        }
        write(&findings, output)?;
    }
    Ok(findings)
}

fn write(findings: &Findings, output: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(findings)? + "\n";
    for (name, text) in [
        ("tier.txt", table::text(findings)),
        ("tier.csv", table::csv(findings)),
        ("tier.json", json),
    ] {
        let path = output.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(flatten)]
        args: TierArgs,
    }

    fn parse(words: &[&str]) -> Result<TierArgs, String> {
        let words = ["tier"].iter().chain(words);
        Bench::try_parse_from(words)
            .map(|bench| bench.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_driver_gets_the_same_plan() {
        let args = parse(&["--programs=kv", "--fast=64M", "--of=16", "--seed=7"]).unwrap();
        let words = args.driver(Policy::BaseExchange).unwrap();
        let words: Vec<&str> = words[3..].iter().map(String::as_str).collect();
        let driver = parse(&words).unwrap();
        assert!(driver.drive);
        assert_eq!(driver.policies, [Policy::BaseExchange]);
        assert_eq!(driver.load(), args.load());
        assert_eq!(driver.load().footprint, 512 << 20);
    }

    #[test]
    fn nodes_are_as_large_as_in_the_thesis() {
        let args = parse(&[]).unwrap();
        args.check().unwrap();
        let memory = |policy, node: usize| args.config(policy).nodes[node].memory;
        assert_eq!(args.load().footprint, 2 * args.load().fast);
        assert_eq!(memory(Policy::Thp, 0), Size::mib(128 + OWN));
        assert_eq!(memory(Policy::Thp, 1), Size::mib(320 + 32));
        assert_eq!(memory(Policy::AllFast, 0), Size::mib(256 + OWN));
    }

    #[test]
    fn what_cannot_be_names_the_value_and_what_can() {
        let text = parse(&["--fast=1M"]).unwrap().check().unwrap_err();
        let text = text.to_string();
        assert!(text.contains("1M") && text.contains("32M to 4G"), "{text}");
        for (word, value, allowed) in [
            ("--programs=doom", "doom", "graph"),
            ("--policies=best", "best", "base-exchange"),
            ("--of=1", "1", "2..=16"),
            ("--steps=0", "0", "4..=1000"),
            ("--accesses=1", "1", "1000..=1000000000"),
        ] {
            let error = parse(&[word]).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }
}
