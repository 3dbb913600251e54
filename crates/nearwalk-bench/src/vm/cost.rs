// SPDX-License-Identifier: GPL-2.0-or-later
//! What a nested page fault costs the host's kernel in instructions: a guest of a few
//! bytes of code and no kernel writes to pages that are in no nested table yet, in a
//! machine whose time-stamp counter counts instructions.

use std::{
    arch::x86_64::_rdtsc,
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
    ptr,
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::model::Cost;

pub const SETTINGS: &[&str] = &["off", LAZY];
pub const LAZY: &str = "lazy";

const KVM_CREATE_VM: u64 = 0xAE01;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xAE04;
const KVM_CREATE_VCPU: u64 = 0xAE41;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_AE46;
const KVM_RUN: u64 = 0xAE80;
const KVM_SET_REGS: u64 = 0x4090_AE82;
const KVM_GET_SREGS: u64 = 0x8138_AE83;
const KVM_SET_SREGS: u64 = 0x4138_AE84;
const KVM_EXIT_HLT: u32 = 5;

/// `mov ax, 0x1000; again: mov ds, ax; mov byte [0], 1; add ax, 0x100; cmp ax, 0xf000;
/// jb again; hlt`: a write to each page from 64 KiB to 960 KiB.
const CODE: &[u8] = &[
    0xb8, 0x00, 0x10, 0x8e, 0xd8, 0xc6, 0x06, 0x00, 0x00, 0x01, 0x05, 0x00, 0x01, 0x3d, 0x00, 0xf0,
    0x72, 0xf1, 0xf4,
];
const MEMORY: usize = 2 << 20;
/// Guests, one after the other; the median counts.
const ROUNDS: usize = 9;

/// Counts instructions of faults in trees as `setting` makes them.
pub fn measure(kernel: &str, setting: &str) -> anyhow::Result<Cost> {
    let mut set = CpuSet::new();
    set.set(1);
    sched_setaffinity(None, &set).context("cannot run on CPU 1")?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(round(setting)?);
        // What the kernel put off is done now.
        std::thread::sleep(Duration::from_millis(100));
    }
    rounds.sort_by_key(|&(_, instructions)| instructions);
    let (faults, instructions) = rounds[ROUNDS / 2];
    Ok(Cost {
        kernel: kernel.into(),
        setting: setting.into(),
        faults,
        instructions,
    })
}

/// Faults, and what the first run takes longer than one without.
fn round(setting: &str) -> anyhow::Result<(u64, u64)> {
    let machine = Machine::new()?;
    if setting == LAZY {
        fs::write(machine.dir.join("pgtable_repl"), LAZY)
            .with_context(|| format!("'{LAZY}' for {}", machine.dir.display()))?;
    }
    let before = machine.faults()?;
    let first = machine.run()?;
    let faults = machine.faults()? - before;
    let again = machine.run()?;
    ensure!(faults > 200, "the guest had {faults} faults");
    Ok((faults, first.saturating_sub(again)))
}

struct Machine {
    _memory: Mapping,
    state: Mapping,
    vcpu: OwnedFd,
    _vm: OwnedFd,
    dir: PathBuf,
}

impl Machine {
    fn new() -> anyhow::Result<Machine> {
        let kvm = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .context("cannot open /dev/kvm")?;
        // SAFETY: the numbers are as KVM's header has them; what they get a pointer
        // to is at least as long as their numbers say.
        unsafe {
            let vm = ioctl(kvm.as_raw_fd(), KVM_CREATE_VM, 0)?;
            let vm = OwnedFd::from_raw_fd(vm);
            let size = ioctl(kvm.as_raw_fd(), KVM_GET_VCPU_MMAP_SIZE, 0)?;
            let memory = Mapping::new(MEMORY, -1)?;
            libc::madvise(memory.start, MEMORY, libc::MADV_NOHUGEPAGE);
            // All of it is there, so that only nested tables lack.
            ptr::write_bytes(memory.start.cast::<u8>(), 0x90, MEMORY);
            ptr::copy_nonoverlapping(CODE.as_ptr(), memory.start.cast(), CODE.len());
            let region = [0u64, 0, MEMORY as u64, memory.start as u64];
            ioctl(vm.as_raw_fd(), KVM_SET_USER_MEMORY_REGION, address(&region))?;
            let vcpu = ioctl(vm.as_raw_fd(), KVM_CREATE_VCPU, 0)?;
            let vcpu = OwnedFd::from_raw_fd(vcpu);
            let state = Mapping::new(size as usize, vcpu.as_raw_fd())?;
            let (pid, fd) = (std::process::id(), vm.as_raw_fd());
            Ok(Machine {
                _memory: memory,
                state,
                vcpu,
                _vm: vm,
                dir: format!("/sys/kernel/debug/kvm/{pid}-{fd}").into(),
            })
        }
    }

    /// From the first instruction to `hlt`; returns instructions of all.
    fn run(&self) -> anyhow::Result<u64> {
        let vcpu = self.vcpu.as_raw_fd();
        let mut special = [0u64; 312 / 8];
        let mut registers = [0u64; 144 / 8];
        registers[17] = 2;
        // SAFETY: as above.
        let (instructions, reason) = unsafe {
            ioctl(vcpu, KVM_GET_SREGS, ptr::from_mut(&mut special) as u64)?;
            // The code segment begins at 0: base, then limit and selector.
            special[0] = 0;
            special[1] = (special[1] & !0xffff_ffff_ffff) | 0xffff;
            ioctl(vcpu, KVM_SET_SREGS, address(&special))?;
            ioctl(vcpu, KVM_SET_REGS, address(&registers))?;
            let before = _rdtsc();
            ioctl(vcpu, KVM_RUN, 0)?;
            let instructions = _rdtsc() - before;
            (
                instructions,
                self.state.start.cast::<u32>().add(2).read_volatile(),
            )
        };
        ensure!(
            reason == KVM_EXIT_HLT,
            "the guest left with {reason}, not with {KVM_EXIT_HLT}"
        );
        Ok(instructions)
    }

    fn faults(&self) -> anyhow::Result<u64> {
        let path = self.dir.join("pf_fixed");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim().parse()?)
    }
}

fn address<T>(of: &T) -> u64 {
    ptr::from_ref(of) as u64
}

/// # Safety
/// As the number says.
unsafe fn ioctl(fd: RawFd, number: u64, argument: u64) -> anyhow::Result<RawFd> {
    // SAFETY: the caller's.
    let result = unsafe { libc::ioctl(fd, number, argument) };
    match result {
        -1 => Err(io::Error::last_os_error()).with_context(|| format!("KVM's ioctl {number:#x}")),
        result => Ok(result),
    }
}

struct Mapping {
    start: *mut libc::c_void,
    size: usize,
}

impl Mapping {
    fn new(size: usize, fd: RawFd) -> anyhow::Result<Mapping> {
        let flags = match fd {
            -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            _ => libc::MAP_SHARED,
        };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), size, prot, flags, fd, 0) };
        ensure!(
            start != libc::MAP_FAILED,
            "no memory: {}",
            io::Error::last_os_error()
        );
        Ok(Mapping { start, size })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and nobody uses it any more.
        unsafe { libc::munmap(self.start, self.size) };
    }
}
