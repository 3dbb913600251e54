// SPDX-License-Identifier: GPL-2.0-or-later
//! Everything outside of this process: /proc, /sys, `prctl()` and `exec()`.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::progress;
use crate::request::Request;

const PR_SET_PGTABLE_REPL: libc::c_int = 0x5054_5200;
const PR_PGTABLE_REPL_OFF: libc::c_ulong = 0;
const PR_PGTABLE_REPL_EAGER: libc::c_ulong = 1;
const PR_PGTABLE_REPL_LAZY: libc::c_ulong = 2;

/// What this crate needs of the system. Paths are absolute.
pub trait System {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Writes a file's text with one `write()`, as /proc wants it.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// The same for a file that takes a while to act on it, and tells how far
    /// it is when it is read; see [`crate::progress`].
    fn change(&self, path: &Path, text: &str) -> io::Result<()> {
        self.write(path, text)
    }

    /// The inode of a file or directory.
    fn inode(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.ino())
    }

    /// The processes that there are, ascending.
    fn processes(&self) -> io::Result<Vec<u32>>;

    /// `prctl(PR_SET_PGTABLE_REPL)` for this process.
    fn set_own(&self, request: &Request) -> io::Result<()>;

    /// Becomes another program, found as `execvp()` finds it. Returns only if
    /// that failed.
    fn exec(&self, argv: &[OsString]) -> io::Error;

    /// Whether `exec()` would find the program.
    fn find_program(&self, name: &OsStr) -> io::Result<()>;
}

/// The running Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl System for Linux {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).open(path)?;
        let written = file.write(text.as_bytes())?;
        if written < text.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    fn change(&self, path: &Path, text: &str) -> io::Result<()> {
        let label = path.display().to_string();
        progress::show(&label, || self.write(path, text), || self.read(path))
    }

    fn processes(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for entry in fs::read_dir("/proc")? {
            if let Some(pid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            {
                pids.push(pid);
            }
        }
        pids.sort_unstable();
        Ok(pids)
    }

    fn set_own(&self, request: &Request) -> io::Result<()> {
        let mut flags: libc::c_ulong = 0;
        let (mode, mask) = match request {
            Request::Default => return Err(io::ErrorKind::Unsupported.into()),
            Request::Off => (PR_PGTABLE_REPL_OFF, None),
            Request::All => (PR_PGTABLE_REPL_EAGER, None),
            Request::Nodes(nodes) => (PR_PGTABLE_REPL_EAGER, Some(nodes.to_words())),
            Request::Lazy { nodes, prefetch } => {
                flags = prefetch.map_or(0, |log2| libc::c_ulong::from(log2) + 1);
                let words = nodes.as_ref().map(|nodes| nodes.to_words());
                (PR_PGTABLE_REPL_LAZY, words)
            }
        };
        let (pointer, bits) = match &mask {
            Some((words, bits)) => (words.as_ptr(), *bits),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the kernel reads `bits` bits from `pointer`, which is null
        // with 0 bits or points to `mask`'s words, alive until after the call.
        match unsafe { libc::prctl(PR_SET_PGTABLE_REPL, mode, pointer, bits, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn exec(&self, argv: &[OsString]) -> io::Error {
        let words: Result<Vec<CString>, _> = argv
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect();
        let Ok(words) = words else {
            return io::ErrorKind::InvalidInput.into();
        };
        let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // SAFETY: `pointers` is a null-terminated array of C strings that
        // `words` keeps alive. Rust's runtime ignores SIGPIPE in this process;
        // the command gets the default back. Unlike std's exec, nothing else
        // that it inherits is touched (the signal mask in particular).
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execvp(pointers[0], pointers.as_ptr());
        }
        io::Error::last_os_error()
    }

    fn find_program(&self, name: &OsStr) -> io::Result<()> {
        if name.as_bytes().contains(&b'/') {
            return executable(Path::new(name));
        }
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let mut worst = io::Error::from_raw_os_error(libc::ENOENT);
        for directory in std::env::split_paths(&path) {
            match executable(&directory.join(name)) {
                Ok(()) => return Ok(()),
                // Something is there that cannot be run: say so if nothing else is.
                Err(error) if error.raw_os_error() == Some(libc::EACCES) => worst = error,
                Err(_) => {}
            }
        }
        Err(worst)
    }
}

fn executable(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a C string that outlives the call.
    if unsafe { libc::access(name.as_ptr(), libc::X_OK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if fs::metadata(path)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let errno = |name: &str| {
            Linux
                .find_program(OsStr::new(name))
                .err()
                .and_then(|error| error.raw_os_error())
        };
        assert_eq!(errno("sh"), None);
        assert_eq!(errno("/bin/sh"), None);
        assert_eq!(errno("no-such-program-here"), Some(libc::ENOENT));
        assert_eq!(errno("/no/such/program"), Some(libc::ENOENT));
        assert_eq!(errno("/etc/passwd"), Some(libc::EACCES));
        assert_eq!(errno("/etc"), Some(libc::EACCES));
    }

    #[test]
    fn this_process_is_among_the_processes() {
        assert!(Linux.processes().unwrap().contains(&std::process::id()));
    }
}
