// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens overhead`: memory that copies of page tables take.

use clap::Args;
use lens::address::PageSize;
use lens::units::Bytes;
use lens_papers::overhead::{nested_table_bytes, replication_overhead, table_bytes};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Without sizes it prints what Mitosis (Table 4) and vMitosis (Table 6) print: \
    the same numbers.\n\nExample:\n  nearwalk lens overhead \"384 GiB\" --copies 1,8"
)]
pub struct OverheadArgs {
    /// Sizes of the process, densely mapped, such as "512 GiB" [default: the papers']
    size: Vec<String>,
    /// Copies of the page tables, the first included
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    copies: Vec<u32>,
}

/// A quantity with four characters and its unit, as the papers print it.
fn short(bytes: u64) -> String {
    let (unit, shift) = match bytes {
        b if b >= 1 << 40 => ("TB", 40),
        b if b >= 1 << 30 => ("GB", 30),
        _ => ("MB", 20),
    };
    let text = format!("{:.2}", bytes as f64 / (1u64 << shift) as f64);
    format!("{} {unit}", text[..4].trim_end_matches('.'))
}

/// Mitosis' Table 4 for `sizes` and `copies`.
fn native_table(sizes: &[Bytes], copies: &[u32]) -> String {
    let mut s = format!("{:<10} {:>9}", "footprint", "tables");
    for c in copies {
        s += &format!(" {:>7}", format!("x{c}"));
    }
    s.push('\n');
    for &size in sizes {
        let tables = table_bytes(size, PageSize::Size4K, 4);
        s += &format!("{:<10} {:>9}", size.to_string(), short(tables.0));
        for &c in copies {
            s += &format!(" {:>7.3}", replication_overhead(size, c));
        }
        s.push('\n');
    }
    s
}

/// vMitosis' Table 6 for `size` and `copies`.
fn nested_table(size: Bytes, copies: &[u32]) -> String {
    let mut s = format!(
        "{:<8} {:>9} {:>9} {:>9} {:>15} {:>11}\n",
        "copies", "ePT", "gPT", "total", "of the process", "2 MiB pages"
    );
    let mib = |bytes: u64| format!("{} MB", bytes >> 20);
    let whole = |bytes: u64| match bytes >> 30 {
        0 => mib(bytes),
        gib => format!("{gib} GB"),
    };
    for &c in copies {
        let total = nested_table_bytes(size, PageSize::Size4K, c).0;
        let huge = nested_table_bytes(size, PageSize::Size2M, c).0;
        s += &format!(
            "{:<8} {:>9} {:>9} {:>9} {:>14.1}% {:>11}\n",
            c,
            whole(total / 2),
            whole(total / 2),
            whole(total),
            100.0 * total as f64 / size.0 as f64,
            mib(huge)
        );
    }
    s
}

pub fn run(a: &OverheadArgs) -> anyhow::Result<ExitCode> {
    const TIB: u64 = 1 << 40;
    let asked = a
        .size
        .iter()
        .map(|s| Bytes::try_from(s.clone()).map_err(|e| anyhow::anyhow!("{e}")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let or =
        |given: &[u32], default: &[u32]| if given.is_empty() { default } else { given }.to_vec();
    let papers = [Bytes::mib(1), Bytes::gib(1), Bytes(TIB), Bytes(16 * TIB)];
    let native = if asked.is_empty() {
        &papers[..]
    } else {
        &asked
    };
    println!(
        "Memory with copies of the tables over memory with one, 4 KiB pages (Mitosis, Table 4)"
    );
    print!(
        "{}",
        native_table(native, &or(&a.copies, &[1, 2, 4, 8, 16]))
    );
    let nested = if asked.is_empty() {
        vec![Bytes(3 * TIB / 2)]
    } else {
        asked
    };
    for size in nested {
        println!("\nTables of both dimensions for {size} (vMitosis, Table 6)");
        print!("{}", nested_table(size, &or(&a.copies, &[1, 2, 4])));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of a printed table, line by line.
    fn cells(table: &str) -> Vec<String> {
        let words = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ");
        table.lines().map(words).collect()
    }

    #[test]
    fn mitosis_table_4_is_printed_as_published() {
        const TIB: u64 = 1 << 40;
        let sizes = [Bytes::mib(1), Bytes::gib(1), Bytes(TIB), Bytes(16 * TIB)];
        let have = cells(&native_table(&sizes, &[1, 2, 4, 8, 16]));
        let want = [
            "0.02 MB 1.000 1.015 1.046 1.108 1.231",
            "2.01 MB 1.000 1.002 1.006 1.014 1.029",
            "2.00 GB 1.000 1.002 1.006 1.014 1.029",
            "32.0 GB 1.000 1.002 1.006 1.014 1.029",
        ];
        for (have, want) in have[1..].iter().zip(want) {
            assert!(have.ends_with(want), "{have} for {want}");
        }
    }

    #[test]
    fn vmitosis_table_6_is_printed_as_published() {
        let have = cells(&nested_table(Bytes(3 << 39), &[1, 2, 4]));
        let want = [
            "1 3 GB 3 GB 6 GB 0.4%",
            "2 6 GB 6 GB 12 GB 0.8%",
            "4 12 GB 12 GB 24 GB 1.6%",
        ];
        for (have, want) in have[1..].iter().zip(want) {
            assert!(have.starts_with(want), "{have} for {want}");
        }
    }
}
