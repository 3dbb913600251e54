// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk demo`: boots the machine, follows the driver in it, and writes the
//! reports.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nearwalk_bench::vm::wire::Lines;
use nearwalk_lab::{End, Job, Kernel, NodeSpec, Outcome, Size, Vm, VmConfig};

use crate::{
    guest::{self, Plan},
    model::{Event, Run},
    modelled::modelled,
    narrate::Narrator,
    report,
    screen::Screen,
    verdict::passed,
};

/// Large enough for a few hundred megabytes to take few requests, small enough
/// for several to share one of memcached's 1 MiB slabs.
const VALUE_SIZE: u64 = 32 << 10;
/// Far above any run that gets on.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

const HELP: &str = "\
A closing summary is printed; the same as a page for a browser, index.html, and as data,
run.json, goes to the output directory.

Exit status: 0 if every request was answered rightly, every walk was local while page tables
were replicated, the kernel's check found no difference, all copies were given back, and the
kernel's log has no warning; 1 if not; that of `nearwalk lab run` if the machine failed.";

/// Replicate the page tables of a memcached server while clients use it
///
/// Boots a virtual machine with several memory nodes, starts memcached with
/// threads on all of them, fills it, and shows from where its page tables are
/// local: before, with a copy on every node, with a copy on one, and after.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Number of memory nodes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    nodes: u32,

    /// Number of CPUs, shared evenly by the nodes
    #[arg(long, default_value_t = 8)]
    cpus: u32,

    /// Memory, shared evenly by the nodes
    #[arg(long, value_name = "SIZE", default_value_t = Size::gib(4))]
    memory: Size,

    /// Bytes of values to store, up to half of the memory
    #[arg(long, value_name = "SIZE", default_value_t = Size::mib(320))]
    fill: Size,

    /// How long the clients ask in each stage
    #[arg(long, value_name = "SECS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    stay: u64,

    /// Leave NUMA balancing on
    ///
    /// It moves values to other nodes while the clients ask, and makes them
    /// wait by itself: what they see is then not replication's doing alone.
    #[arg(long)]
    numa_balancing: bool,

    /// Kernel to boot: ours, stock, debug, or the path of an image or build
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// Where to write the page [default: demo in the build directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Be the driver in the machine
    #[arg(long, hide = true)]
    drive: bool,
}

/// Runs `nearwalk demo`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    if args.drive {
        return Ok(match guest::drive(&plan) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    let config = VmConfig {
        nodes: NodeSpec::even(args.nodes, args.cpus, args.memory)?,
        kernel: args.kernel.clone(),
        timeout: Some(TIME_LIMIT),
        ..VmConfig::default()
    };
    let output = match args.output.clone() {
        Some(output) => output,
        None => nearwalk_lab::build_dir().join("demo"),
    };
    // Before the work, not after it.
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;

    let mut narrator = Narrator::new(Screen::stdout());
    narrator.title(args.nodes as usize);
    let (mut run, outcome, narrator) = follow(&config, args.driver()?, narrator)?;
    run.modelled = modelled(&run);

    let page = write_reports(&run, &output)?;
    narrator.end(&format!(
        "{}\nThe same with pictures: {}",
        report::summary(&run),
        page.display()
    ));
    Ok(exit_code(&run, &outcome))
}

impl Args {
    fn plan(&self) -> anyhow::Result<Plan> {
        let values = self.fill.bytes() / VALUE_SIZE;
        if values < u64::from(self.cpus) {
            bail!(
                "--fill {}: too little for {} clients; allowed: {} KiB or more",
                self.fill,
                self.cpus,
                (u64::from(self.cpus) * VALUE_SIZE) >> 10
            );
        }
        if self.fill.bytes() > self.memory.bytes() / 2 {
            bail!(
                "--fill {} does not fit in --memory {}; allowed: up to half of it",
                self.fill,
                self.memory
            );
        }
        Ok(Plan {
            values,
            value_size: VALUE_SIZE as usize,
            stay: Duration::from_secs(self.stay),
            numa_balancing: self.numa_balancing,
        })
    }

    /// This program, to be run in the machine.
    fn driver(&self) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let program = program
            .to_str()
            .with_context(|| format!("{} is no text", program.display()))?;
        let mut words: Vec<String> = [program, "demo", "--drive"].map(String::from).into();
        for (name, value) in [
            ("cpus", self.cpus.to_string()),
            ("memory", self.memory.to_string()),
            ("fill", self.fill.to_string()),
            ("stay", self.stay.to_string()),
        ] {
            words.push(format!("--{name}={value}"));
        }
        if self.numa_balancing {
            words.push("--numa-balancing".into());
        }
        Ok(words)
    }
}

/// What comes out of the machine.
enum Heard {
    /// A line of the driver's standard output.
    Told(String),
    /// A line of anybody's standard error.
    Said(String),
}

/// Runs the driver in the machine and tells its story.
fn follow(
    config: &VmConfig,
    driver: Vec<String>,
    narrator: Narrator,
) -> anyhow::Result<(Run, Outcome, Narrator)> {
    let (sender, heard) = mpsc::channel();
    let job = Job::new(driver)
        .stdout(Lines::new(sender.clone(), Heard::Told))
        .stderr(Lines::new(sender, Heard::Said));
    let start = Instant::now();
    let vm = Vm::start(config, job)?;
    let listener = thread::spawn(move || listen(&heard, narrator, start));
    // The listener ends with the machine, which holds the senders.
    let outcome = vm.wait();
    let (mut run, narrator) = listener.join().expect("the listener does not panic");
    let outcome = outcome?;
    if !outcome.findings.is_empty() || !matches!(outcome.end, End::Exited(_)) {
        run.kernel_report = Some(outcome.report());
    }
    run.total_seconds = outcome.total.as_secs_f64();
    Ok((run, outcome, narrator))
}

fn listen(heard: &Receiver<Heard>, mut narrator: Narrator, start: Instant) -> (Run, Narrator) {
    let mut run = Run::default();
    for heard in heard {
        run.boot_seconds
            .get_or_insert_with(|| start.elapsed().as_secs_f64());
        match heard {
            Heard::Said(line) => narrator.overheard(&line),
            Heard::Told(line) => match serde_json::from_str::<Event>(&line) {
                Ok(event) => {
                    run.add(event.clone());
                    narrator.event(&event, &run);
                }
                Err(_) => narrator.overheard(&line),
            },
        }
    }
    (run, narrator)
}

/// Returns the path of the page.
fn write_reports(run: &Run, output: &Path) -> anyhow::Result<PathBuf> {
    let data = serde_json::to_string_pretty(run)? + "\n";
    let page = output.join("index.html");
    for (path, text) in [(&page, report::page(run)), (&output.join("run.json"), data)] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(page)
}

/// The machine's failures have their own statuses; see `nearwalk lab run`.
fn exit_code(run: &Run, outcome: &Outcome) -> ExitCode {
    match outcome.exit_code() {
        0 if passed(run) => ExitCode::SUCCESS,
        0 => ExitCode::FAILURE,
        code => ExitCode::from(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use std::io::Write;

    #[derive(Debug, Parser)]
    struct Demo {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Args {
        let words = ["demo"].iter().chain(words);
        Demo::try_parse_from(words).unwrap().args
    }

    #[test]
    fn the_command_line_is_consistent() {
        Demo::command().debug_assert();
    }

    #[test]
    fn by_default_a_few_hundred_megabytes_are_stored() {
        let plan = parse(&[]).plan().unwrap();
        assert_eq!(plan.values * plan.value_size as u64, 320 << 20);
    }

    #[test]
    fn the_driver_gets_the_same_plan() {
        let args = parse(&[
            "--nodes=2",
            "--cpus=2",
            "--fill=9M",
            "--stay=7",
            "--numa-balancing",
        ]);
        let words = args.driver().unwrap();
        assert_eq!(words[1], "demo");
        let words: Vec<&str> = words[2..].iter().map(String::as_str).collect();
        let driver = parse(&words);
        assert!(driver.drive);
        let (plan, host) = (driver.plan().unwrap(), args.plan().unwrap());
        assert_eq!(plan, host);
    }

    #[test]
    fn values_must_fit_and_suffice() {
        let message = |words: &[&str]| parse(words).plan().unwrap_err().to_string();
        let large = message(&["--fill=3G"]);
        assert!(large.contains("3G") && large.contains("half"), "{large}");
        let small = message(&["--fill=1M", "--cpus=64"]);
        assert!(
            small.contains("1M") && small.contains("2048 KiB"),
            "{small}"
        );
    }

    #[test]
    fn one_node_is_nothing_to_show() {
        let error = Demo::try_parse_from(["demo", "--nodes=1"]).unwrap_err();
        assert!(error.to_string().contains("2.."), "{error}");
    }

    #[test]
    fn output_is_heard_line_by_line() {
        let (sender, heard) = mpsc::channel();
        let mut lines = Lines::new(sender, Heard::Said);
        lines.write_all(b"one\ntw").unwrap();
        lines.write_all(b"o\n\nrest").unwrap();
        drop(lines);
        let heard: Vec<String> = heard
            .iter()
            .map(|heard| match heard {
                Heard::Said(line) | Heard::Told(line) => line,
            })
            .collect();
        assert_eq!(heard, ["one", "two", "", "rest"]);
    }

    #[test]
    fn what_is_no_event_is_overheard() {
        let (sender, heard) = mpsc::channel();
        let told = |text: &str| sender.send(Heard::Told(text.into())).unwrap();
        told("slab class 1");
        told(r#"{"failed":"reason"}"#);
        drop(sender);
        let paper = crate::screen::tests::Paper::default();
        let narrator = Narrator::new(Screen::on_paper(paper.clone(), false));
        let (run, _) = listen(&heard, narrator, Instant::now());
        assert_eq!(run.failure.as_deref(), Some("reason"));
        assert!(paper.text().contains("(slab class 1)"));
    }
}
