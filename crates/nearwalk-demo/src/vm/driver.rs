// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver in the machine: starts the guest, changes the nested tables and, in the
//! guest, memcached's, and tells the host what it sees, one JSON object a line.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, ensure};
use nearwalk_bench::vm::{
    nested::{Guest, Shape},
    wire::tell,
};
use nearwalk_lab::{Kernel, Size};

use super::model::{Check, Event, Load, Look, Stage};

const DIR: &str = "/tmp/nearwalk-guest";
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// How often a long step tells how far it is.
const TICK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub nodes: u32,
    pub memory: Size,
    pub fill: Size,
    pub value_size: u64,
    /// Of the guest.
    pub kernel: Kernel,
    /// How long the clients ask in each stage.
    pub stay: Duration,
}

/// Runs the plan; an error is told like everything else.
pub fn drive(plan: &Plan) -> bool {
    let done = run(plan);
    let event = match &done {
        Ok(()) => Event::Finished,
        Err(error) => Event::Failed(format!("{error:#}")),
    };
    tell(&event).is_ok() && done.is_ok()
}

fn progress(text: impl Into<String>) -> anyhow::Result<()> {
    tell(&Event::Progress(text.into()))
}

fn did(text: impl Into<String>) -> anyhow::Result<()> {
    tell(&Event::Did(text.into()))
}

fn run(plan: &Plan) -> anyhow::Result<()> {
    // A leaf for each page: with huge ones a small guest has next to no tables.
    fs::write(HUGE, "never").with_context(|| format!("cannot write {HUGE}"))?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    tell(&Event::Machine {
        release: release.trim().into(),
        nodes: plan.nodes,
        cpus: std::thread::available_parallelism()?.get() as u32,
    })?;
    progress("the guest boots")?;
    let shape = Shape::wide(plan.nodes, plan.memory, &plan.kernel);
    let fill = format!("--fill={}", plan.fill);
    let arguments = ["demo-vm", "--inside", &fill];
    let mut guest = Guest::start(&shape, Path::new(DIR), &arguments)?;
    tell(&Event::Guest {
        release: guest.greeting().into(),
        nodes: plan.nodes,
        memory: plan.memory.to_string(),
    })?;
    progress(format!("clients store {}", plan.fill))?;
    let server = guest.hear_meanwhile("memcached's start", &mut |text| progress(text))?;
    tell(&parse_server(&server, plan.value_size).with_context(|| format!("'{server}'"))?)?;

    let mut story = Story { plan, guest };
    story.stay()?;
    story.look(Stage::Before, false)?;
    story.keep("lazy")?;
    did("nearwalk vm set nearwalk-lab lazy: a tree of nested tables for each node")?;
    story.stay()?;
    story.keep("move")?;
    did("nearwalk vm move nearwalk-lab: what is misplaced in the tree from before comes back")?;
    story.stay()?;
    story.look(Stage::Nested, false)?;
    story.guest.ask("set eager all")?;
    did("in the guest, nearwalk set PID all: a copy of memcached's tables on each node")?;
    story.stay()?;
    story.look(Stage::Both, true)?;
    story.check()?;
    story.guest.ask("set off")?;
    story.keep("off")?;
    did("both off: one tree, one set of tables in the guest")?;
    story.stay()?;
    story.look(Stage::Off, false)?;
    progress("every value is read back")?;
    story.guest.begin("stop")?;
    let load = story
        .guest
        .hear_meanwhile("the clients' end", &mut |text| progress(text))?;
    let load: Load = serde_json::from_str(&load)?;
    tell(&Event::Load(load))?;
    story.guest.end()
}

fn parse_server(answer: &str, value_size: u64) -> Option<Event> {
    let mut words = answer.split(' ');
    Some(Event::Server {
        pid: words.next()?.parse().ok()?,
        version: words.next()?.into(),
        values: words.next()?.parse().ok()?,
        value_size,
    })
}

struct Story<'a> {
    plan: &'a Plan,
    guest: Guest,
}

impl Story<'_> {
    /// Lets the clients ask for a while.
    fn stay(&mut self) -> anyhow::Result<()> {
        let mut left = self.plan.stay;
        while !left.is_zero() {
            let now = left.min(TICK);
            let requests = self.guest.ask(&format!("ask {}", now.as_millis()))?;
            progress(format!("clients ask: {requests} requests"))?;
            left -= now;
        }
        Ok(())
    }

    fn keep(&mut self, mode: &str) -> anyhow::Result<()> {
        self.guest.keep(mode)
    }

    fn look(&mut self, stage: Stage, own: bool) -> anyhow::Result<()> {
        progress("page tables are read")?;
        let classes = self.guest.walks(own)?;
        let status = self.guest.status()?;
        let keys = || status.keys.iter().filter(|key| key.tables > 0);
        tell(&Event::Look(Look {
            stage,
            classes,
            trees: keys().count() as u64,
            tables: keys().map(|key| key.tables).sum(),
        }))
    }

    fn check(&mut self) -> anyhow::Result<()> {
        progress("both kernels compare their tables")?;
        let nested = self.guest.check()?;
        let answer = self.guest.ask("check")?;
        let numbers: Vec<u64> = answer.split(' ').flat_map(str::parse).collect();
        ensure!(numbers.len() == 3, "the guest's check: '{answer}'");
        tell(&Event::Check(Check {
            leaves: nested.leaves,
            violations: nested.violations,
            entries: numbers[1],
            differences: numbers[2],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_answer_is_read() {
        let Some(Event::Server { pid, version, .. }) = parse_server("80 1.6.18 640", 1) else {
            panic!("it is one");
        };
        assert_eq!((pid, version.as_str()), (80, "1.6.18"));
        assert!(parse_server("up", 1).is_none());
    }
}
