// SPDX-License-Identifier: GPL-2.0-or-later
//! What the thesis says of HATRIC in numbers, ranges and orders, each with what the
//! model gives instead.

use super::case::{Line, Report};
use std::collections::BTreeMap;

/// Programs that are paged.
pub const PAGED: [&str; 5] = ["data-caching", "canneal", "tunkrank", "graph500", "facesim"];
/// Programs that fit, and their vCPUs.
pub const FITS: [(&str, u32); 6] = [
    ("small-mesh", 16),
    ("small-graph", 16),
    ("small-chase", 1),
    ("small-stream", 1),
    ("small-trees", 1),
    ("small-packer", 1),
];
/// Label of the cases that nothing is varied in.
pub const BASE: &str = "as assumed";
/// Variants of Figure 2.15, in its order.
pub const EAGER: &str = "hatric:update=eager";
pub const FINE: &str = "hatric:tracking=fine";
pub const INFINITE: &str = "hatric:directory=infinite";
pub const ALL: &str = "hatric:update=eager,tracking=fine,directory=infinite";

/// What kind of statement a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A constant was chosen so that it holds.
    Fitted,
    /// A number that nothing was chosen for.
    Predicted,
    /// Least and most.
    Range,
    /// Which is more.
    Order,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fitted => "fitted",
            Kind::Predicted => "predicted",
            Kind::Range => "range",
            Kind::Order => "order",
        }
    }
}

/// What a claim's numbers are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Ratio,
    Percent,
}

/// Values with what each is of.
pub type Values = Vec<(String, f64)>;

/// A statement of the thesis.
pub struct Claim {
    /// Section or figure.
    pub at: &'static str,
    /// What it says.
    pub says: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// What each value has to be within.
    pub want: (f64, f64),
    /// What the model gives, in the cases of a label; none if it has not all of them.
    pub values: fn(&Data, &str) -> Option<Values>,
}

impl Claim {
    /// Whether `values` are what is claimed.
    pub fn holds(&self, values: &Values) -> bool {
        let within = |v: f64| (self.want.0..=self.want.1).contains(&v);
        values.iter().all(|(_, v)| within(*v))
    }
}

/// Reports by label and programs.
#[derive(Default)]
pub struct Data {
    pub reports: BTreeMap<(String, String), Report>,
    /// One a mix.
    pub mixes: Vec<Report>,
}

impl Data {
    /// The report of `program` under `label`.
    pub fn get(&self, label: &str, program: &str) -> Option<&Report> {
        self.reports.get(&(label.to_owned(), program.to_owned()))
    }

    /// `f` of each program.
    pub fn each(
        &self,
        label: &str,
        programs: &[&str],
        f: impl Fn(&Report) -> Option<f64>,
    ) -> Option<Values> {
        let one = |&p: &&str| Some((p.to_owned(), f(self.get(label, p)?)?));
        programs.iter().map(one).collect()
    }

    /// The same of those that are paged.
    pub fn paged(&self, label: &str, f: impl Fn(&Report) -> Option<f64>) -> Option<Values> {
        self.each(label, &PAGED, f)
    }

    /// Of all programs that are paged under some labels.
    pub fn under(&self, labels: &[&str], f: impl Fn(&Report) -> Option<f64>) -> Option<Values> {
        let mut all = Values::new();
        for label in labels {
            for (program, value) in self.paged(label, &f)? {
                all.push((format!("{program}, {label}"), value));
            }
        }
        Some(all)
    }

    /// `f` of a program under two labels.
    pub fn between(
        &self,
        program: &str,
        labels: [&str; 2],
        f: impl Fn(&Report, &Report) -> Option<f64>,
    ) -> Option<f64> {
        f(self.get(labels[0], program)?, self.get(labels[1], program)?)
    }

    /// The mean of `f` over all mixes.
    pub fn over_mixes(&self, what: &str, f: impl Fn(&Report) -> Option<f64>) -> Option<Values> {
        let values: Option<Vec<f64>> = self.mixes.iter().map(f).collect();
        let values = values.filter(|v| !v.is_empty())?;
        Some(vec![(
            what.to_owned(),
            values.iter().sum::<f64>() / values.len() as f64,
        )])
    }

    /// `f` of each mix.
    pub fn of_mixes(&self, f: impl Fn(&Report) -> Option<f64>) -> Option<Values> {
        let numbered = self.mixes.iter().enumerate();
        let all: Option<Values> = numbered
            .map(|(i, r)| Some((format!("mix {i}"), f(r)?)))
            .collect();
        all.filter(|v| !v.is_empty())
    }
}

/// The line of a scheme.
pub fn line<'a>(r: &'a Report, scheme: &str) -> Option<&'a Line> {
    r.lines.iter().find(|l| l.scheme == scheme)
}

/// Time of one scheme over that of another.
pub fn time(r: &Report, scheme: &str, over: &str) -> Option<f64> {
    Some(line(r, scheme)?.relative / line(r, over)?.relative)
}

/// The same of energy.
pub fn energy(r: &Report, scheme: &str, over: &str) -> Option<f64> {
    Some(line(r, scheme)?.energy.total() / line(r, over)?.energy.total())
}
