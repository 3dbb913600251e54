// SPDX-License-Identifier: GPL-2.0-or-later
//! `/dev/exchange_pages`, as `<linux/exchange_pages.h>` of Nearwalk's kernel has it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::Error;
use crate::pairs::Pair;

const PATH: &str = "/dev/exchange_pages";

/// `_IOW(0xBA, 0x40, struct exchange_pages)`
const EXCHANGE_PAGES: libc::c_ulong = 1 << 30 | 48 << 16 | 0xba << 8 | 0x40;
const ALL: u32 = 1;

#[repr(C)]
struct Call {
    size: u32,
    flags: u32,
    pidfd: i32,
    pad: u32,
    nr: u64,
    from: u64,
    to: u64,
    status: u64,
}

pub(crate) struct Device {
    device: File,
    process: OwnedFd,
    flags: u32,
}

impl Device {
    pub(crate) fn open(pid: u32, shared: bool) -> Result<Device, Error> {
        let device = File::open(PATH).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Error::NoExchange(PATH),
            Some(libc::EACCES | libc::EPERM) => Error::ExchangeNotPermitted(PATH),
            _ => Error::io(PATH, error),
        })?;
        let number = i32::try_from(pid).map_err(|_| Error::NoProcess(pid))?;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(Error::NoProcess(pid));
        }
        // SAFETY: the descriptor is new, and nobody else's.
        let process = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Device {
            device,
            process,
            flags: if shared { ALL } else { 0 },
        })
    }

    /// The status of each pair: 0, or minus an error's number.
    pub(crate) fn exchange(&self, pairs: &[Pair]) -> io::Result<Vec<i32>> {
        let from: Vec<u64> = pairs.iter().map(|pair| pair.a).collect();
        let to: Vec<u64> = pairs.iter().map(|pair| pair.b).collect();
        let mut status = vec![0_i32; pairs.len()];
        if pairs.is_empty() {
            return Ok(status);
        }
        let call = Call {
            size: size_of::<Call>() as u32,
            flags: self.flags,
            pidfd: self.process.as_raw_fd(),
            pad: 0,
            nr: pairs.len() as u64,
            from: from.as_ptr() as u64,
            to: to.as_ptr() as u64,
            status: status.as_mut_ptr() as u64,
        };
        // SAFETY: the three arrays have as many elements as the call is told.
        let result = unsafe {
            libc::ioctl(
                self.device.as_raw_fd(),
                EXCHANGE_PAGES as _,
                &raw const call,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_is_laid_out_as_the_kernel_has_it() {
        assert_eq!(size_of::<Call>(), 48);
        assert_eq!(EXCHANGE_PAGES, 0x4030_ba40);
    }
}
