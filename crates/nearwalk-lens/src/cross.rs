// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens validate --cross`: what leaving one program out says.

use lens_papers::class::{Apart, Class};
use lens_papers::cross::{
    Left, bound_of, interval_for, leave_one_out, missed_targets, without_closed_form,
};
use lens_papers::doubt::row_of;
use lens_papers::validate::{Row, ordered_pairs};

/// Part of a pair's faster run by which the other has to be slower for their
/// order to count: less is within what repeated campaigns differ by.
const APART: f64 = 1.10;

/// Prints errors, coverage and orders by class, and rows outside of their
/// intervals.
pub fn print(rows: &[Row]) -> anyhow::Result<()> {
    println!("\nOne program left out at a time (modelled beside published)");
    let count = |why| rows.iter().filter(|r| r.apart == Some(why)).count();
    let missed = rows
        .iter()
        .filter(|r| r.apart.is_none() && r.missed)
        .count();
    if missed > 0 {
        println!(
            "  {missed} rows are of programs whose fit is at a bound or out of reach: they count \
             as outside"
        );
    }
    let pinned = rows
        .iter()
        .filter(|r| r.apart.is_none() && r.pinned)
        .count();
    if pinned > 0 {
        println!(
            "  {pinned} rows are of programs fitted with the widest window and a base below their \
             generator's: they count as outside in the column `strict`"
        );
    }
    println!(
        "  apart: {} rows placed as what they are divided by, {} as an earlier row, {} of the program \
         that machines are fitted to",
        count(Apart::Baseline),
        count(Apart::Duplicate),
        count(Apart::Training)
    );
    for (title, virtualised) in [("native", false), ("virtual", true)] {
        let all = leave_one_out(rows, |r| r.virtualised == virtualised)?;
        if all.rows == 0 {
            continue;
        }
        println!(
            "  {:<22} {:>4}  {:>6} {:>6}  {:>8} {:>6} {:>6}  {:>4} {:>7} {:>6}  {:>7} {:>6}  orders",
            title,
            "rows",
            "median",
            "90th",
            "coverage",
            "strict",
            "half",
            "of",
            "formula",
            "90th",
            "model",
            "90th"
        );
        for class in Class::ALL {
            let of = |r: &Row| r.virtualised == virtualised && r.class == class;
            let left = leave_one_out(rows, of)?;
            if left.rows > 0 {
                line(class.name(), &left, orders(rows, of));
            }
        }
        line("all", &all, orders(rows, |r| r.virtualised == virtualised));
    }
    for r in rows.iter().filter(|r| r.apart.is_none()) {
        let Some(i) = interval_for(r, rows) else {
            continue;
        };
        let (low, high) = (r.predicted * i.low, r.predicted * i.high);
        if !i.holds(r.published / r.predicted) {
            println!(
                "    outside: {} {} published {:.3}, predicted {:.3} ({low:.3} to {high:.3})",
                r.workload, r.config, r.published, r.predicted
            );
        }
    }
    Ok(())
}

/// Prints what predictions should reach and do not; true if that is nothing.
pub fn verdict(rows: &[Row]) -> bool {
    println!(
        "\nTargets, with one program left out at a time and fits at a bound, those with the widest \
         window too, counted as outside"
    );
    let mut met = true;
    for (title, virtualised) in [("native", false), ("virtual", true)] {
        let of = |r: &Row| r.virtualised == virtualised;
        let left = without_closed_form(rows, of);
        if left.rows == 0 {
            continue;
        }
        let missed = missed_targets(&left, orders(rows, of).0, virtualised);
        met &= missed.is_empty();
        match &*missed {
            [] => println!("  {title}: met"),
            missed => println!("  {title}: missed: {}", missed.join("; ")),
        }
    }
    met
}

/// What intervals of all classes are made of, as [`lens_papers::doubt`] keeps them.
pub fn intervals(rows: &[Row]) -> String {
    let mut text = String::new();
    for virtualised in [false, true] {
        for class in Class::ALL.map(Some).into_iter().chain([None]) {
            if let Some((n, error)) = bound_of(rows, virtualised, class, |_| true) {
                text += &row_of(virtualised, class, n, error);
            }
        }
    }
    text
}

/// Wrong orders and all that count, among scored rows.
fn orders(rows: &[Row], which: impl Fn(&Row) -> bool) -> (usize, usize) {
    let scored: Vec<&Row> = rows
        .iter()
        .filter(|r| r.apart.is_none() && which(r))
        .collect();
    let mut pairs = ordered_pairs(&scored);
    pairs.retain(|p| p.slower.published > APART * p.faster.published);
    (pairs.iter().filter(|p| p.is_wrong()).count(), pairs.len())
}

fn line(title: &str, l: &Left, (wrong, pairs): (usize, usize)) {
    let percent = |x: f64| format!("{:.1}%", 100.0 * x);
    // The closed form, for the rows that it has a value for, and the model for the same.
    let [closed, there] = [l.closed, l.model_there].map(|both| match l.closed_rows {
        0 => ["-".to_owned(), "-".to_owned()],
        _ => both.map(percent),
    });
    println!(
        "    {title:<20} {:>4}  {:>6} {:>6}  {:>8} {:>6} {:>6}  {:>4} {:>7} {:>6}  {:>7} {:>6}  \
         {wrong} of {pairs} wrong",
        l.rows,
        percent(l.model[0]),
        percent(l.model[1]),
        percent(l.coverage),
        percent(l.strict),
        percent(l.half_width),
        l.closed_rows,
        closed[0],
        closed[1],
        there[0],
        there[1]
    );
}
