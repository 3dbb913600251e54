// SPDX-License-Identifier: GPL-2.0-or-later
//! Compares machines: a table for people, CSV for programs.

use std::fmt::Write;

use crate::{
    guest::Sample,
    plan::{Machine, OPS, Region, Setting},
};

/// What was found on each machine.
pub struct Findings {
    pub regions: Vec<Region>,
    pub machines: Vec<(Machine, Vec<Sample>)>,
}

impl Findings {
    fn sample(&self, machine: usize, op: &str, bytes: u64) -> Option<&Sample> {
        self.machines[machine]
            .1
            .iter()
            .find(|sample| sample.op == op && sample.bytes == bytes)
    }

    /// The stock kernel's, if it was measured.
    fn base(&self, op: &str, bytes: u64) -> Option<f64> {
        let stock = self
            .machines
            .iter()
            .position(|(machine, _)| machine.setting == Setting::Stock)?;
        self.sample(stock, op, bytes).map(Sample::each)
    }

    /// For each region, a block of instructions with their ratio to the stock
    /// kernel's, and one of stores to other nodes' memory.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for &region in &self.regions {
            let pages = region.bytes() / 4096;
            let of = match pages {
                1 => "1 page".into(),
                pages => format!("{pages} pages"),
            };
            self.block(
                &mut text,
                region,
                &format!("{region} region, {of}: instructions, ratio to stock"),
                |machine, sample, base| {
                    let ratio = base
                        .filter(|_| machine.setting != Setting::Stock)
                        .map_or(String::new(), |base| format!("{:.3}", sample.each() / base));
                    format!("{:.1}{ratio:>8}", sample.each())
                },
            );
            if self.machines.iter().any(|(_, samples)| {
                samples
                    .iter()
                    .any(|sample| sample.bytes == region.bytes() && sample.stores.is_some())
            }) {
                self.block(
                    &mut text,
                    region,
                    &format!(
                        "{region} region, {of}: stores to other nodes' memory, \
                         cache lines of them, atomic ones of them"
                    ),
                    |_, sample, _| {
                        sample.stores.map_or("-".into(), |stores| {
                            let each = |count| count as f64 / sample.count as f64;
                            format!(
                                "{:.2} {:>5.2} {:>5.2}",
                                each(stores.remote),
                                each(stores.remote_lines),
                                each(stores.remote_atomic)
                            )
                        })
                    },
                );
            }
        }
        text
    }

    /// One line an operation, one column a machine; nothing if there is no
    /// line.
    fn block(
        &self,
        text: &mut String,
        region: Region,
        title: &str,
        cell: impl Fn(&Machine, &Sample, Option<f64>) -> String,
    ) {
        const WIDTH: usize = 20;
        let mut lines = String::new();
        for op in OPS {
            let samples: Vec<Option<&Sample>> = (0..self.machines.len())
                .map(|machine| self.sample(machine, op.name, region.bytes()))
                .collect();
            if samples.iter().all(Option::is_none) {
                continue;
            }
            let base = self.base(op.name, region.bytes());
            let mut line = format!("{:<14}{:<8}", op.name, op.unit);
            for ((machine, _), sample) in self.machines.iter().zip(samples) {
                let cell = sample.map_or("-".into(), |sample| cell(machine, sample, base));
                let _ = write!(line, "{cell:>WIDTH$}");
            }
            let _ = writeln!(lines, "{line}");
        }
        if lines.is_empty() {
            return;
        }
        let mut head = format!("{:<14}{:<8}", "operation", "per");
        for (machine, _) in &self.machines {
            let _ = write!(head, "{:>WIDTH$}", machine.to_string());
        }
        let _ = writeln!(text, "{title}\n{head}\n{lines}");
    }

    /// One line a measurement, with a head.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "operation,unit,region_bytes,kernel,nodes,replicated,count,rounds,\
             instructions_median,instructions_min,instructions_max,per_unit,ratio_to_stock,\
             stores,remote_stores,remote_lines,atomics,remote_atomics\n",
        );
        for (machine, samples) in &self.machines {
            let (kernel, replicated) = match machine.setting {
                Setting::Stock => ("stock", 0),
                Setting::Off => ("nearwalk", 0),
                Setting::On => ("nearwalk", machine.nodes),
                Setting::Lazy => ("nearwalk-lazy", machine.nodes),
            };
            for s in samples {
                let unit = OPS
                    .iter()
                    .find(|op| op.name == s.op)
                    .map_or("", |op| op.unit);
                let ratio = self.base(&s.op, s.bytes).map(|base| s.each() / base);
                let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.5}"));
                let stores = s.stores.map_or(",,,,".into(), |seen| {
                    format!(
                        "{},{},{},{},{}",
                        seen.all, seen.remote, seen.remote_lines, seen.atomic, seen.remote_atomic
                    )
                });
                let _ = writeln!(
                    text,
                    "{},{unit},{},{kernel},{},{replicated},{},{},{},{},{},{:.3},{ratio},{stores}",
                    s.op,
                    s.bytes,
                    machine.nodes,
                    s.count,
                    s.rounds,
                    s.median,
                    s.min,
                    s.max,
                    s.each(),
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Stores;

    fn findings() -> Findings {
        let sample = |median| Sample::example("munmap", 8 << 20, 2048, median);
        let machine = |setting, nodes| Machine { setting, nodes };
        Findings {
            regions: vec!["8M".parse().unwrap()],
            machines: vec![
                (machine(Setting::Stock, 4), vec![sample(2_048_000)]),
                (machine(Setting::On, 8), vec![sample(3_072_000)]),
            ],
        }
    }

    #[test]
    fn the_table_shows_ratios_to_stock() {
        let table = findings().table();
        let line = table
            .lines()
            .find(|line| line.starts_with("munmap"))
            .unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["munmap", "page", "1000.0", "1500.0", "1.500"]);
        assert!(!table.contains("fork"), "{table}");
        assert!(!table.contains("cache lines"), "nobody counted: {table}");
    }

    #[test]
    fn stores_are_shown_for_each_page() {
        let mut findings = findings();
        findings.machines[1].1[0].stores = Some(Stores {
            all: 10_000,
            remote: 4096,
            remote_lines: 512,
            atomic: 9,
            remote_atomic: 0,
        });
        let table = findings.table();
        let line = table
            .lines()
            .rfind(|line| line.starts_with("munmap"))
            .unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["munmap", "page", "-", "2.00", "0.25", "0.00"]);
    }

    #[test]
    fn csv_has_a_line_for_each_measurement() {
        let csv = findings().csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[2],
            "munmap,page,8388608,nearwalk,8,8,2048,3,3072000,3072000,3072000,1500.000,1.50000,,,,,"
        );
        let fields = lines[0].split(',').count();
        assert!(lines.iter().all(|line| line.split(',').count() == fields));
    }
}
