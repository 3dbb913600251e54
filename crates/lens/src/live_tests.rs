// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::part::SharedCache;
use crate::part::standard::Standard;
use crate::tags::Key;

const NODE: u64 = 1 << 30;
const VA: u64 = 0x7f12_3456_7000;

fn map() -> NodeMap {
    NodeMap::new(&[(NODE, 2 * NODE, 1), (0, NODE, 0)]).unwrap()
}

fn live(nodes: &[usize]) -> (Machine, Live<Standard>) {
    let m = Machine::builtin("e7-4850v3").unwrap();
    let pace = Pace {
        base: 0.0,
        window: 1.0,
    };
    let l = Live::new(&m, pace, nodes, map()).unwrap();
    (m, l)
}

/// Entries of a 4-level walk in tables that start at `tables`.
fn native(va: u64, tables: u64) -> impl Fn(&mut Vec<Step>) {
    move |steps| {
        for level in (1..=4).rev() {
            let index = va >> (12 + 9 * (level - 1)) & 511;
            let page = tables + u64::from(level) * 4096;
            steps.push(Step::native(va, level, page + index * 8));
        }
    }
}

fn load(va: u64, pa: u64) -> Reference {
    Reference::new(Access::load(va), pa, PageSize::Size4K)
}

fn store(va: u64, pa: u64) -> Reference {
    Reference::new(Access::store(va), pa, PageSize::Size4K)
}

#[test]
fn a_cold_walk_costs_the_sum_of_its_entries_where_they_are() {
    for (tables, data, remote_refs) in [(0x10_0000, 0x20_0000, 0), (NODE, 0x20_0000, 4)] {
        let (m, mut l) = live(&[0]);
        l.access(0, load(VA, data), native(VA, tables));
        let each = if remote_refs > 0 { 580.0 } else { 280.0 };
        let overhead = m.walker.overhead.at(m.clock).0;
        let s = l.stats(0).user;
        assert_eq!(s.walk_cycles, overhead + 4.0 * each);
        assert_eq!(s.cycles, s.walk_cycles + 280.0);
        assert_eq!(s.walk_mem[0][1], remote_refs);
        assert_eq!(s.walk_remote_cycles, remote_refs as f64 * 580.0);
        assert_eq!(s.cycles, s.base + s.walk_stall + s.data_stall + s.kernel);
    }
}

#[test]
fn a_hit_asks_for_no_walk_and_a_neighbour_for_the_leaf_only() {
    let (_, mut l) = live(&[0]);
    l.access(0, load(VA, 0x20_0000), native(VA, 0));
    l.access(0, load(VA + 8, 0x20_0008), |_| panic!("the TLB has it"));
    let next = VA + 64 * 4096;
    l.access(0, load(next, 0x30_0000), native(next, 0));
    assert_eq!(l.stats(0).user.walk_refs, 5);
    l.invalidate(0, next);
    l.access(0, load(next, 0x30_0000), native(next, 0));
    assert_eq!(
        l.stats(0).user.walk_refs,
        9,
        "INVLPG empties the walk caches"
    );
    l.access(0, load(VA, 0x20_0000), |_| panic!("another page stays"));
    l.flush(0);
    l.access(0, load(VA, 0x20_0000), native(VA, 0));
    assert_eq!(l.stats(0).user.walks, 4);
}

#[test]
fn a_hit_on_another_frame_was_stale_and_walks() {
    let (_, mut l) = live(&[0]);
    for (pa, walks) in [
        (0x20_0000, 1),
        (0x20_0fff, 1),
        (0x30_0000, 2),
        (0x30_0000, 2),
    ] {
        l.access(0, load(VA, pa), native(VA, 0));
        assert_eq!(l.stats(0).user.walks, walks, "{pa:#x}");
    }
    // The page is dropped from both levels, and another stays.
    l.access(0, load(VA + 4096, 0x40_0000), native(VA + 4096, 0));
    l.access(0, load(VA, 0x20_0000), native(VA, 0));
    l.access(0, load(VA + 4096, 0x40_0000), |_| {
        panic!("another page stays")
    });
    // INVLPG of whatever page: the walk starts at the root.
    let refs = l.stats(0).user.walk_refs;
    l.drop_walk_caches(0);
    l.access(0, load(VA, 0x50_0000), native(VA, 0));
    assert_eq!(l.stats(0).user.walk_refs - refs, 4);
    // After a flush it may lead anywhere.
    l.flush(0);
    l.access(0, load(VA, 0x60_0000), native(VA, 0));
    l.access(0, load(VA, 0x60_0000), |_| panic!("the TLB has it"));
}

#[test]
fn a_cold_two_dimensional_walk_reads_24_entries_and_a_warm_one_what_is_left() {
    // Guest tables share no nested table with each other or with the data.
    let gpa = |level: u64| level << 40;
    let walk = |va: u64, data_gpa: u64| {
        move |steps: &mut Vec<Step>| {
            let translate = |steps: &mut Vec<Step>, g: u64| {
                for level in (1..=4).rev() {
                    let at = u64::from(level) << 20 | (g >> (12 + 9 * (level - 1)) & 0xfffff) << 3;
                    steps.push(Step::nested(g, level, at));
                }
            };
            for level in (1..=4u32).rev() {
                let g = gpa(u64::from(level)) | (va >> (12 + 9 * (level - 1)) & 511) << 3;
                translate(steps, g);
                steps.push(Step::native(va, level, (1 << 28) + g % 0xfff_ffff));
            }
            translate(steps, data_gpa);
        }
    };
    let (_, mut l) = live(&[0]);
    l.access(0, load(VA, 0x20_0000), walk(VA, 0x1000));
    assert_eq!(l.stats(0).user.walk_refs, 24);
    // The neighbouring page: the guest leaf after a walk-cache hit, and a
    // nested leaf for the data.
    let next = VA + 4096;
    l.access(0, load(next, 0x20_1000), walk(next, 0x2000));
    assert_eq!(l.stats(0).user.walk_refs, 24 + 2);
}

#[test]
fn user_and_kernel_are_counted_apart_and_add_up() {
    let (_, mut l) = live(&[0, 1]);
    for i in 0..1000u64 {
        let r = load(VA + i * 4096, NODE / 2 + i * 4096);
        let r = if i % 3 == 0 { r.in_kernel() } else { r };
        l.access((i % 2) as usize, r, native(r.access.va, 0));
    }
    l.stall(1, 700.0);
    let t = l.total();
    assert_eq!(t.user.accesses + t.kernel.accesses, 1000);
    assert_eq!(t.kernel.kernel, 700.0);
    for s in [&t.user, &t.kernel] {
        let parts = s.base + s.walk_stall + s.data_stall + s.kernel;
        assert!((s.cycles / parts - 1.0).abs() < 1e-9, "{s:?}");
    }
    assert_eq!(l.stats(0).user.data_mem[1], 0);
    assert_eq!(
        l.stats(1).user.data_mem[0],
        0,
        "node 1's CPU reads node 0's"
    );
    l.reset_stats();
    assert_eq!(l.total(), CpuStats::default());
}

#[test]
fn a_store_to_an_entry_is_seen_by_the_next_walk_of_another_node() {
    let (_, mut l) = live(&[0, 1]);
    let entry = 0x5000;
    let walk = |steps: &mut Vec<Step>| steps.push(Step::native(VA, 1, entry));
    l.access(1, load(VA, NODE), walk);
    l.flush(1);
    // The kernel on node 0 writes the entry through its own mapping.
    let r = Access::store(entry | 1 << 63);
    let r = Reference::new(r, entry, PageSize::Size2M).in_kernel();
    l.access(0, r, |_| {});
    let before = l.stats(1).user.walk_mem[0][1];
    l.access(1, load(VA, NODE), walk);
    let after = l.stats(1).user.walk_mem[0][1];
    assert_eq!(after - before, 1, "node 1 lost the line and fetches it");
}

#[test]
fn a_store_takes_its_line_from_the_caches_of_its_neighbour() {
    let (m, mut l) = live(&[0, 0]);
    let r = load(VA, 0x20_0000);
    let stall = |l: &Live<Standard>| l.stats(1).user.data_stall;
    l.access(1, r, |_| {});
    let first = stall(&l);
    l.access(1, r, |_| {});
    assert_eq!(stall(&l) - first, m.cache.l1.latency.at(m.clock).0, "L1");
    let hits = l.stats(1).user.data_l3;
    l.access(0, store(VA, 0x20_0000), |_| {});
    l.access(1, r, |_| {});
    assert_eq!(l.stats(1).user.data_l3, hits + 1, "only L3 has it");
}

#[test]
fn a_store_gets_its_line_from_the_node_whose_cache_has_it() {
    let at = NODE + 0x20_0000;
    let (_, mut l) = live(&[0, 1]);
    l.access(1, load(VA, at), |_| {});
    l.access(0, store(VA, at), |_| {});
    let s = l.stats(0).user;
    assert_eq!((s.cycles, s.forwards), (360.0, 1));
    // Node 1 has it no more, and what is stored again is node 0's already.
    let l1 = |l: &Live<Standard>| l.stats(0).user.data_stall;
    let before = l1(&l);
    l.access(0, store(VA, at), |_| {});
    assert_eq!((l1(&l) - before, l.stats(0).user.forwards), (4.0, 1));
    l.access(1, load(VA, at), |_| {});
    assert_eq!(l.stats(1).user.data_mem, [2, 0]);
    // Read twice, and once for the directory: nothing went back.
    l.fabric.memory.end_quantum(1e5);
    assert_eq!(l.fabric.memory.lines_served(1), 3);
}

#[test]
fn a_store_to_a_line_at_hand_takes_it_from_other_nodes() {
    let at = 0x20_0000;
    let (_, mut l) = live(&[0, 1]);
    for cpu in [0, 1] {
        l.access(cpu, load(VA, at), |_| {});
    }
    // Its own caches have it, and then only those of the other do.
    for (cpu, other) in [(1, 0), (0, 1)] {
        l.access(cpu, store(VA, at), |_| {});
        let held = [0, 1].map(|n| l.fabric.shared[n].contains(Key::new(at >> 6)));
        assert_eq!((held[cpu], held[other]), (true, false), "CPU {cpu}");
    }
}

#[test]
fn what_follows_a_locked_store_waits_for_it_and_what_follows_another_does_not() {
    let m = Machine::builtin("e7-4850v3").unwrap();
    let pace = Pace {
        base: 0.0,
        window: 8.0,
    };
    let cycles = |locked: bool| {
        let mut l = Live::<Standard>::new(&m, pace, &[0], map()).unwrap();
        let mut first = store(VA, 0x20_0000);
        first.access.locked = locked;
        l.access(0, first, |_| {});
        l.access(0, load(VA + 4096, 0x30_0000), |_| {});
        l.stats(0).user.cycles
    };
    assert_eq!([false, true].map(cycles), [280.0, 560.0]);
}

#[test]
#[should_panic(expected = "level 1 of a walk after level 3")]
fn a_walk_without_one_of_its_levels_is_refused() {
    let (_, mut l) = live(&[0]);
    l.access(0, load(VA, 0x20_0000), |steps| {
        for level in [4, 3, 1] {
            steps.push(Step::native(VA, level, u64::from(level) << 12));
        }
    });
}

#[test]
fn a_guest_without_paging_walks_the_nested_table_alone() {
    let (m, mut l) = live(&[0]);
    for (addr, refs) in [(0x1000, 4), (0x2000, 5)] {
        l.access(0, load(addr, 0x20_0000 + addr), |steps| {
            for level in (1..=4).rev() {
                let at = u64::from(level) << 20 | addr >> (12 + 9 * (level - 1)) << 3;
                steps.push(Step::nested(addr, level, at));
            }
        });
        assert_eq!(l.stats(0).user.walk_refs, refs);
    }
    // Two walks of either dimension: four lines from memory, one from L1.
    let overhead = m.walker.overhead.at(m.clock).0;
    let walks = l.stats(0).user.walk_cycles;
    assert_eq!(walks, 4.0 * overhead + 4.0 * 280.0 + 4.0);
}

#[test]
fn an_idle_cpu_is_not_charged_for_the_others_time() {
    let (_, mut l) = live(&[0, 0]);
    for i in 0..100_000u64 {
        l.access(0, load(VA + i * 4096, 0x20_0000 + i * 64), |_| {});
    }
    l.access(1, load(VA, 0x20_0000), |_| {});
    assert!(
        l.stats(1).user.cycles < 1000.0,
        "{}",
        l.stats(1).user.cycles
    );
}

/// Cycles of an access of each of `cpus` CPUs that read lines at random, in turns
/// of so many accesses, in the second half of the rounds.
fn in_turns(cpus: usize, turn: u64, rounds: u64) -> f64 {
    let m = Machine::builtin("e7-4850v3").unwrap();
    let pace = Pace {
        base: 0.0,
        window: 8.0,
    };
    let mut l = Live::<Standard>::new(&m, pace, &vec![0; cpus], map()).unwrap();
    for round in 0..rounds {
        for i in 0..cpus as u64 * turn {
            let at = mix(round << 32 | i) % NODE;
            l.access((i / turn) as usize, load(VA, at), |_| {});
        }
        if round == rounds / 2 {
            l.reset_stats();
        }
    }
    l.total().user.cycles_per_access()
}

#[test]
fn cpus_share_bandwidth_in_turns_of_whatever_length() {
    let alone = in_turns(1, 10_000, 4);
    assert!((alone / (280.0 / 8.0) - 1.0).abs() < 0.1, "{alone}");
    // 112 lines under way at once are more than the node is fast enough for.
    let shared = in_turns(14, 1, 10_000);
    assert!(shared > 2.0 * alone, "{shared} {alone}");
    for turn in [1000, 10_000] {
        let turns = in_turns(14, turn, 6);
        assert!(
            (turns / shared - 1.0).abs() < 0.1,
            "{turn}: {turns} {shared}"
        );
    }
}

#[test]
fn who_is_fed_no_more_takes_no_bandwidth() {
    let m = Machine::builtin("e7-4850v3").unwrap();
    let pace = Pace {
        base: 0.0,
        window: 8.0,
    };
    let mut l = Live::<Standard>::new(&m, pace, &[0; 14], map()).unwrap();
    let mut next = 0;
    let mut feed = |l: &mut Live<Standard>, cpu: usize, n: u64| {
        for _ in 0..n {
            next += 1;
            l.access(cpu, load(VA, mix(next) % NODE), |_| {});
        }
    };
    for _ in 0..3 {
        (0..14).for_each(|cpu| feed(&mut l, cpu, 10_000));
    }
    // As long as the others' last turns were, and then alone.
    feed(&mut l, 0, 10_000);
    feed(&mut l, 0, 30_000);
    l.reset_stats();
    feed(&mut l, 0, 10_000);
    let alone = l.stats(0).user.cycles_per_access();
    assert!((alone / (280.0 / 8.0) - 1.0).abs() < 0.1, "{alone}");
}

#[test]
fn wrong_nodes_and_ranges_are_refused_with_their_values() {
    let m = Machine::builtin("e7-4850v3").unwrap();
    let pace = Pace {
        base: 1.0,
        window: 1.0,
    };
    let why = |nodes: &[usize], map: NodeMap| {
        let e = Live::<Standard>::new(&m, pace, nodes, map).err().unwrap();
        e.to_string()
    };
    assert!(why(&[0, 7], map()).contains("CPU 1 is on node 7"));
    let far = NodeMap::new(&[(0, 4096, 9)]).unwrap();
    assert!(why(&[0], far).contains("node 9"));
    assert!(why(&[2; 15], map()).contains("15 CPUs on node 2"));
    assert!(NodeMap::new(&[(0, 10, 0), (5, 20, 1)]).is_err());
    assert!(NodeMap::new(&[(5, 5, 0)]).is_err());
    assert_eq!(map().node(NODE), 1);
    assert_eq!(map().node(1 << 40), 0, "no memory known there");
}
