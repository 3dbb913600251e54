// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver in the machine: fragments its memory, has programs do step after step
//! while passes are made, and tells the host how their memory lies, one JSON object a
//! line. Nothing is timed: a step ends when the program says so.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use super::{
    memory::{Looker, figures, places},
    model::{Begin, End, Event, Sample},
    plan::{Mixture, PUBLISHED_REGIONS, Program, Setting, scaled},
};
use crate::{
    drive::{Talker, numbers, write},
    vm::wire::tell,
};

const PAGE: u64 = 4096;
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";
/// What stays for the driver itself, and for page tables.
const OWN: u64 = 24 << 20;
/// Passes over a program that rests, until one moves nothing.
const MOST_PASSES: usize = 6;
/// Far above what khugepaged takes to look at all memory.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of `/proc/vmstat`.
const EVENTS: [&str; 9] = [
    "thp_fault_alloc",
    "thp_fault_fallback",
    "thp_collapse_alloc",
    "thp_split_page",
    "compact_stall",
    "compact_success",
    "pgmigrate_success",
    "pgmigrate_fail",
    "pgexchange_success",
];

/// What is run, as the host says.
pub struct Task {
    pub setting: Setting,
    pub programs: Vec<Program>,
    pub mixture: Mixture,
    /// Where `fragment` and `workload` are.
    pub tools: PathBuf,
    /// Where the module that reads page tables would be.
    pub module: PathBuf,
}

/// Runs the programs; an error is told like everything else.
pub fn drive(task: &Task) -> bool {
    let mut done = true;
    for &program in &task.programs {
        if let Err(error) = run(task, program) {
            let text = format!("{program}, {}: {error:#}", task.setting);
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
    let mixture = task.mixture;
    set(task.setting)?;
    step(format!("{program}: memory is fragmented"))?;
    let fragment = Fragment::start(task)?;
    let free_bytes = meminfo("MemFree")?;
    let asked_bytes =
        free_bytes.saturating_sub(OWN) / 100 * u64::from(mixture.share) / 100 * program.part();
    let [few, many] = PUBLISHED_REGIONS;
    let regions = [
        few,
        many,
        scaled(few, asked_bytes),
        scaled(many, asked_bytes),
    ];
    tell(&Event::Begin(Begin {
        setting: task.setting.to_string(),
        program: program.to_string(),
        free_bytes,
        free_blocks: free_blocks()?,
        held_pages: fragment.held,
        asked_bytes,
        regions,
    }))?;
    let mut case = Case {
        worker: Worker::start(task, program, asked_bytes)?,
        looker: Looker::open(&task.module)?,
        setting: task.setting,
        regions,
        before: events()?,
        evicted: 0,
        claims: 0,
    };
    for number in 0..mixture.steps {
        step(format!(
            "{program}: step {} of {}",
            number + 1,
            mixture.steps
        ))?;
        case.worker.begin()?;
        // Beside the program, which is at work.
        let passed = case.pass_at(number);
        case.worker.end(number)?;
        passed?;
        case.sample(number)?;
    }
    if task.setting.every().is_some() {
        step(format!("{program}: passes while it rests"))?;
        case.rest()?;
    }
    case.worker.stop()?;
    fragment.stop()
}

/// A program at work.
struct Case {
    worker: Worker,
    looker: Looker,
    setting: Setting,
    regions: [usize; 4],
    /// The kernel's counters when it began.
    before: BTreeMap<String, u64>,
    evicted: u64,
    /// Places that passes have found.
    claims: u64,
}

impl Case {
    fn pass_at(&mut self, number: u32) -> anyhow::Result<()> {
        match self.setting {
            Setting::Khugepaged => khugepaged(),
            setting
                if setting
                    .every()
                    .is_some_and(|every| (number + 1) % every == 0) =>
            {
                self.pass().map(drop)
            }
            _ => Ok(()),
        }
    }

    /// One pass of Ranger, and what became of pages.
    fn pass(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let path = self.worker.ranger();
        let request = self.setting.request();
        write(&path, request)?;
        let counts = numbers(&path)?;
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        self.evicted += count("evicted");
        self.claims += count("claims_made");
        Ok(counts)
    }

    fn sample(&mut self, number: u32) -> anyhow::Result<()> {
        let regions = self.looker.regions(self.worker.pid())?;
        let figures = figures(&regions, &self.regions);
        let passes = match self.setting.every() {
            Some(_) => numbers(self.worker.ranger())?,
            None => BTreeMap::new(),
        };
        let count = |name: &str| passes.get(name).copied().unwrap_or(0);
        let share = |nr: usize| figures.coverage[nr].1.unwrap_or(0.0);
        let mut events = events()?;
        for (name, now) in &mut events {
            *now -= self.before.get(name).copied().unwrap_or(0);
        }
        tell(&Event::Sample(Sample {
            step: number,
            bytes: figures.bytes,
            regions: figures.regions,
            coverage: [share(0), share(1), share(2), share(3)],
            needed: figures.needed,
            largest_bytes: figures.largest.map_or(0, |region| region.bytes()),
            aligned: [0, 1].map(|nr| figures.aligned_share(nr).unwrap_or(0.0)),
            moved: count("all_moved"),
            exchanged: count("all_exchanged"),
            evicted: self.evicted,
            cpu_us: count("cpu_us"),
            events,
        }))
    }

    /// Passes until one moves nothing: then each page is where it can be.
    fn rest(&mut self) -> anyhow::Result<()> {
        let mut end = End::default();
        while end.passes.len() < MOST_PASSES && end.passes.last() != Some(&0) {
            end.pages = self.pass()?;
            end.passes.push(end.pages["moved"] + end.pages["exchanged"]);
        }
        let regions = self.looker.regions(self.worker.pid())?;
        let found = places(&regions, self.claims);
        end.regions = regions.len() as u64;
        end.places = found.places;
        end.home_regions = found.home_regions;
        tell(&Event::End(end))
    }
}

struct Worker(Talker);

impl Worker {
    fn start(task: &Task, program: Program, bytes: u64) -> anyhow::Result<Worker> {
        let words = [
            program.to_string(),
            bytes.to_string(),
            task.mixture.steps.to_string(),
            task.mixture.seed.to_string(),
        ];
        Talker::start(&task.tools.join("workload"), &words).map(Worker)
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn ranger(&self) -> String {
        format!("/proc/{}/ranger", self.pid())
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.0.go()
    }

    fn end(&mut self, number: u32) -> anyhow::Result<()> {
        self.0.answer_after(&format!("step {number}")).map(drop)
    }

    fn stop(self) -> anyhow::Result<()> {
        self.0.stop()
    }
}

/// What holds pages of others, and the files.
struct Fragment {
    talker: Talker,
    held: u64,
}

impl Fragment {
    fn start(task: &Task) -> anyhow::Result<Fragment> {
        let mixture = task.mixture;
        let mib = meminfo("MemTotal")? >> 20;
        let words = [
            mixture.seed.to_string(),
            (mib * u64::from(mixture.files)).to_string(),
            mixture.hold.to_string(),
            "/dev/shm".into(),
        ];
        drop_caches()?;
        let mut talker = Talker::start(&task.tools.join("fragment"), &words)?;
        let answer = talker.answer_after("ready")?;
        let held = answer.split(' ').next().and_then(|held| held.parse().ok());
        let held = held.with_context(|| format!("it said '{answer}'"))?;
        drop_caches()?;
        Ok(Fragment { talker, held })
    }

    fn stop(self) -> anyhow::Result<()> {
        self.talker.stop()
    }
}

/// As the thesis does behind its preconditioning.
fn drop_caches() -> anyhow::Result<()> {
    rustix::fs::sync();
    write("/proc/sys/vm/drop_caches", "3")
}

fn set(setting: Setting) -> anyhow::Result<()> {
    let enabled = if setting.huge() { "always" } else { "never" };
    write(format!("{HUGE}/enabled"), enabled)?;
    let defrag = if setting.compacts() {
        "always"
    } else {
        "madvise"
    };
    write(format!("{HUGE}/defrag"), defrag)?;
    if setting == Setting::Khugepaged {
        // It rests for a minute where no huge page is free.
        write(format!("{HUGE}/khugepaged/alloc_sleep_millisecs"), "10")?;
        // When it is its turn only; see below.
        write(format!("{HUGE}/khugepaged/scan_sleep_millisecs"), "600000")?;
        write(format!("{HUGE}/khugepaged/pages_to_scan"), "4294967295")?;
    }
    Ok(())
}

/// Has khugepaged look at all memory once, from begin to end.
fn khugepaged() -> anyhow::Result<()> {
    let rest = format!("{HUGE}/khugepaged/scan_sleep_millisecs");
    let scans = || -> anyhow::Result<u64> {
        let path = format!("{HUGE}/khugepaged/full_scans");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        text.trim().parse().with_context(|| path.clone())
    };
    let begin = scans()?;
    let end = Instant::now() + PATIENCE;
    write(&rest, "10")?;
    // The scan that was on its way ends, and a whole one follows.
    while scans()? < begin + 2 {
        ensure!(
            Instant::now() < end,
            "khugepaged did not look at all memory within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
    write(&rest, "600000")
}

fn events() -> anyhow::Result<BTreeMap<String, u64>> {
    let mut all = numbers("/proc/vmstat")?;
    all.retain(|name, _| EVENTS.contains(&name.as_str()));
    Ok(all)
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .with_context(|| format!("no {name} in /proc/meminfo"))
}

/// Free blocks by order, of all zones.
fn free_blocks() -> anyhow::Result<Vec<u64>> {
    let text = fs::read_to_string("/proc/buddyinfo").context("/proc/buddyinfo")?;
    Ok(sum_blocks(&text))
}

fn sum_blocks(text: &str) -> Vec<u64> {
    let mut sums = Vec::new();
    for line in text.lines() {
        // "Node 0, zone   DMA32      4      1 ..."
        let counts = line.split_whitespace().skip(4);
        for (order, count) in counts
            .filter_map(|word| word.parse::<u64>().ok())
            .enumerate()
        {
            if sums.len() <= order {
                sums.push(0);
            }
            sums[order] += count;
        }
    }
    sums
}

/// Bytes of base pages.
pub fn bytes(pages: u64) -> u64 {
    pages * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_are_of_all_zones() {
        let text = "Node 0, zone      DMA      1      2      3\n\
                    Node 0, zone    DMA32     10     20     30\n";
        assert_eq!(sum_blocks(text), [11, 22, 33]);
    }
}
