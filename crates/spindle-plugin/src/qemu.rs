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
    sync::{Mutex, OnceLock},
};

use crate::{
    count::{self, Cpu},
    decode::{self, Mark},
    layout::Layout,
    options::Options,
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

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, cb: extern "C" fn(PluginId, *mut Tb));
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

struct PerCpu(UnsafeCell<Cpu>);

// SAFETY: QEMU runs a CPU on one thread, and callbacks for a CPU on that one.
unsafe impl Sync for PerCpu {}

struct Plugin {
    layout: Layout,
    cpus: Vec<PerCpu>,
    out: Mutex<File>,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

impl Plugin {
    fn new(options: Options) -> Result<Plugin, String> {
        let out = File::create(&options.out)
            .map_err(|error| format!("cannot write {}: {error}", options.out.display()))?;
        let layout = options.layout;
        let cpus = (0..layout.cpus())
            .map(|cpu| PerCpu(UnsafeCell::new(Cpu::new(&layout, cpu))))
            .collect();
        Ok(Plugin {
            layout,
            cpus,
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

    /// A CPU's state, for its own thread.
    ///
    /// # Safety
    /// Called from a callback for this CPU, and not held across another.
    #[allow(clippy::mut_from_ref)]
    unsafe fn cpu(&self, index: c_uint) -> Option<&mut Cpu> {
        // SAFETY: see the contract; callbacks of a CPU do not nest.
        self.cpus
            .get(index as usize)
            .map(|cpu| unsafe { &mut *cpu.0.get() })
    }
}

fn complain(text: &str) {
    eprintln!("spindle-plugin: {text}");
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

/// A block of instructions is translated: says which of them to report.
extern "C" fn translate(_id: PluginId, tb: *mut Tb) {
    let mut buffer = [0; 16];
    // SAFETY: QEMU's functions on QEMU's block, alive in this callback.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(tb) {
            let insn = qemu_plugin_tb_get_insn(tb, index);
            let bytes = bytes_of(insn, &mut buffer);
            if let Some(mark) = decode::mark(bytes) {
                let code = mark as usize as *mut c_void;
                qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NO_REGS, code);
            } else {
                let atomic = usize::from(decode::is_atomic(bytes)) as *mut c_void;
                qemu_plugin_register_vcpu_mem_cb(insn, stored, NO_REGS, MEM_W, atomic);
            }
        }
    }
}

/// A mark is executed.
extern "C" fn executed(cpu: c_uint, code: *mut c_void) {
    let mark = [Mark::Begin, Mark::End, Mark::Program][code as usize];
    let Some(plugin) = PLUGIN.get() else { return };
    if mark == Mark::Program {
        plugin.write("program\n");
    }
    // SAFETY: this is a callback for that CPU.
    let ended = unsafe { plugin.cpu(cpu) }.and_then(|cpu| cpu.mark(mark));
    if let Some(stores) = ended {
        plugin.write(&count::line(&stores));
    }
}

/// An instruction has stored.
extern "C" fn stored(cpu: c_uint, info: u32, vaddr: u64, atomic: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    // SAFETY: this is a callback for that CPU; the address is asked for while
    // the access is being made.
    unsafe {
        let Some(cpu) = plugin.cpu(cpu).filter(|cpu| cpu.counts()) else {
            return;
        };
        if !qemu_plugin_mem_is_store(info) {
            return;
        }
        let place = qemu_plugin_get_hwaddr(info, vaddr);
        if !place.is_null() && !qemu_plugin_hwaddr_is_io(place) {
            let address = qemu_plugin_hwaddr_phys_addr(place);
            cpu.store(&plugin.layout, address, !atomic.is_null());
        }
    }
}
