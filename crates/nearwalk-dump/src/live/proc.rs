// SPDX-License-Identifier: GPL-2.0-or-later
//! What /proc says of a process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nearwalk_walk::Vma;

/// The threads of a process, by any of them.
pub fn threads(proc: &Path, pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(proc.join(format!("{pid}/task")));
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The mappings of a process, in ascending order; none if it has exited. Of a
/// thread that has ended the list is empty, also of the first.
///
/// # Errors
/// With the file that cannot be read.
pub fn mappings(proc: &Path, pid: i32) -> Result<Vec<Vma>, (PathBuf, io::Error)> {
    for tid in std::iter::once(pid).chain(threads(proc, pid)) {
        let path = proc.join(format!("{tid}/maps"));
        let maps = match fs::read(&path) {
            Err(error) if is_gone(&error) => continue,
            read => read.map_err(|error| (path.clone(), error))?,
        };
        let listed = parse(&maps).ok_or_else(|| {
            let error = io::Error::new(io::ErrorKind::InvalidData, "a line is no mapping");
            (path, error)
        })?;
        if !listed.is_empty() {
            return Ok(listed);
        }
    }
    Ok(Vec::new())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Names of files are bytes and no text.
fn parse(maps: &[u8]) -> Option<Vec<Vma>> {
    let lines = maps.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty()).map(mapping).collect()
}

fn mapping(line: &[u8]) -> Option<Vma> {
    let mut words = line.split(|&byte| byte == b' ');
    let range = std::str::from_utf8(words.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let &[read, write, exec, _] = words.next()? else {
        return None;
    };
    // VM_READ, VM_WRITE and VM_EXEC.
    let flags = [(read, b'r', 1), (write, b'w', 2), (exec, b'x', 4)];
    Some(Vma {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        flags: flags
            .iter()
            .filter(|(found, letter, _)| found == letter)
            .map(|(_, _, flag)| flag)
            .sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
1000-3000 r-xp 00000000 fd:00 123 /bin/\xe9 b
3000-4000 rw-p 00000000 00:00 0
9000-a000 ---s 00000000 00:00 0
";

    fn vma(start: u64, end: u64, flags: u64) -> Vma {
        Vma { start, end, flags }
    }

    #[test]
    fn names_of_files_are_bytes() {
        let expected = [
            vma(0x1000, 0x3000, 5),
            vma(0x3000, 0x4000, 3),
            vma(0x9000, 0xa000, 0),
        ];
        assert_eq!(parse(MAPS).as_deref(), Some(&expected[..]));
        assert_eq!(parse(b""), Some(vec![]));
        for nonsense in ["1000", "1000-2000", "1000-2000 r", "x-y rwxp 0"] {
            assert_eq!(parse(nonsense.as_bytes()), None, "{nonsense}");
        }
    }

    #[test]
    fn mappings_are_those_of_a_thread_that_has_not_ended() {
        let proc = std::env::temp_dir().join(format!("nearwalk-proc-{}", std::process::id()));
        for tid in [7, 8] {
            fs::create_dir_all(proc.join(format!("7/task/{tid}"))).unwrap();
            fs::create_dir_all(proc.join(tid.to_string())).unwrap();
        }
        fs::write(proc.join("7/maps"), "").unwrap();
        fs::write(proc.join("8/maps"), MAPS).unwrap();
        let found = mappings(&proc, 7).map(|list| list.len());
        fs::write(proc.join("8/maps"), "").unwrap();
        let ended = mappings(&proc, 7).map(|list| list.len());
        let gone = mappings(&proc, 9).map(|list| list.len());
        fs::remove_dir_all(&proc).unwrap();
        assert_eq!(found.unwrap(), 3);
        assert_eq!(ended.unwrap(), 0);
        assert_eq!(gone.unwrap(), 0);
    }
}
