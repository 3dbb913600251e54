// SPDX-License-Identifier: GPL-2.0-or-later
//! What it takes to move pages to another node, by phase: instructions of one call
//! of `move_pages()`, on the stock kernel and on Nearwalk's.
//!
//! The plugin switches phases at functions that both kernels have, so that the
//! stock one is measured as it is.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use nearwalk_lab::{
    AccelChoice, Job, Kernel, NodeSpec, Plugin, Size as Bytes, Vm, VmConfig, build_dir,
};

use crate::guest::{Collected, Error, Scratch, install_as, quoted};

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/move"));

/// Phases in the order of the call, and the functions that begin them. What stands
/// in brackets need not be there: it has another name, or none, in some kernels.
const PHASES: [(&str, &[&str]); 10] = [
    ("drain", &["lru_cache_disable", "lru_add_drain"]),
    ("isolate", &["folio_walk_start", "folio_isolate_lru"]),
    ("alloc", &["alloc_migration_target"]),
    ("unmap", &["try_to_migrate"]),
    ("flush", &["try_to_unmap_flush", "flush_tlb_mm_range"]),
    ("dispatch", &["[migrate_copy_batch]", "[migrate_pairs]"]),
    ("copy", &["copy_mc_to_kernel"]),
    (
        "mapping",
        &["migrate_folio", "[__migrate_folio]", "[exchange_identity]"],
    ),
    ("remap", &["folio_add_lru", "remove_migration_pte"]),
    ("free", &["__folio_put"]),
];

/// The copies, which are in proportion to the bytes and not to the pages.
const COPY: &str = "copy";
const REST: &str = "rest";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    #[value(name = "4k")]
    Base,
    #[value(name = "64k")]
    Middle,
    #[value(name = "2m")]
    Huge,
}

impl Size {
    fn bytes(self) -> u64 {
        match self {
            Size::Base => 4 << 10,
            Size::Middle => 64 << 10,
            Size::Huge => 2 << 20,
        }
    }

    fn text(bytes: u64) -> &'static str {
        match bytes >> 12 {
            1 => "4 KiB",
            16 => "64 KiB",
            _ => "2 MiB",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Stock,
    /// Nearwalk's kernel as it is by default
    Off,
    /// Four copy threads, one huge page in flight
    Parallel,
    /// Four copy threads, eight huge pages in flight
    Concurrent,
    /// Pages of both nodes change places, by one CPU
    Exchange,
}

impl Column {
    pub fn name(self) -> &'static str {
        match self {
            Column::Stock => "stock",
            Column::Off => "off",
            Column::Parallel => "parallel",
            Column::Concurrent => "concurrent",
            Column::Exchange => "exchange",
        }
    }

    /// How many moves a page of it stands for.
    fn moves(self) -> u64 {
        match self {
            Column::Exchange => 2,
            _ => 1,
        }
    }

    fn sysctls(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Column::Stock | Column::Off | Column::Exchange => &[],
            Column::Parallel => &[("vm.migrate_copy_threads", "4")],
            Column::Concurrent => &[
                ("vm.migrate_copy_threads", "4"),
                ("vm.migrate_batch_pages", "4096"),
            ],
        }
    }
}

/// Calls and instructions of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub calls: u64,
    pub instructions: u64,
}

/// One size and number of pages: the round with the median of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub size: u64,
    pub pages: u64,
    /// Those that moved whole.
    pub moved: u64,
    pub split: u64,
    /// Base pages that were copied ahead, and of these by helpers.
    pub copied: u64,
    pub helped: u64,
    pub phases: BTreeMap<String, Count>,
}

impl Cell {
    fn of(&self, phase: &str) -> Count {
        self.phases.get(phase).copied().unwrap_or_default()
    }

    /// Instructions of everything but the copies.
    fn without_copies(&self) -> u64 {
        let others = self.phases.iter().filter(|(name, _)| *name != COPY);
        others.map(|(_, count)| count.instructions).sum()
    }
}

pub struct Task {
    pub program: PathBuf,
    pub ours: Kernel,
    pub stock: Kernel,
    pub sizes: Vec<Size>,
    pub pages: Vec<u32>,
    pub rounds: u32,
}

pub fn install() -> Result<PathBuf, Error> {
    install_as("move", PROGRAM)
}

impl Task {
    /// Boots a kernel and measures everything on it.
    pub fn measure(&self, column: Column) -> Result<Vec<Cell>, Error> {
        let failed = |text: String| Error::Guest {
            machine: column.name().into(),
            text,
        };
        let kernel = match column {
            Column::Stock => &self.stock,
            _ => &self.ours,
        };
        let map = system_map(&kernel.image(&build_dir())?);
        let text = fs::read_to_string(&map).map_err(io_error(&map))?;
        let seen = Scratch::new(&format!("move-{}", column.name()));
        let symbols = Scratch::new(&format!("move-{}-symbols", column.name()));
        let lines = symbol_lines(&text).map_err(failed)?;
        fs::write(&symbols.0, lines).map_err(io_error(&symbols.0))?;
        let mut config = self.config(column, kernel);
        config.plugin = Some(Plugin::phases(&config.nodes, &symbols.0, &seen.0));
        let (out, errors) = (Collected::default(), Collected::default());
        let job = Job::new(["sh", "-c", &self.script(column)])
            .stdout(out.clone())
            .stderr(errors.clone());
        let outcome = Vm::start(&config, job)?.wait()?;
        if !outcome.success() {
            return Err(failed(format!("{}{}", errors.text(), outcome.report())));
        }
        let sections = fs::read_to_string(&seen.0).map_err(io_error(&seen.0))?;
        join(&out.text(), &sections).map_err(failed)
    }

    /// Two nodes with room for the most; helpers are to be had on the second.
    fn config(&self, column: Column, kernel: &Kernel) -> VmConfig {
        let most = self
            .sizes
            .iter()
            .map(|size| size.bytes())
            .max()
            .unwrap_or(0)
            * u64::from(self.pages.iter().copied().max().unwrap_or(0));
        let room = (most >> 20) + 384;
        let node = |cpus| NodeSpec {
            cpus,
            memory: Bytes::mib(room),
        };
        let quiet = [
            ("kernel.randomize_va_space", "0"),
            ("kernel.numa_balancing", "0"),
            ("kernel.watchdog", "0"),
            ("vm.stat_interval", "3600"),
        ];
        let sysctls = quiet.iter().chain(column.sysctls());
        VmConfig {
            nodes: vec![node(2), node(4)],
            kernel: kernel.clone(),
            accel: AccelChoice::Tcg,
            icount: true,
            sysctls: sysctls.map(|&(n, v)| (n.into(), v.into())).collect(),
            // Calls by a register, and not by a thunk that hides who calls.
            append: vec!["mitigations=off".into()],
            ..VmConfig::default()
        }
    }

    fn script(&self, column: Column) -> String {
        let mut script = String::from(
            "set -e; echo 100000000 \
             >/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs; ",
        );
        for size in &self.sizes {
            for pages in &self.pages {
                let _ = write!(
                    script,
                    "{} --cpu 1 --other 0 --from 0 --to 1 --size {} --pages {pages} --rounds {} \
                     --exchange {}; ",
                    quoted(&self.program),
                    size.bytes(),
                    self.rounds,
                    u8::from(column == Column::Exchange),
                );
            }
        }
        script
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = path.display().to_string();
    move |source| Error::Io { what, source }
}

/// Beside `arch/x86/boot/bzImage`, four levels up.
fn system_map(image: &Path) -> PathBuf {
    let top = image.ancestors().nth(4).unwrap_or(Path::new("."));
    top.join("System.map")
}

/// Lines for the plugin from those of System.map.
fn symbol_lines(map: &str) -> Result<String, String> {
    let addresses: HashMap<&str, &str> = map
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (address, _, name) = (words.next()?, words.next()?, words.next()?);
            // Compilers add words behind a dot to what they specialise.
            Some((name.split('.').next()?, address))
        })
        .collect();
    let mut lines = String::new();
    for (phase, functions) in PHASES {
        for function in functions {
            let optional = function.strip_prefix('[').and_then(|f| f.strip_suffix(']'));
            match (addresses.get(optional.unwrap_or(function)), optional) {
                (Some(address), _) => {
                    let _ = writeln!(lines, "{address} {phase}");
                }
                (None, Some(_)) => {}
                (None, None) => return Err(format!("the kernel has no function {function}")),
            }
        }
    }
    Ok(lines)
}

/// Puts together the program's lines and the plugin's, of which there is one a
/// round each, and takes the median of the rounds.
fn join(lines: &str, sections: &str) -> Result<Vec<Cell>, String> {
    let mut sections = sections.lines().filter(|line| *line != "program");
    let mut rounds: Vec<Cell> = Vec::new();
    for line in lines.lines() {
        let unclear = || format!("unclear: '{line}'");
        let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let [size, pages, moved, split, copied, helped] = words.ok_or_else(unclear)?[..] else {
            return Err(unclear());
        };
        let section = sections.next().ok_or("the plugin did not see all rounds")?;
        rounds.push(Cell {
            size,
            pages,
            moved,
            split,
            copied,
            helped,
            phases: phases(section).ok_or_else(|| format!("unclear: '{section}'"))?,
        });
    }
    let mut cells = Vec::new();
    for same in rounds.chunk_by(|a, b| (a.size, a.pages) == (b.size, b.pages)) {
        let mut same: Vec<&Cell> = same.iter().collect();
        same.sort_by_key(|cell| cell.without_copies());
        cells.push(same[same.len() / 2].clone());
    }
    Ok(cells)
}

fn phases(section: &str) -> Option<BTreeMap<String, Count>> {
    let words: Vec<&str> = section.strip_prefix("section ")?.split(' ').collect();
    let triples = words.chunks(3).map(|triple| {
        let [name, calls, instructions] = triple else {
            return None;
        };
        let count = Count {
            calls: calls.parse().ok()?,
            instructions: instructions.parse().ok()?,
        };
        Some(((*name).to_owned(), count))
    });
    triples.collect()
}

type Found = [(Column, Vec<Cell>)];

/// In the order of the phases.
fn names() -> impl Iterator<Item = &'static str> {
    PHASES.iter().map(|(name, _)| *name).chain([REST])
}

/// Instructions for a page, a line for each cell.
pub fn table(found: &Found) -> String {
    let mut text = String::from(
        "Instructions for a page, of one call of move_pages(), counted. `all` is without the\n\
         copies; `flushes` are calls. Copied ahead: by the copy engine, of these by helpers.\n\
         The ratio is to the first line, that of an exchange, which is two moves, to twice it.\n\n",
    );
    let _ = write!(text, "{:<7}{:>6} {:<11}", "size", "pages", "");
    for name in names() {
        let _ = write!(text, "{name:>9}");
    }
    let _ = writeln!(
        text,
        "{:>10}{:>9}{:>8}{:>8}{:>9}{:>7}",
        "all", "ratio", "flushes", "moved", "ahead", "helped"
    );
    let Some((_, first)) = found.first() else {
        return text;
    };
    for key in first.iter().map(|cell| (cell.size, cell.pages)) {
        let cells = found.iter().filter_map(|(column, cells)| {
            let cell = cells.iter().find(|cell| (cell.size, cell.pages) == key)?;
            Some((*column, cell))
        });
        let mut base = None;
        for (column, cell) in cells {
            let each = |count: u64| count as f64 / cell.pages as f64;
            let all = cell.without_copies();
            let base = *base.get_or_insert(all) * column.moves();
            let _ = write!(
                text,
                "{:<7}{:>6} {:<11}",
                Size::text(cell.size),
                cell.pages,
                column.name()
            );
            for name in names() {
                let _ = write!(text, "{:>9.0}", each(cell.of(name).instructions));
            }
            let share = |part: u64, whole: u64| format!("{:.0}%", percent(part, whole));
            let base_pages = cell.pages * (cell.size >> 12);
            let _ = writeln!(
                text,
                "{:>10.0}{:>9.3}{:>8}{:>8}{:>9}{:>7}",
                each(all),
                all as f64 / base as f64,
                cell.of("flush").calls,
                cell.moved,
                share(cell.copied, base_pages),
                share(cell.helped, base_pages),
            );
        }
        text.push('\n');
    }
    text
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// A line for each phase of each cell, with a head.
pub fn csv(found: &Found) -> String {
    let mut text = String::from(
        "column,size_bytes,pages,moved,split,copied_ahead,copied_by_helpers,phase,calls,instructions\n",
    );
    for (column, cells) in found {
        for cell in cells {
            for name in names() {
                let count = cell.of(name);
                let _ = writeln!(
                    text,
                    "{},{},{},{},{},{},{},{name},{},{}",
                    column.name(),
                    cell.size,
                    cell.pages,
                    cell.moved,
                    cell.split,
                    cell.copied,
                    cell.helped,
                    count.calls,
                    count.instructions,
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(without: &str) -> String {
        let functions = PHASES.iter().flat_map(|(_, functions)| functions.iter());
        let names = functions.map(|name| name.trim_matches(['[', ']']));
        let lines = names
            .filter(|name| *name != without)
            .enumerate()
            .map(|(index, name)| format!("ffffffff810000{index:02x} T {name}\n"));
        lines.collect()
    }

    #[test]
    fn functions_become_phases() {
        let lines = symbol_lines(&map("")).unwrap();
        assert!(lines.contains("ffffffff81000000 drain\n"), "{lines}");
        assert_eq!(lines.matches(" dispatch\n").count(), 2, "{lines}");
        let lines = symbol_lines(&map("migrate_copy_batch")).unwrap();
        assert_eq!(lines.matches(" dispatch\n").count(), 1, "{lines}");
        let error = symbol_lines(&map("try_to_migrate")).unwrap_err();
        assert!(error.contains("try_to_migrate"), "{error}");
    }

    const LINES: &str = "2097152 8 8 0 4096 1024\n2097152 8 8 0 4096 2048\n2097152 8 8 0 4096 0\n";
    const SECTIONS: &str = "program\nsection unmap 8 800 copy 9 5 rest 0 8\n\
        section unmap 8 400 copy 9 6 rest 0 8\nsection unmap 8 600 copy 9 7 rest 0 8\n";

    #[test]
    fn the_median_round_is_taken() {
        let cells = join(LINES, SECTIONS).unwrap();
        assert_eq!(cells.len(), 1);
        assert_eq!(cells[0].without_copies(), 608);
        assert_eq!(cells[0].helped, 0);
        assert!(join(LINES, "program\n").is_err());
        assert!(join("2097152 8\n", SECTIONS).is_err());
        assert!(join(LINES, "section unmap 8\n").is_err());
    }

    #[test]
    fn tables_and_lines_have_all_phases() {
        let found = [
            (Column::Stock, join(LINES, SECTIONS).unwrap()),
            (Column::Off, join(LINES, SECTIONS).unwrap()),
        ];
        let table = table(&found);
        let line = table.lines().find(|line| line.contains("off")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..4], ["2", "MiB", "8", "off"]);
        assert!(
            words.contains(&"1.000") && words.contains(&"100%"),
            "{line}"
        );
        // Twice as many moves for the same instructions.
        let found = [
            (Column::Off, join(LINES, SECTIONS).unwrap()),
            (Column::Exchange, join(LINES, SECTIONS).unwrap()),
        ];
        let text = super::table(&found);
        let line = text
            .lines()
            .find(|line| line.contains("exchange  "))
            .unwrap();
        assert!(line.contains(" 0.500 "), "{line}");
        let found = [(Column::Off, join(LINES, SECTIONS).unwrap())];
        let csv = csv(&found);
        assert_eq!(csv.lines().count(), 1 + PHASES.len() + 1);
        assert!(
            csv.contains("off,2097152,8,8,0,4096,0,unmap,8,600\n"),
            "{csv}"
        );
    }

    #[test]
    fn system_map_is_where_the_image_was_built() {
        let path = system_map(Path::new("/b/kernel-x/arch/x86/boot/bzImage"));
        assert_eq!(path, PathBuf::from("/b/kernel-x/System.map"));
    }
}
