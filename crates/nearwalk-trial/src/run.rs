// SPDX-License-Identifier: GPL-2.0-or-later
//! The trial itself: pairs of periods, without and with copies, in the order of
//! a coin.

use std::time::Duration;

use nearwalk_host::Source;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Without copies.
    Off,
    /// With them.
    On,
}

impl Arm {
    /// The other one.
    fn other(self) -> Self {
        match self {
            Self::Off => Self::On,
            Self::On => Self::Off,
        }
    }
}

/// Why a trial ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The process or group has gone.
    #[error("{0}")]
    Lost(String),
    /// Somebody else has set something.
    #[error(
        "{name}: somebody has set it to `{text}` meanwhile, or it has itself; that was left as it \
         is"
    )]
    Theirs {
        /// The subject.
        name: String,
        /// What holds now.
        text: String,
    },
    /// Nothing could be measured.
    #[error("{0}")]
    Metric(String),
    /// The kernel refuses a setting.
    #[error(transparent)]
    Refused(#[from] nearwalk_repl::Error),
    /// A signal.
    #[error("interrupted")]
    Interrupted,
}

/// Whose copies are switched on and off.
pub trait Switch {
    /// Sets it, and returns when that has been done for all of its tables.
    fn set(&mut self, source: &mut dyn Source, arm: Arm) -> Result<(), Stop>;

    /// Fails if it is not what was set last any more.
    fn check(&mut self) -> Result<(), Stop>;
}

/// What is measured.
pub trait Metric {
    /// Lets the time pass, and says what there was in it.
    fn measure(&mut self, source: &mut dyn Source, length: Duration) -> Result<f64, Stop>;
}

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many pairs.
    pub pairs: usize,
    /// How long is measured.
    pub period: Duration,
    /// How long it is left alone before that.
    pub settle: Duration,
    /// Of the coin.
    pub seed: u64,
}

/// Two periods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Which one was first.
    pub first: Arm,
    /// What was measured without copies.
    pub off: f64,
    /// ... and with them.
    pub on: f64,
}

/// All pairs, or those before the trial had to end.
pub fn run(
    plan: &Plan,
    source: &mut dyn Source,
    switch: &mut dyn Switch,
    metric: &mut dyn Metric,
    mut done: impl FnMut(&Pair),
) -> (Vec<Pair>, Result<(), Stop>) {
    let mut coin = fastrand::Rng::with_seed(plan.seed);
    let mut pairs = Vec::new();
    for _ in 0..plan.pairs {
        let first = if coin.bool() { Arm::Off } else { Arm::On };
        let mut period = |arm| one(plan, source, switch, metric, arm);
        let measured = period(first).and_then(|one| Ok((one, period(first.other())?)));
        let (one, two) = match measured {
            Ok(measured) => measured,
            Err(stop) => return (pairs, Err(stop)),
        };
        let (off, on) = match first {
            Arm::Off => (one, two),
            Arm::On => (two, one),
        };
        let pair = Pair { first, off, on };
        done(&pair);
        pairs.push(pair);
    }
    (pairs, Ok(()))
}

fn one(
    plan: &Plan,
    source: &mut dyn Source,
    switch: &mut dyn Switch,
    metric: &mut dyn Metric,
    arm: Arm,
) -> Result<f64, Stop> {
    switch.set(source, arm)?;
    wait(source, plan.settle)?;
    // The period is not worth its time if it is of something else.
    switch.check()?;
    let measured = metric.measure(source, plan.period);
    // First: what has gone cannot be measured either.
    switch.check()?;
    measured
}

/// Lets time pass.
pub fn wait(source: &mut dyn Source, time: Duration) -> Result<(), Stop> {
    source.wait(time).map_err(|_| Stop::Interrupted)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
