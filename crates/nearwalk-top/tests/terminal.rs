// SPDX-License-Identifier: GPL-2.0-or-later
//! The program on a pseudo-terminal: what is on the screen, and whether the
//! terminal is as it was when it ends, however that comes.

#[path = "../../nearwalk-advise/tests/common/mod.rs"]
mod common;

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Parser;
use common::{four_nodes, scratch};
use nearwalk_host::{Error, Live, Source};
use nearwalk_top::cli::{self, Args};
use nearwalk_top::live::{self, From};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// In a terminal, this program runs the command with the words in this variable.
const WORDS: &str = "NEARWALK_TOP_WORDS";
/// The word that stands for a host on which the sampler panics.
const PANIC: &str = "panic";

#[derive(clap::Parser)]
struct Top {
    #[command(flatten)]
    args: Args,
}

/// This host, but for the second look at it.
struct Panics(Live);

impl Source for Panics {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        assert!(self.0.now() < Duration::from_secs(1), "a panic for a test");
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
    if words == PANIC {
        let source = From::Live(Box::new(Panics(Live::default())));
        live::run(source, Duration::from_secs(1)).unwrap();
        return;
    }
    let words = ["top"].into_iter().chain(words.split_whitespace());
    cli::run(Top::parse_from(words).args).unwrap();
}

fn command(words: &str, program: &str) -> Command {
    let this = env::current_exe().unwrap();
    let mut command = Command::new(program);
    if program == "setsid" {
        // A terminal of its own: that of whoever runs the tests is none of ours.
        command.arg("--ctty").arg(&this);
    }
    command
        .args(["--exact", "in_the_terminal", "--ignored", "--nocapture"])
        .env(WORDS, words)
        .env("TERM", "xterm-256color")
        .env("RUST_BACKTRACE", "0");
    command
}

fn set_size(master: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size).unwrap();
}

/// The command in a terminal.
struct Terminal {
    master: File,
    slave: File,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    fn start(words: &str, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let slave = File::from(rustix::fs::open(&*name, flags, Mode::empty()).unwrap());
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = command(words, "setsid");
        command.stdin(end()).stdout(end()).stderr(end());
        // Its size has to be right before it is asked for.
        set_size(&master, columns, rows);
        let terminal = Self {
            master: File::from(master),
            slave,
            before,
            screen: Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0))),
            child: command.spawn().unwrap(),
        };
        let mut master = terminal.master.try_clone().unwrap();
        let screen = Arc::clone(&terminal.screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = master.read(&mut bytes) {
                screen.lock().unwrap().process(&bytes[..length]);
            }
        });
        terminal
    }

    fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
        let mut screen = self.screen.lock().unwrap();
        screen.set_size(rows.max(1), columns.max(1));
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is so.
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        for _ in 0..600 {
            let text = self.text();
            if is_so(&text) {
                return text;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("not {what}:\n{}", self.text());
    }

    fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap();
        !modes.local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for its end: the terminal is as it was before.
    fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        self.until("restored", |_| {
            let parser = self.screen.lock().unwrap();
            let screen = parser.screen();
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn recorded(name: &str, columns: u16, rows: u16) -> Terminal {
    let dir = four_nodes().record(name);
    Terminal::start(&format!("--from {}", dir.display()), columns, rows)
}

#[test]
fn keys_do_what_the_last_line_says() {
    let mut terminal = recorded("terminal-keys", 120, 40);
    let text = terminal.until_shown("end of the recording");
    assert!(text.contains("by exposure, end"), "{text}");
    assert!(text.contains("  100    0    0    380M  380M"), "{text}");
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
    let mut terminal = Terminal::start(PANIC, 80, 24);
    terminal.until_shown("looking around");
    assert!(!terminal.end().success());
    terminal.until_shown("a panic for a test");
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
