// SPDX-License-Identifier: GPL-2.0-or-later
//! The program on a pseudo-terminal: what is on the screen, and whether the
//! terminal is as it was when it ends, however that comes.

#[path = "../../nearwalk-advise/tests/common/mod.rs"]
mod common;

mod pty;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use common::{four_nodes, scratch};
use nearwalk_host::{Error, Live, Source};
use nearwalk_top::live::{self, From};
use pty::{Terminal, WORDS, command};
use rustix::process::Signal;

/// What stands for a host on which the sampler panics once a file is there, which follows.
const PANIC: &str = "panic:";

/// This host, until there is a file.
struct Panics(Live, PathBuf);

impl Source for Panics {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        assert!(!self.1.exists(), "a panic for a test");
        self.0.read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.0.list(path)
    }

    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.0.wait(time)
    }
}

#[test]
#[ignore = "is what the other tests run in a terminal"]
fn in_the_terminal() {
    let words = env::var(WORDS).unwrap();
    if let Some(file) = words.strip_prefix(PANIC) {
        let source = From::Live(Box::new(Panics(Live::default(), file.into())));
        live::run(source, Duration::from_secs(1)).unwrap();
        return;
    }
    pty::run(&words);
}

fn recorded(name: &str, columns: u16, rows: u16) -> Terminal {
    let dir = four_nodes().record(name);
    Terminal::start(&format!("--from {}", dir.display()), columns, rows)
}

#[test]
fn keys_do_what_the_last_line_says() {
    let mut terminal = recorded("terminal-keys", 120, 40);
    // What is below the first line comes after it.
    terminal.until_shown("by exposure, end of the recording");
    terminal.until_shown("  100    0    0    380M  380M");
    terminal.press("sss");
    terminal.until_shown("by name, end");
    terminal.press("/pod-7\r");
    let text = terminal.until_shown("only `pod-7`");
    assert!(!text.contains("redis"), "{text}");
    // The only row, whose processes are shown; then it is closed again.
    terminal.press("j\x1b[C");
    terminal.until_shown("  1590 java");
    terminal.press("j\x1b[D");
    terminal.until("closed", |text| !text.contains("1590 java"));
    terminal.press("\r");
    terminal.until_shown("a recording has no answer");
    terminal.press("x\x1b");
    terminal.until_shown("redis");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn while_it_is_paused_nothing_changes() {
    let mut terminal = Terminal::start("--interval 0.5", 80, 24);
    terminal.until_shown("0.5 s");
    terminal.press("p");
    let paused = terminal.until_shown("paused");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(terminal.text(), paused);
    terminal.press("p");
    terminal.until_shown("0.5 s");
    terminal.press("\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_it_was() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut terminal = recorded("terminal-signal", 80, 24);
        terminal.until_shown("NAME");
        assert!(terminal.is_raw());
        terminal.signal(signal);
        assert_eq!(terminal.end().signal(), Some(signal.as_raw()));
    }
}

#[test]
fn a_panic_ends_it_and_the_terminal_is_as_it_was() {
    let file = env::temp_dir().join(format!("nearwalk-top-panic-{}", process::id()));
    let mut terminal = Terminal::start(&format!("{PANIC}{}", file.display()), 80, 24);
    terminal.until("drawn", |text| !text.trim().is_empty());
    fs::write(&file, "").unwrap();
    assert!(!terminal.end().success());
    terminal.until_shown("a panic for a test");
    fs::remove_file(&file).unwrap();
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let mut terminal = recorded("terminal-size", 120, 40);
    terminal.until_shown("%N0");
    terminal.resize(40, 5);
    terminal.until_shown("needs 60 x 8");
    terminal.resize(0, 0);
    terminal.resize(1, 1);
    terminal.resize(90, 24);
    let text = terminal.until_shown("0123");
    assert!(!text.contains("%N0"), "{text}");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn it_goes_on_after_a_stop() {
    let mut terminal = recorded("terminal-stop", 80, 24);
    terminal.until_shown("end of the recording");
    // Or it could come after the reset.
    terminal.until_shown("redis");
    terminal.signal(Signal::STOP);
    // What a shell does with a terminal that it has back.
    let reset = "\x1b[?1049l\x1b[?25h\x1b[2J";
    terminal.screen.lock().unwrap().process(reset.as_bytes());
    let now = rustix::termios::OptionalActions::Now;
    rustix::termios::tcsetattr(&terminal.slave, now, &terminal.before).unwrap();
    assert!(!terminal.text().contains("redis"));
    terminal.signal(Signal::CONT);
    terminal.until_shown("redis");
    assert!(terminal.is_raw());
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn ctrl_z_gives_the_terminal_back_for_a_while() {
    let mut terminal = recorded("terminal-ctrl-z", 80, 24);
    terminal.until_shown("end of the recording");
    terminal.press("\x1a");
    terminal.until("given back", |_| !terminal.is_raw());
    terminal.signal(Signal::CONT);
    terminal.until("taken again", |_| terminal.is_raw());
    terminal.until_shown("redis");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn what_was_recorded_can_be_shown_again() {
    let dir = scratch("terminal-recorded");
    let words = format!("--interval 0.5 --record {}", dir.display());
    let mut terminal = Terminal::start(&words, 80, 24);
    terminal.until_shown("0.5 s");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    let mut again = Terminal::start(&format!("--from {}", dir.display()), 80, 24);
    again.until_shown("end of the recording");
    again.press("q");
    assert_eq!(again.end().code(), Some(0));
    let mut used = Terminal::start(&words, 80, 24);
    used.until_shown("is not empty");
    used.end();
}

#[test]
fn without_a_terminal_it_prints_a_frame() {
    let dir = four_nodes().record("terminal-none");
    let this = env::current_exe().unwrap();
    let words = format!("--from {}", dir.display());
    let output = command(&words, this.to_str().unwrap()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("system.slice/redis.service"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}
