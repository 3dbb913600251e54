// SPDX-License-Identifier: GPL-2.0-or-later
//! How a run ended, and what that is as an exit status.

use std::{fmt::Write, path::PathBuf, time::Duration};

use crate::{Finding, FindingKind};

/// What ended the run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The command exited with this status (128 + N after signal N).
    Exited(u8),
    /// The guest kernel stopped.
    Panicked,
    /// The guest gave no sign of life for this long.
    Hung(Duration),
    /// The run's own time limit passed.
    TimedOut(Duration),
    /// QEMU ended by itself; its last words.
    Died(String),
    /// Somebody called [`crate::VmHandle::kill`].
    Killed,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub end: End,
    /// What the guest kernel reported, in order.
    pub findings: Vec<Finding>,
    /// From the start of QEMU to the start of the command, by the host's
    /// clock.
    pub boot: Option<Duration>,
    /// From the start of QEMU to its end.
    pub total: Duration,
    /// Where the CPUs were when the run had to be ended.
    pub cpus: Vec<String>,
    /// The end of the console.
    pub last_lines: Vec<String>,
    /// The console log, if it was kept.
    pub console_log: Option<PathBuf>,
}

/// Exit statuses that are not the command's own.
pub mod status {
    pub const TIMED_OUT: u8 = 124;
    pub const LAB_FAILED: u8 = 125;
    pub const KILLED: u8 = 130;
    pub const PANIC: u8 = 240;
    pub const HANG: u8 = 241;
    pub const LOCKDEP: u8 = 242;
    pub const KASAN: u8 = 243;
    pub const WARNING: u8 = 244;
    pub const DIED: u8 = 245;
}

impl Outcome {
    /// The most severe finding, the first of its kind.
    pub fn worst_finding(&self) -> Option<&Finding> {
        // `max_by_key` keeps the last of equals.
        self.findings
            .iter()
            .rev()
            .max_by_key(|finding| finding.kind)
    }

    /// The guest kernel reported nothing and the command succeeded.
    pub fn success(&self) -> bool {
        self.exit_code() == 0
    }

    /// The status for whoever called: the command's own unless the guest or
    /// the lab failed; see [`status`].
    pub fn exit_code(&self) -> u8 {
        let found = self.worst_finding().map(|finding| match finding.kind {
            FindingKind::Panic => status::PANIC,
            FindingKind::Stall => status::HANG,
            FindingKind::Kasan => status::KASAN,
            FindingKind::Lockdep => status::LOCKDEP,
            FindingKind::Warning => status::WARNING,
        });
        match (&self.end, found) {
            (End::Panicked, _) => status::PANIC,
            (End::Hung(_), _) => status::HANG,
            (_, Some(status)) => status,
            (End::Exited(status), None) => *status,
            (End::TimedOut(_), None) => status::TIMED_OUT,
            (End::Died(_), None) => status::DIED,
            (End::Killed, None) => status::KILLED,
        }
    }

    /// For people: what went wrong, the kernel's words, and where the rest is.
    /// Empty when the command ran to its end on a kernel without complaints.
    pub fn report(&self) -> String {
        let mut text = String::new();
        let headline = match &self.end {
            End::Exited(status) if self.findings.is_empty() => {
                let _ = status;
                return text;
            }
            End::Exited(status) => format!("the command exited with {status}, but"),
            End::Panicked => "the guest kernel stopped".into(),
            End::Hung(silence) => format!(
                "the guest hangs: no sign of life for {} s",
                silence.as_secs()
            ),
            End::TimedOut(limit) => format!("stopped after the limit of {} s", limit.as_secs()),
            End::Died(words) if words.is_empty() => "the virtual machine ended by itself".into(),
            End::Died(words) => format!("the virtual machine ended by itself: {words}"),
            End::Killed => "stopped on request".into(),
        };
        let _ = writeln!(text, "{headline}");
        if let Some(worst) = self.worst_finding() {
            let what = match worst.kind {
                FindingKind::Panic => "oops or panic",
                FindingKind::Stall => "stall",
                FindingKind::Kasan => "memory error",
                FindingKind::Lockdep => "locking error",
                FindingKind::Warning => "warning",
            };
            let more = match self.findings.len() {
                1 => String::new(),
                count => format!(", the worst of {count} reports"),
            };
            let _ = writeln!(
                text,
                "the guest kernel reported: {what}{more} (console line {}):",
                worst.line
            );
            for line in &worst.text {
                let _ = writeln!(text, "    {line}");
            }
        }
        if matches!(self.end, End::TimedOut(_) | End::Hung(_)) {
            for line in &self.cpus {
                let _ = writeln!(text, "{line}");
            }
            let _ = writeln!(text, "the end of the console:");
            for line in &self.last_lines {
                let _ = writeln!(text, "    {line}");
            }
        }
        if let Some(log) = &self.console_log {
            let _ = writeln!(text, "console log: {}", log.display());
        }
        if let Some(worst) = self.worst_finding() {
            let _ = writeln!(text, "in short: {}", worst.in_short());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: End, kinds: &[FindingKind]) -> Outcome {
        let finding = |(index, &kind): (usize, &FindingKind)| Finding {
            kind,
            line: index + 1,
            text: vec![format!("line {}", index + 1)],
        };
        Outcome {
            end,
            findings: kinds.iter().enumerate().map(finding).collect(),
            boot: None,
            total: Duration::ZERO,
            cpus: vec!["CPU 0: halted".into()],
            last_lines: vec!["last words".into()],
            console_log: Some("/x/console.log".into()),
        }
    }

    #[test]
    fn a_clean_run_has_the_commands_status_and_no_report() {
        let run = outcome(End::Exited(3), &[]);
        assert_eq!(run.exit_code(), 3);
        assert_eq!(run.report(), "");
    }

    #[test]
    fn a_finding_outweighs_the_commands_success() {
        let run = outcome(End::Exited(0), &[FindingKind::Warning]);
        assert_eq!(run.exit_code(), status::WARNING);
        assert!(!run.success());
        assert!(run.report().contains("line 1"), "{}", run.report());
        assert!(run.report().contains("/x/console.log"));
    }

    #[test]
    fn the_first_of_the_worst_findings_counts() {
        use FindingKind::*;
        let run = outcome(End::Exited(0), &[Warning, Kasan, Lockdep, Kasan]);
        assert_eq!(run.worst_finding().unwrap().line, 2);
        assert_eq!(run.exit_code(), status::KASAN);
    }

    #[test]
    fn a_run_that_had_to_be_ended_says_where_it_stood() {
        for (end, told) in [
            (End::TimedOut(Duration::from_secs(9)), true),
            (End::Hung(Duration::from_secs(9)), true),
            (End::Killed, false),
        ] {
            let report = outcome(end, &[]).report();
            for words in ["CPU 0: halted", "last words"] {
                assert_eq!(report.contains(words), told, "{report}");
            }
        }
    }

    #[test]
    fn each_end_has_its_own_status() {
        let second = Duration::from_secs(1);
        for (end, expected) in [
            (End::Panicked, 240),
            (End::Hung(second), 241),
            (End::TimedOut(second), 124),
            (End::Died(String::new()), 245),
            (End::Killed, 130),
        ] {
            let run = outcome(end, &[]);
            assert_eq!(run.exit_code(), expected);
            assert_ne!(run.report(), "");
        }
    }
}
