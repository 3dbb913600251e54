// SPDX-License-Identifier: GPL-2.0-or-later
//! What to do about someone's page tables, and how sure that is.

use std::time::Duration;

use nearwalk_host::cgroup::Memory;
use nearwalk_perf::Missing;
use nearwalk_repl::{Mode, Source, Status};

use crate::exposure::{self, CpuTime, Tables};
use crate::gain::{self, ALL_NODES, E7, LOAD, Latencies, ONE_NODE, Range, Walks};
use crate::print::{bytes, percent};
use crate::report::{IDLE, Known, LOCAL};
use crate::subject::{From, Subject};

/// Moving or copying is advised from this gain on.
pub const GAIN: f64 = 0.03;
/// And nothing where no more than this can be gained.
const NOTHING: f64 = 0.02;
/// Who has so much of its CPU time on a node runs there.
const THERE: f64 = 0.9;
/// From this share of cycles on, walks are worth larger pages.
const LARGE: f64 = 0.2;
/// Memory with less of it in huge pages has next to none.
const FEW_HUGE: f64 = 0.1;
/// Copying tables is taken to do so many bytes a second. An estimate.
const BUILT: f64 = (1u64 << 30) as f64;
/// A life this many times longer than the building is worth it.
const WORTH: u32 = 10;

/// Whether it is worth moving or copying tables for.
pub fn is_gain(gain: Range) -> bool {
    gain.middle >= GAIN && gain.low > 0.0
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Leave it.
    Nothing,
    /// It may help, and nothing says how much.
    Measure,
    /// Have the tables on this node.
    Move(u32),
    /// Have copies on these nodes.
    Copy(Vec<u32>),
    /// There is something better.
    First(First),
}

/// What is better than copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Larger pages: fewer walks.
    HugePages,
    /// Have the data near.
    Data,
}

/// How sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The share of remote walks is certain.
    High,
    /// It is, if all nodes use all memory alike.
    Medium,
    /// Counters were shared, or cannot tell cycles with a walk from those of two.
    Low,
}

impl Confidence {
    /// A word.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Advice {
    /// What to do.
    pub verdict: Verdict,
    /// How much less time it takes then.
    pub gain: Option<Range>,
    /// How sure that is; nothing without a gain.
    pub confidence: Option<Confidence>,
    /// Bytes that it costs, if anything is to be done.
    pub memory: Option<u64>,
    /// Why.
    pub because: Vec<String>,
    /// What else could be done.
    pub instead: Vec<String>,
    /// What was not known.
    pub without: Vec<String>,
    /// The command that does it, that takes it back, and what each needs.
    pub commands: Option<(String, String)>,
    /// The command that measures what it changes.
    pub check: Option<String>,
}

/// Where somebody runs.
enum Runs {
    At(usize),
    Everywhere(Vec<usize>),
    Unknown,
}

fn runs(subject: &Subject) -> Runs {
    let CpuTime::Shares(shares) = &subject.time else {
        return Runs::Unknown;
    };
    if let Some(node) = shares.iter().position(|&share| share >= THERE) {
        return Runs::At(node);
    }
    let nodes = (0..shares.len()).filter(|&node| shares[node] > 0.02);
    Runs::Everywhere(nodes.collect())
}

/// What the tables' distance costs here: that of the published machine, unless
/// the firmware tells how far the nodes are.
fn latencies(subject: &Subject) -> Latencies {
    let (Some(distances), CpuTime::Shares(shares)) = (&subject.distances, &subject.time) else {
        return E7;
    };
    let (mut sum, mut weight) = (0.0, 0.0);
    for (from, row) in distances.iter().enumerate() {
        for (to, &distance) in row.iter().enumerate() {
            if from != to {
                let tables = match &subject.tables {
                    Tables::Known(bytes) => bytes[to],
                    Tables::Within { most, .. } => most[to],
                };
                let part = shares[from] * tables as f64;
                sum += part * f64::from(distance);
                weight += part;
            }
        }
    }
    let mean = if weight > 0.0 { sum / weight } else { 0.0 };
    // 10 is no distance, and 20 what firmware writes that does not know.
    if mean <= 10.0 {
        return E7;
    }
    Latencies {
        distance: E7.local * (mean / 10.0 - 1.0),
        ..E7
    }
}

/// What to do about `subject`.
pub fn advise(subject: &Subject) -> Advice {
    let mut advice = judge(subject);
    advice.check = check(subject, &advice.verdict);
    advice
}

/// What measures whether copies help, on a kernel that can make some.
fn check(subject: &Subject, verdict: &Verdict) -> Option<String> {
    let on = match verdict {
        Verdict::Measure => String::new(),
        Verdict::Move(node) => format!(" --on {node}"),
        Verdict::Copy(nodes) => match words(subject, nodes).as_str() {
            "all" => String::new(),
            words => format!(" --on {words}"),
        },
        Verdict::Nothing | Verdict::First(_) => return None,
    };
    // Without counters only its user knows what there is to measure.
    let metric = match subject.counters {
        Ok(_) => "",
        Err(_) => " --metric CMD",
    };
    let whom = whom(subject);
    subject
        .ours
        .then(|| format!("sudo nearwalk trial {whom}{on}{metric}"))
}

/// It as an argument of a command.
pub fn whom(subject: &Subject) -> String {
    if subject.is_group {
        format!("--cgroup {}", subject.name)
    } else {
        subject.pids[0].to_string()
    }
}

/// Nodes as `nearwalk set` takes them.
fn words(subject: &Subject, nodes: &[u32]) -> String {
    let all = subject.nodes.iter().filter(|node| !node.cpus.is_empty());
    if all.count() == nodes.len() {
        return "all".to_owned();
    }
    let words: Vec<String> = nodes.iter().map(u32::to_string).collect();
    words.join(",")
}

fn judge(subject: &Subject) -> Advice {
    let mut advice = Advice {
        verdict: Verdict::Nothing,
        gain: None,
        confidence: None,
        memory: None,
        because: Vec::new(),
        instead: Vec::new(),
        without: subject.lost.clone(),
        commands: None,
        check: None,
    };
    if subject.nodes.len() <= 1 {
        advice.because = vec!["there is 1 node: no walk can be remote".to_owned()];
        advice.without.clear();
        return advice;
    }
    if let Some(why) = nothing(subject).or_else(|| copied(subject)) {
        advice.because.push(why);
        return advice;
    }
    without(subject, &mut advice);
    let shows = match runs(subject) {
        Runs::At(_) => ONE_NODE,
        _ => ALL_NODES,
    };
    let remote = subject.bounds.upper;
    let reading = subject.counters.as_ref().ok();
    let share = reading.and_then(|reading| reading.walk_share());
    let cycles = reading.and_then(|reading| reading.cycles_per_walk());
    walks(subject, &mut advice);
    remote_tables(subject, &mut advice);
    if let Some(share) = share {
        let most = gain::most(share, remote, shows);
        if most < NOTHING {
            advice.because.push(format!(
                "if all of that were saved, it were {:.1} % of the time at most",
                100.0 * most
            ));
            advice.gain = Some(Range {
                low: 0.0,
                middle: 0.0,
                high: most,
            });
            return advice;
        }
    }
    advice.verdict = Verdict::Measure;
    instead(subject, share, &mut advice);
    let (Some(share), Some(cycles)) = (share, cycles) else {
        advice.because.push(
            "nothing says what remote walks cost, and walks that hit caches cost little: no more than \
             \"measure\" can be said"
                .to_owned(),
        );
        return advice;
    };
    let nodes = match runs(subject) {
        Runs::Unknown => return advice,
        Runs::At(node) => vec![node],
        Runs::Everywhere(nodes) => nodes,
    };
    let placed = matches!(subject.tables, Tables::Known(_)) || subject.bounds.is_certain();
    if !placed {
        return advice;
    }
    let at = latencies(subject);
    let counted = Walks { share, cycles };
    let gain = gain::gain(at, counted, remote, LOAD, shows);
    advice.gain = Some(gain);
    advice.confidence = Some(confidence(subject));
    advice.because.push(format!(
        "{:.1} reads of memory in each walk, and in published runs a cycle saved so showed for {:.1} to {:.1} \
         (modelled, published)",
        gain::memory_reads(at, cycles, remote, LOAD.middle),
        shows.low,
        shows.high
    ));
    if gain.high < NOTHING {
        advice.verdict = Verdict::Nothing;
        return advice;
    }
    if !is_gain(gain) {
        return advice;
    }
    if let Some(first) = first(subject, share) {
        advice.verdict = Verdict::First(first);
        advice.commands = match first {
            First::HugePages => Some(huge_pages()),
            First::Data => data(subject, &nodes),
        };
        return advice;
    }
    act(subject, &nodes, &mut advice);
    advice
}

/// Any one proof that there is nothing to be had.
fn nothing(subject: &Subject) -> Option<String> {
    if subject.tables_bytes == 0 {
        return Some("it has no page tables".to_owned());
    }
    if let Some(l3) = subject.l3.filter(|&l3| subject.tables_bytes < l3 / 2) {
        return Some(format!(
            "tables of {} are smaller than half of an L3 ({}): walks hit it (counted)",
            bytes(subject.tables_bytes),
            bytes(l3)
        ));
    }
    if subject.cpus < IDLE {
        return Some(format!(
            "it used {:.2} CPUs, which is next to nothing (measured): look again when it works",
            subject.cpus
        ));
    }
    if subject.bounds.upper < LOCAL {
        return Some(format!(
            "tables are where it runs: at most {} % of the walks can be remote",
            percent(subject.bounds.upper)
        ));
    }
    let building = Duration::from_secs_f64(subject.tables_bytes as f64 / BUILT);
    let age = subject.age.filter(|&age| age < WORTH * building)?;
    Some(format!(
        "it has lived for {:.1} s, and copying its tables takes about {:.1} s (estimated): look again \
         when it is {} times as old",
        age.as_secs_f64(),
        building.as_secs_f64(),
        WORTH
    ))
}

/// Whether there are copies already wherever it runs.
fn copied(subject: &Subject) -> Option<String> {
    let first = subject.set.first()?;
    let nodes = match runs(subject) {
        Runs::Unknown => return None,
        Runs::At(node) => vec![node],
        Runs::Everywhere(nodes) => nodes,
    };
    let has_all = |status: &Status| {
        status.mode != Mode::Off
            && nodes
                .iter()
                .all(|&node| status.nodes.contains(subject.nodes[node].id))
    };
    subject.set.iter().all(has_all).then(|| {
        format!(
            "there are copies of its tables on nodes {} already ({}, by {}): `nearwalk show` tells more",
            first.nodes, first.mode, first.source
        )
    })
}

/// What brings back what a process has now.
fn as_it_was(subject: &Subject) -> String {
    let [status] = &subject.set[..] else {
        return "default".to_owned();
    };
    match (&status.source, &status.mode) {
        // It has no setting of its own.
        (Source::None | Source::Cgroup | Source::System, _) => "default".to_owned(),
        (_, Mode::Off) => "off".to_owned(),
        (_, Mode::Lazy) => match &status.lazy {
            // As the system has it, and goes on having it.
            Some(lazy) if Some(lazy.prefetch) != subject.prefetch => {
                format!("lazy:{} --prefetch {}", status.nodes, lazy.prefetch)
            }
            _ => format!("lazy:{}", status.nodes),
        },
        _ => status.nodes.to_string(),
    }
}

fn walks(subject: &Subject, advice: &mut Advice) {
    let Ok(reading) = &subject.counters else {
        return;
    };
    let mut parts = Vec::new();
    if let Some(share) = reading.walk_share() {
        let most = if reading.walk_share_is_upper() {
            "at most "
        } else {
            ""
        };
        parts.push(format!(
            "{most}{} % of its cycles have a walk",
            percent(share)
        ));
    }
    if let Some(cycles) = reading.cycles_per_walk() {
        parts.push(format!("{cycles:.0} cycles a walk"));
    } else if let Some(walks) = reading.walks() {
        let seconds = subject.length.as_secs_f64();
        parts.push(format!(
            "{:.0} thousand walks a second",
            walks / seconds / 1000.0
        ));
    }
    let counted = reading.counted();
    let shared = if counted < 0.995 {
        format!(", each event {} % of the time or more", percent(counted))
    } else {
        String::new()
    };
    advice.because.push(format!(
        "{} (counted by the events of {}{shared})",
        parts.join(", "),
        reading.model
    ));
}

fn remote_tables(subject: &Subject, advice: &mut Advice) {
    let bounds = subject.bounds;
    let how = match &subject.tables_from {
        From::Read(read, all) if read < all => {
            format!("leaf tables of {read} of {all} processes read")
        }
        From::Read(..) => "leaf tables read".to_owned(),
        From::Group(_) => "the group's tables counted".to_owned(),
        From::Host(_) => "only the host's tables counted".to_owned(),
    };
    let share = if bounds.is_certain() {
        format!(
            "{} % of its walks are remote for certain",
            percent(bounds.upper)
        )
    } else {
        format!(
            "{} % of its walks are remote, if each node uses all of its memory alike, and {} % at least",
            percent(bounds.upper),
            percent(bounds.lower)
        )
    };
    advice.because.push(format!("{share} ({how})"));
}

/// What was not known, and what that does to the answer.
fn without(subject: &Subject, advice: &mut Advice) {
    let without = &mut advice.without;
    match &subject.counters {
        Err(missing) => {
            if *missing != Missing::Idle {
                without.push(format!("counters: {missing}"));
            }
        }
        Ok(reading) => {
            if reading.cycles_per_walk().is_none() {
                without.push(format!(
                    "cycles a walk: {} counts walks and not how long they take (IBS could tell, and is \
                     not used yet)",
                    reading.model
                ));
            } else {
                without.push(
                    "the load of the tables' node: it is taken to be anything from quiet to flooded, \
                     which is in the interval"
                        .to_owned(),
                );
            }
        }
    }
    match &subject.tables_from {
        From::Read(..) => {}
        From::Group(why) => without.push(format!(
            "page tables themselves: {why}; the group's count by node is used"
        )),
        From::Host(why) if !why.is_empty() => without.push(format!(
            "page tables themselves: {why}; where they lie is known only as far as the host's count tells"
        )),
        From::Host(_) => {}
    }
    if let (Known::No, Some(seen)) = (subject.known, subject.seen) {
        without.push(format!(
            "where its CPU time goes: only {} % was seen",
            percent(seen)
        ));
    }
    if subject.nested > 0 {
        without.push(format!(
            "walks inside of its virtual machine, which are also of {} of nested tables: they are not \
             counted; `nearwalk advise` ranks them",
            bytes(subject.nested)
        ));
    }
    if subject.distances.is_none() {
        without.push(
            "how far nodes are: the firmware does not tell; the published machine's latencies are used"
                .to_owned(),
        );
    }
}

fn confidence(subject: &Subject) -> Confidence {
    let Ok(reading) = &subject.counters else {
        return Confidence::Low;
    };
    if reading.counted() < 0.2 || reading.walk_share_is_upper() {
        Confidence::Low
    } else if subject.bounds.is_certain() {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

fn few_huge(subject: &Subject) -> bool {
    let few = |memory: Memory| (memory.huge as f64) < FEW_HUGE * memory.all as f64;
    subject.memory.is_some_and(few)
}

fn instead(subject: &Subject, share: Option<f64>, advice: &mut Advice) {
    if few_huge(subject) && share.is_none_or(|share| share >= LARGE) {
        advice
            .instead
            .push("huge pages first: it has next to none (counted)".to_owned());
    }
}

fn first(subject: &Subject, share: f64) -> Option<First> {
    let never = subject.huge_pages.as_deref() == Some("never");
    if never && few_huge(subject) && share >= LARGE {
        return Some(First::HugePages);
    }
    let data = Tables::Known(subject.data.clone()?);
    let bounds = exposure::bounds(&subject.time, &data);
    bounds.is_certainly_remote().then_some(First::Data)
}

fn huge_pages() -> (String, String) {
    let set = |what| format!("echo {what} | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    (set("always"), set("never"))
}

/// Moving the data of one process to the node where it runs.
fn data(subject: &Subject, nodes: &[usize]) -> Option<(String, String)> {
    let ([pid], [to]) = (&subject.pids[..], nodes) else {
        return None;
    };
    let to = subject.nodes[*to].id;
    let by_node = subject.nodes.iter().zip(subject.data.as_ref()?);
    let from: Vec<String> = by_node
        .filter(|(node, bytes)| node.id != to && **bytes > 0)
        .map(|(node, _)| node.id.to_string())
        .collect();
    // Back to one node only: where more had been is not known any more.
    let [from] = &from[..] else {
        return None;
    };
    let moved = |from: &str, to: &str| format!("sudo migratepages {pid} {from} {to}");
    Some((moved(from, &to.to_string()), moved(&to.to_string(), from)))
}

fn act(subject: &Subject, nodes: &[usize], advice: &mut Advice) {
    let ids: Vec<u32> = nodes.iter().map(|&node| subject.nodes[node].id).collect();
    let (words, copies) = match ids[..] {
        [node] => {
            advice.verdict = Verdict::Move(node);
            (node.to_string(), 1)
        }
        _ => {
            advice.verdict = Verdict::Copy(ids.clone());
            (words(subject, &ids), ids.len() as u64 - 1)
        }
    };
    advice.memory = Some(copies * subject.tables_bytes);
    let set = |what: &str| format!("sudo nearwalk set {} {what}", whom(subject));
    let was = if subject.is_group {
        "default".to_owned()
    } else {
        as_it_was(subject)
    };
    advice.commands = Some((set(&words), set(&was)));
    if !subject.ours {
        advice.without.push(
            "a kernel that can do it: stock Linux neither places nor copies page tables; \
             Nearwalk's does"
                .to_owned(),
        );
    }
}
