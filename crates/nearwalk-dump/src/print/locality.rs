// SPDX-License-Identifier: GPL-2.0-or-later
//! The picture of `nearwalk locality`: Figure 4 of the Mitosis paper.

use super::Style;
use super::number::{bytes, count, percent};
use super::rows::title;
use crate::analysis::Tally;
use crate::analysis::locality::{Viewpoint, locality as viewpoints};
use crate::stream::View;

/// Characters of a bar.
const BAR: usize = 24;

/// A line for each viewpoint.
pub fn locality(tally: &Tally, style: Style) -> String {
    let mut out = title(tally);
    if !tally.end.complete {
        out.push_str("the process exited while it was read: the counts are not complete\n");
    }
    let (what, by) = match tally.unread() {
        0 => ("Leaf PTEs", "memory they map"),
        _ => ("Leaf tables", "address space they cover"),
    };
    out.push_str(&format!(
        "\n{what} that a walk from each node finds local (\u{2588}) and remote (\u{2591}), \
         by the {by}\n\n",
    ));
    let points = viewpoints(tally);
    let names: Vec<String> = points.iter().map(name).collect();
    let memory: Vec<String> = points.iter().map(|p| memory(p, style)).collect();
    let width = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
    let (name_width, memory_width) = (width(&names), width(&memory));
    for ((point, name), memory) in points.iter().zip(&names).zip(&memory) {
        let remote = point.remote_by_memory();
        out.push_str(&format!(
            "{name:<name_width$}  {}  {:>4} local  {:>4} remote: {memory:<memory_width$}  {}\n",
            bar(remote),
            percent(remote.map(|r| 1.0 - r), style),
            percent(remote, style),
            entries(point, style),
        ));
    }
    out
}

/// A line for each process: its tables, and what is remote from each node.
pub fn processes(tallies: &[Tally], style: Style) -> String {
    let mut out = String::from("    PID  TABLES  remote from each node with CPUs\n");
    for tally in tallies {
        let tables = tally.canonical().map_or(0, |view| view.tables().0);
        let remote: Vec<String> = viewpoints(tally)
            .iter()
            .map(|point| format!("{:>5}", percent(point.remote_by_memory(), style)))
            .collect();
        out.push_str(&format!(
            "{:>7}  {:>6}  {}  {}\n",
            tally.header.pid,
            bytes(tables << 12, style),
            remote.join(" "),
            tally.header.comm
        ));
    }
    out
}

fn name(point: &Viewpoint) -> String {
    match point.tree {
        View::Canonical => format!("node {}  canonical", point.node),
        View::Domain(domain) => format!("node {}  domain {domain}", point.node),
    }
}

fn memory(point: &Viewpoint, style: Style) -> String {
    format!(
        "{} of {}",
        bytes(point.remote.bytes, style),
        bytes(point.local.bytes + point.remote.bytes, style)
    )
}

fn entries(point: &Viewpoint, style: Style) -> String {
    if point.unread {
        return "PTEs -".into();
    }
    let mut text = format!(
        "{} of {} PTEs, {}",
        count(point.remote.entries, style),
        count(point.local.entries + point.remote.entries, style),
        percent(point.remote_by_entries(), style)
    );
    if point.absent.entries > 0 {
        text.push_str(&format!(
            "; not filled in: {}, {} PTEs",
            bytes(point.absent.bytes, style),
            count(point.absent.entries, style)
        ));
    }
    text
}

/// Local filled, remote shaded; neither is rounded away altogether.
fn bar(remote: Option<f64>) -> String {
    let Some(remote) = remote else {
        return " ".repeat(BAR);
    };
    let mut shaded = (remote * BAR as f64).round() as usize;
    if remote > 0.0 {
        shaded = shaded.max(1);
    }
    if remote < 1.0 {
        shaded = shaded.min(BAR - 1);
    }
    "\u{2588}".repeat(BAR - shaded) + &"\u{2591}".repeat(shaded)
}
