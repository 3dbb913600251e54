// SPDX-License-Identifier: GPL-2.0-or-later
//! The stream survives the round trip, and nothing else survives the parser.

mod common;

use std::io::Read;

use common::{Sample, absent, data, run, server, tables};
use nearwalk_dump::stream::{
    Attrs, Kind, Problem, Reader, Record, Run, StreamError, TableHead, View, Writer,
};
use proptest::prelude::*;

/// Reads to the end, whatever comes.
fn drain<R: Read>(input: R) -> Result<Vec<(TableHead, Vec<Run>)>, StreamError> {
    let mut reader = Reader::new(input)?;
    let mut tables = Vec::new();
    while let Some(record) = reader.next_record()? {
        if let Record::Table(table) = record {
            tables.push((table.head, table.runs.to_vec()));
        }
    }
    Ok(tables)
}

fn problem(bytes: &[u8]) -> Problem {
    match drain(bytes) {
        Err(StreamError::Record { problem, .. }) => problem,
        other => panic!("want a damaged record, got {other:?}"),
    }
}

fn kind_strategy(level: u8) -> impl Strategy<Value = Kind> {
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|&kind| match kind {
            Kind::Table => level > 1,
            _ => level <= 3,
        })
        .collect();
    prop::sample::select(kinds)
}

fn runs_strategy(level: u8) -> impl Strategy<Value = Vec<Run>> {
    let one = (
        0u16..40,
        1u16..40,
        kind_strategy(level),
        any::<u8>(),
        0u64..(1 << 39),
        prop::option::of(0u32..4),
    );
    prop::collection::vec(one, 0..30).prop_map(move |parts| {
        let max = if level == 4 { 256 } else { 512 };
        let mut index = 0;
        let mut runs = Vec::new();
        for (gap, count, kind, attrs, frame, node) in parts {
            index += gap;
            if index + count > max {
                break;
            }
            runs.push(Run {
                first: index,
                count,
                kind,
                attrs: Attrs::from_bits(attrs),
                node: node.filter(|_| kind.has_frame()),
                frame: if kind.has_frame() { frame } else { 0 },
            });
            index += count;
        }
        runs
    })
}

/// One table each of the levels 4 to 1, in the canonical and a domain's tree.
fn sample_strategy() -> impl Strategy<Value = Sample> {
    let levels = (1u8..=4).map(|level| (runs_strategy(level), runs_strategy(level), any::<bool>()));
    let levels: Vec<_> = levels.collect();
    levels.prop_map(|levels| {
        let mut sample = Sample::with_domains(4);
        for (level, (runs, own, same)) in (1u8..).zip(levels) {
            sample.table(level, 0, (0x100 + u64::from(level), 1), runs);
            if same {
                sample.copy(2, level, 0, (0x200 + u64::from(level), 2));
            } else {
                sample.replica(2, level, 0, (0x200 + u64::from(level), 2), own);
            }
        }
        sample
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(sample in sample_strategy()) {
        let read = drain(&sample.bytes()[..]).unwrap();
        let mut want = sample.tables.clone();
        want.sort_by_key(|(head, _)| head.key());
        // A table that equals the canonical one is read with its entries.
        let canonical = want.clone();
        for (head, runs) in want.iter_mut().filter(|(head, _)| head.same) {
            let of = canonical.iter().find(|(c, _)| {
                c.view == View::Canonical && (c.level, c.addr) == (head.level, head.addr)
            });
            *runs = of.unwrap().1.clone();
        }
        prop_assert_eq!(read, want);
    }

    #[test]
    fn damage_is_an_error_or_harmless_but_no_panic(
        sample in sample_strategy(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sample.bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(mut reader) = Reader::new(&bytes[..]) {
            // Neither does anything that counts what is read.
            let _ = nearwalk_dump::analysis::Tally::read(&mut reader);
        }
    }

    #[test]
    fn noise_after_a_header_is_no_panic(noise in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut bytes = Sample::with_domains(4).bytes();
        bytes.truncate(144);
        bytes.extend(noise);
        let _ = drain(&bytes[..]);
    }
}

#[test]
fn every_cut_is_noticed() {
    let bytes = {
        let mut sample = Sample::new(2);
        sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 1)]);
        sample.table(1, 0, (3, 0), vec![data(5, 7, 99, 1)]);
        sample.bytes()
    };
    assert_eq!(drain(&bytes[..]).unwrap().len(), 2);
    for len in 8..bytes.len() {
        let result = drain(&bytes[..len]);
        assert!(
            matches!(result, Err(StreamError::Truncated { .. })),
            "cut to {len} bytes: {result:?}"
        );
    }
}

#[test]
fn nothing_is_no_snapshot_but_the_end_of_a_file() {
    assert!(Reader::open(&[][..]).unwrap().is_none());
    assert!(matches!(
        Reader::new(&[][..]),
        Err(StreamError::Truncated { offset: 0 })
    ));
}

#[test]
fn snapshots_follow_each_other_in_a_file() {
    let bytes = [server(1).bytes(), server(2).bytes()].concat();
    let mut input = &bytes[..];
    let mut counts = Vec::new();
    while let Some(mut reader) = Reader::open(input).unwrap() {
        let mut tables = 0;
        while let Some(record) = reader.next_record().unwrap() {
            tables += u32::from(matches!(record, Record::Table(_)));
        }
        counts.push(tables);
        input = reader.into_inner();
    }
    assert_eq!(counts, [2 + 513, 2 + 2 * 513]);
}

#[test]
fn other_files_and_versions_are_told_apart() {
    let error = |bytes: &[u8]| Reader::new(bytes).err().unwrap().to_string();
    let good = Sample::new(1).bytes();

    assert!(error(b"\x7fELF\x02\x01\x01\0 and so on").starts_with("this is no page-table dump"));

    let mut later = good.clone();
    later[12] = 2;
    assert_eq!(
        error(&later),
        "the dump has format version 2.1, this program reads 1.x: \
         build the module and nearwalk from the same source"
    );

    let mut swapped = good.clone();
    swapped[8..12].reverse();
    assert_eq!(
        error(&swapped),
        "the dump was written on a machine of another byte order"
    );

    let mut shift = good.clone();
    shift[28] = 16;
    assert_eq!(
        error(&shift),
        "the header of the dump is not usable: page shift is 16, allowed is 12"
    );
}

#[test]
fn later_minor_versions_may_add_records_and_header_fields() {
    let mut sample = Sample::new(1);
    sample.header.version.1 = 7;
    let mut writer = Writer::new(&sample.header);
    writer.record(200, b"from the future");
    writer.node(sample.nodes[0]);
    let mut bytes = writer.end(sample.end);
    bytes.splice(144..144, [0xaa; 16]);
    bytes[16] = 160;
    assert!(drain(&bytes[..]).unwrap().is_empty());
}

#[test]
fn names_cannot_upset_a_terminal() {
    let mut sample = Sample::new(1);
    sample.header.comm = "\x1b[2Jx".into();
    let bytes = sample.bytes();
    let reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.header().comm, "\u{fffd}[2Jx");
}

#[test]
fn records_that_contradict_each_other_are_errors() {
    let entry = || vec![data(0, 1, 1, 0)];

    let mut twice = Sample::new(2);
    twice
        .table(1, 0, (1, 0), entry())
        .table(1, 0, (2, 0), entry());
    assert!(matches!(
        problem(&twice.bytes()),
        Problem::OutOfOrder { .. }
    ));

    let mut alone = Sample::with_domains(2);
    alone.copy(0, 1, 0, (1, 0));
    assert!(matches!(
        problem(&alone.bytes()),
        Problem::NoCanonical { .. }
    ));

    let mut node = Sample::new(2);
    node.table(1, 0, (1, 5), entry());
    assert_eq!(problem(&node.bytes()), Problem::UnknownNode { node: 5 });

    let mut domain = Sample::with_domains(2);
    domain.table(1, 0, (1, 0), entry()).copy(9, 1, 0, (2, 0));
    assert_eq!(
        problem(&domain.bytes()),
        Problem::UnknownDomain { domain: 9 }
    );

    let mut level = Sample::new(1);
    level.table(1, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    assert_eq!(
        problem(&level.bytes()),
        Problem::KindAtLevel { kind: 0, level: 1 }
    );

    let mut frame = Sample::new(1);
    frame.table(1, 0, (1, 0), vec![data(0, 1, 1 << 40, 0)]);
    assert!(matches!(problem(&frame.bytes()), Problem::Frame { .. }));

    let mut root = Sample::new(1);
    root.table(4, 0, (1, 0), vec![tables(200, 57, 2, 0)]);
    assert_eq!(
        problem(&root.bytes()),
        Problem::TooManyEntries { end: 257, max: 256 }
    );
}

#[test]
fn entries_without_frame_keep_the_expected_frame() {
    let mut sample = Sample::new(1);
    let runs = vec![
        data(0, 4, 1000, 0),
        absent(4, 2, Kind::Swap),
        run(6, 1, Kind::Page, Attrs::NX, 1004, 0),
    ];
    sample.table(1, 0, (1, 0), runs.clone());
    let bytes = sample.bytes();
    assert_eq!(drain(&bytes[..]).unwrap()[0].1, runs);
}
