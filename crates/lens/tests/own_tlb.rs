// SPDX-License-Identifier: GPL-2.0-or-later
//! A TLB that the model does not come with: the file that it takes, which
//! [`WithTlb`] puts among the standard parts, and a closed form.
//!
//! It is one structure for all page sizes, fully associative, least recently
//! used leaves first.

use lens::access::{Access, Source};
use lens::address::{Asid, PageSize};
use lens::layout::{
    Backing, DataPolicy, HugePolicy, Init, Layout, Policies, RegionSpec, TablePolicy,
};
use lens::machine::{BUILTIN, Machine, MachineError};
use lens::part::standard::{OwnTlb, WithTlb};
use lens::part::{Level, Parts, Stale, Translation, Translations};
use lens::pipe::Pace;
use lens::stats::Stats;
use lens::system::System;
use lens::units::Bytes;
use serde::Deserialize;

/// What the machine file says of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    entries: usize,
}

struct OneForAll {
    /// The most recent last.
    held: Vec<Translation>,
    entries: usize,
}

fn covers(t: &Translation, asid: Asid, addr: u64) -> bool {
    t.asid == asid && (t.addr ^ addr) >> t.size.shift() == 0
}

impl Translations for OneForAll {
    fn lookup(&mut self, asid: Asid, addr: u64, size: PageSize) -> Option<Level> {
        let is_it = |t: &Translation| t.size == size && covers(t, asid, addr);
        let at = self.held.iter().position(is_it)?;
        let found = self.held.remove(at);
        self.held.push(found);
        Some(Level::First)
    }

    fn fill(&mut self, t: &Translation) {
        if self.held.len() == self.entries {
            self.held.remove(0);
        }
        self.held.push(*t);
    }

    fn invalidate(&mut self, what: Stale) -> u32 {
        let before = self.held.len();
        self.held.retain(|t| match what {
            Stale::Page(asid, addr) => !covers(t, asid, addr),
            Stale::Asid(asid) => t.asid != asid,
            Stale::EntryLine(line) => t.source != line,
            Stale::All => false,
        });
        (before - self.held.len()) as u32
    }
}

impl OwnTlb for OneForAll {
    const NAME: &'static str = "one_for_all";

    fn of(m: &Machine) -> Result<Self, MachineError> {
        let Config { entries } = m.need_part(Self::NAME)?;
        Ok(OneForAll {
            held: Vec::new(),
            entries,
        })
    }
}

type Mine = WithTlb<OneForAll>;

/// Goes through so many pages over and over.
struct Around {
    start: u64,
    pages: u64,
    next: u64,
}

impl Source for Around {
    fn fill(&mut self, out: &mut Vec<Access>) {
        out.push(Access::load(self.start + (self.next % self.pages) * 4096));
        self.next += 1;
    }
}

fn machine(more: &str) -> Machine {
    Machine::from_toml(&format!("{}{more}", BUILTIN[0].1)).unwrap()
}

fn settled(m: &Machine, pages: u64, between: impl FnOnce(&mut System<Mine>)) -> Stats {
    let region = RegionSpec {
        name: "data",
        bytes: Bytes::gib(1),
        init: Init::Single,
        backing: Backing::Mapped,
    };
    let policies = Policies {
        data: DataPolicy::Fixed(0),
        tables: TablePolicy::Fixed(0),
        huge: HugePolicy::Never,
        nested: None,
    };
    let layout = Layout::on(m, &[region], policies);
    let start = layout.start(0);
    let source = Around {
        start,
        pages,
        next: 0,
    };
    let pace = Pace {
        base: 10.0,
        window: 2.0,
    };
    let mut system = System::new(m, layout, pace, &[0], vec![Box::new(source)]);
    system.run(10_000);
    between(&mut system);
    system.run(1_000)
}

#[test]
fn what_fits_never_walks_and_one_page_more_always_does() {
    let m = machine("[part.one_for_all]\nentries = 24\n");
    let fits = settled(&m, 24, |_| {});
    assert_eq!((fits.walks, fits.tlb_l1), (0, fits.accesses));
    let more = settled(&m, 25, |_| {});
    assert_eq!((more.walks, more.tlb_l1), (more.accesses, 0));
}

#[test]
fn a_shot_down_page_is_walked_to_once() {
    let m = machine("[part.one_for_all]\nentries = 24\n");
    let stats = settled(&m, 24, |s| s.shootdown(0, &[], s.layout().start(0) + 4096));
    assert_eq!(stats.walks, 1);
}

#[test]
fn its_table_is_needed_and_no_other() {
    let why = |more| Mine::check(&machine(more)).unwrap_err().to_string();
    let e = why("");
    assert!(e.contains("[part.one_for_all]"), "{e}");
    let e = why("[part.one_for_all]\nentrys = 24\n");
    assert!(e.contains("entrys"), "{e}");
    let e = why("[part.one_for_all]\nentries = 24\n[part.other]\n");
    assert!(
        e.contains("[part.other]") && e.contains("one_for_all"),
        "{e}"
    );
}
