// SPDX-License-Identifier: GPL-2.0-or-later
//! A window of accesses that is timed under one scheme.

use super::{Outcome, Steady, Turns, pages_of};
use crate::cores::{Cores, Placement};
use crate::cotag::Message;
use crate::counts::{Counts, Why};
use crate::guest::{COPY, Gpn, nested_entry};
use crate::machine::{OFF_CHIP, STACKED};
use crate::pager::{Policy, Step};
use crate::program::Program;
use crate::scheme::{Change, Scheme};
use crate::tape::{Event, Tape};
use lens::address::PageSize;
use lens::pipe::Pace;
use std::sync::Arc;

/// A window that is timed.
pub struct Window {
    /// The hardware.
    pub cores: Cores,
    scheme: Box<dyn Scheme>,
    turns: Turns,
    policy: Policy,
    copy_wait: f64,
    stolen_daemon: bool,
    /// Accesses that each CPU has made since the beginning.
    pub(super) made: Vec<u64>,
    began: Vec<f64>,
    total: u64,
    steps: Vec<Step>,
    /// Remaps in place of the pager's, and the next of them.
    tape: Option<(Arc<Tape>, usize)>,
}

impl Window {
    /// Cold caches under `scheme`, everything else as in `steady`.
    pub fn new(steady: &Steady, placement: Placement, scheme: Box<dyn Scheme>) -> Self {
        let programs = &steady.setup.programs;
        let pace = |p: &Program| Pace {
            base: p.base,
            window: p.window,
        };
        let paces: Vec<Pace> = programs
            .iter()
            .flat_map(|(_, p, n)| std::iter::repeat_n(pace(p), *n))
            .collect();
        let mut cores = Cores::new(
            &steady.machine,
            steady.setup.scale,
            steady.guest.clone(),
            &paces,
            placement,
            scheme.tracks(),
            scheme.finite_directory(),
        );
        if placement == Placement::Paged {
            cores.pager = Some(steady.pager.clone());
            cores.in_place = steady.setup.tape.is_some();
        }
        cores.runs = steady.turns.threads.iter().map(|t| t.space).collect();
        let n = paces.len();
        Window {
            cores,
            scheme,
            turns: steady.turns.clone(),
            policy: steady.setup.policy,
            copy_wait: steady.setup.copy_wait,
            stolen_daemon: steady.setup.stolen_daemon,
            made: vec![0; n],
            began: vec![0.0; n],
            total: 0,
            steps: Vec::new(),
            tape: steady.setup.tape.clone().map(|tape| (tape, 0)),
        }
    }

    /// Begins to count.
    pub fn begin(&mut self) {
        self.cores.counts = Counts::default();
        self.made.fill(0);
        for (cpu, began) in self.began.iter_mut().enumerate() {
            *began = self.cores.clock(cpu);
        }
    }

    /// Makes `accesses`.
    pub fn run(&mut self, accesses: u64) {
        let every = self.policy.daemon.map_or(u64::MAX, |d| d.every);
        let defragment = match self.policy.defragment {
            0 => u64::MAX,
            n => n,
        };
        for _ in 0..accesses {
            if self.cores.in_place {
                self.play();
            }
            self.one();
            if self.cores.pager.is_some() && !self.cores.in_place {
                if self.total % every == 0 {
                    self.daemon();
                }
                if self.total % defragment == 0 {
                    self.defragment();
                }
            }
        }
    }

    /// Makes the next access.
    fn one(&mut self) {
        let cpu = self.turns.next();
        let t = &mut self.turns.threads[cpu];
        let (visit, number) = match t.visit.take() {
            Some(v) => v,
            None => (t.thread.visit(), 0),
        };
        let (line, access) = t.thread.access(visit, number);
        if number + 1 < visit.lines {
            t.visit = Some((visit, number + 1));
        }
        let space = t.space;
        self.turns.at[cpu] += self.turns.pace[cpu];
        self.total += 1;
        self.made[cpu] += 1;
        if self.cores.pager.is_some() && !self.cores.in_place {
            let native = self.cores.native();
            self.bring(cpu, pages_of(&self.cores.guest, space, visit.page, native));
        }
        self.cores.access(cpu, space, visit.page, line, access);
    }

    /// Sees to it that `pages` are all in.
    #[inline]
    fn bring(&mut self, cpu: usize, pages: [Gpn; 2]) {
        // To bring the second may evict the first, if memory is tiny.
        for _ in 0..8 {
            let pager = self.cores.pager.as_mut().expect("this run pages");
            match pages.iter().find(|&&gpn| pager.reference(gpn).is_none()) {
                None => return,
                Some(&gpn) => self.fault(cpu, gpn),
            }
        }
        panic!("stacked memory is too small for one access");
    }

    #[cold]
    fn fault(&mut self, cpu: usize, gpn: Gpn) {
        let mut steps = std::mem::take(&mut self.steps);
        let pager = self.cores.pager.as_mut().expect("this run pages");
        pager.fault(gpn, &self.cores.guest, &mut steps);
        self.cores.counts.faults += 1;
        let p = self.cores.prices;
        self.cores.stop(cpu, p.exit + p.fault, Why::Fault);
        self.apply(Some(cpu), &mut steps);
        self.steps = steps;
    }

    /// Makes the changes that are due by the tape. Neighbours of the same time and vCPU
    /// are one fault, or one step of a thread of the hypervisor.
    fn play(&mut self) {
        let Some((tape, mut next)) = self.tape.take() else {
            return;
        };
        while let Some(first) = tape.events.get(next).filter(|e| e.at <= self.total) {
            let by = first.cpu.map(|cpu| cpu as usize);
            let mut begun = false;
            let same = |e: &&Event| (e.at, e.cpu) == (first.at, first.cpu);
            while let Some(e) = tape.events.get(next).filter(same) {
                next += 1;
                let pager = self.cores.pager.as_mut().expect("this run pages");
                let Some(step) = pager.play(e) else { continue };
                if let Some(cpu) = by.filter(|_| !begun) {
                    self.cores.counts.faults += 1;
                    let p = self.cores.prices;
                    self.cores.stop(cpu, p.exit + p.fault, Why::Fault);
                }
                begun = true;
                self.change(by, step);
            }
            if begun {
                self.scheme.finished(by, &mut self.cores);
            }
        }
        self.tape = Some((tape, next));
    }

    fn daemon(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        let pager = self.cores.pager.as_mut().expect("this run pages");
        pager.daemon(&mut steps);
        if !steps.is_empty() {
            let by = self.agent();
            if let Some(cpu) = by {
                let p = self.cores.prices;
                let pages = steps.len() as f64;
                let cycles = p.exit + p.daemon_step + pages * p.daemon_page;
                self.cores.stop(cpu, cycles, Why::Evict);
            }
            self.apply(by, &mut steps);
        }
        self.steps = steps;
    }

    fn defragment(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        let pager = self.cores.pager.as_mut().expect("this run pages");
        pager.defragment(&self.cores.guest, &mut steps);
        let by = self.agent();
        self.apply(by, &mut steps);
        self.steps = steps;
    }

    /// The vCPU that the hypervisor's own work takes time of, if it does.
    fn agent(&self) -> Option<usize> {
        let n = self.cores.count() as u64;
        self.stolen_daemon.then(|| (self.total / 7 % n) as usize)
    }

    /// Makes the changes that `steps` say, on behalf of `by`, and lets the scheme
    /// know.
    fn apply(&mut self, by: Option<usize>, steps: &mut Vec<Step>) {
        for step in steps.drain(..) {
            self.change(by, step);
        }
        self.scheme.finished(by, &mut self.cores);
    }

    /// Makes one of them.
    fn change(&mut self, by: Option<usize>, step: Step) {
        let cores = &mut self.cores;
        let p = cores.prices;
        let small = PageSize::Size4K;
        let (gpn, size, waits, was_absent) = match step {
            // Used off-chip until now, if pages are used in place.
            Step::In { gpn, prefetched } => (gpn, small, !prefetched, !cores.in_place),
            Step::Out { gpn, awaited } => (gpn, small, awaited, false),
            Step::Moved { gpn, size } => (gpn, size, false, false),
        };
        let c = &mut cores.counts;
        c.table_pages += u64::from(cores.guest.is_table(gpn));
        *match step {
            Step::In { prefetched, .. } if prefetched => &mut c.in_prefetched,
            Step::In { .. } => &mut c.in_demanded,
            Step::Out { awaited, .. } if awaited => &mut c.out_awaited,
            Step::Out { .. } => &mut c.out_ahead,
            Step::Moved { .. } => &mut c.moved,
        } += 1;
        let (from, to) = match step {
            Step::In { .. } => (OFF_CHIP, STACKED),
            Step::Out { .. } => (STACKED, OFF_CHIP),
            Step::Moved { gpn, .. } => {
                let pager = cores.pager.as_ref().expect("this run pages");
                let node = pager.frame(gpn).map_or(OFF_CHIP, |_| STACKED);
                (node, node)
            }
        };
        if to == STACKED {
            let pager = cores.pager.as_ref().expect("this run pages");
            if let Some(frame) = pager.frame(gpn) {
                cores.overwrite(frame, size);
            }
        }
        let lines = cores.copy(from, to, size);
        if let Some(cpu) = by.filter(|_| waits) {
            if matches!(step, Step::Out { .. }) {
                cores.stop(cpu, p.victim, Why::Evict);
            }
            cores.stop(cpu, self.copy_wait * (p.copy + lines), Why::Copy);
        }
        let level = size.level();
        for copy in 0..cores.copies as u64 {
            let entry = nested_entry(level, gpn) + copy * COPY;
            let message = Message { entry, level };
            let told = cores.store_entry(by, message);
            let change = Change {
                message,
                by,
                was_absent,
                told,
                again: copy > 0,
            };
            self.scheme.stored(&change, cores);
        }
    }

    /// What has been counted since it began.
    pub(super) fn outcome(self, steady: &Steady) -> Outcome {
        let mut first = 0;
        let programs = steady.setup.programs.iter().map(|(_, _, n)| {
            let cpus = first..first + n;
            first += n;
            let cycles: f64 = cpus
                .clone()
                .map(|c| self.cores.clock(c) - self.began[c])
                .sum();
            let made: u64 = self.made[cpus].iter().sum();
            cycles / made.max(1) as f64
        });
        Outcome {
            programs: programs.collect(),
            counts: self.cores.counts,
        }
    }
}
