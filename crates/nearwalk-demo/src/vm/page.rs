// SPDX-License-Identifier: GPL-2.0-or-later
//! The page: one file of HTML that needs no other.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::model::{Event, Look, Run, Stage, parts, passed, share, verdicts};
use crate::{
    number::{count, percent, time},
    report::{
        chart::{Bar, Part},
        page::STYLE,
    },
};

/// Classes of the style sheet, letters and words, in the order of the bars' parts.
const KEYS: [(&str, &str, &str); 4] = [
    ("local", "LL", "local in both halves"),
    ("half", "LR", "only the guest's half is local"),
    ("other", "RL", "only the nested half is local"),
    ("remote", "RR", "remote in both"),
];

pub fn page(run: &Run) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Nearwalk demo: a virtual machine" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Both page tables of a virtual machine, near the CPUs that walk them" }
                    @if passed(run) {
                        span.badge.good { "✓ passed" }
                    } @else {
                        span.badge.bad { "✗ failed" }
                    }
                }
                p.lead {
                    "memcached in a guest with several memory nodes. While clients ask, the host's "
                    "KVM gets a tree of nested page tables for each node, and the guest copies of "
                    "memcached's own page tables; then both are one again."
                }
                @if run.looks().next().is_some() {
                    (pictures(run))
                }
                (claims(run))
                (details(run))
            }
        }
    }
    .into_string()
}

fn pictures(run: &Run) -> Markup {
    let most = run.looks().map(|look| look.tables).max().unwrap_or(1);
    html! {
        h2 { "Where walks found their leaf entries" }
        p {
            "A TLB miss in a guest walks two tables: the guest's own, and the host's nested ones. "
            "For each page of memcached: on which node is the guest's leaf entry, and on which the "
            "nested one, seen from the CPUs of each node? "
            @for (class, letters, words) in KEYS {
                span class={ "key " (class) } {} " " (letters) ", " (words) "; "
            }
            "grey is absent: no CPU there has used the page since the tree was made. The number beside a "
            "bar is the share of LL of what is there."
        }
        div.pictures {
            @for look in run.looks() {
                figure {
                    figcaption {
                        strong { (capital(look.stage.name())) } " — " (caption(look.stage))
                    }
                    (bars(look))
                }
            }
        }
        h2 { "What it takes" }
        p { "Pages of nested tables, 4 KiB each, in all trees together." }
        figure { (tables(run, most)) }
    }
}

fn caption(stage: Stage) -> &'static str {
    match stage {
        Stage::Before => "one tree of nested tables, one set in the guest, as Linux placed them",
        Stage::Nested => "a tree of nested tables for each node",
        Stage::Both => "and a copy of memcached's tables on each node of the guest",
        Stage::Off => {
            "one set in the guest, one tree: the largest there was, all of it on one node"
        }
    }
}

fn bars(look: &Look) -> Markup {
    const ROW: usize = 30;
    const TOP: usize = 6;
    const BAR: Bar = Bar {
        x: 62.0,
        width: 320.0,
    };
    let height = TOP + ROW * look.classes.len();
    html! {
        svg viewBox={ "0 0 520 " (height) } role="img" aria-label=(look.stage.name()) {
            @for (index, classes) in look.classes.iter().enumerate() {
                @let y = TOP + index * ROW;
                @let all = classes.pages().max(1) as f64;
                @let counts = parts(classes);
                @let drawn: Vec<Part> = KEYS.iter().zip(counts).map(|((class, letters, _), part)| {
                    (*class, part as f64 / all, format!("{letters}: {}", count(part)))
                }).collect();
                text.name x="0" y=(y + 15) { "node " (classes.node) }
                (BAR.draw(y, &drawn))
                text.value x=(BAR.x + BAR.width + 8.0) y=(y + 15) {
                    (percent(share(counts[0], classes))) " both local"
                }
            }
        }
    }
}

fn tables(run: &Run, most: u64) -> Markup {
    const ROW: usize = 30;
    const BAR: Bar = Bar {
        x: 110.0,
        width: 420.0,
    };
    let looks: Vec<&Look> = run.looks().collect();
    html! {
        svg viewBox={ "0 0 720 " (ROW * looks.len() + 6) } role="img" aria-label="Pages of nested tables" {
            @for (index, look) in looks.iter().enumerate() {
                @let y = 6 + index * ROW;
                @let share = look.tables as f64 / most.max(1) as f64;
                text.name x="0" y=(y + 15) { (look.stage.name()) }
                (BAR.draw(y, &[("original", share, count(look.tables))]))
                text.value x=(BAR.x + BAR.width + 8.0) y=(y + 15) {
                    (count(look.tables)) " in " (look.trees) @if look.trees == 1 { " tree" } @else { " trees" }
                }
            }
        }
    }
}

fn claims(run: &Run) -> Markup {
    html! {
        h2 { "What this shows" }
        ul.claims {
            @for (claim, problems) in verdicts(run) {
                li {
                    @match &problems {
                        None => "–",
                        Some(problems) if problems.is_empty() => span.good { "✓" },
                        Some(_) => span.bad { "✗" },
                    }
                    " " (capital(claim))
                    @if problems.is_none() { " (not reached)" }
                    @for problem in problems.iter().flatten() {
                        pre { (problem.trim_end()) }
                    }
                }
            }
        }
    }
}

fn details(run: &Run) -> Markup {
    let row = |event: &Event| match event {
        Event::Machine {
            release,
            nodes,
            cpus,
        } => Some((
            "host",
            format!(
                "Linux {release}, {nodes} nodes, {cpus} CPUs, emulated (QEMU TCG); transparent huge pages off"
            ),
        )),
        Event::Guest {
            release,
            nodes,
            memory,
        } => Some((
            "guest",
            format!(
                "KVM, Linux {release}, {nodes} nodes on those of the host, a CPU each, {memory}"
            ),
        )),
        Event::Server {
            version,
            values,
            value_size,
            ..
        } => Some((
            "server",
            format!(
                "memcached {version}, a thread on each CPU, {} values of {value_size} bytes",
                count(*values)
            ),
        )),
        Event::Check(check) => Some((
            "check",
            format!(
                "{} nested leaves: {} violations; {} entries of the guest's copies: {} differences",
                count(check.leaves),
                count(check.violations),
                count(check.entries),
                count(check.differences)
            ),
        )),
        Event::Load(load) => Some((
            "clients",
            format!(
                "{} requests, {} failed, {} wrong; {} values read back at the end",
                count(load.requests),
                count(load.failed),
                count(load.wrong),
                count(load.read_back)
            ),
        )),
        _ => None,
    };
    html! {
        h2 { "Details" }
        div.scroll {
            table {
                @for (name, text) in run.events.iter().filter_map(row) {
                    tr { th { (name) } td { (text) } }
                }
                tr { th { "run" } td { (time(run.seconds)) " in all" } }
                tr { th { "numbers" } td { "counted in this run; emulated, so that times say nothing" } }
            }
        }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::model::tests::run;

    #[test]
    fn the_page_has_a_picture_of_each_stage_and_the_verdict() {
        let page = page(&run());
        assert!(page.contains("✓ passed"));
        assert_eq!(page.matches("<figure>").count(), 5);
        assert!(page.contains("100 % both local"), "{page}");
        let page = super::page(&Run::default());
        assert!(page.contains("✗ failed") && page.contains("(not reached)"));
    }
}
