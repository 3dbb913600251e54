// SPDX-License-Identifier: GPL-2.0-or-later
//! Boots one machine, runs the program in it and reads its findings.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use nearwalk_lab::{Job, Kernel, Plugin, Vm, build_dir};

use crate::{
    plan::{Machine, Op, Region, Setting},
    stores::{Programs, Stores},
};

/// The guest's program; see lab/bench.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vmops"));

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Lab(#[from] nearwalk_lab::Error),

    /// The program, or the kernel under it, failed.
    #[error("{machine}: {text}")]
    Guest { machine: String, text: String },

    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

/// What one operation took.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub op: String,
    pub bytes: u64,
    /// Pages, huge pages or switches in a round.
    pub count: u64,
    pub rounds: u32,
    /// Instructions of a round.
    pub median: u64,
    pub min: u64,
    pub max: u64,
    /// The plugin's numbers of the measured sections, one a round.
    sections: Vec<usize>,
    /// What the plugin saw in a round, if it was there.
    pub stores: Option<Stores>,
}

impl Sample {
    /// Reads a line of the program's; its comment describes them.
    fn parse(line: &str) -> Option<Sample> {
        let words: Vec<&str> = line.split(' ').collect();
        let [op, bytes, count, rounds, median, min, max, sections] = words[..] else {
            return None;
        };
        let sections = sections.split(',').map(|number| number.parse().ok());
        Some(Sample {
            op: op.into(),
            bytes: bytes.parse().ok()?,
            count: count.parse().ok().filter(|&count| count > 0)?,
            rounds: rounds.parse().ok()?,
            median: median.parse().ok()?,
            min: min.parse().ok()?,
            max: max.parse().ok()?,
            sections: sections.collect::<Option<_>>()?,
            stores: None,
        })
    }

    /// Instructions for a page.
    pub fn each(&self) -> f64 {
        self.median as f64 / self.count as f64
    }

    #[cfg(test)]
    pub fn example(op: &str, bytes: u64, count: u64, median: u64) -> Sample {
        Sample::parse(&format!(
            "{op} {bytes} {count} 3 {median} {median} {median} 0,1,2"
        ))
        .expect("a line of the program's")
    }
}

/// The program as a file that the guest can see.
pub fn install() -> Result<PathBuf, Error> {
    install_as("vmops", PROGRAM)
}

/// Puts a program of the guest's where VMs see it.
pub fn install_as(name: &str, program: &[u8]) -> Result<PathBuf, Error> {
    let dir = build_dir().join("bench");
    let path = dir.join(name);
    // Renamed into place: another run may be reading it. Each call has a file
    // of its own: threads of one process install it side by side.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let fresh = dir.join(format!("{name}.{}.{call}", std::process::id()));
    fs::create_dir_all(&dir)
        .and_then(|()| fs::write(&fresh, program))
        .and_then(|()| fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&fresh, &path))
        .map_err(|source| Error::Io {
            what: path.display().to_string(),
            source,
        })?;
    Ok(path)
}

/// What to do on every machine.
pub struct Task {
    pub program: PathBuf,
    pub ours: Kernel,
    pub stock: Kernel,
    pub ops: Vec<Op>,
    pub regions: Vec<Region>,
    /// Instead of what suits each region.
    pub rounds: Option<u32>,
    /// Also count stores to other nodes' memory.
    pub stores: bool,
}

impl Task {
    /// Boots `machine` and measures everything on it.
    pub fn measure(&self, machine: Machine) -> Result<Vec<Sample>, Error> {
        let largest = *self.regions.iter().max().expect("there is a region");
        let mut config = machine.config(&self.ours, &self.stock, largest);
        let seen = Scratch::new(&machine.to_string().replace(' ', "-"));
        if self.stores {
            config.plugin = Some(Plugin::count(&config.nodes, &seen.0));
        }
        let (out, errors) = (Collected::default(), Collected::default());
        let job = Job::new(["sh", "-c", &self.script(machine)])
            .stdout(out.clone())
            .stderr(errors.clone());
        let outcome = Vm::start(&config, job)?.wait()?;
        let failed = |text: String| Error::Guest {
            machine: machine.to_string(),
            text,
        };
        if !outcome.success() {
            return Err(failed(format!("{}{}", errors.text(), outcome.report())));
        }
        let unclear = |line: &str| failed(format!("unclear: '{line}'"));
        let mut samples = out
            .text()
            .lines()
            .map(|line| Sample::parse(line).ok_or_else(|| unclear(line)))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some((op, region)) = self.missing(&samples) {
            return Err(failed(format!("no result for {op} of {region}")));
        }
        if self.stores {
            let text = fs::read_to_string(&seen.0).map_err(|source| Error::Io {
                what: seen.0.display().to_string(),
                source,
            })?;
            let programs = Programs::parse(&text).map_err(|line| unclear(&line))?;
            attach(&mut samples, &programs).map_err(failed)?;
        }
        Ok(samples)
    }

    /// Operations that make sense for the `index`th region: huge pages and
    /// whole tables need 2 MiB, and switches do not depend on it.
    fn ops_for(&self, index: usize) -> Vec<&'static str> {
        let huge = self.regions[index].bytes() >= 2 << 20;
        let fits = |name: &&str| match *name {
            "switch" => index == 0,
            "mremap-pmd" | "thp-fault" | "thp-split" => huge,
            _ => true,
        };
        self.ops.iter().map(|op| op.name).filter(fits).collect()
    }

    /// What was asked for and is not among the results.
    fn missing(&self, samples: &[Sample]) -> Option<(&'static str, Region)> {
        let asked = self
            .regions
            .iter()
            .enumerate()
            .flat_map(|(index, &region)| {
                let ops = self.ops_for(index).into_iter();
                ops.map(move |op| (op, region))
            });
        let has = |op: &str, region: Region| {
            samples
                .iter()
                .any(|sample| sample.op == op && sample.bytes == region.bytes())
        };
        asked.into_iter().find(|&(op, region)| !has(op, region))
    }

    /// One process for each region: what one leaves behind in its address
    /// space is not in the next one's way.
    fn script(&self, machine: Machine) -> String {
        let on = match machine.setting {
            Setting::On => format!(" --on {}", machine.nodes),
            Setting::Lazy => format!(" --on {} --lazy", machine.nodes),
            Setting::Stock | Setting::Off => String::new(),
        };
        let mut script = format!(
            "set -e; echo 100000000 >{}; ",
            "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"
        );
        for (index, region) in self.regions.iter().enumerate() {
            let names = self.ops_for(index);
            if names.is_empty() {
                continue;
            }
            let (mut rounds, warmups) = region.rounds();
            rounds = self.rounds.unwrap_or(rounds);
            script += &format!(
                "{} --cpu {} --size {} --rounds {rounds} --warmups {warmups} --ops {}{on}; ",
                quoted(&self.program),
                Machine::CPU,
                region.bytes(),
                names.join(","),
            );
        }
        script
    }
}

/// Gives each sample what the plugin saw of it. The regions' programs ran one
/// after the other, in the order of the samples.
fn attach(samples: &mut [Sample], programs: &Programs) -> Result<(), String> {
    let mut regions: Vec<u64> = samples.iter().map(|sample| sample.bytes).collect();
    regions.dedup();
    for sample in samples {
        let program = regions.iter().position(|&bytes| bytes == sample.bytes);
        sample.stores = program.and_then(|program| programs.median(program, &sample.sections));
        if sample.stores.is_none() {
            return Err(format!("the plugin did not see all of {}", sample.op));
        }
    }
    Ok(())
}

/// A file for the plugin's findings, removed afterwards.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        Scratch(build_dir().join(format!("bench/stores-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[derive(Clone, Default)]
pub struct Collected(Arc<Mutex<Vec<u8>>>);

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Collected {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no writer panics")).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_are_read() {
        let sample = Sample::parse("munmap 8388608 2048 3 2097152 2000000 2100000 4,5,6").unwrap();
        assert_eq!(sample.op, "munmap");
        assert_eq!(sample.each(), 1024.0);
        assert_eq!(sample.sections, [4, 5, 6]);
        assert_eq!(Sample::parse("munmap 8388608"), None);
        assert_eq!(Sample::parse("munmap 8388608 0 1 1 1 1 1"), None);
    }

    #[test]
    fn sections_of_each_region_are_its_own_programs() {
        let mut samples = [4096, 8192].map(|bytes| Sample::example("munmap", bytes, 1, 9));
        let text = "program\nsection 1 1 1 1 1\nsection 1 1 1 1 1\nsection 1 1 1 1 1\n\
                    program\nsection 5 4 3 2 1\nsection 5 4 3 2 1\nsection 5 4 3 2 1\n";
        attach(&mut samples, &Programs::parse(text).unwrap()).unwrap();
        assert_eq!(samples[1].stores.unwrap().remote_lines, 3);
        let none = Programs::parse("program\n").unwrap();
        assert!(attach(&mut samples, &none).unwrap_err().contains("munmap"));
    }

    #[test]
    fn switches_are_measured_once() {
        let task = Task {
            program: "/b/vm ops".into(),
            ours: Kernel::Ours,
            stock: Kernel::Stock,
            ops: Op::named("switch").unwrap(),
            regions: vec!["4K".parse().unwrap(), "8M".parse().unwrap()],
            rounds: Some(7),
            stores: false,
        };
        let script = task.script(Machine {
            setting: Setting::On,
            nodes: 4,
        });
        assert_eq!(script.matches("--ops switch").count(), 1);
        assert!(script.contains("'/b/vm ops' --cpu 1 --size 4096 --rounds 7"));
        assert!(script.contains("--on 4"));
        let missing = task.missing(&[Sample::example("switch", 8 << 20, 1, 9)]);
        assert_eq!(missing, Some(("switch", task.regions[0])));
        assert_eq!(task.missing(&[Sample::example("switch", 4096, 1, 9)]), None);
    }
}
