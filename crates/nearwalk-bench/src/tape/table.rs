// SPDX-License-Identifier: GPL-2.0-or-later
//! The findings as text and CSV.

use std::fmt::Write as _;

use super::model::{Findings, Sums};

/// All of it, for people.
pub fn text(findings: &Findings) -> String {
    let mut text = String::from(
        "Of each page that moved (Figure 2.3), counted. Interrupts: with which KVM has vCPUs leave\n\
         and flush, and those that flush the entry of the hypervisor's process. Exits of vCPUs: by\n\
         either, and by the first fault of each on the page, until it moves again. Flushes: vCPUs\n\
         that dropped all their translations. 'with entry' are pages that had a nested entry. Not\n\
         of the change of an entry are exits by further faults, while a page was moving, and\n\
         others in move_pages(), but for ticks.\n\n",
    );
    let _ = writeln!(
        text,
        "{:27}{:>20}{:>28}{:>29}",
        "", "interrupts", "exits", "exits of the move"
    );
    let _ = writeln!(
        text,
        "{:>5}{:>10}{:>12}{:>10}{:>10}{:>10}{:>10}{:>8}{:>9}{:>12}{:>8}",
        "vCPUs",
        "changes",
        "with entry",
        "KVM",
        "process",
        "KVM",
        "process",
        "fault",
        "flushes",
        "more faults",
        "others"
    );
    for sums in &findings.recorded {
        let _ = writeln!(
            text,
            "{:>5}{:>10}{:>10.1} %{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>8.2}{:>9.2}{:>12.2}{:>8.2}",
            sums.vcpus,
            sums.changes,
            100.0 * sums.each(sums.entries),
            sums.each(sums.counts.kvm_interrupts),
            sums.each(sums.counts.process_interrupts),
            sums.each(sums.counts.kvm_exits),
            sums.each(sums.counts.process_exits),
            sums.each(sums.counts.faults),
            sums.each(sums.flushes),
            sums.each(sums.counts.retries),
            sums.each(sums.counts.other_exits),
        );
    }
    text.push('\n');
    for why in &findings.failures {
        let _ = writeln!(text, "failed: {why}");
    }
    text
}

impl Sums {
    /// Of each page that moved.
    fn each(&self, count: u64) -> f64 {
        count as f64 / self.changes.max(1) as f64
    }

    fn all(&self) -> [(&'static str, u64); 12] {
        let counts = &self.counts;
        [
            ("changes", self.changes),
            ("failed", self.failed),
            ("entries", self.entries),
            ("KVM's interrupts", counts.kvm_interrupts),
            ("process's interrupts", counts.process_interrupts),
            ("exits by KVM's", counts.kvm_exits),
            ("exits by process's", counts.process_exits),
            ("exits by faults", counts.faults),
            ("exits by further faults", counts.retries),
            ("flushes", self.flushes),
            ("other exits", counts.other_exits),
            ("accesses", self.accesses),
        ]
    }
}

/// Everything, a number a line.
pub fn csv(findings: &Findings) -> String {
    let mut csv = String::from("vcpus,what,count\n");
    for sums in &findings.recorded {
        for (what, count) in sums.all() {
            let _ = writeln!(csv, "{},{what},{count}", sums.vcpus);
        }
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::model::{Counts, Event};

    fn findings() -> Findings {
        let sums = Sums {
            vcpus: 4,
            changes: 100,
            failed: 1,
            entries: 98,
            flushes: 392,
            counts: Counts {
                kvm_interrupts: 390,
                process_interrupts: 380,
                kvm_exits: 370,
                process_exits: 90,
                faults: 101,
                retries: 20,
                other_exits: 250,
            },
            accesses: 5_000_000,
        };
        let event = Event::Recorded {
            sums,
            tape: "{}\n".into(),
        };
        let line = serde_json::to_string(&event).unwrap();
        let Event::Recorded { sums, tape } = serde_json::from_str(&line).unwrap() else {
            panic!("{line}");
        };
        assert_eq!(tape, "{}\n");
        Findings {
            recorded: vec![sums],
            failures: vec!["8 vCPUs: no".into()],
        }
    }

    #[test]
    fn lines_have_means() {
        let text = text(&findings());
        let line = text.lines().find(|line| line.starts_with("    4"));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        let means = "4 100 98.0 % 3.90 3.80 3.70 0.90 1.01 3.92 0.20 2.50";
        assert_eq!(words.join(" "), means);
        assert!(text.ends_with("failed: 8 vCPUs: no\n"), "{text}");
    }

    #[test]
    fn a_line_of_csv_is_a_number() {
        let csv = csv(&findings());
        assert!(csv.contains("\n4,exits by process's,90\n"), "{csv}");
        assert_eq!(csv.lines().count(), 13);
        assert!(csv.lines().all(|line| line.matches(',').count() == 2));
    }
}
