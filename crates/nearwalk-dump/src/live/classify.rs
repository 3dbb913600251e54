// SPDX-License-Identifier: GPL-2.0-or-later
//! What the entries of a table are, where the kernel does not say it: as
//! `module/encode.c`, but for what `docs/dump.md` lists as coarser.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;

use nearwalk_walk::{Frames, Table, Vma, entry};

use crate::format;
use crate::stream::{Attrs, Kind, Run};

const VM_EXEC: u64 = 4;
/// VM_READ, VM_WRITE, VM_EXEC: the mapping is accessible.
const VM_ACCESS: u64 = 7;

/// The mappings of a process from some address on.
#[derive(Debug, Default)]
pub struct Mappings {
    known: VecDeque<Vma>,
    complete: bool,
}

impl Mappings {
    /// Forgets those that end at `addr` or before.
    pub fn forget_before(&mut self, addr: u64) {
        while self.known.front().is_some_and(|vma| vma.end <= addr) {
            self.known.pop_front();
        }
    }

    /// The mapping that holds `addr`; `more` gives further ones, in order.
    pub fn find(
        &mut self,
        addr: u64,
        more: &mut dyn FnMut() -> io::Result<Vec<Vma>>,
    ) -> io::Result<Option<Vma>> {
        while !self.complete && self.known.back().is_none_or(|vma| vma.end <= addr) {
            let next = more()?;
            self.complete = next.is_empty();
            self.known.extend(next);
        }
        let after = self.known.partition_point(|vma| vma.start <= addr);
        let found = after.checked_sub(1).map(|at| self.known[at]);
        Ok(found.filter(|vma| addr < vma.end))
    }
}

/// What types of swap entries mean that are no swap devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwapTypes {
    /// First type after those of swap devices.
    devices: u8,
    migration: Option<(u8, u8)>,
}

/// Linux' MAX_SWAPFILES with every use of its types configured.
const LEAST_DEVICES: u8 = 23;

impl SwapTypes {
    /// By the kernel's configuration, where the distribution left it. Without
    /// it what is no swap device is of an unknown kind.
    pub fn read(root: &Path, release: &str) -> Self {
        let places = [
            format!("boot/config-{release}"),
            format!("lib/modules/{release}/config"),
        ];
        let config = places
            .iter()
            .find_map(|place| fs::read_to_string(root.join(place)).ok());
        config.map_or(
            SwapTypes {
                devices: LEAST_DEVICES,
                migration: None,
            },
            |config| SwapTypes::of(&config),
        )
    }

    fn of(config: &str) -> Self {
        let on = |name: &str| config.lines().any(|line| line == format!("{name}=y"));
        let poison = u8::from(on("CONFIG_MEMORY_FAILURE"));
        let migration = if on("CONFIG_MIGRATION") { 3 } else { 0 };
        let device = if on("CONFIG_DEVICE_PRIVATE") { 4 } else { 0 };
        // The last is that of markers.
        let devices = 31 - poison - migration - device;
        let first = devices + poison;
        SwapTypes {
            devices,
            migration: (migration > 0).then_some((first, first + migration)),
        }
    }

    fn kind(self, swap_type: u8) -> Kind {
        match self.migration {
            _ if swap_type < self.devices => Kind::Swap,
            Some((first, end)) if (first..end).contains(&swap_type) => Kind::Migration,
            _ => Kind::Other,
        }
    }
}

/// What does not change from one table to the next.
pub struct Classes<'a> {
    pub frames: &'a Frames,
    /// Bits of an entry that name memory.
    pub mask: u64,
    pub swap: SwapTypes,
    /// Physical address of the huge zero page.
    pub huge_zero: Option<u64>,
    /// First address of the vdso and the one after it.
    pub vdso: (u64, u64),
}

impl Classes<'_> {
    /// The entries of a table at `addr`, joined to runs. `root` is a table whose
    /// upper half is the kernel's.
    pub fn runs(
        &self,
        (level, addr): (u8, u64),
        entries: &Table,
        root: bool,
        mapping: &mut dyn FnMut(u64) -> io::Result<Option<Vma>>,
        runs: &mut Vec<Run>,
    ) -> io::Result<()> {
        runs.clear();
        let half = if root {
            entries.len() / 2
        } else {
            entries.len()
        };
        let size = entry::size(level);
        for (index, &value) in entries[..half].iter().enumerate() {
            if value == 0 || entry::is_none(value) {
                continue;
            }
            let at = addr + index as u64 * size;
            let run = self.entry(value, level, at, mapping)?;
            match runs.last_mut() {
                Some(last) if continues(last, &run, index, level) => last.count += 1,
                _ => runs.push(Run {
                    first: index as u16,
                    ..run
                }),
            }
        }
        Ok(())
    }

    fn entry(
        &self,
        value: u64,
        level: u8,
        addr: u64,
        mapping: &mut dyn FnMut(u64) -> io::Result<Option<Vma>>,
    ) -> io::Result<Run> {
        let mut run = Run {
            first: 0,
            count: 1,
            kind: Kind::Table,
            attrs: Attrs::from_bits(0),
            node: None,
            frame: 0,
        };
        if !entry::is_present(value, level) {
            run.kind = self.swap.kind(entry::swap_type(value));
            return Ok(run);
        }
        let physical = entry::address(value, level, self.mask);
        run.frame = physical >> format::PAGE_SHIFT;
        run.node = self.frames.node(physical);
        let flag = |bit: u64, attr: Attrs| {
            if value & bit != 0 {
                attr
            } else {
                Attrs::from_bits(0)
            }
        };
        run.attrs = flag(entry::WRITE, Attrs::WRITE)
            | flag(entry::ACCESSED, Attrs::ACCESSED)
            | flag(entry::DIRTY, Attrs::DIRTY);
        if !entry::is_leaf(value, level) {
            return Ok(run);
        }
        if entry::is_protnone(value) {
            // The entry lost its execute permission; the mapping has it.
            let flags = mapping(addr)?.map_or(0, |vma| vma.flags);
            run.kind = if flags & VM_ACCESS != 0 {
                Kind::Hint
            } else {
                Kind::ProtNone
            };
            if flags & VM_EXEC == 0 {
                run.attrs = run.attrs | Attrs::NX;
            }
        } else {
            run.kind = Kind::Page;
            run.attrs = run.attrs | flag(entry::NX, Attrs::NX);
        }
        let special = run.node.is_none()
            || value & entry::SPECIAL != 0
            || (level > 1 && self.huge_zero == Some(physical))
            || (self.vdso.0..self.vdso.1).contains(&addr);
        if special {
            run.attrs = run.attrs | Attrs::SPECIAL;
        }
        Ok(run)
    }
}

fn continues(last: &Run, next: &Run, index: usize, level: u8) -> bool {
    usize::from(last.first + last.count) == index
        && last.kind == next.kind
        && last.attrs == next.attrs
        && (!last.kind.has_frame()
            || last.node == next.node
                && next.frame == last.frame + u64::from(last.count) * last.step(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_fetched_as_far_as_needed() {
        let vma = |start| Vma {
            start,
            end: start + 10,
            flags: start,
        };
        let mut batches = vec![vec![], vec![vma(40)], vec![vma(0), vma(20)]];
        let mut mappings = Mappings::default();
        let mut more = || Ok(batches.pop().expect("asked again after the end"));
        assert_eq!(mappings.find(25, &mut more).unwrap(), Some(vma(20)));
        assert_eq!(mappings.find(15, &mut more).unwrap(), None);
        assert_eq!(mappings.find(3, &mut more).unwrap(), Some(vma(0)));
        mappings.forget_before(20);
        assert_eq!(mappings.known.len(), 1);
        assert_eq!(mappings.find(49, &mut more).unwrap(), Some(vma(40)));
        assert_eq!(mappings.find(50, &mut more).unwrap(), None);
        assert_eq!(mappings.find(60, &mut more).unwrap(), None);
    }

    #[test]
    fn swap_types_are_told_by_the_configuration() {
        let all =
            SwapTypes::of("CONFIG_MIGRATION=y\nCONFIG_DEVICE_PRIVATE=y\nCONFIG_MEMORY_FAILURE=y\n");
        let kinds = |types: SwapTypes| [0, 22, 23, 24, 26, 27, 31].map(|t| types.kind(t));
        use Kind::{Migration, Other, Swap};
        assert_eq!(
            kinds(all),
            [Swap, Swap, Other, Migration, Migration, Other, Other]
        );
        let few = SwapTypes::of("# CONFIG_MIGRATION is not set\n");
        assert_eq!(kinds(few), [Swap, Swap, Swap, Swap, Swap, Swap, Other]);
        let unknown = SwapTypes::read(Path::new("/proc/self"), "none");
        assert_eq!(
            kinds(unknown),
            [Swap, Swap, Other, Other, Other, Other, Other]
        );

        // Where Linux 7.2 and newer have it on Debian.
        let root = std::env::temp_dir().join(format!("nearwalk-config-{}", std::process::id()));
        let modules = root.join("lib/modules/7.3.4");
        fs::create_dir_all(&modules).unwrap();
        fs::write(modules.join("config"), "CONFIG_MIGRATION=y\n").unwrap();
        let later = SwapTypes::read(&root, "7.3.4");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(kinds(later), kinds(SwapTypes::of("CONFIG_MIGRATION=y\n")));
    }

    const LEAF: u64 = entry::PRESENT | entry::WRITE | entry::NX;

    fn runs(level: u8, entries: &[(usize, u64)], flags: u64) -> Vec<Run> {
        let frames = Frames::of(&[(0, 1 << 30, 0), (1 << 30, 2 << 30, 1)]);
        let classes = Classes {
            frames: &frames,
            mask: entry::FRAME,
            swap: SwapTypes::of("CONFIG_MIGRATION=y\n"),
            huge_zero: Some(0x60_0000),
            vdso: (0x1000, 0x3000),
        };
        let mut table = [0; 512];
        for &(index, value) in entries {
            table[index] = value;
        }
        let mut runs = Vec::new();
        let mut mapping = |addr| {
            let (start, end) = (addr, addr + 1);
            Ok(Some(Vma { start, end, flags }))
        };
        classes
            .runs((level, 0), &table, false, &mut mapping, &mut runs)
            .unwrap();
        runs
    }

    #[test]
    fn entries_that_are_alike_are_joined() {
        let found = runs(
            1,
            &[
                (8, 0x8000 | LEAF),
                (9, 0x9000 | LEAF),
                (10, 0xb000 | LEAF),
                (12, 0xc000 | LEAF),
                (13, 0xd000 | LEAF | entry::DIRTY),
                (14, entry::DIRTY),
            ],
            0,
        );
        let shape: Vec<_> = found.iter().map(|r| (r.first, r.count, r.frame)).collect();
        assert_eq!(shape, [(8, 2, 8), (10, 1, 11), (12, 1, 12), (13, 1, 13)]);
        assert!(
            found
                .iter()
                .all(|r| r.node == Some(0) && r.kind == Kind::Page)
        );
    }

    #[test]
    fn only_the_mapping_tells_hints_from_inaccessible_memory() {
        let inverted = !0x4000_5000u64 & entry::FRAME | entry::PROTNONE;
        for (flags, kind, nx) in [(0, Kind::ProtNone, true), (5, Kind::Hint, false)] {
            let found = runs(1, &[(9, inverted)], flags);
            assert_eq!(
                (found[0].kind, found[0].frame, found[0].node),
                (kind, 0x4_0005, Some(1))
            );
            assert_eq!(found[0].attrs.contains(Attrs::NX), nx);
        }
    }

    #[test]
    fn special_is_what_is_no_memory_of_the_process() {
        let special = |found: &[Run]| -> Vec<bool> {
            found
                .iter()
                .map(|r| r.attrs.contains(Attrs::SPECIAL))
                .collect()
        };
        // Two pages of the vdso, the zero page, a device, memory.
        let small = [
            (1, 0x5000 | LEAF),
            (2, 0x6000 | LEAF),
            (3, 0x1_7000 | LEAF | entry::SPECIAL),
            (4, 0x1_0000_0000 | LEAF),
            (5, 0x9000 | LEAF),
        ];
        assert_eq!(special(&runs(1, &small, 0)), [true, true, true, false]);
        let huge = [
            (8, 0x60_0000 | LEAF | entry::HUGE),
            (9, 0xa0_0000 | LEAF | entry::HUGE),
        ];
        assert_eq!(special(&runs(2, &huge, 0)), [true, false]);
    }

    #[test]
    fn entries_without_a_frame_are_joined_by_kind() {
        let swap = |kind: u64| kind << 59 | 0x200;
        let found = runs(
            1,
            &[(0, swap(0)), (1, swap(1)), (2, swap(28)), (3, swap(31))],
            0,
        );
        let shape: Vec<_> = found.iter().map(|r| (r.kind, r.count)).collect();
        assert_eq!(
            shape,
            [(Kind::Swap, 2), (Kind::Migration, 1), (Kind::Other, 1)]
        );
    }
}
