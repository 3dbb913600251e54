// SPDX-License-Identifier: GPL-2.0-or-later
//! Which programs run with which policies.

use std::fmt;

use clap::ValueEnum;

/// Nodes of the machine: the CPUs are on the fast one.
pub const FAST: u32 = 0;
pub const SLOW: u32 = 1;

/// Programs of lab/bench/tiered.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// A key-value store, keys by Zipf's law
    Kv,
    /// Lookups in grids, as XSBench's
    Xs,
    /// Neighbours of vertices, as a breadth-first search's
    Graph,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("none is skipped");
        f.write_str(value.get_name())
    }
}

/// The six of Figure 3.12, and that nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// All memory on the slow node
    AllSlow,
    /// Huge pages are split, cold pages leave, hot ones come; one thread copies
    Base,
    /// Huge pages are split, base pages change places; four threads
    BaseExchange,
    /// Huge pages whole, cold ones leave, hot ones come; one thread
    Thp,
    /// Huge pages whole, pages change places; four threads, eight in flight
    Exchange,
    /// All memory on the fast node
    AllFast,
    /// Half of the memory on either node, and it stays there
    Stay,
}

impl Policy {
    /// What `memory.tier` is told each round; nothing where nothing moves.
    pub fn request(self, fast_max: u64) -> Option<String> {
        let (exchange, split) = match self {
            Policy::AllSlow | Policy::AllFast | Policy::Stay => return None,
            Policy::Base => (0, 1),
            Policy::BaseExchange => (1, 1),
            Policy::Thp => (0, 0),
            Policy::Exchange => (1, 0),
        };
        // All that is hot, and all of the lists, as so few rounds cannot wait.
        Some(format!(
            "{} fast={FAST} slow={SLOW} fast_max={fast_max} exchange={exchange} split={split} \
             scan=100",
            1u64 << 40
        ))
    }

    pub fn sysctls(self) -> [(&'static str, &'static str); 2] {
        let (threads, pages) = match self {
            Policy::BaseExchange => ("4", "512"),
            Policy::Exchange => ("4", "4096"),
            _ => ("1", "512"),
        };
        [
            ("vm.migrate_copy_threads", threads),
            ("vm.migrate_batch_pages", pages),
        ]
    }

    /// How much faster programs were than with all memory on the slow node.
    pub fn published(self) -> Option<&'static str> {
        Some(match self {
            Policy::AllSlow => "1",
            Policy::Base => "1.09",
            Policy::BaseExchange => "1.16",
            Policy::Thp => "1.31",
            Policy::Exchange => "1.48",
            Policy::AllFast => "about 1.9",
            Policy::Stay => return None,
        })
    }

    /// Bytes that a program has on the fast node at first.
    pub fn first(self, footprint: u64, fast: u64) -> u64 {
        match self {
            Policy::AllSlow => 0,
            Policy::AllFast => footprint,
            _ => fast,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("none is skipped");
        f.write_str(value.get_name())
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Of each program: twice what it may have on the fast node, unless told otherwise.
    pub footprint: u64,
    pub fast: u64,
    pub steps: u32,
    /// Of each step.
    pub accesses: u64,
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_those_of_the_page_on_tiers() {
        let text = Policy::Base.request(1 << 30).unwrap();
        assert!(text.contains("fast_max=1073741824 exchange=0 split=1"));
        assert_eq!(Policy::Exchange.sysctls()[1].1, "4096");
        assert_eq!(Policy::Thp.sysctls()[0].1, "1");
        assert_eq!(Policy::AllSlow.request(1), None);
        assert_eq!(Policy::BaseExchange.to_string(), "base-exchange");
    }

    #[test]
    fn memory_is_where_a_policy_has_it_first() {
        assert_eq!(Policy::AllSlow.first(20, 10), 0);
        assert_eq!(Policy::AllFast.first(20, 10), 20);
        assert_eq!(Policy::Thp.first(20, 10), 10);
    }
}
