// SPDX-License-Identifier: GPL-2.0-or-later
//! How wrong predictions are for programs that nobody has looked at.
//!
//! One program is left out at a time. What the errors of the others say of a
//! class of configurations gives an interval about each of its predictions;
//! coverage is how many published values lie in theirs. A closed form of three
//! constants, fitted to the others, is what a simulator has to beat.
//!
//! A counter of walker-active cycles counts those of each walker, so its share of
//! the runtime may be above 1. What walks take of the time is in the closed form
//! what they take of all walkers'.

use crate::class::{Apart, Class, Remote};
use crate::doubt::{INSIDE, Interval, bound, error};
use crate::validate::Row;

/// The interval of `row` from errors of other programs in its class, natively
/// or in a virtual machine as it is; of all their classes where that has too few.
pub fn interval_for(row: &Row, rows: &[Row]) -> Option<Interval> {
    let others = |class| bound_of(rows, row.virtualised, class, |r| r.workload != row.workload);
    let (_, error) = others(Some(row.class)).or_else(|| others(None))?;
    Some(Interval::about(error, row.predicted))
}

/// The error that nine of ten stay below of the scored rows of a class, or of all
/// classes, that `which` takes; and how many rows these are.
pub fn bound_of(
    rows: &[Row],
    virtualised: bool,
    class: Option<Class>,
    which: impl Fn(&Row) -> bool,
) -> Option<(usize, f64)> {
    let errors: Vec<f64> = rows
        .iter()
        .filter(|r| r.apart.is_none() && r.virtualised == virtualised && which(r))
        .filter(|r| class.is_none_or(|c| r.class == c))
        .map(|r| error(r.predicted, r.published))
        .collect();
    Some((errors.len(), bound(errors)?))
}

/// Three constants: what remote tables, remote data and a hog multiply stalls
/// by, less one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedForm {
    /// Remote tables.
    pub tables: f64,
    /// Remote data.
    pub data: f64,
    /// A hog beside either.
    pub hog: f64,
}

impl ClosedForm {
    /// Normalised runtime of a one-socket run of a program that walks for
    /// `shares` of its all-local time, in native or guest tables and in nested
    /// ones. Huge pages end all walks.
    pub fn runtime(&self, shares: [f64; 2], r: Remote) -> f64 {
        let beside = if r.hog { 1.0 + self.hog } else { 1.0 };
        let rest = 1.0 - shares[0] - shares[1];
        let rest = rest * (1.0 + self.data * beside * r.data);
        if r.huge {
            return rest;
        }
        let walk = |d: usize| shares[d] * (1.0 + self.tables * beside * r.tables[d]);
        walk(0) + walk(1) + rest
    }

    /// Fitted to the one-socket rows of `rows`: the least sum of squares of
    /// logarithms, one constant after the other.
    ///
    /// # Errors
    /// [`NoForm`] with the row for which no runtime comes of it.
    pub fn fit(rows: &[&Row]) -> Result<Self, NoForm> {
        let mut form = ClosedForm {
            tables: 1.0,
            data: 0.5,
            hog: 1.0,
        };
        let loss = |f: ClosedForm| -> f64 {
            let error = |r: &&&Row| Some((f.of(r)? / r.published).ln().powi(2));
            rows.iter().filter_map(|r| error(&r)).sum()
        };
        let is_time = |x: f64| x.is_finite() && x > 0.0;
        let none = |r: &&&Row| {
            let runtime = form.of(r);
            runtime.is_some_and(|p| !is_time(p) || !is_time(r.published))
        };
        if let Some(r) = rows.iter().find(none) {
            return Err(NoForm {
                workload: r.workload.clone(),
                config: r.config.clone(),
                published: r.published,
                runtime: form.of(r).unwrap_or(f64::NAN),
                share: r.base_walks.map_or(f64::NAN, |w| w[0] + w[1]),
            });
        }
        let mut best = loss(form);
        for step in [1.5, 1.1, 1.02, 1.005] {
            let mut better = true;
            while better {
                better = false;
                for (key, factor) in (0..3).flat_map(|k| [(k, step), (k, 1.0 / step)]) {
                    let mut trial = form;
                    *[&mut trial.tables, &mut trial.data, &mut trial.hog][key] *= factor;
                    let l = loss(trial);
                    if l < best * (1.0 - 1e-9) {
                        (best, form, better) = (l, trial, true);
                    }
                }
            }
        }
        Ok(form)
    }

    /// What it makes of `row`; `None` where it cannot tell.
    pub fn of(&self, row: &Row) -> Option<f64> {
        Some(self.runtime(row.base_walks?, row.remote?))
    }
}

/// The closed form says nothing of a row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "{workload} {config}: published as {published}, the closed form gives {runtime}, with {share} \
     of the time of all walkers in its baseline; more than 0, and less than 1 of walks, is allowed"
)]
pub struct NoForm {
    /// Workload.
    pub workload: String,
    /// Configuration.
    pub config: String,
    /// Published runtime over the baseline's.
    pub published: f64,
    /// What the closed form makes of it.
    pub runtime: f64,
    /// What walks take of the time.
    pub share: f64,
}

/// What leaving programs out gives for some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Left {
    /// Rows.
    pub rows: usize,
    /// Median error of the model, and its 90th percentile.
    pub model: [f64; 2],
    /// The same of the closed form, and for how many rows it has a value.
    pub closed: [f64; 2],
    /// See there.
    pub closed_rows: usize,
    /// Of the model for these rows alone, which is what the closed form stands beside.
    pub model_there: [f64; 2],
    /// Share of published values in their intervals. A row whose program's
    /// constant could not be fitted counts as outside.
    pub coverage: f64,
    /// The same if rows count as outside, too, whose program has the widest window
    /// and a base below the generator's.
    pub strict: f64,
    /// Median of half the intervals' widths.
    pub half_width: f64,
}

/// What predictions for programs that are left out should reach; of `left`, with so many
/// wrong orders of pairs, what does not. Orders count natively alone.
pub fn missed_targets(left: &Left, wrong: usize, virtualised: bool) -> Vec<String> {
    let [median, p90] = match virtualised {
        false => [0.07, 0.20],
        true => [0.10, 0.25],
    };
    let percent = |x: f64| 100.0 * x;
    let mut out = Vec::new();
    for (what, is, most) in [
        ("median error", left.model[0], median),
        ("90th percentile", left.model[1], p90),
    ] {
        if is.is_nan() || is > most {
            out.push(format!(
                "{what} {:.1} %, not {:.0} %",
                percent(is),
                percent(most)
            ));
        }
    }
    if left.strict < INSIDE {
        out.push(format!(
            "inside {:.0} %, not {:.0} %",
            percent(left.strict),
            percent(INSIDE)
        ));
    }
    if left.half_width.is_nan() || left.half_width > HALF_WIDTH {
        out.push(format!(
            "half width {:.0} %, not {:.0} %",
            percent(left.half_width),
            percent(HALF_WIDTH)
        ));
    }
    if wrong > 0 && !virtualised {
        out.push(format!("{wrong} wrong orders, not 0"));
    }
    out
}

/// Median half width that intervals should have at most.
const HALF_WIDTH: f64 = 0.15;

fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n => values[((n as f64 * q).ceil() as usize).clamp(1, n) - 1],
    }
}

fn scored(rows: &[Row], which: impl Fn(&Row) -> bool) -> Vec<&Row> {
    rows.iter()
        .filter(|r| r.apart.is_none() && which(r))
        .collect()
}

fn median_and_p90(errors: &[f64]) -> [f64; 2] {
    [0.5, 0.9].map(|q| quantile(errors.to_vec(), q))
}

/// Judges those of `rows` that are scored and that `which` takes, each by
/// programs other than its own.
///
/// # Errors
/// [`NoForm`] if the closed form cannot be fitted.
pub fn leave_one_out(rows: &[Row], which: impl Fn(&Row) -> bool) -> Result<Left, NoForm> {
    let scored = scored(rows, &which);
    let (mut closed, mut there) = (Vec::new(), Vec::new());
    let mut forms: Vec<(&str, bool, ClosedForm)> = Vec::new();
    for r in scored.iter().filter(|r| r.remote.is_some()) {
        let known = |f: &&(&str, bool, ClosedForm)| f.0 == r.workload && f.1 == r.virtualised;
        let form = match forms.iter().find(known) {
            Some(f) => f.2,
            None => {
                let others: Vec<&Row> = rows
                    .iter()
                    .filter(|x| x.workload != r.workload && x.virtualised == r.virtualised)
                    .filter(|x| x.apart != Some(Apart::Baseline))
                    .collect();
                let form = ClosedForm::fit(&others)?;
                forms.push((&r.workload, r.virtualised, form));
                form
            }
        };
        if let Some(p) = form.of(r) {
            closed.push((p / r.published - 1.0).abs());
            there.push(r.error().abs());
        }
    }
    Ok(Left {
        closed: median_and_p90(&closed),
        closed_rows: closed.len(),
        model_there: median_and_p90(&there),
        ..without_closed_form(rows, which)
    })
}

/// [`leave_one_out`] but for the closed form.
pub fn without_closed_form(rows: &[Row], which: impl Fn(&Row) -> bool) -> Left {
    let scored = scored(rows, which);
    let intervals: Vec<(&Row, Interval)> = scored
        .iter()
        .filter_map(|r| Some((*r, interval_for(r, rows)?)))
        .collect();
    let inside = |(r, i): &&(&Row, Interval)| !r.missed && i.holds(r.published / r.predicted);
    let share = |n: usize| n as f64 / intervals.len().max(1) as f64;
    let widths = intervals.iter().map(|(_, i)| i.half_width()).collect();
    let errors: Vec<f64> = scored.iter().map(|r| r.error().abs()).collect();
    Left {
        rows: scored.len(),
        model: median_and_p90(&errors),
        closed: [f64::NAN; 2],
        closed_rows: 0,
        model_there: [f64::NAN; 2],
        coverage: share(intervals.iter().filter(inside).count()),
        strict: share(
            intervals
                .iter()
                .filter(inside)
                .filter(|(r, _)| !r.pinned)
                .count(),
        ),
        half_width: quantile(widths, 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::row;

    fn leave_one_out(rows: &[Row], which: impl Fn(&Row) -> bool) -> Left {
        super::leave_one_out(rows, which).unwrap()
    }

    /// Rows of `programs` with errors that go from -`most` to `most`.
    fn rows(programs: usize, each: usize, most: f64) -> Vec<Row> {
        let n = (programs * each) as f64;
        (0..programs * each)
            .map(|i| {
                let x = 2.0 * ((i * 37) % (programs * each)) as f64 / (n - 1.0) - 1.0;
                Row {
                    workload: format!("w{}", i % programs),
                    ..row("A", 1.5 * (most * x).exp(), 1.5)
                }
            })
            .collect()
    }

    #[test]
    fn intervals_take_nine_of_ten_rows_of_a_program_left_out() {
        let left = leave_one_out(&rows(5, 40, 0.2), |_| true);
        assert_eq!(left.rows, 200);
        assert!((0.85..0.95).contains(&left.coverage), "{left:?}");
        assert!((left.half_width / 0.18 - 1.0).abs() < 0.05, "{left:?}");
        // A program that is unlike the others is outside of what they say.
        let mut odd = rows(5, 40, 0.2);
        odd.push(row("A", 3.0, 1.5));
        let left = leave_one_out(&odd, |r| r.workload == "w");
        assert_eq!((left.rows, left.coverage), (1, 0.0));
    }

    #[test]
    fn a_program_that_was_not_fitted_counts_as_missed() {
        let mut rows = rows(5, 40, 0.2);
        let before = leave_one_out(&rows, |_| true);
        let w0 = rows.iter_mut().filter(|r| r.workload == "w0");
        w0.for_each(|r| r.missed = true);
        let left = leave_one_out(&rows, |_| true);
        assert!(left.coverage < before.coverage - 0.15, "{left:?}");
        assert_eq!(left.model, before.model);
        let (n, most) = bound_of(&rows, false, Some(Class::Local), |_| true).unwrap();
        let half = Interval::about(most, 1.5).half_width();
        assert!((half / 0.18 - 1.0).abs() < 0.05, "{n} {half}");
        assert_eq!((n, bound_of(&rows, true, None, |_| true)), (200, None));
    }

    #[test]
    fn a_window_at_its_bound_counts_as_missed_in_the_strict_share_alone() {
        let mut rows = rows(5, 40, 0.2);
        let before = leave_one_out(&rows, |_| true);
        assert_eq!(before.strict, before.coverage);
        let w0 = rows.iter_mut().filter(|r| r.workload == "w0");
        w0.for_each(|r| r.pinned = true);
        let left = leave_one_out(&rows, |_| true);
        assert_eq!(left.coverage, before.coverage);
        assert!(left.strict < before.strict - 0.15, "{left:?}");
    }

    #[test]
    fn the_closed_form_stands_beside_the_model_on_rows_that_it_has() {
        // Runs over all sockets have no closed form.
        let mut rows = placed(&[[0.2, 0.0], [0.3, 0.2], [0.4, 0.45]]);
        for (i, r) in rows.iter_mut().enumerate() {
            r.workload = format!("w{}", i / 32);
            r.predicted = 1.1 * r.published;
        }
        let mut wide = rows[..40].to_vec();
        for r in &mut wide {
            r.remote = None;
            r.predicted = 3.0 * r.published;
        }
        rows.extend(wide);
        let left = leave_one_out(&rows, |_| true);
        assert_eq!((left.rows, left.closed_rows), (136, 96));
        assert!((left.model_there[1] - 0.1).abs() < 1e-9, "{left:?}");
        assert!(left.model[1] > 1.9 && left.closed[1] < 0.1, "{left:?}");
    }

    #[test]
    fn targets_are_missed_by_name() {
        let good = Left {
            rows: 10,
            model: [0.07, 0.20],
            closed: [0.0; 2],
            closed_rows: 0,
            model_there: [0.0; 2],
            coverage: 0.95,
            strict: 0.90,
            half_width: 0.15,
        };
        let none = missed_targets(&good, 0, false);
        assert!(none.is_empty(), "{none:?}");
        let why = |l: Left, wrong, virtualised| missed_targets(&l, wrong, virtualised).join("; ");
        let left = |f: fn(&mut Left)| {
            let mut left = good.clone();
            f(&mut left);
            left
        };
        let w = why(left(|l| l.model[0] = 0.08), 0, false);
        assert_eq!(w, "median error 8.0 %, not 7 %");
        assert_eq!(why(left(|l| l.model = [0.08, 0.25]), 0, true), "");
        assert_eq!(
            why(left(|l| l.model[1] = 0.26), 0, true),
            "90th percentile 26.0 %, not 25 %"
        );
        // A fit at a bound does not help.
        let w = why(left(|l| l.strict = 0.74), 0, true);
        assert_eq!(w, "inside 74 %, not 90 %");
        let w = why(left(|l| l.half_width = 0.22), 0, true);
        assert_eq!(w, "half width 22 %, not 15 %");
        assert_eq!(why(good.clone(), 1, false), "1 wrong orders, not 0");
        assert_eq!(why(good.clone(), 1, true), "");
        assert_eq!(
            why(left(|l| l.model[0] = f64::NAN), 0, true),
            "median error NaN %, not 10 %"
        );
    }

    #[test]
    fn rows_apart_are_neither_scored_nor_learnt_from() {
        let mut rows = rows(3, 10, 0.1);
        for r in &mut rows[..10] {
            r.apart = Some(Apart::Training);
            r.published = 100.0;
        }
        let left = leave_one_out(&rows, |_| true);
        assert_eq!(left.rows, 20);
        assert!(left.half_width < 0.12, "{left:?}");
    }

    const TRUTH: ClosedForm = ClosedForm {
        tables: 1.3,
        data: 0.7,
        hog: 2.0,
    };

    /// Rows of all placements of programs with these shares of walks, as
    /// [`TRUTH`] has them.
    fn placed(shares: &[[f64; 2]]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &share in shares {
            for bits in 0..32u8 {
                let on = |bit: u8| f64::from(bits >> bit & 1);
                let remote = Remote {
                    tables: [on(0), on(3)],
                    data: on(1),
                    hog: bits & 4 != 0,
                    huge: bits & 16 != 0,
                };
                rows.push(Row {
                    base_walks: Some(share),
                    remote: Some(remote),
                    ..row("A", TRUTH.runtime(share, remote), 1.0)
                });
            }
        }
        rows
    }

    #[test]
    fn the_closed_form_counts_each_dimension_where_it_is() {
        let of = |tables, huge| {
            let remote = Remote {
                tables,
                huge,
                ..Remote::default()
            };
            TRUTH.runtime([0.2, 0.5], remote)
        };
        for (tables, runtime) in [
            ([0.0, 0.0], 1.0),
            ([1.0, 0.0], 1.0 + 0.2 * 1.3),
            ([0.0, 1.0], 1.0 + 0.5 * 1.3),
            ([1.0, 1.0], 1.0 + 0.7 * 1.3),
        ] {
            assert!((of(tables, false) - runtime).abs() < 1e-9, "{tables:?}");
            assert!((of(tables, true) - 0.3).abs() < 1e-9, "no walks");
        }
    }

    #[test]
    fn a_row_without_a_runtime_is_an_error_and_no_fit() {
        // Two walkers' cycles as shares of one's time: a huge page would end more
        // walks than there is time.
        let mut rows = placed(&[[0.2, 0.3], [0.8, 0.9]]);
        for (w, r) in rows.iter_mut().enumerate() {
            r.workload = format!("w{}", w / 32);
        }
        let e = super::leave_one_out(&rows, |_| true).unwrap_err();
        assert!(e.workload == "w1" && (e.share - 1.7).abs() < 1e-9, "{e:?}");
        let text = e.to_string();
        assert!(text.contains("w1 A") && text.contains("1.7"), "{text}");
        rows.retain(|r| r.workload == "w0");
        rows[3].published = f64::NAN;
        let rows: Vec<&Row> = rows.iter().collect();
        assert!(ClosedForm::fit(&rows).is_err());
    }

    #[test]
    fn the_closed_form_finds_its_own_constants() {
        let truth = TRUTH;
        let rows = placed(&[[0.2, 0.0], [0.3, 0.2], [0.4, 0.45]]);
        let found = ClosedForm::fit(&rows.iter().collect::<Vec<_>>()).unwrap();
        for (a, b) in [
            (found.tables, truth.tables),
            (found.data, truth.data),
            (found.hog, truth.hog),
        ] {
            assert!((a / b - 1.0).abs() < 0.02, "{found:?}");
        }
    }
}
