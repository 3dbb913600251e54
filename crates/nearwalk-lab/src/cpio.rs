// SPDX-License-Identifier: GPL-2.0-or-later
//! Writes the archive format that the kernel unpacks as its initial RAM file
//! system: cpio "newc" (Linux, Documentation/driver-api/early-userspace/
//! buffer-format.rst). Fixed owner and time, so the same input gives the same
//! bytes.

/// An archive being written, in memory.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inodes: u32,
}

const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const CHAR_DEVICE: u32 = 0o020000;

impl Archive {
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, &[], (0, 0));
    }

    /// `mode` is the permission bits.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.entry(path, REGULAR | mode, data, (0, 0));
    }

    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.entry(path, CHAR_DEVICE | mode, &[], (major, minor));
    }

    /// Ends the archive and hands it out.
    pub fn finish(mut self) -> Vec<u8> {
        self.inodes = 0;
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        let path = path.trim_start_matches('/');
        let size = u32::try_from(data.len()).expect("cpio newc holds files below 4 GiB");
        let inode = self.inodes;
        self.inodes += 1;
        let links = if mode & DIRECTORY != 0 { 2 } else { 1 };
        let fields = [
            inode,
            mode,
            0, // uid
            0, // gid
            links,
            0, // mtime
            size,
            0, // device that holds the file
            0,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0, // checksum, unused in this variant
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        while self.bytes.len() % 4 != 0 {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    fn sample() -> Vec<u8> {
        let mut archive = Archive::default();
        archive.directory("/dev");
        archive.char_device("/dev/console", 0o600, 5, 1);
        archive.file("/init", 0o755, b"#!");
        archive.file("/job", 0o600, b"");
        archive.finish()
    }

    #[test]
    fn headers_names_and_data_are_aligned() {
        let bytes = sample();
        assert_eq!(bytes.len() % 4, 0);
        // 110 bytes of header, "dev\0", padded to four.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..114], b"dev\0");
        assert_eq!(&bytes[116..122], b"070701");
    }

    #[test]
    fn the_archive_is_the_same_each_time() {
        assert_eq!(sample(), sample());
    }

    #[test]
    fn gnu_cpio_lists_what_was_put_in() {
        let child = Command::new("cpio")
            .args(["--list", "--verbose", "--quiet", "--numeric-uid-gid"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("no cpio here: format only checked against itself");
            return;
        };
        child.stdin.take().unwrap().write_all(&sample()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let listing = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        assert_eq!(lines.len(), 4, "{listing}");
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(" dev"));
        assert!(lines[1].starts_with("crw-------") && lines[1].contains("5,   1"));
        assert!(lines[2].starts_with("-rwxr-xr-x") && lines[2].ends_with(" init"));
    }
}
