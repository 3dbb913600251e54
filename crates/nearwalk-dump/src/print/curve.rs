// SPDX-License-Identifier: GPL-2.0-or-later
//! A picture of contiguity: which share of the memory the largest regions
//! cover, over their number, as SVG.

use std::fmt::Write as _;

use crate::analysis::contiguity::Contiguity;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 44.0;

/// One snapshot's curve: numbers of regions, and the share that they cover.
pub struct Curve {
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Points at 1, 2, 3, ... regions, ever further apart, up to all.
    pub fn of(contiguity: &Contiguity) -> Self {
        let all = contiguity.regions().len();
        let mut points = Vec::new();
        let mut covered = 0;
        let mut next = 1;
        for (nr, region) in (1..).zip(contiguity.regions()) {
            covered += region.bytes();
            if nr == next || nr == all {
                points.push((nr as f64, covered as f64 / contiguity.bytes() as f64));
                next = (nr + 1).max(nr * 21 / 20);
            }
        }
        Curve { points }
    }
}

/// Curves that are kept of however many snapshots.
const KEPT: usize = 64;

/// The curves of snapshots, evenly spaced in time once there are many, and
/// always the last one.
#[derive(Default)]
pub struct Curves {
    kept: Vec<Curve>,
    pushed: usize,
    /// Each `1 << spacing`th one is kept for good.
    spacing: u32,
}

impl Curves {
    pub fn push(&mut self, curve: Curve) {
        let stays = |nr: usize, spacing: u32| nr % (1 << spacing) == 0;
        if self.pushed > 0 && !stays(self.pushed - 1, self.spacing) {
            self.kept.pop();
        }
        self.kept.push(curve);
        self.pushed += 1;
        if self.kept.len() > KEPT {
            self.spacing += 1;
            let mut nr = 0;
            self.kept.retain(|_| {
                nr += 1;
                stays(nr - 1, 1)
            });
        }
    }

    /// The picture.
    pub fn draw(&self, title: &str) -> String {
        curves(title, &self.kept)
    }
}

/// The picture: snapshots over time from light to dark.
fn curves(title: &str, curves: &[Curve]) -> String {
    let last = |curve: &Curve| curve.points.last().map_or(1.0, |point| point.0);
    let most = curves.iter().map(last).fold(10.0, f64::max);
    let decades = most.log10().ceil();
    let x = |regions: f64| LEFT + (WIDTH - LEFT - RIGHT) * regions.log10() / decades;
    let y = |share: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"13\">{}</text>",
        escape(title)
    );
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.0} %</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(share) + 4.0,
            share * 100.0,
            at = y(share),
        );
    }
    for decade in 0..=decades as u32 {
        let at = x(10f64.powf(decade.into()));
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            y(1.0),
            y(0.0),
            y(0.0) + 16.0,
            10u64.pow(decade),
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">\
         largest regions (counted), and the share of the memory that they cover</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0
    );
    for (nr, curve) in curves.iter().enumerate() {
        // The last one is the darkest.
        let age = (curves.len() - 1 - nr) as f64 / curves.len() as f64;
        let points: Vec<String> = curve
            .points
            .iter()
            .map(|&(regions, share)| format!("{:.1},{:.1}", x(regions), y(share)))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f7a55\" stroke-width=\"2\" \
             stroke-opacity=\"{:.2}\"/>",
            points.join(" "),
            1.0 - 0.8 * age
        );
        // A single point is no line.
        if let [(regions, share)] = curve.points[..] {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#1f7a55\"/>",
                x(regions),
                y(share)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the snapshots that are kept of so many.
    fn kept(of: usize) -> Vec<f64> {
        let mut curves = Curves::default();
        for nr in 0..of {
            let points = vec![(nr as f64, 1.0)];
            curves.push(Curve { points });
        }
        curves.kept.iter().map(|curve| curve.points[0].0).collect()
    }

    #[test]
    fn of_many_curves_some_are_kept_and_the_last() {
        let all: Vec<f64> = (0..64).map(f64::from).collect();
        assert_eq!(kept(64), all);
        let even: Vec<f64> = (0..=64).step_by(2).map(f64::from).collect();
        assert_eq!(kept(65), even);
        assert_eq!(kept(66).last(), Some(&65.0));
        assert_eq!(kept(67)[32..], [64.0, 66.0]);
        let many = kept(100_000);
        assert!((32..=64).contains(&many.len()), "{}", many.len());
        assert_eq!(many.last(), Some(&99_999.0));
        let steps: Vec<f64> = many.windows(2).map(|two| two[1] - two[0]).collect();
        let (last, others) = steps.split_last().unwrap();
        assert!(others.iter().all(|step| step == &2048.0), "{steps:?}");
        assert!(*last <= 2048.0);
    }
}
