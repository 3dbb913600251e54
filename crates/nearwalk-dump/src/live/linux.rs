// SPDX-License-Identifier: GPL-2.0-or-later
//! The running kernel.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Device, System};
use crate::format::DEVICE;

/// The kernel that this program runs on.
#[derive(Debug, Default)]
pub struct Linux;

/// The module's device, open.
#[derive(Debug)]
pub struct DumpDevice(File);

impl System for Linux {
    type Device = DumpDevice;

    fn release(&self) -> io::Result<String> {
        Ok(fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim_end()
            .to_owned())
    }

    fn open_device(&self) -> io::Result<DumpDevice> {
        File::open(Path::new("/dev").join(DEVICE)).map(DumpDevice)
    }

    fn is_loaded(&self) -> bool {
        Path::new("/sys/module").join(DEVICE).exists()
    }

    fn has_replication(&self) -> bool {
        Path::new("/proc/sys/vm/pgtable_repl_mode").exists()
    }

    fn read_module(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn load(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        // SAFETY: finit_module takes a descriptor, which `file` keeps open, a
        // NUL-terminated string and flags.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_finit_module,
                file.as_raw_fd(),
                c"".as_ptr(),
                0 as libc::c_int,
            )
        };
        if ret == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn modprobe(&self, name: &str) -> Result<(), String> {
        // Not always in the PATH, but always here: the kernel calls it too.
        let program = "/sbin/modprobe";
        let output = Command::new(program)
            .arg(name)
            .output()
            .map_err(|e| format!("{program}: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    fn build_roots(&self) -> Vec<PathBuf> {
        // Only a program that lies in the sources that it was built from, as in
        // target/release, looks there. An installed one does not look above
        // itself, and none looks where it stands: root must not load a module
        // that happens to lie there.
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        let program = std::env::current_exe().ok();
        sources
            .zip(program)
            .filter(|(sources, program)| program.starts_with(sources))
            .map(|(sources, _)| sources.to_path_buf())
            .into_iter()
            .collect()
    }
}

/// `struct ptdump_version`.
#[repr(C)]
#[derive(Default)]
struct Version {
    major: u16,
    minor: u16,
    reserved: u32,
}

/// `struct ptdump_request`.
#[repr(C)]
struct Request {
    pid: i32,
    flags: u32,
}

const IOC_MAGIC: u32 = 0xd9;
const IOC_VERSION: u32 = ioc(2, 0, size_of::<Version>());
const IOC_SNAPSHOT: u32 = ioc(1, 1, size_of::<Request>());

/// As the kernel's `_IOC()`; `direction` is 1 for writing, 2 for reading.
const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | IOC_MAGIC << 8 | number
}

impl Device for DumpDevice {
    fn version(&self) -> io::Result<(u16, u16)> {
        let mut version = Version::default();
        // SAFETY: the argument is what PTDUMP_IOC_VERSION writes to.
        let ret = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                IOC_VERSION as libc::Ioctl,
                &raw mut version,
            )
        };
        if ret == 0 {
            Ok((version.major, version.minor))
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn begin(&mut self, pid: i32) -> io::Result<()> {
        let request = Request { pid, flags: 0 };
        // SAFETY: the argument is what PTDUMP_IOC_SNAPSHOT reads from.
        let ret = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                IOC_SNAPSHOT as libc::Ioctl,
                &raw const request,
            )
        };
        if ret == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Read for DumpDevice {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}
