// SPDX-License-Identifier: GPL-2.0-or-later
//! What guests without a kernel need of KVM: its calls, and memory.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
    ptr,
};

use anyhow::{Context, ensure};

const CREATE_VM: u64 = 0xAE01;
const GET_VCPU_MMAP_SIZE: u64 = 0xAE04;
const CREATE_VCPU: u64 = 0xAE41;
const SET_USER_MEMORY_REGION: u64 = 0x4020_AE46;
const RUN: u64 = 0xAE80;
const SET_REGS: u64 = 0x4090_AE82;
const GET_SREGS: u64 = 0x8138_AE83;
const SET_SREGS: u64 = 0x4138_AE84;
pub const EXIT_HLT: u32 = 5;

/// `struct kvm_regs`, by [`RBX`] and so on.
pub type Registers = [u64; 18];
pub const RBX: usize = 1;
pub const RSI: usize = 4;
pub const RDI: usize = 5;
pub const RBP: usize = 7;
pub const RIP: usize = 16;
/// A bit of it is always set.
pub const RFLAGS: usize = 17;

/// `struct kvm_segment`.
#[allow(dead_code, reason = "the kernel reads it")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    pub base: u64,
    pub limit: u32,
    pub selector: u16,
    pub kind: u8,
    pub present: u8,
    pub privilege: u8,
    /// Of 32 bits.
    pub wide: u8,
    /// Of code or data.
    pub ordinary: u8,
    pub long: u8,
    /// The limit counts pages.
    pub pages: u8,
    pub available: u8,
    pub unusable: u8,
    pub padding: u8,
}

/// `struct kvm_sregs`.
#[allow(dead_code, reason = "the kernel reads it")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Special {
    /// cs, ds, es, fs, gs, ss, tr and ldt.
    pub segments: [Segment; 8],
    tables: [u64; 4],
    pub cr0: u64,
    rest: [u64; 10],
}

const _: () = assert!(size_of::<Special>() == 312);

/// A virtual machine.
pub struct Vm {
    fd: OwnedFd,
    state_size: usize,
    /// Its files in debugfs.
    pub dir: PathBuf,
}

impl Vm {
    /// Its files are the calling thread's, which is to be the first of its process.
    pub fn new() -> anyhow::Result<Vm> {
        let kvm = File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .context("cannot open /dev/kvm")?;
        // SAFETY: neither call takes a pointer.
        let (fd, state_size) = unsafe {
            let fd = ioctl(kvm.as_raw_fd(), CREATE_VM, 0)?;
            let fd = OwnedFd::from_raw_fd(fd);
            (fd, ioctl(kvm.as_raw_fd(), GET_VCPU_MMAP_SIZE, 0)?)
        };
        let (pid, number) = (std::process::id(), fd.as_raw_fd());
        Ok(Vm {
            fd,
            state_size: state_size as usize,
            dir: format!("/sys/kernel/debug/kvm/{pid}-{number}").into(),
        })
    }

    /// Gives it `memory` from a guest-physical address on.
    ///
    /// # Safety
    /// The memory stays as long as the machine.
    pub unsafe fn add_memory(&self, slot: u32, at: u64, memory: &Mapping) -> anyhow::Result<()> {
        let region = [u64::from(slot), at, memory.size as u64, memory.start as u64];
        // SAFETY: as long as KVM's structure; the caller keeps the memory.
        unsafe {
            ioctl(
                self.fd.as_raw_fd(),
                SET_USER_MEMORY_REGION,
                address(&region),
            )?
        };
        Ok(())
    }

    pub fn vcpu(&self, number: u32) -> anyhow::Result<Vcpu> {
        // SAFETY: takes no pointer, and returns a new file.
        let fd = unsafe {
            let fd = ioctl(self.fd.as_raw_fd(), CREATE_VCPU, number.into())?;
            OwnedFd::from_raw_fd(fd)
        };
        let state = Mapping::new(self.state_size, fd.as_raw_fd())?;
        Ok(Vcpu { state, fd })
    }

    /// One of KVM's counts of this machine, of all vCPUs together.
    pub fn stat(&self, name: &str) -> anyhow::Result<u64> {
        stat(&self.dir.join(name))
    }
}

fn stat(path: &Path) -> anyhow::Result<u64> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("{} has '{}'", path.display(), text.trim()))
}

pub struct Vcpu {
    state: Mapping,
    fd: OwnedFd,
}

impl Vcpu {
    pub fn set(&self, registers: &Registers) -> anyhow::Result<()> {
        // SAFETY: as long as KVM's structure.
        unsafe { ioctl(self.fd.as_raw_fd(), SET_REGS, address(registers))? };
        Ok(())
    }

    /// Changes what the vCPU begins with.
    pub fn set_special(&self, change: impl FnOnce(&mut Special)) -> anyhow::Result<()> {
        let mut special = Special {
            segments: [Segment::default(); 8],
            tables: [0; 4],
            cr0: 0,
            rest: [0; 10],
        };
        let fd = self.fd.as_raw_fd();
        // SAFETY: as long as KVM's structure.
        unsafe { ioctl(fd, GET_SREGS, ptr::from_mut(&mut special) as u64)? };
        change(&mut special);
        // SAFETY: the same.
        unsafe { ioctl(fd, SET_SREGS, address(&special))? };
        Ok(())
    }

    /// Runs it until it leaves with something else than an interrupt.
    pub fn run(&self) -> anyhow::Result<()> {
        // SAFETY: takes no pointer.
        unsafe { ioctl(self.fd.as_raw_fd(), RUN, 0)? };
        Ok(())
    }

    /// What it left with.
    pub fn reason(&self) -> u32 {
        // SAFETY: the third word of what was mapped with the vCPU.
        unsafe { self.state.start.cast::<u32>().add(2).read_volatile() }
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

/// Memory of the process.
pub struct Mapping {
    pub start: *mut libc::c_void,
    pub size: usize,
}

// SAFETY: whoever uses the memory behind the pointer says why that is safe.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Of a file, or of nothing: -1.
    pub fn new(size: usize, fd: RawFd) -> anyhow::Result<Mapping> {
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

    /// Of small pages, none of which is there yet.
    pub fn small_pages(size: usize) -> anyhow::Result<Mapping> {
        let memory = Mapping::new(size, -1)?;
        // SAFETY: a mapping of this process; only how it is filled changes.
        unsafe { libc::madvise(memory.start, size, libc::MADV_NOHUGEPAGE) };
        Ok(memory)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and nobody uses it any more.
        unsafe { libc::munmap(self.start, self.size) };
    }
}
