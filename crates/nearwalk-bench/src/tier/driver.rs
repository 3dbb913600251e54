// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver in the machine: has programs do step after step with a round of
//! `memory.tier` before each, and tells the host which node served their accesses, one
//! JSON object a line. Nothing is timed, and nothing moves in a step.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{
    model::{Begin, Event, Sample},
    plan::{FAST, Load, Policy, Program, SLOW},
};
use crate::{
    drive::{Talker, numbers, write},
    vm::wire::tell,
};

const GROUP: &str = "/sys/fs/cgroup/bench-tier";
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";

/// What is run, as the host says.
pub struct Task {
    pub policy: Policy,
    pub programs: Vec<Program>,
    pub load: Load,
    /// Where `tiered` is.
    pub tools: PathBuf,
}

/// Runs the programs; an error is told like everything else.
pub fn drive(task: &Task) -> bool {
    let mut done = true;
    for &program in &task.programs {
        if let Err(error) = run(task, program) {
            let text = format!("{program}, {}: {error:#}", task.policy);
            let _ = tell(&Event::Failed(text));
            done = false;
        }
    }
    done
}

fn step(text: impl Into<String>) -> anyhow::Result<()> {
    tell(&Event::Step(text.into()))
}

fn run(task: &Task, program: Program) -> anyhow::Result<()> {
    let load = task.load;
    write(format!("{HUGE}/enabled"), "always")?;
    // As all memory of a program is to be the same from the beginning.
    write(format!("{HUGE}/defrag"), "always")?;
    for (name, value) in task.policy.sysctls() {
        write(format!("/proc/sys/{}", name.replace('.', "/")), value)?;
    }
    step(format!("{program}: memory is touched"))?;
    let group = Group::new()?;
    let before = copies()?;
    tell(&Event::Begin(Begin {
        policy: task.policy.to_string(),
        program: program.to_string(),
        footprint_bytes: load.footprint,
        fast_bytes: load.fast,
    }))?;
    let words = [
        program.to_string(),
        load.footprint.to_string(),
        task.policy.first(load.footprint, load.fast).to_string(),
        FAST.to_string(),
        SLOW.to_string(),
        load.accesses.to_string(),
        load.seed.to_string(),
    ];
    let mut worker = group.start(&task.tools.join("tiered"), &words)?;
    worker.answer_after("ready")?;
    for number in 0..load.steps {
        step(format!("{program}: step {} of {}", number + 1, load.steps))?;
        if let Some(request) = task.policy.request(load.fast) {
            write(group.file("memory.tier"), &request)?;
        }
        worker.go()?;
        let answer = worker.answer_after(&format!("step {number}"))?;
        let words: Vec<u64> = answer.split(' ').filter_map(|n| n.parse().ok()).collect();
        ensure!(words.len() == 3, "the program said '{answer}'");
        let now = copies()?;
        tell(&Event::Sample(Sample {
            step: number,
            fast: words[0],
            slow: words[1],
            other: words[2],
            tier: numbers(group.file("memory.tier.stat"))?,
            copied: now[0] - before[0],
            helped: now[1] - before[1],
        }))?;
    }
    worker.stop()?;
    group.remove()
}

fn copies() -> anyhow::Result<[u64; 2]> {
    let all = numbers("/proc/vmstat")?;
    let count = |name: &str| all.get(name).copied().unwrap_or(0);
    Ok([count("pgmigrate_copied"), count("pgmigrate_copied_helper")])
}

/// A group for one program.
struct Group(PathBuf);

impl Group {
    fn new() -> anyhow::Result<Group> {
        let dir = PathBuf::from(GROUP);
        fs::create_dir(&dir).with_context(|| format!("cannot make {GROUP}"))?;
        let group = Group(dir);
        let file = group.file("memory.tier");
        ensure!(
            file.exists(),
            "no {}: the kernel has no tiers (CONFIG_MEMCG_TIERING)",
            file.display()
        );
        Ok(group)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Starts a program in it, and on the CPU that this thread stays on: who rests on a
    /// CPU of its own keeps translations, whose accessed bits are not set again then.
    fn start(&self, program: &Path, words: &[String]) -> anyhow::Result<Talker> {
        let mut set = CpuSet::new();
        set.set(0);
        sched_setaffinity(None, &set).context("cannot run on CPU 0")?;
        // What it touches is charged to the group from the first page on.
        let mut all = vec![
            "-c".into(),
            format!("echo $$ >{GROUP}/cgroup.procs && exec \"$@\""),
            "sh".into(),
            program.display().to_string(),
        ];
        all.extend_from_slice(words);
        Talker::start(Path::new("/bin/sh"), &all)
    }

    fn remove(self) -> anyhow::Result<()> {
        fs::remove_dir(&self.0).with_context(|| format!("cannot remove {GROUP}"))
    }
}
