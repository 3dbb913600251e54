// SPDX-License-Identifier: GPL-2.0-or-later
//! Contiguous regions of hand-built snapshots.

mod common;

use common::{DATA, GB, MB2, Sample, data, expect, replicated_server, run, server, tables};
use nearwalk_dump::analysis::Tally;
use nearwalk_dump::analysis::contiguity::{
    By, Contiguity, Figures, Group, Region, Regions, Split, Summary, grouped,
};
use nearwalk_dump::print::{self, Curve, Curves, Style};
use nearwalk_dump::stream::{Attrs, Kind, Reader};
use nearwalk_walk::Vma;
use proptest::prelude::*;

const HUMAN: Style = Style {
    exact: false,
    width: 100,
};

const EXACT: Style = Style {
    exact: true,
    width: 100,
};

fn found(sample: &Sample) -> Vec<Region> {
    let bytes = sample.bytes();
    let mut regions = Regions::default();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    Tally::read_tables(&mut reader, |table| regions.table(table)).unwrap();
    regions.finish()
}

/// The upper tables, and one of level 2 with these entries.
fn upper(entries: Vec<nearwalk_dump::stream::Run>) -> Sample {
    let mut sample = Sample::new(2);
    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.table(3, 0, (2, 0), vec![tables(0, 1, 3, 0)]);
    sample.table(2, 0, (3, 0), entries);
    sample
}

#[test]
fn regions_go_on_in_other_tables_and_in_larger_pages() {
    let huge = run(1, 2, Kind::Page, DATA, 0x1200, 0);
    let mut sample = upper(vec![tables(0, 1, 4, 0), huge, tables(3, 1, 5, 0)]);
    sample.table(1, 0, (4, 0), vec![data(500, 12, 0x1200 - 12, 0)]);
    sample.table(
        1,
        3 * MB2,
        (5, 0),
        vec![data(0, 4, 0x1600, 0), data(5, 1, 0x1605, 0)],
    );
    let last = 3 * MB2 + 5 * 4096;
    assert_eq!(
        found(&sample),
        [
            Region::new(500 * 4096, 0x1200 - 12, 12 + 1024 + 4, Some(0)),
            Region::new(last, 0x1605, 1, Some(0)),
        ]
    );
}

#[test]
fn what_is_no_memory_of_the_process_is_no_region() {
    let special = DATA | Attrs::SPECIAL;
    let mut sample = upper(vec![tables(0, 1, 4, 0)]);
    sample.table(
        1,
        0,
        (4, 0),
        vec![
            data(0, 2, 0x100, 0),
            // The zero page, again and again.
            run(2, 1, Kind::Page, special, 0x102, 0),
            run(3, 1, Kind::Page, special, 0x102, 0),
            run(4, 1, Kind::Hint, DATA, 0x104, 0),
            run(5, 1, Kind::ProtNone, DATA, 0x105, 0),
            data(6, 1, 0x106, 1),
        ],
    );
    assert_eq!(
        found(&sample),
        [
            Region::new(0, 0x100, 2, Some(0)),
            Region::new(4 * 4096, 0x104, 2, Some(0)),
            Region::new(6 * 4096, 0x106, 1, Some(1)),
        ]
    );
}

#[test]
fn copies_of_domains_are_not_counted_again() {
    assert_eq!(found(&replicated_server(1)), found(&server(1)));
}

fn summary(regions: Vec<Region>, groups: Vec<(Group, Figures)>) -> Summary {
    let contiguity = Contiguity::new(regions);
    Summary {
        split: Split::None,
        all: Figures::of(&contiguity, &[32, 128]),
        histogram: contiguity.histogram(),
        groups,
    }
}

#[test]
fn what_is_printed() {
    let sample = server(2);
    let tally = sample.tally();
    let all = summary(found(&sample), Vec::new());
    expect(
        "server-contiguity.txt",
        &print::contiguity(&tally, &all, HUMAN),
    );
    expect(
        "server-contiguity-exact.txt",
        &print::contiguity(&tally, &all, EXACT),
    );
    let csv = print::csv_head(&[32, 128], None) + &print::csv_lines(&tally, &all, None);
    expect("server-contiguity.csv", &csv);
    let json = print::json::contiguity(&tally, &all);
    let pretty = serde_json::to_string_pretty(&serde_json::to_value(json).unwrap()).unwrap();
    expect("server-contiguity.json", &format!("{pretty}\n"));

    let empty = Sample::new(1);
    let none = summary(Vec::new(), Vec::new());
    let text = print::contiguity(&empty.tally(), &none, HUMAN);
    assert!(text.contains("\n0 in 0 contiguous regions"), "{text}");
    let csv = print::csv_lines(&empty.tally(), &none, None);
    assert!(csv.contains(",none,0,0,,,0,0,0,0,0,0\n"), "{csv}");
}

#[test]
fn groups_are_printed_with_the_largest_first() {
    let sample = server(2);
    let regions = found(&sample);
    let half = regions.len() / 2;
    let end = regions[half].addr;
    let mut mappings: Vec<Vma> = regions[..half]
        .iter()
        .map(|region| Vma {
            start: region.addr,
            end: region.addr + region.bytes(),
            flags: 5,
        })
        .collect();
    mappings.push(Vma {
        start: end,
        end: end + GB,
        flags: 3,
    });
    let text = |by| {
        let mut groups = Vec::new();
        grouped(&regions, &mappings, by, |group, regions| {
            groups.push((group, Figures::of(&Contiguity::new(regions), &[32, 128])));
        });
        let all = summary(regions.clone(), groups);
        print::contiguity(&sample.tally(), &all, HUMAN)
    };
    expect("server-contiguity-perm.txt", &text(By::Perm));
    expect("server-contiguity-vma.txt", &text(By::Vma));
}

#[test]
fn pictures_have_a_curve_for_each_snapshot() {
    let picture = |title: &str, samples: &[Sample]| {
        let mut curves = Curves::default();
        for sample in samples {
            curves.push(Curve::of(&Contiguity::new(found(sample))));
        }
        curves.draw(title)
    };
    let svg = picture("a < b", &[server(1), server(2)]);
    assert!(svg.contains("a &lt; b"));
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let svg = picture("nothing", &[Sample::new(1)]);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

proptest! {
    /// The same as page after page.
    #[test]
    fn regions_are_those_of_the_pages(
        pages in prop::collection::btree_map(0..1024u16, (0..40u64, 0..2u32), 0..200),
    ) {
        let mut sample = upper(vec![tables(0, 2, 4, 0)]);
        let mut expected: Vec<(u64, u64, u64, u32)> = Vec::new();
        let mut runs = [Vec::new(), Vec::new()];
        for (&page, &(shift, node)) in &pages {
            // Frames that often go on.
            let frame = 0x1000 + u64::from(page) + shift / 30;
            runs[usize::from(page / 512)].push(data(page % 512, 1, frame, node));
            let addr = u64::from(page) * 4096;
            match expected.last_mut() {
                Some((from, first, count, on))
                    if *from + *count * 4096 == addr && *first + *count == frame && *on == node =>
                {
                    *count += 1;
                }
                _ => expected.push((addr, frame, 1, node)),
            }
        }
        let [low, high] = runs;
        sample.table(1, 0, (4, 0), low);
        sample.table(1, MB2, (5, 0), high);
        let expected: Vec<Region> = expected
            .into_iter()
            .map(|(addr, frame, count, node)| Region::new(addr, frame, count, Some(node)))
            .collect();
        prop_assert_eq!(found(&sample), expected);
    }
}

#[test]
fn pages_of_a_gib_are_regions() {
    let mut sample = Sample::new(1);
    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    let gigantic = run(1, 2, Kind::Page, DATA, 0x4_0000, 0);
    sample.table(3, 0, (2, 0), vec![gigantic]);
    let contiguity = Contiguity::new(found(&sample));
    assert_eq!(contiguity.bytes(), 2 * GB);
    assert_eq!(contiguity.aligned(GB), 2);
    assert_eq!(contiguity.aligned(MB2), 1024);
}
