// SPDX-License-Identifier: GPL-2.0-or-later
//! Charts like the thesis' figures, of what is modelled. The thesis' bars are not
//! drawn beside: only three of them have a number in its text.

use super::case::{Line, Report};
use super::claims::{ALL, BASE, Data, EAGER, FINE, FITS, INFINITE, PAGED, energy, line, time};
use crate::svg::escape;
use anyhow::Context;
use std::fmt::Write as _;
use std::path::Path;

const HEIGHT: f64 = 200.0;
const LEFT: f64 = 46.0;
const TOP: f64 = 60.0;
const COLOURS: [&str; 5] = ["#9aa5b1", "#b4552d", "#1f7a55", "#7cc4a4", "#3b6ea5"];

/// A name, and a value for each series if it was run.
type Group = (String, Vec<Option<f64>>);

/// The shell of a chart `width` wide, whose axis goes up to `top`.
fn chart(title: &str, series: &[&str], width: f64, top: f64, inside: &str) -> String {
    let right = LEFT + width;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{} (modelled; synthetic programs)</text>",
        (right + 20.0).max(640.0),
        TOP + HEIGHT + 110.0,
        escape(title)
    );
    for (i, name) in series.iter().enumerate() {
        let x = LEFT + 120.0 * i as f64;
        let _ = write!(
            s,
            "<rect x=\"{x}\" y=\"26\" width=\"9\" height=\"9\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"34\">{}</text>",
            COLOURS[i % COLOURS.len()],
            x + 13.0,
            escape(name)
        );
    }
    for i in 0..=4 {
        let tick = top * f64::from(i) / 4.0;
        let y = height(tick, top);
        let _ = write!(
            s,
            "<line x1=\"{LEFT}\" x2=\"{right:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.2}</text>",
            LEFT - 4.0,
            y + 3.0
        );
    }
    s + inside + "</svg>\n"
}

fn height(value: f64, top: f64) -> f64 {
    TOP + HEIGHT * (1.0 - value / top)
}

/// The most of `values`, and a little more.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    (values.fold(1.0, f64::max) * 1.05 * 10.0).ceil() / 10.0
}

fn bars(title: &str, series: &[&str], groups: &[Group]) -> String {
    const BAR: f64 = 11.0;
    let top = top(groups.iter().flat_map(|(_, v)| v.iter().flatten().copied()));
    let step = BAR * series.len() as f64 + 12.0;
    let mut s = String::new();
    for (i, (name, values)) in groups.iter().enumerate() {
        let left = LEFT + 6.0 + step * i as f64;
        for (n, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let y = height(*value, top);
            let _ = write!(
                s,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>{value:.3}</title></rect>",
                left + BAR * n as f64,
                BAR - 1.0,
                TOP + HEIGHT - y,
                COLOURS[n % COLOURS.len()]
            );
        }
        let _ = write!(
            s,
            "<text transform=\"translate({left:.1},{:.1}) rotate(45)\">{}</text>",
            TOP + HEIGHT + 12.0,
            escape(name)
        );
    }
    chart(title, series, step * groups.len() as f64 + 12.0, top, &s)
}

/// Values of each series in ascending order, as Figure 2.13 has mixes.
fn curves(title: &str, series: &[(&str, Vec<f64>)]) -> String {
    let width = 560.0;
    let top = top(series.iter().flat_map(|(_, v)| v.iter().copied()));
    let mut s = String::new();
    for (i, (_, values)) in series.iter().enumerate() {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let step = width / sorted.len().max(1) as f64;
        let point = |(n, v): (usize, &f64)| {
            format!(
                "{:.1},{:.1}",
                LEFT + step * (n as f64 + 0.5),
                height(*v, top)
            )
        };
        let points: Vec<String> = sorted.iter().enumerate().map(point).collect();
        let _ = write!(
            s,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            points.join(" "),
            COLOURS[i % COLOURS.len()]
        );
    }
    let names: Vec<&str> = series.iter().map(|(name, _)| *name).collect();
    chart(title, &names, width, top, &s)
}

fn relative(r: Option<&Report>, scheme: &str) -> Option<f64> {
    Some(line(r?, scheme)?.relative)
}

/// Each program under each label.
fn groups(d: &Data, labels: &[(&str, &str)], series: &[&str]) -> Vec<Group> {
    let mut groups = Vec::new();
    for p in PAGED {
        for (label, short) in labels {
            let r = d.get(label, p);
            let values = series.iter().map(|s| relative(r, s)).collect();
            groups.push((format!("{p} {short}").trim_end().to_owned(), values));
        }
    }
    groups
}

/// Writes all charts to `dir`.
pub fn all(d: &Data, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let write = |name: &str, text: String| {
        let path = dir.join(format!("{name}.svg"));
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let three = ["software", "hatric", "ideal"];
    let four = ["off-chip", "software", "ideal", "all-stacked"];
    let off = "time beside memory off-chip";
    write(
        "fig-2.2",
        bars(
            &format!("As Figure 2.2: {off}"),
            &four,
            &groups(d, &[(BASE, "")], &four),
        ),
    )?;
    for (name, what, labels) in [
        (
            "fig-2.10",
            "vCPUs",
            [("vcpus=4", "4"), ("vcpus=8", "8"), (BASE, "16")],
        ),
        (
            "fig-2.11",
            "policies",
            [
                ("policy=clock", "lru"),
                ("policy=clock+daemon", "+daemon"),
                (BASE, "+pref"),
            ],
        ),
        (
            "fig-2.12",
            "sizes of structures",
            [(BASE, "1x"), ("scale=2", "2x"), ("scale=4", "4x")],
        ),
    ] {
        let title = format!("As Figure {}, {what}: {off}", &name[4..]);
        write(name, bars(&title, &three, &groups(d, &labels, &three)))?;
    }
    for (name, what, of) in [
        (
            "fig-2.13-left",
            "weighted",
            Line::weighted as fn(&Line) -> f64,
        ),
        ("fig-2.13-right", "slowest program", Line::slowest),
    ] {
        let values = |scheme: &str| {
            d.mixes
                .iter()
                .filter_map(|r| line(r, scheme).map(of))
                .collect()
        };
        let series: Vec<(&str, Vec<f64>)> = three.iter().map(|s| (*s, values(s))).collect();
        write(
            name,
            curves(&format!("As Figure 2.13, mixes, {what}: {off}"), &series),
        )?;
    }
    let two = ["time", "energy"];
    let programs = PAGED.iter().map(|p| (BASE, *p));
    let fits = FITS.iter().map(|(p, _)| ("fits", *p));
    let pair = |r: Option<&Report>, scheme: &str, over: &str| {
        vec![
            r.and_then(|r| time(r, scheme, over)),
            r.and_then(|r| energy(r, scheme, over)),
        ]
    };
    let each: Vec<Group> = programs
        .chain(fits)
        .map(|(label, p)| (p.to_owned(), pair(d.get(label, p), "hatric", "software")))
        .collect();
    write(
        "fig-2.14-left",
        bars("As Figure 2.14, left: HATRIC beside software", &two, &each),
    )?;
    let mean = |scheme: &str, over: &str| -> Vec<Option<f64>> {
        let all: Vec<_> = PAGED
            .iter()
            .map(|p| pair(d.get(BASE, p), scheme, over))
            .collect();
        (0..2)
            .map(|i| {
                let sum: Option<f64> = all.iter().map(|v| v[i]).sum();
                sum.map(|s| s / all.len() as f64)
            })
            .collect()
    };
    let named = |names: &[(&str, &str)]| -> Vec<Group> {
        let one = |(name, scheme): &(&str, &str)| ((*name).to_owned(), mean(scheme, "software"));
        names.iter().map(one).collect()
    };
    let sizes = named(&[
        ("1 B", "hatric:cotag=8"),
        ("2 B", "hatric"),
        ("3 B", "hatric:cotag=24"),
    ]);
    write(
        "fig-2.14-right",
        bars(
            "As Figure 2.14, right: co-tags beside software",
            &two,
            &sizes,
        ),
    )?;
    let variants = named(&[
        ("HATRIC", "hatric"),
        ("EGR", EAGER),
        ("FG", FINE),
        ("No-back-inv", INFINITE),
        ("All", ALL),
    ]);
    write(
        "fig-2.15",
        bars("As Figure 2.15: variants beside software", &two, &variants),
    )?;
    let mut rivals = Vec::new();
    for p in PAGED {
        for scheme in ["software", "unitd", "hatric"] {
            rivals.push((
                format!("{p} {scheme}"),
                pair(d.get(BASE, p), scheme, "off-chip"),
            ));
        }
    }
    write(
        "fig-2.16",
        bars("As Figure 2.16: beside memory off-chip", &two, &rivals),
    )
}
