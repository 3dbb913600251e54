// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench vm`: boots a machine for each part, follows the driver in it, and
//! writes the results.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nearwalk_lab::{AccelChoice, Kernel, NodeSpec, Size, VmConfig};

use super::{
    inside, machine,
    model::{Event, Findings},
    picture,
    plan::{OURS, Part, Plan, STOCK},
    table,
};
use crate::drive::{follow, sayer};

/// Far above any part that gets on.
const TIME_LIMIT: Duration = Duration::from_secs(60 * 60);
/// What the machine keeps of each node for itself.
const OWN: u64 = 384;

pub const HELP: &str = "\
Each part is a run of the machine, in which guests of KVM run, one after the other. All that is
shown is counted. The tables are printed and written to vm.txt, everything to vm.json and vm.csv,
pictures to vm-*.svg in the output directory. A part that fails is named, the others go on, and
the exit status is 1.

Examples:
  nearwalk bench vm
  nearwalk bench vm --parts walks --quick
  nearwalk bench vm --parts tables --nodes 2 --guest-memory 512M --fill 192M";

#[derive(Debug, clap::Args)]
pub struct VmArgs {
    /// What to count
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART",
        default_value = "walks,misplaced,tables,move,faults,cost"
    )]
    parts: Vec<Part>,

    /// Nodes of the machine, and of wide guests: 2 to 8
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=8))]
    nodes: u32,

    /// Memory of a guest, all of its nodes together
    #[arg(long, value_name = "SIZE", default_value_t = Size::gib(1))]
    guest_memory: Size,

    /// Memory that the program in a guest uses, up to half of the guest's
    #[arg(long, value_name = "SIZE", default_value_t = Size::mib(256))]
    fill: Size,

    /// How long a guest that was moved is watched
    #[arg(long, value_name = "SECS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: u64,

    /// Only the settings that differ most
    #[arg(long)]
    quick: bool,

    /// Nearwalk's kernel, for the machine and its guests, as for `nearwalk lab run`
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// The kernel to compare with
    #[arg(long, value_name = "KERNEL", default_value = "stock")]
    stock_kernel: Kernel,

    /// Where to write results [default: bench in the build directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Be the driver in the machine, whose kernel is called this
    #[arg(long, hide = true, value_name = "NAME")]
    drive: Option<String>,

    /// Be the program in a guest
    #[arg(long, hide = true)]
    inside: bool,
}

impl VmArgs {
    fn plan(&self, host: &str) -> anyhow::Result<Plan> {
        let (memory, fill) = (self.guest_memory, self.fill);
        let least = Size::mib(128 * u64::from(self.nodes));
        if memory < least {
            bail!(
                "--guest-memory {memory} for {} nodes; allowed: {least} or more",
                self.nodes
            );
        }
        if fill.bytes() > memory.bytes() / 2 || fill < Size::mib(8) {
            bail!(
                "--fill {fill} in a guest of {memory}; allowed: 8M to {}",
                Size::mib(memory.in_mib() / 2)
            );
        }
        Ok(Plan {
            nodes: self.nodes,
            memory,
            fill,
            quick: self.quick,
            watch: Duration::from_secs(self.watch),
            kernel: self.kernel.clone(),
            host: host.to_owned(),
        })
    }

    /// Runs of the machine for a part: which kernel, as the tables call it.
    fn runs(&self, part: Part) -> Vec<(&'static str, &Kernel)> {
        let mut runs = vec![(OURS, &self.kernel)];
        if matches!(part, Part::Faults | Part::Cost) {
            runs.insert(0, (STOCK, &self.stock_kernel));
        }
        runs
    }

    fn config(&self, part: Part, kernel: &Kernel) -> VmConfig {
        // A thin guest has room on one node, wherever it is.
        let own = self.guest_memory.in_mib() / u64::from(self.nodes);
        let node = |memory| NodeSpec {
            cpus: 1,
            memory: Size::mib(memory + OWN),
        };
        let mut nodes = vec![node(own); self.nodes as usize];
        if part == Part::Move {
            for index in [0, nodes.len() - 1] {
                nodes[index] = node(self.guest_memory.in_mib());
            }
        }
        if part == Part::Cost {
            nodes = vec![
                NodeSpec {
                    cpus: 2,
                    memory: Size::mib(512),
                };
                2
            ];
        }
        VmConfig {
            nodes,
            kernel: kernel.clone(),
            accel: AccelChoice::Tcg,
            icount: part == Part::Cost,
            // What moves pages by itself is not what is counted.
            sysctls: vec![("kernel.numa_balancing".into(), "0".into())],
            timeout: Some(TIME_LIMIT),
            ..VmConfig::default()
        }
    }

    /// This program, to be run in the machine.
    fn driver(&self, part: Part, host: &str) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program = program
            .to_str()
            .with_context(|| format!("{} is no text", program.display()))?;
        let mut words: Vec<String> = [program, "bench", "vm"].map(String::from).into();
        words.extend([
            format!("--parts={part}"),
            format!("--nodes={}", self.nodes),
            format!("--guest-memory={}", self.guest_memory),
            format!("--fill={}", self.fill),
            format!("--watch={}", self.watch),
            format!("--kernel={}", self.kernel),
            format!("--drive={host}"),
        ]);
        if self.quick {
            words.push("--quick".into());
        }
        Ok(words)
    }
}

/// Runs `nearwalk bench vm`.
pub fn run(args: &VmArgs) -> anyhow::Result<ExitCode> {
    if args.inside {
        inside::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(host) = &args.drive {
        let plan = args.plan(host)?;
        let done = args.parts.iter().all(|part| machine::drive(*part, &plan));
        return Ok(if done {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    args.plan(OURS)?;
    let output = match args.output.clone() {
        Some(output) => output,
        None => nearwalk_lab::build_dir().join("bench"),
    };
    // Before the work, not after it.
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let findings = count(args)?;
    write(&findings, &output)?;
    print!("{}", table::text(&findings));
    for why in &findings.failures {
        eprintln!("nearwalk: {why}");
    }
    Ok(match findings.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the parts, each in machines of its own.
pub fn count(args: &VmArgs) -> anyhow::Result<Findings> {
    let begin = Instant::now();
    let mut findings = Findings::default();
    let runs: Vec<(Part, &str, &Kernel)> = args
        .parts
        .iter()
        .flat_map(|&part| {
            let runs = args.runs(part).into_iter();
            runs.map(move |(host, kernel)| (part, host, kernel))
        })
        .collect();
    for (index, (part, host, kernel)) in runs.iter().enumerate() {
        let label = format!("{}/{} {part}, {host} kernel", index + 1, runs.len());
        let say = sayer(begin, label);
        say("booting the machine");
        let config = args.config(*part, kernel);
        let driver = args.driver(*part, host)?;
        let told = |event| match event {
            Event::Step(text) => say(&text),
            event => findings.add(event),
        };
        if let Err(error) = follow(&config, driver, told, &say) {
            findings.failures.push(format!("{part}: {error:#}"));
        }
    }
    Ok(findings)
}

fn write(findings: &Findings, output: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(findings)? + "\n";
    let mut files = vec![
        ("vm.txt", table::text(findings)),
        ("vm.csv", table::csv(findings)),
        ("vm.json", json),
    ];
    files.extend(picture::all(findings));
    for (name, text) in files {
        let path = output.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("wrote {}", path.display());
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
        args: VmArgs,
    }

    fn parse(words: &[&str]) -> VmArgs {
        let words = ["vm"].iter().chain(words);
        Bench::try_parse_from(words).unwrap().args
    }

    #[test]
    fn the_driver_gets_the_same_plan() {
        let args = parse(&["--nodes=2", "--fill=64M", "--watch=7", "--quick"]);
        let words = args.driver(Part::Tables, OURS).unwrap();
        let words: Vec<&str> = words[3..].iter().map(String::as_str).collect();
        let driver = parse(&words);
        assert_eq!(driver.parts, [Part::Tables]);
        assert_eq!(driver.drive.as_deref(), Some(OURS));
        assert_eq!(driver.plan(OURS).unwrap(), args.plan(OURS).unwrap());
    }

    #[test]
    fn what_cannot_be_names_the_value_and_what_can() {
        let message = |words: &[&str]| parse(words).plan(OURS).unwrap_err().to_string();
        let text = message(&["--fill=1G"]);
        assert!(
            text.contains("--fill 1G") && text.contains("8M to 512M"),
            "{text}"
        );
        let text = message(&["--guest-memory=256M", "--fill=64M"]);
        assert!(
            text.contains("256M for 4 nodes") && text.contains("512M"),
            "{text}"
        );
        let error = Bench::try_parse_from(["vm", "--parts", "speed"]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("'speed'") && text.contains("walks"), "{text}");
    }

    #[test]
    fn guests_fit_on_their_nodes() {
        let args = parse(&[]);
        let node = |part, node: usize| args.config(part, &args.kernel).nodes[node].memory;
        assert_eq!(node(Part::Walks, 0), Size::mib(640));
        assert_eq!(node(Part::Move, 3), Size::mib(1408));
        assert_eq!(node(Part::Move, 1), Size::mib(640));
    }
}
