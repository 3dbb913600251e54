// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory that page tables and their copies take, in closed form.

use lens::address::PageSize;
use lens::units::Bytes;

/// Bytes of the page tables that map the addresses 0 to `footprint`, densely,
/// with leaves of `page` and `levels` levels. Each level has at least one
/// table (Mitosis, section 8.3.1).
pub fn table_bytes(footprint: Bytes, page: PageSize, levels: u32) -> Bytes {
    let tables = |level: u32| footprint.0.div_ceil(1 << (12 + 9 * level)).max(1);
    Bytes((page.level()..=levels).map(tables).sum::<u64>() * 4096)
}

/// Memory with `replicas` copies of the tables over memory with one (Mitosis,
/// Table 4). At least 1 copy.
pub fn replication_overhead(footprint: Bytes, replicas: u32) -> f64 {
    let tables = table_bytes(footprint, PageSize::Size4K, 4).0 as f64;
    let data = footprint.0 as f64;
    (data + f64::from(replicas) * tables) / (data + tables)
}

/// Bytes of `replicas` copies of guest and of nested tables (vMitosis,
/// Table 6).
pub fn nested_table_bytes(footprint: Bytes, page: PageSize, replicas: u32) -> Bytes {
    Bytes(2 * u64::from(replicas) * table_bytes(footprint, page, 4).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn mitosis_table_4() {
        // Footprint, size of the tables as printed, and its unit; then the
        // overhead with 1, 2, 4, 8 and 16 copies.
        let table = [
            (
                Bytes::mib(1),
                "0.02",
                20,
                ["1.000", "1.015", "1.046", "1.108", "1.231"],
            ),
            (
                Bytes::gib(1),
                "2.01",
                20,
                ["1.000", "1.002", "1.006", "1.014", "1.029"],
            ),
            (
                Bytes(TIB),
                "2.00",
                30,
                ["1.000", "1.002", "1.006", "1.014", "1.029"],
            ),
            (
                Bytes(16 * TIB),
                "32.0",
                30,
                ["1.000", "1.002", "1.006", "1.014", "1.029"],
            ),
        ];
        for (footprint, printed, unit, overheads) in table {
            let tables = table_bytes(footprint, PageSize::Size4K, 4).0;
            let text = format!("{:.2}", tables as f64 / (1u64 << unit) as f64);
            // The paper's cells have four characters.
            assert_eq!(&text[..4], printed);
            for (replicas, want) in [1, 2, 4, 8, 16].into_iter().zip(overheads) {
                let have = format!("{:.3}", replication_overhead(footprint, replicas));
                assert_eq!(have, want, "{footprint} with {replicas} copies");
            }
        }
    }

    #[test]
    fn vmitosis_table_6() {
        let workload = Bytes(3 * TIB / 2);
        let one = table_bytes(workload, PageSize::Size4K, 4).0 >> 30;
        for (replicas, one_dimension, total, share) in
            [(1, 3, 6, "0.4"), (2, 6, 12, "0.8"), (4, 12, 24, "1.6")]
        {
            assert_eq!(one * replicas, one_dimension);
            let bytes = nested_table_bytes(workload, PageSize::Size4K, replicas as u32).0;
            assert_eq!(bytes >> 30, total);
            assert_eq!(
                format!("{:.1}", 100.0 * bytes as f64 / workload.0 as f64),
                share
            );
        }
        // "With 2MiB large pages, the space overhead of 4-way replication
        // reduces to 36MiB" (section 4.4): what three more copies take.
        let huge = |n| nested_table_bytes(workload, PageSize::Size2M, n).0;
        assert_eq!((huge(4) - huge(1)) >> 20, 36);
    }

    #[test]
    fn a_tiny_process_has_one_table_of_each_level() {
        assert_eq!(table_bytes(Bytes(1), PageSize::Size4K, 4), Bytes::kib(16));
        assert_eq!(table_bytes(Bytes(1), PageSize::Size4K, 5), Bytes::kib(20));
        assert_eq!(table_bytes(Bytes(1), PageSize::Size2M, 4), Bytes::kib(12));
    }
}
