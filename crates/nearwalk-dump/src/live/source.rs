// SPDX-License-Identifier: GPL-2.0-or-later
//! Which of the two readers reads.

use std::io::Read;
use std::path::Path;

use nearwalk_walk::Vma;

#[cfg(feature = "bpf")]
use super::outside::Outside;
use super::{Linux, Live, LiveError, System, proc};

/// Who reads page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReaderKind {
    /// A BPF program, on any Linux 6.1 or newer
    Bpf,
    /// The module nearwalk_ptdump, which also has the trees of domains
    Module,
}

/// Takes snapshots of running processes, by one reader or the other.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub enum Source {
    Module(Live<<Linux as System>::Device>),
    #[cfg(feature = "bpf")]
    Bpf(Outside),
}

impl Source {
    /// Opens the reader that is asked for. Without a wish that is the module
    /// where it is loaded, named, or needed for the trees of domains; else BPF.
    /// Says on standard error what it cannot tell of where page tables lie.
    ///
    /// # Errors
    /// With what is missing.
    pub fn open(wish: Option<ReaderKind>, module: Option<&Path>) -> Result<Self, LiveError> {
        let mut notes = Vec::new();
        let opened = Source::open_noting(wish, module, &mut notes)?;
        for note in notes {
            eprintln!("nearwalk: {note}");
        }
        Ok(opened)
    }

    /// The same for who does not ask where page tables lie: says nothing.
    ///
    /// # Errors
    /// With what is missing.
    pub fn open_for_memory(
        wish: Option<ReaderKind>,
        module: Option<&Path>,
    ) -> Result<Self, LiveError> {
        Source::open_noting(wish, module, &mut Vec::new())
    }

    fn open_noting(
        wish: Option<ReaderKind>,
        module: Option<&Path>,
        notes: &mut Vec<&'static str>,
    ) -> Result<Self, LiveError> {
        match choose(wish, module.is_some(), &Linux) {
            Choice::Bpf => open_bpf(notes),
            Choice::Module => Live::open(&Linux, module).map(Source::Module),
            Choice::ModuleFirst => Live::open(&Linux, None)
                .map(Source::Module)
                .or_else(|error| {
                    let opened = open_bpf(notes).map_err(|_| error);
                    if opened.is_ok() {
                        notes.push(
                            "the trees of domains are left out: only the module \
                             nearwalk_ptdump reads them, and it is not loaded",
                        );
                    }
                    opened
                }),
            Choice::BpfFirst => open_bpf(notes).or_else(|refused| {
                // Someone may have installed the module for just such a kernel.
                Live::open(&Linux, None)
                    .map(Source::Module)
                    .map_err(|_| refused)
            }),
        }
    }

    /// Begins a snapshot; what is read next is its stream. `fast` leaves out the
    /// entries of leaf tables, where the reader can.
    ///
    /// # Errors
    /// When there is no such process or it has no user address space.
    #[cfg_attr(not(feature = "bpf"), allow(unused_variables))]
    pub fn snapshot(&mut self, pid: i32, fast: bool) -> Result<Box<dyn Read + '_>, LiveError> {
        match self {
            Source::Module(live) => {
                let tid = thread(pid, |tid| live.begin(tid))?;
                Ok(Box::new(live.snapshot(tid)?))
            }
            #[cfg(feature = "bpf")]
            Source::Bpf(outside) => Ok(Box::new(outside.snapshot(pid, fast)?)),
        }
    }

    /// The mappings of the process that the last snapshot was of, in ascending
    /// order. `None` if it has exited since or, as far as the reader sees that,
    /// executed another program.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn mappings(&mut self, pid: i32) -> Result<Option<Vec<Vma>>, LiveError> {
        match self {
            Source::Module(_) => {
                let listed = proc::mappings(Path::new("/proc"), pid);
                let listed = listed.map_err(|(path, source)| LiveError::Maps { path, source })?;
                Ok(Some(listed).filter(|listed| !listed.is_empty()))
            }
            #[cfg(feature = "bpf")]
            Source::Bpf(outside) => outside.mappings(pid),
        }
    }
}

/// A thread of the process that has its memory: the first may have ended.
fn thread(pid: i32, mut begin: impl FnMut(i32) -> Result<(), LiveError>) -> Result<i32, LiveError> {
    let refused = match begin(pid) {
        Ok(()) => return Ok(pid),
        Err(error @ LiveError::NoMemory { .. }) => error,
        Err(error) => return Err(error),
    };
    let others = proc::threads(Path::new("/proc"), pid);
    let found = others.into_iter().find(|&tid| begin(tid).is_ok());
    found.ok_or(refused)
}

#[cfg(feature = "bpf")]
fn open_bpf(notes: &mut Vec<&'static str>) -> Result<Source, LiveError> {
    let outside = Outside::open()?;
    if outside.nodes_online() == 1 {
        notes.push("this machine has one memory node: every page table is local to it");
    }
    Ok(Source::Bpf(outside))
}

#[cfg(not(feature = "bpf"))]
fn open_bpf(_: &mut Vec<&'static str>) -> Result<Source, LiveError> {
    Err(nearwalk_walk::Refusal::Built.into())
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Bpf,
    Module,
    ModuleFirst,
    BpfFirst,
}

fn choose(wish: Option<ReaderKind>, named: bool, system: &impl System) -> Choice {
    match wish {
        Some(ReaderKind::Bpf) => Choice::Bpf,
        Some(ReaderKind::Module) => Choice::Module,
        None if named || system.is_loaded() => Choice::Module,
        None if system.has_replication() => Choice::ModuleFirst,
        None => Choice::BpfFirst,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::PathBuf;

    struct Fake {
        loaded: bool,
        ours: bool,
    }

    impl System for Fake {
        type Device = <Linux as System>::Device;

        fn release(&self) -> io::Result<String> {
            unreachable!("nothing is opened")
        }
        fn open_device(&self) -> io::Result<Self::Device> {
            unreachable!("nothing is opened")
        }
        fn is_loaded(&self) -> bool {
            self.loaded
        }
        fn has_replication(&self) -> bool {
            self.ours
        }
        fn read_module(&self, _: &Path) -> io::Result<Vec<u8>> {
            unreachable!("nothing is opened")
        }
        fn load(&self, _: &Path) -> io::Result<()> {
            unreachable!("nothing is opened")
        }
        fn modprobe(&self, _: &str) -> Result<(), String> {
            unreachable!("nothing is opened")
        }
        fn build_roots(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    #[test]
    fn another_thread_is_read_when_the_first_has_ended() {
        let own = std::process::id() as i32;
        let ended = |tid| match tid {
            tid if tid == own => Err(LiveError::NoMemory { pid: tid }),
            _ => Ok(()),
        };
        // Tests run on threads of their own.
        let found = thread(own, ended).unwrap();
        assert!(found != own && found > 0);
        let none = thread(own, |pid| Err(LiveError::NoMemory { pid }));
        assert!(matches!(none, Err(LiveError::NoMemory { pid }) if pid == own));
        let denied = thread(own, |_| Err(LiveError::Permission));
        assert!(matches!(denied, Err(LiveError::Permission)));
    }

    #[test]
    fn the_module_reads_where_it_is_there_or_needed() {
        let choice = |wish, named, loaded, ours| choose(wish, named, &Fake { loaded, ours });
        assert_eq!(choice(None, false, false, false), Choice::BpfFirst);
        assert_eq!(choice(None, false, true, false), Choice::Module);
        assert_eq!(choice(None, true, false, false), Choice::Module);
        assert_eq!(choice(None, false, false, true), Choice::ModuleFirst);
        let bpf = Some(ReaderKind::Bpf);
        assert_eq!(choice(bpf, false, true, true), Choice::Bpf);
        let module = Some(ReaderKind::Module);
        assert_eq!(choice(module, false, false, false), Choice::Module);
    }
}
