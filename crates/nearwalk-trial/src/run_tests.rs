// SPDX-License-Identifier: GPL-2.0-or-later
//! Trials of noise, in time that is made up.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::*;
use crate::report::{Kind, Report};

/// Time that passes when it is waited for, and no files.
#[derive(Default)]
struct Clock(Duration);

impl Source for Clock {
    fn read(&mut self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&mut self, _: &Path) -> io::Result<Vec<OsString>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn now(&self) -> Duration {
        self.0
    }

    fn wait(&mut self, time: Duration) -> Result<(), nearwalk_host::Error> {
        self.0 += time;
        Ok(())
    }
}

/// What has been asked for, and when somebody else steps in.
#[derive(Default)]
struct Noted {
    sets: Vec<(Duration, Arm)>,
    checks: usize,
    theirs_at: Option<usize>,
}

impl Switch for Noted {
    fn set(&mut self, source: &mut dyn Source, arm: Arm) -> Result<(), Stop> {
        self.sets.push((source.now(), arm));
        Ok(())
    }

    fn check(&mut self) -> Result<(), Stop> {
        self.checks += 1;
        if self.theirs_at == Some(self.checks) {
            return Err(Stop::Theirs {
                name: "it".into(),
                text: "eager 1".into(),
            });
        }
        Ok(())
    }
}

/// Noise of three shapes around 100, on a load that drifts.
struct Noise {
    random: fastrand::Rng,
    shape: u64,
    drift: f64,
}

impl Metric for Noise {
    fn measure(&mut self, source: &mut dyn Source, length: Duration) -> Result<f64, Stop> {
        wait(source, length)?;
        // Uniform from -1 to 1 by the sum of many: a bell.
        let mut bell = || (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
        let noise = match self.shape {
            0 => 0.03 * bell(),
            // A few that are far off.
            1 if self.random.u8(..10) == 0 => 0.3 * self.random.f64(),
            1 => 0.01 * self.random.f64(),
            // Skew.
            _ => 0.05 * -self.random.f64().max(1e-9).ln(),
        };
        let drift = self.drift * source.now().as_secs_f64();
        Ok(100.0 * (noise + drift).exp())
    }
}

fn plan(seed: u64) -> Plan {
    Plan {
        pairs: 10,
        period: Duration::from_secs(10),
        settle: Duration::from_secs(2),
        seed,
    }
}

#[test]
fn noise_is_told_from_an_effect_as_often_as_is_said() {
    for (shape, drift) in [(0, 0.0), (1, 0.0), (2, 0.0), (0, 1e-4)] {
        let mut held = 0;
        for seed in 0..1000 {
            let mut noise = Noise {
                random: fastrand::Rng::with_seed(seed * 3 + shape + 1_000_000),
                shape,
                drift,
            };
            let switch = &mut Noted::default();
            let plan = plan(seed);
            let (pairs, end) = run(&plan, &mut Clock::default(), switch, &mut noise, |_| {});
            end.unwrap();
            let report = Report::new(Kind::Ratio, None, &pairs);
            let estimate = report.estimate.unwrap();
            held += u32::from(!estimate.tells());
            assert!((estimate.confidence - 0.951).abs() < 1e-3);
        }
        eprintln!("shape {shape}, drift {drift}: {held} of 1,000 intervals hold 0");
        assert!((930..=970).contains(&held), "{shape} {drift}: {held}");
    }
}

#[test]
fn both_are_tried_in_each_pair_in_an_order_that_the_seed_tells() {
    let mut orders = Vec::new();
    for seed in [1, 1, 2, 3] {
        let (switch, clock) = (&mut Noted::default(), &mut Clock::default());
        let mut noise = Noise {
            random: fastrand::Rng::with_seed(7),
            shape: 0,
            drift: 0.0,
        };
        let mut told = Vec::new();
        let (pairs, end) = run(&plan(seed), clock, switch, &mut noise, |pair| {
            told.push(*pair);
        });
        end.unwrap();
        assert_eq!(told, pairs);
        assert_eq!(clock.0, Duration::from_secs(20 * 12));
        for (index, pair) in pairs.iter().enumerate() {
            let [one, two] = [2 * index, 2 * index + 1].map(|at| switch.sets[at]);
            assert_eq!(one.1, pair.first);
            assert_eq!(two, (one.0 + Duration::from_secs(12), pair.first.other()));
        }
        orders.push(pairs.iter().map(|pair| pair.first).collect::<Vec<_>>());
    }
    assert_eq!(orders[0], orders[1]);
    assert_ne!(orders[0], orders[2]);
    assert!(orders[3].contains(&Arm::Off) && orders[3].contains(&Arm::On));
}

#[test]
fn what_was_done_before_somebody_stepped_in_is_kept() {
    let switch = &mut Noted {
        // Behind the first period of the eighth pair.
        theirs_at: Some(4 * 7 + 2),
        ..Noted::default()
    };
    let mut noise = Noise {
        random: fastrand::Rng::with_seed(7),
        shape: 0,
        drift: 0.0,
    };
    let clock = &mut Clock::default();
    let (pairs, end) = run(&plan(5), clock, switch, &mut noise, |_| {});
    assert_eq!(pairs.len(), 7);
    assert_eq!(switch.sets.len(), 15);
    let why = end.unwrap_err().to_string();
    assert!(why.contains("`eager 1`"), "{why}");
}
