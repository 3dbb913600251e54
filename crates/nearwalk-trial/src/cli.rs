// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk trial`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::ValueHint;
use nearwalk_host::{Live, Source, process};
use nearwalk_repl::held::{self, Kept, Note, Outcome};
use nearwalk_repl::{Error, Linux, NodeSpec, Subject, Topology};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::builtin::{Counted, Counters, RemoteLeaves};
use crate::command::Printed;
use crate::guard::{self, Guard};
use crate::print::{self, Ended, Trial};
use crate::report::{Better, Kind, Report};
use crate::run::{self, Metric, Pair, Plan, Stop, Switch};
use crate::switch::{Copies, Guarded, fallbacks};

/// Measure whether copies of page tables help a running program
///
/// Switches copies of a process's or group's page tables off and on, in pairs of
/// periods whose order is random, and measures in each. Says what the copies
/// change, with an exact interval. What was set before is set again at the
/// end, however the trial ends.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
A metric is a command that prints a number above 0, for `sh -c`, or one of
  cycles-per-walk  cycles that a walk of page tables takes, by the CPU's counters
  walk-share       share of the cycles in which a walk is under way, likewise
  remote-leaves    share of the memory whose leaf page tables are on another node
                   than the CPU; needs no counters, and says nothing of speed
Without --metric it is cycles-per-walk. A command has {} s.

Examples:
  sudo nearwalk trial 4711
  sudo nearwalk trial 4711 --metric 'redis-cli --intrinsic-latency 1 | ./p99' --better less
  sudo nearwalk trial --cgroup system.slice/db.service --on lazy --metric-total ./requests
  sudo nearwalk trial --restore

Exit status: 0 if it was answered, whatever the answer; 1 if the process or group
has gone, or somebody else has set it meanwhile; 2 for wrong usage, and if the trial
is refused; 3 if this kernel has no copies, or nothing could be measured; 128 and
its number after a signal. docs/trial.md says what the answer means.",
    crate::command::LIMIT.as_secs()))]
pub struct Args {
    /// Process to try it on
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
          required_unless_present_any = ["cgroup", "restore", "guard"],
          conflicts_with_all = ["cgroup", "restore"])]
    pid: Option<u32>,

    /// Try it on a group: its path, or that below cgroup v2's mount point
    #[arg(long, value_name = "GROUP", value_hint = ValueHint::DirPath,
          conflicts_with = "restore")]
    cgroup: Option<PathBuf>,

    /// Nodes to have copies on, as `nearwalk set` takes them
    #[arg(long, value_name = "NODES", default_value = "all")]
    on: NodeSpec,

    /// How many pairs of periods; 6 at least, as fewer have no interval
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(6..=200))]
    pairs: u32,

    /// How long to measure, each time
    #[arg(long, value_name = "S", default_value = "10", value_parser = period)]
    period: Duration,

    /// How long to wait before that, each time
    #[arg(long, value_name = "S", default_value = "2", value_parser = settle)]
    settle: Duration,

    /// What to measure at the end of a period: a command, or a name below
    #[arg(long, value_name = "CMD", conflicts_with = "metric_total")]
    metric: Option<String>,

    /// A command that prints a number that grows; its rate counts
    #[arg(long, value_name = "CMD")]
    metric_total: Option<String>,

    /// What is better of a command's numbers; of a rate, more
    #[arg(long, value_name = "WHICH")]
    better: Option<Better>,

    /// Of the order within pairs, to have the same again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Bring back what trials left that were killed with their guards
    #[arg(long)]
    restore: bool,

    /// What the guard of a trial runs
    #[arg(long, hide = true, conflicts_with_all = ["pid", "cgroup", "restore"])]
    guard: Option<PathBuf>,
}

fn seconds(text: &str, from: f64) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    match number {
        Ok(number) if (from..=3600.0).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err(format!("write seconds from {from} to 3600")),
    }
}

fn period(text: &str) -> Result<Duration, String> {
    seconds(text, 1.0)
}

fn settle(text: &str) -> Result<Duration, String> {
    seconds(text, 0.0)
}

const LOST: u8 = 1;
const USAGE: u8 = 2;
const NOTHING: u8 = 3;
const SIGNAL: u8 = 128;

/// Why there is no answer, or not a whole one, and the exit status for it.
type Refusal = (u8, String);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.guard {
        guard::watch(path)?;
        return Ok(ExitCode::SUCCESS);
    }
    let done = if args.restore {
        restore()
    } else {
        try_it(args)
    };
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, why)) => {
            eprintln!("nearwalk: {why}");
            ExitCode::from(status)
        }
    })
}

/// The running host, on which waiting ends with a signal.
struct Attentive {
    live: Live,
    caught: Arc<AtomicUsize>,
}

impl Attentive {
    /// How long a signal goes unnoticed.
    const LOOK: Duration = Duration::from_millis(50);

    fn new() -> io::Result<Self> {
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)?;
        }
        Ok(Self {
            live: Live::default(),
            caught,
        })
    }

    fn caught(&self) -> u8 {
        u8::try_from(self.caught.load(Ordering::Relaxed)).unwrap_or_default()
    }
}

impl Source for Attentive {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        self.live.read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.live.list(path)
    }

    fn now(&self) -> Duration {
        self.live.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), nearwalk_host::Error> {
        let end = self.now() + time;
        loop {
            if self.caught() != 0 {
                return Err(nearwalk_host::Error::Ended("a signal came".to_owned()));
            }
            let left = end.saturating_sub(self.now());
            if left.is_zero() {
                return Ok(());
            }
            self.live.wait(left.min(Self::LOOK))?;
        }
    }
}

fn refusal(error: Error) -> Refusal {
    let status = match error {
        Error::NoProcess(_) | Error::NoAddressSpace(_) | Error::NoCgroup(_) => LOST,
        Error::Unsupported | Error::NotOnThisMachine | Error::NotPermitted(_) => NOTHING,
        _ => USAGE,
    };
    (status, error.to_string())
}

fn stopped(stop: &Stop, source: &Attentive) -> Refusal {
    let status = match stop {
        Stop::Lost(_) | Stop::Theirs { .. } => LOST,
        Stop::Interrupted => SIGNAL + source.caught(),
        _ => NOTHING,
    };
    (status, stop.to_string())
}

/// All that is known before anything is changed.
struct Prepared {
    note: Note,
    directory: PathBuf,
    copies: Copies,
    metric: Chosen,
}

fn prepare(args: &Args, source: &mut Attentive) -> Result<Prepared, Refusal> {
    let (subject, name, group) = whom(args, source)?;
    let topology = Topology::read(&Linux).map_err(refusal)?;
    let request = args.on.resolve(&topology).map_err(refusal)?;
    let copies = Copies::new(&request, &topology).ok_or_else(|| {
        let why = format!("--on {request}: there are no copies to try; write nodes, all or lazy");
        (USAGE, why)
    })?;
    let room = copies.check_room(source, &subject);
    room.map_err(|why| (USAGE, why))?;
    let found = subject.setting(&Linux).map_err(refusal)?.text;
    let note = Note::new(&Linux, subject, name, group, found, copies.sets()).map_err(refusal)?;
    let directory = held::directory().map_err(refusal)?;
    held::check(&directory, &note).map_err(refusal)?;
    let metric = metric(args, &note.subject, source).map_err(|stop| stopped(&stop, source))?;
    Ok(Prepared {
        note,
        directory,
        copies,
        metric,
    })
}

/// A note, and the guard that looks after it from its first moment on.
fn guarded(directory: &Path, note: &Note) -> Result<(Guard, Kept), Refusal> {
    let guard = Guard::start(&note.path(directory)).map_err(|error| {
        let why = format!("no guard for what is set now: {error}; nothing was changed");
        (NOTHING, why)
    })?;
    match Kept::create(directory, note.clone()) {
        Ok(kept) => Ok((guard, kept)),
        Err(error) => {
            guard.finish(false);
            Err(refusal(error))
        }
    }
}

fn try_it(args: &Args) -> Result<(), Refusal> {
    let failed = |error: io::Error| (NOTHING, error.to_string());
    let mut source = Attentive::new().map_err(failed)?;
    let Prepared {
        note,
        directory,
        copies,
        mut metric,
    } = prepare(args, &mut source)?;
    let trial = Trial {
        subject: &note.subject,
        name: &note.name,
        on: &copies.text,
        found: &note.found,
        metric: &metric.name,
        kind: metric.kind,
        better: metric.better,
        plan: Plan {
            pairs: args.pairs as usize,
            period: args.period,
            settle: args.settle,
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
        },
    };
    let (mut guard, kept) = guarded(&directory, &note)?;
    let before = fallbacks(&mut source, trial.subject);
    let mut switch = Guarded::new(&note, &copies, &mut guard);
    let (pairs, end) = measure(args, &trial, &mut source, &mut switch, &mut *metric.of);
    let after = fallbacks(&mut source, trial.subject);
    let leave = matches!(end, Err(Stop::Theirs { .. }));
    // Whoever has killed the guard has left its work to us.
    let outcome = guard
        .finish(leave)
        .unwrap_or_else(|| kept.restore(&Linux).map_err(|error| error.to_string()));
    let early = end.as_ref().err().map(ToString::to_string);
    let ended = Ended {
        pairs: &pairs,
        early: early.as_deref(),
        fallbacks: after.saturating_sub(before),
        restored: &guard::tell(&outcome, &kept),
        as_found: outcome == Ok(Outcome::AsFound),
    };
    let report = Report::new(trial.kind, trial.better, &pairs);
    say(&if args.json {
        print::json(&trial, &report, &ended).to_string() + "\n"
    } else {
        print::foot(&trial, &report, &ended)
    });
    match end {
        Err(stop) => {
            let (status, why) = stopped(&stop, &source);
            let (done, wanted) = (pairs.len(), trial.plan.pairs);
            Err((
                status,
                format!("{why}; {done} of {wanted} pairs were measured"),
            ))
        }
        Ok(()) if outcome.is_err() => Err((NOTHING, ended.restored.to_owned())),
        Ok(()) => Ok(()),
    }
}

fn measure(
    args: &Args,
    trial: &Trial<'_>,
    source: &mut Attentive,
    switch: &mut dyn Switch,
    metric: &mut dyn Metric,
) -> (Vec<Pair>, Result<(), Stop>) {
    if !args.json {
        say(&print::head(trial));
    }
    let mut number = 0;
    run::run(&trial.plan, source, switch, metric, |pair| {
        number += 1;
        if !args.json {
            say(&print::pair(trial.kind, number, pair));
        }
    })
}

/// Prints. A reader that has seen enough is no reason to end.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The subject, what to call it, and its group.
fn whom(
    args: &Args,
    source: &mut dyn Source,
) -> Result<(Subject, String, Option<String>), Refusal> {
    if let Some(group) = &args.cgroup {
        let subject = Subject::cgroup(&Linux, group).map_err(refusal)?;
        let below = match &subject {
            Subject::Cgroup { directory, .. } => nearwalk_host::cgroup::Mounts::read(source)
                .ok()
                .and_then(|mounts| Some(directory.strip_prefix(mounts.v2?).ok()?.to_owned())),
            Subject::Process { .. } => None,
        };
        let below = below.unwrap_or_else(|| group.clone()).display().to_string();
        let below = below.trim_matches('/');
        return Ok((subject, format!("group {below}"), Some(format!("{below}/"))));
    }
    let asked = args.pid.unwrap_or_default();
    let pid = process::leader(source, asked).unwrap_or(asked);
    let subject = Subject::process(&Linux, pid).map_err(refusal)?;
    let stat = process::stat(source, pid).map_err(|error| (LOST, error.to_string()))?;
    let group = process::group(source, pid).map(|group| format!("{group}/"));
    Ok((subject, format!("process {pid} ({})", stat.name), group))
}

/// A metric and how its numbers are to be read.
struct Chosen {
    of: Box<dyn Metric>,
    name: String,
    kind: Kind,
    better: Option<Better>,
}

/// The metric that is asked for, tried once.
fn metric(args: &Args, subject: &Subject, source: &mut dyn Source) -> Result<Chosen, Stop> {
    if let Some(command) = &args.metric_total {
        let printed = Printed::new(command.clone(), true);
        printed.ask(source)?;
        return Ok(Chosen {
            of: Box::new(printed),
            name: command.clone(),
            kind: Kind::Ratio,
            better: args.better.or(Some(Better::More)),
        });
    }
    let asked = args.metric.as_deref().unwrap_or("cycles-per-walk");
    let (of, kind): (Box<dyn Metric>, Kind) = match asked {
        "remote-leaves" => (
            Box::new(RemoteLeaves::new(source, subject.clone())?),
            Kind::Points,
        ),
        "cycles-per-walk" | "walk-share" => {
            let (counted, kind) = match asked {
                "walk-share" => (Counted::WalkShare, Kind::Points),
                _ => (Counted::CyclesPerWalk, Kind::Ratio),
            };
            let counters = Counters::new(source, subject.clone(), counted);
            let counters = counters.map_err(|stop| match stop {
                Stop::Metric(why) if args.metric.is_none() => Stop::Metric(format!(
                    "{why}; name something else to measure: --metric CMD, or --metric remote-leaves"
                )),
                stop => stop,
            });
            (Box::new(counters?), kind)
        }
        command => {
            let printed = Printed::new(command.to_owned(), false);
            printed.ask(source)?;
            return Ok(Chosen {
                of: Box::new(printed),
                name: command.to_owned(),
                kind: Kind::Ratio,
                better: args.better,
            });
        }
    };
    Ok(Chosen {
        of,
        name: asked.to_owned(),
        kind,
        // Whether fewer remote leaves are any better is what it does not say.
        better: (asked != "remote-leaves").then_some(Better::Less),
    })
}

/// Brings back what is left of all trials.
fn restore() -> Result<(), Refusal> {
    let directory = held::directory().map_err(refusal)?;
    let notes = held::list(&directory).map_err(|error| (NOTHING, error.to_string()))?;
    if notes.is_empty() {
        say("nothing is left of a trial\n");
    }
    let mut failed = None;
    for found in notes {
        let name = &found.note.name;
        if found.running {
            say(&format!("{name}: its trial is running\n"));
            continue;
        }
        match found.restore(&Linux) {
            Ok(outcome) => {
                let text = print::outcome(&outcome, &found.note.found);
                say(&format!("{name}: {text}\n"));
            }
            Err(error) => failed = Some(format!("{name}: {error}")),
        }
    }
    failed.map_or(Ok(()), |why| Err((NOTHING, why)))
}
