// SPDX-License-Identifier: GPL-2.0-or-later
//! Which virtual machines there are, and how they are called.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use nearwalk_host::process;

use crate::error::Error;
use crate::system::System;

const DEBUGFS: &str = "/sys/kernel/debug";
const KVM: &str = "/sys/kernel/debug/kvm";
const LIBVIRT: &str = "/run/libvirt/qemu";

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    pub pid: u32,
    /// The descriptor that it has in its process.
    pub fd: u32,
    /// What libvirt or QEMU calls it, else the process's name.
    pub name: String,
    pub vcpus: usize,
    /// Its directory in debugfs.
    pub dir: PathBuf,
}

impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}-{})", self.name, self.pid, self.fd)
    }
}

impl Vm {
    /// The text of one of its files; nothing where the kernel has no such file.
    pub fn read(&self, system: &mut dyn System, file: &str) -> Result<Option<String>, Error> {
        let path = self.dir.join(file);
        match system.read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV) if system.list(&self.dir).is_err() => {
                    Err(self.ended())
                }
                Some(libc::ENOENT) => Ok(None),
                Some(libc::EACCES | libc::EPERM) => Err(Error::NotPermitted),
                _ => Err(Error::io(&path, error)),
            },
        }
    }

    /// The same of a file that Nearwalk's kernel has.
    pub fn demand(&self, system: &mut dyn System, file: &str) -> Result<String, Error> {
        self.read(system, file)?.ok_or_else(|| Error::Unsupported {
            vm: self.to_string(),
            path: self.dir.join(file),
        })
    }

    pub fn ended(&self) -> Error {
        Error::Ended {
            vm: self.to_string(),
        }
    }
}

/// All of them, by process.
pub fn all(system: &mut dyn System) -> Result<Vec<Vm>, Error> {
    let names = match system.list(Path::new(KVM)) {
        Ok(names) => names,
        Err(error) => return Err(why_none(system, error)),
    };
    let libvirt = libvirt_names(system);
    let mut vms = Vec::new();
    for name in names {
        let pair = name.to_str().and_then(|name| name.split_once('-'));
        let numbers = pair.and_then(|(pid, fd)| Some((pid.parse().ok()?, fd.parse().ok()?)));
        let Some((pid, fd)) = numbers else {
            continue;
        };
        let dir = Path::new(KVM).join(&name);
        let Ok(entries) = system.list(&dir) else {
            // It has ended since.
            continue;
        };
        let is_vcpu = |name: &str| {
            let number = name.strip_prefix("vcpu");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let vcpus = entries.iter().filter_map(|name| name.to_str());
        vms.push(Vm {
            pid,
            fd,
            name: name_of(system, pid, &libvirt),
            vcpus: vcpus.filter(|name| is_vcpu(name)).count(),
            dir,
        });
    }
    vms.sort_by_key(|vm| (vm.pid, vm.fd));
    Ok(vms)
}

/// The one that is meant by a name, a PID, or PID-FD.
pub fn one(system: &mut dyn System, who: &str) -> Result<Vm, Error> {
    let mut all = all(system)?;
    let meant = |vm: &Vm| {
        let number = vm.pid.to_string();
        who == number || who == format!("{number}-{}", vm.fd)
    };
    // A number is a process, whatever others are called.
    let mut found: Vec<usize> = (0..all.len()).filter(|&at| meant(&all[at])).collect();
    if found.is_empty() {
        found = (0..all.len()).filter(|&at| all[at].name == who).collect();
    }
    match found[..] {
        [at] => Ok(all.swap_remove(at)),
        [] => Err(Error::NoVm {
            who: who.to_owned(),
            known: known(&all),
        }),
        _ => Err(Error::Several {
            who: who.to_owned(),
            which: list(found.iter().map(|&at| &all[at])),
        }),
    }
}

fn known(all: &[Vm]) -> String {
    match all {
        [] => "there is none".into(),
        all => format!("there are {}", list(all.iter())),
    }
}

fn list<'a>(vms: impl Iterator<Item = &'a Vm>) -> String {
    let words: Vec<String> = vms.map(Vm::to_string).collect();
    words.join(", ")
}

fn why_none(system: &mut dyn System, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Error::NotPermitted,
        Some(libc::ENOENT) => match system.list(Path::new(DEBUGFS)) {
            Ok(entries) if !entries.is_empty() => Error::NoKvm,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Error::NotPermitted
            }
            _ => Error::NoDebugfs,
        },
        _ => Error::io(Path::new(KVM), error),
    }
}

/// What libvirt calls a process's machine: it keeps NAME.pid of each.
fn libvirt_names(system: &mut dyn System) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for file in system.files(Path::new(LIBVIRT)).unwrap_or_default() {
        let Some(name) = file.to_str().and_then(|name| name.strip_suffix(".pid")) else {
            continue;
        };
        let text = system.read(&Path::new(LIBVIRT).join(&file));
        if let Some(pid) = text.ok().and_then(|text| text.trim().parse().ok()) {
            names.insert(pid, printable(name));
        }
    }
    names
}

fn name_of(system: &mut dyn System, pid: u32, libvirt: &BTreeMap<u32, String>) -> String {
    if let Some(name) = libvirt.get(&pid) {
        return name.clone();
    }
    let cmdline = system.read(&PathBuf::from(format!("/proc/{pid}/cmdline")));
    if let Some(name) = cmdline.ok().as_deref().and_then(qemu_name) {
        return name;
    }
    let mut source = system;
    process::stat(&mut source, pid).map_or_else(|_| "?".into(), |stat| stat.name)
}

/// The value of QEMU's option `-name`, as in `-name guest=vm1,debug-threads=on`.
fn qemu_name(cmdline: &str) -> Option<String> {
    let mut words = cmdline.split('\0');
    words.find(|word| matches!(*word, "-name" | "--name"))?;
    let value = words.next()?;
    // Two commas are one of the name.
    let mut options = vec![String::new()];
    let mut characters = value.chars().peekable();
    while let Some(c) = characters.next() {
        if c == ',' && characters.next_if_eq(&',').is_none() {
            options.push(String::new());
        } else {
            options.last_mut()?.push(c);
        }
    }
    let name = options
        .iter()
        .find_map(|option| option.strip_prefix("guest="))
        .or_else(|| {
            options
                .first()
                .filter(|first| !first.contains('='))
                .map(|first| &**first)
        })?;
    (!name.is_empty()).then(|| printable(name))
}

/// A machine may be called anything; the terminal gets no control characters.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use proptest::prelude::*;

    fn names(fixture: &mut Fixture) -> Vec<String> {
        all(fixture).unwrap().iter().map(Vm::to_string).collect()
    }

    #[test]
    fn machines_are_called_as_libvirt_or_qemu_calls_them() {
        let mut host = Fixture::host();
        assert_eq!(
            names(&mut host),
            ["db (139-14)", "web,1 (140-11)", "python3 (150-5)"]
        );
        assert_eq!(all(&mut host).unwrap()[0].vcpus, 2);
    }

    #[test]
    fn one_is_meant_by_name_process_or_both_numbers() {
        let mut host = Fixture::host();
        for who in ["db", "139", "139-14"] {
            assert_eq!(one(&mut host, who).unwrap().pid, 139);
        }
        let error = one(&mut host, "139-15").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no virtual machine `139-15`; there are db (139-14), web,1 (140-11), \
             python3 (150-5)"
        );
        let mut twins = Fixture::host().file("/sys/kernel/debug/kvm/139-20/vcpu0/pid", "1\n");
        let error = one(&mut twins, "139").unwrap_err().to_string();
        assert_eq!(
            error,
            "`139` is several: db (139-14), db (139-20); name one by PID-FD"
        );
        assert_eq!(one(&mut twins, "139-20").unwrap().fd, 20);
    }

    #[test]
    fn what_is_missing_is_said() {
        let mounted = || Fixture::default().file("/sys/kernel/debug/x86/y", "");
        for (mut host, told) in [
            (Fixture::default(), "debugfs is not mounted"),
            (mounted(), "KVM is not there"),
            (
                mounted().error("/sys/kernel/debug/kvm", libc::EACCES),
                "no permission",
            ),
        ] {
            let error = all(&mut host).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn names_are_taken_out_of_qemus_command_line() {
        for (cmdline, name) in [
            ("qemu\0-name\0guest=a,debug-threads=on\0", Some("a")),
            ("qemu\0-name\0a b,process=x\0-m\x001G", Some("a b")),
            ("qemu\0-name\0debug-threads=on,guest=a,,b\0", Some("a,b")),
            ("qemu\0-name\0debug-threads=on\0", None),
            ("qemu\0-name", None),
            ("qemu\0-m\x001G\0", None),
            ("qemu\0-name\0a\x1b[2J\0", Some("a?[2J")),
        ] {
            assert_eq!(qemu_name(cmdline).as_deref(), name, "{cmdline:?}");
        }
    }

    proptest! {
        #[test]
        fn any_name_comes_back(name in "[^\\x00-\\x1f\\x7f-\\x9f=]{1,12}") {
            let cmdline = format!("qemu\0-name\0guest={},x=y\0", name.replace(',', ",,"));
            prop_assert_eq!(qemu_name(&cmdline), Some(name));
        }
    }
}
