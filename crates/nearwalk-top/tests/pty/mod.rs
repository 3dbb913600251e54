// SPDX-License-Identifier: GPL-2.0-or-later
//! The command on a pseudo-terminal: a test that is ignored, `in_the_terminal`,
//! of the program itself.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Parser;
use nearwalk_top::cli::{self, Args};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// In a terminal, this program runs the command with the words in this variable.
pub const WORDS: &str = "NEARWALK_TOP_WORDS";
#[derive(clap::Parser)]
struct Top {
    #[command(flatten)]
    args: Args,
}

/// Runs the command in this process.
pub fn run(words: &str) {
    let words = ["top"].into_iter().chain(words.split_whitespace());
    cli::run(Top::parse_from(words).args).unwrap();
}

pub fn command(words: &str, program: &str) -> Command {
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
pub struct Terminal {
    master: File,
    pub slave: File,
    pub before: Termios,
    pub screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    pub fn start(words: &str, columns: u16, rows: u16) -> Self {
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

    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
        let mut screen = self.screen.lock().unwrap();
        screen.set_size(rows.max(1), columns.max(1));
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        for _ in 0..1200 {
            let text = self.text();
            if is_so(&text) {
                return text;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("not {what}:\n{}", self.text());
    }

    pub fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap();
        !modes.local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for its end: the terminal is as it was before.
    pub fn end(&mut self) -> ExitStatus {
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
