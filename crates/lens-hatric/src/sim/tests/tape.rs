// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs in which a tape is played.

use super::*;
use crate::tape::{End, Event, Header, What};

/// A tape of four vCPUs on [`machine`] with 24 MiB: pages come, go and move in turns.
fn tape(end: u64) -> Tape {
    let event = |i: u64| {
        let (what, page) = match i % 3 {
            0 => (What::Out, i / 3),
            1 => (What::In, 2000 + i / 3),
            _ => (What::Moved, 900),
        };
        Event {
            at: i * 20,
            what,
            page: Some(page),
            cpu: (i % 2 == 0).then_some((i % 4) as u32),
            vcpus: 4,
            exits: 3,
            interrupts: 3,
            flushes: 4,
        }
    };
    written((0..1200).map(event).collect(), end)
}

/// `events` as a tape of that machine.
fn written(events: Vec<Event>, end: u64) -> Tape {
    let tape = Tape {
        header: Header {
            tape: Header::FORMAT.to_owned(),
            version: Header::VERSION,
            memory: 7000,
            stacked: 2048,
            vcpus: 4,
            resident: vec![(0, 2000)],
            note: String::new(),
        },
        end: End {
            end,
            events: events.len() as u64,
        },
        events,
    };
    Tape::read(tape.text().as_bytes()).unwrap()
}

#[test]
fn a_tape_is_played_in_place_of_the_pager() {
    let mut s = setup(&program("24 MiB", ""));
    s.tape = Some(Arc::new(tape(30_000)));
    let steady = Steady::reach(&machine(&[]), &s).unwrap();
    for scheme in SCHEMES {
        let c = run(&steady, scheme).counts;
        // What falls into the window: one of 20 accesses of it.
        assert_eq!(c.remaps(), 16_000 / 20, "{scheme}");
        assert_eq!((c.faults, c.moved), (400, 267), "{scheme}");
        assert_eq!(c.stale_uses, 0, "{scheme}");
        assert!(c.off_chip_lines > 10_000, "pages off-chip are used: {c:?}");
    }
    let cycles = |scheme| run(&steady, scheme).cycles_per_access();
    assert!(cycles("ideal") < cycles("software"));
}

#[test]
fn neighbours_of_one_time_and_vcpu_are_one_fault() {
    let event = |at, cpu, what, page| Event {
        at,
        what,
        page: Some(page),
        cpu,
        vcpus: 4,
        exits: 0,
        interrupts: 0,
        flushes: 0,
    };
    // Direct reclaim: a page goes, and another comes. At the same time two pages go by
    // a vCPU of its own, and one by a thread of the hypervisor.
    let events = (0..200).flat_map(|i| {
        let at = 8000 + i * 20;
        let (out, cpu) = (5 * i, (i % 4) as u32);
        let other = (cpu + 1) % 4;
        [
            event(at, Some(cpu), What::Out, out),
            event(at, Some(cpu), What::In, 2000 + i),
            event(at, Some(other), What::Out, out + 1),
            event(at, Some(other), What::Out, out + 2),
            event(at, None, What::Out, out + 3),
        ]
    });
    let mut s = setup(&program("24 MiB", ""));
    s.tape = Some(Arc::new(written(events.collect(), 24_000)));
    let steady = Steady::reach(&machine(&[]), &s).unwrap();
    let each = run(&steady, "kvm").counts;
    let batches = run(&steady, "kvm:batch=2").counts;
    for c in [&each, &batches] {
        assert_eq!((c.faults, c.remaps()), (2 * 200, 5 * 200));
        assert_eq!((c.out_awaited, c.out_ahead), (3 * 200, 200));
        assert_eq!(c.stale_uses, 0);
    }
    // A thread of the hypervisor interrupts all four vCPUs, and a vCPU the others.
    assert_eq!(each.ipis, 200 * (4 * 3 + 4));
    assert_eq!(batches.ipis, 200 * (2 * 3 + 4));
    assert_eq!((each.flushes, batches.flushes), (200 * 4 * 5, 200 * 4 * 3));
}

#[test]
fn pages_behind_the_guest_are_not_of_tables() {
    let s = setup(&program("24 MiB", ""));
    let steady = Steady::reach(&machine(&[]), &s).unwrap();
    let tables = steady.guest.spaces[0].table_pages();
    assert_eq!(tables, 6144..6144 + 12 + 3);
    let events = [0, 6143, 6144, 6158, 6159, 6655, 6656, 6999].map(|page| Event {
        at: 9000,
        what: What::Moved,
        page: Some(page),
        cpu: None,
        vcpus: 4,
        exits: 0,
        interrupts: 0,
        flushes: 0,
    });
    let mut s = s;
    s.tape = Some(Arc::new(written(events.to_vec(), 24_000)));
    let steady = Steady::reach(&machine(&[]), &s).unwrap();
    let c = run(&steady, "hatric").counts;
    assert_eq!((c.moved, c.table_pages), (8, 2));
}

#[test]
fn tapes_of_another_memory_or_too_short_are_refused() {
    let why = |m: &Stacked, change: fn(&mut Setup), end| {
        let mut s = setup(&program("24 MiB", ""));
        s.tape = Some(Arc::new(tape(end)));
        change(&mut s);
        match Steady::reach(m, &s) {
            Ok(_) => panic!("accepted"),
            Err(e) => e.to_string(),
        }
    };
    let m = machine(&[]);
    let e = why(
        &machine(&[("memory.per_node", "\"9 MiB\"")]),
        |_| (),
        30_000,
    );
    assert!(
        e.contains("stacked of the tape is 2048; 2304 is allowed"),
        "{e}"
    );
    let e = why(&m, |s| s.programs[0].1 = program("40 MiB", ""), 30_000);
    assert!(
        e.contains("memory of the tape is 7000; 10752 to 18432"),
        "{e}"
    );
    let e = why(&m, |s| s.programs[0].2 = 3, 30_000);
    assert!(e.contains("vcpus of the tape is 4; 3 is allowed"), "{e}");
    let e = why(&m, |_| (), 24_000 - 1);
    assert!(e.contains("end of the tape is 23999; 24000 to"), "{e}");
    let huge = |s: &mut Setup| s.programs[0].1 = program("24 MiB", "superpages = true");
    let e = why(&m, huge, 30_000);
    assert!(
        e.contains("superpages of p is true; false is allowed"),
        "{e}"
    );
}
