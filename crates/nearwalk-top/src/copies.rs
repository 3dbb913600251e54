// SPDX-License-Identifier: GPL-2.0-or-later
//! Copies of page tables, on our kernel.

use std::collections::BTreeMap;
use std::path::Path;

use nearwalk_advise::report::{Kind, Report, Subject};
use nearwalk_advise::survey::Survey;
use nearwalk_host::Source;
use nearwalk_repl::{NodeSet, Status};

use crate::frame::{Copies, Key, Lazy};

/// Processes of a group that are asked what they have.
const MOST: usize = 64;

/// What holds for everyone in the report; none on other kernels.
pub fn read(
    source: &mut dyn Source,
    survey: &Survey,
    report: &Report,
) -> Option<BTreeMap<Key, Copies>> {
    source.read(Path::new("/proc/self/pgtable_repl")).ok()?;
    let mut all = BTreeMap::new();
    for subject in &report.ranked {
        let copies = match subject.kind {
            // Nested tables are not copied.
            Kind::Vm => None,
            Kind::Group => group(source, survey, subject),
            Kind::Process => subject.pid.and_then(|pid| process(source, pid)),
        };
        if let Some(copies) = copies {
            all.insert(Key::of(subject), copies);
        }
    }
    Some(all)
}

fn process(source: &mut dyn Source, pid: u32) -> Option<Copies> {
    let text = source.read(Path::new(&format!("/proc/{pid}/pgtable_repl")));
    let status: Status = text.ok()?.parse().ok()?;
    Some(Copies {
        mode: status.mode.to_string(),
        nodes: status.nodes,
        bytes: status.pages.values().sum::<u64>() << 12,
        lazy: status.lazy.map(|lazy| Lazy {
            fills: lazy.fills,
            due: lazy.ipis_requested,
            sent: lazy.ipis_sent,
        }),
    })
}

/// A group's own files say how much its copies take, and what holds for those
/// of its processes that have no setting of their own.
fn group(source: &mut dyn Source, survey: &Survey, subject: &Subject) -> Option<Copies> {
    let watched = &survey.watched()[subject.watched];
    let dir = watched.group.as_ref()?;
    let mut file = |suffix| {
        let text = source.read(&dir.join(format!("memory.pgtable_repl.{suffix}")));
        Some(text.ok()?.trim().to_owned())
    };
    let bytes = file("current")?.parse().ok()?;
    let effective = file("effective")?;
    // `eager 0-3`, perhaps with more words.
    let mut words = effective.split(' ');
    let mode = words.next().unwrap_or_default().to_owned();
    let nodes = words.next().and_then(|nodes| nodes.parse().ok());
    let mut copies = Copies {
        mode,
        nodes: nodes.unwrap_or_default(),
        bytes,
        lazy: None,
    };
    if copies.bytes == 0 && copies.mode == "off" {
        return Some(copies);
    }
    let pids = watched.pids.iter().take(MOST);
    let processes: Vec<Copies> = pids.filter_map(|&pid| process(source, pid)).collect();
    for process in &processes {
        if let Some(lazy) = process.lazy {
            let sum = copies.lazy.get_or_insert_default();
            sum.fills += lazy.fills;
            sum.due += lazy.due;
            sum.sent += lazy.sent;
        }
    }
    if let Some((first, rest)) = processes.split_first() {
        let what = |process: &Copies| (process.mode.clone(), process.nodes.clone());
        if rest.iter().all(|process| what(process) == what(first)) {
            (copies.mode, copies.nodes) = what(first);
        } else {
            copies.mode = "mixed".to_owned();
            copies.nodes = NodeSet::default();
        }
    }
    Some(copies)
}
