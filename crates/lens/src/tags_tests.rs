// SPDX-License-Identifier: GPL-2.0-or-later
//! Hit rates of tag arrays on known patterns, and the paths made for speed
//! against the plain ones.

use super::*;
use crate::hash::mix;

fn pass<I: Index, const W: usize>(
    a: &mut TagArray<I, W>,
    keys: impl Iterator<Item = u64>,
) -> usize {
    keys.filter(|&k| a.access(Key::new(k), Plain)).count()
}

#[test]
fn a_loop_that_fits_always_hits_and_one_that_does_not_never_does() {
    for ways in [1, 3, 4, 8, 12, 16, 20] {
        let mut a = TagArray::<LowBits, 8>::new(64, ways);
        let n = a.capacity() as u64;
        assert_eq!(pass(&mut a, 0..n), 0);
        assert_eq!(pass(&mut a, 0..n), n as usize, "{ways} ways");
        a.clear();
        // One line too many in every set: LRU evicts each just before use.
        let over = n + 64;
        pass(&mut a, 0..over);
        assert_eq!(pass(&mut a, 0..over), 0, "{ways} ways");
    }
}

/// Accesses, finds, inserts and invalidates random keys in a store of `W`
/// in line and one of lists.
fn compare<const W: usize, const E: usize>(ways: usize, enter: usize, host: impl Host) {
    let sets = 4;
    let mut a = TagArray::<LowBits, W, E>::with_entry(sets, ways, enter);
    let mut lists = vec![Vec::<u64>::new(); sets];
    let put = |list: &mut Vec<u64>, key| {
        list.insert(enter.min(list.len()), key);
        list.truncate(ways);
    };
    for i in 0..20_000u64 {
        let key = mix(i) % (3 * (sets * ways) as u64 / 2);
        let list = &mut lists[key as usize % sets];
        let at = list.iter().position(|&k| k == key);
        let which = format!("{ways} ways, entering at {enter}, {W} in line, access {i}");
        let turn = mix(!i) % 16;
        if turn == 0 {
            assert_eq!(a.invalidate(Key::new(key)), at.is_some(), "{which}");
            at.map(|p| list.remove(p));
            continue;
        }
        if turn < 8 {
            // The other of its pair is in another set of these.
            let found = a.find(Key::new(key), host);
            assert_eq!(found == Found::Held, at.is_some(), "{which}");
            assert_ne!(found, Found::Absent { other: true }, "{which}");
            if at.is_none() {
                a.insert(Key::new(key), host);
            }
        } else if turn < 12 {
            assert_eq!(
                a.access_evenly(Key::new(key), host),
                at.is_some(),
                "{which}"
            );
        } else {
            assert_eq!(a.access(Key::new(key), host), at.is_some(), "{which}");
        }
        match at {
            Some(p) => {
                list.remove(p);
                list.insert(0, key);
            }
            None => put(list, key),
        }
    }
}

/// Finds random keys in a store where pairs share a set, and inserts both
/// where neither was: in two steps, or in one of three kinds that also
/// touches the other key where that was there.
fn compare_pairs<const W: usize, const E: usize>(ways: usize, enter: usize, host: impl Host) {
    let sets = 4;
    let mut a = TagArray::<Hashed, W, E>::with_entry(sets, ways, enter);
    let mut lists = vec![Vec::<u64>::new(); sets];
    for i in 0..20_000u64 {
        let value = mix(i) % (3 * (sets * ways) as u64 / 2);
        let key = Key::new(value);
        let list = &mut lists[Hashed::set(key, a.scale)];
        assert_eq!(Hashed::set(key.other(), a.scale), Hashed::set(key, a.scale));
        assert_eq!(key.other(), Key::new(value ^ 1));
        let which = format!("{ways} ways, entering at {enter}, {W} in line, access {i}");
        let at = |k| list.iter().position(|&l| l == k);
        let (held, other) = (at(value), at(value ^ 1).is_some());
        let expected = match held {
            Some(_) => Found::Held,
            None => Found::Absent { other },
        };
        let kind = mix(!i) % 4;
        let at_once = kind > 0;
        let found = match kind {
            0 => a.find(key, host),
            1 => a.find_or_insert_pair(key, host),
            2 => a.find_or_insert_pair_evenly(key, host),
            _ => {
                let unasked = a.find_or_insert_pair_if(key, false, host);
                assert_eq!(unasked, Found::Held, "{which}");
                a.find_or_insert_pair_if(key, true, host)
            }
        };
        assert_eq!(found, expected, "{which}");
        let put = |list: &mut Vec<u64>, key| {
            list.insert(enter.min(list.len()), key);
            list.truncate(ways);
        };
        match expected {
            Found::Held => {
                held.map(|p| list.remove(p));
                list.insert(0, value);
            }
            Found::Absent { other: true } => {
                put(list, value);
                let stays = list.iter().position(|&l| l == value ^ 1);
                match stays {
                    Some(p) if at_once => {
                        list.remove(p);
                        list.insert(0, value ^ 1);
                    }
                    _ => {}
                }
            }
            Found::Absent { other: false } => {
                put(list, value);
                put(list, value ^ 1);
            }
        }
        match found {
            Found::Absent { other: true } if !at_once => a.insert(key, host),
            Found::Absent { other: false } if !at_once => a.insert_pair(key, host),
            _ => {}
        }
        for key in list.iter().copied().map(Key::new) {
            assert!(a.contains(key), "{which}: {key:?}");
            assert!(!a.is_front(key) || key.value == list[0], "{which}");
        }
    }
}

fn every_shape(host: impl Host) {
    for ways in (1..=24).chain([32, 64]) {
        for enter in [0, 1, 6, ways / 2, ways - 1] {
            if enter >= ways {
                continue;
            }
            compare::<4, 0>(ways, enter, host);
            compare::<8, 0>(ways, enter, host);
            compare::<16, 0>(ways, enter, host);
            compare::<20, 6>(ways, enter, host);
            compare_pairs::<4, 0>(ways, enter, host);
            compare_pairs::<8, 0>(ways, enter, host);
            compare_pairs::<20, 0>(ways, enter, host);
            compare_pairs::<20, 6>(ways, enter, host);
            compare_pairs::<20, 18>(ways, enter, host);
            compare_pairs::<20, 19>(ways, enter, host);
        }
    }
    compare_pairs::<20, 18>(20, 18, host);
}

#[test]
fn every_shape_does_what_a_list_in_recency_order_does() {
    every_shape(Plain);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn so_it_does_in_registers_of_256_bits() {
    match crate::simd::avx2::Avx2::detect() {
        Some(host) => every_shape(host),
        None => eprintln!("skipped: this host has no AVX2"),
    }
}

#[test]
fn lines_of_a_table_and_of_regular_strides_spread_over_sets_and_tags() {
    let sets = 28_672;
    let powers = (0..30).map(|shift| 1u64 << shift);
    for stride in powers.chain([3, 63, 511, 4095, 12_345, 3 << 12, 5 << 15]) {
        let mut filled = vec![0u32; sets];
        let mut seen = std::collections::HashSet::new();
        let n = 10 * sets as u64;
        for i in 0..n {
            let key = Key::new((1 << 30) + 2 * i * stride);
            let set = Hashed::set(key, sets as u64);
            filled[set] += 1;
            assert!(seen.insert((set, key.tag)), "stride {stride}, key {i}");
        }
        // Ten pairs a set on average; at random, 3.2 off.
        let off = filled.iter().map(|&f| (f64::from(f) - 10.0).powi(2));
        let off = (off.sum::<f64>() / sets as f64).sqrt();
        assert!(off < 3.5, "stride {stride}: {off:.1} pairs off");
    }
}

#[test]
fn quick_tags_of_near_keys_differ() {
    // Multiples of the golden ratio come closest to whole numbers at
    // Fibonacci numbers; a tag is the high half.
    let (mut near, mut next) = (1u64, 2);
    while near < 1 << 30 {
        let off = (near.wrapping_mul(GOLDEN) as i64).unsigned_abs();
        assert!(off >= 1 << 32, "{near} apart");
        assert_ne!(Key::quick(12345).tag, Key::quick(12345 + near).tag);
        (near, next) = (next, near + next);
    }
}

#[test]
fn random_keys_hit_in_proportion_to_capacity() {
    // Under LRU with independent uniform references over M keys, the hit
    // rate of a cache of C is C/M.
    let mut a = TagArray::<Hashed, 16>::new(1000, 16);
    let (m, n) = (64_000u64, 400_000u64);
    let mut x = 1;
    let mut next = || {
        x = mix(x + 0x9e37);
        x % m
    };
    for _ in 0..n {
        a.access(Key::new(next()), Plain);
    }
    let hits = (0..n).filter(|_| a.access(Key::new(next()), Plain)).count();
    let rate = hits as f64 / n as f64;
    assert!((rate - 0.25).abs() < 0.01, "{rate}");
}

#[test]
fn what_is_used_again_outlives_a_stream_that_enters_below_it() {
    let kept = |enter: usize| {
        let mut a = TagArray::<LowBits, 8>::with_entry(16, 8, enter);
        // Half of the capacity, twice, then a stream of new keys.
        pass(&mut a, 0..64);
        pass(&mut a, 0..64);
        pass(&mut a, 1000..5000);
        (0..64).filter(|&k| a.contains(Key::new(k))).count()
    };
    assert_eq!((kept(0), kept(4)), (0, 64));
    // An empty set takes keys everywhere.
    let mut a = TagArray::<LowBits, 8>::with_entry(1, 8, 4);
    pass(&mut a, 0..8);
    assert!((0..8).all(|k| a.contains(Key::new(k))));
}

#[test]
fn invalidate_removes_only_its_key() {
    let mut a = TagArray::<LowBits, 4>::new(1, 4);
    pass(&mut a, 1..=4);
    assert!(a.invalidate(Key::new(2)));
    assert!(!a.invalidate(Key::new(2)));
    assert!([1, 3, 4].iter().all(|&k| a.contains(Key::new(k))));
    assert!(!a.access(Key::new(2), Plain));
    assert!(a.contains(Key::new(1)), "the freed way was used first");
}

#[test]
fn nothing_fits_in_an_absent_structure() {
    let mut a = TagArray::<LowBits, 4>::new(0, 4);
    assert!(!a.access(Key::new(1), Plain) && !a.access(Key::new(1), Plain));
}
