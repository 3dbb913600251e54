// SPDX-License-Identifier: GPL-2.0-or-later
//! Where pages and tables of small and large processes are.

use super::*;

#[test]
fn memory_without_cpus_is_touched_by_nobody_and_filled_last() {
    let text = crate::machine::BUILTIN[0].1.to_owned() + "[[node]]\nmemory = \"1 TiB\"\n";
    let m = Machine::from_toml(&text).unwrap();
    for init in [Init::Parallel, Init::Scatter, Init::Single] {
        let l = Layout::on(
            &m,
            &[spec(init, 1000)],
            native(FIRST_TOUCH, TablePolicy::Stock),
        );
        let gib = |i: u64| l.data_node(l.start(0) + (i << 30));
        let beyond = (0..1000).filter(|&i| gib(i) == 4).count();
        assert_eq!(
            beyond,
            if init == Init::Single { 488 } else { 0 },
            "{init:?}"
        );
    }
    let policies = native(DataPolicy::Interleave, TablePolicy::Stock);
    let l = Layout::on(&m, &[spec(Init::Single, 1)], policies);
    let mut nodes: Vec<_> = (0..5).map(|i| l.data_node(l.start(0) + i * 4096)).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1, 2, 3, 4]);
}

#[test]
fn nothing_moves_to_memory_without_cpus_by_chance() {
    let text =
        crate::machine::BUILTIN[0].1.to_owned() + "[[node]]\ncount = 4\nmemory = \"1 TiB\"\n";
    let m = Machine::from_toml(&text).unwrap();
    let specs = [spec(Init::Scatter, 1000)];
    let moved = DataPolicy::FirstTouch { moved: 0.6 };
    let mut p = native(moved, TablePolicy::Random);
    p.nested = Some(Nested {
        tables: TablePolicy::Stock,
        huge: 0.0,
    });
    let l = Layout::on(&m, &specs, p);
    let entry = |va| l.guest_entry(1, va, 0);
    for n in [
        shares(&l, |va| l.data_node(va)),
        shares(&l, |va| l.table_home(Dim::Guest, 1, va, 0).node),
        shares(&l, |va| l.table_home(Dim::Nested, 1, entry(va), 0).node),
    ] {
        assert!(n[..4].iter().all(|s| (s - 0.25).abs() < 0.05), "{n:?}");
        assert!(n[4..].iter().all(|&s| s == 0.0), "{n:?}");
    }
}

fn spec(init: Init, gib: u64) -> RegionSpec {
    RegionSpec {
        name: "r",
        bytes: Bytes::gib(gib),
        init,
        backing: Backing::Mapped,
    }
}

fn native(data: DataPolicy, tables: TablePolicy) -> Policies {
    Policies {
        data,
        tables,
        huge: HugePolicy::Never,
        nested: None,
    }
}

const FIRST_TOUCH: DataPolicy = DataPolicy::FirstTouch { moved: 0.0 };

fn shares(l: &Layout, f: impl Fn(u64) -> usize) -> Vec<f64> {
    let mut n = vec![0.0; l.nodes()];
    let r = &l.regions[0];
    for i in 0..20_000u64 {
        n[f(r.start + (r.end - r.start) / 20_000 * i)] += 1.0 / 20_000.0;
    }
    n
}

#[test]
fn one_thread_fills_a_node_and_then_the_next_with_tables_beside_data() {
    let specs = [spec(Init::Single, 300)];
    let l = Layout::new(
        &specs,
        4,
        Bytes::gib(128),
        native(FIRST_TOUCH, TablePolicy::Stock),
    );
    let n = shares(&l, |va| l.data_node(va));
    assert!((n[0] - 128.0 / 300.0).abs() < 0.01 && (n[2] - 44.0 / 300.0).abs() < 0.01);
    assert_eq!(n[3], 0.0);
    let t = shares(&l, |va| l.table_home(Dim::Guest, 1, va, 0).node);
    assert!(
        n.iter().zip(&t).all(|(a, b)| (a - b).abs() < 0.01),
        "{n:?} {t:?}"
    );
}

#[test]
fn interleave_spreads_pages_and_tables_evenly_and_apart() {
    let specs = [spec(Init::Single, 64)];
    let p = native(DataPolicy::Interleave, TablePolicy::Stock);
    let l = Layout::new(&specs, 4, Bytes::gib(128), p);
    for n in [
        shares(&l, |va| l.data_node(va)),
        shares(&l, |va| l.table_home(Dim::Guest, 1, va, 0).node),
    ] {
        assert!(n.iter().all(|s| (s - 0.25).abs() < 0.02), "{n:?}");
    }
    for from in 0..4 {
        assert!((l.remote_leaf_share(from) - 0.75).abs() < 0.03);
    }
}

#[test]
fn a_replicated_process_walks_at_home_and_a_fixed_one_where_told() {
    let specs = [spec(Init::Scatter, 64)];
    let mk = |t| Layout::new(&specs, 4, Bytes::gib(128), native(FIRST_TOUCH, t));
    let l = mk(TablePolicy::Replicated);
    assert!((0..4).all(|n| l.remote_leaf_share(n) == 0.0));
    assert_ne!(
        l.table_home(Dim::Guest, 1, l.start(0), 1).copy,
        l.table_home(Dim::Guest, 1, l.start(0), 2).copy
    );
    let l = mk(TablePolicy::Fixed(2));
    assert_eq!(l.remote_leaf_share(2), 0.0);
    assert_eq!(l.remote_leaf_share(0), 1.0);
}

#[test]
fn tables_found_somewhere_lie_there() {
    let specs = [spec(Init::Scatter, 64)];
    let found = Shares::of(&[10, 0, 60, 30]).unwrap();
    let p = native(FIRST_TOUCH, TablePolicy::Found(found));
    let l = Layout::new(&specs, 4, Bytes::gib(128), p);
    let n = shares(&l, |va| l.table_home(Dim::Guest, 1, va, 0).node);
    for (have, want) in n.iter().zip([0.1, 0.0, 0.6, 0.3]) {
        assert!((have - want).abs() < 0.02, "{n:?}");
    }
    assert!((l.remote_leaf_share(2) - 0.4).abs() < 0.02);
    assert_eq!(Shares::of(&[0, 0]), None);
}

#[test]
fn first_touch_finds_one_nodes_worth_of_huge_pages() {
    let specs = [spec(Init::Single, 256)];
    let mut p = native(FIRST_TOUCH, TablePolicy::Stock);
    p.huge = HugePolicy::Transparent { available: 1.0 };
    let l = Layout::new(&specs, 4, Bytes::gib(128), p);
    let huge = |l: &Layout| shares(l, |va| usize::from(l.page_size(va) == PageSize::Size2M))[1];
    assert!((huge(&l) - 0.5).abs() < 0.01);
    p.data = DataPolicy::Interleave;
    let l = Layout::new(&specs, 4, Bytes::gib(128), p);
    assert!(
        (huge(&l) - 1.0).abs() < 0.01,
        "interleaving has no such limit"
    );
    p.huge = HugePolicy::Transparent { available: 0.2 };
    let l = Layout::new(&specs, 4, Bytes::gib(128), p);
    assert!((huge(&l) - 0.2).abs() < 0.02, "fragmented");
}

#[test]
fn eight_terabytes_cost_no_more_than_eight_megabytes() {
    let p = native(FIRST_TOUCH, TablePolicy::Stock);
    let l = Layout::new(&[spec(Init::Parallel, 8192)], 8, Bytes::gib(1024), p);
    assert!(
        shares(&l, |va| l.data_node(va))
            .iter()
            .all(|s| (s - 0.125).abs() < 0.01)
    );
    assert!(l.regions.capacity() < 4);
}
