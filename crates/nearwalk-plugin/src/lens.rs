// SPDX-License-Identifier: GPL-2.0-or-later
//! Feeds the accesses of chosen processes to the timing model, in user and in
//! kernel mode, from when one is switched to until something else is.
//!
//! The guest's module `nearwalk_lens` (module/lens.c) tells by notes which
//! processes those are and what table each CPU has loaded. Walks go through
//! the real tables in the guest's RAM.

use std::{fs, path::Path};

use ::lens::{
    access::Access,
    address::PageSize,
    live::{CpuStats, Live, NodeMap, Reference, Step},
    machine::{self, BUILTIN, Machine},
    part::{Parts, standard::Standard},
    pipe::Pace,
    stats::Stats,
};
use serde_json::json;

use crate::{
    decode::Event,
    layout::Layout,
    ram::{Ram, Walk, walk},
};

/// Cycles of an instruction that waits for nothing: two of them a cycle.
const BASE_CYCLES: f64 = 0.5;

/// What the module tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A chosen process runs, with this root.
    Run { root: u64 },
    /// Something else runs.
    Stop,
    /// The command has ended.
    Exit,
}

impl Note {
    /// From `struct lens_note`'s first two words.
    pub fn new(kind: u64, root: u64) -> Option<Note> {
        match kind {
            1 => Some(Note::Run { root }),
            2 => Some(Note::Stop),
            3 => Some(Note::Exit),
            _ => None,
        }
    }
}

/// An access, as a callback has it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub va: u64,
    /// As the plugin interface reports it.
    pub reported: u64,
    pub write: bool,
    /// The store of an instruction that reads and writes as one step.
    pub locked: bool,
    pub kernel: bool,
    /// Instructions since the access before, itself included.
    pub work: u8,
}

/// Page sizes by stretches of 2 MiB, as the last walk there found them. A
/// stretch is not of two sizes, and a size that has changed since costs no
/// more than a lookup in the wrong part of the modelled TLB.
struct Sizes {
    slots: Vec<(u64, PageSize)>,
    generation: u64,
}

impl Sizes {
    const SLOTS: usize = 4096;

    fn new() -> Sizes {
        Sizes {
            slots: vec![(0, PageSize::Size4K); Self::SLOTS],
            generation: 1,
        }
    }

    fn tag(&self, va: u64) -> u64 {
        (va >> 21) | self.generation << 43
    }

    fn slot(va: u64) -> usize {
        (va >> 21) as usize % Self::SLOTS
    }

    fn get(&self, va: u64) -> Option<PageSize> {
        let (tag, size) = self.slots[Self::slot(va)];
        (tag == self.tag(va)).then_some(size)
    }

    fn set(&mut self, va: u64, size: PageSize) {
        self.slots[Self::slot(va)] = (self.tag(va), size);
    }

    fn forget(&mut self) {
        self.generation += 1;
    }
}

struct Cpu {
    node: usize,
    root: Option<u64>,
    expects_note: bool,
    sizes: Sizes,
}

/// Translations that the chosen processes' CPUs have dropped, by node: which
/// part of a kernel's shootdowns reached whom.
#[derive(Clone)]
struct Dropped {
    /// Everything at once.
    all: Vec<u64>,
    /// One page.
    pages: Vec<u64>,
}

impl Dropped {
    fn none(nodes: usize) -> Self {
        Dropped {
            all: vec![0; nodes],
            pages: vec![0; nodes],
        }
    }

    fn add(&mut self, other: &Dropped) {
        for (sum, n) in [(&mut self.all, &other.all), (&mut self.pages, &other.pages)] {
            sum.iter_mut().zip(n).for_each(|(sum, n)| *sum += n);
        }
    }
}

/// A stretch of time.
struct Stretch {
    stats: CpuStats,
    dropped: Dropped,
}

/// The model, with what it needs to know of the guest.
pub struct Lens {
    name: String,
    live: Live<Standard>,
    layout: Layout,
    ram: Option<Ram>,
    levels: u32,
    cpus: Vec<Cpu>,
    /// Of finished stretches of time.
    total: Stretch,
    /// Of this one.
    dropped: Dropped,
    /// Walks that ended elsewhere than the access did, or nowhere.
    astray: u64,
    sections: u64,
}

impl Lens {
    pub fn new(machine: &str, levels: u32, layout: Layout) -> Result<Lens, String> {
        let machine = read_machine(machine)?;
        let nodes: Vec<usize> = layout.cpus().iter().map(|&node| node as usize).collect();
        let map = NodeMap::new(&layout.ranges()).map_err(|error| error.to_string())?;
        let pace = Pace {
            base: BASE_CYCLES,
            window: machine.core.window,
        };
        let live = Live::new(&machine, pace, &nodes, map).map_err(|error| error.to_string())?;
        let none = Dropped::none(nodes.iter().max().map_or(0, |last| last + 1));
        let cpu = |&node| Cpu {
            node,
            root: None,
            expects_note: false,
            sizes: Sizes::new(),
        };
        Ok(Lens {
            name: machine.name,
            live,
            ram: None,
            levels,
            cpus: nodes.iter().map(cpu).collect(),
            layout,
            total: Stretch {
                stats: CpuStats::default(),
                dropped: none.clone(),
            },
            dropped: none,
            astray: 0,
            sections: 0,
        })
    }

    /// Maps the guest's RAM, once it is there.
    pub fn map(&mut self, dir: &Path) -> std::io::Result<()> {
        self.ram = Some(Ram::map(dir, &self.layout)?);
        Ok(())
    }

    /// An instruction that means something is executed; returns a line for
    /// the results if one is due.
    pub fn event(&mut self, cpu: usize, event: Event) -> Option<String> {
        let state = self.cpus.get_mut(cpu)?;
        match event {
            Event::Note => state.expects_note = true,
            Event::LoadsRoot => {
                state.sizes.forget();
                self.dropped.all[state.node] += u64::from(state.root.is_some());
                self.live.flush(cpu);
            }
            // Which page is in a register, and those cannot be read. The model
            // finds a stale page when it is used with another frame.
            Event::DropsPage => {
                state.sizes.forget();
                self.dropped.pages[state.node] += u64::from(state.root.is_some());
                self.live.drop_walk_caches(cpu);
            }
            Event::Begin if state.root.is_some() => {
                self.settle();
            }
            Event::End if state.root.is_some() => {
                let section = self.settle();
                self.sections += 1;
                return Some(self.line("section", &section));
            }
            Event::Begin | Event::End | Event::Program => {}
        }
        None
    }

    /// Ends a stretch of time; returns what happened in it.
    fn settle(&mut self) -> Stretch {
        let none = Dropped::none(self.dropped.all.len());
        let stretch = Stretch {
            stats: self.live.total(),
            dropped: std::mem::replace(&mut self.dropped, none),
        };
        self.live.reset_stats();
        self.total.stats.user += &stretch.stats.user;
        self.total.stats.kernel += &stretch.stats.kernel;
        self.total.dropped.add(&stretch.dropped);
        stretch
    }

    /// Takes a note; returns a line for the results at the end.
    pub fn note(&mut self, cpu: usize, note: Note) -> Option<String> {
        match note {
            Note::Run { root } => self.cpus[cpu].root = Some(root),
            Note::Stop => self.cpus[cpu].root = None,
            Note::Exit => {
                self.settle();
                self.cpus.iter_mut().for_each(|cpu| cpu.root = None);
                return Some(self.line("total", &self.total));
            }
        }
        None
    }

    /// A load of RAM: perhaps of a note.
    fn take_note(&mut self, cpu: usize, reported: u64) -> Option<String> {
        self.cpus[cpu].expects_note = false;
        let offset = self.layout.offset(reported)?;
        let ram = self.ram.as_ref()?;
        let note = Note::new(ram.at(offset)?, ram.at(offset + 8)?)?;
        self.note(cpu, note)
    }

    /// Whether accesses of this CPU are to be reported.
    #[inline]
    pub fn wants(&self, cpu: usize) -> bool {
        self.cpus
            .get(cpu)
            .is_some_and(|cpu| cpu.root.is_some() || cpu.expects_note)
    }

    /// The guest loads or stores. Returns a line for the results if the load
    /// was of a note that ends them.
    #[inline]
    pub fn access(&mut self, cpu: usize, seen: Seen) -> Option<String> {
        let state = self.cpus.get_mut(cpu)?;
        if state.expects_note && !seen.write {
            return self.take_note(cpu, seen.reported);
        }
        let root = state.root?;
        let ram = self.ram.as_ref()?;
        let levels = self.levels;
        let pa = self.layout.physical(self.layout.offset(seen.reported)?);
        let find = || walk(|at| ram.read(at), root, levels, seen.va);
        let size = match state.sizes.get(seen.va) {
            Some(size) => size,
            None => {
                let size = find().map_or(PageSize::Size4K, |walk| page_size(&walk));
                state.sizes.set(seen.va, size);
                size
            }
        };
        let access = Access {
            va: seen.va,
            write: seen.write,
            dependent: false,
            locked: seen.locked,
            work: seen.work,
        };
        let reference = Reference {
            kernel: seen.kernel,
            ..Reference::new(access, pa, size)
        };
        let astray = &mut self.astray;
        let sizes = &mut state.sizes;
        self.live.access(cpu, reference, |steps| {
            let found = find();
            if found.is_none_or(|walk| walk.physical >> 12 != pa >> 12) {
                *astray += 1;
            }
            if let Some(walk) = found {
                sizes.set(seen.va, page_size(&walk));
                for level in (walk.leaf..=walk.levels).rev() {
                    let entry = walk.entries[level as usize - 1];
                    steps.push(Step::native(seen.va, level, entry));
                }
            }
        });
        None
    }

    /// A line of the results; `nearwalk lab` reads it.
    fn line(&self, kind: &str, stretch: &Stretch) -> String {
        let value = json!({
            "kind": kind,
            "machine": self.name,
            "section": self.sections,
            "user": mode(&stretch.stats.user),
            "kernel": mode(&stretch.stats.kernel),
            "flushes_by_node": stretch.dropped.all,
            "pages_dropped_by_node": stretch.dropped.pages,
            "walks_astray": self.astray,
        });
        format!("{value}\n")
    }
}

/// Cycles of one mode, and what they went to.
fn mode(stats: &Stats) -> serde_json::Value {
    json!({
        "accesses": stats.accesses,
        "cycles": stats.cycles,
        "base_cycles": stats.base,
        "data_cycles": stats.data_stall,
        "walk_cycles": stats.walk_stall,
        "walks": stats.walks,
        "walker_cycles": stats.walk_cycles,
        "walker_remote_cycles": stats.walk_remote_cycles,
        "data_remote_latency": stats.data_remote_cycles,
        "tlb_l2_hits": stats.tlb_l2,
    })
}

fn page_size(walk: &Walk) -> PageSize {
    PageSize::of_level(walk.leaf).unwrap_or(PageSize::Size4K)
}

/// A machine by name, or from a file.
fn read_machine(name: &str) -> Result<Machine, String> {
    let text = machine::text_of(name, BUILTIN, |path| fs::read_to_string(path))
        .map_err(|error| error.to_string())?;
    let machine = Machine::from_toml(&text).map_err(|error| format!("{name}: {error}"))?;
    Standard::check(&machine).map_err(|error| format!("{name}: {error}"))?;
    Ok(machine)
}

#[cfg(test)]
#[path = "lens_tests.rs"]
mod tests;
