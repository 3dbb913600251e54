// SPDX-License-Identifier: GPL-2.0-or-later
//! Becoming a command that is replicated.

use std::ffi::OsString;
use std::io;

use crate::error::Error;
use crate::nodes::Topology;
use crate::request::NodeSpec;
use crate::set;
use crate::system::System;

/// Sets this process's replication and becomes the command. Returns only if
/// that failed; the setting does not matter then.
///
/// With placement options numactl runs in between: the setting is inherited over
/// its exec as over ours, and the policy it sets is inherited by the command.
pub(crate) fn launch(
    system: &impl System,
    spec: &NodeSpec,
    prefetch: Option<u8>,
    placement: &[OsString],
    command: &[OsString],
) -> Error {
    if let Err(error) = prepare(system, spec, prefetch) {
        return error;
    }
    if placement.is_empty() {
        return exec_error(command, system.exec(command));
    }
    // numactl ends with 1 for a command that it cannot run, like a command that
    // fails: look first, so that the difference can be told.
    if let Err(source) = system.find_program(&command[0]) {
        return exec_error(command, source);
    }
    let mut argv = vec![OsString::from("numactl")];
    argv.extend_from_slice(placement);
    argv.push("--".into());
    argv.extend_from_slice(command);
    Error::NoNumactl(system.exec(&argv))
}

fn prepare(system: &impl System, spec: &NodeSpec, prefetch: Option<u8>) -> Result<(), Error> {
    set::require_support(system)?;
    let topology = Topology::read(system)?;
    let request = spec.resolve(&topology)?.with_prefetch(prefetch)?;
    set::set_own(system, &topology, &request)
}

fn exec_error(command: &[OsString], source: io::Error) -> Error {
    Error::Exec {
        program: command[0].to_string_lossy().into_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn try_launch(fixture: &Fixture, nodes: &str, placement: &str, command: &str) -> Error {
        launch(
            fixture,
            &nodes.parse().unwrap(),
            None,
            &words(placement),
            &words(command),
        )
    }

    #[test]
    fn the_setting_comes_before_the_command() {
        let fixture = Fixture::four_nodes();
        try_launch(&fixture, "0,2", "", "memcached -m 64");
        assert_eq!(
            *fixture.log.borrow(),
            ["prctl eager 0,2", "exec memcached -m 64"]
        );
    }

    #[test]
    fn placement_is_numactls_work() {
        let fixture = Fixture::four_nodes();
        try_launch(&fixture, "all", "--interleave=all -N 0", "a -b --c");
        assert_eq!(
            *fixture.log.borrow(),
            [
                "prctl eager all",
                "exec numactl --interleave=all -N 0 -- a -b --c"
            ]
        );
    }

    #[test]
    fn nothing_runs_when_replication_is_refused() {
        let mut fixture = Fixture::four_nodes();
        fixture.prctl_error.set(Some(libc::EOPNOTSUPP));
        fixture.file(crate::set::SYSTEM_MODE, "0\n");
        assert!(matches!(
            try_launch(&fixture, "all", "", "true"),
            Error::SwitchedOff
        ));
        assert!(matches!(
            try_launch(&fixture, "5", "", "true"),
            Error::NoSuchNode { node: 5, .. }
        ));
        fixture.without("/proc/self/pgtable_repl");
        assert!(matches!(
            try_launch(&fixture, "all", "", "true"),
            Error::Unsupported
        ));
        assert!(fixture.log.borrow().is_empty());
    }

    #[test]
    fn a_missing_command_is_told_from_a_missing_numactl() {
        let mut fixture = Fixture::four_nodes();
        fixture.exec_error.set(Some(libc::ENOENT));
        let error = try_launch(&fixture, "all", "-l", "true");
        assert!(error.to_string().contains("install the package numactl"));
        fixture
            .missing_programs
            .insert("nothing".to_owned(), libc::ENOENT);
        assert!(matches!(
            try_launch(&fixture, "all", "-l", "nothing"),
            Error::Exec { program, .. } if program == "nothing"
        ));
    }
}
