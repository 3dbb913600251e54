// SPDX-License-Identifier: GPL-2.0-or-later
//! A run: the pager is brought to its steady state on page references alone, then a
//! window of accesses is timed.
//!
//! The next access is always that of the CPU that is furthest behind, by a clock that
//! is the same in all schemes: each program's cycles an access when nothing is paged.
//! So all see the same accesses and the same remaps in the same order, and differ in
//! time alone.

mod window;

pub use window::Window;

use crate::cores::Placement;
use crate::counts::Counts;
use crate::guest::{Gpn, Guest};
use crate::machine::{Refused, Stacked};
use crate::pager::{Pager, Policy};
use crate::program::{Program, Thread, Visit};
use crate::scheme::{Ideal, Scheme};
use crate::tape::Tape;
use lens::address::PageSize;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Programs by name, each with the vCPUs that it has a thread on.
    pub programs: Vec<(String, Program, usize)>,
    /// The pager's policy.
    pub policy: Policy,
    /// Share of a copy that a faulting CPU waits for, 0 to 1.
    pub copy_wait: f64,
    /// The daemon runs on the vCPUs in turns, and not on a CPU of its own.
    pub stolen_daemon: bool,
    /// How often stacked memory is turned over before time begins.
    pub turnover: f64,
    /// Accesses after which that is given up.
    pub patience: u64,
    /// Accesses of all CPUs together that are timed; half as many before them warm
    /// the caches.
    pub accesses: u64,
    /// Entries of translation structures, in multiples of the machine's.
    pub scale: usize,
    /// Seed of the generators.
    pub seed: u64,
    /// Remaps in place of the pager's.
    pub tape: Option<Arc<Tape>>,
}

impl Setup {
    /// One program on `vcpus`, with what is usual for the rest.
    pub fn of(name: &str, program: &Program, vcpus: usize) -> Self {
        Setup {
            programs: vec![(name.to_owned(), program.clone(), vcpus)],
            policy: Policy::BEST,
            copy_wait: 1.0,
            stolen_daemon: false,
            turnover: 1.0,
            patience: 4_000_000_000,
            accesses: 4_000_000,
            scale: 1,
            seed: 1,
            tape: None,
        }
    }

    /// All vCPUs.
    pub fn vcpus(&self) -> usize {
        self.programs.iter().map(|(_, _, n)| n).sum()
    }

    /// Whether it can run on `m`, as far as that is known before it does.
    ///
    /// # Errors
    /// [`Refused`] names the value and what is allowed.
    pub fn check(&self, m: &Stacked) -> Result<(), Refused> {
        let cpus = m.lens.cpus();
        let vcpus = self.vcpus();
        if vcpus == 0 || vcpus > cpus || self.programs.iter().any(|(_, _, n)| *n == 0) {
            return Err(Refused::value(
                "vCPUs",
                format!("{vcpus} for {} programs", self.programs.len()),
                format!(
                    "at least one a program and at most {cpus}, the machine's CPUs, are allowed"
                ),
            ));
        }
        for (name, program, n) in &self.programs {
            if let Some(recorded) = program.recorded_threads().filter(|r| r != n) {
                return Err(Refused::value(
                    format!("vCPUs of {name}"),
                    n,
                    format!("{recorded} are allowed, the threads of its trace"),
                ));
            }
        }
        Refused::unless_in("copy-wait", self.copy_wait, 0.0, 1.0)?;
        Refused::unless_in("turnover", self.turnover, 0.0, 100.0)?;
        Refused::unless_in("accesses", self.accesses as f64, 1e3, 1e12)?;
        Refused::unless_in("scale", self.scale as f64, 1.0, 16.0)
    }
}

impl Setup {
    /// Whether `tape` is one of `guest` on `machine`, and long enough.
    fn fits(&self, tape: &Tape, guest: &Guest, machine: &Stacked) -> Result<(), Refused> {
        // A change of 4 KiB leaves translations of 2 MiB as they are.
        for (name, program, _) in &self.programs {
            if program.size() != PageSize::Size4K {
                return Err(Refused::value(
                    format!("superpages of {name}"),
                    "true",
                    "false is allowed beside a tape, whose pages are of 4 KiB",
                ));
            }
        }
        let h = &tape.header;
        let of = |key: &str, value: u64, lo: u64, hi: u64| match (lo..=hi).contains(&value) {
            true => Ok(()),
            false => Err(Refused::value(
                format!("{key} of the tape"),
                value,
                match lo == hi {
                    true => format!("{lo} is allowed, as this run has"),
                    false => format!("{lo} to {hi} is allowed, what this run needs and has"),
                },
            )),
        };
        let vcpus = self.vcpus() as u64;
        let [stacked, off_chip] = [machine.stacked_pages(), machine.off_chip_pages()];
        of("stacked", h.stacked, stacked, stacked)?;
        of("memory", h.memory, guest.pages(), stacked + off_chip)?;
        of("vcpus", h.vcpus.into(), vcpus, vcpus)?;
        of(
            "end",
            tape.end.end,
            self.accesses / 2 + self.accesses,
            u64::MAX,
        )
    }
}

/// Threads, and whose turn it is.
#[derive(Debug, Clone)]
struct Turns {
    threads: Vec<Running>,
    /// Where each is by the common clock.
    at: Vec<f64>,
    /// Cycles of an access by that clock.
    pace: Vec<f64>,
}

#[derive(Debug, Clone)]
struct Running {
    thread: Thread,
    space: usize,
    visit: Option<(Visit, u8)>,
}

impl Turns {
    fn next(&self) -> usize {
        let mut cpu = 0;
        for (i, at) in self.at.iter().enumerate() {
            if *at < self.at[cpu] {
                cpu = i;
            }
        }
        cpu
    }
}

/// The machine with its pager in steady state, from which schemes are timed.
#[derive(Clone)]
pub struct Steady {
    machine: Stacked,
    setup: Setup,
    guest: Guest,
    turns: Turns,
    pager: Pager,
    /// Accesses that it took.
    pub accesses: u64,
    /// Times that stacked memory was turned over once it was full.
    pub turnovers: f64,
}

/// What a run of one scheme gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Cycles an access of each program, in the order of the setup.
    pub programs: Vec<f64>,
    /// What happened on all CPUs.
    pub counts: Counts,
}

impl Outcome {
    /// Cycles of an access, over all CPUs.
    pub fn cycles_per_access(&self) -> f64 {
        self.counts.cycles() / self.counts.accesses.max(1) as f64
    }
}

impl Steady {
    /// Checks `setup` and runs the pager ahead.
    ///
    /// # Errors
    /// [`Refused`] names what is wrong with the setup and what is allowed.
    pub fn reach(machine: &Stacked, setup: &Setup) -> Result<Self, Refused> {
        setup.check(machine)?;
        let programs = &setup.programs;
        let guest = Guest::new(programs.iter().map(|(_, p, _)| (p.pages(), p.size())));
        let frames = machine.stacked_pages();
        let room = frames + machine.off_chip_pages();
        if guest.pages() > room {
            let says = format!("{} MiB is what the machine has", room >> 8);
            return Err(Refused::value(
                "memory",
                format!("{} MiB", guest.pages() >> 8),
                says,
            ));
        }
        let pager = match &setup.tape {
            Some(tape) => {
                setup.fits(tape, &guest, machine)?;
                Pager::told(&tape.header)
            }
            None => Pager::new(&guest, frames, setup.policy, setup.seed)?,
        };
        let mut threads = Vec::new();
        for (space, (_, program, count)) in programs.iter().enumerate() {
            let own = setup.seed ^ (space as u64) << 16;
            for thread in program.threads(*count, own) {
                threads.push(Running {
                    thread,
                    space,
                    visit: None,
                });
            }
        }
        let n = threads.len();
        let mut steady = Steady {
            machine: machine.clone(),
            setup: setup.clone(),
            guest,
            turns: Turns {
                threads,
                at: vec![0.0; n],
                pace: vec![1.0; n],
            },
            pager,
            accesses: 0,
            turnovers: 0.0,
        };
        if programs.len() > 1 {
            steady.find_paces();
        }
        if setup.tape.is_some() {
            return Ok(steady);
        }
        let fits = steady.guest.pages() + 1024 <= frames;
        if fits && setup.policy.defragment == 0 {
            return Err(Refused::value(
                "memory of all programs",
                format!("{} MiB", steady.guest.pages() >> 8),
                format!(
                    "stacked memory of {} MiB holds all of it, so the pager has nothing to do: \
                     give larger programs, or let defragmentation move pages",
                    frames >> 8
                ),
            ));
        }
        match fits {
            true => steady.bring_all(),
            false => steady.run_ahead(),
        }
        Ok(steady)
    }

    /// The same state for another machine and another setup, in which the pager does
    /// what it has done here: of one program they may differ in all but memory sizes,
    /// the pages that the program goes to, the policy, the seed and how far it runs.
    ///
    /// # Errors
    /// [`Refused`], as [`Steady::reach`].
    ///
    /// # Panics
    /// If there are several programs, whose turns depend on times.
    pub fn again(&self, machine: &Stacked, setup: &Setup) -> Result<Self, Refused> {
        setup.check(machine)?;
        let same = setup.programs.len() == 1
            && self.setup.vcpus() == setup.vcpus()
            && self.machine.extra.native == machine.extra.native
            && self.machine.stacked_pages() == machine.stacked_pages();
        assert!(same, "another pager");
        let mut steady = self.clone();
        let program = &setup.programs[0].1;
        for running in &mut steady.turns.threads {
            running.thread.take_details(program);
        }
        steady.machine = machine.clone();
        steady.setup = setup.clone();
        Ok(steady)
    }

    /// How many cycles accesses take where nothing is paged.
    fn find_paces(&mut self) {
        let mut pilot = self.clone();
        pilot.setup.accesses = 20_000 * self.turns.at.len() as u64;
        let mut w = Window::new(&pilot, Placement::Infinite, Box::new(Ideal));
        w.run(pilot.setup.accesses);
        for (cpu, pace) in self.turns.pace.iter_mut().enumerate() {
            *pace = w.cores.clock(cpu) / w.made[cpu].max(1) as f64;
        }
    }

    fn bring_all(&mut self) {
        let mut steps = Vec::new();
        for s in &self.guest.spaces {
            for gpn in s.data().chain(s.table_pages()) {
                if self.pager.frame(gpn).is_none() {
                    self.pager.fault(gpn, &self.guest, &mut steps);
                    steps.clear();
                }
            }
        }
    }

    /// Runs the pager until stacked memory has been turned over.
    fn run_ahead(&mut self) {
        let frames = self.pager.frames() as f64;
        let mut steps = Vec::new();
        let every = self.setup.policy.daemon.map_or(u64::MAX, |d| d.every);
        let mut daemon_at = every;
        let mut full_at = None;
        let goal = (frames * self.setup.turnover) as u64;
        let native = self.machine.extra.native;
        while self.accesses < self.setup.patience {
            let cpu = self.turns.next();
            let t = &mut self.turns.threads[cpu];
            let v = t.thread.visit();
            self.turns.at[cpu] += f64::from(v.lines) * self.turns.pace[cpu];
            self.accesses += u64::from(v.lines);
            for gpn in pages_of(&self.guest, t.space, v.page, native) {
                if self.pager.reference(gpn).is_none() {
                    self.pager.fault(gpn, &self.guest, &mut steps);
                    steps.clear();
                }
            }
            if self.accesses >= daemon_at {
                daemon_at += every;
                self.pager.daemon(&mut steps);
                steps.clear();
            }
            let pool = self.setup.policy.daemon.map_or(0, |d| d.high);
            if full_at.is_none() && self.pager.free() <= pool {
                full_at = Some(self.pager.brought);
            }
            if full_at.is_some_and(|at| self.pager.brought - at >= goal) {
                break;
            }
        }
        let since = full_at.map_or(0, |at| self.pager.brought - at);
        self.turnovers = since as f64 / frames;
    }

    /// Times a window under `scheme`.
    pub fn time(&self, placement: Placement, scheme: Box<dyn Scheme>) -> Outcome {
        let mut w = Window::new(self, placement, scheme);
        w.run(self.setup.accesses / 2);
        w.begin();
        w.run(self.setup.accesses);
        w.outcome(self)
    }
}

/// The pages that an access to `small`, a page of 4 KiB of a program's data, needs:
/// that of the table that maps it, and its own. (Pages of tables above are never
/// evicted, and without a hypervisor none is.)
#[inline]
fn pages_of(guest: &Guest, space: usize, small: u64, native: bool) -> [Gpn; 2] {
    let s = &guest.spaces[space];
    let page = small >> (s.size.shift() - 12);
    let own = s.physical_page(page);
    let (table, _) = s.entry(s.size.level(), page);
    [if native { own } else { table }, own]
}

#[cfg(test)]
mod tests;
