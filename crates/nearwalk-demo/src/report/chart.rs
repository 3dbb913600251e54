// SPDX-License-Identifier: GPL-2.0-or-later
//! The drawings of the page, as SVG that takes its colours from the page's
//! style sheet.

use maud::{Markup, html};

use super::stage_name;
use crate::{
    model::{Load, Phase, Picture, Run, View},
    number::{count, percent},
};

/// Where the tables of one stage are: a row for each node, with the leaf PTEs
/// that walks from there find local and remote, and the table pages that lie
/// there. `most_pages` is the length of a full bar of these.
pub fn tables(picture: &Picture, most_pages: u64) -> Markup {
    const ROW: usize = 30;
    const TOP: usize = 26;
    const LEAVES: Bar = Bar {
        x: 62.0,
        width: 150.0,
    };
    const PAGES: Bar = Bar {
        x: 322.0,
        width: 140.0,
    };
    let height = TOP + ROW * picture.views.len() + 4;
    html! {
        svg viewBox={ "0 0 520 " (height) } role="img" {
            text.head x=(LEAVES.x) y="14" { "leaf PTEs, seen from the node" }
            text.head x=(PAGES.x) y="14" { "table pages on the node" }
            @for (index, view) in picture.views.iter().enumerate() {
                @let y = TOP + index * ROW;
                text.name x="0" y=(y + 15) { "node " (view.node) }
                (LEAVES.draw(y, &leaf_parts(view)))
                text.value x=(LEAVES.x + LEAVES.width + 8.0) y=(y + 15) {
                    (percent(view.remote_share())) " remote"
                }
                (PAGES.draw(y, &page_parts(view, most_pages)))
                text.value x=(PAGES.x + PAGES.width + 8.0) y=(y + 15) {
                    (count(view.canonical_pages + view.replica_pages))
                }
            }
        }
    }
}

/// A part of a bar: class, share of the full length, what it is.
pub(crate) type Part = (&'static str, f64, String);

fn leaf_parts(view: &View) -> Vec<Part> {
    let remote = view.remote_share();
    let seen = view.local + view.remote > 0;
    let local = if seen { 1.0 - remote } else { 0.0 };
    vec![
        ("local", local, format!("{} local", count(view.local))),
        ("remote", remote, format!("{} remote", count(view.remote))),
    ]
}

fn page_parts(view: &View, most: u64) -> Vec<Part> {
    let share = |pages: u64| pages as f64 / most.max(1) as f64;
    let originals = view.canonical_pages;
    let copies = view.replica_pages;
    vec![
        (
            "original",
            share(originals),
            format!("{} of Linux's own", count(originals)),
        ),
        ("copy", share(copies), format!("{} copies", count(copies))),
    ]
}

pub(crate) struct Bar {
    pub x: f64,
    pub width: f64,
}

impl Bar {
    pub fn draw(&self, y: usize, parts: &[Part]) -> Markup {
        let starts = parts.iter().scan(self.x, |next, (_, share, _)| {
            let start = *next;
            *next += share * self.width;
            Some(start)
        });
        html! {
            rect.track x=(self.x) y=(y) width=(self.width) height="20" rx="2" {}
            @for ((class, share, title), x) in parts.iter().zip(starts) {
                @if *share > 0.0 {
                    rect class=(class) x=(short(x)) y=(y) width=(short(share * self.width))
                        height="20" rx="2" {
                        title { (title) }
                    }
                }
            }
        }
    }
}

/// Answers a second over time, with what happened to the tables meanwhile.
pub fn rate(run: &Run, load: &Load) -> Markup {
    const LEFT: f64 = 56.0;
    const RIGHT: f64 = 952.0;
    const TOP: f64 = 34.0;
    const BOTTOM: f64 = 210.0;
    let end = load.spans.last().map_or(0.0, |span| span.end).max(1e-3);
    let per_second: Vec<f64> = load
        .rate
        .iter()
        .map(|&answers| answers as f64 / load.rate_step)
        .collect();
    let y_ticks = ticks(per_second.iter().copied().fold(1.0, f64::max), 4);
    let highest = y_ticks.last().copied().unwrap_or(1.0);
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / end;
    let y = |rate: f64| BOTTOM - (BOTTOM - TOP) * rate / highest;

    let mut path = format!("M{} {}", short(LEFT), short(BOTTOM));
    for (index, &rate) in per_second.iter().enumerate() {
        let from = x(index as f64 * load.rate_step);
        let to = x((index + 1) as f64 * load.rate_step);
        path += &format!("L{0} {2}L{1} {2}", short(from), short(to), short(y(rate)));
    }
    let last = x(per_second.len() as f64 * load.rate_step);
    path += &format!("L{} {}Z", short(last), short(BOTTOM));

    html! {
        svg viewBox="0 0 960 246" role="img" aria-label="Answers a second over time" {
            @for (index, span) in stays(load).enumerate() {
                @let (from, to) = (x(span.start), x(span.end));
                rect.band.odd[index % 2 == 1] x=(short(from)) y="8" width=(short(to - from))
                    height=(BOTTOM - 8.0) {}
                text.head x=(short(from + 6.0)) y="23" {
                    @if let Phase::Stay(stage) = span.phase { (stage_name(run, stage)) }
                }
            }
            @for &tick in &y_ticks {
                line.grid x1=(LEFT) x2=(RIGHT) y1=(short(y(tick))) y2=(short(y(tick))) {}
                text.tick.right x=(LEFT - 6.0) y=(short(y(tick) + 4.0)) { (count(tick as u64)) }
            }
            path.rate d=(path) {}
            @for span in load.spans.iter().filter(|span| matches!(span.phase, Phase::Switch(_))) {
                rect.switch x=(short(x(span.start) - 0.75)) y="8"
                    width=(short((x(span.end) - x(span.start)).max(1.5))) height=(BOTTOM - 8.0) {}
            }
            @for &tick in &ticks(end, 8) {
                @if tick <= end {
                    text.tick.middle x=(short(x(tick))) y=(BOTTOM + 16.0) { (tick) }
                }
            }
            text.tick.right x=(RIGHT) y=(BOTTOM + 32.0) { "seconds since the clients began" }
        }
    }
}

fn stays(load: &Load) -> impl Iterator<Item = &crate::model::Span> {
    load.spans
        .iter()
        .filter(|span| matches!(span.phase, Phase::Stay(_)))
}

/// From 0 to `highest` or a little above, about `steps` steps of 1, 2 or 5
/// times a power of ten.
fn ticks(highest: f64, steps: usize) -> Vec<f64> {
    let rough = highest / steps as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0);
    let last = (highest / step).ceil() as usize;
    (0..=last).map(|index| index as f64 * step).collect()
}

/// A coordinate with as many digits as can be seen.
pub(crate) fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_highest() {
        assert_eq!(ticks(7.0, 4), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(1000.0, 4), [0.0, 500.0, 1000.0]);
        assert_eq!(ticks(400.0, 4), [0.0, 100.0, 200.0, 300.0, 400.0]);
        assert_eq!(ticks(0.3, 3), [0.0, 0.1, 0.2, 0.30000000000000004]);
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(short(12.0), "12");
        assert_eq!(short(0.126), "0.13");
        assert_eq!(short(100.0), "100");
    }

    fn view(local: u64, remote: u64) -> View {
        View {
            node: 1,
            own_tree: false,
            local,
            remote,
            canonical_pages: 30,
            replica_pages: 10,
        }
    }

    #[test]
    fn the_parts_of_a_bar_fill_it() {
        let shares = |parts: Vec<Part>| -> Vec<f64> { parts.iter().map(|part| part.1).collect() };
        assert_eq!(shares(leaf_parts(&view(1, 3))), [0.25, 0.75]);
        assert_eq!(shares(leaf_parts(&view(0, 0))), [0.0, 0.0]);
        assert_eq!(shares(page_parts(&view(0, 0), 40)), [0.75, 0.25]);
    }
}
