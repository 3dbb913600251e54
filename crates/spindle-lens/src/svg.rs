// SPDX-License-Identifier: GPL-2.0-or-later
//! Bar charts like the papers' figures, published beside predicted.

use lens::validate::Row;
use std::fmt::Write as _;

const BAR: f64 = 11.0;
const GAP: f64 = 10.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 46.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 92.0;

fn escape(s: &str) -> String {
    s.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A chart of `rows`, which are of one dataset; workloads stand side by side.
pub fn chart(title: &str, rows: &[Row]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for r in rows {
        if !workloads.contains(&r.workload.as_str()) {
            workloads.push(&r.workload);
        }
    }
    let group = 2.0 * BAR + GAP;
    let width = LEFT + rows.len() as f64 * group + workloads.len() as f64 * 3.0 * GAP + 20.0;
    let width = width.max(560.0);
    let top = rows
        .iter()
        .map(|r| r.published.max(r.predicted))
        .fold(1.0, f64::max)
        * 1.05;
    let y = |v: f64| TOP + HEIGHT * (1.0 - v / top);
    let mut s = String::new();
    let total = TOP + HEIGHT + BOTTOM;
    let _ = write!(
        s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{total:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>",
        escape(title)
    );
    let legend = [
        ("#9aa5b1", "published runtime"),
        ("#52606d", "of it, walker active"),
        ("#7cc4a4", "predicted (modelled)"),
        ("#1f7a55", "of it, walker active"),
    ];
    for (i, (fill, text)) in legend.iter().enumerate() {
        let x = LEFT + 130.0 * i as f64;
        let _ = write!(
            s,
            "<rect x=\"{x}\" y=\"24\" width=\"9\" height=\"9\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"32\">{text}</text>",
            x + 13.0
        );
    }
    let step = if top > 3.0 { 1.0 } else { 0.5 };
    let mut tick = 0.0;
    while tick < top {
        let (at, right) = (y(tick), width - 10.0);
        let _ = write!(
            s,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.1}</text>",
            LEFT - 4.0,
            at + 3.0
        );
        tick += step;
    }
    let mut x = LEFT + GAP;
    for w in workloads {
        let start = x;
        for r in rows.iter().filter(|r| r.workload == w) {
            let bars = [
                (
                    r.published,
                    r.published_walk.unwrap_or(0.0),
                    legend[0].0,
                    legend[1].0,
                ),
                (r.predicted, r.predicted_walk, legend[2].0, legend[3].0),
            ];
            for (i, (value, walk, light, dark)) in bars.into_iter().enumerate() {
                let left = x + BAR * i as f64;
                for (v, fill) in [(value, light), (value * walk.min(1.0), dark)] {
                    let _ = write!(
                        s,
                        "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{:.1}\" \
                         fill=\"{fill}\"/>",
                        y(v),
                        BAR - 1.0,
                        HEIGHT * v / top
                    );
                }
            }
            let (cx, cy) = (x + BAR, TOP + HEIGHT + 8.0);
            let _ = write!(
                s,
                "<text transform=\"translate({cx:.1},{cy:.1}) rotate(60)\">{}</text>",
                escape(&r.config)
            );
            x += group;
        }
        let _ = write!(
            s,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\">{}</text>",
            (start + x - GAP) / 2.0,
            total - 8.0,
            escape(w)
        );
        x += 3.0 * GAP;
    }
    s.push_str("</svg>\n");
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_and_workload_is_in_the_chart() {
        let row = |w: &str, c: &str| Row {
            dataset: "d".into(),
            virtualised: false,
            workload: w.into(),
            config: c.into(),
            baseline: "LP-LD",
            published: 1.0,
            predicted: 2.0,
            published_walk: Some(0.5),
            predicted_walk: 1.5,
            is_baseline: false,
        };
        let s = chart("a < b", &[row("GUPS", "LP-LD"), row("XSBench", "RPI-LD+M")]);
        for text in [
            "a &lt; b", "GUPS", "XSBench", "RPI-LD+M", "modelled", "</svg>",
        ] {
            assert!(s.contains(text), "{text}");
        }
        // Four legend boxes, a background, four rectangles for each of two.
        assert_eq!(s.matches("<rect").count(), 4 + 1 + 8);
    }
}
