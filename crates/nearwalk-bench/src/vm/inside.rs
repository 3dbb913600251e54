// SPDX-License-Identifier: GPL-2.0-or-later
//! The program in the guest: memory that it uses from the CPUs it is told, one command
//! a line of standard input, one answer a line of standard output.
//!
//! | command | what | answer after `ok` |
//! |---|---|---|
//! | `fill BYTES spread` | memory, each page written first by a random CPU, the first page of each 2 MiB as well | first address, pages |
//! | `fill BYTES` | the same from CPU 0, page after page | |
//! | `read CPU`, `read all` | each page, from one CPU or from each | |
//! | `work on`, `work off` | all CPUs read all pages, again and again | rounds so far |
//! | `set TEXT` | what the guest's kernel keeps for this process (`/proc/self/pgtable_repl`) | |
//! | `dump FILE` | this process's page tables | |

use std::{
    fs,
    io::{self, BufRead, Write},
    path::Path,
    process::Command,
    ptr,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context, bail, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

const PAGE: usize = 4096;
/// What a table of leaves maps.
const TABLE: usize = 2 << 20;

/// Answers commands until there are none.
pub fn serve() -> anyhow::Result<()> {
    println!("ok up");
    let mut inside = Inside::default();
    for line in io::stdin().lock().lines() {
        let answer = match inside.obey(&line?) {
            Ok(answer) => format!("ok {answer}\n"),
            Err(error) => format!("failed {error:#}\n"),
        };
        let mut out = io::stdout().lock();
        out.write_all(answer.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

#[derive(Default)]
struct Inside {
    memory: Option<Memory>,
    work: Option<Work>,
    rounds: Arc<AtomicU64>,
}

/// Base pages only, whatever the guest's setting.
#[derive(Clone, Copy)]
struct Memory {
    start: usize,
    pages: usize,
}

struct Work {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Inside {
    fn obey(&mut self, line: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["fill", bytes, ref how @ ..] => {
                ensure!(self.memory.is_none(), "filled already");
                let memory = Memory::map(bytes.parse()?)?;
                self.memory = Some(memory);
                let cpus = match how {
                    ["spread"] => cpus()?,
                    [] => 1,
                    _ => bail!("'{line}' is no way to fill; allowed: spread"),
                };
                on_each(0..cpus, |cpu, all| memory.write(cpu, cpus, all))?;
                Ok(format!("{:#x} {}", memory.start, memory.pages))
            }
            ["read", who] => {
                let memory = self.memory()?;
                let who = match who {
                    "all" => 0..cpus()?,
                    cpu => {
                        let cpu = cpu.parse()?;
                        cpu..cpu + 1
                    }
                };
                on_each(who, |_, _| memory.read())?;
                Ok(String::new())
            }
            ["work", "on"] => {
                ensure!(self.work.is_none(), "at work already");
                self.work = Some(self.begin()?);
                Ok(String::new())
            }
            ["work", "off"] => {
                let work = self.work.take().context("not at work")?;
                work.stop.store(true, Ordering::Relaxed);
                for thread in work.threads {
                    thread.join().expect("no worker panics")?;
                }
                Ok(self.rounds.load(Ordering::Relaxed).to_string())
            }
            ["set", ..] => {
                let path = "/proc/self/pgtable_repl";
                let text = &line["set ".len()..];
                fs::write(path, text).with_context(|| format!("'{text}' into {path}"))?;
                Ok(String::new())
            }
            ["dump", file] => dump(std::process::id(), Path::new(file)).map(|()| String::new()),
            _ => bail!("'{line}' is no command"),
        }
    }

    fn memory(&self) -> anyhow::Result<Memory> {
        self.memory.context("not filled yet")
    }

    fn begin(&self) -> anyhow::Result<Work> {
        let memory = self.memory()?;
        let stop = Arc::new(AtomicBool::new(false));
        let one = |cpu| {
            let (stop, rounds) = (stop.clone(), self.rounds.clone());
            thread::spawn(move || {
                stay_on(cpu)?;
                while !stop.load(Ordering::Relaxed) {
                    memory.read();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let threads = (0..cpus()?).map(one).collect();
        Ok(Work { stop, threads })
    }
}

/// Saves the page tables of a process, as `nearwalk dump --raw` does.
pub fn dump(pid: u32, file: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let built = nearwalk_lab::build_dir()
        .join("module")
        .join(release.trim())
        .join("nearwalk_ptdump.ko");
    let mut command = Command::new(program);
    command.arg("dump").arg("--raw").arg(file);
    if built.is_file() {
        command.arg("--module").arg(built);
    }
    let output = command.arg(pid.to_string()).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nearwalk dump: {}", words.trim());
    Ok(())
}

impl Memory {
    fn map(bytes: usize) -> anyhow::Result<Memory> {
        // SAFETY: new memory, at an address of the kernel's choice; advice is no
        // more than that.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(ptr::null_mut(), bytes + TABLE, prot, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error()).context("no memory");
            }
            libc::madvise(at, bytes + TABLE, libc::MADV_NOHUGEPAGE);
            at as usize
        };
        Ok(Memory {
            start: start.next_multiple_of(TABLE),
            pages: bytes / PAGE,
        })
    }

    /// The first write to the pages of one CPU. Whose CPU writes first to a page
    /// that a table maps has made the table: that is drawn for each, too.
    fn write(&self, cpu: usize, cpus: usize, all: &Barrier) {
        let each = TABLE / PAGE;
        for table in 0..self.pages.div_ceil(each) {
            if cpus > 1 && drawn(table, 1, cpus) == cpu {
                self.touch(table * each);
            }
        }
        all.wait();
        for page in (0..self.pages).filter(|&page| drawn(page, 2, cpus) == cpu) {
            self.touch(page);
        }
    }

    fn touch(&self, page: usize) {
        // SAFETY: inside of what was mapped, and of nobody else's concern.
        unsafe { ptr::write_volatile((self.start + page * PAGE) as *mut u8, 1) }
    }

    fn read(&self) {
        for page in 0..self.pages {
            // SAFETY: as above.
            unsafe { ptr::read_volatile((self.start + page * PAGE) as *const u8) };
        }
    }
}

/// The same on every run: splitmix64's mix of the number.
fn drawn(number: usize, salt: u64, of: usize) -> usize {
    let mut mixed = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ salt);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) % of as u64) as usize
}

fn cpus() -> anyhow::Result<usize> {
    Ok(thread::available_parallelism()?.get())
}

fn stay_on(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// A thread on each of these CPUs.
fn on_each(
    cpus: std::ops::Range<usize>,
    what: impl Fn(usize, &Barrier) + Sync,
) -> anyhow::Result<()> {
    let all = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .map(|cpu| {
                let (what, all) = (&what, &all);
                scope.spawn(move || {
                    let stays = stay_on(cpu);
                    what(cpu, all);
                    stays
                })
            })
            .collect();
        let mut threads = threads.into_iter();
        threads.try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_even() {
        let mut by_cpu = [0; 4];
        let mut pairs = [[0; 4]; 4];
        for page in 0..1 << 16 {
            let (table, own) = (drawn(page / 512, 1, 4), drawn(page, 2, 4));
            by_cpu[own] += 1;
            pairs[table][own] += 1;
        }
        for count in by_cpu {
            assert!((16_000..16_800).contains(&count), "{by_cpu:?}");
        }
        // Table and page are drawn apart: the paper's sixteenth of both local.
        let both: usize = (0..4).map(|cpu| pairs[cpu][cpu]).sum();
        assert!((15_000..18_000).contains(&both), "{pairs:?}");
    }

    #[test]
    fn commands_are_obeyed_or_refused() {
        let mut inside = Inside::default();
        let told = |inside: &mut Inside, line: &str| match inside.obey(line) {
            Ok(answer) => answer,
            Err(error) => format!("{error:#}"),
        };
        assert_eq!(told(&mut inside, "read all"), "not filled yet");
        let answer = told(&mut inside, "fill 8388608");
        assert!(answer.ends_with(" 2048"), "{answer}");
        assert_eq!(told(&mut inside, "fill 4096"), "filled already");
        assert_eq!(told(&mut inside, "read 0"), "");
        assert_eq!(told(&mut inside, "dance"), "'dance' is no command");
    }
}
