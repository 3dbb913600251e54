// SPDX-License-Identifier: GPL-2.0-or-later
//! What drivers in a machine, and who follows them on the host, have in common:
//! programs that do a step for each line they read, and files of the kernel's.

use std::{
    collections::BTreeMap,
    convert::identity,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use anyhow::{Context, bail, ensure};
use nearwalk_lab::{Job, Vm, VmConfig};
use serde::de::DeserializeOwned;

use crate::vm::wire::Lines;

/// Says on standard error what goes on with what `label` names, and since when.
pub fn sayer(begin: Instant, label: String) -> impl Fn(&str) {
    move |text| {
        let seconds = begin.elapsed().as_secs();
        eprintln!("{:2}:{:02}  {label}: {text}", seconds / 60, seconds % 60);
    }
}

/// Runs a driver in a machine and hands on what it tells; other lines go to `say`.
pub fn follow<Event: DeserializeOwned>(
    config: &VmConfig,
    driver: Vec<String>,
    mut told: impl FnMut(Event),
    say: impl Fn(&str),
) -> anyhow::Result<()> {
    let (sender, lines) = mpsc::channel();
    let job = Job::new(driver)
        .stdout(Lines::new(sender, identity))
        .stderr(io::stderr());
    // QEMU ends with the thread that started it.
    let config = config.clone();
    let machine = thread::spawn(move || Vm::start(&config, job)?.wait());
    for line in lines {
        match serde_json::from_str(&line) {
            Ok(event) => told(event),
            Err(_) => say(&format!("({line})")),
        }
    }
    let outcome = machine
        .join()
        .expect("the machine's thread does not panic")?;
    // A driver that could not do all has told why.
    if !outcome.success() && outcome.exit_code() != 1 {
        bail!("the machine: {}", outcome.report());
    }
    Ok(())
}

/// A program that reads lines and answers each.
pub struct Talker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Talker {
    pub fn start(program: &Path, words: &[String]) -> anyhow::Result<Talker> {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Talker {
            child,
            input,
            output,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do what is next.
    pub fn go(&mut self) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("it was stopped")?;
        input
            .write_all(b"\n")
            .context("the program does not listen")
    }

    /// The next line that it says.
    pub fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            bail!("the program ended: {status}");
        }
        Ok(line.trim_end().to_owned())
    }

    /// What follows these words in the next line.
    pub fn answer_after(&mut self, words: &str) -> anyhow::Result<String> {
        let answer = self.answer()?;
        let rest = answer.strip_prefix(words).map(|rest| rest.trim().into());
        rest.with_context(|| format!("the program said '{answer}', and not '{words}'"))
    }

    pub fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "the program ended: {status}");
        Ok(())
    }
}

impl Drop for Talker {
    /// Ends what an error left.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn write(path: impl AsRef<Path>, text: &str) -> anyhow::Result<()> {
    let path = path.as_ref();
    fs::write(path, text).with_context(|| format!("'{text}' into {}", path.display()))
}

/// A name and a number a line.
pub fn numbers(path: impl AsRef<Path>) -> anyhow::Result<BTreeMap<String, u64>> {
    let path = path.as_ref();
    let cannot = || format!("cannot read {}", path.display());
    let mut found = BTreeMap::new();
    for line in BufReader::new(File::open(path).with_context(cannot)?).lines() {
        let line = line.with_context(cannot)?;
        let (name, value) = line.split_once(' ').unwrap_or_default();
        if let Ok(value) = value.trim().parse() {
            found.insert(name.to_owned(), value);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_answers_line_by_line() {
        let mut talker = Talker::start(Path::new("/bin/cat"), &[]).unwrap();
        talker.go().unwrap();
        assert_eq!(talker.answer().unwrap(), "");
        talker.stop().unwrap();
    }

    #[test]
    fn what_ends_early_or_says_something_else_is_told() {
        let mut talker = Talker::start(Path::new("/bin/false"), &[]).unwrap();
        let error = talker.answer().unwrap_err().to_string();
        assert!(error.contains("exit status: 1"), "{error}");
        let mut talker = Talker::start(Path::new("/bin/echo"), &["no".into()]).unwrap();
        let error = talker.answer_after("ready").unwrap_err().to_string();
        assert!(
            error.contains("'no'") && error.contains("'ready'"),
            "{error}"
        );
        assert!(Talker::start(Path::new("/no/such"), &[]).is_err());
    }

    #[test]
    fn numbers_are_read_by_name() {
        let found = numbers("/proc/vmstat").unwrap();
        assert!(found.contains_key("pgfault"));
        let error = numbers("/no/such").unwrap_err().to_string();
        assert!(error.contains("/no/such"), "{error}");
    }
}
