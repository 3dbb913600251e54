// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk demo-vm`: boots the machine, follows the driver in it, and writes the
//! reports.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nearwalk_bench::vm::wire::Lines;
use nearwalk_lab::{AccelChoice, End, Job, Kernel, NodeSpec, Outcome, Size, Vm, VmConfig};

use super::{
    driver::{self, Plan},
    inside,
    model::{Event, Run, passed},
    page,
    story::{Story, summary},
};
use crate::screen::Screen;

/// Few requests for much memory, as each costs much in a guest of an emulated machine.
const VALUE_SIZE: u64 = 128 << 10;
/// Far above any run that gets on.
const TIME_LIMIT: Duration = Duration::from_secs(45 * 60);
/// What the machine keeps of each node for itself.
const OWN: u64 = 384;

const HELP: &str = "\
A closing summary is printed; the same as a page for a browser, index.html, and as data,
run.json, goes to the output directory.

Exit status: 0 if, with a tree of nested tables for each node and copies in the guest, every walk
was local in both halves, neither kernel's check found a difference, one tree was left at the
end, every request was answered rightly, and no kernel's log has a warning; 1 if not; that of
`nearwalk lab run` if the machine failed.";

/// Keep both page tables of a virtual machine near the CPUs that walk them, while it is in use
///
/// Boots a machine with several memory nodes and in it a guest of KVM, starts memcached in
/// the guest, and shows from where the guest's page tables and the host's nested ones are
/// local: before, with a tree of nested tables for each node, with copies in the guest as
/// well, and after.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Number of memory nodes, of the machine and of the guest
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=8))]
    nodes: u32,

    /// Memory of the guest, shared evenly by its nodes
    #[arg(long, value_name = "SIZE", default_value_t = Size::gib(1))]
    guest_memory: Size,

    /// Bytes of values to store, up to a third of the guest's memory
    #[arg(long, value_name = "SIZE", default_value_t = Size::mib(96))]
    fill: Size,

    /// How long the clients ask in each stage
    #[arg(long, value_name = "SECS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    stay: u64,

    /// Kernel to boot, host and guest: ours, debug, or the path of an image or build
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// Where to write the page [default: demo-vm in the build directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Be the driver in the machine
    #[arg(long, hide = true)]
    drive: bool,

    /// Be the server and its clients in the guest
    #[arg(long, hide = true)]
    inside: bool,
}

/// Runs `nearwalk demo-vm`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let done = |good| {
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    };
    if args.inside {
        return done(inside::serve(args.fill.bytes(), VALUE_SIZE).is_ok());
    }
    let plan = args.plan()?;
    if args.drive {
        return done(driver::drive(&plan));
    }
    let output = match args.output.clone() {
        Some(output) => output,
        None => nearwalk_lab::build_dir().join("demo-vm"),
    };
    // Before the work, not after it.
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;

    let mut story = Story::new(Screen::stdout());
    story.title(args.nodes);
    let (run, outcome) = follow(&args.config(), args.driver()?, &mut story)?;
    let page = write_reports(&run, &output)?;
    story.last(&format!(
        "{}\n\nThe same with pictures: {}",
        summary(&run),
        page.display()
    ));
    Ok(match outcome.exit_code() {
        0 if passed(&run) => ExitCode::SUCCESS,
        0 => ExitCode::FAILURE,
        code => ExitCode::from(code),
    })
}

impl Args {
    fn plan(&self) -> anyhow::Result<Plan> {
        let (memory, fill) = (self.guest_memory, self.fill);
        let least = Size::mib(128 * u64::from(self.nodes));
        if memory < least {
            let nodes = self.nodes;
            bail!("--guest-memory {memory} for {nodes} nodes; allowed: {least} or more");
        }
        if fill.bytes() > memory.bytes() / 3 || fill < Size::mib(8) {
            bail!(
                "--fill {fill} in a guest of {memory}; allowed: 8M to {}",
                Size::mib(memory.in_mib() / 3)
            );
        }
        Ok(Plan {
            nodes: self.nodes,
            memory,
            fill,
            value_size: VALUE_SIZE,
            kernel: self.kernel.clone(),
            stay: Duration::from_secs(self.stay),
        })
    }

    fn config(&self) -> VmConfig {
        let node = NodeSpec {
            cpus: 1,
            memory: Size::mib(self.guest_memory.in_mib() / u64::from(self.nodes) + OWN),
        };
        VmConfig {
            nodes: vec![node; self.nodes as usize],
            kernel: self.kernel.clone(),
            accel: AccelChoice::Tcg,
            sysctls: vec![("kernel.numa_balancing".into(), "0".into())],
            timeout: Some(TIME_LIMIT),
            ..VmConfig::default()
        }
    }

    /// This program, to be run in the machine.
    fn driver(&self) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program = program
            .to_str()
            .with_context(|| format!("{} is no text", program.display()))?;
        Ok(vec![
            program.into(),
            "demo-vm".into(),
            "--drive".into(),
            format!("--nodes={}", self.nodes),
            format!("--guest-memory={}", self.guest_memory),
            format!("--fill={}", self.fill),
            format!("--stay={}", self.stay),
            format!("--kernel={}", self.kernel),
        ])
    }
}

/// Runs the driver in the machine and tells its story.
fn follow(
    config: &VmConfig,
    driver: Vec<String>,
    story: &mut Story,
) -> anyhow::Result<(Run, Outcome)> {
    let begin = Instant::now();
    let (sender, told) = mpsc::channel();
    let job = Job::new(driver)
        .stdout(Lines::new(sender, std::convert::identity))
        .stderr(io::stderr());
    // QEMU ends with the thread that started it.
    let config = config.clone();
    let machine = thread::spawn(move || Vm::start(&config, job)?.wait());
    let mut run = Run::default();
    for line in told {
        match serde_json::from_str::<Event>(&line) {
            Ok(event) => {
                story.event(&event);
                if !matches!(event, Event::Progress(_)) {
                    run.events.push(event);
                }
            }
            Err(_) => story.overheard(&line),
        }
    }
    let outcome = machine
        .join()
        .expect("the machine's thread does not panic")?;
    if !outcome.findings.is_empty() || !matches!(outcome.end, End::Exited(_)) {
        run.kernel_report = Some(outcome.report());
    }
    run.seconds = begin.elapsed().as_secs_f64();
    Ok((run, outcome))
}

/// Returns the path of the page.
fn write_reports(run: &Run, output: &Path) -> anyhow::Result<PathBuf> {
    let data = serde_json::to_string_pretty(run)? + "\n";
    let page = output.join("index.html");
    for (path, text) in [(&page, page::page(run)), (&output.join("run.json"), data)] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Demo {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Args {
        let words = ["demo-vm"].iter().chain(words);
        Demo::try_parse_from(words).unwrap().args
    }

    #[test]
    fn the_driver_gets_the_same_plan() {
        let args = parse(&["--nodes=2", "--fill=64M", "--stay=7"]);
        let words = args.driver().unwrap();
        let words: Vec<&str> = words[2..].iter().map(String::as_str).collect();
        let driver = parse(&words);
        assert!(driver.drive);
        assert_eq!(driver.plan().unwrap(), args.plan().unwrap());
    }

    #[test]
    fn what_cannot_be_names_the_value_and_what_can() {
        let message = |words: &[&str]| parse(words).plan().unwrap_err().to_string();
        let text = message(&["--fill=1G"]);
        assert!(
            text.contains("--fill 1G") && text.contains("8M to 341M"),
            "{text}"
        );
        let text = message(&["--guest-memory=256M"]);
        assert!(
            text.contains("256M for 4 nodes") && text.contains("512M"),
            "{text}"
        );
        let error = Demo::try_parse_from(["demo-vm", "--nodes=1"]).unwrap_err();
        assert!(error.to_string().contains("2..=8"), "{error}");
    }
}
