// SPDX-License-Identifier: GPL-2.0-or-later
//! Hosts and processes that are made up.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::entry;
use crate::map::Map;
use crate::tables::{Ask, ENTRIES, State, Table, Tables, Vma};

/// A directory with files of /proc and /sys, removed afterwards.
pub struct Host(PathBuf);

impl Host {
    pub fn new(name: &str) -> Self {
        let dir = format!("nearwalk-walk-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Host(dir)
    }

    pub fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn root(&self) -> &Path {
        &self.0
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process, and the kernel's own map of memory, in a few pages.
pub struct Memory {
    pub map: Map,
    /// Physical address of the root.
    pub root: u64,
    pub pages: BTreeMap<u64, Box<Table>>,
    pub vmas: Vec<Vma>,
    /// Bits that are set in every entry that names memory.
    pub encrypted: u64,
    told: Option<Map>,
    answers: Vec<Table>,
    /// Questions, in the order in which they came.
    pub asked: Vec<Ask>,
    free: u64,
    scouted: usize,
    /// Called before each call: what the process does meanwhile.
    pub meanwhile: Option<fn(&mut Memory, usize)>,
    calls: usize,
}

impl Memory {
    /// The kernel maps memory at `base` by a leaf at `leaf_level`.
    pub fn new(levels: u8, base: u64, root: u64, leaf_level: u8, encrypted: u64) -> Self {
        let mut memory = Memory {
            map: Map {
                base,
                mask: entry::FRAME & !encrypted,
                levels,
            },
            root,
            pages: BTreeMap::new(),
            vmas: Vec::new(),
            encrypted,
            told: None,
            answers: Vec::new(),
            asked: Vec::new(),
            free: 0x10_0000,
            scouted: 0,
            meanwhile: None,
            calls: 0,
        };
        memory.pages.insert(root, Box::new([0; ENTRIES]));
        let at = base + root;
        let huge = if leaf_level > 1 { entry::HUGE } else { 0 };
        let leaf = root & !(entry::size(leaf_level) - 1) | entry::PRESENT | huge;
        memory.set(at, leaf_level, leaf | encrypted);
        memory
    }

    /// Sets the entry of the table of `level` that covers `addr`, and makes the
    /// tables on the way.
    pub fn set(&mut self, addr: u64, level: u8, value: u64) {
        let mut table = self.root;
        for at in (level + 1..=self.map.levels).rev() {
            let index = index(addr, at);
            let found = self.pages[&table][index];
            if !entry::is_table(found, at) {
                self.free += 0x1000;
                let new = self.free;
                self.pages.insert(new, Box::new([0; ENTRIES]));
                let named = new | entry::PRESENT | entry::WRITE | self.encrypted;
                self.pages.get_mut(&table).unwrap()[index] = named;
                table = new;
            } else {
                table = found & self.map.mask;
            }
        }
        self.pages.get_mut(&table).unwrap()[index(addr, level)] = value;
    }

    /// Every table of the user half that a mapping has a part of, read at once.
    pub fn all(&self) -> Vec<(u64, std::cmp::Reverse<u8>, u64)> {
        let mut all = Vec::new();
        self.collect(self.root, self.map.levels, 0, &mut all);
        all.sort_unstable();
        all
    }

    fn collect(
        &self,
        table: u64,
        level: u8,
        addr: u64,
        all: &mut Vec<(u64, std::cmp::Reverse<u8>, u64)>,
    ) {
        let end = addr + (entry::size(level) << 9);
        if !self.vmas.iter().any(|v| v.start < end && addr < v.end) {
            return;
        }
        all.push((addr, std::cmp::Reverse(level), table));
        let half = if level == self.map.levels { 256 } else { 512 };
        for index in 0..half {
            let value = self.pages[&table][index];
            if entry::is_table(value, level) {
                let addr = addr + index as u64 * entry::size(level);
                self.collect(value & self.map.mask, level - 1, addr, all);
            }
        }
    }

    fn answer(&self, ask: &Ask) -> (State, u64, Table) {
        let fault = (State::Fault, 0, [0; ENTRIES]);
        let empty = (State::Empty, 0, [0; ENTRIES]);
        let physical = if ask.level == 0 {
            ask.from.wrapping_sub(self.map.base)
        } else {
            let Some(vma) = self
                .vmas
                .iter()
                .find(|v| v.start < ask.to && ask.from < v.end)
            else {
                return empty;
            };
            let map = self.told.expect("the map is known");
            let addr = ask.from.max(vma.start);
            let mut table = self.root;
            for at in (ask.level + 1..=map.levels).rev() {
                let value = self.pages[&table][index(addr, at)];
                if value & entry::PRESENT == 0 || value & entry::HUGE != 0 {
                    return empty;
                }
                table = (map.base + (value & map.mask)).wrapping_sub(self.map.base);
                if !self.pages.contains_key(&table) {
                    return fault;
                }
            }
            table
        };
        match self.pages.get(&physical) {
            Some(page) => (State::Read, physical, **page),
            None => fault,
        }
    }
}

fn index(addr: u64, level: u8) -> usize {
    (addr / entry::size(level)) as usize % ENTRIES
}

impl Tables for &mut Memory {
    fn root(&self) -> u64 {
        self.map.base + self.root
    }

    fn set_map(&mut self, map: Map) {
        self.told = Some(map);
    }

    fn ask(&mut self, asks: &mut [Ask]) -> io::Result<()> {
        self.answers.clear();
        for ask in asks {
            if let Some(meanwhile) = self.meanwhile {
                meanwhile(self, self.calls);
                self.calls += 1;
            }
            if ask.level > 0 {
                self.asked.push(*ask);
            }
            let (state, table, page) = self.answer(ask);
            (ask.state, ask.table) = (state, table);
            self.answers.push(page);
        }
        Ok(())
    }

    fn page(&self, index: usize) -> &Table {
        &self.answers[index]
    }

    fn vmas(&mut self) -> io::Result<Vec<Vma>> {
        let all = if self.scouted == 0 {
            self.vmas.clone()
        } else {
            Vec::new()
        };
        self.scouted += 1;
        Ok(all)
    }
}
