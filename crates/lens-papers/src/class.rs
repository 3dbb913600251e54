// SPDX-License-Identifier: GPL-2.0-or-later
//! Kinds of configurations: those of one kind are wrong alike.

use lens::layout::{DataPolicy, HugePolicy, Policies, TablePolicy};

/// What a configuration differs in from the all-local one, as far as the kind
/// of error goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// One socket, everything local, or as local as pages of another size are.
    Local,
    /// Tables remote, data local.
    TablesOnly,
    /// Data remote.
    DataRemote,
    /// Remote things behind a bandwidth hog.
    Interferer,
    /// Threads on all sockets.
    AllSockets,
    /// The same with AutoNUMA.
    AutoNuma,
    /// Huge pages on fragmented memory.
    Fragmented,
}

impl Class {
    /// All of them, in the order of reports.
    pub const ALL: [Class; 7] = [
        Class::Local,
        Class::TablesOnly,
        Class::DataRemote,
        Class::Interferer,
        Class::AllSockets,
        Class::AutoNuma,
        Class::Fragmented,
    ];

    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Local => "local",
            Class::TablesOnly => "tables only",
            Class::DataRemote => "data remote",
            Class::Interferer => "interferer",
            Class::AllSockets => "all sockets",
            Class::AutoNuma => "AutoNUMA",
            Class::Fragmented => "fragmented",
        }
    }
}

/// Node of threads and local things.
const HOME: usize = 0;

/// Where a one-socket run's things are, as shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Remote {
    /// Of native or guest tables, and of nested ones.
    pub tables: [f64; 2],
    /// Of the data.
    pub data: f64,
    /// Whether a hog runs there.
    pub hog: bool,
    /// Whether pages are huge wherever they can be.
    pub huge: bool,
}

impl Remote {
    /// Of `policies`, with a hog or without.
    pub fn of(p: &Policies, hog: bool) -> Self {
        let away = |t: TablePolicy| f64::from(u8::from(t != TablePolicy::Fixed(HOME)));
        Remote {
            tables: [away(p.tables), p.nested.map_or(0.0, |n| away(n.tables))],
            data: f64::from(u8::from(p.data != DataPolicy::Fixed(HOME))),
            hog,
            huge: matches!(p.huge, HugePolicy::Transparent { .. }),
        }
    }

    /// The class of such a one-socket run.
    pub fn class(&self) -> Class {
        match (self.tables != [0.0; 2], self.data > 0.0) {
            (false, false) => Class::Local,
            _ if self.hog => Class::Interferer,
            (_, true) => Class::DataRemote,
            (true, false) => Class::TablesOnly,
        }
    }
}

/// The class of a configuration.
pub fn class(p: &Policies, wide: bool, hog: bool) -> Class {
    match p.data {
        _ if p.huge == HugePolicy::Fragmented => Class::Fragmented,
        DataPolicy::FirstTouch { moved } if moved > 0.0 => Class::AutoNuma,
        _ if wide => Class::AllSockets,
        _ => Remote::of(p, hog).class(),
    }
}

/// Why a row is not scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// Others are divided by it, or it is placed as that one is.
    Baseline,
    /// It is placed as an earlier row of its program is.
    Duplicate,
    /// Constants of the machine were fitted to its program.
    Training,
}

impl Apart {
    /// What it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Apart::Baseline => "baseline",
            Apart::Duplicate => "duplicate",
            Apart::Training => "training",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Scheme, Setup};

    fn class_of(name: &str, scheme: Scheme) -> Class {
        let s = Setup::parse(name, scheme).unwrap();
        class(&s.policies, s.scenario.is_wide(), s.interferer.is_some())
    }

    #[test]
    fn configurations_have_the_class_of_what_is_not_local() {
        let m = |name| class_of(name, Scheme::Mitosis);
        assert_eq!(m("TLP-LD"), Class::Local);
        assert_eq!(m("RPI-LD+M"), Class::Local, "the hog is where nothing is");
        assert_eq!(m("RP-LD"), Class::TablesOnly);
        assert_eq!(m("TRP-RD"), Class::DataRemote);
        assert_eq!(m("LP-RDI"), Class::Interferer);
        assert_eq!(m("TI"), Class::AllSockets);
        assert_eq!(m("F-A+M"), Class::AutoNuma);
        let fragmented = class_of("TLP-RD", Scheme::MitosisFragmented);
        assert_eq!(fragmented, Class::Fragmented);
        assert_eq!(class_of("LR", Scheme::VMitosis), Class::TablesOnly);
        assert_eq!(class_of("OF", Scheme::VMitosis), Class::AllSockets);
    }
}
