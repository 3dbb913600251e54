// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of a process as the kernel shows it.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::error::Error;

pub(crate) const PAGE: u64 = 4096;

/// A page that is somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) address: u64,
    /// The rest of a larger page whose beginning is the page before this one: it
    /// moves with it, and asking for it as well would end the batch.
    pub(crate) tail: bool,
    pub(crate) swapped: bool,
}

/// What the kernel does for us.
pub(crate) trait Memory {
    /// The pages of a range that are in memory or in swap.
    fn pages(&mut self, range: Range<u64>) -> io::Result<Vec<Page>>;

    /// Where each page is: a node's number, or minus an error's.
    fn nodes(&mut self, pages: &[u64]) -> io::Result<Vec<i32>>;

    /// Asks for pages to be moved; writes what the kernel says of each, if it says
    /// something. More than 0 if some were tried in vain; then it says nothing of
    /// these, nor of what comes behind them.
    fn move_to(&mut self, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<usize>;
}

/// A live process.
pub(crate) struct Live {
    pid: i32,
    pagemap: File,
    /// Says which pages are the rest of a larger one; for root only. Without, the
    /// kernel refuses these one by one, which is slower.
    flags: Option<File>,
    move_flags: i32,
}

const MPOL_MF_MOVE: i32 = 1 << 1;
const MPOL_MF_MOVE_ALL: i32 = 1 << 2;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FRAME: u64 = (1 << 55) - 1;
const FLAG_TAIL: u64 = 1 << 16;

impl Live {
    pub(crate) fn open(pid: u32, shared: bool) -> Result<Live, Error> {
        let path = format!("/proc/{pid}/pagemap");
        let pagemap = File::open(&path).map_err(|error| denied(pid, path, error))?;
        Ok(Live {
            pid: i32::try_from(pid).map_err(|_| Error::NoProcess(pid))?,
            pagemap,
            flags: File::open("/proc/kpageflags").ok(),
            move_flags: if shared {
                MPOL_MF_MOVE_ALL
            } else {
                MPOL_MF_MOVE
            },
        })
    }

    /// The entries of a range's pages in the process's pagemap, as far as there are.
    fn entries(&self, range: &Range<u64>) -> io::Result<Vec<u64>> {
        let count = usize::try_from((range.end - range.start) / PAGE).unwrap_or(0);
        let mut bytes = vec![0; count * 8];
        let mut read = 0;
        while read < bytes.len() {
            let at = range.start / PAGE * 8 + read as u64;
            match self.pagemap.read_at(&mut bytes[read..], at) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let words = bytes[..read].chunks_exact(8);
        Ok(words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight of them")))
            .collect())
    }

    /// The frame of each page of a range; 0 where there is none, or to who is not root.
    pub(crate) fn frames(&self, range: &Range<u64>) -> io::Result<Vec<u64>> {
        let frame = |word| if word & PRESENT != 0 { word & FRAME } else { 0 };
        Ok(self.entries(range)?.into_iter().map(frame).collect())
    }

    /// Whether the kernel says which pages of these ranges are parts of larger ones.
    pub(crate) fn sees_larger_pages(&self, ranges: &[&Range<u64>]) -> io::Result<bool> {
        let hidden = |word: u64| word & PRESENT != 0 && word & FRAME == 0;
        for range in ranges {
            if self.entries(range)?.into_iter().any(hidden) {
                return Ok(false);
            }
        }
        Ok(self.flags.is_some())
    }

    /// Whether the page frame is the rest of a larger page.
    fn is_tail(&self, frame: u64) -> bool {
        let mut word = [0; 8];
        let Some(flags) = self.flags.as_ref().filter(|_| frame != 0) else {
            return false;
        };
        flags.read_exact_at(&mut word, frame * 8).is_ok()
            && u64::from_ne_bytes(word) & FLAG_TAIL != 0
    }
}

fn denied(pid: u32, what: String, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Error::NoProcess(pid),
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted(pid),
        _ => Error::io(what, error),
    }
}

impl Memory for Live {
    fn pages(&mut self, range: Range<u64>) -> io::Result<Vec<Page>> {
        let mut pages = Vec::new();
        // Of the page before the first nothing is known.
        let mut before = None;
        for (index, word) in self.entries(&range)?.into_iter().enumerate() {
            let frame = if word & PRESENT != 0 { word & FRAME } else { 0 };
            if word & (PRESENT | SWAPPED) != 0 {
                pages.push(Page {
                    address: range.start + index as u64 * PAGE,
                    tail: before.is_none_or(|before| before != 0 && frame == before + 1)
                        && self.is_tail(frame),
                    swapped: word & PRESENT == 0,
                });
            }
            before = Some(frame);
        }
        Ok(pages)
    }

    fn nodes(&mut self, pages: &[u64]) -> io::Result<Vec<i32>> {
        let mut status = vec![0; pages.len()];
        // SAFETY: both arrays have as many elements as the call is told.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                self.pid,
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<i32>(),
                status.as_mut_ptr(),
                0,
            )
        };
        match result {
            0.. => Ok(status),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn move_to(&mut self, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<usize> {
        assert_eq!(pages.len(), status.len());
        let nodes = vec![i32::try_from(node).unwrap_or(i32::MAX); pages.len()];
        // SAFETY: the three arrays have as many elements as the call is told.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                self.pid,
                pages.len(),
                pages.as_ptr(),
                nodes.as_ptr(),
                status.as_mut_ptr(),
                self.move_flags,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// The mappings of a process that have memory which could move.
pub(crate) fn mappings(pid: u32) -> Result<Vec<Range<u64>>, Error> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).map_err(|error| denied(pid, path, error))?;
    let mappings = parse_smaps(&text);
    if mappings.is_empty() {
        return Err(Error::NoMemory(pid));
    }
    Ok(mappings)
}

/// Mappings of which something is in memory or in swap. Reservations of terabytes,
/// which hold nothing, are not looked at page by page.
fn parse_smaps(text: &str) -> Vec<Range<u64>> {
    let mut mappings = Vec::new();
    let mut current: Option<(Range<u64>, bool)> = None;
    let mut keep = |mapping: Option<(Range<u64>, bool)>| {
        mappings.extend(mapping.filter(|(_, used)| *used).map(|(range, _)| range));
    };
    for line in text.lines() {
        if let Some(range) = parse_range(line.split(' ').next().unwrap_or_default()) {
            keep(current.take());
            // The vsyscall page is no memory of the process.
            if range.end <= 1 << 56 {
                current = Some((range, false));
            }
            continue;
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let used = ["Rss", "Swap", "Private_Hugetlb", "Shared_Hugetlb"].contains(&name)
            && !value.trim_start().starts_with("0 ");
        if let Some((_, any)) = &mut current {
            *any |= used;
        }
    }
    keep(current);
    mappings
}

/// `7f00-7f10`, in hexadecimal digits.
pub(crate) fn parse_range(text: &str) -> Option<Range<u64>> {
    let (begin, end) = text.split_once('-')?;
    let number = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16).ok()
    };
    let range = number(begin)?..number(end)?;
    (range.start < range.end).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_without_memory_are_left_out() {
        let smaps = "\
00400000-00500000 r-xp 00000000 08:01 7  /usr/bin/x: y\n\
Size:               1024 kB\nRss:                 512 kB\nSwap:                  0 kB\n\
VmFlags: rd ex mr mw me\n\
7f0000000000-7f8000000000 rw-p 00000000 00:00 0 \n\
Rss:                   0 kB\nSwap:                  0 kB\n\
7fa000000000-7fa000200000 rw-p 00000000 00:00 0 \n\
Rss:                   0 kB\nPrivate_Hugetlb:    2048 kB\n\
7fb000000000-7fb000200000 rw-p 00000000 00:00 0 \n\
Rss:                   0 kB\nSwap:                  4 kB\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
Rss:                   4 kB\n";
        assert_eq!(
            parse_smaps(smaps),
            [
                0x40_0000..0x50_0000,
                0x7fa0_0000_0000..0x7fa0_0020_0000,
                0x7fb0_0000_0000..0x7fb0_0020_0000,
            ]
        );
        assert!(parse_smaps("").is_empty());
    }

    #[test]
    fn ranges_are_hexadecimal() {
        assert_eq!(parse_range("0x1000-3000"), Some(0x1000..0x3000));
        for text in [
            "",
            "1000",
            "2000-1000",
            "1000-1000",
            "x-y",
            "1000-2000-3000",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_of_ours_is_read() {
        let memory: Vec<u8> = vec![1; 1 << 20];
        let begin = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        let pid = std::process::id();
        let all = mappings(pid).unwrap();
        assert!(all.iter().any(|range| range.contains(&begin)));
        let mut live = Live::open(pid, false).unwrap();
        let pages = live.pages(begin..begin + 8 * PAGE).unwrap();
        assert_eq!(pages.len(), 8);
        assert!(pages.iter().all(|page| !page.swapped));
        assert!(matches!(
            Live::open(u32::MAX, false),
            Err(Error::NoProcess(u32::MAX))
        ));
    }
}
