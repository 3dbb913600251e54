// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// A guest of two nodes with 4 MiB each. Its one table, at the start of node
/// `home`, maps the page at `VA` to physical 0x10_0000, node 0.
struct Guest {
    dir: PathBuf,
    lens: Lens,
    root: u64,
}

const VA: u64 = 0x7000_0000_0000;
const NODE: u64 = 4 << 20;

impl Guest {
    fn new(home: u64) -> Guest {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "nearwalk-lens-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let root = home * NODE + 0x1000;
        let mut ram = vec![0; 2 * NODE as usize];
        let mut table = root;
        for level in (1..=4).rev() {
            let index = (VA >> (12 + 9 * (level - 1))) & 511;
            let target = if level == 1 {
                0x10_0000
            } else {
                table + 0x1000
            };
            let at = (table + 8 * index) as usize;
            ram[at..at + 8].copy_from_slice(&(target | 7).to_le_bytes());
            table = target;
        }
        let (first, second) = ram.split_at(NODE as usize);
        fs::write(dir.join("node0"), first).unwrap();
        fs::write(dir.join("node1"), second).unwrap();
        let layout = "4x1:4x1".parse().unwrap();
        let mut lens = Lens::new("e7-4850v3", 4, layout).unwrap();
        lens.map(&dir).unwrap();
        Guest { dir, lens, root }
    }

    fn load(&mut self, cpu: usize, kernel: bool) {
        self.access(cpu, 8, |seen| Seen { kernel, ..seen });
    }

    /// A load of byte `at` of the page, or what `other` makes of it.
    fn access(&mut self, cpu: usize, at: u64, other: impl FnOnce(Seen) -> Seen) {
        let seen = other(Seen {
            va: VA + at,
            reported: 0x10_0000 + at,
            write: false,
            locked: false,
            kernel: false,
            work: 1,
        });
        assert_eq!(self.lens.access(cpu, seen), None);
    }

    fn total(&mut self) -> serde_json::Value {
        let line = self.lens.note(0, Note::Exit).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn only_chosen_processes_count_and_modes_are_apart() {
    let mut guest = Guest::new(0);
    let root = guest.root;
    assert!(!guest.lens.wants(0));
    guest.load(0, false);
    guest.lens.note(0, Note::Run { root });
    assert!(guest.lens.wants(0) && !guest.lens.wants(1));
    guest.load(0, false);
    guest.load(0, true);
    guest.load(1, false);
    guest.lens.note(0, Note::Stop);
    guest.load(0, false);
    let total = guest.total();
    assert_eq!(total["user"]["accesses"], 1);
    assert_eq!(total["kernel"]["accesses"], 1);
    assert_eq!(total["walks_astray"], 0);
}

#[test]
fn walks_of_remote_tables_cost_remote_memory() {
    for (home, remote) in [(0, false), (1, true)] {
        let mut guest = Guest::new(home);
        let root = guest.root;
        guest.lens.note(0, Note::Run { root });
        guest.load(0, false);
        let total = guest.total();
        assert_eq!(total["user"]["walks"], 1);
        let cycles = total["user"]["walker_remote_cycles"].as_f64().unwrap();
        assert_eq!(cycles > 0.0, remote, "home {home}: {cycles}");
    }
}

#[test]
fn a_load_waits_for_the_atomic_store_before_it() {
    let cycles = [false, true].map(|locked| {
        let mut guest = Guest::new(0);
        let root = guest.root;
        guest.lens.note(0, Note::Run { root });
        guest.load(0, false);
        guest.access(0, 0x400, |load| Seen {
            write: true,
            locked,
            ..load
        });
        guest.access(0, 0x800, |load| load);
        guest.total()["user"]["cycles"].as_f64().unwrap()
    });
    // One memory latency after the other instead of both at once.
    assert!(cycles[1] > cycles[0] + 200.0, "{cycles:?}");
}

#[test]
fn loading_a_root_empties_the_tlb() {
    let mut guest = Guest::new(0);
    let root = guest.root;
    guest.lens.note(0, Note::Run { root });
    guest.load(0, false);
    guest.load(0, false);
    guest.lens.event(0, Event::LoadsRoot);
    guest.load(0, false);
    assert_eq!(guest.total()["user"]["walks"], 2);
}

#[test]
fn flushes_of_two_domains_are_counted_apart_and_reach_their_own_node() {
    let mut guest = Guest::new(0);
    let root = guest.root;
    let nodes = guest.lens.layout.cpus();
    let other = nodes.iter().position(|&node| node == 1).unwrap();
    guest.lens.event(other, Event::LoadsRoot);
    for cpu in [0, other] {
        guest.lens.note(cpu, Note::Run { root });
        guest.load(cpu, false);
    }
    // The first domain's kernel part tells its own CPU and not the other's.
    guest.lens.event(0, Event::Begin);
    for _ in 0..3 {
        guest.lens.event(0, Event::LoadsRoot);
        guest.load(0, false);
        guest.load(other, false);
    }
    guest.lens.event(other, Event::DropsPage);
    let line = guest.lens.event(0, Event::End).unwrap();
    let section: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(section["flushes_by_node"], json!([3, 0]));
    assert_eq!(section["pages_dropped_by_node"], json!([0, 1]));
    assert_eq!(section["user"]["walks"], 3, "the other's TLB is as it was");
    guest.lens.event(other, Event::LoadsRoot);
    guest.load(other, false);
    let total = guest.total();
    assert_eq!(total["flushes_by_node"], json!([3, 1]));
    assert_eq!(total["user"]["walks"], 2 + 3 + 1);
}

#[test]
fn a_section_has_what_is_between_its_marks() {
    let mut guest = Guest::new(0);
    let root = guest.root;
    guest.lens.note(0, Note::Run { root });
    guest.load(0, false);
    assert_eq!(guest.lens.event(0, Event::Begin), None);
    guest.load(0, false);
    guest.load(0, false);
    let line = guest.lens.event(0, Event::End).unwrap();
    let section: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(section["kind"], "section");
    assert_eq!(section["user"]["accesses"], 2);
    assert_eq!(guest.total()["user"]["accesses"], 3);
}

#[test]
fn walks_that_end_elsewhere_are_counted() {
    let mut guest = Guest::new(0);
    guest.lens.note(0, Note::Run { root: 0x8000 });
    guest.load(0, false);
    assert_eq!(guest.total()["walks_astray"], 1);
}

#[test]
fn unknown_machines_are_named() {
    let layout: Layout = "4x1".parse().unwrap();
    let error = Lens::new("vax", 4, layout).err().unwrap();
    assert!(
        error.contains("vax") && error.contains("e7-4850v3"),
        "{error}"
    );
}
