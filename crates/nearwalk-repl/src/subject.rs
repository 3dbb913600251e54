// SPDX-License-Identifier: GPL-2.0-or-later
//! Whose replication is set for a while, and what there was before.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::error::Error;
use crate::nested::Nested;
use crate::nodes::Topology;
use crate::request::Request;
use crate::set::{process_error, refused, require_support, status_path};
use crate::show;
use crate::status::{Mode, Source, Status};
use crate::system::System;

/// A process or group that is still told from another one that got its number
/// or name later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A process.
    Process {
        /// Its number.
        pid: u32,
        /// When it began, in ticks since the host did.
        started: u64,
    },
    /// A control group.
    Cgroup {
        /// Its directory.
        directory: PathBuf,
        /// The directory's inode.
        inode: u64,
    },
}

/// What is set for a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What to write to bring it back.
    pub text: String,
    /// Mode and nodes that hold, or a group's policy.
    holds: String,
    /// Whether it is by who wrote to the process's file, or inherited from
    /// that. Nobody knows of a group.
    written: bool,
}

impl Setting {
    /// Whether it is what `request` left.
    pub fn is_of(&self, request: &str) -> bool {
        self.written && self.holds == request
    }
}

impl Subject {
    /// Process `pid`.
    ///
    /// # Errors
    ///
    /// If there is none, or the kernel has no replication.
    pub fn process(system: &impl System, pid: u32) -> Result<Self, Error> {
        require_support(system)?;
        show::process(system, pid)?;
        let started = started(system, pid).ok_or(Error::NoProcess(pid))?;
        Ok(Self::Process { pid, started })
    }

    /// The group of that path, or of that path below cgroup v2's mount point.
    ///
    /// # Errors
    ///
    /// If there is none, it has no policy, or the kernel has no replication.
    pub fn cgroup(system: &impl System, group: &Path) -> Result<Self, Error> {
        require_support(system)?;
        cgroup::policy(system, group)?;
        let directory = cgroup::directory(system, group)?;
        let inode = system
            .inode(&directory)
            .map_err(|source| Error::io(&directory, source))?;
        Ok(Self::Cgroup { directory, inode })
    }

    /// Whether it is still the same one, and is there.
    fn check(&self, system: &impl System) -> Result<(), Error> {
        match self {
            Self::Process { pid, started: then } => {
                if started(system, *pid) != Some(*then) {
                    return Err(Error::NoProcess(*pid));
                }
            }
            Self::Cgroup { directory, inode } => {
                if system.inode(directory).ok() != Some(*inode) {
                    return Err(Error::NoCgroup(directory.display().to_string()));
                }
            }
        }
        Ok(())
    }

    /// What is set for it.
    ///
    /// # Errors
    ///
    /// If it has gone, or may not be read.
    pub fn setting(&self, system: &impl System) -> Result<Setting, Error> {
        let setting = match self {
            Self::Process { pid, .. } => {
                let status = show::process(system, *pid)?.status;
                let default = system.read(Path::new(PREFETCH)).unwrap_or_default();
                of_process(&status, default.trim())
            }
            Self::Cgroup { directory, .. } => {
                let (policy, _) = of_group(system, directory)?;
                Setting {
                    text: policy.clone(),
                    holds: policy,
                    written: true,
                }
            }
        };
        // Afterwards: what was read is of the one that is still there.
        self.check(system)?;
        Ok(setting)
    }

    /// What it asks for virtual machines, in the kernel's words.
    fn nested(&self, system: &impl System) -> Result<Option<String>, Error> {
        Ok(match self {
            Self::Process { pid, .. } => {
                let nested = show::process(system, *pid)?.status.nested;
                nested.filter(Nested::is_own).map(|own| own.written())
            }
            Self::Cgroup { directory, .. } => of_group(system, directory)?.1,
        })
    }

    /// Sets it to `text`, as the kernel reads it, without telling how far that is. What
    /// is asked for virtual machines stays.
    ///
    /// # Errors
    ///
    /// If it has gone, or the kernel refuses.
    pub fn set(&self, system: &impl System, text: &str) -> Result<(), Error> {
        self.check(system)?;
        let text = &match self.nested(system)? {
            Some(nested) => format!("{text} nested {nested}"),
            None => text.to_owned(),
        };
        match self {
            Self::Process { pid, .. } => {
                let path = status_path(*pid);
                system
                    .write(&path, text)
                    .map_err(|error| process_error(*pid, error, path))
            }
            Self::Cgroup { directory, .. } => cgroup::write_policy(system, directory, text),
        }
        .map_err(|error| match Topology::read(system) {
            Ok(topology) => refused(system, &topology, &Request::All, error),
            Err(_) => error,
        })
    }

    /// The name of its file in the directory of what is held.
    pub(crate) fn file_name(&self) -> String {
        match self {
            Self::Process { pid, .. } => format!("trial-{pid}.json"),
            Self::Cgroup { inode, .. } => format!("trial-cgroup-{inode}.json"),
        }
    }
}

const PREFETCH: &str = "/proc/sys/vm/pgtable_repl_prefetch";

/// The policy of a group for page tables, and what it asks for virtual machines.
fn of_group(system: &impl System, directory: &Path) -> Result<(String, Option<String>), Error> {
    let policy = cgroup::policy(system, directory)?;
    Ok(match policy.split_once(" nested ") {
        Some((policy, nested)) => (policy.to_owned(), Some(nested.to_owned())),
        None => (policy, None),
    })
}

/// What is set for a process, where `prefetch` is what the system asks for.
fn of_process(status: &Status, prefetch: &str) -> Setting {
    let holds = if status.mode == Mode::Off {
        "off".to_owned()
    } else {
        format!("{} {}", status.mode, status.nodes)
    };
    let text = match (&status.source, &status.lazy) {
        (Source::None | Source::Cgroup | Source::System, _) => "default".to_owned(),
        (_, Some(lazy)) if lazy.prefetch.to_string() != prefetch => {
            format!("{holds} prefetch={}", lazy.prefetch)
        }
        _ => holds.clone(),
    };
    Setting {
        text,
        holds,
        written: matches!(status.source, Source::Proc | Source::Inherited),
    }
}

/// When a process began: field 22 of `stat`, counted from behind its name,
/// which may hold anything.
fn started(system: &impl System, pid: u32) -> Option<u64> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text = system.read(&path).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}
