// SPDX-License-Identifier: GPL-2.0-or-later
use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;
use crate::tables::Vma;
use crate::testing::Memory;
use crate::{Map, find_map};

const BASE: u64 = 0xffff_8880_0000_0000;
const LEAF: u64 = entry::PRESENT | entry::WRITE;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn memory(levels: u8) -> Memory {
    let base = if levels == 5 {
        0xff11_0000_0000_0000
    } else {
        BASE
    };
    Memory::new(levels, base, 0x4000, 3, 0)
}

fn vma(start: u64, end: u64) -> Vma {
    Vma {
        start,
        end,
        flags: 3,
    }
}

type Listed = Vec<(u64, Reverse<u8>, u64)>;

fn listed(memory: &mut Memory, lowest: u8) -> Listed {
    let map: Map = find_map(&mut &mut *memory, GIB).unwrap().unwrap();
    let mut walk = Walk::new(&mut *memory, map, lowest);
    let mut listed = Vec::new();
    while let Some(found) = walk.next_table().unwrap() {
        listed.push((found.addr, Reverse(found.level), found.table));
    }
    listed
}

fn assert_strict(listed: &Listed) {
    let keys: Vec<_> = listed.iter().map(|l| (l.0, l.1)).collect();
    assert!(keys.windows(2).all(|w| w[0] < w[1]), "{keys:x?}");
}

#[test]
fn a_process_without_mappings_has_no_tables() {
    assert_eq!(listed(&mut memory(4), 1), []);
}

#[test]
fn tables_come_in_the_order_of_the_stream() {
    for levels in [4, 5] {
        let mut memory = memory(levels);
        for at in [0, 2 * MIB, 130 * MIB, 5 * GIB, 600 * GIB] {
            memory.set(at, 1, 0x7000 | LEAF);
        }
        // A huge page, and one of a GiB.
        memory.set(GIB, 2, 0x20_0000 | LEAF | entry::HUGE);
        memory.set(3 * GIB, 3, GIB | LEAF | entry::HUGE);
        memory.vmas = vec![
            vma(0, 4 * GIB),
            vma(5 * GIB, 6 * GIB),
            vma(600 * GIB, 601 * GIB),
        ];
        let found = listed(&mut memory, 1);
        assert_strict(&found);
        assert_eq!(found, memory.all());
        let by_level = |level| found.iter().filter(|l| l.1.0 == level).count();
        assert_eq!(
            (by_level(1), by_level(2), by_level(3), by_level(4)),
            (5, 4, 2, 1)
        );
        assert_eq!(by_level(5), usize::from(levels == 5));
    }
}

#[test]
fn what_no_mapping_has_a_part_of_is_not_entered() {
    let mut memory = memory(4);
    memory.set(0, 1, 0x7000 | LEAF);
    memory.set(10 * GIB, 1, 0x8000 | LEAF);
    memory.vmas = vec![vma(10 * GIB, 10 * GIB + 4096)];
    let found = listed(&mut memory, 1);
    assert_eq!(found, memory.all());
    assert!(
        found.iter().all(|l| l.1.0 > 2 || l.0 == 10 * GIB),
        "{found:x?}"
    );
}

#[test]
fn a_fast_walk_reads_no_leaf_tables() {
    let mut memory = memory(4);
    for at in 0..600 {
        memory.set(at * 2 * MIB, 1, 0x7000 | LEAF);
    }
    memory.vmas = vec![vma(0, 2 * GIB)];
    let upper: Listed = memory.all().into_iter().filter(|l| l.1.0 > 1).collect();
    assert_eq!(listed(&mut memory, 2), upper);
    assert!(memory.asked.iter().all(|ask| ask.level > 1));
}

#[test]
fn many_leaf_tables_are_asked_for_at_once_and_ascend() {
    let mut memory = memory(4);
    for at in 0..1500 {
        memory.set(at * 2 * MIB, 1, 0x7000 | LEAF);
    }
    memory.vmas = vec![vma(0, 3 * GIB)];
    assert_eq!(listed(&mut memory, 1), memory.all());
    let asked: Vec<_> = memory.asked.iter().map(|ask| ask.from).collect();
    assert!(asked.is_sorted(), "{asked:x?}");
}

/// A place that a table may be at, few enough that they meet.
fn place() -> impl Strategy<Value = u64> {
    (0u64..3, 0u64..3, 0u64..3, 0u64..2)
        .prop_map(|(a, b, c, d)| a << 39 | b << 30 | c << 21 | d << 12)
}

fn change() -> impl Strategy<Value = (u64, u8, u64)> {
    let value = prop_oneof![
        Just(0),
        Just(0x20_0000 | LEAF | entry::HUGE),
        Just(0x7000 | LEAF),
        any::<u64>().prop_map(|junk| junk & !(entry::PRESENT | entry::PROTNONE | entry::HUGE))
    ];
    (place(), 1u8..=3, value)
}

fn apply(memory: &mut Memory, (addr, level, value): (u64, u8, u64)) {
    // A small leaf above level 1 would be a pointer to a table.
    let level = if value == 0x7000 | LEAF { 1 } else { level };
    let level = if value & entry::HUGE != 0 {
        level.max(2)
    } else {
        level
    };
    memory.set(addr, level, value);
}

proptest! {
    #[test]
    fn a_process_at_rest_is_read_as_it_is(
        levels in 4u8..=5,
        changes in prop::collection::vec(change(), 0..40),
        mapped in prop::collection::btree_set(place(), 0..8),
        lowest in 1u8..=2,
    ) {
        let mut memory = memory(levels);
        for change in changes {
            apply(&mut memory, change);
        }
        memory.vmas = mapped.into_iter().map(|at| vma(at, at + 4096)).collect();
        let found = listed(&mut memory, lowest);
        let all = memory.all().into_iter();
        let all: Listed = all.filter(|l| l.1.0 >= lowest).collect();
        assert_strict(&found);
        prop_assert_eq!(found, all);
    }

    #[test]
    fn whatever_a_process_does_the_order_is_strict(
        before in prop::collection::vec(change(), 0..40),
        seed in any::<u64>(),
    ) {
        let mut memory = memory(4);
        for change in before {
            apply(&mut memory, change);
        }
        memory.vmas = vec![vma(0, 4 << 39)];
        memory.pages.entry(0x9000).or_insert_with(|| Box::new([0; ENTRIES]))[0] = seed;
        memory.meanwhile = Some(|memory, call| {
            let mut random = memory.pages[&0x9000][0].wrapping_mul(call as u64 * 2 + 1);
            let mut next = |below| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % below
            };
            let at = next(3) << 39 | next(3) << 30 | next(3) << 21;
            match next(4) {
                0 => memory.set(at, 2, 0),
                1 => memory.set(at, 2, 0x20_0000 | LEAF | entry::HUGE),
                2 => memory.vmas = vec![vma(at, at + (1 << next(40)))],
                _ => memory.set(at, 1, 0x7000 | LEAF),
            }
        });
        assert_strict(&listed(&mut memory, 1));
    }
}
