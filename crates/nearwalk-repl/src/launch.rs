// SPDX-License-Identifier: GPL-2.0-or-later
//! Becoming a command that is replicated, or whose memory is brought together.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::error::Error;
use crate::nested::NestedSpec;
use crate::nodes::Topology;
use crate::request::{NodeSpec, Request};
use crate::set;
use crate::system::System;

const RANGER: &str = "/proc/self/ranger";

/// What the command is to inherit.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) nodes: Option<&'a NodeSpec>,
    pub(crate) prefetch: Option<u8>,
    /// For the virtual machines that it makes.
    pub(crate) nested: Option<&'a NestedSpec>,
    /// Its memory is brought together in the background.
    pub(crate) ranger: bool,
}

/// Sets what is asked for of this process and becomes the command. Returns only if
/// that failed; the setting does not matter then.
///
/// With placement options numactl runs in between: the setting is inherited over
/// its exec as over ours, and the policy it sets is inherited by the command.
pub(crate) fn launch(
    system: &impl System,
    settings: &Settings<'_>,
    placement: &[OsString],
    command: &[OsString],
) -> Error {
    if let Err(error) = prepare(system, settings) {
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

fn prepare(system: &impl System, settings: &Settings<'_>) -> Result<(), Error> {
    if settings.nodes.is_some() || settings.nested.is_some() {
        set::require_support(system)?;
        let topology = Topology::read(system)?;
        let request = match settings.nodes {
            Some(nodes) => nodes.resolve(&topology)?.with_prefetch(settings.prefetch)?,
            None => Request::Default,
        };
        let nested = settings.nested.map(|nested| nested.resolve(&topology));
        set::set_own(system, &topology, &request, nested.transpose()?.as_deref())?;
    }
    if settings.ranger {
        system
            .write(Path::new(RANGER), "on")
            .map_err(|source| match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::RangerNotPermitted,
                // A kernel that makes passes when it is asked to only.
                Some(libc::ENOENT | libc::EINVAL) => Error::NoRanger,
                _ => Error::Ranger(source),
            })?;
    }
    Ok(())
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
        let settings = Settings {
            nodes: Some(&nodes.parse().unwrap()),
            ..Settings::default()
        };
        launch(fixture, &settings, &words(placement), &words(command))
    }

    #[test]
    fn memory_is_brought_together_from_the_start() {
        let mut fixture = Fixture::four_nodes();
        let settings = Settings {
            ranger: true,
            ..Settings::default()
        };
        let try_it = |fixture: &Fixture| launch(fixture, &settings, &[], &words("gups -x"));
        assert!(matches!(try_it(&fixture), Error::NoRanger));
        assert!(fixture.log.borrow().is_empty());
        fixture.file(RANGER, "on 0\npasses 0\n");
        try_it(&fixture);
        assert_eq!(
            *fixture.log.borrow(),
            ["/proc/self/ranger <- on", "exec gups -x"]
        );
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
    fn machines_get_what_is_asked_for_them() {
        for (nodes, nested, written) in [
            (None, "lazy", "default nested lazy"),
            (Some("off"), "migrate:0-1", "off nested migrate 0-1"),
            (Some("lazy:0,2"), "lazy", "lazy 0,2 nested lazy"),
        ] {
            let fixture = Fixture::four_nodes();
            let nodes = nodes.map(|nodes: &str| nodes.parse().unwrap());
            let settings = Settings {
                nodes: nodes.as_ref(),
                nested: Some(&nested.parse().unwrap()),
                ..Settings::default()
            };
            launch(&fixture, &settings, &[], &words("qemu -m 4G"));
            let written = format!("/proc/self/pgtable_repl <- {written}");
            assert_eq!(*fixture.log.borrow(), [&written, "exec qemu -m 4G"]);
        }
        let mut fixture = Fixture::four_nodes();
        fixture.unwritable("/proc/self/pgtable_repl", libc::EINVAL);
        let settings = Settings {
            nested: Some(&"lazy".parse().unwrap()),
            ..Settings::default()
        };
        let error = launch(&fixture, &settings, &[], &words("qemu"));
        assert!(matches!(error, Error::NoNested), "{error}");
        assert!(fixture.log.borrow().is_empty());
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
