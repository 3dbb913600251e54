// SPDX-License-Identifier: GPL-2.0-or-later
//! The replication of a cgroup's processes: the files `memory.pgtable_repl*`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;
use crate::nodes::Topology;
use crate::request::Request;
use crate::set::{refused, without_nested};
use crate::system::System;
use crate::table::{self, Align};

/// The most that a group's copies may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As much as they need.
    None,
    /// Bytes; the kernel rounds down to pages.
    Bytes(u64),
}

impl FromStr for Limit {
    type Err = Error;

    /// `max`, or a number of bytes with K, M, G or T (powers of 1024).
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "max" {
            return Ok(Self::None);
        }
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let shift = match &text[digits.len()..] {
            "" => Some(0),
            "K" | "k" => Some(10),
            "M" | "m" => Some(20),
            "G" | "g" => Some(30),
            "T" | "t" => Some(40),
            _ => None,
        };
        shift
            .zip(digits.parse::<u64>().ok())
            .and_then(|(shift, number)| number.checked_mul(1 << shift))
            .map(Self::Bytes)
            .ok_or_else(|| Error::BadLimit(text.to_owned()))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("max"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// One group, as its files tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Group {
    /// As the user named it.
    pub(crate) cgroup: String,
    /// What was asked for: `default`, `off`, `eager all` or `eager` and nodes; behind
    /// `nested`, for virtual machines.
    pub(crate) policy: String,
    /// What holds for its processes.
    pub(crate) effective: String,
    /// Bytes that copies take, here and in the groups below.
    pub(crate) current: u64,
    /// The most that they may take; nothing if there is no limit.
    pub(crate) max: Option<u64>,
    /// How often the limit kept a copy from being made.
    pub(crate) refused: u64,
}

/// The directory of a group: a path, or one below cgroup v2's mount point.
pub(crate) fn directory(system: &impl System, group: &Path) -> Result<PathBuf, Error> {
    let directory = if group.is_absolute() {
        group.to_owned()
    } else {
        mount_point(system)?.join(group)
    };
    match system.read(&directory.join("cgroup.controllers")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoCgroup(group.display().to_string()))
        }
        _ => Ok(directory),
    }
}

fn mount_point(system: &impl System) -> Result<PathBuf, Error> {
    let mounts = system
        .read(Path::new("/proc/self/mounts"))
        .map_err(|source| Error::io("/proc/self/mounts", source))?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .find(|(_, kind)| *kind == "cgroup2")
        .map(|(path, _)| PathBuf::from(unescape(path)))
        .ok_or(Error::NoCgroups)
}

/// Blanks and backslashes of a mount point are octal in /proc/self/mounts.
fn unescape(path: &str) -> String {
    let mut text = path.to_owned();
    for (code, character) in [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")] {
        text = text.replace(code, character);
    }
    text
}

/// What an error of one of the group's files means.
fn file_error(group: &Path, path: PathBuf, source: io::Error) -> Error {
    let name = group.display().to_string();
    match source.raw_os_error() {
        Some(libc::ENOENT) => Error::NoController(name),
        // Removed while its file was open.
        Some(libc::ENODEV) if !path.ends_with("memory.pgtable_repl") => Error::NoCgroup(name),
        Some(libc::EPERM | libc::EACCES) => Error::CgroupNotPermitted(name),
        _ => Error::io(path, source),
    }
}

fn write(system: &impl System, group: &Path, file: &str, text: &str) -> Result<(), Error> {
    let path = directory(system, group)?.join(file);
    system
        .write(&path, text)
        .map_err(|source| file_error(group, path, source))
}

/// Writes a policy of a group as the kernel reads it.
pub(crate) fn write_policy(system: &impl System, group: &Path, text: &str) -> Result<(), Error> {
    write(system, group, "memory.pgtable_repl", text)
}

/// The policy of a group as the kernel writes it.
pub(crate) fn policy(system: &impl System, group: &Path) -> Result<String, Error> {
    let path = directory(system, group)?.join("memory.pgtable_repl");
    system
        .read(&path)
        .map(|text| text.trim_end().to_owned())
        .map_err(|source| file_error(group, path, source))
}

/// Sets the policy of a group, which its processes get, and what their virtual
/// machines get.
pub(crate) fn set_policy(
    system: &impl System,
    topology: &Topology,
    group: &Path,
    request: &Request,
    nested: Option<&str>,
) -> Result<(), Error> {
    write_policy(system, group, &request.with_nested(nested))
        .map_err(|error| without_nested(nested, error))
        .map_err(|error| refused(system, topology, request, error))
}

/// Limits what a group's copies may take.
pub(crate) fn set_limit(system: &impl System, group: &Path, limit: Limit) -> Result<(), Error> {
    write(system, group, "memory.pgtable_repl.max", &limit.to_string())
}

/// Reads a group.
pub(crate) fn group(system: &impl System, group: &Path) -> Result<Group, Error> {
    let directory = directory(system, group)?;
    let read = |suffix: &str| {
        let path = directory.join(format!("memory.pgtable_repl{suffix}"));
        system
            .read(&path)
            .map(|text| text.trim_end().to_owned())
            .map_err(|source| file_error(group, path, source))
    };
    let number = |text: &str| {
        text.parse().map_err(|_| Error::Answer {
            line: text.to_owned(),
            why: "not a number".to_owned(),
        })
    };
    let max = read(".max")?;
    let stat = read(".stat")?;
    let refused = stat
        .lines()
        .find_map(|line| line.strip_prefix("refused "))
        .unwrap_or("0");
    Ok(Group {
        cgroup: group.display().to_string(),
        policy: policy(system, group)?,
        effective: read(".effective")?,
        current: number(&read(".current")?)?,
        max: match max.as_str() {
            "max" => None,
            text => Some(number(text)?),
        },
        refused: number(refused)?,
    })
}

/// The table of groups.
pub(crate) fn render(groups: &[Group]) -> String {
    let header = [
        ("CGROUP".to_owned(), Align::Left),
        ("POLICY".to_owned(), Align::Left),
        ("EFFECTIVE".to_owned(), Align::Left),
        ("CURRENT".to_owned(), Align::Right),
        ("MAX".to_owned(), Align::Right),
        ("REFUSED".to_owned(), Align::Right),
    ];
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            vec![
                group.cgroup.clone(),
                group.policy.clone(),
                group.effective.clone(),
                group.current.to_string(),
                group.max.map_or(Limit::None, Limit::Bytes).to_string(),
                group.refused.to_string(),
            ]
        })
        .collect();
    table::render(&header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const DB: &str = "/sys/fs/cgroup/db.slice";

    fn machine() -> Fixture {
        let mut fixture = Fixture::four_nodes();
        fixture.file(
            "/proc/self/mounts",
            "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
        );
        for (file, text) in [
            ("cgroup.controllers", "memory\n"),
            ("memory.pgtable_repl", "eager all\n"),
            ("memory.pgtable_repl.effective", "eager 0-3\n"),
            ("memory.pgtable_repl.current", "40960\n"),
            ("memory.pgtable_repl.max", "max\n"),
            ("memory.pgtable_repl.stat", "refused 7\n"),
        ] {
            fixture.file(&format!("{DB}/{file}"), text);
        }
        fixture
    }

    fn try_set(fixture: &Fixture, name: &str, request: &Request) -> Result<(), String> {
        let topology = Topology::read(fixture).unwrap();
        set_policy(fixture, &topology, Path::new(name), request, None)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn groups_are_named_by_path_or_below_the_mount_point() {
        let fixture = machine();
        for name in ["db.slice", DB, "./db.slice"] {
            try_set(&fixture, name, &Request::All).unwrap();
        }
        try_set(&fixture, DB, &Request::Default).unwrap();
        set_limit(&fixture, Path::new(DB), Limit::Bytes(8192)).unwrap();
        set_limit(&fixture, Path::new(DB), Limit::None).unwrap();
        assert_eq!(
            fixture.log.borrow()[3..],
            [
                format!("{DB}/memory.pgtable_repl <- default"),
                format!("{DB}/memory.pgtable_repl.max <- 8192"),
                format!("{DB}/memory.pgtable_repl.max <- max"),
            ]
        );
    }

    #[test]
    fn limits_are_bytes_with_a_unit_or_none() {
        for (text, limit) in [
            ("max", Limit::None),
            ("0", Limit::Bytes(0)),
            ("64K", Limit::Bytes(65536)),
            ("256M", Limit::Bytes(256 << 20)),
            ("1t", Limit::Bytes(1 << 40)),
        ] {
            assert_eq!(text.parse::<Limit>().unwrap(), limit, "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "1.5G",
            "12 M",
            "5P",
            "99999999999T",
            "M",
            "٣",
        ] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
            assert!(error.contains("256M"), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_group_is_said() {
        let mut fixture = machine();
        assert_eq!(
            try_set(&fixture, "no.slice", &Request::All).unwrap_err(),
            "there is no cgroup `no.slice`"
        );
        fixture.file("/sys/fs/cgroup/bare/cgroup.controllers", "\n");
        let error = try_set(&fixture, "bare", &Request::All).unwrap_err();
        assert!(error.contains("cgroup.subtree_control"), "{error}");
        fixture.unwritable(&format!("{DB}/memory.pgtable_repl"), libc::EACCES);
        let error = try_set(&fixture, "db.slice", &Request::All).unwrap_err();
        assert!(error.contains("`db.slice`: no permission"), "{error}");
        fixture.unwritable(&format!("{DB}/memory.pgtable_repl"), libc::EOPNOTSUPP);
        fixture.file("/proc/sys/vm/pgtable_repl_mode", "0\n");
        let error = try_set(&fixture, "db.slice", &Request::All).unwrap_err();
        assert!(error.contains("sysctl vm.pgtable_repl_mode=1"), "{error}");
        fixture.file("/proc/self/mounts", "proc /proc proc rw 0 0\n");
        let error = try_set(&fixture, "db.slice", &Request::All).unwrap_err();
        assert!(error.contains("cgroup v2"), "{error}");
    }

    #[test]
    fn groups_are_shown_with_policy_and_use() {
        let mut fixture = machine();
        let shown = group(&fixture, Path::new("db.slice")).unwrap();
        assert_eq!(
            render(std::slice::from_ref(&shown)),
            "\
CGROUP    POLICY     EFFECTIVE  CURRENT  MAX  REFUSED
db.slice  eager all  eager 0-3    40960  max        7
"
        );
        fixture.file(&format!("{DB}/memory.pgtable_repl.max"), "1073741824\n");
        let shown = group(&fixture, Path::new("db.slice")).unwrap();
        assert_eq!(
            serde_json::to_value(&shown).unwrap(),
            serde_json::json!({
                "cgroup": "db.slice",
                "policy": "eager all",
                "effective": "eager 0-3",
                "current": 40960,
                "max": 1_073_741_824,
                "refused": 7,
            })
        );
        fixture.file(&format!("{DB}/memory.pgtable_repl.current"), "many\n");
        let error = group(&fixture, Path::new("db.slice")).unwrap_err();
        assert!(error.to_string().contains("`many`"), "{error}");
    }

    #[test]
    fn mount_points_may_have_blanks() {
        assert_eq!(unescape("/mnt/my\\040groups"), "/mnt/my groups");
    }
}
