// SPDX-License-Identifier: GPL-2.0-or-later
//! Surveys a host again and again.
//!
//! To look around costs much more than to read counters that grow: who is there,
//! and where their tables lie, is read every [`ROUND`] intervals only.

use std::time::Duration;

use nearwalk_advise::cpu_time::{CpuTimes, Observation, Sampling, Watch};
use nearwalk_advise::survey::{Survey, Whom};
use nearwalk_host::{Error, Machine, Source};

use crate::copies;
use crate::frame::Frame;

/// Intervals between two looks around.
pub const ROUND: u32 = 5;

/// A survey that goes on.
#[derive(Debug)]
pub struct Sampler {
    survey: Survey,
    watch: Watch,
    ticks: u32,
}

fn around(source: &mut dyn Source) -> Result<Survey, Error> {
    let machine = Machine::read(source)?;
    Survey::around(source, machine, Whom::Everyone)
}

fn frame(source: &mut dyn Source, survey: &Survey, seen: &Observation) -> Frame {
    let report = survey.report(source, seen, Sampling::NAME);
    let copies = copies::read(source, survey, &report);
    let mut frame = Frame { report, copies };
    frame.rank();
    frame
}

/// One frame that covers `length`.
pub fn once(source: &mut dyn Source, length: Duration) -> Result<Frame, Error> {
    let survey = around(source)?;
    // What was read so far took its time; the looks begin now.
    source.wait(Duration::ZERO)?;
    let (machine, watched) = (survey.machine(), survey.watched());
    let seen = Sampling::default().observe(source, machine, watched, length)?;
    Ok(frame(source, &survey, &seen))
}

impl Sampler {
    /// Looks around for the first time.
    pub fn begin(source: &mut dyn Source) -> Result<Self, Error> {
        let survey = around(source)?;
        source.wait(Duration::ZERO)?;
        let watch = Watch::begin(source, survey.machine(), survey.watched());
        Ok(Self {
            survey,
            watch,
            ticks: 0,
        })
    }

    /// Waits for `interval`, and says what was seen in it.
    pub fn tick(&mut self, source: &mut dyn Source, interval: Duration) -> Result<Frame, Error> {
        source.wait(interval)?;
        let seen = self.watch.take(source, self.survey.machine());
        let frame = frame(source, &self.survey, &seen);
        self.ticks += 1;
        if self.ticks % ROUND == 0 {
            self.survey = around(source)?;
            self.watch = Watch::begin(source, self.survey.machine(), self.survey.watched());
        }
        Ok(frame)
    }
}
