// SPDX-License-Identifier: GPL-2.0-or-later
//! Changing the replication of processes, and telling what a refusal means.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::nodes::Topology;
use crate::request::Request;
use crate::system::System;

pub(crate) const SYSTEM_MODE: &str = "/proc/sys/vm/pgtable_repl_mode";

/// Fails on a kernel without the feature.
pub(crate) fn require_support(system: &impl System) -> Result<(), Error> {
    match system.read(Path::new("/proc/self/pgtable_repl")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Unsupported),
        _ => Ok(()),
    }
}

/// The file of process `pid`.
pub(crate) fn status_path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/pgtable_repl"))
}

/// Sets the replication of process `pid`, and what its virtual machines get.
pub(crate) fn set_process(
    system: &impl System,
    topology: &Topology,
    pid: u32,
    request: &Request,
    nested: Option<&str>,
) -> Result<(), Error> {
    let path = status_path(pid);
    system
        .change(&path, &request.with_nested(nested))
        .map_err(|error| match error.raw_os_error() {
            // Some exit between open() and write() keeps the number in /proc.
            Some(libc::ESRCH) if system.read(&comm_path(pid)).is_ok() => Error::NoAddressSpace(pid),
            _ => process_error(pid, error, path.clone()),
        })
        .map_err(|error| without_nested(nested, error))
        .map_err(|error| refused(system, topology, request, error))
}

/// What it means that a text was not understood that was checked before.
pub(crate) fn without_nested(nested: Option<&str>, error: Error) -> Error {
    match &error {
        Error::Io { source, .. }
            if nested.is_some() && source.raw_os_error() == Some(libc::EINVAL) =>
        {
            Error::NoNested
        }
        _ => error,
    }
}

/// Sets the replication of this process.
pub(crate) fn set_own(
    system: &impl System,
    topology: &Topology,
    request: &Request,
    nested: Option<&str>,
) -> Result<(), Error> {
    // There is no prctl() for it.
    if *request == Request::Default || nested.is_some() {
        let path = PathBuf::from("/proc/self/pgtable_repl");
        return system
            .write(&path, &request.with_nested(nested))
            .map_err(|source| without_nested(nested, Error::io(path, source)))
            .map_err(|error| refused(system, topology, request, error));
    }
    system
        .set_own(request)
        .map_err(|source| Error::io("prctl(PR_SET_PGTABLE_REPL)", source))
        .map_err(|error| refused(system, topology, request, error))
}

pub(crate) fn comm_path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/comm"))
}

/// What an error of a process's file means.
pub(crate) fn process_error(pid: u32, source: io::Error, path: PathBuf) -> Error {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Error::NoProcess(pid),
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted(pid),
        _ => Error::io(path, source),
    }
}

/// What the kernel's refusal of a request means. The request was checked against
/// the topology before, but nodes may have gone since.
pub(crate) fn refused(
    system: &impl System,
    topology: &Topology,
    request: &Request,
    error: Error,
) -> Error {
    let Error::Io { source, .. } = &error else {
        return error;
    };
    match source.raw_os_error() {
        Some(libc::EOPNOTSUPP) => match system.read(Path::new(SYSTEM_MODE)) {
            Ok(mode) if mode.trim() != "0" => Error::NotOnThisMachine,
            _ => Error::SwitchedOff,
        },
        Some(libc::ENODEV | libc::EINVAL) => {
            let now = Topology::read(system).unwrap_or_else(|_| topology.clone());
            match request {
                Request::Nodes(nodes)
                | Request::Lazy {
                    nodes: Some(nodes), ..
                } => now.check(nodes).err().unwrap_or(error),
                _ => error,
            }
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, OFF};

    fn try_set(fixture: &Fixture, pid: u32, request: &Request) -> Result<(), String> {
        let topology = Topology::read(fixture).unwrap();
        set_process(fixture, &topology, pid, request, None).map_err(|error| error.to_string())
    }

    #[test]
    fn requests_are_written_as_the_kernel_reads_them() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(7, "x", OFF);
        for request in [
            Request::Off,
            Request::All,
            Request::Nodes("0,2-3".parse().unwrap()),
            Request::Default,
        ] {
            try_set(&fixture, 7, &request).unwrap();
        }
        assert_eq!(
            *fixture.log.borrow(),
            [
                "/proc/7/pgtable_repl <- off",
                "/proc/7/pgtable_repl <- eager all",
                "/proc/7/pgtable_repl <- eager 0,2-3",
                "/proc/7/pgtable_repl <- default",
            ]
        );
    }

    #[test]
    fn refusals_are_told_in_the_users_words() {
        for (errno, message) in [
            (
                libc::EPERM,
                "process 7: no permission; only its user or root (who may trace it) can do this",
            ),
            (
                libc::EACCES,
                "process 7: no permission; only its user or root (who may trace it) can do this",
            ),
            (
                libc::ESRCH,
                "process 7 has no page tables of its own (a kernel thread, or it has ended)",
            ),
            (
                libc::ENOMEM,
                "/proc/7/pgtable_repl: Cannot allocate memory (os error 12)",
            ),
        ] {
            let mut fixture = Fixture::four_nodes();
            fixture.process(7, "x", OFF);
            fixture.unwritable("/proc/7/pgtable_repl", errno);
            assert_eq!(try_set(&fixture, 7, &Request::All).unwrap_err(), message);
        }
        let fixture = Fixture::four_nodes();
        assert_eq!(
            try_set(&fixture, 8, &Request::All).unwrap_err(),
            "there is no process 8"
        );
    }

    #[test]
    fn kernels_that_know_no_machines_are_told() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(7, "x", OFF);
        let topology = Topology::read(&fixture).unwrap();
        fixture.unwritable("/proc/7/pgtable_repl", libc::EINVAL);
        let error = set_process(&fixture, &topology, 7, &Request::Off, Some("lazy"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("nearwalk vm set"), "{error}");
    }

    #[test]
    fn the_administrators_off_is_told_from_a_machine_that_cannot() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(7, "x", OFF);
        fixture.unwritable("/proc/7/pgtable_repl", libc::EOPNOTSUPP);
        let error = try_set(&fixture, 7, &Request::All).unwrap_err();
        assert!(error.contains("Xen"), "{error}");
        fixture.file(SYSTEM_MODE, "0\n");
        let error = try_set(&fixture, 7, &Request::All).unwrap_err();
        assert!(error.contains("sysctl vm.pgtable_repl_mode=1"), "{error}");
    }

    #[test]
    fn a_node_that_went_offline_meanwhile_is_named() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(7, "x", OFF);
        let before = Topology::read(&fixture).unwrap();
        fixture.unwritable("/proc/7/pgtable_repl", libc::ENODEV);
        for list in ["online", "has_cpu", "has_memory"] {
            fixture.file(&format!("/sys/devices/system/node/{list}"), "0-2\n");
        }
        let request = Request::Nodes("1,3".parse().unwrap());
        let error = set_process(&fixture, &before, 7, &request, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node 3 is offline; page tables can be replicated on 0-2"
        );
    }
}
