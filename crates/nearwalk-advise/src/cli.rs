// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk advise`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use clap::ValueHint;
use nearwalk_host::{Error, Recorded, Recorder, Source, process};
use serde::Serialize;

use crate::advice::advise;
use crate::counting::Counting;
use crate::cpu_time::Sampling;
use crate::evidence::{Evidence, Noted};
use crate::subject::{self, Instruments, LiveInstruments, Lost, Subject, Whom};
use crate::survey::survey;
use crate::{json, print, shown};

/// Say who may walk remote page tables, and what to do about it
///
/// Of the whole host, ranks control groups, virtual machines and processes by
/// how much of their walks of page tables may be remote, from what every
/// kernel since Linux 6.1 tells any user. Of one process, group or command, says
/// what local page tables would gain, as far as the CPU's counters can be read.
/// Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nearwalk advise
  nearwalk advise --seconds 30 --all
  nearwalk advise --json | jq '.ranked[] | select(.certain) | .name'
  sudo nearwalk advise 4711
  sudo nearwalk advise --cgroup system.slice/memcached.service
  sudo nearwalk advise --seconds 60 -- ./gups
  nearwalk advise --record host-17; nearwalk advise --from host-17

Exit status: 0 if it was answered, whatever the answer; 1 if the process, group
or command is not there, or ended too early; 2 for wrong usage; 3 if nothing
could be read. docs/advise.md says what the answer means.")]
pub struct Args {
    /// Process to look at; any of its threads will do
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with_all = ["host", "cgroup", "command", "all"])]
    pid: Option<u32>,

    /// Look at the whole host, which is also the default
    #[arg(long, conflicts_with_all = ["cgroup", "command"])]
    host: bool,

    /// Look at a group: its path, or that below cgroup v2's mount point
    #[arg(long, value_name = "GROUP", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["command", "all"])]
    cgroup: Option<String>,

    /// How long to look [default: 2, of one process, group or command 10]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,

    /// List all who are exposed, not only the first 20
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Keep all that is read in a new directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    record: Option<PathBuf>,

    /// Answer from such a directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["record", "seconds", "pid", "cgroup", "command"])]
    from: Option<PathBuf>,

    /// Run a command, look at it, and answer when it has ended
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "all",
          value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Seconds, with a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.2..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write seconds from 0.2 to 3600".to_owned()),
    }
}

const HOST: Duration = Duration::from_secs(2);
const ONE: Duration = Duration::from_secs(10);

const ANSWERED: u8 = 0;
const LOST: u8 = 1;
const USAGE: u8 = 2;
const NOTHING: u8 = 3;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let status = answer(
        &args,
        &mut Counting::default(),
        &mut LiveInstruments::default(),
        &mut io::stdout(),
        &mut io::stderr(),
    )?;
    Ok(ExitCode::from(status))
}

/// Answers from `live`, or a recording if one is asked for, and returns the
/// exit status.
pub fn answer(
    args: &Args,
    live: &mut dyn Source,
    instruments: &mut dyn Instruments,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (text, recorded) = match text(args, live, instruments) {
        Ok(answered) => answered,
        Err((status, error)) => {
            writeln!(err, "nearwalk: {error}")?;
            return Ok(status);
        }
    };
    deliver(&text, recorded, out, err)
}

/// Prints what was found, and returns the exit status: 2 if it was to be
/// `recorded` in a directory that was not fit for that. What was found stands.
///
/// # Errors
///
/// Those of writing, but for a pipe whose reader has seen enough.
pub fn deliver(
    text: &str,
    recorded: Result<(), Error>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    let Err(error) = recorded else {
        return Ok(ANSWERED);
    };
    writeln!(err, "nearwalk: {error}")?;
    Ok(USAGE)
}

/// The answer, and whether its recording was written; or the exit status and
/// the reason why there is none.
type Answered = Result<(String, Result<(), Error>), (u8, String)>;

fn text(args: &Args, live: &mut dyn Source, instruments: &mut dyn Instruments) -> Answered {
    if let Some(dir) = &args.from {
        let evidence = Evidence::open(dir).map_err(nothing)?;
        let mut recorded = Recorded::open(dir).map_err(nothing)?;
        let length = recorded.length();
        return match evidence {
            Some(mut evidence) => {
                let whom = evidence.whom.clone();
                let subject = look(&mut recorded, &mut evidence, &whom, length)?;
                evidence.check(dir, subject.nodes.len()).map_err(nothing)?;
                Ok((advice(args, &subject), Ok(())))
            }
            None => Ok((host(args, &mut recorded, length)?, Ok(()))),
        };
    }
    let mut started = None;
    let whom = match (args.pid, &args.cgroup) {
        (Some(pid), _) => Some(Whom::Process(pid)),
        (None, Some(group)) => Some(Whom::Cgroup(group.clone())),
        (None, None) => match args.command.split_first() {
            Some((program, arguments)) => {
                let command = Started::new(program, arguments)?;
                let pid = command.0.id();
                started = Some(command);
                Some(Whom::Process(pid))
            }
            None => None,
        },
    };
    let (mut always, mut while_it_runs);
    let source: &mut dyn Source = match &started {
        Some(command) => {
            while_it_runs = WhileItRuns {
                source: live,
                pid: command.0.id(),
            };
            &mut while_it_runs
        }
        None => {
            always = live;
            &mut always
        }
    };
    let length = args.seconds;
    let length = length.unwrap_or(if whom.is_some() { ONE } else { HOST });
    let Some(dir) = &args.record else {
        let text = match whom {
            Some(whom) => advice(args, &look(&mut *source, instruments, &whom, length)?),
            None => host(args, &mut *source, length)?,
        };
        return Ok((text, Ok(())));
    };
    let mut recorder =
        Recorder::create(source, dir, length).map_err(|error| (USAGE, error.to_string()))?;
    let Some(whom) = whom else {
        let text = host(args, &mut recorder, length)?;
        return Ok((text, recorder.finish()));
    };
    let mut noted = Noted {
        instruments,
        evidence: Evidence::new(whom.clone()),
    };
    let subject = look(&mut recorder, &mut noted, &whom, length)?;
    noted.evidence.nodes = subject.nodes.len();
    let written = noted.evidence.write(dir);
    let text = advice(args, &subject);
    Ok((text, written.and_then(|()| recorder.finish())))
}

fn nothing(error: Error) -> (u8, String) {
    (NOTHING, error.to_string())
}

fn host(args: &Args, source: &mut dyn Source, length: Duration) -> Result<String, (u8, String)> {
    let report = survey(source, &mut Sampling::default(), length).map_err(nothing)?;
    Ok(if args.json {
        line(&json::host(&report))
    } else {
        let lines = if args.all { usize::MAX } else { print::LINES };
        print::text(&report, lines)
    })
}

fn look(
    source: &mut dyn Source,
    instruments: &mut dyn Instruments,
    whom: &Whom,
    length: Duration,
) -> Result<Subject, (u8, String)> {
    let times = &mut Sampling::default();
    subject::look(source, times, instruments, whom, length).map_err(|error| match error {
        Lost::Gone(why) => (LOST, why),
        // What ends while it is looked at is lost, and not unreadable.
        Lost::Host(error) if error.is_gone() => (LOST, error.to_string()),
        error => (NOTHING, error.to_string()),
    })
}

fn advice(args: &Args, subject: &Subject) -> String {
    let advice = advise(subject);
    if args.json {
        line(&shown::json(subject, &advice))
    } else {
        shown::text(subject, &advice)
    }
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has only text and numbers") + "\n"
}

/// A command that was started, and is waited for at the end: what it prints comes
/// before the answer.
struct Started(Child);

impl Started {
    fn new(program: &OsString, arguments: &[OsString]) -> Result<Self, (u8, String)> {
        let child = Command::new(program).args(arguments).spawn();
        let child = child.map_err(|error| {
            let name = program.to_string_lossy();
            (USAGE, format!("{name} cannot be run: {error}"))
        })?;
        Ok(Self(child))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Whatever comes of it is not ours to judge.
        let _ = self.0.wait();
    }
}

/// Ends the look when the command does.
struct WhileItRuns<'a> {
    source: &'a mut dyn Source,
    pid: u32,
}

impl Source for WhileItRuns<'_> {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        self.source.read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.source.list(path)
    }

    fn now(&self) -> Duration {
        self.source.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        let end = self.now() + time;
        loop {
            let left = end.saturating_sub(self.now());
            self.source.wait(left.min(Duration::from_millis(50)))?;
            // Nobody has waited for it yet, so that its number is still its own.
            if process::tables_of_any_thread(self.source, self.pid)?.is_none() {
                let why = format!(
                    "the command ended after {:.1} s, before the look was over: --seconds looks shorter",
                    self.now().as_secs_f64()
                );
                return Err(Error::Ended(why));
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }
}
