// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds in a trace what each move of a page brought about.
//!
//! The pager marks where it begins and ends to move a page. In between, the call queue
//! says which function it has other CPUs run, and the events behind that what was sent:
//! KVM's kick of a vCPU, which has done its part once the vCPU is out, and the flush of
//! the process's own entry. An exit is of what interrupted it: the first thing that its
//! CPU does behind it. So an interrupt that finds a vCPU outside of the guest is counted
//! as one, and as no exit.

use std::collections::{BTreeMap, BTreeSet};

use super::{guest::PAGE, model::Counts};

/// What KVM has a CPU run to get its vCPU out of the guest: nothing.
const KICK: &str = "ack_kick";
/// What flushes translations of a process on a CPU.
const FLUSH: &str = "flush_tlb_func";
/// On AMD's CPUs and on Intel's.
const INTERRUPTED: [&str; 2] = ["interrupt", "EXTERNAL_INTERRUPT"];

/// The events that are looked for.
pub const EVENTS: [&str; 8] = [
    "csd/csd_function_entry",
    "csd/csd_queue_cpu",
    "ipi/ipi_send_cpu",
    "ipi/ipi_send_cpumask",
    "irq_vectors/local_timer_entry",
    "irq_vectors/reschedule_entry",
    "kvm/kvm_exit",
    "kvm/kvm_page_fault",
];

/// What the pager writes into the trace.
pub fn mark(begins: bool, number: usize) -> String {
    let word = if begins { "begin" } else { "end" };
    format!("tape {word} {number}")
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("line {line} of the trace is '{text}', not a task, its CPU, a time and an event")]
    Line { line: usize, text: String },
    #[error("line {line} of the trace: {event} has '{details}', without {lacks}")]
    Event {
        line: usize,
        event: String,
        details: String,
        lacks: &'static str,
    },
    #[error("line {line} of the trace says '{text}': part of it is missing")]
    Lost { line: usize, text: String },
    #[error("line {line} of the trace: '{mark}' where '{allowed}' is next")]
    Mark {
        line: usize,
        mark: String,
        allowed: String,
    },
    #[error("the trace has {marks} of {changes} moves: part of it is missing")]
    Short { marks: usize, changes: usize },
}

/// A line of a trace.
struct Line<'a> {
    number: usize,
    task: u32,
    cpu: u32,
    event: &'a str,
    details: &'a str,
}

impl<'a> Line<'a> {
    /// `   comm-123   [004] d..1.   12.345678: event: details`
    fn read(number: usize, text: &'a str) -> Option<Line<'a>> {
        let (task, rest) = text.split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        let (context, rest) = rest.split_once(": ")?;
        let time = context.split_whitespace().last()?;
        time.parse::<f64>().ok()?;
        let (event, details) = rest.split_once(':').unwrap_or((rest, ""));
        Some(Line {
            number,
            task: task.trim_end().rsplit_once('-')?.1.parse().ok()?,
            cpu: cpu.parse().ok()?,
            event: event.trim(),
            details: details.trim(),
        })
    }

    /// The word behind `name`, which ends with a blank or `=`.
    fn field(&self, name: &'static str) -> Result<&'a str, Wrong> {
        let padded = |at: usize| at == 0 || self.details.as_bytes()[at - 1] == b' ';
        let mut found = self.details.match_indices(name);
        let at = found.find(|(at, _)| padded(*at)).map(|(at, _)| at);
        let word = at.and_then(|at| self.details[at + name.len()..].split_whitespace().next());
        word.ok_or_else(|| self.lacks(name))
    }

    /// As a number to base 16.
    fn hex(&self, name: &'static str) -> Result<u64, Wrong> {
        let word = self.field(name)?;
        let digits = word.strip_prefix("0x").unwrap_or(word);
        u64::from_str_radix(digits, 16).map_err(|_| self.lacks(name))
    }

    fn lacks(&self, what: &'static str) -> Wrong {
        Wrong::Event {
            line: self.number,
            event: self.event.into(),
            details: self.details.into(),
            lacks: what,
        }
    }
}

/// Of an interrupt that a change of an entry is the reason of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Kvm,
    Process,
}

impl Reason {
    fn of(line: &Line) -> Result<Option<Reason>, Wrong> {
        Ok(match line.field("func=")?.trim_end_matches(',') {
            KICK => Some(Reason::Kvm),
            FLUSH => Some(Reason::Process),
            _ => None,
        })
    }
}

/// Counts what each move brought about, of a trace that comes in pieces.
pub struct Counter {
    /// The task that makes moves.
    pager: u32,
    /// Lines so far.
    lines: usize,
    /// Of the moves that have begun.
    counts: Vec<Counts>,
    /// Whether the last of them has not ended.
    inside: bool,
    /// What the pager queued last.
    queued: Option<Reason>,
    /// CPUs whose vCPU an interrupt got out of the guest, until it is known which.
    out: BTreeSet<u32>,
    /// Of each page, its last move, and the vCPUs that have used it since.
    last: BTreeMap<u32, (usize, BTreeSet<u32>)>,
}

impl Counter {
    pub fn new(pager: u32) -> Counter {
        Counter {
            pager,
            lines: 0,
            counts: Vec::new(),
            inside: false,
            queued: None,
            out: BTreeSet::new(),
            last: BTreeMap::new(),
        }
    }

    /// Takes the next piece; `pages` are those of all moves so far, in their order.
    ///
    /// # Errors
    /// What is no trace, lacks something, or has other moves.
    pub fn feed(&mut self, trace: &str, pages: &[u32]) -> Result<(), Wrong> {
        for text in trace.lines() {
            self.lines += 1;
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = self.lines;
            if text.contains(" [LOST ") {
                let text = text.into();
                return Err(Wrong::Lost { line, text });
            }
            let line = Line::read(line, text).ok_or_else(|| Wrong::Line {
                line,
                text: text.into(),
            })?;
            self.see(&line, pages)?;
        }
        Ok(())
    }

    /// What each of so many moves brought about.
    ///
    /// # Errors
    /// There are others.
    pub fn end(self, changes: usize) -> Result<Vec<Counts>, Wrong> {
        let marks = self.counts.len() - usize::from(self.inside);
        match marks == changes && !self.inside {
            true => Ok(self.counts),
            false => Err(Wrong::Short { marks, changes }),
        }
    }

    fn see(&mut self, line: &Line, pages: &[u32]) -> Result<(), Wrong> {
        match line.event {
            "kvm_exit" => self.exit(line)?,
            "kvm_page_fault" => self.fault(line)?,
            "csd_function_entry" => {
                let reason = Reason::of(line)?;
                self.interrupted(line, reason);
            }
            "reschedule_entry" => self.interrupted(line, None),
            // A tick is of nothing, but says what an exit was of.
            "local_timer_entry" => drop(self.out.remove(&line.cpu)),
            "csd_queue_cpu" if self.is_of_move(line) => self.queued = Reason::of(line)?,
            "ipi_send_cpu" | "ipi_send_cpumask" if self.is_of_move(line) => self.sent(line)?,
            event if event.starts_with("tracing_mark_write") => self.mark(line, pages)?,
            _ => {}
        }
        Ok(())
    }

    fn is_of_move(&self, line: &Line) -> bool {
        self.inside && line.task == self.pager
    }

    fn mark(&mut self, line: &Line, pages: &[u32]) -> Result<(), Wrong> {
        let number = self.counts.len() - usize::from(self.inside);
        let allowed = mark(!self.inside, number);
        let page = pages.get(number);
        let (true, Some(&page)) = (line.details == allowed, page) else {
            return Err(Wrong::Mark {
                line: line.number,
                mark: line.details.into(),
                allowed: page.map_or_else(|| "the end".into(), |_| allowed),
            });
        };
        self.inside = !self.inside;
        self.queued = None;
        if self.inside {
            self.counts.push(Counts::default());
            self.last.insert(page, (number, BTreeSet::new()));
        }
        Ok(())
    }

    /// A vCPU has left the guest.
    fn exit(&mut self, line: &Line) -> Result<(), Wrong> {
        line.field("vcpu ")?;
        match INTERRUPTED.contains(&line.field("reason ")?) {
            true => self.out.insert(line.cpu),
            false => self.out.remove(&line.cpu),
        };
        Ok(())
    }

    /// A CPU handles an interrupt.
    fn interrupted(&mut self, line: &Line, reason: Option<Reason>) {
        let exit = self.out.remove(&line.cpu);
        // A function that ran before any move is of none.
        let (true, Some(counts)) = (exit, self.counts.last_mut()) else {
            return;
        };
        match reason {
            Some(Reason::Kvm) => counts.kvm_exits += 1,
            Some(Reason::Process) => counts.process_exits += 1,
            None if self.inside => counts.other_exits += 1,
            None => {}
        }
    }

    /// The pager interrupts CPUs.
    fn sent(&mut self, line: &Line) -> Result<(), Wrong> {
        // Others are to reschedule.
        let to_call = line
            .field("callback=")?
            .starts_with("generic_smp_call_function");
        let Some(counts) = self.counts.last_mut().filter(|_| to_call) else {
            return Ok(());
        };
        let cpus = match line.event {
            "ipi_send_cpu" => line.field("cpu=").map(|_| 1)?,
            _ => mask(line.field("cpumask=")?).ok_or_else(|| line.lacks("cpumask="))?,
        };
        match self.queued {
            Some(Reason::Kvm) => counts.kvm_interrupts += cpus,
            Some(Reason::Process) => counts.process_interrupts += cpus,
            None => {}
        }
        Ok(())
    }

    /// A vCPU has left the guest as its page has no entry.
    fn fault(&mut self, line: &Line) -> Result<(), Wrong> {
        let page = line.hex("address ")? / PAGE as u64;
        let vcpu = line.field("vcpu ")?.parse();
        let vcpu: u32 = vcpu.map_err(|_| line.lacks("vcpu "))?;
        let last = u32::try_from(page)
            .ok()
            .and_then(|page| self.last.get_mut(&page));
        if let Some((change, vcpus)) = last {
            let counts = &mut self.counts[*change];
            match vcpus.insert(vcpu) {
                true => counts.faults += 1,
                false => counts.retries += 1,
            }
        }
        Ok(())
    }
}

/// How many CPUs a mask has: `ff,00000003`.
fn mask(text: &str) -> Option<u64> {
    let ones = |digit: char| Some(u64::from(digit.to_digit(16)?.count_ones()));
    text.chars().filter(|&c| c != ',').map(ones).sum()
}

#[cfg(test)]
#[path = "count_tests.rs"]
mod tests;
