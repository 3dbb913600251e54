// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs, as parameters of generators.
//!
//! A program is a mix of *visits* to pages. A visit makes a few accesses to one
//! page. Where it goes is either drawn from a power law of popularity or next in a
//! sweep. The pager needs only where visits go, so running it ahead costs a few
//! nanoseconds each.

use crate::machine::Refused;
use lens::access::Access;
use lens::address::PageSize;
use lens::hash::Rng;
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
    /// Data.
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
    pub part: Vec<Part>,
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
        range(
            "footprint (MiB)",
            self.footprint.0 as f64 / 1048576.0,
            1.0,
            65536.0,
        )?;
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

/// Ranks drawn from a power law, by its quantiles.
#[derive(Debug)]
struct Popularity {
    /// Rank below which each 2^-12 of all draws fall.
    quantile: Box<[f64]>,
}

const BITS: u32 = 12;

impl Popularity {
    /// Of `n` ranks, rank r being drawn as often as `(r + 1 + plateau * n)^-skew` says.
    fn new(n: u64, skew: f64, plateau: f64) -> Self {
        let n = n as f64;
        // The continuous law on `first` to `first` + n, in units of `first`.
        let first = 1.0 + plateau * n;
        let last = (first + n) / first;
        let rank = |u: f64| -> f64 {
            let x = match (1.0 - skew).abs() < 1e-6 {
                true => (u * last.ln()).exp(),
                false => {
                    let a = 1.0 - skew;
                    (u * (last.powf(a) - 1.0) + 1.0).powf(1.0 / a)
                }
            };
            (first * (x - 1.0)).clamp(0.0, n)
        };
        let points = 1 << BITS;
        Popularity {
            quantile: (0..=points)
                .map(|i| rank(f64::from(i) / f64::from(points)))
                .collect(),
        }
    }

    #[inline]
    fn draw(&self, bits: u64) -> u64 {
        let at = (bits >> (64 - BITS)) as usize;
        let (lo, hi) = (self.quantile[at], self.quantile[at + 1]);
        let within = (bits << BITS >> 11) as f64 / (1u64 << 53) as f64;
        (lo + (hi - lo) * within) as u64
    }
}

#[derive(Debug, Clone)]
enum Walk {
    Drawn {
        law: Arc<Popularity>,
        clusters: u64,
        cluster: u64,
        /// Coprime to `clusters`: spreads popular clusters over the region.
        factor: u64,
    },
    Swept {
        /// Next line, and the lines of this thread's share.
        at: u64,
        from: u64,
        to: u64,
    },
}

#[derive(Debug, Clone)]
struct Stream {
    /// Draws below this and not below the stream before are its.
    upto: u64,
    first: u64,
    pages: u64,
    walk: Walk,
    part: Part,
}

/// Where a visit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// Page of 4 KiB within the program's data.
    pub page: u64,
    /// Its first line there.
    line: u8,
    /// How many accesses.
    pub lines: u8,
    stream: u8,
}

/// One thread of a program.
#[derive(Debug, Clone)]
pub struct Thread {
    streams: Vec<Stream>,
    /// Decides where visits go.
    rng: Rng,
    /// Decides what they do there; not asked when only pages matter.
    detail: Rng,
}

fn coprime_factor(n: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // Near the golden section, so that neighbours land far apart.
    let start = (n as f64 * 0.618_033_988) as u64 | 1;
    (start..).find(|&f| gcd(f, n) == 1).unwrap_or(1)
}

impl Program {
    /// Its threads, `count` of them.
    pub fn threads(&self, count: usize, seed: u64) -> Vec<Thread> {
        let small = self.pages() << (self.size().shift() - 12);
        let total: f64 = self.part.iter().map(|p| p.weight).sum();
        let mut streams = Vec::new();
        let mut sum = 0.0;
        for part in &self.part {
            sum += part.weight;
            let first = (part.region[0] * small as f64) as u64;
            let end = ((part.region[1] * small as f64) as u64).max(first + 1);
            let pages = end.min(small) - first;
            let walk = match part.skew {
                Some(skew) => {
                    let clusters = pages.div_ceil(part.cluster);
                    Walk::Drawn {
                        law: Arc::new(Popularity::new(pages, skew, part.plateau)),
                        clusters,
                        cluster: part.cluster,
                        factor: coprime_factor(clusters),
                    }
                }
                None => Walk::Swept {
                    at: 0,
                    from: 0,
                    to: pages * 64,
                },
            };
            streams.push(Stream {
                upto: (sum / total * u64::MAX as f64) as u64,
                first,
                pages,
                walk,
                part: part.clone(),
            });
        }
        if let Some(last) = streams.last_mut() {
            last.upto = u64::MAX;
        }
        let thread = |t: usize| {
            let mut streams = streams.clone();
            for s in &mut streams {
                if let Walk::Swept { at, from, to } = &mut s.walk {
                    let share = |i: usize| *to * i as u64 / count as u64;
                    (*from, *to) = (share(t), share(t + 1).max(share(t) + 1));
                    *at = *from;
                }
            }
            let own = lens::hash::mix(seed ^ (t as u64 + 1) << 32);
            Thread {
                streams,
                rng: Rng::new(own),
                detail: Rng::new(own ^ 0x5555),
            }
        };
        (0..count).map(thread).collect()
    }
}

impl Thread {
    /// Does on its visits what `program` does, which goes to the same pages.
    pub fn take_details(&mut self, program: &Program) {
        for (stream, part) in self.streams.iter_mut().zip(&program.part) {
            stream.part = part.clone();
        }
    }

    /// Where it goes next.
    #[inline]
    pub fn visit(&mut self) -> Visit {
        let which = match self.streams.len() {
            1 => 0,
            _ => {
                let draw = self.rng.bits();
                let at = self.streams.iter().position(|s| draw <= s.upto);
                at.unwrap_or(0)
            }
        };
        let s = &mut self.streams[which];
        let lines = s.part.lines;
        let (page, line) = match &mut s.walk {
            Walk::Drawn {
                law,
                clusters,
                cluster,
                factor,
            } => {
                let bits = self.rng.bits();
                let rank = law.draw(bits);
                let spread = (rank / *cluster).min(*clusters - 1) * *factor % *clusters;
                let page = (spread * *cluster + rank % *cluster).min(s.pages - 1);
                (page, bits % 64)
            }
            Walk::Swept { at, from, to } => {
                let line = *at;
                // Not beyond the page's end: a visit is to one page.
                *at += u64::from(lines).min(64 - line % 64);
                if *at >= *to {
                    *at = *from;
                }
                (line / 64, line % 64)
            }
        };
        let lines = match s.walk {
            Walk::Drawn { .. } => u64::from(lines),
            Walk::Swept { .. } => u64::from(lines).min(64 - line),
        };
        Visit {
            page: s.first + page.min(s.pages - 1),
            line: line as u8,
            lines: lines as u8,
            stream: which as u8,
        }
    }

    /// Access `number` of `v`, and the line within the page that it is to. The
    /// address is that within the program's data.
    #[inline]
    pub fn access(&mut self, v: Visit, number: u8) -> (u64, Access) {
        let part = &self.streams[usize::from(v.stream)].part;
        let line = u64::from((v.line + number) % 64);
        let draw = self.detail.bits();
        let below = |share: f64, draw: u64| (draw as u32 as f64) < share * u32::MAX as f64;
        let va = v.page << 12 | line << 6;
        let mut a = match below(part.stores, draw) {
            true => Access::store(va),
            false => Access::load(va),
        };
        a.dependent = number == 0 && below(part.dependent, draw >> 32);
        (line, a.with_work(part.work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_part(part: &str) -> Program {
        let text = format!(
            "[p]\nnote = \"\"\nfootprint = \"16 MiB\"\nbase = 1.0\nwindow = 4.0\n[[p.part]]\nweight = 1.0\n{part}"
        );
        Program::read(&text).unwrap().remove("p").unwrap()
    }

    #[test]
    fn every_program_that_ships_reads_and_says_that_it_is_synthetic() {
        let all = Program::builtin();
        for name in ["canneal", "facesim", "data-caching", "tunkrank", "graph500"] {
            let p = Program::find(&all, name).unwrap();
            assert!(p.footprint > Bytes::gib(2) && !p.sequential, "{name}");
        }
        assert!(all.values().all(|p| p.note.contains("synthetic")));
        let e = Program::find(&all, "doom").unwrap_err().to_string();
        assert!(e.contains("`doom`") && e.contains("canneal"), "{e}");
    }

    #[test]
    fn popular_pages_are_drawn_as_often_as_the_law_says() {
        for (skew, plateau) in [
            (0.0, 0.0),
            (0.7, 0.0),
            (1.0, 0.0),
            (1.3, 0.0),
            (1.0, 0.1),
            (4.0, 0.25),
        ] {
            let n = 4096u64;
            let law = Popularity::new(n, skew, plateau);
            let mut rng = Rng::new(9);
            let draws = 400_000;
            let head = (0..draws).filter(|_| law.draw(rng.bits()) < n / 16).count() as f64;
            // Of the continuous law that stands for it.
            let first = 1.0 + plateau * n as f64;
            let mass = |m: f64| match skew == 1.0 {
                true => ((m + first) / first).ln(),
                false => ((m + first).powf(1.0 - skew) - first.powf(1.0 - skew)) / (1.0 - skew),
            };
            let want = mass(n as f64 / 16.0) / mass(n as f64);
            let got = head / f64::from(draws);
            assert!((got - want).abs() < 0.005, "{skew}: {got} for {want}");
        }
    }

    #[test]
    fn a_spread_draw_reaches_all_pages_and_only_those() {
        let p = one_part("skew = 0.0\ncluster = 8\nlines = 1\n");
        let mut t = p.threads(1, 1).remove(0);
        let mut seen = vec![false; 4096];
        for _ in 0..100_000 {
            seen[t.visit().page as usize] = true;
        }
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn threads_sweep_shares_that_together_are_all() {
        let p = one_part("lines = 16\n");
        let mut seen = vec![0; 4096];
        for mut t in p.threads(3, 1) {
            for _ in 0..4096 * 4 / 3 {
                let v = t.visit();
                assert!(v.line % 64 + v.lines <= 64);
                seen[v.page as usize] += u32::from(v.lines);
            }
        }
        assert!(seen.iter().filter(|&&n| n == 64).count() > 4000);
    }

    #[test]
    fn what_visits_do_does_not_change_where_they_go() {
        let p = one_part("skew = 0.8\nlines = 3\nstores = 0.5\ndependent = 1.0\n");
        let [mut a, mut b] = [p.threads(1, 1).remove(0), p.threads(1, 1).remove(0)];
        let mut stores = 0;
        for _ in 0..1000 {
            let v = a.visit();
            assert_eq!(b.visit(), v);
            for n in 0..v.lines {
                let (line, access) = a.access(v, n);
                assert_eq!(access.va, v.page << 12 | line << 6);
                assert_eq!(access.dependent, n == 0);
                stores += i32::from(access.write);
            }
        }
        assert!((stores - 1500).abs() < 120, "{stores}");
    }

    #[test]
    fn what_is_assumed_of_programs_can_be_scaled() {
        let p = one_part("skew = 0.8\nlines = 3\nstores = 0.5\ncluster = 4\nplateau = 0.2\n");
        let with = |key, factor| p.scaled(key, factor).unwrap();
        assert_eq!(with("base", 2.0).base, 2.0 * p.base);
        assert_eq!(with("window", 100.0).window, 32.0);
        assert_eq!(with("footprint", 0.5).footprint.0, p.footprint.0 / 2);
        assert_eq!(with("cluster", 0.1).part[0].cluster, 1);
        assert_eq!(with("stores", 3.0).part[0].stores, 1.0);
        assert_eq!(with("plateau", 2.0).part[0].plateau, 0.4);
        let e = p.scaled("lines", 2.0).unwrap_err().to_string();
        assert!(e.contains("program is `lines`; there are base"), "{e}");
        let e = p.scaled("base", -1.0).unwrap_err().to_string();
        assert!(e.contains("program.base is -1; 0 to 100"), "{e}");
        let e = p.scaled("footprint", 0.0).unwrap_err().to_string();
        assert!(e.contains("footprint (MiB) is 0; 1 to"), "{e}");
    }

    #[test]
    fn refusals_name_the_program_and_the_key() {
        for (part, says) in [
            ("lines = 0\n", "p.part.lines is 0; 1 to 64"),
            ("lines = 1\nskew = 9.0\n", "p.part.skew is 9; 0 to 8"),
            ("lines = 1\nplateau = 2.0\n", "p.part.plateau is 2; 0 to 1"),
            ("lines = 1\nregion = [0.5, 0.4]\n", "p.part.region"),
            ("lines = 1\nspeed = 1\n", "speed"),
        ] {
            let text = format!(
                "[p]\nnote = \"\"\nfootprint = \"16 MiB\"\nbase = 1.0\nwindow = 4.0\n[[p.part]]\nweight = 1.0\n{part}"
            );
            let e = Program::read(&text).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
    }
}
