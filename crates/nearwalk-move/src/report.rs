// SPDX-License-Identifier: GPL-2.0-or-later
//! What was done, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::memory::PAGE;
use crate::outcome::{Outcome, Outcomes};

/// The kernel's counters that tell how pages moved, as `/proc/vmstat` names them.
const COUNTERS: [&str; 8] = [
    "pgmigrate_success",
    "pgmigrate_fail",
    "thp_migration_success",
    "thp_migration_fail",
    "thp_migration_split",
    "pgmigrate_copied",
    "pgmigrate_copied_helper",
    "pgmigrate_helper",
];

/// Those that this kernel has.
pub(crate) type Counters = BTreeMap<&'static str, u64>;

pub(crate) fn parse_counters(vmstat: &str) -> Counters {
    let lines = vmstat.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(name, value)| {
            let name = COUNTERS.into_iter().find(|known| *known == name)?;
            Some((name, value.trim().parse().ok()?))
        })
        .collect()
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) from: Option<u32>,
    pub(crate) to: u32,
    pub(crate) outcomes: Outcomes,
    pub(crate) took: Duration,
    pub(crate) before: Counters,
    pub(crate) after: Counters,
}

#[derive(Serialize)]
struct Json<'a> {
    pid: u32,
    command: &'a str,
    from: Option<u32>,
    to: u32,
    page_bytes: u64,
    pages: BTreeMap<&'static str, u64>,
    seconds: f64,
    /// Of the whole system, while it lasted.
    counters: Counters,
}

impl Report {
    fn counted(&self) -> Counters {
        let after = self.after.iter();
        after
            .filter_map(|(name, after)| Some((*name, after.checked_sub(*self.before.get(name)?)?)))
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        let from = self
            .from
            .map_or(String::new(), |from| format!("from node {from} "));
        let mut text = format!(
            "{}, pid {}: {from}to node {}, {:.3} s\n\n",
            self.name,
            self.pid,
            self.to,
            self.took.as_secs_f64()
        );
        for (outcome, pages) in self.outcomes.iter() {
            let line = format!(
                "{:<28}{pages:>10} pages {:>8}",
                outcome.text(),
                bytes(pages * PAGE)
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let counted = self.counted();
        let of = |name| counted.get(name).copied().unwrap_or(0);
        let helped = of("pgmigrate_copied_helper");
        if helped != 0 {
            let _ = writeln!(
                text,
                "\n{} of {} copied together were by helpers, which ran {} times",
                bytes(helped * PAGE),
                bytes(of("pgmigrate_copied") * PAGE),
                of("pgmigrate_helper"),
            );
        }
        if self.outcomes.of(Outcome::Shared) != 0 {
            text.push_str("\n--shared, as root, moves what other processes map as well\n");
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let pages = Outcome::ALL.map(|outcome| (outcome.key(), self.outcomes.of(outcome)));
        let json = Json {
            pid: self.pid,
            command: &self.name,
            from: self.from,
            to: self.to,
            page_bytes: PAGE,
            pages: pages.into(),
            seconds: self.took.as_secs_f64(),
            counters: self.counted(),
        };
        serde_json::to_string(&json).expect("numbers and names") + "\n"
    }
}

pub(crate) fn bytes(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..0x10_0000 => (bytes as f64 / 1024.0, "K"),
        0x10_0000..0x4000_0000 => (bytes as f64 / 1_048_576.0, "M"),
        _ => (bytes as f64 / 1_073_741_824.0, "G"),
    };
    if value < 9.95 && value.fract() != 0.0 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Moved, 4096);
        outcomes.add(Outcome::Shared, 12);
        let vmstat = |copied: u64| {
            parse_counters(&format!(
                "nr_free_pages 7\npgmigrate_success {copied}\npgmigrate_copied {copied}\n\
                 pgmigrate_copied_helper {}\npgmigrate_helper 3\n",
                copied / 2
            ))
        };
        Report {
            pid: 7,
            name: "x".into(),
            from: Some(0),
            to: 1,
            outcomes,
            took: Duration::from_millis(12),
            before: vmstat(0),
            after: vmstat(4096),
        }
    }

    #[test]
    fn people_read_a_line_an_outcome() {
        assert_eq!(
            report().text(),
            "x, pid 7: from node 0 to node 1, 0.012 s\n\n\
             moved                             4096 pages      16M\n\
             shared with other processes         12 pages      48K\n\n\
             8M of 16M copied together were by helpers, which ran 0 times\n\n\
             --shared, as root, moves what other processes map as well\n"
        );
    }

    #[test]
    fn scripts_read_all_outcomes() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(json["pages"]["moved"], 4096);
        assert_eq!(json["pages"]["busy"], 0);
        assert_eq!(json["counters"]["pgmigrate_copied_helper"], 2048);
        assert_eq!(
            json["counters"]["thp_migration_split"],
            serde_json::Value::Null
        );
        assert_eq!((&json["from"], &json["to"]), (&0.into(), &1.into()));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(bytes(4096), "4K");
        assert_eq!(bytes(1 << 20), "1M");
        assert_eq!(bytes(3 << 19), "1.5M");
        assert_eq!(bytes(21 << 30), "21G");
    }
}
