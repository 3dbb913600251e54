// SPDX-License-Identifier: GPL-2.0-or-later
//! What `nearwalk tier` prints.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::group::{Counters, LISTS, Places, Request};
use crate::memory::PAGE;
use crate::report::bytes;

/// The kernel's counters, and what they mean; all but rounds and split are pages.
const OUTCOMES: [(&str, &str); 12] = [
    ("looked_at", "looked at"),
    ("activated", "became active"),
    ("deactivated", "became inactive"),
    ("promoted", "moved up, into room"),
    ("exchanged", "moved up, changed places"),
    ("demoted", "moved down"),
    ("failed_promote", "busy, on the way up"),
    ("failed_exchange", "busy, not exchanged"),
    ("failed_demote", "busy, on the way down"),
    ("no_memory", "no free page there"),
    ("no_room", "hot, but nothing is cold"),
    ("split", "larger pages split"),
];

/// What came between two readings.
pub(super) fn difference(before: &Counters, after: &Counters) -> Counters {
    let was = |name: &String| before.get(name).copied().unwrap_or(0);
    after
        .iter()
        .map(|(name, now)| (name.clone(), now.saturating_sub(was(name))))
        .collect()
}

fn count(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// What became of pages, a line each.
pub(super) fn outcomes(counters: &Counters) -> String {
    let mut text = String::new();
    for (name, meaning) in OUTCOMES {
        let value = count(counters, name);
        // What nobody asked for is told of if there was some.
        if value == 0 && name != "looked_at" {
            continue;
        }
        let value = if name == "split" {
            value.to_string()
        } else {
            bytes(value * PAGE)
        };
        let _ = writeln!(text, "{meaning:<26}{value:>10}");
    }
    text
}

/// What lies where, a line a node.
pub(super) fn places(places: &Places, tiers: Option<&Request>) -> String {
    let mut text = format!(
        "{:<6}{:>13}{:>15}{:>13}{:>15}{:>13}\n",
        "node", "anon active", "anon inactive", "file active", "file inactive", "unevictable"
    );
    for (node, lists) in places {
        let tier = match tiers {
            Some(request) if request.fast == *node => "  fast",
            Some(request) if request.slow == *node => "  slow",
            _ => "",
        };
        let cell = |list: usize| bytes(lists[list]);
        let _ = writeln!(
            text,
            "{node:<6}{:>13}{:>15}{:>13}{:>15}{:>13}{tier}",
            cell(0),
            cell(1),
            cell(2),
            cell(3),
            cell(4)
        );
    }
    text
}

/// A line of `nearwalk tier run`.
pub(super) fn line(
    number: u64,
    took: Duration,
    counters: &Counters,
    fast: u64,
    slow: u64,
) -> String {
    let pages = |name| bytes(count(counters, name) * PAGE);
    let failed = [
        "failed_promote",
        "failed_exchange",
        "failed_demote",
        "no_memory",
    ]
    .iter()
    .map(|name| count(counters, name))
    .sum::<u64>();
    format!(
        "{number:>6}{:>9.3}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        took.as_secs_f64(),
        pages("looked_at"),
        pages("promoted"),
        pages("exchanged"),
        pages("demoted"),
        bytes(failed * PAGE),
        pages("no_room"),
        bytes(fast),
        bytes(slow)
    )
}

/// What is above the lines.
pub(super) fn head() -> String {
    format!(
        "{:>6}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        "round",
        "seconds",
        "looked at",
        "up",
        "exchanged",
        "down",
        "busy",
        "no room",
        "on fast",
        "on slow"
    )
}

#[derive(Serialize)]
struct Json<'a> {
    cgroup: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    page_bytes: u64,
    /// As the kernel names and counts them.
    counters: &'a Counters,
    nodes: Vec<JsonNode>,
}

#[derive(Serialize)]
struct JsonNode {
    node: u32,
    bytes: std::collections::BTreeMap<&'static str, u64>,
}

/// One line: a round, or what there is.
pub(super) fn json(
    cgroup: &str,
    round: Option<(&Request, Duration)>,
    counters: &Counters,
    places: &Places,
) -> String {
    let node = |(node, lists): (&u32, &[u64; LISTS.len()])| JsonNode {
        node: *node,
        bytes: LISTS.into_iter().zip(*lists).collect(),
    };
    let json = Json {
        cgroup,
        fast: round.map(|(request, _)| request.fast),
        slow: round.map(|(request, _)| request.slow),
        seconds: round.map(|(_, took)| took.as_secs_f64()),
        page_bytes: PAGE,
        counters,
        nodes: places.iter().map(node).collect(),
    };
    serde_json::to_string(&json).expect("numbers and names") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::request;
    use super::*;

    fn counters(of: &[(&str, u64)]) -> Counters {
        of.iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect()
    }

    #[test]
    fn a_round_is_the_difference_of_two_readings() {
        let before = counters(&[("rounds", 3), ("promoted", 10)]);
        let after = counters(&[("rounds", 4), ("promoted", 12), ("demoted", 1)]);
        let round = difference(&before, &after);
        assert_eq!(
            round,
            counters(&[("rounds", 1), ("promoted", 2), ("demoted", 1)])
        );
    }

    #[test]
    fn people_read_what_happened_only() {
        let text = outcomes(&counters(&[
            ("looked_at", 1024),
            ("exchanged", 3),
            ("split", 2),
        ]));
        assert_eq!(
            text,
            "looked at                         4M\n\
             moved up, changed places         12K\n\
             larger pages split                 2\n"
        );
    }

    #[test]
    fn nodes_are_a_line_each() {
        let mut of = Places::new();
        of.insert(0, [4096, 8192, 0, 0, 0]);
        of.insert(1, [0, 0, 0, 12288, 0]);
        let text = places(&of, Some(&request()));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with('0') && lines[1].ends_with("fast"),
            "{text}"
        );
        assert!(
            lines[2].contains("12K") && lines[2].ends_with("slow"),
            "{text}"
        );
        assert_eq!(
            head().len(),
            line(1, Duration::ZERO, &Counters::new(), 0, 0).len()
        );
    }

    #[test]
    fn scripts_read_a_line_of_json() {
        let mut of = Places::new();
        of.insert(1, [1, 2, 3, 4, 5]);
        let all = counters(&[("rounds", 1)]);
        let text = json("db", Some((&request(), Duration::from_secs(2))), &all, &of);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["nodes"][0]["bytes"]["inactive_file"], 4);
        assert_eq!(json["counters"]["rounds"], 1);
        assert_eq!((&json["slow"], &json["seconds"]), (&1.into(), &2.0.into()));
    }
}
