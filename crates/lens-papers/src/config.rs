// SPDX-License-Identifier: GPL-2.0-or-later
//! The papers' configuration names and what they stand for.
//!
//! | names | from | meaning |
//! |---|---|---|
//! | `LP-LD` ... `RPI-RDI`, `+M` | Mitosis Table 2 | tables / data local or remote, `I` = a hog on the remote node, `+M` = tables migrated |
//! | `F`, `F-A`, `I`, `+M` | Mitosis Table 3 | first touch, with AutoNUMA, interleaved; `+M` = replicated |
//! | `LL` ... `RRI`, `M`/`E`/`G` | vMitosis Figures 1 and 3 | guest / nested tables local or remote; both, nested or guest tables migrated |
//! | `L`, `R`, `RI`, `RIM` | vMitosis artifact | the same machine without a hypervisor |
//! | `F`, `FA`, `I`, `M` | vMitosis Figure 4 | NUMA-visible guest over all sockets |
//! | `OF`, `OFMP`, `OFMF` | vMitosis Figure 5 | NUMA-oblivious guest; paravirtual and fully virtual replication |
//! | `SL`, `STL`, `SI`, `M` | vMitosis artifact | over all sockets without a hypervisor |
//!
//! A leading `T` is transparent huge pages (after the `S` where there is one),
//! `TF` before a one-socket name is transparent huge pages on fragmented
//! memory.

use crate::workload::Scenario;
use lens::layout::{DataPolicy, HugePolicy, Nested, Policies, TablePolicy};

/// Share of the pages that AutoNUMA has moved when the papers measure. The
/// Mitosis slides' dump of Memcached shows half to two thirds of the data on
/// its way; every thread uses every page alike, so it moves at random.
pub const AUTONUMA_MOVED: f64 = 0.6;

/// A configuration, parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The name as given.
    pub name: String,
    /// Size and threads.
    pub scenario: Scenario,
    /// Placement.
    pub policies: Policies,
    /// Node with a bandwidth hog.
    pub interferer: Option<usize>,
    /// Configuration that its runtime is normalised to.
    pub baseline: &'static str,
}

/// Which naming scheme a configuration is in: the same letters mean different
/// things in the two papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Mitosis' names.
    Mitosis,
    /// Mitosis' names, `T` on fragmented memory (Figure 11).
    MitosisFragmented,
    /// vMitosis' names.
    VMitosis,
}

/// The configuration is not one of the papers'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a configuration; there are [T]{{L,R}}P[I]-{{L,R}}D[I][+M] and [T]{{F,F-A,I}}[+M] \
     (Mitosis), [T|TF]{{L,R}}{{L,R}}[I][M|E|G], [T]{{L,R}}[I][M], [T]{{F,FA,I}}[M], [T]OF[MP|MF] \
     and S[T]{{L,I}}[M] (vMitosis)"
)]
pub struct UnknownConfig(pub String);

/// Node of threads and local things in one-socket configurations.
const HOME: usize = 0;
/// Node of remote things.
const AWAY: usize = 1;

fn side(c: char) -> Option<usize> {
    match c {
        'L' => Some(HOME),
        'R' => Some(AWAY),
        _ => None,
    }
}

fn strip<'a>(text: &mut &'a str, prefix: &str) -> bool {
    match text.strip_prefix(prefix) {
        Some(rest) => {
            let rest: &'a str = rest;
            *text = rest;
            true
        }
        None => false,
    }
}

fn take_side(text: &mut &str) -> Option<usize> {
    let node = side(text.chars().next()?)?;
    *text = &text[1..];
    Some(node)
}

const TRANSPARENT: HugePolicy = HugePolicy::Transparent { available: 1.0 };

fn first_touch(auto: bool) -> DataPolicy {
    DataPolicy::FirstTouch {
        moved: if auto { AUTONUMA_MOVED } else { 0.0 },
    }
}

fn replicated_if(m: bool) -> TablePolicy {
    if m {
        TablePolicy::Replicated
    } else {
        TablePolicy::Stock
    }
}

impl Setup {
    /// Parses `name` in `scheme`.
    ///
    /// # Errors
    /// [`UnknownConfig`], which lists the names there are.
    pub fn parse(name: &str, scheme: Scheme) -> Result<Self, UnknownConfig> {
        let parsed = match scheme {
            Scheme::Mitosis => mitosis(name, TRANSPARENT),
            Scheme::MitosisFragmented => mitosis(name, HugePolicy::Fragmented),
            Scheme::VMitosis => vmitosis(name),
        };
        parsed.ok_or_else(|| UnknownConfig(name.to_owned()))
    }
}

fn mitosis(name: &str, huge: HugePolicy) -> Option<Setup> {
    let mut text = name;
    let huge = if strip(&mut text, "T") {
        huge
    } else {
        HugePolicy::Never
    };
    let migrated = match text.strip_suffix("+M") {
        Some(rest) => {
            text = rest;
            true
        }
        None => false,
    };
    let wide = |data| {
        let tables = replicated_if(migrated);
        Some(Setup {
            name: name.to_owned(),
            scenario: Scenario::Wide,
            policies: Policies {
                data,
                tables,
                huge,
                nested: None,
            },
            interferer: None,
            baseline: "F",
        })
    };
    match text {
        "F" => return wide(first_touch(false)),
        "F-A" => return wide(first_touch(true)),
        "I" => return wide(DataPolicy::Interleave),
        _ => {}
    }
    let tables = take_side(&mut text)?;
    strip(&mut text, "P").then_some(())?;
    let mut hog = strip(&mut text, "I");
    strip(&mut text, "-").then_some(())?;
    let data = take_side(&mut text)?;
    strip(&mut text, "D").then_some(())?;
    hog |= strip(&mut text, "I");
    text.is_empty().then_some(())?;
    let tables = TablePolicy::Fixed(if migrated { HOME } else { tables });
    Some(Setup {
        name: name.to_owned(),
        scenario: Scenario::Thin,
        policies: Policies {
            data: DataPolicy::Fixed(data),
            tables,
            huge,
            nested: None,
        },
        interferer: hog.then_some(AWAY),
        baseline: "LP-LD",
    })
}

fn vmitosis(name: &str) -> Option<Setup> {
    vmitosis_wide(name).or_else(|| vmitosis_thin(name))
}

fn vmitosis_wide(name: &str) -> Option<Setup> {
    let mut text = name;
    let bare = strip(&mut text, "S");
    let huge_on = strip(&mut text, "T");
    let huge = if huge_on {
        TRANSPARENT
    } else {
        HugePolicy::Never
    };
    let (data, oblivious, copies) = match (bare, text) {
        (false, "F" | "FM") => (first_touch(false), false, text == "FM"),
        (false, "FA" | "FAM") => (first_touch(true), false, text == "FAM"),
        (_, "I" | "IM") => (DataPolicy::Interleave, false, text == "IM"),
        (true, "L" | "LM") => (first_touch(false), false, text == "LM"),
        (false, "OF" | "OFMP" | "OFMF") => (first_touch(false), true, text != "OF"),
        _ => return None,
    };
    let tables = match (oblivious, copies) {
        (true, false) => TablePolicy::Random,
        (_, copies) => replicated_if(copies),
    };
    let nested = Nested {
        tables: replicated_if(copies),
        huge: if huge_on { 1.0 } else { 0.0 },
    };
    Some(Setup {
        name: name.to_owned(),
        scenario: Scenario::VirtualWide,
        policies: Policies {
            data,
            tables,
            huge,
            nested: (!bare).then_some(nested),
        },
        interferer: None,
        baseline: if bare {
            "SL"
        } else if oblivious {
            "OF"
        } else {
            "F"
        },
    })
}

fn vmitosis_thin(name: &str) -> Option<Setup> {
    let mut text = name;
    let (guest_huge, host_huge) = if strip(&mut text, "TF") {
        (HugePolicy::Fragmented, 1.0)
    } else if strip(&mut text, "T") {
        (TRANSPARENT, 1.0)
    } else {
        (HugePolicy::Never, 0.0)
    };
    let guest = take_side(&mut text)?;
    let nested = take_side(&mut text);
    let hog = strip(&mut text, "I");
    let (guest_home, nested_home) = match text {
        "" => (false, false),
        "M" => (true, true),
        "E" if nested.is_some() => (false, true),
        "G" if nested.is_some() => (true, false),
        _ => return None,
    };
    let fixed = |node, home| TablePolicy::Fixed(if home { HOME } else { node });
    Some(Setup {
        name: name.to_owned(),
        scenario: Scenario::VirtualThin,
        policies: Policies {
            data: DataPolicy::Fixed(HOME),
            tables: fixed(guest, guest_home),
            huge: guest_huge,
            nested: nested.map(|n| Nested {
                tables: fixed(n, nested_home),
                huge: host_huge,
            }),
        },
        interferer: hog.then_some(AWAY),
        baseline: if nested.is_some() { "LL" } else { "L" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m(name: &str) -> Setup {
        Setup::parse(name, Scheme::Mitosis).unwrap()
    }
    fn v(name: &str) -> Setup {
        Setup::parse(name, Scheme::VMitosis).unwrap()
    }

    #[test]
    fn mitosis_names_place_tables_data_and_the_hog() {
        let s = m("RPI-LD");
        assert_eq!(s.policies.tables, TablePolicy::Fixed(1));
        assert_eq!(s.policies.data, DataPolicy::Fixed(0));
        assert_eq!((s.interferer, s.baseline), (Some(1), "LP-LD"));
        assert_eq!(m("TRPI-LD+M").policies.tables, TablePolicy::Fixed(0));
        assert_eq!(m("TRPI-LD+M").policies.huge, TRANSPARENT);
        assert_eq!(m("LP-RDI").policies.data, DataPolicy::Fixed(1));
        assert_eq!(m("F-A+M").policies.tables, TablePolicy::Replicated);
        assert_eq!(m("TI").policies.data, DataPolicy::Interleave);
        let f = Setup::parse("TLP-LD", Scheme::MitosisFragmented).unwrap();
        assert_eq!(f.policies.huge, HugePolicy::Fragmented);
    }

    #[test]
    fn vmitosis_names_place_both_dimensions() {
        let s = v("RRIE");
        assert_eq!(s.policies.tables, TablePolicy::Fixed(1));
        assert_eq!(s.policies.nested.unwrap().tables, TablePolicy::Fixed(0));
        assert_eq!(v("TFRRIG").policies.huge, HugePolicy::Fragmented);
        assert_eq!(v("TFRRIG").policies.nested.unwrap().huge, 1.0);
        assert_eq!(v("TF").scenario, Scenario::VirtualWide);
        assert_eq!(v("TFAM").policies.huge, TRANSPARENT);
        assert_eq!(v("RI").policies.nested, None);
        assert_eq!(v("RI").baseline, "L");
        assert_eq!(v("OF").policies.tables, TablePolicy::Random);
        assert_eq!(v("STLM").policies.nested, None);
        assert_eq!(v("STLM").policies.tables, TablePolicy::Replicated);
    }

    #[test]
    fn other_names_are_refused_with_a_list() {
        for name in ["", "X", "LP-XD", "LP-LD+", "LLX", "RM+", "EIA"] {
            assert!(Setup::parse(name, Scheme::Mitosis).is_err(), "{name}");
        }
        let e = Setup::parse("EIA", Scheme::VMitosis)
            .unwrap_err()
            .to_string();
        assert!(e.contains("`EIA`") && e.contains("OF[MP|MF]"), "{e}");
    }
}
