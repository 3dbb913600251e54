// SPDX-License-Identifier: GPL-2.0-or-later
//! The thesis' statements, one by one.

use super::case::Report;
use super::claims::{
    ALL, BASE, Claim, Data, EAGER, FINE, FITS, INFINITE, Kind, PAGED, Unit, Values, energy, line,
    time,
};
use lens_hatric::energy::Joules;

fn mean(values: Values, what: &str) -> Values {
    let sum: f64 = values.iter().map(|(_, v)| v).sum();
    vec![(what.to_owned(), sum / values.len().max(1) as f64)]
}

/// Mean time and energy of a scheme over another's, less one.
fn both(d: &Data, label: &str, scheme: &str, over: &str) -> Option<[f64; 2]> {
    let t = d.paged(label, |r| time(r, scheme, over))?;
    let e = d.paged(label, |r| energy(r, scheme, over))?;
    Some([mean(t, "")[0].1 - 1.0, mean(e, "")[0].1 - 1.0])
}

fn less_one(values: Option<Values>) -> Option<Values> {
    let less = |(what, v)| (what, v - 1.0);
    Some(values?.into_iter().map(less).collect())
}

fn vcpus() -> [&'static str; 3] {
    ["vcpus=4", "vcpus=8", BASE]
}

fn base_only<T>(label: &str, f: impl FnOnce() -> Option<T>) -> Option<T> {
    if label == BASE { f() } else { None }
}

/// Of what events in CPUs take, without leakage.
fn translation_share(j: &Joules) -> f64 {
    let all = j.core + j.translation + j.cotags + j.caches + j.directory;
    (j.translation + j.cotags) / all
}

const ANY: f64 = f64::INFINITY;
/// Less than this is no difference. "Within" has it as its lower end: with other waiting
/// times for memory a scheme may come out ahead of ideal by a hair.
const SAME: f64 = 0.005;

/// A claim whose values are of one label.
macro_rules! claim {
    ($at:literal, $kind:ident, $unit:ident, $want:expr, $says:literal, $values:expr) => {
        Claim {
            at: $at,
            says: $says,
            kind: Kind::$kind,
            unit: Unit::$unit,
            want: $want,
            values: $values,
        }
    };
}

/// All of them, in the thesis' order.
pub fn all() -> Vec<Claim> {
    let mut all = times();
    all.extend(mixes());
    all.extend(energies());
    all
}

fn times() -> Vec<Claim> {
    vec![
        claim!(
            "2.1",
            Range,
            Percent,
            (0.0, 0.33),
            "HATRIC improves performance by up to 33 %",
            |d, l| d.paged(l, |r| Some(1.0 - time(r, "hatric", "software")?))
        ),
        claim!(
            "2.1",
            Range,
            Percent,
            (0.0, 0.35),
            "better coherence could gain as much as 35 %",
            |d, l| d.paged(l, |r| Some(1.0 - time(r, "ideal", "software")?))
        ),
        claim!(
            "2.1",
            Range,
            Percent,
            (0.08, 0.15),
            "MMU caches and nested TLB, which UNITD leaves out, are 8 to 15 % of runtime",
            |d, l| d.paged(l, |r| Some(1.0 - time(r, "hatric", "unitd")?))
        ),
        claim!(
            "2.2.2",
            Range,
            Percent,
            (0.0, 0.01),
            "less than 1 % of remaps move pages of tables",
            |d, l| d.paged(l, |r| {
                let c = &line(r, "hatric")?.outcome.counts;
                Some(c.table_pages as f64 / c.remaps().max(1) as f64)
            })
        ),
        claim!(
            "Fig. 2.2",
            Range,
            Percent,
            (0.25, 0.75),
            "all memory stacked is 25 to 75 % better than off-chip",
            |d, l| d.paged(l, |r| Some(1.0 - time(r, "all-stacked", "off-chip")?))
        ),
        claim!(
            "Fig. 2.2",
            Range,
            Percent,
            (0.03, 0.10),
            "paging with ideal coherence comes within 3 to 10 % of that",
            |d, l| less_one(d.paged(l, |r| time(r, "ideal", "all-stacked")))
        ),
        claim!(
            "Fig. 2.2",
            Fitted,
            Percent,
            (0.18, 0.28),
            "data caching is 23 % slower than off-chip with software coherence",
            |d, l| less_one(d.each(l, &["data-caching"], |r| time(r, "software", "off-chip")))
        ),
        claim!(
            "Fig. 2.2",
            Fitted,
            Percent,
            (0.05, 0.15),
            "tunkrank is 10 % slower",
            |d, l| less_one(d.each(l, &["tunkrank"], |r| time(r, "software", "off-chip")))
        ),
        claim!(
            "2.3.1",
            Fitted,
            Percent,
            (0.25, 0.35),
            "canneal spends 30 % of its time on coherence",
            |d, l| d.each(l, &["canneal"], |r| Some(line(r, "software")?.coherence))
        ),
        claim!(
            "2.3.1",
            Predicted,
            Percent,
            (0.25, 0.35),
            "canneal spends 30 % of its time on copies",
            |d, l| d.each(l, &["canneal"], |r| Some(line(r, "software")?.copies))
        ),
        claim!(
            "2.1",
            Range,
            Percent,
            (0.0, 0.40),
            "up to 40 % of runtime is lost to coherence",
            |d, l| d.paged(l, |r| Some(line(r, "software")?.coherence))
        ),
        claim!(
            "Fig. 2.10",
            Range,
            Percent,
            (-SAME, 0.04),
            "HATRIC is within 2 to 4 % of ideal with 4, 8 and 16 vCPUs",
            |d, l| less_one(if l == BASE {
                d.under(&vcpus(), |r| time(r, "hatric", "ideal"))
            } else {
                d.paged(l, |r| time(r, "hatric", "ideal"))
            })
        ),
        claim!(
            "Fig. 2.10",
            Predicted,
            Ratio,
            (0.70, 0.80),
            "data caching with HATRIC takes about 0.75, with 4, 8 and 16 vCPUs",
            |d, l| {
                let labels = if l == BASE { vcpus().to_vec() } else { vec![l] };
                let one = |label: &str| {
                    Some((
                        label.to_owned(),
                        time(d.get(label, "data-caching")?, "hatric", "off-chip")?,
                    ))
                };
                labels.into_iter().map(one).collect()
            }
        ),
        claim!(
            "Fig. 2.10",
            Order,
            Ratio,
            (0.0, ANY),
            "software is worse with 8 vCPUs than with 4: data caching, tunkrank",
            |d, l| base_only(l, || ["data-caching", "tunkrank"]
                .iter()
                .map(|p| Some((
                    (*p).to_owned(),
                    d.between(p, ["vcpus=8", "vcpus=4"], more_software)?,
                )))
                .collect())
        ),
        claim!(
            "Fig. 2.10",
            Order,
            Ratio,
            (0.0, ANY),
            "software is worse with 4 vCPUs than with 16: graph500, facesim",
            |d, l| base_only(l, || ["graph500", "facesim"]
                .iter()
                .map(|p| Some((
                    (*p).to_owned(),
                    d.between(p, ["vcpus=4", BASE], more_software)?,
                )))
                .collect())
        ),
        claim!(
            "Fig. 2.11",
            Range,
            Percent,
            (0.10, 0.30),
            "HATRIC gains 10 to 30 % over software with plain LRU",
            |d, l| base_only(l, || d.paged("policy=clock", |r| Some(
                1.0 - time(r, "hatric", "software")?
            )))
        ),
        claim!(
            "Fig. 2.11",
            Range,
            Ratio,
            (-0.03, 0.03),
            "tunkrank with software: LRU and all policies are 2 to 3 % apart",
            |d, l| base_only(l, || Some(vec![(
                "tunkrank".to_owned(),
                d.between("tunkrank", ["policy=clock", BASE], more_software)?,
            )]))
        ),
        claim!(
            "Fig. 2.11",
            Order,
            Ratio,
            (0.0, ANY),
            "with HATRIC, daemon and prefetching both help",
            |d, l| base_only(l, || {
                let steps = [
                    ["policy=clock", "policy=clock+daemon"],
                    ["policy=clock+daemon", BASE],
                ];
                let mut all = Values::new();
                for p in PAGED {
                    for (step, what) in steps.into_iter().zip(["daemon", "prefetch"]) {
                        let gain = d.between(p, step, |a, b| {
                            Some(line(a, "hatric")?.relative - line(b, "hatric")?.relative)
                        })?;
                        all.push((format!("{p}, {what}"), gain));
                    }
                }
                Some(all)
            })
        ),
        claim!(
            "2.5.2",
            Order,
            Ratio,
            (0.0, ANY),
            "FIFO is worse than LRU",
            |d, l| base_only(l, || PAGED
                .iter()
                .map(|p| Some((
                    (*p).to_owned(),
                    d.between(p, ["policy=fifo", "policy=clock"], more_software)?,
                )))
                .collect())
        ),
        claim!(
            "Fig. 2.12",
            Range,
            Percent,
            (-0.01, 0.02),
            "software gains very little from structures of 4 times the size",
            |d, l| base_only(l, || gains(d, "software"))
        ),
        claim!(
            "Fig. 2.12",
            Range,
            Percent,
            (0.05, 0.07),
            "ideal gains 5 to 7 % from them",
            |d, l| base_only(l, || gains(d, "ideal"))
        ),
        claim!(
            "Fig. 2.12",
            Range,
            Percent,
            (-SAME, 0.01),
            "HATRIC is within 1 % of ideal with 2 and 4 times the size",
            |d, l| base_only(l, || less_one(
                d.under(&["scale=2", "scale=4"], |r| time(r, "hatric", "ideal"))
            ))
        ),
    ]
}

fn more_software(a: &Report, b: &Report) -> Option<f64> {
    Some(line(a, "software")?.relative - line(b, "software")?.relative)
}

/// What four times the entries save, of cycles and not of time beside off-chip, which
/// gains too.
fn gains(d: &Data, scheme: &str) -> Option<Values> {
    let gain = |p: &&str| {
        let by = d.between(p, ["scale=4", BASE], |a, b| {
            Some(line(a, scheme)?.cycles_per_access / line(b, scheme)?.cycles_per_access)
        })?;
        Some(((*p).to_owned(), 1.0 - by))
    };
    PAGED.iter().map(gain).collect()
}

fn share(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn mixes() -> Vec<Claim> {
    vec![
        claim!(
            "Fig. 2.13",
            Range,
            Percent,
            (0.60, 0.85),
            "software makes more than 70 % of the mixes slower (60 to 85 % taken for it)",
            |d, l| base_only(l, || d.over_mixes("of the mixes", |r| {
                Some(share(line(r, "software")?.weighted() > 1.0))
            }))
        ),
        claim!(
            "Fig. 2.13",
            Range,
            Percent,
            (0.075, 0.25),
            "11 of 80 take more than twice as long (6 to 20 taken for it)",
            |d, l| base_only(l, || d.over_mixes("of the mixes", |r| {
                Some(share(line(r, "software")?.weighted() > 2.0))
            }))
        ),
        claim!(
            "Fig. 2.13",
            Range,
            Percent,
            (0.50, 1.0),
            "in more than half the slowest program takes at least twice as long",
            |d, l| base_only(l, || d.over_mixes("of the mixes", |r| {
                Some(share(line(r, "software")?.slowest() >= 2.0))
            }))
        ),
        claim!(
            "Fig. 2.13",
            Range,
            Ratio,
            (4.0, ANY),
            "at most it takes 4 times as long, and more",
            |d, l| base_only(l, || {
                let all = d.of_mixes(|r| Some(line(r, "software")?.slowest()))?;
                let most = |a: (String, f64), b: (String, f64)| if b.1 > a.1 { b } else { a };
                all.into_iter().reduce(most).map(|worst| vec![worst])
            })
        ),
        claim!(
            "Fig. 2.13",
            Range,
            Ratio,
            (0.5, 0.8),
            "HATRIC reduces every mix to 0.5 to 0.8",
            |d, l| base_only(l, || d.of_mixes(|r| Some(line(r, "hatric")?.weighted())))
        ),
        claim!(
            "Fig. 2.13",
            Range,
            Ratio,
            (0.0, 1.0),
            "with HATRIC the slowest program gains too",
            |d, l| base_only(l, || d.of_mixes(|r| Some(line(r, "hatric")?.slowest())))
        ),
    ]
}

fn fits(d: &Data, f: impl Fn(&Report) -> Option<f64>) -> Option<Values> {
    let names = FITS.map(|(name, _)| name);
    d.each("fits", &names, f)
}

fn energies() -> Vec<Claim> {
    vec![
        claim!(
            "2.4.1",
            Fitted,
            Percent,
            (0.13, 0.15),
            "translation takes 13 to 15 % of a processor's energy",
            |d, l| Some(mean(
                d.paged(l, |r| Some(translation_share(
                    &line(r, "all-stacked")?.energy
                )))?,
                "mean",
            ))
        ),
        claim!(
            "2.4.3",
            Order,
            Percent,
            (-0.001, 0.001),
            "one or two more directory entries a line: no difference in time",
            |d, l| Some(vec![(
                "time".to_owned(),
                both(d, l, "hatric:extra=1", "hatric")?[0]
            )])
        ),
        claim!(
            "2.4.5",
            Fitted,
            Percent,
            (0.0019, 0.0021),
            "co-tags take 0.2 % of a CPU's area",
            |d, l| d.each(l, &["canneal"], |r| Some(line(r, "hatric")?.area))
        ),
        claim!(
            "Fig. 2.14",
            Range,
            Ratio,
            (0.0, 1.0),
            "HATRIC is never slower than software, also where programs fit",
            |d, l| {
                let mut all = d.paged(l, |r| time(r, "hatric", "software"))?;
                if l == BASE {
                    all.extend(fits(d, |r| time(r, "hatric", "software"))?);
                }
                Some(all)
            }
        ),
        claim!(
            "Fig. 2.14",
            Range,
            Percent,
            (-0.10, 0.015),
            "its energy is 10 % less to 1.5 % more",
            |d, l| {
                let mut all = d.paged(l, |r| energy(r, "hatric", "software"))?;
                if l == BASE {
                    all.extend(fits(d, |r| energy(r, "hatric", "software"))?);
                }
                less_one(Some(all))
            }
        ),
        claim!(
            "Fig. 2.14",
            Order,
            Percent,
            (0.0, ANY),
            "co-tags of 1 byte are slower and take more energy than those of 2",
            |d, l| {
                let [t, e] = both(d, l, "hatric:cotag=8", "hatric")?;
                Some(vec![("time".to_owned(), t), ("energy".to_owned(), e)])
            }
        ),
        claim!(
            "Fig. 2.14",
            Order,
            Percent,
            (0.0, ANY),
            "those of 3 bytes are faster and take more energy",
            |d, l| {
                let [t, e] = both(d, l, "hatric:cotag=24", "hatric")?;
                Some(vec![
                    ("time saved".to_owned(), -t),
                    ("energy".to_owned(), e),
                ])
            }
        ),
        claim!(
            "Fig. 2.15",
            Order,
            Percent,
            (-SAME, SAME),
            "eager updates, fine tracking, no back-invalidations and all: the same time",
            |d, l| [EAGER, FINE, INFINITE, ALL]
                .into_iter()
                .map(|s| Some((
                    s.trim_start_matches("hatric:").to_owned(),
                    both(d, l, s, "hatric")?[0],
                )))
                .collect()
        ),
        claim!(
            "Fig. 2.15",
            Order,
            Percent,
            (0.0, ANY),
            "eager updates, fine tracking and all: more energy",
            |d, l| [EAGER, FINE, ALL]
                .into_iter()
                .map(|s| Some((
                    s.trim_start_matches("hatric:").to_owned(),
                    both(d, l, s, "hatric")?[1],
                )))
                .collect()
        ),
        claim!(
            "Fig. 2.15",
            Order,
            Percent,
            (-ANY, 0.0),
            "no back-invalidations: less time and energy",
            |d, l| {
                let [t, e] = both(d, l, INFINITE, "hatric")?;
                Some(vec![("time".to_owned(), t), ("energy".to_owned(), e)])
            }
        ),
        claim!(
            "Fig. 2.16",
            Range,
            Percent,
            (0.05, 0.10),
            "UNITD++ is 5 to 10 % behind",
            |d, l| less_one(d.paged(l, |r| time(r, "unitd", "hatric")))
        ),
        claim!(
            "Fig. 2.16",
            Order,
            Percent,
            (0.0, ANY),
            "UNITD++ is faster than software",
            |d, l| less_one(d.paged(l, |r| time(r, "software", "unitd")))
        ),
        claim!(
            "Fig. 2.16",
            Order,
            Percent,
            (0.0, ANY),
            "UNITD++ takes more energy",
            |d, l| less_one(d.paged(l, |r| energy(r, "unitd", "hatric")))
        ),
        claim!(
            "2.6, Xen",
            Predicted,
            Percent,
            (0.16, 0.26),
            "canneal gains 21 % over the best policy with software coherence",
            |d, l| d.each(l, &["canneal"], |r| Some(
                1.0 - time(r, "hatric", "software")?
            ))
        ),
        claim!(
            "2.6, Xen",
            Predicted,
            Percent,
            (0.28, 0.38),
            "data caching gains 33 %",
            |d, l| d.each(l, &["data-caching"], |r| Some(
                1.0 - time(r, "hatric", "software")?
            ))
        ),
    ]
}
