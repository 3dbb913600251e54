// SPDX-License-Identifier: GPL-2.0-or-later
//! The process that brings back what was found, however the trial ends.
//!
//! It waits for the end of a pipe whose other end only the trial has, and hears
//! nothing else: no signal that can be caught, none of the trial's terminal.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearwalk_repl::Linux;
use nearwalk_repl::held::{Kept, Outcome};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

const READY: &str = "ready";
/// What somebody else has set is not to be touched.
const LEAVE: &str = "leave";

/// The guard, as the trial sees it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Guard {
    /// Has this program look after what will be noted at `path`, in a process of
    /// its own. It does when this returns: nothing is to be noted before.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("nearwalk")
            .args(["trial", "--guard"])
            .arg(path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let orders = child.stdin.take().ok_or_else(missing)?;
        let mut answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        if line.trim() != READY {
            let _ = child.wait();
            return Err(io::Error::other("it ended at once"));
        }
        Ok(Self {
            child,
            orders,
            answers,
        })
    }

    /// Whether it is there.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Has it bring back what was found, or leave what is set, and returns what
    /// it says; nothing if it was killed, or there was nothing to do.
    pub fn finish(mut self, leave: bool) -> Option<Result<Outcome, String>> {
        if leave {
            let _ = writeln!(self.orders, "{LEAVE}");
        }
        drop(self.orders);
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        let _ = self.child.wait();
        read.ok()?;
        serde_json::from_str(&answer).ok()
    }
}

/// The life of a guard.
///
/// # Errors
///
/// If the note cannot be read.
pub fn watch(path: &Path) -> Result<(), anyhow::Error> {
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::clone(&heard))?;
    }
    std::env::set_current_dir("/")?;
    let trial = std::os::unix::process::parent_id();
    say(READY)?;
    let mut orders = String::new();
    io::stdin().read_to_string(&mut orders)?;
    let Some(kept) = Kept::take_over(path, trial)? else {
        return Ok(());
    };
    let answer = if orders.trim() == LEAVE {
        leave(&kept)
    } else {
        kept.restore(&Linux)
    };
    let answer = answer.map_err(|error| error.to_string());
    let line = serde_json::to_string(&answer)?;
    if say(&line).is_err() {
        // The trial was killed, and whoever did that is to know.
        eprintln!(
            "nearwalk: trial of {}: {}",
            kept.note.name,
            tell(&answer, &kept)
        );
    }
    Ok(())
}

fn leave(kept: &Kept) -> Result<Outcome, nearwalk_repl::Error> {
    let now = kept.note.subject.setting(&Linux);
    kept.remove()?;
    Ok(now.map_or(Outcome::Gone, |now| Outcome::Theirs(now.text)))
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// What became of a setting, in words.
pub fn tell(outcome: &Result<Outcome, String>, kept: &Kept) -> String {
    match outcome {
        Ok(outcome) => crate::print::outcome(outcome, &kept.note.found),
        Err(why) => format!(
            "`{}` could not be brought back: {why}; `nearwalk trial --restore` tries again",
            kept.note.found
        ),
    }
}
