// SPDX-License-Identifier: GPL-2.0-or-later
//! The page: one file of HTML that needs no other.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{chart, kind_of_numbers, stage_name, waits};
use crate::{
    model::{Load, Phase, Run, Stage},
    number::{count, plural, size, time},
    verdict::{Finding, passed, verdicts},
};

pub(crate) const STYLE: &str = include_str!("page.css");

pub fn page(run: &Run) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Nearwalk demo" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Page tables of a running server, replicated" }
                    (badge(run))
                }
                p.lead {
                    "A memcached server on a machine with several memory nodes. While clients "
                    "store and read values, the kernel copies the server's page tables to every "
                    "node, then keeps the copy of one node, then drops that too."
                }
                @if !run.pictures.is_empty() {
                    (pictures(run))
                }
                @if let Some(load) = &run.load {
                    (clients(run, load))
                }
                (claims(run))
                (details(run))
            }
        }
    }
    .into_string()
}

fn badge(run: &Run) -> Markup {
    html! {
        @if passed(run) {
            span.badge.good { "✓ passed" }
        } @else {
            span.badge.bad { "✗ failed" }
        }
    }
}

fn pictures(run: &Run) -> Markup {
    let most_pages = run
        .pictures
        .iter()
        .flat_map(|picture| &picture.views)
        .map(|view| view.canonical_pages + view.replica_pages)
        .max()
        .unwrap_or(0);
    html! {
        h2 { "Where the tables were" }
        p {
            "A TLB miss walks the page tables; the walk's last step reads a leaf PTE. It is "
            span.key.local {} " local when the table page that holds it lies on the node of the "
            "CPU that walks, else " span.key.remote {} " remote. The table pages on a node are "
            span.key.original {} " Linux's own and " span.key.copy {} " copies."
        }
        div.pictures {
            @for picture in &run.pictures {
                figure {
                    figcaption {
                        strong { (capital(&stage_name(run, picture.stage))) }
                        " — " (caption(run, picture.stage))
                    }
                    (chart::tables(picture, most_pages))
                }
            }
        }
    }
}

fn caption(run: &Run, stage: Stage) -> String {
    let took = |what: &str| match run.switch(stage) {
        Some(switch) => format!("{what}; the change took {}", time(switch.seconds)),
        None => what.into(),
    };
    match stage {
        Stage::Before => "one set of tables, as Linux placed it".into(),
        Stage::Replicated => took("a copy on every node"),
        Stage::OneNode => took("a copy on one node"),
        Stage::Off => took("one set of tables"),
    }
}

fn clients(run: &Run, load: &Load) -> Markup {
    let waits = waits(load);
    html! {
        h2 { "What the clients saw" }
        p {
            (count(load.gets + load.sets)) " requests, of which " (count(load.sets))
            " stored a new version. Every byte of every answer was compared with what had been "
            "stored: " (count(load.failed)) " failed, " (count(load.wrong)) " wrong. "
            "The longest wait for an answer was " (time(waits.stay)) ", and " (time(waits.switch))
            " for requests during which the kernel made or removed copies."
        }
        figure {
            figcaption {
                "Answers a second. " span.key.switch {} " The kernel at work on the tables. "
                @if let Some(kind) = kind_of_numbers(run) { "Measured " (kind) "." }
            }
            div.scroll.wide { (chart::rate(run, load)) }
        }
        div.scroll {
            table {
                tr {
                    th { "tables" } th.number { "seconds" } th.number { "requests" }
                    th.number { "a second" } th.number { "longest wait" }
                }
                @for span in &load.spans {
                    @let seconds = span.end - span.start;
                    tr.minor[matches!(span.phase, Phase::Switch(_))] {
                        td { (phase_name(run, span.phase)) }
                        td.number { (format!("{seconds:.2}")) }
                        td.number { (count(span.requests)) }
                        td.number {
                            // Of a moment there is no rate.
                            @if seconds >= 1.0 {
                                (count((span.requests as f64 / seconds) as u64))
                            }
                        }
                        td.number { (time(span.longest)) }
                    }
                }
            }
        }
    }
}

fn phase_name(run: &Run, phase: Phase) -> String {
    match phase {
        Phase::Stay(stage) => stage_name(run, stage),
        Phase::Switch(stage) => format!("→ {}", stage_name(run, stage)),
    }
}

fn claims(run: &Run) -> Markup {
    html! {
        h2 { "What this shows" }
        ul.claims {
            @for verdict in verdicts(run) {
                li {
                    @match &verdict.finding {
                        Finding::Holds => span.good { "✓" },
                        Finding::NotReached => "–",
                        Finding::Fails(_) => span.bad { "✗" },
                    }
                    " " (capital(verdict.claim))
                    @if verdict.finding == Finding::NotReached {
                        " (not reached)"
                    }
                    @if let Finding::Fails(problems) = &verdict.finding {
                        @for problem in problems {
                            pre { (problem.trim_end()) }
                        }
                    }
                }
            }
        }
    }
}

fn details(run: &Run) -> Markup {
    let rows = [
        ("machine", machine(run)),
        ("server", server(run)),
        ("check", check(run)),
        ("copies", copies(run)),
        (
            "run",
            Some(format!("{} in all", time(run.total_seconds))).filter(|_| run.total_seconds > 0.0),
        ),
        (
            "numbers",
            kind_of_numbers(run).map(|kind| format!("measured {kind}")),
        ),
    ];
    html! {
        h2 { "Details" }
        div.scroll {
            table {
                @for (name, text) in rows {
                    @if let Some(text) = text {
                        tr { th { (name) } td { (text) } }
                    }
                }
            }
        }
    }
}

fn machine(run: &Run) -> Option<String> {
    let machine = run.machine.as_ref()?;
    let cpus: usize = machine.nodes.iter().map(|node| node.cpus.len()).sum();
    Some(format!(
        "Linux {}, {} with {}, NUMA balancing {}",
        machine.release,
        plural(machine.nodes.len(), "node"),
        plural(cpus, "CPU"),
        if machine.numa_balancing { "on" } else { "off" }
    ))
}

fn server(run: &Run) -> Option<String> {
    let (server, fill) = (run.server.as_ref()?, run.fill.as_ref()?);
    Some(format!(
        "memcached {}, a thread on each CPU; {} values of {}, stored in {} by {}",
        server.version,
        count(fill.values),
        size(fill.value_size),
        time(fill.seconds),
        plural(server.clients, "client")
    ))
}

fn check(run: &Run) -> Option<String> {
    let texts: Vec<String> = run
        .checks
        .iter()
        .map(|check| {
            format!(
                "{}: {} tables with {} entries compared by the kernel, {}",
                stage_name(run, check.stage),
                count(check.tables),
                count(check.entries),
                plural(check.differences as usize, "difference")
            )
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn copies(run: &Run) -> Option<String> {
    let left = run.leftover.as_ref()?;
    Some(format!(
        "{} pages of copies allocated and {} freed; {} in use at the end, {} before",
        count(left.allocated),
        count(left.freed),
        count(left.after),
        count(left.before)
    ))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page(&run());
        for word in [
            "http:", "https:", "src=", "href=", "url(", "@import", "<script",
        ] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn there_is_a_drawing_for_each_stage_and_one_of_the_rate() {
        let page = page(&run());
        assert_eq!(page.matches("<svg").count(), 5);
        assert_eq!(page.matches("75 % remote").count(), 4 + 3 + 4);
        assert_eq!(page.matches("class=\"switch\"").count(), 3);
        assert!(page.contains("✓ passed"));
    }

    #[test]
    fn what_others_say_is_text_and_not_markup() {
        let mut run = run();
        run.failure = Some("<b>&".into());
        let page = page(&run);
        assert!(page.contains("&lt;b&gt;&amp;"));
        assert!(page.contains("✗ failed"));
    }

    #[test]
    fn a_run_that_saw_nothing_makes_a_page_too() {
        let page = page(&Run::default());
        assert!(page.contains("it ended early") && page.contains("(not reached)"));
        assert!(!page.contains("<svg"));
    }
}
