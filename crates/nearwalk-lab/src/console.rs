// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the guest kernel's console and finds what no passing run may contain.

use std::collections::VecDeque;

/// What kind of trouble the kernel reported, least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A failed assertion that did not stop the kernel: `WARN_ON`, a bad page,
    /// a corrupt list, a sleep in atomic context.
    Warning,
    /// A lock used in a way that can deadlock, or RCU used without protection.
    Lockdep,
    /// A use after free or out of bounds.
    Kasan,
    /// A CPU or a task that does not get on.
    Stall,
    /// An oops or a panic.
    Panic,
}

/// One report on the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// Line of the console log where it starts, from 1.
    pub line: usize,
    /// That line and some that follow.
    pub text: Vec<String>,
}

impl Finding {
    /// What, where and who, in one line: of a log of many machines often the end is all that
    /// is left.
    pub fn in_short(&self) -> String {
        let lines = || self.text.iter().map(|line| without_prefix(line));
        let starting = |word: &str| lines().skip(1).find(|line| line.starts_with(word));
        let first = lines().next().into_iter();
        let more = [starting("RIP: "), starting("CPU: ")].into_iter().flatten();
        first.chain(more).collect::<Vec<_>>().join("; ")
    }
}

/// Lines kept of a report, and reports kept of a run.
const CONTEXT: usize = 40;
const MAX_FINDINGS: usize = 100;

/// Lines kept of the end of the console.
const TAIL: usize = 60;

/// What the guest's first process says last; see lab/init.
const END_MARK: &str = "nearwalk-lab: end,";
/// And after what each thread waits for.
const LOOKED_MARK: &str = "nearwalk-lab: looked at,";

/// Splits console output into lines and classifies them.
#[derive(Default)]
pub struct Scanner {
    /// Functions whose warnings say something of the machine alone.
    known: &'static [&'static str],
    partial: Vec<u8>,
    lines: usize,
    tail: VecDeque<String>,
    findings: Vec<Finding>,
    open: usize,
    ended: bool,
    looked: bool,
}

impl Scanner {
    /// A scanner for a machine on which these functions warn on every kernel.
    pub fn knowing(known: &'static [&'static str]) -> Scanner {
        Scanner {
            known,
            ..Scanner::default()
        }
    }

    /// Takes more output; returns the worst kind of finding that it began.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<FindingKind> {
        let mut worst = None;
        for &byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.partial);
                    worst = worst.max(self.line(&String::from_utf8_lossy(&line)));
                }
                b'\r' => {}
                _ => self.partial.push(byte),
            }
        }
        worst
    }

    /// Whether the guest's first process has announced the end.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether it has looked at all threads.
    pub fn looked(&self) -> bool {
        self.looked
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The last lines, also one that is not complete.
    pub fn tail(&self) -> Vec<String> {
        let partial = Some(&self.partial).filter(|text| !text.is_empty());
        let partial = partial.map(|text| String::from_utf8_lossy(text).into_owned());
        self.tail.iter().cloned().chain(partial).collect()
    }

    fn line(&mut self, line: &str) -> Option<FindingKind> {
        self.lines += 1;
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_string());
        let message = without_prefix(line);
        if message.starts_with(END_MARK) {
            self.ended = true;
        }
        self.looked |= message.starts_with(LOOKED_MARK);
        let kind = classify(message).filter(|_| !warns_in(message, self.known));
        // Inside a report only something worse is a report of its own. An oops
        // ends in a panic, however much is printed between: one event.
        let last = self.findings.last().map(|finding| finding.kind);
        let dead = last == Some(FindingKind::Panic);
        let same_event = kind.is_some() && last >= kind && (self.open > 0 || dead);
        if self.open > 0 {
            self.open -= 1;
            if let Some(finding) = self.findings.last_mut() {
                finding.text.push(line.to_string());
            }
        }
        let kind = kind.filter(|_| !same_event)?;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding {
                kind,
                line: self.lines,
                text: vec![line.to_string()],
            });
            self.open = CONTEXT - 1;
        }
        Some(kind)
    }
}

/// Whether a message is a warning of one of these functions:
/// `WARNING: CPU: 1 PID: 0 at FILE:LINE FUNCTION+0x66/0x80`, where FUNCTION may
/// have a suffix of the compiler's.
fn warns_in(message: &str, functions: &[&str]) -> bool {
    let function = message
        .strip_prefix("WARNING: CPU: ")
        .and_then(|rest| rest.split(' ').next_back())
        .and_then(|place| place.split(['+', '.']).next());
    function.is_some_and(|name| functions.contains(&name))
}

/// Cuts `[   12.345678] ` and, with `printk.caller`, `[  T123] ` off.
pub(crate) fn without_prefix(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some(inside) = rest.strip_prefix('[') {
        let Some((tag, after)) = inside.split_once(']') else {
            break;
        };
        let tag = tag.trim_start();
        let stamp = tag.starts_with(|c: char| c.is_ascii_digit() || c == 'T' || c == 'C')
            && tag[1..].chars().all(|c| c.is_ascii_digit() || c == '.');
        if !stamp {
            break;
        }
        rest = after.trim_start();
    }
    rest
}

/// What a kernel message reports. The strings are those that the kernel's own
/// code prints (Linux 6.12); the first match counts.
fn classify(message: &str) -> Option<FindingKind> {
    use FindingKind::*;
    const STARTS: &[(&str, FindingKind)] = &[
        ("Kernel panic - not syncing", Panic),
        ("Oops: ", Panic),
        ("Oops[", Panic),
        ("kernel BUG at ", Panic),
        ("BUG: unable to handle ", Panic),
        ("BUG: kernel NULL pointer dereference", Panic),
        ("BUG: stack guard page was hit", Panic),
        ("general protection fault", Panic),
        ("double fault", Panic),
        ("invalid opcode", Panic),
        ("PANIC: ", Panic),
        ("BUG: KASAN: ", Kasan),
        ("BUG: KFENCE: ", Kasan),
        ("watchdog: BUG: soft lockup", Stall),
        ("watchdog: CPU", Stall),
        ("NMI watchdog: Watchdog detected hard LOCKUP", Stall),
        ("INFO: task ", Stall),
        ("BUG: workqueue lockup", Stall),
        ("WARNING: possible circular locking", Lockdep),
        ("WARNING: possible recursive locking", Lockdep),
        ("WARNING: possible irq lock inversion", Lockdep),
        ("WARNING: HARDIRQ-", Lockdep),
        ("WARNING: SOFTIRQ-", Lockdep),
        ("WARNING: inconsistent lock state", Lockdep),
        ("WARNING: suspicious RCU usage", Lockdep),
        ("WARNING: bad unlock balance", Lockdep),
        ("WARNING: bad contention detected", Lockdep),
        ("WARNING: held lock freed", Lockdep),
        ("WARNING: lock held ", Lockdep),
        ("WARNING: Nested lock was not taken", Lockdep),
        ("WARNING: Invalid wait context", Lockdep),
        ("[ BUG: Invalid wait context ]", Lockdep),
        ("INFO: trying to register non-static key", Lockdep),
        ("BUG: MAX_LOCK", Lockdep),
        ("DEBUG_LOCKS_WARN_ON", Lockdep),
        ("WARNING: CPU: ", Warning),
        ("WARNING: ", Warning),
        ("BUG: ", Warning),
        ("BUG ", Warning),
        ("UBSAN: ", Warning),
        ("list_add corruption", Warning),
        ("list_del corruption", Warning),
        ("page_table_check: ", Warning),
    ];
    if let Some((_, kind)) = STARTS.iter().find(|(start, _)| message.starts_with(start)) {
        let stuck = *kind != Stall
            || !message.starts_with("INFO: task ")
            || message.contains("blocked for more than");
        return stuck.then_some(*kind);
    }
    // The name of the RCU flavour, or of a process, comes first.
    if message.starts_with("rcu: INFO: ")
        && message.contains("detected")
        && message.contains("stall")
    {
        return Some(Stall);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(log: &str) -> Vec<FindingKind> {
        let mut scanner = Scanner::default();
        scanner.feed(log.as_bytes());
        scanner
            .findings()
            .iter()
            .map(|finding| finding.kind)
            .collect()
    }

    /// As Linux 6.12 printed them on a lab VM's console.
    const OOPS: &str = include_str!("../tests/console/oops.log");
    const WARN: &str = include_str!("../tests/console/warn.log");
    const CLEAN: &str = include_str!("../tests/console/clean.log");
    const PANIC: &str = include_str!("../tests/console/panic.log");
    const LOCKDEP: &str = include_str!("../tests/console/lockdep.log");
    const KASAN: &str = include_str!("../tests/console/kasan.log");
    const STALL: &str = include_str!("../tests/console/stall.log");
    const BOCHS: &str = include_str!("../tests/console/bochs.log");

    #[test]
    fn a_clean_boot_has_no_findings() {
        assert_eq!(kinds(CLEAN), []);
    }

    #[test]
    fn each_kind_of_report_is_found_once() {
        assert_eq!(kinds(OOPS), [FindingKind::Panic]);
        assert_eq!(kinds(PANIC), [FindingKind::Panic]);
        assert_eq!(kinds(WARN), [FindingKind::Warning]);
        assert_eq!(kinds(LOCKDEP), [FindingKind::Lockdep]);
        assert_eq!(kinds(KASAN), [FindingKind::Kasan]);
        assert_eq!(kinds(STALL), [FindingKind::Stall]);
    }

    #[test]
    fn time_stamps_and_callers_are_cut_off() {
        assert_eq!(without_prefix("[    1.250000] Oops: x"), "Oops: x");
        assert_eq!(without_prefix("[    1.250000][  T12] Oops: x"), "Oops: x");
        assert_eq!(without_prefix("[ BUG: Invalid"), "[ BUG: Invalid");
        assert_eq!(without_prefix("plain"), "plain");
    }

    #[test]
    fn a_report_may_arrive_in_pieces() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.feed(b"[    9.0] WARN"), None);
        assert_eq!(
            scanner.feed(b"ING: CPU: 1 PID: 2 at mm/x.c:3\r\n"),
            Some(FindingKind::Warning)
        );
        scanner.feed(b"[    9.1] Call Trace:\n");
        let finding = &scanner.findings()[0];
        assert_eq!(finding.line, 1);
        assert_eq!(finding.text.len(), 2);
    }

    #[test]
    fn a_finding_in_short_says_what_where_and_who() {
        let text = [
            "[   60.1] Oops: stack guard page: 0000 [#1] SMP NOPTI",
            "[   60.2] CPU: 0 UID: 0 PID: 7 Comm: qemu-system-x86 Not tainted 6.12",
            "[   60.3] Hardware name: QEMU",
            "[   60.4] RIP: 0010:smp_call_function_many_cond+0x1a3/0x3d0",
            "[   60.5] RIP: 0033:0x7ffff7d0",
        ];
        let text = text.map(String::from).to_vec();
        let kind = FindingKind::Panic;
        let finding = Finding {
            kind,
            line: 1,
            text,
        };
        assert_eq!(
            finding.in_short(),
            "Oops: stack guard page: 0000 [#1] SMP NOPTI; \
             RIP: 0010:smp_call_function_many_cond+0x1a3/0x3d0; \
             CPU: 0 UID: 0 PID: 7 Comm: qemu-system-x86 Not tainted 6.12"
        );
    }

    #[test]
    fn a_panic_inside_a_warning_is_its_own_finding() {
        let log = "WARNING: CPU: 1 PID: 2 at mm/x.c:3\nKernel panic - not syncing: y\n";
        assert_eq!(kinds(log), [FindingKind::Warning, FindingKind::Panic]);
    }

    #[test]
    fn ordinary_mentions_are_not_findings() {
        for line in [
            "Warning: Processor Platform Limit event detected, but not handled.",
            "INFO: task list printed",
            "debug: BUG: in the middle",
            "nearwalk-lab: failed: x",
        ] {
            assert_eq!(kinds(&format!("{line}\n")), [], "{line}");
        }
    }

    #[test]
    fn only_warnings_of_known_functions_are_passed_over() {
        let findings = |log: &str| {
            let mut scanner = Scanner::knowing(crate::bochs::KNOWN_WARNINGS);
            scanner.feed(log.as_bytes());
            scanner.findings().len()
        };
        assert_eq!(kinds(BOCHS), [FindingKind::Warning]);
        assert_eq!(findings(BOCHS), 0);
        // Not what comes next, nor what is worse.
        let other = "WARNING: CPU: 1 PID: 0 at x/tlb.c:3 topology_sane_not+0x6/0x8\n";
        assert_eq!(findings(&format!("{BOCHS}{other}")), 1);
        assert_eq!(findings("kernel BUG at topology_sane+0x6/0x8\n"), 1);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut scanner = Scanner::default();
        for number in 0..100 {
            scanner.feed(format!("line {number}\n").as_bytes());
        }
        scanner.feed(b"begun");
        let tail = scanner.tail();
        assert_eq!(tail.len(), TAIL + 1);
        assert_eq!(tail[0], "line 40");
        assert_eq!(tail[TAIL - 1..], ["line 99", "begun"]);
    }

    #[test]
    fn the_marks_are_seen() {
        let mut scanner = Scanner::default();
        scanner.feed(b"[    5.2] nearwalk-lab: end, status 0\n");
        assert!(scanner.ended() && !scanner.looked());
        scanner.feed(b"[    5.3] nearwalk-lab: looked at, all threads\n");
        assert!(scanner.looked());
    }
}
