// SPDX-License-Identifier: GPL-2.0-or-later
//! The findings as pictures: SVG that stands alone.

use std::fmt::Write as _;

use super::{
    model::{CLASSES, Findings, Sample},
    table::{by_setting, label, percent},
};

/// Of the classes: what is near is dark blue, what is far red, what lacks is grey.
const COLOURS: [&str; 5] = ["#1a5a96", "#8fbbe0", "#f2b26b", "#c8452f", "#d9d9d9"];
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px;fill:#555}\
                     .title{font-size:15px;font-weight:600}.right{text-anchor:end}\
                     .middle{text-anchor:middle}";

/// Names of files and what goes into them; nothing for what was not counted.
pub fn all(findings: &Findings) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if !findings.walks.is_empty() {
        all.push(("vm-walks.svg", walks(findings)));
    }
    if !findings.samples.is_empty() {
        all.push(("vm-move.svg", moves(findings)));
    }
    all
}

fn begin(width: u32, height: u32, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{0}\">\n\
         <style>{STYLE}</style>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        escaped(label)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

fn write_text(svg: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>",
        escaped(text)
    );
}

/// Figure 2: a bar for each domain, in groups by setting.
fn walks(findings: &Findings) -> String {
    const LEFT: f64 = 330.0;
    const WIDTH: f64 = 480.0;
    const BAR: f64 = 17.0;
    let groups = &findings.walks;
    let bars: usize = groups.iter().map(|walks| walks.classes.len()).sum();
    let height = 104.0 + bars as f64 * BAR + groups.len() as f64 * 12.0;
    let mut svg = begin(860, height as u32, "Walks by where their two halves are");
    let title = "Where a guest's walks find their leaf entries (guest's half, nested half)";
    write_text(&mut svg, 16.0, 26.0, "title", title);
    let what = format!(
        "Counted in the lab, in pages of the guest's process. Guest: {}, {} pages.",
        groups[0].guest, groups[0].pages
    );
    write_text(&mut svg, 16.0, 46.0, "small", &what);
    let mut x = LEFT;
    for (class, colour) in CLASSES.iter().zip(COLOURS) {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"58\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        );
        write_text(&mut svg, x + 17.0, 69.0, "", class);
        x += 70.0;
    }
    let mut y = 84.0;
    for walks in groups {
        write_text(&mut svg, 16.0, y + 12.0, "", &label(walks));
        for classes in &walks.classes {
            let node = format!("node {}", classes.node);
            write_text(&mut svg, LEFT - 8.0, y + 12.0, "small right", &node);
            let mut x = LEFT;
            let counts = walks.counts(classes);
            for ((count, class), colour) in counts.iter().zip(CLASSES).zip(COLOURS) {
                let width = WIDTH * *count as f64 / walks.pages.max(1) as f64;
                if *count > 0 {
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{}\" \
                         fill=\"{colour}\"><title>{class}: {} ({count} pages)</title></rect>",
                        BAR - 2.0,
                        percent(*count, walks.pages)
                    );
                }
                x += width;
            }
            let near = percent(counts[0], walks.pages);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"small\">{near}</text>",
                LEFT + WIDTH + 6.0,
                y + 12.0
            );
            y += BAR;
        }
        y += 12.0;
    }
    write_text(&mut svg, LEFT + WIDTH + 6.0, 69.0, "small", "LL");
    svg + "</svg>\n"
}

/// Figure 6b: the share of local leaves over time, and below it pages of tables.
fn moves(findings: &Findings) -> String {
    const LINES: [&str; 4] = ["#c8452f", "#1a5a96", "#4f9d5b", "#7a5aa6"];
    const LEFT: f64 = 70.0;
    const RIGHT: f64 = 780.0;
    let first = findings
        .samples
        .iter()
        .map(|s| s.seconds)
        .fold(0.0, f64::min);
    let last = findings
        .samples
        .iter()
        .map(|s| s.seconds)
        .fold(1.0, f64::max);
    let most = findings
        .samples
        .iter()
        .map(|s| s.tables)
        .max()
        .unwrap_or(1)
        .max(1);
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * (seconds - first) / (last - first);
    let mut svg = begin(860, 460, "A guest that is moved to another node");
    let title = "A thin guest goes to another node (at 0 s)";
    write_text(&mut svg, 16.0, 26.0, "title", title);
    let what = "Above: nested leaves on the node of its CPU. Below: pages of nested tables. \
                Counted; the seconds are emulated ones.";
    write_text(&mut svg, 16.0, 46.0, "small", what);
    for (top, bottom, highest, unit) in
        [(90.0, 250.0, 100.0, " %"), (290.0, 420.0, most as f64, "")]
    {
        for tick in [0.0, 0.5, 1.0] {
            let y = bottom - (bottom - top) * tick;
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ddd\"/>"
            );
            let value = format!("{:.0}{unit}", highest * tick);
            write_text(&mut svg, LEFT - 6.0, y + 4.0, "small right", &value);
        }
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#999\" \
             stroke-dasharray=\"4 3\"/>",
            x(0.0)
        );
        let value = |sample: &Sample| match unit {
            "" => Some(sample.tables as f64),
            _ => match sample.local + sample.remote {
                // Of nothing there is no share.
                0 => None,
                there => Some(100.0 * sample.local as f64 / there as f64),
            },
        };
        for (same, colour) in by_setting(findings).zip(LINES) {
            let point = |sample: &Sample| {
                let y = bottom - (bottom - top) * value(sample)? / highest;
                Some(format!("{:.1},{y:.1}", x(sample.seconds)))
            };
            let points: Vec<String> = same.iter().filter_map(point).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" \
                 stroke-opacity=\"0.85\"/>",
                points.join(" ")
            );
        }
    }
    for (index, (same, colour)) in by_setting(findings).zip(LINES).enumerate() {
        let at = LEFT + 150.0 * index as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{at}\" y=\"60\" width=\"18\" height=\"4\" fill=\"{colour}\"/>"
        );
        write_text(&mut svg, at + 24.0, 67.0, "", &same[0].setting);
    }
    let step = ((last - first) / 8.0).max(1.0).ceil();
    let mut at = 0.0;
    while at <= last {
        write_text(
            &mut svg,
            x(at),
            440.0,
            "small middle",
            &format!("{at:.0} s"),
        );
        at += step;
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::model::{Event, Walks};
    use nearwalk_vm::guest::Classes;

    #[test]
    fn there_is_a_picture_of_what_was_counted() {
        let mut findings = Findings::default();
        assert!(all(&findings).is_empty());
        findings.add(Event::Walks(Walks {
            guest: "wide, <2> nodes".into(),
            setting: "one tree".into(),
            pages: 8,
            classes: vec![Classes {
                ll: 2,
                rr: 6,
                ..Classes::default()
            }],
            tables: 3,
        }));
        for (seconds, local) in [(-1.0, 8), (1.0, 0)] {
            findings.add(Event::Sample(Sample {
                setting: "off".into(),
                seconds,
                local,
                remote: 8 - local,
                absent: 0,
                tables: 4,
                faults: 0,
            }));
        }
        let pictures = all(&findings);
        let [walks, moves] = &pictures[..] else {
            panic!("{pictures:?}");
        };
        assert!(
            walks.1.contains("<title>LL: 25.0 % (2 pages)</title>"),
            "{}",
            walks.1
        );
        assert!(walks.1.contains("&lt;2> nodes") && walks.1.ends_with("</svg>\n"));
        assert_eq!(moves.1.matches("<polyline").count(), 2);
        assert!(
            moves.1.contains("points=\"70.0,90.0 780.0,250.0\""),
            "{}",
            moves.1
        );
    }
}
