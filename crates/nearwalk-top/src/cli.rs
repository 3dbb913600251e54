// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk top`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;
use nearwalk_advise::counting::Counting;
use nearwalk_host::{Error, Recorded, Recorder, Source};
use ratatui::crossterm::terminal;
use signal_hook::low_level::emulate_default_handler;

use crate::frame::Frame;
use crate::live::{End, From};
use crate::view::View;
use crate::{draw, live, sample};

/// Watch who may walk remote page tables
///
/// Lists control groups, virtual machines and processes: the CPUs that they use,
/// on which nodes those and their page tables are, and how much of their walks
/// may be remote. On Nearwalk's kernel also what their copies take and do.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nearwalk top
  nearwalk top --once
  nearwalk top --record host-17
  nearwalk top --from host-17

Keys: q quits, s sorts, / filters, right and left open and close a group, Enter
asks for advice, p pauses. Without a terminal it prints one frame, as with --once.

Exit status: 0 if something was shown; 2 for wrong usage; 3 if nothing could be
read. docs/top.md says what the columns mean.")]
pub struct Args {
    /// Print one frame as text
    #[arg(long)]
    once: bool,

    /// Seconds that a frame covers
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    interval: Duration,

    /// Keep all that is read in a new directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    record: Option<PathBuf>,

    /// Show what such a directory has, also one of `nearwalk advise`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["record", "interval"])]
    from: Option<PathBuf>,
}

/// Seconds, with a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write seconds from 0.5 to 60".to_owned()),
    }
}

/// As wide as a frame is printed where there is no terminal.
const WIDTH: u16 = 120;

const USAGE: u8 = 2;
const NOTHING: u8 = 3;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let is_terminal = io::stdout().is_terminal();
    if !args.once && is_terminal && io::stdin().is_terminal() {
        return show(&args);
    }
    let width = match terminal::size() {
        Ok((width, _)) if is_terminal => width,
        _ => WIDTH,
    };
    let (out, err) = (&mut io::stdout(), &mut io::stderr());
    let status = print(&args, &mut Counting::default(), width, out, err)?;
    Ok(ExitCode::from(status))
}

/// Shows frames until the user has seen enough.
fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let here = Box::new(Counting::default());
    let from = match (&args.from, &args.record) {
        (Some(dir), _) => match Recorded::open(dir) {
            Ok(recorded) => From::Recorded(Box::new(recorded)),
            Err(error) => return Ok(fail(NOTHING, &error)),
        },
        (None, Some(dir)) => From::Record(here, dir),
        (None, None) => From::Live(here),
    };
    Ok(match live::run(from, args.interval)? {
        End::Quit | End::Panic => ExitCode::SUCCESS,
        End::Error(error) => fail(NOTHING, &error),
        End::NotRecorded(error) => fail(USAGE, &error),
        End::Signal(signal) => {
            emulate_default_handler(signal)?;
            ExitCode::SUCCESS
        }
    })
}

fn fail(status: u8, error: &Error) -> ExitCode {
    eprintln!("nearwalk: {error}");
    ExitCode::from(status)
}

/// Prints one frame of `live`, or of a recording if one is asked for, and
/// returns the exit status.
pub fn print(
    args: &Args,
    live: &mut dyn Source,
    width: u16,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (frame, recorded) = match frame(args, live) {
        Ok(frame) => frame,
        Err((status, error)) => {
            writeln!(err, "nearwalk: {error}")?;
            return Ok(status);
        }
    };
    let text = draw::text(&frame, &View::default(), width);
    nearwalk_advise::cli::deliver(&text, recorded, out, err)
}

/// A frame, and whether its recording was written; or the exit status and the
/// reason why there is none.
type Once = Result<(Frame, Result<(), Error>), (u8, Error)>;

fn frame(args: &Args, live: &mut dyn Source) -> Once {
    let nothing = |error| (NOTHING, error);
    if let Some(dir) = &args.from {
        let mut recorded = Recorded::open(dir).map_err(nothing)?;
        let length = recorded.length();
        return Ok((
            sample::once(&mut recorded, length).map_err(nothing)?,
            Ok(()),
        ));
    }
    let Some(dir) = &args.record else {
        return Ok((sample::once(live, args.interval).map_err(nothing)?, Ok(())));
    };
    let recorder = Recorder::create(live, dir, args.interval);
    let mut recorder = recorder.map_err(|error| (USAGE, error))?;
    let frame = sample::once(&mut recorder, args.interval).map_err(nothing)?;
    Ok((frame, recorder.finish()))
}
