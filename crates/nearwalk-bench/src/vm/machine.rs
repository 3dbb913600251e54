// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver in the machine: starts guests, has them use memory, changes which tables
//! they have, and tells the host what it counts, one JSON object a line.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use nearwalk_lab::{MemoryPlace, Nodes};

use super::{
    cost,
    model::{Event, Faults, Sample, Tables, Walks},
    nested::{Guest, Shape},
    plan::{Part, Plan},
    wire::tell,
};

/// Shared with guests; in the machine's memory.
const DIR: &str = "/tmp/nearwalk-guest";
const IDLE: &str = "/sys/module/kvm/parameters/pgtable_repl_idle";
/// Tables that go by themselves, in a second, since they are not in their place.
const ZAP_RATE: &str = "/sys/module/kvm/parameters/pgtable_repl_zap_rate";
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// What idle trees get instead of a minute.
const IDLE_SECONDS: u64 = 10;
/// How often a guest that moves is looked at, and for how long after the move.
const LOOK: Duration = Duration::from_secs(1);
/// What takes longer than this to go does not go.
const GOING: Duration = Duration::from_secs(180);

/// Runs a part; an error is told like everything else.
pub fn drive(part: Part, plan: &Plan) -> bool {
    let done = run(part, plan);
    match &done {
        Ok(()) => true,
        Err(error) => {
            let _ = tell(&Event::Failed(format!("{part}: {error:#}")));
            false
        }
    }
}

fn step(text: impl Into<String>) -> anyhow::Result<()> {
    tell(&Event::Step(text.into()))
}

fn run(part: Part, plan: &Plan) -> anyhow::Result<()> {
    if part == Part::Cost {
        return tell_costs(plan);
    }
    // A leaf for each page: with huge ones a guest of 1 GiB has one table of them.
    fs::write(HUGE, "never").with_context(|| format!("cannot write {HUGE}"))?;
    // Tables are moved where that is said, and at no other time.
    if plan.ours() && part != Part::Move {
        fs::write(ZAP_RATE, "0").with_context(|| format!("cannot write {ZAP_RATE}"))?;
    }
    match part {
        Part::Walks => walks(plan),
        Part::Misplaced => misplaced(plan),
        Part::Tables => tables(plan),
        Part::Move => moves(plan),
        Part::Faults => faults(plan),
        Part::Cost => unreachable!("done above"),
    }
}

/// A guest with memory in use, and what is said of it.
struct Case<'a> {
    guest: Guest,
    name: String,
    plan: &'a Plan,
}

impl<'a> Case<'a> {
    fn start(shape: &Shape, name: &str, plan: &'a Plan) -> anyhow::Result<Case<'a>> {
        let name = format!("{name}, {}", describe(shape));
        step(format!("booting a guest: {name}"))?;
        Ok(Case {
            guest: Guest::with_memory(shape, Path::new(DIR))?,
            name,
            plan,
        })
    }

    fn fill(&mut self, how: &str) -> anyhow::Result<()> {
        step(format!("filling {}", self.plan.fill))?;
        self.guest.fill(self.plan.fill, how)
    }

    /// Every CPU uses all of it.
    fn use_all(&mut self) -> anyhow::Result<()> {
        step("every CPU reads all of it")?;
        self.guest.ask("read all").map(drop)
    }

    /// What the guest's own kernel keeps for the process.
    fn inside(&mut self, mode: &str) -> anyhow::Result<()> {
        step(format!("in the guest: {mode}"))?;
        self.guest.ask(&format!("set {mode}")).map(drop)
    }

    fn keep(&mut self, mode: &str) -> anyhow::Result<()> {
        step(format!("nested: {mode}"))?;
        self.guest.keep(mode)
    }

    fn pages_of_tables(&mut self) -> anyhow::Result<u64> {
        Ok(self.guest.status()?.keys.iter().map(|key| key.tables).sum())
    }

    fn walks(&mut self, setting: &str, own: bool) -> anyhow::Result<()> {
        let report = self.guest.check()?;
        ensure!(
            report.violations == 0,
            "{setting}: {} violations of the kernel's check",
            report.violations
        );
        let walks = Walks {
            guest: self.name.clone(),
            setting: setting.into(),
            pages: self.guest.pages(),
            classes: self.guest.walks(own)?,
            tables: self.pages_of_tables()?,
        };
        tell(&Event::Walks(walks))
    }

    fn tables(&mut self, setting: &str) -> anyhow::Result<u64> {
        let status = self.guest.status()?;
        let keys = || status.keys.iter().filter(|key| key.tables > 0);
        let mut tables = Tables {
            guest: self.name.clone(),
            setting: setting.into(),
            trees: keys().count() as u64,
            pages: keys().map(|key| key.tables).sum(),
            on: Default::default(),
        };
        for (node, pages) in keys().flat_map(|key| &key.on) {
            *tables.on.entry(*node).or_default() += pages;
        }
        let pages = tables.pages;
        tell(&Event::Tables(tables))?;
        Ok(pages)
    }

    /// Counts nested page faults of what the guest does.
    fn faults(&mut self, setting: &str, action: &str, command: &str) -> anyhow::Result<()> {
        step(format!("{action}, {setting}"))?;
        let before = self.guest.faults()?;
        match command {
            "fill" => self.guest.fill(self.plan.fill, "")?,
            command => drop(self.guest.ask(command)?),
        }
        tell(&Event::Faults(Faults {
            kernel: self.plan.host.clone(),
            guest: self.name.clone(),
            setting: setting.into(),
            action: action.into(),
            pages: self.guest.pages(),
            faults: self.guest.faults()? - before,
        }))
    }

    fn end(self) -> anyhow::Result<()> {
        step("the guest ends")?;
        self.guest.end()
    }
}

fn describe(shape: &Shape) -> String {
    let plural = |count: u32, word: &str| match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    };
    format!(
        "{}, {}, {}",
        plural(shape.nodes, "node"),
        plural(shape.cpus, "CPU"),
        shape.memory
    )
}

/// Figure 2, and what each way of copying makes of it.
fn walks(plan: &Plan) -> anyhow::Result<()> {
    let shape = Shape::wide(plan.nodes, plan.memory, &plan.kernel);
    let mut case = Case::start(&shape, "wide", plan)?;
    case.fill("spread")?;
    case.walks("one tree, guest one", false)?;
    case.inside("eager all")?;
    case.walks("guest eager", true)?;
    if !plan.quick {
        case.inside("off")?;
        case.inside("lazy all")?;
        case.use_all()?;
        case.walks("guest lazy", true)?;
        case.inside("off")?;
        case.keep("lazy")?;
        case.use_all()?;
        case.walks("nested lazy, set when full", false)?;
        case.keep("move")?;
        case.use_all()?;
        case.walks("the same, misplaced tables moved", false)?;
    }
    case.end()?;

    let mut case = Case::start(&shape, "wide", plan)?;
    case.keep("lazy")?;
    case.fill("spread")?;
    case.use_all()?;
    if !plan.quick {
        case.walks("nested lazy", false)?;
        case.inside("lazy all")?;
        case.use_all()?;
        case.walks("nested lazy, guest lazy", true)?;
        case.inside("off")?;
    }
    case.inside("eager all")?;
    case.walks("nested lazy, guest eager", true)?;
    case.end()
}

/// Section 4.2.2: the guest's copies are all there, and all on the wrong node.
fn misplaced(plan: &Plan) -> anyhow::Result<()> {
    let mut shape = Shape::wide(plan.nodes, plan.memory, &plan.kernel);
    let next: Vec<u32> = (0..plan.nodes)
        .map(|node| (node + 1) % plan.nodes)
        .collect();
    shape.place = MemoryPlace::Bind(Nodes::new(next).context("no nodes")?);
    let name = "wide, each node's memory on the next node";
    let mut case = Case::start(&shape, name, plan)?;
    case.keep("lazy")?;
    case.fill("spread")?;
    case.use_all()?;
    case.walks("nested lazy, guest one", false)?;
    case.inside("eager all")?;
    case.walks("nested lazy, guest eager and misplaced", true)?;
    case.end()
}

/// Table 6, and that memory comes back.
fn tables(plan: &Plan) -> anyhow::Result<()> {
    let shape = Shape::wide(plan.nodes, plan.memory, &plan.kernel);
    let mut case = Case::start(&shape, "wide", plan)?;
    case.fill("spread")?;
    case.use_all()?;
    let one = case.tables("off")?;
    for nodes in [1, 2, 4, 8].into_iter().filter(|&n| n <= plan.nodes) {
        let list = match nodes {
            1 => "0".to_owned(),
            n => format!("0-{}", n - 1),
        };
        case.keep(&format!("lazy {list}"))?;
        case.use_all()?;
        case.tables(&format!("lazy on {nodes}"))?;
    }
    case.keep("lazy 0")?;
    case.use_all()?;
    case.tables("dropped to 1")?;
    case.keep("lazy")?;
    case.use_all()?;
    case.tables("lazy on all again")?;
    step(format!(
        "all CPUs go to node 0; idle trees go after {IDLE_SECONDS} s"
    ))?;
    fs::write(IDLE, IDLE_SECONDS.to_string()).with_context(|| format!("cannot write {IDLE}"))?;
    case.guest.run_on(0)?;
    case.guest.ask("work on")?;
    let begin = Instant::now();
    while case
        .guest
        .status()?
        .keys
        .iter()
        .filter(|k| k.tables > 0)
        .count()
        > 1
    {
        ensure!(begin.elapsed() < GOING, "idle trees have not gone");
        thread::sleep(LOOK);
    }
    case.guest.ask("work off")?;
    case.tables("after an idle period")?;
    case.keep("off")?;
    case.use_all()?;
    let last = case.tables("off again")?;
    ensure!(
        last <= one + one / 50 + 2,
        "{last} pages of tables when all is off again, {one} before"
    );
    case.end()
}

/// Figure 6b: a thin guest, its CPUs and memory moved to another node.
fn moves(plan: &Plan) -> anyhow::Result<()> {
    fs::write(IDLE, IDLE_SECONDS.to_string()).with_context(|| format!("cannot write {IDLE}"))?;
    let (from, to) = (0, plan.nodes - 1);
    for (setting, mode) in [
        ("off", None),
        ("follow", Some("lazy")),
        ("zap", Some("migrate")),
        ("ideal", None),
    ] {
        let home = if setting == "ideal" { to } else { from };
        let mut case = Case::start(&Shape::thin(home, plan.memory, &plan.kernel), "thin", plan)?;
        if let Some(mode) = mode {
            case.keep(mode)?;
        }
        case.fill("")?;
        case.guest.ask("work on")?;
        step(format!("{setting}: looking at it while it works"))?;
        let mut watch = Watch::new(setting);
        for _ in 0..3 {
            watch.look(&mut case)?;
            thread::sleep(LOOK);
        }
        watch.begin = Instant::now();
        watch.faults = case.guest.faults()?;
        watch.moved = true;
        let mut mover = None;
        if setting != "ideal" {
            step(format!("{setting}: the guest goes to node {to}"))?;
            case.guest.run_on(to)?;
            mover = Some(case.guest.move_memory(from, to));
        }
        while watch.begin.elapsed() < plan.watch {
            watch.look(&mut case)?;
            thread::sleep(LOOK);
        }
        // Whatever the watch was, its end is that of the move.
        if let Some(mover) = mover {
            mover.join().expect("the mover does not panic")?;
        }
        watch.look(&mut case)?;
        case.guest.ask("work off")?;
        case.end()?;
    }
    Ok(())
}

struct Watch<'a> {
    setting: &'a str,
    begin: Instant,
    moved: bool,
    faults: u64,
}

impl<'a> Watch<'a> {
    fn new(setting: &'a str) -> Watch<'a> {
        Watch {
            setting,
            begin: Instant::now() + 3 * LOOK,
            moved: false,
            faults: 0,
        }
    }

    fn look(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let shares = case.guest.shares()?;
        let now = Instant::now();
        let seconds = match self.moved {
            true => (now - self.begin).as_secs_f64(),
            false => -self.begin.saturating_duration_since(now).as_secs_f64(),
        };
        let faults = match self.moved {
            true => case.guest.faults()? - self.faults,
            false => 0,
        };
        let sum = |of: fn(&nearwalk_vm::share::Share) -> u64| shares.iter().map(of).sum();
        tell(&Event::Sample(Sample {
            setting: self.setting.into(),
            seconds: (seconds * 10.0).round() / 10.0,
            local: sum(|share| share.local),
            remote: sum(|share| share.remote),
            absent: sum(|share| share.absent),
            tables: case.pages_of_tables()?,
            faults,
        }))
    }
}

/// Violations: nested page faults, with one tree and with one a domain.
fn faults(plan: &Plan) -> anyhow::Result<()> {
    let shape = Shape::wide(plan.nodes, plan.memory, &plan.kernel);
    let modes: &[&str] = match plan.ours() {
        true => &["off", "lazy"],
        false => &["off"],
    };
    for mode in modes {
        let mut case = Case::start(&shape, "wide", plan)?;
        if *mode != "off" {
            case.keep(mode)?;
        }
        let setting = if plan.ours() { mode } else { "stock" };
        case.faults(setting, "CPU 0 fills, page after page", "fill")?;
        for cpu in 0..plan.nodes {
            case.faults(
                setting,
                &format!("CPU {cpu} reads all of it"),
                &format!("read {cpu}"),
            )?;
        }
        case.end()?;
    }
    Ok(())
}

fn tell_costs(plan: &Plan) -> anyhow::Result<()> {
    for setting in cost::SETTINGS {
        if *setting == cost::LAZY && !plan.ours() {
            continue;
        }
        step(format!("faults of a guest without a kernel, {setting}"))?;
        tell(&Event::Cost(cost::measure(&plan.host, setting)?))?;
    }
    Ok(())
}
