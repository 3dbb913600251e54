// SPDX-License-Identifier: GPL-2.0-or-later
//! Which programs run with which settings, and how many regions count.

use std::fmt;

use clap::ValueEnum;

/// The footprint for which the thesis counts 32 and 128 regions.
const PUBLISHED_BYTES: u64 = 120_000_000_000;

/// The two numbers of regions of the thesis.
pub const PUBLISHED_REGIONS: [usize; 2] = [32, 128];

/// As many of a footprint as 32 and 128 are of 120 GB, so that regions are as large;
/// one at least.
pub fn scaled(regions: usize, footprint: u64) -> usize {
    let exact = regions as f64 * footprint as f64 / PUBLISHED_BYTES as f64;
    (exact.round() as usize).max(1)
}

/// When a program allocates (thesis, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// All of it first
    A,
    /// All the time
    B,
}

/// Programs of lab/bench/workload.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// Class A: two grids and seven-point sweeps over them
    Stencil,
    /// Class A: random updates of one table
    Gups,
    /// Class A: lookups in many grids, as XSBench's
    Xs,
    /// Class B: threads that allocate, free most, and end
    Workers,
    /// Class B: arrays of random sizes, of which the oldest are freed
    Churn,
}

impl Program {
    pub fn class(self) -> Class {
        match self {
            Program::Stencil | Program::Gups | Program::Xs => Class::A,
            Program::Workers | Program::Churn => Class::B,
        }
    }

    /// The part of the memory to be used that it is told to allocate, in per cent: a
    /// heap is larger than what is allocated in it.
    pub fn part(self) -> u64 {
        match self.class() {
            Class::A => 100,
            Class::B => 60,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("none is skipped");
        f.write_str(value.get_name())
    }
}

/// How the kernel is set. Huge pages are on unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setting {
    /// The kernel's defaults
    Default,
    /// Defaults, and free memory compacted where a huge page is touched first
    Compaction,
    /// khugepaged looks at all memory each step
    Khugepaged,
    /// A pass of Ranger each step
    Ranger,
    /// A pass of Ranger each tenth step
    RangerSlow,
    /// Each step, and places need not be aligned
    AlignNone,
    /// Each step, and places are aligned to 1 GiB
    #[value(name = "align-1g")]
    Align1G,
    /// Each step, and places are in the first hole, as in the thesis
    FirstFit,
    /// Each step, and free memory compacted where a huge page is touched first
    RangerCompaction,
    /// Defaults, and no huge pages
    Base,
    /// Each step, and no huge pages
    RangerBase,
}

impl Setting {
    /// Whether free memory is compacted when a huge page is wanted.
    pub fn compacts(self) -> bool {
        matches!(self, Setting::Compaction | Setting::RangerCompaction)
    }

    /// Whether memory may be in huge pages.
    pub fn huge(self) -> bool {
        !matches!(self, Setting::Base | Setting::RangerBase)
    }

    /// Steps from one pass of Ranger to the next.
    pub fn every(self) -> Option<u32> {
        match self {
            Setting::Default | Setting::Compaction | Setting::Khugepaged | Setting::Base => None,
            Setting::RangerSlow => Some(10),
            _ => Some(1),
        }
    }

    /// What is written to `/proc/PID/ranger` for a pass.
    pub fn request(self) -> &'static str {
        match self {
            Setting::AlignNone => "run align=none",
            Setting::Align1G => "run align=1G",
            Setting::FirstFit => "run anchor=first_fit",
            _ => "run",
        }
    }

    /// What the text of the thesis says that the largest 32 and 128 regions cover: of all
    /// programs (4.5.1), and of class B of 556.psp (4.5.2).
    pub fn published(self, class: Class) -> Option<[&'static str; 2]> {
        match (self, class) {
            (Setting::Default | Setting::Khugepaged, _) => Some(["< 1 %", "< 1 %"]),
            (Setting::Ranger | Setting::RangerSlow, Class::A) => Some(["> 60 %", "> 90 %"]),
            (Setting::Ranger, Class::B) => Some(["> 80 %", "to 99 %"]),
            (Setting::RangerSlow, Class::B) => Some(["> 45 %", "94 %"]),
            _ => None,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("none is skipped");
        f.write_str(value.get_name())
    }
}

/// How memory is fragmented and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    pub seed: u64,
    /// Files made for each MiB of the machine's memory.
    pub files: u32,
    /// Blocks of 2 MiB of which others hold a page, in per cent.
    pub hold: u32,
    /// Of the free memory, programs use so much, in per cent.
    pub share: u32,
    /// Of each program.
    pub steps: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_as_large_as_the_published_ones() {
        assert_eq!(scaled(128, 120_000_000_000), 128);
        assert_eq!(scaled(128, 6 << 30), 7);
        assert_eq!(scaled(32, 6 << 30), 2);
        // Never none at all.
        assert_eq!(scaled(32, 1 << 29), 1);
    }

    #[test]
    fn three_programs_are_of_class_a_and_two_of_class_b() {
        let of = |class| {
            let all = Program::value_variants().iter();
            all.filter(|program| program.class() == class).count()
        };
        assert_eq!((of(Class::A), of(Class::B)), (3, 2));
    }

    #[test]
    fn settings_say_what_the_kernel_is_told() {
        assert_eq!(Setting::Default.every(), None);
        assert_eq!(Setting::RangerSlow.every(), Some(10));
        assert_eq!(Setting::Align1G.request(), "run align=1G");
        assert_eq!(Setting::Align1G.to_string(), "align-1g");
        assert!(!Setting::RangerBase.huge() && Setting::Ranger.huge());
    }
}
