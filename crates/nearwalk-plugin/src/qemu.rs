// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin interface of QEMU, versions 1 (QEMU 4.2 to 8.x) and 2 and later
//! (9.0 on), and the callbacks that QEMU makes.
//!
//! Declared here and not by a crate: these are a dozen functions, and one
//! library is to load into either version.

use std::{
    cell::UnsafeCell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{
        Mutex, Once, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    count::{self, Cpu},
    decode::{self, Event},
    layout::Layout,
    lens::{Lens, Seen},
    options::{Mode, Options},
    phases::{self, Block, Phases},
};

type PluginId = u64;

#[repr(C)]
struct Tb([u8; 0]);
#[repr(C)]
struct Insn([u8; 0]);
#[repr(C)]
struct HwAddr([u8; 0]);

const NO_REGS: c_int = 0;
const MEM_W: c_int = 2;
const MEM_RW: c_int = 3;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, cb: extern "C" fn(PluginId, *mut Tb));
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        cb: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: extern "C" fn(c_uint, u32, u64, *mut c_void),
        flags: c_int,
        rw: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_data(insn: *const Insn, dest: *mut u8, len: usize) -> usize;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
    fn qemu_plugin_get_hwaddr(info: u32, vaddr: u64) -> *mut HwAddr;
    fn qemu_plugin_hwaddr_is_io(addr: *const HwAddr) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(addr: *const HwAddr) -> u64;
}

/// The version that this plugin asks for. QEMU reads it after the library's
/// constructors have run.
#[unsafe(no_mangle)]
pub static mut qemu_plugin_version: c_int = 1;

#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

/// QEMU 9 refuses version 1, and is known by a function that came with 2.
extern "C" fn choose_version() {
    // SAFETY: called once, by the loader, before QEMU looks at the variable.
    unsafe {
        let newer = libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_scoreboard_new".as_ptr());
        if !newer.is_null() {
            qemu_plugin_version = 2;
        }
    }
}

struct PerCpu<T>(UnsafeCell<T>);

// SAFETY: QEMU runs a CPU on one thread, and callbacks for a CPU on that one.
unsafe impl<T: Send> Sync for PerCpu<T> {}

struct Plugin {
    work: Work,
    out: Mutex<File>,
}

enum Work {
    Count {
        layout: Layout,
        cpus: Vec<PerCpu<Cpu>>,
    },
    Phases {
        phases: Phases,
        cpus: Vec<PerCpu<phases::Cpu>>,
    },
    /// The lab runs the CPUs on one thread: nobody ever waits for the lock.
    Lens {
        lens: Box<Mutex<Lens>>,
        memory: PathBuf,
        mapped: Once,
        /// By CPU: whether its accesses are to be reported. Spares all others
        /// the lock.
        wanted: Vec<AtomicBool>,
    },
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

impl Plugin {
    fn new(options: Options) -> Result<Plugin, String> {
        let layout = options.layout;
        let work = match options.mode {
            Mode::Count => Work::Count {
                cpus: (0..layout.cpus().len())
                    .map(|cpu| PerCpu(UnsafeCell::new(Cpu::new(&layout, cpu))))
                    .collect(),
                layout,
            },
            Mode::Phases { symbols } => Work::Phases {
                phases: Phases::read(&symbols)?,
                cpus: (0..layout.cpus().len())
                    .map(|_| PerCpu(UnsafeCell::new(phases::Cpu::default())))
                    .collect(),
            },
            Mode::Lens {
                machine,
                memory,
                levels,
            } => Work::Lens {
                wanted: layout.cpus().iter().map(|_| false.into()).collect(),
                lens: Box::new(Mutex::new(Lens::new(&machine, levels, layout)?)),
                memory,
                mapped: Once::new(),
            },
        };
        let out = File::create(&options.out)
            .map_err(|error| format!("cannot write {}: {error}", options.out.display()))?;
        Ok(Plugin {
            work,
            out: Mutex::new(out),
        })
    }

    /// The lab ends QEMU by a signal: what is not in the file then is lost.
    fn write(&self, line: &str) {
        let mut out = self.out.lock().expect("no writer panics");
        if let Err(error) = out.write_all(line.as_bytes()) {
            complain(&format!("cannot write results: {error}"));
        }
    }
}

/// A CPU's state, for its own thread.
///
/// # Safety
/// Called from a callback for this CPU, and not held across another.
#[allow(clippy::mut_from_ref)]
unsafe fn own<T>(cpus: &[PerCpu<T>], index: c_uint) -> Option<&mut T> {
    // SAFETY: see the contract; callbacks of a CPU do not nest.
    cpus.get(index as usize)
        .map(|cpu| unsafe { &mut *cpu.0.get() })
}

fn complain(text: &str) {
    eprintln!("nearwalk-plugin: {text}");
}

/// QEMU's call after loading. Anything but 0 makes QEMU refuse to start.
///
/// # Safety
/// `argv` holds `argc` C strings, as QEMU sees to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: as the contract says.
    let words: Vec<String> = (0..argc as usize)
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) })
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let plugin = Options::parse(words.iter().map(String::as_str)).and_then(Plugin::new);
    match plugin {
        Ok(plugin) => {
            if PLUGIN.set(plugin).is_err() {
                complain("loaded twice");
                return 1;
            }
            // SAFETY: QEMU's function, with the id that it gave.
            unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translate) };
            0
        }
        Err(error) => {
            complain(&error);
            1
        }
    }
}

/// An instruction's bytes. Until version 3 the interface returned where they
/// are; since then it copies them and returns how many. The older function
/// ignores the other arguments.
fn bytes_of(insn: *mut Insn, buffer: &mut [u8; 16]) -> &[u8] {
    // SAFETY: the instruction is QEMU's and alive in this callback; it is at
    // most 15 bytes long.
    unsafe {
        let size = qemu_plugin_insn_size(insn).min(buffer.len());
        let answer = qemu_plugin_insn_data(insn, buffer.as_mut_ptr(), size);
        if answer > buffer.len() {
            std::ptr::copy_nonoverlapping(answer as *const u8, buffer.as_mut_ptr(), size);
        }
        &buffer[..size]
    }
}

/// What a memory callback is told of its instruction, in one word.
#[derive(Clone, Copy)]
struct Tag(usize);

impl Tag {
    fn new(atomic: bool, kernel: bool, work: u8) -> Tag {
        Tag(usize::from(atomic) | usize::from(kernel) << 1 | usize::from(work) << 2)
    }

    fn of(word: *mut c_void) -> Tag {
        Tag(word as usize)
    }

    fn word(self) -> *mut c_void {
        self.0 as *mut c_void
    }

    fn is_atomic(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_kernel(self) -> bool {
        self.0 & 2 != 0
    }

    fn work(self) -> u8 {
        (self.0 >> 2) as u8
    }
}

/// A block of instructions is translated: says which of them to report.
extern "C" fn translate(_id: PluginId, tb: *mut Tb) {
    let Some(plugin) = PLUGIN.get() else { return };
    let mut buffer = [0; 16];
    // Instructions without an access cost the model no call: the next that has
    // one is told how many there were.
    let mut work: u8 = 0;
    // SAFETY: QEMU's functions on QEMU's block, alive in this callback.
    unsafe {
        let instructions = qemu_plugin_tb_n_insns(tb);
        if let Work::Phases { phases, .. } = &plugin.work {
            let begin = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
            // Never freed: QEMU does not say when it forgets a block.
            let block = Box::leak(Box::new(Block {
                begin,
                instructions: instructions as u32,
                phase: phases.of(begin),
            }));
            let word = std::ptr::from_mut(block).cast();
            qemu_plugin_register_vcpu_tb_exec_cb(tb, ran, NO_REGS, word);
        }
        for index in 0..instructions {
            let insn = qemu_plugin_tb_get_insn(tb, index);
            let bytes = bytes_of(insn, &mut buffer);
            if let Some(event) = decode::event(bytes) {
                let word = event as usize as *mut c_void;
                qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NO_REGS, word);
                continue;
            }
            let atomic = decode::is_atomic(bytes);
            match plugin.work {
                Work::Count { .. } => {
                    let word = Tag::new(atomic, false, 0).word();
                    qemu_plugin_register_vcpu_mem_cb(insn, stored, NO_REGS, MEM_W, word);
                }
                Work::Phases { .. } => {
                    if decode::is_call(bytes) {
                        let behind = qemu_plugin_insn_vaddr(insn) + bytes.len() as u64;
                        let word = behind as usize as *mut c_void;
                        qemu_plugin_register_vcpu_insn_exec_cb(insn, calls, NO_REGS, word);
                    }
                }
                Work::Lens { .. } => {
                    work = work.saturating_add(1);
                    // Where it is mapped says who runs it: the kernel's half.
                    let kernel = qemu_plugin_insn_vaddr(insn) >> 63 != 0;
                    let word = Tag::new(atomic, kernel, work).word();
                    qemu_plugin_register_vcpu_mem_cb(insn, accessed, NO_REGS, MEM_RW, word);
                    if decode::may_access(bytes) {
                        work = 0;
                    }
                }
            }
        }
    }
}

/// An instruction that means something is executed.
extern "C" fn executed(cpu: c_uint, word: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let event = Event::ALL[word as usize];
    let line = match &plugin.work {
        Work::Count { cpus, .. } => {
            if event == Event::Program {
                plugin.write("program\n");
            }
            // SAFETY: this is a callback for that CPU.
            unsafe { own(cpus, cpu) }
                .and_then(|cpu| cpu.mark(event))
                .map(|stores| count::line(&stores))
        }
        Work::Phases { phases, cpus } => {
            if event == Event::Program {
                plugin.write("program\n");
            }
            // SAFETY: this is a callback for that CPU.
            unsafe { own(cpus, cpu) }.and_then(|cpu| cpu.mark(phases, event))
        }
        Work::Lens {
            lens,
            memory,
            mapped,
            wanted,
        } => {
            let mut lens = lens.lock().expect("no holder panics");
            // The files are there once the guest runs.
            mapped.call_once(|| {
                if let Err(error) = lens.map(memory) {
                    complain(&format!("cannot map the guest's memory: {error}"));
                }
            });
            let line = lens.event(cpu as usize, event);
            if let Some(wanted) = wanted.get(cpu as usize) {
                wanted.store(lens.wants(cpu as usize), Ordering::Relaxed);
            }
            line
        }
    };
    if let Some(line) = line {
        plugin.write(&line);
    }
}

/// A block is executed.
extern "C" fn ran(cpu: c_uint, word: *mut c_void) {
    let Some(Plugin {
        work: Work::Phases { cpus, .. },
        ..
    }) = PLUGIN.get()
    else {
        return;
    };
    // SAFETY: this is a callback for that CPU, and the word is that of translate().
    unsafe {
        if let Some(cpu) = own(cpus, cpu) {
            cpu.block(&*word.cast::<Block>());
        }
    }
}

/// A call is executed, which will return to `word`.
extern "C" fn calls(cpu: c_uint, word: *mut c_void) {
    let Some(Plugin {
        work: Work::Phases { cpus, .. },
        ..
    }) = PLUGIN.get()
    else {
        return;
    };
    // SAFETY: this is a callback for that CPU.
    if let Some(cpu) = unsafe { own(cpus, cpu) } {
        cpu.call(word as usize as u64);
    }
}

/// The physical address of RAM that is being accessed; `None` for devices.
///
/// # Safety
/// Called from the memory callback of the access.
unsafe fn reported(info: u32, vaddr: u64) -> Option<u64> {
    // SAFETY: as the contract says.
    unsafe {
        let place = qemu_plugin_get_hwaddr(info, vaddr);
        if place.is_null() || qemu_plugin_hwaddr_is_io(place) {
            return None;
        }
        Some(qemu_plugin_hwaddr_phys_addr(place))
    }
}

/// An instruction has stored; stores are counted.
extern "C" fn stored(cpu: c_uint, info: u32, vaddr: u64, word: *mut c_void) {
    let Some(Plugin {
        work: Work::Count { layout, cpus },
        ..
    }) = PLUGIN.get()
    else {
        return;
    };
    // SAFETY: this is a memory callback for that CPU.
    unsafe {
        let Some(cpu) = own(cpus, cpu).filter(|cpu| cpu.counts()) else {
            return;
        };
        if !qemu_plugin_mem_is_store(info) {
            return;
        }
        if let Some(address) = reported(info, vaddr) {
            cpu.store(layout, address, Tag::of(word).is_atomic());
        }
    }
}

/// An instruction has loaded or stored; the model is asked.
extern "C" fn accessed(cpu: c_uint, info: u32, va: u64, word: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let Work::Lens { lens, wanted, .. } = &plugin.work else {
        return;
    };
    let Some(wanted) = wanted
        .get(cpu as usize)
        .filter(|wanted| wanted.load(Ordering::Relaxed))
    else {
        return;
    };
    // SAFETY: this is a memory callback.
    let (reported, write) = unsafe {
        let Some(reported) = reported(info, va) else {
            return;
        };
        (reported, qemu_plugin_mem_is_store(info))
    };
    let tag = Tag::of(word);
    let seen = Seen {
        va,
        reported,
        write,
        locked: write && tag.is_atomic(),
        kernel: tag.is_kernel(),
        work: tag.work(),
    };
    let mut lens = lens.lock().expect("no holder panics");
    let line = lens.access(cpu as usize, seen);
    wanted.store(lens.wants(cpu as usize), Ordering::Relaxed);
    drop(lens);
    if let Some(line) = line {
        plugin.write(&line);
    }
}
