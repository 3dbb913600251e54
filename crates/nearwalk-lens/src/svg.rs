// SPDX-License-Identifier: GPL-2.0-or-later
//! Bar charts like the papers' figures, published beside predicted.

use lens_papers::validate::Row;
use std::fmt::Write as _;

const BAR: f64 = 11.0;
const GAP: f64 = 10.0;
/// Height of the bars of one line of panels.
const HEIGHT: f64 = 200.0;
/// Room above and below them: for the topmost number; for the names.
const ABOVE: f64 = 14.0;
const BELOW: f64 = 84.0;
const LEFT: f64 = 46.0;
/// Room for title and legend.
const HEAD: f64 = 44.0;
/// Least and most width of the chart; panels beyond it start a new line.
const WIDTHS: (f64, f64) = (580.0, 1400.0);

const LEGEND: [(&str, &str); 4] = [
    ("#9aa5b1", "published runtime"),
    ("#52606d", "of it, walker active"),
    ("#7cc4a4", "predicted (modelled)"),
    ("#1f7a55", "of it, walker active"),
];

pub fn escape(s: &str) -> String {
    s.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Runs of one workload that are divided by one run, or a part of them that
/// fits into a line.
type Panel<'a> = Vec<&'a Row>;

fn width(panel: &Panel) -> f64 {
    // No narrower than its title.
    (panel.len() as f64 * (2.0 * BAR + GAP)).max(7.0 * title(panel).len() as f64) + 3.0 * GAP
}

fn title(panel: &Panel) -> String {
    format!("{} over {}", panel[0].workload, panel[0].baseline)
}

/// Panels by workload and baseline in order of appearance, packed into lines.
fn lines(rows: &[Row]) -> Vec<Vec<Panel<'_>>> {
    let mut panels: Vec<Panel> = Vec::new();
    for r in rows {
        let same = |p: &&mut Panel| p[0].workload == r.workload && p[0].baseline == r.baseline;
        match panels.iter_mut().find(same) {
            Some(p) => p.push(r),
            None => panels.push(vec![r]),
        }
    }
    let room = WIDTHS.1 - LEFT - 20.0;
    let most = (room / (2.0 * BAR + GAP)) as usize - 1;
    let mut lines: Vec<Vec<Panel>> = Vec::new();
    let mut used = f64::INFINITY;
    for p in panels.iter().flat_map(|p| p.chunks(most)) {
        let p = p.to_vec();
        if used + width(&p) > room {
            lines.push(Vec::new());
            used = 0.0;
        }
        used += width(&p);
        lines.last_mut().expect("just pushed").push(p);
    }
    lines
}

/// A chart of `rows`, which are of one dataset; workloads stand side by side.
pub fn chart(title: &str, rows: &[Row]) -> String {
    let lines = lines(rows);
    let widest = lines
        .iter()
        .map(|l| l.iter().map(width).sum())
        .fold(0.0, f64::max);
    let right = (LEFT + widest + 20.0).max(WIDTHS.0);
    let total = HEAD + lines.len() as f64 * (ABOVE + HEIGHT + BELOW);
    let mut s = String::new();
    let _ = write!(
        s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{right:.0}\" height=\"{total:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>",
        escape(title)
    );
    for (i, (fill, text)) in LEGEND.iter().enumerate() {
        let x = LEFT + 130.0 * i as f64;
        let _ = write!(
            s,
            "<rect x=\"{x}\" y=\"24\" width=\"9\" height=\"9\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"32\">{text}</text>",
            x + 13.0
        );
    }
    for (i, line) in lines.iter().enumerate() {
        let base = HEAD + i as f64 * (ABOVE + HEIGHT + BELOW) + ABOVE + HEIGHT;
        draw_line(&mut s, line, base, right - 10.0);
    }
    s.push_str("</svg>\n");
    s
}

/// One line of panels on the axis at `base`.
fn draw_line(s: &mut String, line: &[Panel], base: f64, right: f64) {
    let top = line
        .iter()
        .flatten()
        .map(|r| r.published.max(r.predicted))
        .fold(1.0, f64::max)
        * 1.05;
    let y = |v: f64| base - HEIGHT * v / top;
    let step = match top {
        t if t > 12.0 => 5.0,
        t if t > 3.0 => 1.0,
        t if t > 1.5 => 0.5,
        _ => 0.2,
    };
    for i in 0.. {
        let tick = step * f64::from(i);
        if tick > top {
            break;
        }
        let at = y(tick);
        let _ = write!(
            s,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.1}</text>",
            LEFT - 4.0,
            at + 3.0
        );
    }
    let mut start = LEFT;
    for panel in line {
        let mut x = start + GAP;
        for r in panel {
            draw_run(s, r, x, y);
            x += 2.0 * BAR + GAP;
        }
        let end = start + width(panel);
        let _ = write!(
            s,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\">{}</text>",
            (start + end - 2.0 * GAP) / 2.0,
            base + BELOW - 12.0,
            escape(&title(panel))
        );
        start = end;
    }
}

/// Two bars and a name, with `y` giving the height of a value.
fn draw_run(s: &mut String, r: &Row, x: f64, y: impl Fn(f64) -> f64) {
    let bars = [
        (
            r.published,
            r.published_walk.unwrap_or(0.0),
            [LEGEND[0].0, LEGEND[1].0],
        ),
        (r.predicted, r.predicted_walk, [LEGEND[2].0, LEGEND[3].0]),
    ];
    for (i, (value, walk, [light, dark])) in bars.into_iter().enumerate() {
        let left = x + BAR * i as f64;
        for (v, fill) in [(value, light), (value * walk.min(1.0), dark)] {
            let _ = write!(
                s,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"{fill}\"/>",
                y(v),
                BAR - 1.0,
                y(0.0) - y(v)
            );
        }
    }
    let _ = write!(
        s,
        "<text transform=\"translate({:.1},{:.1}) rotate(60)\">{}</text>",
        x + BAR - 4.0,
        y(0.0) + 10.0,
        escape(&r.config)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_papers::class::Class;

    #[test]
    fn every_configuration_and_workload_is_in_the_chart() {
        let row = |w: &str, c: &str| Row {
            dataset: "d".into(),
            virtualised: false,
            wide: false,
            workload: w.into(),
            config: c.into(),
            baseline: "LP-LD",
            published: 1.0,
            predicted: 2.0,
            published_walk: Some(0.5),
            predicted_walk: 1.5,
            published_nested: None,
            predicted_nested: 0.0,
            is_baseline: false,
            class: Class::Local,
            apart: None,
            base_walks: None,
            remote: None,
            missed: false,
            pinned: false,
        };
        let s = chart("a < b", &[row("GUPS", "LP-LD"), row("XSBench", "RPI-LD+M")]);
        for text in [
            "a &lt; b", "GUPS", "XSBench", "RPI-LD+M", "modelled", "</svg>",
        ] {
            assert!(s.contains(text), "{text}");
        }
        // Four legend boxes, a background, four rectangles for each of two.
        assert_eq!(s.matches("<rect").count(), 4 + 1 + 8);
        // Many runs go on in further lines rather than to the right.
        let many: Vec<Row> = (0..100).map(|i| row("GUPS", &format!("C{i}"))).collect();
        let lines = lines(&many);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines.iter().flatten().flatten().count(), 100);
        assert!(
            lines
                .iter()
                .all(|l| l.iter().map(width).sum::<f64>() < WIDTHS.1)
        );
    }
}
