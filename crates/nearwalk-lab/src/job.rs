// SPDX-License-Identifier: GPL-2.0-or-later
//! What to run in the guest, and where its input and output go.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    path::PathBuf,
};

/// The command's standard input.
#[derive(Default)]
pub enum Input {
    /// At its end from the start.
    #[default]
    Null,
    /// This process's own standard input.
    Inherit,
    /// Whatever this yields, until its end.
    Reader(Box<dyn Read + Send>),
}

/// A terminal for the command, of this size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    pub rows: u16,
    pub cols: u16,
}

/// One command for the guest.
pub struct Job {
    pub argv: Vec<OsString>,
    /// The whole environment of the command.
    pub env: Vec<(OsString, OsString)>,
    /// Directory to start in; visible in the guest wherever it lies.
    pub cwd: PathBuf,
    /// With a terminal, standard error arrives with standard output.
    pub terminal: Option<Terminal>,
    pub stdin: Input,
    /// Tells the command that the run's limit has passed; it then ends soon.
    pub limit_signal: Option<i32>,
    pub stdout: Box<dyn Write + Send>,
    pub stderr: Box<dyn Write + Send>,
}

impl Job {
    /// A command with this process's directory, standard output and standard
    /// error, its environment as [`Job::host_env`] passes it, and no input.
    pub fn new<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Job {
        Job {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Job::host_env(),
            cwd: env::current_dir().unwrap_or_else(|_| "/".into()),
            terminal: None,
            stdin: Input::Null,
            limit_signal: None,
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
        }
    }

    pub fn stdin(mut self, stdin: Input) -> Job {
        self.stdin = stdin;
        self
    }

    pub fn limit_signal(mut self, signal: Option<i32>) -> Job {
        self.limit_signal = signal;
        self
    }

    pub fn stdout(mut self, to: impl Write + Send + 'static) -> Job {
        self.stdout = Box::new(to);
        self
    }

    pub fn stderr(mut self, to: impl Write + Send + 'static) -> Job {
        self.stderr = Box::new(to);
        self
    }

    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Job {
        self.cwd = dir.into();
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Job {
        let name = name.into();
        self.env.retain(|(old, _)| *old != name);
        self.env.push((name, value.into()));
        self
    }

    pub fn terminal(mut self, terminal: Terminal) -> Job {
        self.terminal = Some(terminal);
        self
    }

    /// The environment of this process, less what names things that the guest
    /// cannot reach (displays, agents, session buses, temporary directories),
    /// plus `NEARWALK_LAB=1`.
    pub fn host_env() -> Vec<(OsString, OsString)> {
        env::vars_os()
            .filter(|(name, _)| !is_host_only(name))
            .chain([("NEARWALK_LAB".into(), "1".into())])
            .collect()
    }
}

fn is_host_only(name: &OsStr) -> bool {
    const NAMES: [&str; 8] = [
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "TMPDIR",
        "TMP",
        "TEMP",
        "MAIL",
        "NEARWALK_LAB",
    ];
    const PREFIXES: [&str; 5] = ["SSH_", "XDG_", "DBUS_", "TMUX", "GPG_"];
    let Some(name) = name.to_str() else {
        return false;
    };
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_leaves_out_what_stays_on_the_host() {
        for name in ["DISPLAY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "TMPDIR"] {
            assert!(is_host_only(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "HOME", "LANG", "TERM", "NEARWALK_BUILD"] {
            assert!(!is_host_only(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_variable_is_set_once() {
        let job = Job::new(["true"]).env("A", "1").env("A", "2");
        let values: Vec<_> = job.env.iter().filter(|(name, _)| name == "A").collect();
        assert_eq!(values, [&("A".into(), "2".into())]);
    }
}
