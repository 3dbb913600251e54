// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts stores between the guest's marks, by whose memory they go to. A
//! store that leaves the node costs a transfer of its cache line, whatever the
//! number of instructions.

use std::collections::HashSet;

use crate::{decode::Event, layout::Layout};

/// What was stored in one section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    pub all: u64,
    /// To memory of another node than the CPU's.
    pub remote: u64,
    /// Cache lines that the remote stores went to, each counted once.
    pub remote_lines: u64,
    /// Of all, those of instructions that read and write in one step.
    pub atomic: u64,
    pub remote_atomic: u64,
}

/// One CPU's state. Its own thread alone uses it.
#[derive(Debug, Default)]
pub struct Cpu {
    node: Option<u32>,
    section: Option<Stores>,
    lines: HashSet<u64>,
}

impl Cpu {
    pub fn new(layout: &Layout, cpu: usize) -> Cpu {
        Cpu {
            node: layout.cpu_node(cpu),
            ..Cpu::default()
        }
    }

    /// Whether stores are to be reported at all.
    #[inline]
    pub fn counts(&self) -> bool {
        self.section.is_some()
    }

    /// Takes a mark; returns a section that it ended.
    pub fn mark(&mut self, mark: Event) -> Option<Stores> {
        match mark {
            Event::Begin => {
                self.lines.clear();
                self.section = Some(Stores::default());
                None
            }
            Event::End => {
                let mut ended = self.section.take()?;
                ended.remote_lines = self.lines.len() as u64;
                Some(ended)
            }
            _ => None,
        }
    }

    /// A store to `address`, as the plugin interface reports it, in RAM.
    pub fn store(&mut self, layout: &Layout, address: u64, atomic: bool) {
        let Some(section) = &mut self.section else {
            return;
        };
        section.all += 1;
        section.atomic += u64::from(atomic);
        let remote = layout
            .node(address)
            .is_some_and(|home| Some(home) != self.node);
        if remote {
            section.remote += 1;
            section.remote_atomic += u64::from(atomic);
            self.lines.insert(address >> 6);
        }
    }
}

/// A line of the result, read by `nearwalk bench`:
/// `section ALL REMOTE REMOTE_LINES ATOMIC REMOTE_ATOMIC`.
pub fn line(stores: &Stores) -> String {
    format!(
        "section {} {} {} {} {}\n",
        stores.all, stores.remote, stores.remote_lines, stores.atomic, stores.remote_atomic
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: u64 = 1 << 30;

    fn cpu() -> (Layout, Cpu) {
        let layout: Layout = "512x1:512x1".parse().unwrap();
        let cpu = Cpu::new(&layout, 0);
        (layout, cpu)
    }

    #[test]
    fn remote_lines_are_counted_once() {
        let (layout, mut cpu) = cpu();
        assert_eq!(cpu.mark(Event::Begin), None);
        for entry in 0..16 {
            cpu.store(&layout, REMOTE + 8 * entry, entry == 0);
            cpu.store(&layout, 8 * entry, false);
        }
        let stores = cpu.mark(Event::End).unwrap();
        assert_eq!(
            stores,
            Stores {
                all: 32,
                remote: 16,
                remote_lines: 2,
                atomic: 1,
                remote_atomic: 1,
            }
        );
        assert_eq!(line(&stores), "section 32 16 2 1 1\n");
    }

    #[test]
    fn only_what_is_between_marks_counts() {
        let (layout, mut cpu) = cpu();
        cpu.store(&layout, REMOTE, false);
        assert_eq!(cpu.mark(Event::End), None);
        cpu.mark(Event::Begin);
        assert!(cpu.counts());
        assert_eq!(cpu.mark(Event::End), Some(Stores::default()));
        assert!(!cpu.counts());
    }
}
