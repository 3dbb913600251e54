// SPDX-License-Identifier: GPL-2.0-or-later
//! The running kernel, asked through the program in `bpf/walk.bpf.c`.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{AsRawLibbpf, Iter, Link, MapCore, Object, ObjectBuilder, Program};
use memmap2::{Advice, MmapMut, MmapOptions};

use crate::entry;
use crate::map::Map;
use crate::refusal::{Refusal, refusal};
use crate::tables::{ASKS, Ask, ENTRIES, State, Table, Tables, Vma};

/// Built from `bpf/walk.bpf.c` by `bpf/build.sh`. It is kept in the sources, so
/// that building needs no clang; a test builds it again and compares.
const PROGRAM: &[u8] = include_bytes!("../bpf/walk.bpf.o");

/// When to let go of mmap_lock. It may be held for 100 us: the clock is looked at
/// before every eighth table only, and these may come from another node's memory.
const BUDGET_NS: u64 = 50_000;

/// `struct mailbox` of `bpf/walk.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Mailbox {
    base: u64,
    mask: u64,
    cursor: u64,
    budget_ns: u64,
    levels: u32,
    nr: u32,
    next: u32,
    nr_vmas: u32,
    began: u64,
    seen: u64,
    pgd: u64,
    vdso: u64,
    start_boottime: u64,
    ask: [Question; ASKS],
    vma: [Mapping; VMAS],
    page: [Table; ASKS],
}

const VMAS: usize = 1024;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Question {
    from: u64,
    to: u64,
    level: u32,
    state: u32,
    table: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Mapping {
    start: u64,
    end: u64,
    flags: u64,
}

/// The mailbox, mapped. The kernel writes to it in our own read() only, during
/// which nothing is borrowed from here.
struct Shared(MmapMut);

impl Shared {
    fn map(map: &impl MapCore) -> io::Result<Self> {
        if map.value_size() as usize != size_of::<Mailbox>() {
            return Err(io::Error::other("walk.bpf.o is of another source"));
        }
        let fd = map.as_fd().as_raw_fd();
        // SAFETY: the map's only value, which cannot be made shorter; who changes it,
        // and when, see above.
        unsafe { MmapOptions::new().len(size_of::<Mailbox>()).map_mut(fd) }.map(Shared)
    }

    fn get(&self) -> &Mailbox {
        bytemuck::from_bytes(&self.0)
    }

    fn get_mut(&mut self) -> &mut Mailbox {
        bytemuck::from_bytes_mut(&mut self.0)
    }
}

/// The kernel, with the program loaded.
pub struct Kernel {
    object: Object,
    shared: Shared,
}

impl Kernel {
    /// Loads the program.
    ///
    /// # Errors
    /// Where the kernel or the user's rights do not suffice, with what is missing.
    pub fn load() -> Result<Self, Refusal> {
        if let Some(reason) = refusal(Path::new("/")) {
            return Err(reason);
        }
        libbpf_rs::set_print(None);
        let failed = |error: &dyn std::fmt::Display| Refusal::Load {
            reason: error.to_string(),
        };
        let object = ObjectBuilder::default()
            .open_memory(PROGRAM)
            .and_then(|open| open.load())
            .map_err(|e| failed(&format!("{e:#}")))?;
        let shared = object
            .maps()
            .find(|map| map.name() == "mailbox")
            .ok_or_else(|| io::Error::other("walk.bpf.o has no mailbox"))
            .and_then(|map| Shared::map(&map))
            .map_err(|e| failed(&e))?;
        Ok(Kernel { object, shared })
    }

    /// The tables of the process that a thread belongs to; `None` if there is no
    /// such thread, or if it has no memory of its own.
    pub fn process(&mut self, tid: i32) -> io::Result<Option<Process<'_>>> {
        let program = self.object.progs().next();
        let program = program.ok_or_else(|| io::Error::other("walk.bpf.o has no program"))?;
        let link = match link(&program, tid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            link => link?,
        };
        let iterator = || Iter::new(&link).map_err(io::Error::other);
        let (tables, scout) = (iterator()?, iterator()?);
        let mut process = Process {
            kernel: self,
            tables,
            scout,
            root: 0,
            ended: false,
            lost: false,
            scout_ended: false,
            first: None,
            stretches: 0,
        };
        process.kernel.shared.get_mut().seen = 0;
        process.first = Some(process.scout()?);
        let shared = process.kernel.shared.get();
        process.root = shared.pgd;
        Ok((shared.seen > 0).then_some(process))
    }
}

/// The tables of a process. It is not kept alive.
pub struct Process<'k> {
    kernel: &'k mut Kernel,
    tables: Iter,
    scout: Iter,
    root: u64,
    ended: bool,
    lost: bool,
    scout_ended: bool,
    /// The first mappings, which were listed when it was opened.
    first: Option<Vec<Vma>>,
    stretches: u64,
}

impl Process<'_> {
    /// Nanoseconds from the boot to the start of the process.
    pub fn start_boottime(&self) -> u64 {
        self.kernel.shared.get().start_boottime
    }

    /// Where its vdso is, 0 without.
    pub fn vdso(&self) -> u64 {
        self.kernel.shared.get().vdso
    }

    /// How often mmap_lock was taken.
    pub fn stretches(&self) -> u64 {
        self.stretches
    }

    /// It has executed another program meanwhile, or its number is another's:
    /// what was asked last is unknown.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// All of its mappings, in ascending order. `None` if it has ended meanwhile, or
    /// executed another program.
    pub fn into_vmas(mut self) -> io::Result<Option<Vec<Vma>>> {
        let mut all = self.first.take().unwrap_or_default();
        loop {
            let more = self.scout()?;
            if self.kernel.shared.get().pgd != self.root {
                return Ok(None);
            }
            if more.is_empty() {
                return Ok(Some(all).filter(|all| !all.is_empty()));
            }
            all.extend(more);
        }
    }

    /// The next mappings; none at the end.
    fn scout(&mut self) -> io::Result<Vec<Vma>> {
        // A stretch that is interrupted as soon as it has begun lists none.
        while !self.scout_ended {
            let listed = self.scout_stretch()?;
            if !listed.is_empty() {
                return Ok(listed);
            }
        }
        Ok(Vec::new())
    }

    fn scout_stretch(&mut self) -> io::Result<Vec<Vma>> {
        let shared = self.kernel.shared.get_mut();
        shared.nr = 0;
        shared.nr_vmas = 0;
        shared.cursor = 0;
        shared.budget_ns = BUDGET_NS;
        shared.began = 0;
        self.scout_ended = !read(&mut self.scout)?;
        self.stretches += 1;
        let shared = self.kernel.shared.get();
        let listed = &shared.vma[..(shared.nr_vmas as usize).min(VMAS)];
        Ok(listed
            .iter()
            .map(|vma| Vma {
                start: vma.start,
                end: vma.end,
                flags: vma.flags,
            })
            .collect())
    }
}

impl Tables for Process<'_> {
    fn root(&self) -> u64 {
        self.root
    }

    fn set_map(&mut self, map: Map) {
        let shared = self.kernel.shared.get_mut();
        shared.base = map.base;
        shared.mask = map.mask;
        shared.levels = map.levels.into();
    }

    fn ask(&mut self, asks: &mut [Ask]) -> io::Result<()> {
        let shared = self.kernel.shared.get_mut();
        for (question, ask) in shared.ask.iter_mut().zip(asks.iter()) {
            *question = Question {
                from: ask.from,
                to: ask.to,
                level: ask.level.into(),
                state: 0,
                table: 0,
            };
        }
        shared.nr = asks.len() as u32;
        shared.next = 0;
        shared.budget_ns = BUDGET_NS;
        shared.cursor = match asks.first() {
            Some(ask) if ask.level > 0 => ask.from,
            _ => 0,
        };
        while !self.ended && (self.kernel.shared.get().next as usize) < asks.len() {
            self.kernel.shared.get_mut().began = 0;
            // A read after the one that found the end would start over.
            self.ended = !read(&mut self.tables)?;
            self.stretches += 1;
            if !self.ended && self.kernel.shared.get().pgd != self.root {
                self.ended = true;
                self.lost = true;
            }
        }
        for (question, ask) in self.kernel.shared.get().ask.iter().zip(asks) {
            ask.table = question.table;
            ask.state = match question.state {
                _ if self.lost => State::Empty,
                1 => State::Read,
                3 => State::Fault,
                _ => State::Empty,
            };
        }
        Ok(())
    }

    fn page(&self, index: usize) -> &Table {
        &self.kernel.shared.get().page[index]
    }

    fn vmas(&mut self) -> io::Result<Vec<Vma>> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.scout(),
        }
    }
}

/// A huge zero page of our own: only the frame tells it from other memory.
pub struct HugeZero {
    _mapped: MmapMut,
    /// Its physical address.
    pub frame: u64,
}

const HUGE: usize = 2 << 20;

impl HugeZero {
    /// Maps one; it lies there until this is dropped. `None` where the kernel
    /// gives no such page.
    pub fn map(kernel: &mut Kernel, map: Map) -> io::Result<Option<Self>> {
        let Ok(mapped) = MmapMut::map_anon(2 * HUGE) else {
            return Ok(None);
        };
        // Without huge pages the page that is read tells.
        let _ = mapped.advise(Advice::HugePage);
        let at = mapped.as_ptr().addr();
        let inside = at.next_multiple_of(HUGE);
        std::hint::black_box(mapped[inside - at]);

        let Some(mut own) = kernel.process(std::process::id() as i32)? else {
            return Ok(None);
        };
        own.set_map(map);
        let table = inside as u64 & !(entry::size(3) - 1);
        let mut ask = [Ask::table(2, table)];
        own.ask(&mut ask)?;
        let found = own.page(0)[inside / HUGE % ENTRIES];
        let is_huge = entry::is_present(found, 2) && entry::is_leaf(found, 2);
        if ask[0].state != State::Read || !is_huge || found & entry::WRITE != 0 {
            return Ok(None);
        }
        Ok(Some(HugeZero {
            _mapped: mapped,
            frame: entry::address(found, 2, map.mask),
        }))
    }
}

/// Has the program run until it wants no more. False at the end.
pub(crate) fn read(iterator: &mut Iter) -> io::Result<bool> {
    loop {
        match iterator.read(&mut [0; 64]) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Links a program to an iterator over the mappings that a thread has: libbpf-rs
/// cannot name a thread.
fn link(program: &Program<'_>, tid: i32) -> io::Result<Link> {
    let mut thread = sys::bpf_iter_link_info {
        task: sys::bpf_iter_link_info__bindgen_ty_3 {
            tid: tid as u32,
            ..Default::default()
        },
    };
    let options = sys::bpf_iter_attach_opts {
        sz: size_of::<sys::bpf_iter_attach_opts>() as _,
        link_info: &raw mut thread,
        link_info_len: size_of::<sys::bpf_iter_link_info>() as u32,
        ..Default::default()
    };
    let program = program.as_libbpf_object();
    // SAFETY: the program is loaded; options, and what they point to, outlive the
    // call. The link that it gives is nobody else's.
    unsafe {
        let link = sys::bpf_program__attach_iter(program.as_ptr(), &raw const options);
        let link = NonNull::new(link).ok_or_else(io::Error::last_os_error)?;
        Ok(Link::from_ptr(link))
    }
}
