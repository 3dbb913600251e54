// SPDX-License-Identifier: GPL-2.0-or-later
//! What the user has chosen to see.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use nearwalk_advise::report::{Kind, Subject};

use crate::frame::{Frame, Key};

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The most exposed first, as in `nearwalk advise`.
    #[default]
    Exposure,
    /// Who uses most CPUs.
    Cpus,
    /// Who has most tables.
    Tables,
    /// By name.
    Name,
}

impl Sort {
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Exposure => Self::Cpus,
            Self::Cpus => Self::Tables,
            Self::Tables => Self::Name,
            Self::Name => Self::Exposure,
        }
    }

    /// What the screen calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exposure => "exposure",
            Self::Cpus => "CPUs",
            Self::Tables => "tables",
            Self::Name => "name",
        }
    }

    fn compare(self, a: &Subject, b: &Subject) -> Ordering {
        match self {
            // The order that they come in; then those that are not worth a look.
            Self::Exposure => match (a.quiet, b.quiet) {
                (None, None) => Ordering::Equal,
                (Some(_), Some(_)) => Self::Cpus.compare(a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
            Self::Cpus => b.cpus.total_cmp(&a.cpus),
            Self::Tables => b.tables.total().cmp(&a.tables.total()),
            Self::Name => a.name.cmp(&b.name),
        }
    }
}

/// What is shown of a frame.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The order of rows.
    pub sort: Sort,
    /// Only rows with this in their names.
    pub filter: String,
    /// Groups whose processes have rows of their own.
    pub opened: BTreeSet<String>,
}

impl View {
    /// The rows that are shown, in order: processes right below their group.
    pub fn rows<'a>(&self, frame: &'a Frame) -> Vec<&'a Subject> {
        let all = &frame.report.ranked;
        let mut rows: Vec<&Subject> = all.iter().filter(|row| row.group.is_none()).collect();
        rows.retain(|row| self.matches(row));
        rows.sort_by(|a, b| self.sort.compare(a, b));
        let mut with_processes = Vec::new();
        for row in rows {
            with_processes.push(row);
            if row.kind == Kind::Group && self.opened.contains(&row.name) {
                let first = with_processes.len();
                let of = |process: &&Subject| process.group.as_ref() == Some(&row.name);
                with_processes.extend(all.iter().filter(of));
                with_processes[first..].sort_by(|a, b| self.sort.compare(a, b));
            }
        }
        with_processes
    }

    fn matches(&self, row: &Subject) -> bool {
        row.name.contains(&self.filter) || row.pid.is_some_and(|pid| pid.to_string() == self.filter)
    }

    /// Whether a row has processes to open.
    pub fn can_open(frame: &Frame, key: &Key) -> bool {
        let mut all = frame.report.ranked.iter();
        key.kind == Kind::Group && all.any(|row| row.group.as_ref() == Some(&key.name))
    }
}
