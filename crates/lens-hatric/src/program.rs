// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs, as parameters of generators.
//!
//! A program is a mix of *visits* to pages. A visit makes a few accesses to one
//! page. Where it goes is either drawn from a power law of popularity or next in a
//! sweep. The pager needs only where visits go, so running it ahead costs a few
//! nanoseconds each. Or what a program does was recorded, and is played.

mod recorded;
mod thread;

pub use recorded::Recorded;
pub use thread::{Thread, Visit};

use crate::machine::Refused;
use lens::address::PageSize;
use lens::units::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Programs that come with this crate. All are synthetic.
pub const BUILTIN: &str = include_str!("../programs.toml");

/// A kind of visit.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Share of visits, relative to the program's other parts.
    pub weight: f64,
    /// What part of the data it goes to: from and to, 0 to 1.
    #[serde(default = "whole")]
    pub region: [f64; 2],
    /// Skew of popularity, 0 (uniform) to 8; absent for a sweep, of which each
    /// thread makes its own share of the region.
    pub skew: Option<f64>,
    /// Share of the region's pages that are all drawn about as often as the most
    /// popular one, 0 to 1: the q of Zipf's law as Mandelbrot has it,
    /// (rank + q)^-skew.
    #[serde(default)]
    pub plateau: f64,
    /// Neighbouring pages that are about as popular, 1 to 512.
    #[serde(default = "one")]
    pub cluster: u64,
    /// Accesses of a visit, to consecutive lines, 1 to 64.
    pub lines: u32,
    /// Share of visits whose first address depends on the access before.
    #[serde(default)]
    pub dependent: f64,
    /// Share of accesses that are stores.
    #[serde(default)]
    pub stores: f64,
    /// Units of work before an access, 0 to 255.
    #[serde(default = "unit")]
    pub work: u8,
}

fn whole() -> [f64; 2] {
    [0.0, 1.0]
}
const fn one() -> u64 {
    1
}
const fn unit() -> u8 {
    1
}

/// What a program is like.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What stands behind the numbers.
    pub note: String,
    /// Data; of a recorded program, what its pages take.
    #[serde(default)]
    pub footprint: Bytes,
    /// Whether its pages are of 2 MiB.
    #[serde(default)]
    pub superpages: bool,
    /// Whether it is one of the sequential programs that mixes are drawn from.
    #[serde(default)]
    pub sequential: bool,
    /// Cycles of a unit of work.
    pub base: f64,
    /// Independent accesses in flight, 1 to 32.
    pub window: f64,
    /// Its visits.
    #[serde(default)]
    pub part: Vec<Part>,
    /// A file of recorded accesses in their place, for [`Program::play`].
    pub trace: Option<String>,
    #[serde(skip)]
    recorded: Option<Arc<Recorded>>,
}

impl Program {
    /// All programs of `text`, by name.
    ///
    /// # Errors
    /// What is wrong, by program and key.
    pub fn read(text: &str) -> Result<BTreeMap<String, Program>, Refused> {
        let all: BTreeMap<String, Program> = toml::from_str(text)
            .map_err(|e| Refused::value("programs", e, "see programs.toml for what is allowed"))?;
        for (name, p) in &all {
            p.check(name)?;
        }
        Ok(all)
    }

    /// The programs that come with this crate.
    ///
    /// # Panics
    /// If their file were wrong.
    pub fn builtin() -> BTreeMap<String, Program> {
        Program::read(BUILTIN).expect("a test reads the programs that come with this crate")
    }

    /// One of `all` by name.
    ///
    /// # Errors
    /// That there is none, and which there are.
    pub fn find<'a>(
        all: &'a BTreeMap<String, Program>,
        name: &str,
    ) -> Result<&'a Program, Refused> {
        all.get(name).ok_or_else(|| {
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            Refused::value(
                "program",
                format!("`{name}`"),
                format!("there are {}", names.join(", ")),
            )
        })
    }

    fn check(&self, name: &str) -> Result<(), Refused> {
        let range = |key: &str, value: f64, lo: f64, hi: f64| {
            Refused::unless_in(&format!("{name}.{key}"), value, lo, hi)
        };
        range("base", self.base, 0.0, 1e6)?;
        range("window", self.window, 1.0, 32.0)?;
        if self.trace.is_some() && self.recorded.is_none() {
            let given = (self.footprint.0, self.part.len());
            return match given {
                (0, 0) => Ok(()),
                _ => Err(Refused::value(
                    format!("{name}.trace"),
                    "beside a footprint or parts",
                    "a trace has its own: leave them out",
                )),
            };
        }
        range(
            "footprint (MiB)",
            self.footprint.0 as f64 / 1048576.0,
            1.0,
            65536.0,
        )?;
        if self.recorded.is_some() {
            return Ok(());
        }
        range("part (how many)", self.part.len() as f64, 1.0, 16.0)?;
        for p in &self.part {
            range("part.weight", p.weight, 1e-6, 1e6)?;
            range("part.skew", p.skew.unwrap_or(0.0), 0.0, 8.0)?;
            range("part.plateau", p.plateau, 0.0, 1.0)?;
            range("part.cluster", p.cluster as f64, 1.0, 512.0)?;
            range("part.lines", p.lines.into(), 1.0, 64.0)?;
            range("part.dependent", p.dependent, 0.0, 1.0)?;
            range("part.stores", p.stores, 0.0, 1.0)?;
            range("part.region", p.region[0], 0.0, p.region[1])?;
            range("part.region", p.region[1], p.region[0] + 0.001, 1.0)?;
        }
        Ok(())
    }

    /// The same with some assumed property `factor` times as large: of the program
    /// `base`, `window` or `footprint`, of all its parts `plateau`, `cluster`,
    /// `stores` or `dependent`. What has an upper limit stays within it.
    ///
    /// # Errors
    /// That there is no such property, and which there are, or a factor out of range.
    pub fn scaled(&self, key: &str, factor: f64) -> Result<Program, Refused> {
        Refused::unless_in(&format!("program.{key}"), factor, 0.0, 100.0)?;
        if self.trace.is_some() && !["base", "window"].contains(&key) {
            let says = "of a recorded program base and window are assumed, and nothing else";
            return Err(Refused::value("program", format!("`{key}`"), says));
        }
        let mut p = self.clone();
        match key {
            "base" => p.base *= factor,
            "window" => p.window = (p.window * factor).clamp(1.0, 32.0),
            "footprint" => p.footprint = Bytes((p.footprint.0 as f64 * factor) as u64),
            _ => {}
        }
        for part in &mut p.part {
            match key {
                "plateau" => part.plateau = (part.plateau * factor).min(1.0),
                "cluster" => {
                    let pages = (part.cluster as f64 * factor).round() as u64;
                    part.cluster = pages.clamp(1, 512);
                }
                "stores" => part.stores = (part.stores * factor).min(1.0),
                "dependent" => part.dependent = (part.dependent * factor).min(1.0),
                "base" | "window" | "footprint" => {}
                _ => {
                    let says = "there are base, window, footprint, plateau, cluster, stores \
                                and dependent";
                    return Err(Refused::value("program", format!("`{key}`"), says));
                }
            }
        }
        p.check("scaled")?;
        Ok(p)
    }

    /// The same with `recorded` in place of parts.
    ///
    /// # Errors
    /// [`Refused`] if its pages are more than a program may have.
    pub fn play(&self, recorded: Arc<Recorded>) -> Result<Program, Refused> {
        let mut p = self.clone();
        p.footprint = Bytes(recorded.pages() << 12);
        p.recorded = Some(recorded);
        p.check("trace")?;
        Ok(p)
    }

    /// How many threads were recorded, if it was.
    pub fn recorded_threads(&self) -> Option<usize> {
        self.recorded.as_ref().map(|r| r.threads())
    }

    /// Size of its pages.
    pub fn size(&self) -> PageSize {
        match self.superpages {
            true => PageSize::Size2M,
            false => PageSize::Size4K,
        }
    }

    /// How many pages it has.
    pub fn pages(&self) -> u64 {
        self.footprint.0.div_ceil(self.size().bytes())
    }
}

#[cfg(test)]
mod tests;
