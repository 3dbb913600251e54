// SPDX-License-Identifier: GPL-2.0-or-later
//! Whole runs on a small machine: an oracle, what all schemes share, and closed forms.

use super::*;
use crate::cores::{Cores, Tracks};
use crate::scheme::{Change, Spec};
use lens::address::PageSize;

mod tape;

const SCHEMES: [&str; 11] = [
    "ideal",
    "software",
    "kvm",
    "kvm:batch=32",
    "targeted",
    "shootdown",
    "broadcast",
    "unitd",
    "unitd:rest=software",
    "hatric",
    "hatric:cotag=8,low=3,grain=entry,update=eager,tracking=fine,extra=1",
];

/// Four CPUs, 8 MiB of stacked memory, a directory that is often full.
fn machine(more: &[(&str, &str)]) -> Stacked {
    let mut values = vec![
        ("cores_per_socket", "4"),
        ("memory.per_node", "\"8 MiB\""),
        (
            "node",
            "[{ memory = \"64 MiB\", latency = \"200 cycles\", bandwidth = \"25.6 GB/s\" }]",
        ),
        ("part.hatric.directory", "{ entries = 4096, ways = 16 }"),
    ];
    values.extend_from_slice(more);
    Stacked::from_toml_with(crate::machine::BUILTIN[0].1, &values).unwrap()
}

fn program(footprint: &str, more: &str) -> Program {
    let text = format!(
        "[p]\nnote = \"test\"\nfootprint = \"{footprint}\"\nbase = 8.0\nwindow = 4.0\n{more}\n\
         [[p.part]]\nweight = 1.0\nskew = 0.8\ncluster = 2\nlines = 2\nstores = 0.2\ndependent = 0.3\n"
    );
    Program::read(&text).unwrap().remove("p").unwrap()
}

fn setup(p: &Program) -> Setup {
    Setup {
        accesses: 16_000,
        policy: Policy {
            daemon: None,
            ..Policy::BEST
        },
        ..Setup::of("p", p, 4)
    }
}

fn run(steady: &Steady, scheme: &str) -> Outcome {
    steady.time(Placement::Paged, Spec::parse(scheme).unwrap().build())
}

#[test]
fn no_access_uses_what_the_nested_table_no_longer_has() {
    for index in ["\"guest-virtual\"", "\"guest-physical\""] {
        let m = machine(&[("part.hatric.mmu_index", index)]);
        let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
        for scheme in SCHEMES {
            let o = run(&steady, scheme);
            assert_eq!(o.counts.stale_uses, 0, "{scheme}, {index}");
            assert!(o.counts.remaps() > 50, "{scheme}: {:?}", o.counts);
        }
    }
}

#[test]
fn nor_does_any_without_a_hypervisor_or_with_copies_of_tables() {
    let copies = ("part.hatric.replicas", "3");
    for keys in [vec![("part.hatric.native", "true")], vec![copies]] {
        let m = machine(&keys);
        let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
        for scheme in SCHEMES {
            let c = run(&steady, scheme).counts;
            assert_eq!(c.stale_uses, 0, "{scheme}, {keys:?}");
            assert!(c.remaps() > 50, "{scheme}, {keys:?}");
            let stores = if keys == [copies] { 3 } else { 1 };
            assert_eq!(c.entry_stores, stores * c.remaps(), "{scheme}, {keys:?}");
            // One for each CPU and change, however many copies there are.
            if ["software", "shootdown"].contains(&scheme) {
                let present = c.out_awaited + c.out_ahead + c.moved;
                let changes = if scheme == "software" {
                    c.remaps()
                } else {
                    present
                };
                assert_eq!(c.flushes, 4 * changes, "{scheme}, {keys:?}");
            }
        }
    }
}

#[test]
fn the_oracle_notices_schemes_that_are_broken() {
    /// Tells every CPU but the last.
    struct Forgetful;
    impl Scheme for Forgetful {
        fn stored(&mut self, c: &Change, cores: &mut Cores) {
            for cpu in 0..cores.count() - 1 {
                cores.vanish(cpu, c.message);
            }
        }
    }
    /// As HATRIC, but the directory is not told of translations.
    struct Blind;
    impl Scheme for Blind {
        fn tracks(&self) -> Tracks {
            Tracks::Nothing
        }
        fn stored(&mut self, c: &Change, cores: &mut Cores) {
            for cpu in crate::cores::bits(c.told) {
                cores.vanish(cpu, c.message);
            }
        }
    }
    let m = machine(&[]);
    let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
    for scheme in [Box::new(Forgetful) as Box<dyn Scheme>, Box::new(Blind)] {
        let o = steady.time(Placement::Paged, scheme);
        assert!(o.counts.stale_uses > 0);
    }
}

#[test]
fn all_schemes_see_the_same_remaps() {
    let m = machine(&[]);
    let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
    let paging = |o: &Outcome| {
        let c = &o.counts;
        (
            c.faults,
            c.in_demanded,
            c.in_prefetched,
            c.out_awaited,
            c.table_pages,
        )
    };
    let first = run(&steady, "ideal");
    for scheme in &SCHEMES[1..] {
        assert_eq!(paging(&run(&steady, scheme)), paging(&first), "{scheme}");
    }
}

#[test]
fn schemes_are_equal_to_the_bit_where_nothing_is_remapped() {
    // A directory that never has to make room, also for those who take the machine's.
    let m = machine(&[
        ("memory.per_node", "\"64 MiB\""),
        ("part.hatric.directory", "{ entries = 1048576, ways = 64 }"),
    ]);
    let mut s = setup(&program("8 MiB", ""));
    // One move, long after the end.
    s.policy.defragment = 1 << 40;
    let steady = Steady::reach(&m, &s).unwrap();
    let first = run(&steady, "hatric:directory=infinite");
    assert_eq!(first.counts.remaps(), 0);
    for scheme in SCHEMES {
        let scheme = match scheme.split_once(':') {
            _ if !scheme.starts_with("hatric") && !scheme.starts_with("unitd") => scheme.into(),
            Some(_) => format!("{scheme},directory=infinite"),
            None => format!("{scheme}:directory=infinite"),
        };
        let o = run(&steady, &scheme);
        assert_eq!(o.programs, first.programs, "{scheme}");
        assert_eq!(o.counts.cycles(), first.counts.cycles(), "{scheme}");
    }
}

#[test]
fn ideal_is_first_hatric_close_and_software_last() {
    let m = machine(&[]);
    let steady = Steady::reach(&m, &setup(&program("16 MiB", ""))).unwrap();
    let cycles = |scheme: &str| run(&steady, scheme).cycles_per_access();
    let [ideal, hatric, unitd, kvm, software] =
        ["ideal", "hatric", "unitd", "kvm", "software"].map(cycles);
    assert!(
        ideal <= hatric && hatric <= unitd,
        "{ideal} {hatric} {unitd}"
    );
    assert!(unitd < kvm && kvm <= software, "{unitd} {kvm} {software}");
    let targeted = cycles("targeted");
    assert!(hatric < targeted && targeted < software, "{targeted}");
}

#[test]
fn what_software_costs_is_the_closed_form() {
    let m = machine(&[]);
    let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
    let c = run(&steady, "software").counts;
    let p = m.prices();
    let others = 3.0;
    let changes = c.remaps() as f64;
    assert_eq!(c.ipis as f64, others * changes);
    assert_eq!(c.target_cycles, others * changes * p.exit);
    let initiate = changes * (p.ipi_first + p.ipi_each * (others - 1.0));
    assert!((c.initiate_cycles - initiate).abs() < 1e-6 * initiate);
    // Faults: their exits, and stores to entries.
    assert!(c.fault_cycles >= c.faults as f64 * (p.exit + p.fault));
}

#[test]
fn a_cpu_that_waits_for_no_copy_is_charged_none() {
    let m = machine(&[]);
    let mut s = setup(&program("24 MiB", ""));
    s.copy_wait = 0.0;
    let none = run(&Steady::reach(&m, &s).unwrap(), "ideal").counts;
    s.copy_wait = 1.0;
    let all = run(&Steady::reach(&m, &s).unwrap(), "ideal").counts;
    assert_eq!(none.copy_cycles, 0.0);
    assert!(all.copy_cycles > 0.0);
    assert_eq!(none.faults, all.faults);
}

#[test]
fn the_daemon_has_no_fault_wait_for_a_victim() {
    let m = machine(&[]);
    let mut s = setup(&program("24 MiB", ""));
    s.policy.daemon = Some(crate::pager::Daemon {
        low: 200,
        high: 260,
        every: 20,
    });
    let with = run(&Steady::reach(&m, &s).unwrap(), "hatric").counts;
    assert_eq!((with.out_awaited, with.evict_cycles), (0, 0.0));
    assert!(with.out_ahead > 50);
    s.stolen_daemon = true;
    let stolen = run(&Steady::reach(&m, &s).unwrap(), "hatric").counts;
    assert!(stolen.evict_cycles > 0.0);
}

#[test]
fn superpages_are_remapped_by_defragmentation() {
    let m = machine(&[("memory.per_node", "\"64 MiB\"")]);
    let mut s = setup(&program("16 MiB", "superpages = true"));
    s.policy.defragment = 100;
    let steady = Steady::reach(&m, &s).unwrap();
    for scheme in SCHEMES {
        let c = run(&steady, scheme).counts;
        assert!(c.moved > 50, "{scheme}");
        assert_eq!((c.stale_uses, c.faults), (0, 0), "{scheme}");
    }
    assert_eq!(steady.setup.programs[0].1.size(), PageSize::Size2M);
}

#[test]
fn several_programs_run_in_one_vm() {
    let m = machine(&[]);
    let p = program("12 MiB", "");
    let mut s = setup(&p);
    s.programs = (0..4).map(|i| (format!("p{i}"), p.clone(), 1)).collect();
    let steady = Steady::reach(&m, &s).unwrap();
    let o = run(&steady, "hatric");
    assert_eq!(o.programs.len(), 4);
    assert_eq!(o.counts.stale_uses, 0);
}

#[test]
fn a_recorded_program_pages_as_its_trace_says() {
    let text = "[t]\nnote = \"\"\nbase = 8.0\nwindow = 4.0\ntrace = \"x\"\n";
    let p = Program::read(text).unwrap().remove("t").unwrap();
    let mut threads = Vec::new();
    for t in 0..4u64 {
        let page = |i: u64| (((i * 7919 + t * 1500) % 6000) << 12) | 64;
        threads.push(
            (0..20_000)
                .map(|i| lens::access::Access::load(page(i)))
                .collect(),
        );
    }
    let recorded = crate::program::Recorded::new(threads).unwrap();
    let mut s = setup(&p.play(Arc::new(recorded)).unwrap());
    let steady = Steady::reach(&machine(&[]), &s).unwrap();
    assert!(steady.turnovers >= 1.0);
    let o = run(&steady, "hatric");
    assert_eq!(o.counts.stale_uses, 0);
    // Pages come again only after all others.
    assert!(o.counts.faults > 1000, "{:?}", o.counts);
    s.programs[0].2 = 2;
    let Err(e) = Steady::reach(&machine(&[]), &s) else {
        panic!("accepted")
    };
    assert!(
        e.to_string().contains("vCPUs of p is 2; 4 are allowed"),
        "{e}"
    );
}

#[test]
fn runs_that_make_no_sense_are_refused() {
    let m = machine(&[]);
    let why = |s: &Setup| match Steady::reach(&m, s) {
        Ok(_) => panic!("accepted"),
        Err(e) => e.to_string(),
    };
    let mut s = setup(&program("24 MiB", ""));
    s.programs[0].2 = 5;
    assert!(
        why(&s).contains("5 for 1 programs; at least one"),
        "{}",
        why(&s)
    );
    let s = setup(&program("128 MiB", ""));
    assert!(why(&s).contains("is what the machine has"), "{}", why(&s));
    let s = setup(&program("2 MiB", ""));
    assert!(why(&s).contains("nothing to do"), "{}", why(&s));
    let mut s = setup(&program("24 MiB", ""));
    s.copy_wait = 1.5;
    assert!(why(&s).contains("copy-wait is 1.5; 0 to 1"), "{}", why(&s));
}

#[test]
fn the_steady_state_is_that_of_a_turnover() {
    let m = machine(&[]);
    let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
    assert!(steady.turnovers >= 1.0, "{}", steady.turnovers);
    // A seed gives the same run again.
    let again = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
    assert_eq!(run(&steady, "hatric"), run(&again, "hatric"));
}

#[test]
fn unitd_is_hatric_with_whole_addresses_where_there_are_only_tlbs() {
    let none = "{ entries = 0, ways = 0 }";
    let m = machine(&[
        ("walker.nested_tlb", none),
        ("walker.level2", none),
        ("walker.level3", none),
        ("walker.level4", none),
    ]);
    let steady = Steady::reach(&m, &setup(&program("24 MiB", ""))).unwrap();
    let unitd = run(&steady, "unitd");
    let hatric = run(&steady, "hatric:cotag=64");
    assert_eq!(unitd.programs, hatric.programs);
    assert_eq!(unitd.counts.walks, hatric.counts.walks);
    assert_eq!(unitd.counts.dropped_alias, 0);
    // As other structures are there, flushing them costs.
    let usual = Steady::reach(&machine(&[]), &setup(&program("24 MiB", ""))).unwrap();
    assert!(run(&usual, "unitd").programs > run(&usual, "hatric:cotag=64").programs);
}

#[test]
fn stacked_memory_helps_streams_as_much_as_it_is_wider_and_chains_not_at_all() {
    // A slice has to see many lines: of 71 that 2000 cycles have room for, the noise
    // makes a full memory serve 8 % less.
    let gain = |contention: &str, window: &str, part: &str| {
        let m = machine(&[
            ("part.hatric.quantum", "\"20000 cycles\""),
            ("part.hatric.contention", contention),
            ("memory.bandwidth", "\"25.6 GB/s\""),
            (
                "node",
                "[{ memory = \"64 MiB\", latency = \"200 cycles\", bandwidth = \"6.4 GB/s\" }]",
            ),
        ]);
        let text = format!(
            "[p]\nnote = \"test\"\nfootprint = \"48 MiB\"\nbase = 0.0\nwindow = {window}\n\
             [[p.part]]\nweight = 1.0\nlines = 64\n{part}"
        );
        let p = Program::read(&text).unwrap().remove("p").unwrap();
        let s = Setup {
            accesses: 80_000,
            ..setup(&p)
        };
        let steady = Steady::reach(&m, &s).unwrap();
        let time = |placement| {
            let scheme = Spec::parse("ideal").unwrap().build();
            steady.time(placement, scheme).cycles_per_access()
        };
        time(Placement::Infinite) / time(Placement::OffChip)
    };
    let stream = gain("1.0", "32.0", "");
    assert!((stream / 0.25 - 1.0).abs() < 0.02, "{stream}");
    let chain = "skew = 0.0\ndependent = 1.0\n";
    let alone = gain("1.0", "1.0", chain);
    assert!((0.85..1.0).contains(&alone), "{alone}");
    // Unless others make memory off-chip slower for chains as well.
    let loaded = gain("4.0", "1.0", chain);
    assert!((0.24..0.26).contains(&loaded), "{loaded}");
}

#[test]
fn a_steady_state_serves_all_setups_whose_pager_does_the_same() {
    let p = program("24 MiB", "");
    let usual = Steady::reach(&machine(&[]), &setup(&p)).unwrap();
    let other = machine(&[
        ("part.hatric.exit", "\"400 cycles\""),
        ("memory.local", "\"300 cycles\""),
    ]);
    let mut s = setup(&p.scaled("stores", 2.0).unwrap());
    s.copy_wait = 0.5;
    s.scale = 2;
    let reached = Steady::reach(&other, &s).unwrap();
    let taken = usual.again(&other, &s).unwrap();
    for scheme in ["hatric", "software"] {
        assert_eq!(run(&taken, scheme), run(&reached, scheme));
    }
    assert_ne!(run(&taken, "hatric"), run(&usual, "hatric"));
    s.copy_wait = 2.0;
    assert!(usual.again(&other, &s).is_err());
}
