// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver in the machine: runs a guest, moves its pages, and makes a tape of what the
//! kernel's trace and KVM's counters say of that. The pager has the first CPU, and each
//! vCPU one of its own behind it.

use std::{
    fs,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use lens_hatric::tape::{End, Event as Line, Header, Tape, What};
use rustix::thread::gettid;

use super::{
    count::Counter,
    guest::{BEHIND, Guest, on_cpu},
    model::{Change, Counts, Event, Plan, Sums},
    pager::{Page, Pager},
    trace::Trace,
};
use crate::vm::wire::tell;

/// Accesses of each vCPU before the recording begins, for each page.
const WARM: u32 = 8;
/// How often vCPUs are looked at.
const LOOK: Duration = Duration::from_micros(200);
/// vCPUs that do not get on in that time will not.
const PATIENCE: Duration = Duration::from_secs(300);
/// Moves whose trace has room in its buffer, by far.
const PIECE: usize = 50;
/// Moves that fail for each one that is wanted, and some.
const FAILURES: usize = 2;

/// Records; an error is told like everything else.
pub fn drive(plan: &Plan) -> bool {
    let done = record(plan).and_then(|(sums, tape)| tell(&Event::Recorded { sums, tape }));
    match &done {
        Ok(()) => true,
        Err(error) => {
            let _ = tell(&Event::Failed(format!("{error:#}")));
            false
        }
    }
}

fn step(text: impl Into<String>) -> anyhow::Result<()> {
    tell(&Event::Step(text.into()))
}

fn record(plan: &Plan) -> anyhow::Result<(Sums, String)> {
    on_cpu(0)?;
    step("a guest gets its memory")?;
    let trace = Trace::new()?;
    let mut recorder = Recorder {
        guest: Guest::new(plan)?,
        pager: Pager::new(plan.pages, plan.fast),
        trace,
        counter: Counter::new(gettid().as_raw_nonzero().get() as u32),
        plan,
        begin: 0,
        changes: Vec::new(),
    };
    recorder.guest.start();
    let moved = recorder.run();
    // A vCPU that did not run says why, and what waited for it does not.
    recorder.guest.stop()?;
    let end = moved?;
    let Recorder {
        counter, changes, ..
    } = recorder;
    let counts = counter.end(changes.len())?;
    let tape = tape(plan, &note(plan)?, &changes, &counts, end);
    Ok((sums(plan, &changes, &counts, end), tape.text()))
}

struct Recorder<'a> {
    guest: Guest,
    pager: Pager,
    trace: Trace,
    counter: Counter,
    plan: &'a Plan,
    /// Accesses before the recording.
    begin: u64,
    changes: Vec<Change>,
}

impl Recorder<'_> {
    /// Returns accesses of all vCPUs in the recording.
    fn run(&mut self) -> anyhow::Result<u64> {
        step("vCPUs use their memory")?;
        self.guest.allow(self.plan.pages as u32 * WARM);
        self.rest()?;
        for byte in self.guest.used() {
            byte.store(0, Ordering::Relaxed);
        }
        step(format!("moving {} pages", self.plan.changes))?;
        self.begin = self.guest.allowed;
        self.guest.allow(self.plan.share);
        self.trace.go()?;
        while self.done() < self.plan.changes {
            if self.changes.len() > FAILURES * self.plan.changes + 16 {
                bail!("of {} pages, {} moved", self.changes.len(), self.done());
            }
            self.exchange()?;
        }
        self.read()?;
        Ok(self.guest.allowed - self.begin)
    }

    /// Reads the trace, in which nothing happens while all vCPUs wait.
    fn read(&mut self) -> anyhow::Result<()> {
        self.rest()?;
        let pages: Vec<Page> = self.changes.iter().map(|change| change.page).collect();
        Ok(self.counter.feed(&self.trace.take()?, &pages)?)
    }

    fn done(&self) -> usize {
        self.changes.iter().filter(|change| change.done).count()
    }

    /// Brings a page that was used, once it has let another one go if need be.
    fn exchange(&mut self) -> anyhow::Result<()> {
        self.rest()?;
        let Some(page) = self.pager.wanted(self.guest.used()) else {
            self.guest.allow(self.plan.share);
            return Ok(());
        };
        if let Some(victim) = self.pager.victim(self.guest.used()) {
            if !self.change(What::Out, victim)? {
                return Ok(());
            }
            self.pager.gone(victim);
        }
        if self.change(What::In, page)? {
            self.pager.come(page);
        }
        Ok(())
    }

    /// Moves a page, and lets vCPUs go on meanwhile; whether it did move.
    fn change(&mut self, what: What, page: Page) -> anyhow::Result<bool> {
        self.rest()?;
        let at = self.guest.allowed - self.begin;
        let before = self.stats()?;
        let node = self.plan.nodes[usize::from(what == What::Out)];
        let number = self.changes.len();
        self.trace.mark(true, number)?;
        self.guest.allow(self.plan.share);
        let done = self.guest.move_page(page, node);
        self.trace.mark(false, number)?;
        // A vCPU that was to flush has done so when it gets on.
        let turns = self.guest.turns();
        self.wait(|guest| {
            let now = guest.turns();
            now.iter().zip(&turns).all(|(now, before)| now != before)
        })?;
        let after = self.stats()?;
        let done = done?;
        self.changes.push(Change {
            at,
            what,
            page,
            done,
            requests: (after[0] - before[0]) as u32,
            flushes: (after[1] - before[1]) as u32,
        });
        if self.changes.len() % PIECE == 0 {
            self.read()?;
            self.trace.go()?;
        }
        Ok(done)
    }

    fn stats(&self) -> anyhow::Result<[u64; 2]> {
        Ok([
            self.guest.stat("remote_tlb_flush_requests")?,
            self.guest.stat("tlb_flush")?,
        ])
    }

    /// Waits until all vCPUs wait: what was used depends on the seed alone then.
    fn rest(&self) -> anyhow::Result<()> {
        self.wait(Guest::waits)
    }

    fn wait(&self, until: impl Fn(&Guest) -> bool) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !until(&self.guest) {
            patient(begin)?;
        }
        Ok(())
    }
}

fn patient(begin: Instant) -> anyhow::Result<()> {
    if begin.elapsed() > PATIENCE {
        bail!("vCPUs did not get on in {} s", PATIENCE.as_secs());
    }
    thread::sleep(LOOK);
    Ok(())
}

/// What else is worth knowing of a tape.
fn note(plan: &Plan) -> anyhow::Result<String> {
    let path = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(format!(
        "Linux {}, KVM, a guest without a kernel; CLOCK, and move_pages() once {} accesses of \
         each vCPU; seed {}",
        release.trim(),
        plan.share,
        plan.seed
    ))
}

fn tape(plan: &Plan, note: &str, changes: &[Change], counts: &[Counts], end: u64) -> Tape {
    let line = |(change, counts): (&Change, &Counts)| Line {
        at: change.at,
        what: change.what,
        page: Some(change.page.into()),
        cpu: None,
        vcpus: plan.vcpus,
        exits: counts.exits() as u32,
        interrupts: counts.interrupts() as u32,
        flushes: change.flushes,
    };
    let done = changes.iter().zip(counts).filter(|(change, _)| change.done);
    let events: Vec<Line> = done.map(line).collect();
    Tape {
        header: Header {
            tape: Header::FORMAT.into(),
            version: Header::VERSION,
            memory: (plan.pages + BEHIND) as u64,
            stacked: plan.fast as u64,
            vcpus: plan.vcpus,
            resident: vec![(0, plan.fast as u64)],
            note: note.into(),
        },
        end: End {
            end,
            events: events.len() as u64,
        },
        events,
    }
}

fn sums(plan: &Plan, changes: &[Change], counts: &[Counts], accesses: u64) -> Sums {
    let mut sums = Sums {
        vcpus: plan.vcpus,
        accesses,
        ..Sums::default()
    };
    for (change, counts) in changes.iter().zip(counts) {
        if !change.done {
            sums.failed += 1;
            continue;
        }
        sums.changes += 1;
        sums.entries += u64::from(change.requests > 0);
        sums.flushes += u64::from(change.flushes);
        sums.counts.add(counts);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_has_what_moved_and_the_model_reads_it() {
        let plan = Plan {
            vcpus: 2,
            pages: 16,
            fast: 4,
            nodes: [0, 1],
            changes: 2,
            share: 100,
            seed: 1,
        };
        let change = |at, what, page, done| Change {
            at,
            what,
            page,
            done,
            requests: 1,
            flushes: 2,
        };
        let changes = [
            change(10, What::Out, 3, true),
            change(20, What::In, 9, false),
            change(35, What::In, 7, true),
        ];
        let counts = [1, 2, 3].map(|n| Counts {
            kvm_interrupts: 2 * n,
            process_interrupts: n,
            kvm_exits: 2,
            process_exits: 1,
            faults: n,
            retries: 7,
            other_exits: 9,
        });
        let text = tape(&plan, "a note", &changes, &counts, 50).text();
        let tape = Tape::read(text.as_bytes()).unwrap();
        assert_eq!(tape.header.memory, 16 + 512);
        assert_eq!(tape.header.note, "a note");
        let [out, back] = tape.events[..] else {
            panic!("{text}");
        };
        assert_eq!((out.what, out.page, out.at), (What::Out, Some(3), 10));
        assert_eq!((out.exits, out.interrupts, out.flushes), (4, 3, 2));
        assert_eq!((back.page, back.exits, back.interrupts), (Some(7), 6, 9));
        let sums = sums(&plan, &changes, &counts, 50);
        assert_eq!((sums.changes, sums.failed, sums.entries), (2, 1, 2));
        assert_eq!((sums.flushes, sums.counts.other_exits), (4, 18));
        assert_eq!(sums.counts.faults, 4);
    }
}
