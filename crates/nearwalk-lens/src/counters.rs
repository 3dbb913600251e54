// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens validate --counters`: modelled beside logged counters.

use crate::util;
use lens::machine::Machine;
use lens::pipe::Pace;
use lens_papers::config::{Scheme, Setup};
use lens_papers::counters::{Counts, Log};
use lens_papers::experiment::{Budget, fit_pace, run};
use lens_papers::workload::workload;

/// Prints every log of a modelled workload and what the model makes of it, at
/// the pace that its share of walks gives.
pub fn print(m: &Machine, logs: &[Log], jobs: usize, budget: Budget) -> anyhow::Result<()> {
    let modelled = util::parallel(logs, jobs, |l| model(m, l, budget), |_, _| {});
    println!(
        "\nCounters of all-local runs, a walk (logged: published; modelled at the logged share of walks)"
    );
    println!(
        "  {:<10} {:<8} {:>7} {:>7} {:>6} {:>8} {:>6} {:>7} {:>9} {:>9}",
        "workload",
        "",
        "walking",
        "cycles",
        "lines",
        "own L1/2",
        "L3",
        "memory",
        "data miss",
        "of 1000"
    );
    for (l, c) in logs.iter().zip(modelled) {
        let Some(c) = c? else { continue };
        line(&l.workload, "logged", &l.counts);
        line("", "modelled", &c);
    }
    Ok(())
}

fn model(m: &Machine, l: &Log, budget: Budget) -> anyhow::Result<Option<Counts>> {
    let setup = Setup::parse(&l.config, Scheme::Mitosis)?;
    let Some(w) = workload(&l.workload, setup.scenario) else {
        return Ok(None);
    };
    let pace = match w.name {
        // Whose constants are among the machine's.
        "GUPS" => Pace {
            base: w.default_base,
            window: m.core.window,
        },
        _ => fit_pace(m, &w, &setup, l.counts.walk_share, budget).0,
    };
    Ok(Some(Counts::of(&run(m, &w, &setup, pace, budget, 1))))
}

fn line(workload: &str, what: &str, c: &Counts) {
    let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
    let level = |i: usize| number(c.levels.map(|l| l[i]));
    println!(
        "  {workload:<10} {what:<8} {:>6.1}% {:>7.1} {:>6} {:>8} {:>6} {:>7} {:>9} {:>9}",
        100.0 * c.walk_share,
        c.cycles,
        number(c.refs),
        level(0),
        level(1),
        level(2),
        number(c.misses),
        number(c.misses_of_thousand)
    );
}
