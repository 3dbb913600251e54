// SPDX-License-Identifier: GPL-2.0-or-later
//! One setup timed under several schemes: what was asked for, and what was modelled.

use super::inputs;
use crate::util::fingerprint;
use anyhow::{Context, ensure};
use clap::Args;
use lens_hatric::cores::Placement;
use lens_hatric::energy::{self, Joules};
use lens_hatric::machine::Stacked;
use lens_hatric::pager::Policy;
use lens_hatric::program::Program;
use lens_hatric::scheme::{Scheme, Spec};
use lens_hatric::sim::{Outcome, Setup, Steady};
use serde::{Deserialize, Serialize};

/// Changes when the same question may get another answer.
const MODEL: &str = "hatric-3";

/// Accesses after which one gives up to turn stacked memory over.
const PATIENCE: u64 = 4_000_000_000;

/// What all commands take.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Schemes, as `list` prints them. Commas are between schemes, unless there are
    /// semicolons
    #[arg(
        long,
        default_value = "ideal,hatric,unitd,broadcast,targeted,kvm,software"
    )]
    pub schemes: String,
    /// Who leaves stacked memory: clock or fifo, then +daemon, +prefetch or +prefetch=K
    #[arg(long, default_value = "clock+daemon+prefetch")]
    pub policy: String,
    /// Machine: haswell-stacked, or a TOML file with [part.hatric]
    #[arg(long, default_value = "haswell-stacked")]
    pub machine: String,
    /// A key of the machine file and another value for it
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Something that is assumed of programs, some times as large: base, window,
    /// footprint, plateau, cluster, stores or dependent
    #[arg(long, value_name = "KEY=FACTOR")]
    pub scale_program: Vec<String>,
    /// A TOML file of programs in place of those that come with it
    #[arg(long, value_name = "FILE")]
    pub programs: Option<String>,
    /// Remaps that were recorded, played in place of the pager
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["policy", "turnover", "patience", "stolen_daemon", "defragment"]
    )]
    pub tape: Option<String>,
    /// Accesses of all CPUs that are timed
    #[arg(long, default_value_t = 4_000_000)]
    pub accesses: u64,
    /// Times that stacked memory is turned over first, without time [0-100]
    #[arg(long, default_value_t = 1.0)]
    pub turnover: f64,
    /// Accesses after which it is timed though stacked memory was not turned over
    /// [default: 4000000000, of a mix 400000000]
    #[arg(long)]
    pub patience: Option<u64>,
    /// Share of a copy that a faulting CPU waits for [0-1]
    #[arg(long, default_value_t = 1.0)]
    pub copy_wait: f64,
    /// The daemon takes its time from the vCPUs, and has no CPU of its own
    #[arg(long)]
    pub stolen_daemon: bool,
    /// Accesses from one page moved by defragmentation to the next; 0 for none
    #[arg(long, default_value_t = 0)]
    pub defragment: u64,
    /// Entries of translation structures, in multiples of the machine's [1-16]
    #[arg(long, default_value_t = 1)]
    pub scale: usize,
    /// Seed of the generators
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// All that an answer depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The version of the model.
    pub model: String,
    /// Programs, all in one VM.
    pub programs: Vec<String>,
    /// vCPUs of each.
    pub vcpus: u32,
    /// Schemes by name.
    pub schemes: Vec<String>,
    /// The pager's policy.
    pub policy: String,
    /// The machine's name or file.
    pub machine: String,
    /// Other values for its keys.
    pub set: Vec<String>,
    /// What is assumed of programs, times some factor.
    pub scale_program: Vec<String>,
    /// A tape in place of the pager.
    #[serde(default)]
    pub tape: Option<String>,
    /// Of the machine's and the programs' texts, of traces and the tape.
    pub fingerprint: u64,
    /// Accesses that are timed.
    pub accesses: u64,
    /// Times that stacked memory is turned over first.
    pub turnover: f64,
    /// Accesses after which that is given up.
    pub patience: u64,
    /// Share of a copy that a faulting CPU waits for.
    pub copy_wait: f64,
    /// The daemon runs on the vCPUs.
    pub stolen_daemon: bool,
    /// Accesses between two pages that defragmentation moves.
    pub defragment: u64,
    /// Entries of translation structures, in multiples.
    pub scale: usize,
    /// Seed of the generators.
    pub seed: u64,
}

/// What was modelled of one scheme.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its name; first come `off-chip` and `all-stacked`, which do not page.
    pub scheme: String,
    /// Cycles of an access, over all CPUs.
    pub cycles_per_access: f64,
    /// Time beside that of memory off-chip alone.
    pub relative: f64,
    /// The same of each program.
    pub programs: Vec<f64>,
    /// Share of time in which CPUs are stopped for translation coherence.
    pub coherence: f64,
    /// Share in which they wait for walks.
    pub walks: f64,
    /// Share in which they wait for copies.
    pub copies: f64,
    /// Picojoules of an access (analytic).
    pub energy: Joules,
    /// Area that translation structures take more, as a share of a CPU's.
    pub area: f64,
    /// What was counted.
    pub outcome: Outcome,
}

impl Line {
    /// The mean of the programs' times beside those off-chip.
    pub fn weighted(&self) -> f64 {
        self.programs.iter().sum::<f64>() / self.programs.len().max(1) as f64
    }

    /// The most of them.
    pub fn slowest(&self) -> f64 {
        self.programs.iter().copied().fold(0.0, f64::max)
    }
}

/// All of a case.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// `modelled`.
    pub kind: String,
    /// What was asked for.
    pub case: Case,
    /// References that the pager was run ahead by.
    pub ahead: u64,
    /// Turnovers of stacked memory that they made.
    pub turnovers: f64,
    /// By scheme.
    pub lines: Vec<Line>,
}

/// Reads a list of schemes.
pub fn schemes(text: &str) -> anyhow::Result<Vec<Spec>> {
    let between = if text.contains(';') { ';' } else { ',' };
    let mut specs = Vec::new();
    for word in text.split(between).flat_map(|part| match between {
        // A list within: `hatric,hatric:cotag=8;..` has one scheme a comma up to the
        // first colon.
        ';' => split_plain(part),
        _ => vec![part.to_owned()],
    }) {
        specs.push(Spec::parse(word.trim())?);
    }
    Ok(specs)
}

/// The schemes of `part`, of which only the last may have parameters.
fn split_plain(part: &str) -> Vec<String> {
    let (plain, rest) = part.split_at(part.find(':').unwrap_or(part.len()));
    let mut words: Vec<String> = plain.split(',').map(str::to_owned).collect();
    if let Some(last) = words.last_mut() {
        last.push_str(rest);
    }
    words
}

/// Times `scheme`, of this name.
///
/// # Errors
/// It let a translation be used that no nested entry has any more, so that its times
/// mean nothing.
fn time(
    steady: &Steady,
    name: &str,
    placement: Placement,
    scheme: Box<dyn Scheme>,
) -> anyhow::Result<Outcome> {
    let o = steady.time(placement, scheme);
    let stale = o.counts.stale_uses;
    ensure!(
        stale == 0,
        "{name} is broken: {stale} accesses or walks used a translation that is there no more"
    );
    Ok(o)
}

/// A case that is ready to run.
#[derive(Debug)]
pub struct Ready {
    pub case: Case,
    machine: Stacked,
    setup: Setup,
    specs: Vec<Spec>,
}

impl Ready {
    /// Checks everything but what only the pager finds.
    pub fn new(programs: &[String], vcpus: u32, o: &Options) -> anyhow::Result<Self> {
        let machine_text = inputs::machine_text(&o.machine)?;
        let pairs = o
            .set
            .iter()
            .map(|s| {
                let pair = s.split_once('=');
                pair.with_context(|| format!("--set {s}: KEY=VALUE is allowed"))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let machine =
            Stacked::from_toml_with(&machine_text, &pairs).with_context(|| o.machine.clone())?;
        let specs = schemes(&o.schemes)?;
        let (all, programs_text) = inputs::programs(o.programs.as_deref())?;
        let mut recorded = String::new();
        let chosen = programs
            .iter()
            .map(|name| {
                let mut program = Program::find(&all, name)?.clone();
                if let Some(path) = &program.trace {
                    let (trace, print) = inputs::trace(o.programs.as_deref(), path)?;
                    program = program.play(trace).with_context(|| path.clone())?;
                    recorded += &format!("{name} {print:016x}\n");
                }
                for text in &o.scale_program {
                    let pair = text.split_once('=');
                    let pair = pair.and_then(|(key, n)| Some((key, n.parse().ok()?)));
                    let (key, factor) = pair.with_context(|| {
                        format!("--scale-program {text}: KEY=FACTOR is allowed")
                    })?;
                    program = program.scaled(key, factor)?;
                }
                Ok((name.clone(), program, vcpus as usize))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let (name, first, _) = chosen.first().context("no program is named")?;
        let tape = match &o.tape {
            Some(path) => {
                let (tape, print) = inputs::tape(path)?;
                recorded += &format!("{print:016x}\n");
                Some(tape)
            }
            None => None,
        };
        let patience = o.patience.unwrap_or(PATIENCE);
        let setup = Setup {
            policy: Policy {
                defragment: o.defragment,
                ..Policy::parse(&o.policy)?
            },
            copy_wait: o.copy_wait,
            stolen_daemon: o.stolen_daemon,
            turnover: o.turnover,
            patience,
            accesses: o.accesses,
            scale: o.scale,
            seed: o.seed,
            tape,
            ..Setup {
                programs: chosen.clone(),
                ..Setup::of(name, first, vcpus as usize)
            }
        };
        setup.check(&machine)?;
        Ok(Self {
            case: Case {
                model: MODEL.to_owned(),
                programs: programs.to_vec(),
                vcpus,
                schemes: specs.iter().map(|s| s.name().to_owned()).collect(),
                policy: o.policy.clone(),
                machine: o.machine.clone(),
                set: o.set.clone(),
                scale_program: o.scale_program.clone(),
                tape: o.tape.clone(),
                fingerprint: match recorded.as_str() {
                    "" => fingerprint(&[&*machine_text, &programs_text]),
                    _ => fingerprint(&[&*machine_text, &programs_text, &recorded]),
                },
                accesses: o.accesses,
                turnover: o.turnover,
                patience,
                copy_wait: o.copy_wait,
                stolen_daemon: o.stolen_daemon,
                defragment: o.defragment,
                scale: o.scale,
                seed: o.seed,
            },
            machine,
            setup,
            specs,
        })
    }

    /// Cases of the same key, which is none for several programs, have pagers that do
    /// the same: one may be run ahead for all.
    pub fn ahead(&self) -> Option<String> {
        let c = &self.case;
        let moves = |text: &&String| {
            let stays = ["base=", "window=", "stores=", "dependent="];
            !stays.iter().any(|key| text.starts_with(key))
        };
        (c.programs.len() == 1 && c.tape.is_none()).then(|| {
            format!(
                "{:?} {} {} {} {} {} {} {} {} {:?}",
                c.programs,
                c.vcpus,
                c.policy,
                c.turnover,
                c.patience,
                c.defragment,
                c.seed,
                self.machine.stacked_pages(),
                self.machine.extra.native,
                c.scale_program.iter().filter(moves).collect::<Vec<_>>(),
            )
        })
    }

    /// Runs the pager ahead.
    pub fn reach(&self) -> anyhow::Result<Steady> {
        Ok(Steady::reach(&self.machine, &self.setup)?)
    }

    /// Runs it; `says` is told what comes next.
    pub fn run(&self, mut says: impl FnMut(&str)) -> anyhow::Result<Report> {
        says("running the pager ahead");
        self.run_from(&self.reach()?, says)
    }

    /// Runs it with the pager of another case with the same [`Ready::ahead`].
    pub fn run_as(&self, steady: &Steady) -> anyhow::Result<Report> {
        self.run_from(&steady.again(&self.machine, &self.setup)?, |_| ())
    }

    fn run_from(&self, steady: &Steady, mut says: impl FnMut(&str)) -> anyhow::Result<Report> {
        if steady.turnovers < self.case.turnover && steady.accesses > 0 {
            says(&format!(
                "stacked memory was turned over {:.2} times in {} references, and not {}: what is paged is rare",
                steady.turnovers, steady.accesses, self.case.turnover
            ));
        }
        let ideal = Spec::parse("ideal")?;
        let mut runs = vec![
            ("off-chip", Placement::OffChip, &ideal),
            ("all-stacked", Placement::Infinite, &ideal),
        ];
        for s in &self.specs {
            runs.push((s.name(), Placement::Paged, s));
        }
        let mut lines: Vec<Line> = Vec::new();
        for (scheme, placement, spec) in runs {
            says(&format!("timing {scheme}"));
            let o = time(steady, scheme, placement, spec.build())?;
            let base = lines.first().map_or(&o, |l| &l.outcome);
            lines.push(self.line(scheme, spec, base, &o));
        }
        Ok(Report {
            kind: "modelled".to_owned(),
            case: self.case.clone(),
            ahead: steady.accesses,
            turnovers: steady.turnovers,
            lines,
        })
    }

    fn line(&self, scheme: &str, spec: &Spec, base: &Outcome, o: &Outcome) -> Line {
        let counts = &o.counts;
        let cycles = counts.cycles();
        let tracks = spec.build().tracks();
        let each = o.programs.iter().zip(&base.programs).map(|(a, b)| a / b);
        let (m, scale) = (&self.machine, self.case.scale);
        let joules = energy::of(m, tracks, scale, self.setup.vcpus(), counts);
        Line {
            scheme: scheme.to_owned(),
            cycles_per_access: o.cycles_per_access(),
            relative: o.cycles_per_access() / base.cycles_per_access(),
            programs: each.collect(),
            coherence: counts.coherence_cycles() / cycles,
            walks: counts.walk_cycles / cycles,
            copies: counts.copy_cycles / cycles,
            energy: joules.over(counts.accesses.max(1) as f64),
            area: energy::area(m, tracks, scale),
            outcome: o.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use lens_hatric::cores::Cores;
    use lens_hatric::scheme::Change;

    #[test]
    fn a_run_whose_scheme_lets_stale_translations_be_used_is_an_error() {
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            options: Options,
        }
        struct Idle;
        impl Scheme for Idle {
            fn stored(&mut self, _: &Change, _: &mut Cores) {}
        }
        let o = Cli::parse_from([
            "test",
            "--set",
            "memory.per_node=\"8 MiB\"",
            "--accesses",
            "20000",
            // Moves pages that are in use.
            "--defragment",
            "1",
        ])
        .options;
        let ready = Ready::new(&["canneal".to_owned()], 2, &o).unwrap();
        let steady = ready.reach().unwrap();
        let with = |scheme| time(&steady, "x", Placement::Paged, scheme);
        with(Spec::parse("ideal").unwrap().build()).unwrap();
        let e = with(Box::new(Idle)).unwrap_err().to_string();
        assert!(e.contains("x is broken: "), "{e}");
    }

    #[test]
    fn lists_of_schemes_are_split_at_commas_or_at_semicolons() {
        let names = |text| -> Vec<String> {
            let specs = schemes(text).unwrap();
            specs.iter().map(|s| s.name().to_owned()).collect()
        };
        assert_eq!(names("ideal,kvm:batch=2"), ["ideal", "kvm:batch=2"]);
        assert_eq!(
            names("hatric,hatric:cotag=8,low=3;ideal"),
            ["hatric", "hatric:cotag=8,low=3", "ideal"]
        );
        let e = schemes("hatric:cotag=8,low=3").unwrap_err().to_string();
        assert!(e.contains("`low=3`; there are"), "{e}");
    }
}
