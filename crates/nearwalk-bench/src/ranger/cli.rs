// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench ranger`: boots a machine for each setting, follows the driver in it,
//! and writes the results.

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
    plan::{Mixture, Program, Setting},
    table,
};
use crate::{
    drive::{follow, sayer},
    guest::install_as,
};

const FRAGMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fragment"));
const WORKLOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/workload"));

/// Far above any setting that gets on.
const TIME_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);
const LEAST: Size = Size::mib(512);
const MOST: Size = Size::gib(12);

pub const HELP: &str = "\
Each setting is a machine of its own. In it, memory is fragmented by a seeded mixture, then a
program does step after step, each beside a pass if one is due; after each its memory is looked
at as `nearwalk contiguity` does. A step stands for the 5 seconds of the thesis. Tables are
printed and written to ranger.txt, everything to ranger.json and ranger.csv in the output
directory. What fails is named, the others go on, and the exit status is 1.

Examples:
  nearwalk bench ranger
  nearwalk bench ranger --programs stencil --settings default,ranger --memory 2G
  nearwalk bench ranger --programs stencil --settings ranger,align-none,align-1g,first-fit
  nearwalk bench ranger --memory 8G                  a footprint above 6 GiB";

#[derive(Debug, clap::Args)]
pub struct RangerArgs {
    /// What runs
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PROGRAM",
        default_value = "stencil,gups,xs,workers,churn"
    )]
    programs: Vec<Program>,

    /// How the kernel is set
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SETTING",
        default_value = "default,khugepaged,ranger,ranger-slow"
    )]
    settings: Vec<Setting>,

    /// Memory of the machine, 512M to 12G
    #[arg(long, value_name = "SIZE", default_value_t = Size::gib(1))]
    memory: Size,

    /// Steps of each program
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(5..=1000))]
    steps: u32,

    /// Part of the free memory that programs use, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95,
          value_parser = clap::value_parser!(u32).range(10..=95))]
    share: u32,

    /// What is drawn when memory is fragmented, and by programs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Files that are made for each MiB of the machine; a fourth of them stays
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(0..=64))]
    files: u32,

    /// Blocks of 2 MiB of which another process holds a page, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 25,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    hold: u32,

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

impl RangerArgs {
    fn check(&self) -> anyhow::Result<()> {
        if self.memory < LEAST || self.memory > MOST {
            bail!("--memory {}; allowed: {LEAST} to {MOST}", self.memory);
        }
        Ok(())
    }

    fn mixture(&self) -> Mixture {
        Mixture {
            seed: self.seed,
            files: self.files,
            hold: self.hold,
            share: self.share,
            steps: self.steps,
        }
    }

    /// One node, as one socket in the thesis.
    fn config(&self) -> VmConfig {
        let sysctls = [("kernel.numa_balancing", "0")];
        VmConfig {
            nodes: vec![NodeSpec {
                cpus: 2,
                memory: self.memory,
            }],
            kernel: self.kernel.clone(),
            accel: AccelChoice::Tcg,
            sysctls: sysctls.map(|(n, v)| (n.into(), v.into())).into(),
            timeout: Some(TIME_LIMIT),
            ..VmConfig::default()
        }
    }

    /// This program, to be run in the machine.
    fn driver(&self, setting: Setting) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program = program
            .to_str()
            .with_context(|| format!("{} is no text", program.display()))?;
        let programs: Vec<String> = self.programs.iter().map(Program::to_string).collect();
        let mut words: Vec<String> = [program, "bench", "ranger"].map(String::from).into();
        words.extend([
            format!("--programs={}", programs.join(",")),
            format!("--settings={setting}"),
            format!("--memory={}", self.memory),
            format!("--steps={}", self.steps),
            format!("--share={}", self.share),
            format!("--seed={}", self.seed),
            format!("--files={}", self.files),
            format!("--hold={}", self.hold),
            "--drive".into(),
        ]);
        Ok(words)
    }

    fn task(&self) -> anyhow::Result<Task> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Task {
            setting: *self.settings.first().context("no setting")?,
            programs: self.programs.clone(),
            mixture: self.mixture(),
            tools: build_dir().join("bench"),
            module: build_dir()
                .join("module")
                .join(release.trim())
                .join("nearwalk_ptdump.ko"),
        })
    }
}

/// Runs `nearwalk bench ranger`.
pub fn run(args: &RangerArgs) -> anyhow::Result<ExitCode> {
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
    install_as("fragment", FRAGMENT)?;
    install_as("workload", WORKLOAD)?;
    let findings = count(args, &output)?;
    eprintln!("results are in {}/ranger.*", output.display());
    print!("{}", table::text(&findings));
    for why in &findings.failures {
        eprintln!("nearwalk: {why}");
    }
    Ok(status(findings.failures.is_empty()))
}

/// A machine for each setting, one after the other; what there is is written after each.
fn count(args: &RangerArgs, output: &Path) -> anyhow::Result<Findings> {
    let begin = Instant::now();
    let mut findings = Findings::default();
    for (index, &setting) in args.settings.iter().enumerate() {
        let label = format!("{}/{} {setting}", index + 1, args.settings.len());
        let say = sayer(begin, label);
        say("booting the machine");
        let driver = args.driver(setting)?;
        let told = |event| match event {
            Event::Step(text) => say(&text),
            event => findings.add(event),
        };
        if let Err(error) = follow(&args.config(), driver, told, &say) {
            findings.failures.push(format!("{setting}: {error:#}"));
        }
        write(&findings, output)?;
    }
    Ok(findings)
}

fn write(findings: &Findings, output: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(findings)? + "\n";
    for (name, text) in [
        ("ranger.txt", table::text(findings)),
        ("ranger.csv", table::csv(findings)),
        ("ranger.json", json),
    ] {
        let path = output.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::plan::Class, *};
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(flatten)]
        args: RangerArgs,
    }

    fn parse(words: &[&str]) -> Result<RangerArgs, String> {
        let words = ["ranger"].iter().chain(words);
        Bench::try_parse_from(words)
            .map(|bench| bench.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_driver_gets_the_same_plan() {
        let args = parse(&["--programs=xs,churn", "--seed=7", "--steps=9", "--hold=50"]).unwrap();
        let words = args.driver(Setting::Align1G).unwrap();
        let words: Vec<&str> = words[3..].iter().map(String::as_str).collect();
        let driver = parse(&words).unwrap();
        assert!(driver.drive);
        assert_eq!(driver.settings, [Setting::Align1G]);
        assert_eq!(driver.programs, [Program::Xs, Program::Churn]);
        assert_eq!(driver.mixture(), args.mixture());
        assert_eq!(driver.memory, args.memory);
    }

    #[test]
    fn by_default_it_is_the_figures_of_the_thesis() {
        let args = parse(&[]).unwrap();
        args.check().unwrap();
        assert_eq!(args.settings.len(), 4);
        let published = |setting: &Setting| setting.published(Class::A).is_some();
        assert!(args.settings.iter().all(published));
        assert_eq!(args.programs.len(), 5);
        assert_eq!(args.config().memory(), Size::gib(1));
    }

    #[test]
    fn what_cannot_be_names_the_value_and_what_can() {
        let text = parse(&["--memory=64M"]).unwrap().check().unwrap_err();
        let text = text.to_string();
        assert!(
            text.contains("64M") && text.contains("512M to 12G"),
            "{text}"
        );
        for (word, value, allowed) in [
            ("--programs=doom", "doom", "stencil"),
            ("--settings=fast", "fast", "ranger-slow"),
            ("--share=99", "99", "10..=95"),
            ("--steps=1", "1", "5..=1000"),
            ("--hold=101", "101", "0..=100"),
        ] {
            let error = parse(&[word]).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }
}
