// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts the instructions between the guest's marks by phase: a phase begins where
//! one of the kernel's functions is called and ends where that call returns, so
//! that any kernel can be measured as it is. Of nested phases the inner one counts.
//!
//! An instruction that repeats itself (`rep movs`) counts once each time.

use std::{collections::HashMap, fs, path::Path};

use crate::decode::Event;

/// Which function begins which phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    names: Vec<String>,
    /// Indexes into the names by the function's address.
    begins: HashMap<u64, u8>,
}

impl Phases {
    /// Reads lines of `ADDRESS PHASE`, the address in hexadecimal digits.
    pub fn parse(text: &str) -> Result<Phases, String> {
        let mut phases = Phases::default();
        for line in text.lines() {
            let bad = || format!("'{line}' is no ADDRESS PHASE");
            let (address, name) = line.split_once(' ').ok_or_else(bad)?;
            let address = u64::from_str_radix(address, 16).map_err(|_| bad())?;
            let known = phases.names.iter().position(|known| known == name);
            let index = known.unwrap_or_else(|| {
                phases.names.push(name.to_owned());
                phases.names.len() - 1
            });
            let index = u8::try_from(index).map_err(|_| "too many phases".to_owned())?;
            phases.begins.insert(address, index);
        }
        Ok(phases)
    }

    pub fn read(path: &Path) -> Result<Phases, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Phases::parse(&text)
    }

    /// The phase that a function at this address begins.
    pub fn of(&self, address: u64) -> Option<u8> {
        self.begins.get(&address).copied()
    }
}

/// Instructions that are translated, and executed, together.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub begin: u64,
    pub instructions: u32,
    pub phase: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub calls: u64,
    pub instructions: u64,
}

/// How many calls are looked at for the one that returned.
const DEPTH: usize = 64;

/// One CPU's state. Its own thread alone uses it.
#[derive(Debug, Default)]
pub struct Cpu {
    /// By phase; the last one is what is in none.
    section: Option<Vec<Count>>,
    /// Where the calls return to that are being executed.
    calls: Vec<u64>,
    /// The phases that have begun, each with how many calls there were then: it
    /// ends with the last of them, which is not its own if it was jumped to.
    within: Vec<(u8, usize)>,
}

impl Cpu {
    /// Takes a mark; returns the line of a section that it ended.
    pub fn mark(&mut self, phases: &Phases, mark: Event) -> Option<String> {
        match mark {
            Event::Begin => {
                self.calls.clear();
                self.within.clear();
                self.section = Some(vec![Count::default(); phases.names.len() + 1]);
                None
            }
            Event::End => Some(line(phases, &self.section.take()?)),
            _ => None,
        }
    }

    /// A call is executed.
    pub fn call(&mut self, returns_to: u64) {
        if self.section.is_some() {
            self.calls.push(returns_to);
        }
    }

    /// A block is executed.
    pub fn block(&mut self, block: &Block) {
        let Some(section) = &mut self.section else {
            return;
        };
        // Calls of other tasks, which the CPU switched to and from, stay on top.
        let recent = self.calls.len().saturating_sub(DEPTH);
        let mut returned = self.calls[recent..].iter();
        if let Some(index) = returned.rposition(|&to| to == block.begin) {
            let left = recent + index;
            self.calls.truncate(left);
            let over = |&(_, depth): &(u8, usize)| depth > left;
            while self.within.last().is_some_and(over) {
                self.within.pop();
            }
        }
        if let Some(phase) = block.phase {
            self.within.push((phase, self.calls.len()));
            section[usize::from(phase)].calls += 1;
        }
        let rest = section.len() - 1;
        let phase = self.within.last().map_or(rest, |&(phase, _)| phase.into());
        section[phase].instructions += u64::from(block.instructions);
    }
}

/// A line of the result, read by `nearwalk bench`:
/// `section PHASE CALLS INSTRUCTIONS ...`, what is in no phase as `rest`.
fn line(phases: &Phases, section: &[Count]) -> String {
    let names = phases.names.iter().map(String::as_str).chain(["rest"]);
    let words: Vec<String> = names
        .zip(section)
        .map(|(name, count)| format!("{name} {} {}", count.calls, count.instructions))
        .collect();
    format!("section {}\n", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> Phases {
        Phases::parse("ffffffff81000100 unmap\n2000 copy\n3000 unmap\n").unwrap()
    }

    fn run(cpu: &mut Cpu, begin: u64, instructions: u32) {
        cpu.block(&Block {
            begin,
            instructions,
            phase: phases().of(begin),
        });
    }

    #[test]
    fn phases_end_where_their_call_returns() {
        let mut cpu = Cpu::default();
        assert_eq!(cpu.mark(&phases(), Event::Begin), None);
        run(&mut cpu, 0x10, 5);
        cpu.call(0x20);
        run(&mut cpu, 0x3000, 7);
        // An inner phase, within it a call of something else.
        cpu.call(0x3010);
        run(&mut cpu, 0x2000, 11);
        cpu.call(0x2010);
        run(&mut cpu, 0x9000, 100);
        run(&mut cpu, 0x2010, 1);
        run(&mut cpu, 0x3010, 2);
        run(&mut cpu, 0x20, 3);
        cpu.call(0x30);
        run(&mut cpu, 0xffff_ffff_8100_0100, 1000);
        run(&mut cpu, 0x30, 1);
        assert_eq!(
            cpu.mark(&phases(), Event::End).unwrap(),
            "section unmap 2 1009 copy 1 112 rest 0 9\n"
        );
    }

    #[test]
    fn two_phases_can_end_at_once() {
        let mut cpu = Cpu::default();
        cpu.mark(&phases(), Event::Begin);
        cpu.call(0x20);
        run(&mut cpu, 0x3000, 1);
        // A tail call: the inner function returns to the outer one's caller.
        run(&mut cpu, 0x2000, 2);
        run(&mut cpu, 0x20, 4);
        assert_eq!(
            cpu.mark(&phases(), Event::End).unwrap(),
            "section unmap 1 1 copy 1 2 rest 0 4\n"
        );
    }

    #[test]
    fn a_phase_that_is_jumped_to_ends_with_its_caller() {
        let mut cpu = Cpu::default();
        cpu.mark(&phases(), Event::Begin);
        cpu.call(0x20);
        run(&mut cpu, 0x9000, 1);
        // A call that is over when the function jumps to another one.
        cpu.call(0x9010);
        run(&mut cpu, 0x8000, 1);
        run(&mut cpu, 0x9010, 1);
        run(&mut cpu, 0x2000, 2);
        run(&mut cpu, 0x20, 4);
        assert_eq!(
            cpu.mark(&phases(), Event::End).unwrap(),
            "section unmap 0 0 copy 1 2 rest 0 7\n"
        );
    }

    #[test]
    fn calls_that_never_return_are_forgotten() {
        let mut cpu = Cpu::default();
        cpu.mark(&phases(), Event::Begin);
        cpu.call(0x20);
        run(&mut cpu, 0x3000, 1);
        // Another task begins to sleep.
        cpu.call(0x7000);
        cpu.call(0x7100);
        run(&mut cpu, 0x20, 4);
        assert_eq!(
            cpu.mark(&phases(), Event::End).unwrap(),
            "section unmap 1 1 copy 0 0 rest 0 4\n"
        );
    }

    #[test]
    fn only_what_is_between_marks_counts() {
        let mut cpu = Cpu::default();
        run(&mut cpu, 0x3000, 7);
        assert_eq!(cpu.mark(&phases(), Event::End), None);
        cpu.mark(&phases(), Event::Begin);
        let line = cpu.mark(&phases(), Event::End).unwrap();
        assert_eq!(line, "section unmap 0 0 copy 0 0 rest 0 0\n");
    }

    #[test]
    fn bad_lines_are_named() {
        for text in ["x unmap", "1000", "1000 unmap\n\n"] {
            assert!(Phases::parse(text).unwrap_err().contains("ADDRESS"));
        }
        let error = Phases::read(Path::new("/nowhere/symbols")).unwrap_err();
        assert!(error.contains("/nowhere/symbols"), "{error}");
    }
}
