// SPDX-License-Identifier: GPL-2.0-or-later
//! What `nearwalk contiguity` prints: the figures of Yan's thesis, section
//! 4.4.3, and how large the regions are.

use super::Style;
use super::number::{bytes, count, duration, percent};
use super::rows::title;
use crate::analysis::Tally;
use crate::analysis::contiguity::{Bucket, Contiguity};

/// Characters of the longest bar.
const BAR: usize = 32;

/// Shares of the memory, in per cent, whose number of regions is said.
pub const SHARES: [u64; 3] = [80, 90, 99];

/// Sizes of larger pages than the usual.
pub const LARGER: [(u64, &str); 2] = [(2 << 20, "2 MiB"), (1 << 30, "1 GiB")];

/// The figures of a snapshot. `regions` are the numbers of regions whose share
/// is wanted, `split` says where regions were cut.
pub fn contiguity(
    tally: &Tally,
    contiguity: &Contiguity,
    regions: &[usize],
    split: &str,
    style: Style,
) -> String {
    let mut out = title(tally);
    if !tally.end.complete {
        out.push_str("the process exited while it was read: the figures are not complete\n");
    }
    let total = contiguity.regions().len();
    out.push_str(&format!(
        "\n{} in {} contiguous regions, {split}; read in {} stretches within {}\n",
        bytes(contiguity.bytes(), style),
        count(total as u64, style),
        tally.end.stretches,
        duration(tally.end.duration_ns),
    ));
    let Some(largest) = contiguity.regions().first() else {
        return out;
    };
    out.push('\n');
    let mut line = |what: &str, value: &str, more: &str| {
        out.push_str(&format!("{what:<31}{value:>6}{more}\n"));
    };
    for &n in regions {
        let share = percent(contiguity.coverage(n), style);
        line(&format!("memory in the largest {n}"), &share, "");
    }
    for share in SHARES {
        let needed = count(contiguity.needed(share) as u64, style);
        line(&format!("regions for {share} % of it"), &needed, "");
    }
    let node = match largest.node() {
        Some(node) => format!("node {node}"),
        None => "no node".into(),
    };
    let place = format!("  at {:#x} on {node}", largest.addr);
    line("largest region", &bytes(largest.bytes(), style), &place);
    for (size, name) in LARGER {
        let pages = contiguity.aligned(size);
        let share = pages as f64 * size as f64 / contiguity.bytes() as f64;
        let share = percent(Some(share), style);
        line(&format!("lies as pages of {name} could map"), &share, "");
    }
    out.push_str(&histogram(contiguity, style));
    out
}

fn histogram(contiguity: &Contiguity, style: Style) -> String {
    let mut out = String::from("\nregions of  regions  memory  share\n");
    for Bucket {
        from,
        regions,
        bytes: memory,
    } in contiguity.histogram()
    {
        let share = memory as f64 / contiguity.bytes() as f64;
        let bar = "\u{2588}".repeat((share * BAR as f64).round() as usize);
        let line = format!(
            "{:>10}  {:>7}  {:>6}  {:>5}  {bar}",
            bytes(from, style),
            count(regions, style),
            bytes(memory, style),
            percent(Some(share), style),
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The names of [`csv_line`]'s columns.
pub fn csv_head(regions: &[usize]) -> String {
    let mut columns = vec![
        "realtime_s".to_owned(),
        "pid".into(),
        "bytes".into(),
        "regions".into(),
    ];
    columns.extend(regions.iter().map(|n| format!("coverage_{n}")));
    columns.extend(SHARES.map(|share| format!("n{share}")));
    columns.extend(["largest_bytes", "aligned_2m", "aligned_1g"].map(String::from));
    columns.join(",") + "\n"
}

/// A snapshot; shares are fractions, and empty where there is no memory.
pub fn csv_line(tally: &Tally, contiguity: &Contiguity, regions: &[usize]) -> String {
    let header = &tally.header;
    let mut cells = vec![
        format!("{:.3}", header.realtime_ns as f64 / 1e9),
        header.pid.to_string(),
        contiguity.bytes().to_string(),
        contiguity.regions().len().to_string(),
    ];
    cells.extend(regions.iter().map(|&n| {
        let coverage = contiguity.coverage(n);
        coverage.map_or(String::new(), |share| format!("{share:.6}"))
    }));
    cells.extend(SHARES.map(|share| contiguity.needed(share).to_string()));
    let largest = contiguity.regions().first();
    cells.push(largest.map_or(0, |region| region.bytes()).to_string());
    cells.extend(LARGER.map(|(size, _)| contiguity.aligned(size).to_string()));
    cells.join(",") + "\n"
}
