// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk advise`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;
use nearwalk_host::{Error, Live, Recorded, Recorder, Source};

use crate::cpu_time::Sampling;
use crate::survey::{Report, survey};
use crate::{json, print};

/// Say who may walk remote page tables, on any kernel and without privileges
///
/// Ranks control groups, virtual machines and processes by how much of their
/// walks of page tables may be remote, from what every kernel since Linux 6.1
/// tells any user. Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nearwalk advise
  nearwalk advise --seconds 30 --all
  nearwalk advise --json | jq '.ranked[] | select(.certain) | .name'
  nearwalk advise --record host-17; nearwalk advise --from host-17

Exit status: 0 if it was answered, whatever the answer; 2 for wrong usage, 3 if
nothing could be read. docs/advise.md says what the answer means.")]
pub struct Args {
    /// Look at the whole host, which is also the default
    #[arg(long)]
    host: bool,

    /// How long to look where CPU time goes
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,

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
          conflicts_with_all = ["record", "seconds"])]
    from: Option<PathBuf>,
}

/// Seconds, with a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.2..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write seconds from 0.2 to 3600".to_owned()),
    }
}

const ANSWERED: u8 = 0;
const USAGE: u8 = 2;
const NOTHING: u8 = 3;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let status = answer(
        &args,
        &mut Live::default(),
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
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (report, recorded) = match look(args, live) {
        Ok(looked) => looked,
        Err((status, error)) => {
            writeln!(err, "nearwalk: {error}")?;
            return Ok(status);
        }
    };
    let text = if args.json {
        serde_json::to_string(&json::host(&report))? + "\n"
    } else {
        let lines = if args.all { usize::MAX } else { print::LINES };
        print::text(&report, lines)
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader of a pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    match recorded {
        Ok(()) => Ok(ANSWERED),
        // The answer stands; the directory was not fit for a recording.
        Err(error) => {
            writeln!(err, "nearwalk: {error}")?;
            Ok(USAGE)
        }
    }
}

/// The report, and whether its recording was written; or the exit status and
/// the reason why there is none.
type Looked = Result<(Report, Result<(), Error>), (u8, Error)>;

fn look(args: &Args, live: &mut dyn Source) -> Looked {
    let nothing = |error| (NOTHING, error);
    let mut sampling = Sampling::default();
    if let Some(dir) = &args.from {
        let mut recorded = Recorded::open(dir).map_err(nothing)?;
        let length = recorded.length();
        let report = survey(&mut recorded, &mut sampling, length).map_err(nothing)?;
        return Ok((report, Ok(())));
    }
    let Some(dir) = &args.record else {
        let report = survey(live, &mut sampling, args.seconds).map_err(nothing)?;
        return Ok((report, Ok(())));
    };
    let mut recorder = Recorder::create(live, dir, args.seconds).map_err(|error| (USAGE, error))?;
    let report = survey(&mut recorder, &mut sampling, args.seconds).map_err(nothing)?;
    Ok((report, recorder.finish()))
}
