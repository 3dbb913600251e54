// SPDX-License-Identifier: GPL-2.0-or-later
//! Bochs instead of QEMU: an emulator of an Intel machine that has what QEMU's
//! TCG lacks, PCID, INVPCID and VMX, and no way to the host but a serial port.
//!
//! The guest finds everything it needs in its initial RAM file system, and sends
//! what it has to say over its console; see lab/init/ports.c.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use crate::{Error, Job, Pti, VmConfig, cpio::Archive};

pub const PROGRAM: &str = "bochs";
/// What Debian's bochs has, of CPUs with 64 bits and PCID.
pub const MODELS: [&str; 8] = [
    "corei7_sandy_bridge_2600k",
    "corei7_ivy_bridge_3770k",
    "corei7_haswell_4770",
    "broadwell_ult",
    "corei7_skylake_x",
    "corei3_cnl",
    "corei7_icelake_u",
    "tigerlake",
];
/// The models from Ice Lake on report a clock that makes every sleep fifty
/// times as long.
pub const DEFAULT_MODEL: &str = "corei7_haswell_4770";
/// Functions of Linux that find fault with what it says of itself: its CPUID has
/// more cores than packages are made of (parse_legacy), and nodes made up by
/// numa=fake part CPUs that it has share a cache (topology_sane).
pub const KNOWN_WARNINGS: &[&str] = &["parse_legacy", "topology_sane"];
/// For which the firmware has tables.
pub const MAX_CPUS: u32 = 8;
pub const MAX_MIB: u64 = 2048;

const BIOS: &str = "/usr/share/bochs/BIOS-bochs-latest";
const VGA_BIOS: &str = "/usr/share/bochs/VGABIOS-lgpl-latest";

/// The files of one machine, removed when this is dropped.
pub struct Machine {
    dir: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Machine {
    /// Makes the disc that it boots from, and its configuration. `serial` is the
    /// file descriptor that its console goes to.
    pub fn create(
        config: &VmConfig,
        build: &Path,
        kernel: &Path,
        archive: &[u8],
        serial: i32,
    ) -> Result<Machine, Error> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let dir = build.join(format!("lab/bochs-{}-{run}", std::process::id()));
        let machine = Machine { dir };
        let tree = machine.dir.join("tree");
        let grub = tree.join("boot/grub");
        fs::create_dir_all(&grub).map_err(Error::io(grub.display().to_string()))?;
        let write = |path: PathBuf, data: &[u8]| {
            fs::write(&path, data).map_err(Error::io(path.display().to_string()))
        };
        fs::copy(kernel, tree.join("boot/bzImage"))
            .map_err(Error::io(kernel.display().to_string()))?;
        write(tree.join("boot/initrd"), archive)?;
        let menu = format!(
            "set timeout=0\nmenuentry lab {{\n\tlinux /boot/bzImage {}\n\tinitrd /boot/initrd\n}}\n",
            quoted(&command_line(config)),
        );
        write(grub.join("grub.cfg"), menu.as_bytes())?;
        write(
            machine.bochsrc(),
            settings(config, &machine.disc(), serial).as_bytes(),
        )?;
        let made = Command::new("grub-mkrescue")
            .arg("-o")
            .arg(machine.disc())
            .arg(&tree)
            .output()
            .map_err(|source| Error::NoBochs {
                program: "grub-mkrescue".into(),
                source,
            })?;
        if !made.status.success() || !machine.disc().is_file() {
            let words = String::from_utf8_lossy(&made.stderr).trim().to_string();
            return Err(Error::Qemu(words));
        }
        let _ = fs::remove_dir_all(&tree);
        Ok(machine)
    }

    fn disc(&self) -> PathBuf {
        self.dir.join("disc.iso")
    }

    fn bochsrc(&self) -> PathBuf {
        self.dir.join("bochsrc")
    }

    pub fn arguments(&self) -> Vec<OsString> {
        vec!["-q".into(), "-f".into(), self.bochsrc().into()]
    }
}

/// GRUB's shell takes words apart as another shell does.
fn quoted(line: &str) -> String {
    line.split(' ')
        .map(|word| format!("'{word}'"))
        .collect::<Vec<_>>()
        .join(" ")
}

pub fn command_line(config: &VmConfig) -> String {
    // A machine that restarts would boot again: let a panic stay.
    let mut line = String::from(
        "console=ttyS0,115200 loglevel=5 panic=0 oops=panic panic_print=0x48 printk.devkmsg=on \
         nokaslr no_timer_check watchdog_thresh=60",
    );
    if config.nodes.len() > 1 {
        line += &format!(" numa=fake={}", config.nodes.len());
    }
    line += match config.pti {
        Pti::Auto => "",
        Pti::On => " pti=on",
        Pti::Off => " pti=off",
    };
    for word in &config.append {
        line.push(' ');
        line += word;
    }
    line
}

pub fn settings(config: &VmConfig, disc: &Path, serial: i32) -> String {
    let model = config.cpu_model.as_deref().unwrap_or(DEFAULT_MODEL);
    format!(
        "cpu: model={model}, count={}:1:1, ips=60000000\n\
         megs: {}\n\
         romimage: file={BIOS}\n\
         vgaromimage: file={VGA_BIOS}\n\
         display_library: rfb, options=\"timeout=0\"\n\
         sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy\n\
         speaker: enabled=1, mode=none\n\
         com1: enabled=1, mode=file, dev=/proc/self/fd/{serial}\n\
         ata0-master: type=cdrom, path={}, status=inserted\n\
         boot: cdrom\n\
         clock: sync=none\n\
         info: action=ignore\n\
         debug: action=ignore\n\
         error: action=ignore\n\
         panic: action=fatal\n\
         log: /dev/null\n",
        config.cpus(),
        config.memory().in_mib(),
        disc.display(),
    )
}

/// The ends of a pipe, closed on exec.
pub fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both; the descriptors are owned by nobody else.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Where the streams that share the console go.
pub struct Streams {
    pub console: UnixStream,
    pub ctl: UnixStream,
    pub stdout: UnixStream,
    pub stderr: UnixStream,
}

/// Takes the console apart into what it carries, until it ends.
pub fn take_apart(serial: impl Read + Send + 'static, mut to: Streams) {
    thread::spawn(move || {
        let mut serial = BufReader::new(serial);
        let mut line = Vec::new();
        let mut bytes = [0; 2];
        // Whoever does not listen any more needs no error.
        while matches!(serial.read_until(b'\n', &mut line), Ok(1..)) {
            let _ = match frame(&line) {
                Some(("out", data)) => decode(data).map_or(Ok(()), |data| {
                    bytes[0] += data.len() as u64;
                    to.stdout.write_all(&data)
                }),
                Some(("err", data)) => decode(data).map_or(Ok(()), |data| {
                    bytes[1] += data.len() as u64;
                    to.stderr.write_all(&data)
                }),
                Some(("ctl", text)) => {
                    let text = lost(text, bytes).unwrap_or_else(|| text.to_string());
                    to.ctl.write_all(format!("{text}\n").as_bytes())
                }
                _ => to.console.write_all(&line),
            };
            line.clear();
        }
    });
}

/// What `exit` says of the streams' lengths must be what has arrived.
fn lost(text: &str, bytes: [u64; 2]) -> Option<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let ["exit", _, out, err] = words[..] else {
        return None;
    };
    let told: [u64; 2] = [out.parse().ok()?, err.parse().ok()?];
    (told != bytes).then(|| {
        format!(
            "fail the console lost output: {} and {} bytes of {} and {} arrived",
            bytes[0], bytes[1], told[0], told[1]
        )
    })
}

/// A piece of a stream, as `[  1.234567] nearwalk-lab: @out ...` has it.
fn frame(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let (_, rest) = line.split_once("nearwalk-lab: @")?;
    rest.trim_end().split_once(' ')
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        Some(u32::from(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => 0,
            _ => return None,
        }))
    };
    let mut data = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let &[a, b, c, d] = four else { return None };
        let bits = digit(a)? << 18 | digit(b)? << 12 | digit(c)? << 6 | digit(d)?;
        data.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    let padding = text.bytes().rev().take_while(|&c| c == b'=').count();
    data.truncate(data.len() - padding.min(data.len()));
    Some(data)
}

/// Adds to `archive` the command, what else the guest is to have, the libraries
/// of each program, and the directory to start in.
pub fn add_files(archive: &mut Archive, config: &VmConfig, job: &Job) -> Result<(), Error> {
    let mut files = Files::default();
    let program = job.argv.first().map(PathBuf::from).unwrap_or_default();
    let program = find_program(&program, job).ok_or_else(|| {
        Error::Invalid(format!(
            "there is no program '{}' to take into the guest",
            program.display()
        ))
    })?;
    files.take(&program)?;
    for path in &config.files {
        let path = std::path::absolute(path).map_err(Error::io(path.display().to_string()))?;
        files.take(&path)?;
    }
    files.directories(&job.cwd);
    for dir in &files.dirs {
        if dir != Path::new("/dev") {
            archive.directory(text(dir)?);
        }
    }
    for path in &files.files {
        let data = fs::read(path).map_err(Error::io(path.display().to_string()))?;
        let mode = fs::metadata(path)
            .map_err(Error::io(path.display().to_string()))?
            .permissions()
            .mode();
        archive.file(text(path)?, mode & 0o777, &data);
    }
    Ok(())
}

fn text(path: &Path) -> Result<&str, Error> {
    path.to_str()
        .ok_or_else(|| Error::Invalid(format!("the name {} is not UTF-8", path.display())))
}

fn find_program(program: &Path, job: &Job) -> Option<PathBuf> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Some(job.cwd.join(program)).filter(|path| path.is_file());
    }
    let search = job
        .env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.clone())
        .unwrap_or("/usr/bin:/bin".into());
    std::env::split_paths(&search)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

#[derive(Default)]
struct Files {
    dirs: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl Files {
    /// A directory, and those above it. Sorted, a directory precedes what it holds.
    fn directories(&mut self, dir: &Path) {
        self.dirs.extend(
            dir.ancestors()
                .filter(|dir| *dir != Path::new("/"))
                .map(Path::to_path_buf),
        );
    }

    /// A file, with its interpreter and libraries, or all that is under a directory.
    fn take(&mut self, path: &Path) -> Result<(), Error> {
        if path.is_dir() {
            self.directories(path);
            let entries = fs::read_dir(path).map_err(Error::io(path.display().to_string()))?;
            for entry in entries {
                self.take(&entry.map_err(Error::io(path.display().to_string()))?.path())?;
            }
            return Ok(());
        }
        if !self.files.insert(path.to_path_buf()) {
            return Ok(());
        }
        if let Some(dir) = path.parent() {
            self.directories(dir);
        }
        for needed in needed(path)? {
            self.take(&needed)?;
        }
        Ok(())
    }
}

/// What a program wants beside it.
fn needed(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut start = [0; 256];
    let read = File::open(path)
        .and_then(|mut file| file.read(&mut start))
        .map_err(Error::io(path.display().to_string()))?;
    let start = &start[..read];
    if let Some(line) = start.strip_prefix(b"#!") {
        let word = line
            .split(|&c| c == b'\n')
            .next()
            .and_then(|line| line.trim_ascii().split(|&c| c == b' ').next());
        let interpreter = word.map(|word| PathBuf::from(OsStr::from_bytes(word)));
        return Ok(interpreter.into_iter().filter(|p| p.is_file()).collect());
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    // It says nothing, and fails, for a static program.
    let listed = Command::new("ldd")
        .arg(path)
        .output()
        .map_err(Error::io("ldd"))?;
    Ok(libraries(&String::from_utf8_lossy(&listed.stdout)))
}

fn libraries(listed: &str) -> Vec<PathBuf> {
    listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Emulator, NodeSpec, Size};

    fn config() -> VmConfig {
        VmConfig {
            emulator: Emulator::Bochs,
            nodes: NodeSpec::even(4, 4, Size::gib(1)).unwrap(),
            ..VmConfig::default()
        }
    }

    #[test]
    fn nodes_are_the_kernels_own() {
        let line = command_line(&VmConfig {
            pti: Pti::Off,
            append: vec!["a=b".into()],
            ..config()
        });
        assert!(line.ends_with(" numa=fake=4 pti=off a=b"), "{line}");
        let text = settings(&config(), Path::new("/d.iso"), 7);
        assert!(text.contains("model=corei7_haswell_4770, count=4:1:1"));
        assert!(text.contains("megs: 1024\n") && text.contains("dev=/proc/self/fd/7\n"));
    }

    #[test]
    fn pieces_of_streams_are_told_from_the_kernels_words() {
        assert_eq!(
            frame(b"[    1.500000] nearwalk-lab: @out QUI=\r\n"),
            Some(("out", "QUI="))
        );
        assert_eq!(frame(b"[    1.500000] nearwalk-lab: end, status 0\n"), None);
        assert_eq!(frame(b"[    1.500000] WARNING: x\n"), None);
    }

    #[test]
    fn base64_is_read_back() {
        for (text, data) in [
            ("", &b""[..]),
            ("QQ==", b"A"),
            ("QUI=", b"AB"),
            ("QUJD", b"ABC"),
            ("/+8A", &[0xff, 0xef, 0]),
        ] {
            assert_eq!(decode(text).as_deref(), Some(data), "{text}");
        }
        assert_eq!(decode("QUI"), None);
        assert_eq!(decode("Q.I="), None);
    }

    #[test]
    fn output_that_got_lost_is_noticed() {
        assert_eq!(lost("exit 0 5 7", [5, 7]), None);
        assert_eq!(lost("beat", [5, 7]), None);
        assert!(lost("exit 0 5 8", [5, 7]).unwrap().starts_with("fail "));
    }

    #[test]
    fn streams_come_out_whole() {
        let (mut ctl, guest_ctl) = UnixStream::pair().unwrap();
        let (mut out, stdout) = UnixStream::pair().unwrap();
        let (_err, stderr) = UnixStream::pair().unwrap();
        let (mut console, guest_console) = UnixStream::pair().unwrap();
        let text = b"[1.0] hello\n[1.1] nearwalk-lab: @out QUJD\n[1.2] nearwalk-lab: @out REU=\n\
                     [1.3] nearwalk-lab: @ctl exit 0 5 0\n";
        let streams = Streams {
            console: guest_console,
            ctl: guest_ctl,
            stdout,
            stderr,
        };
        take_apart(&text[..], streams);
        let read = |stream: &mut UnixStream| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read(&mut out), "ABCDE");
        assert_eq!(read(&mut ctl), "exit 0 5 0\n");
        assert_eq!(read(&mut console), "[1.0] hello\n");
    }

    #[test]
    fn a_program_takes_its_libraries_along() {
        let listed = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7e)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x7d)\n";
        assert_eq!(
            libraries(listed),
            [
                PathBuf::from("/lib/libc.so.6"),
                "/lib64/ld-linux-x86-64.so.2".into()
            ]
        );
        let mut files = Files::default();
        files.take(Path::new("/bin/sh")).unwrap();
        assert!(files.files.contains(Path::new("/bin/sh")));
        assert!(files.dirs.contains(Path::new("/bin")));
    }
}
