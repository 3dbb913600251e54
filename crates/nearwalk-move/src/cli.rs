// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk move`: arguments in, text and exit status out.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use nearwalk_host::parse_list;

use crate::error::Error;
use crate::memory::{Live, PAGE, mappings, parse_range};
use crate::mover::{self, Order};
use crate::report::{Report, parse_counters};

/// Move the memory of a process to another node
#[derive(Debug, Parser)]
#[command(after_help = "\
The process goes on running; who touches a page that is on its way waits for it. New
memory still goes where its policy says. Several CPUs copy if the sysctl
vm.migrate_copy_threads is above 1, on Nearwalk's kernel.

Examples:
  nearwalk move 4711 --to 1
  nearwalk move 4711 --from 0 --to 1 --size 1G
  nearwalk move $(pidof memcached) --to 2 --shared --json

Exit status: 0 if all that should move is there, 1 if some is not or the process
could not be moved, 2 for wrong usage.")]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// The node to move to
    #[arg(long, value_name = "NODE")]
    to: u32,

    /// Move only what is on this node
    #[arg(long, value_name = "NODE")]
    from: Option<u32>,

    /// Move at most this much, the lowest addresses first: bytes, with K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,

    /// Move only what is mapped at these addresses, in hexadecimal digits (repeat)
    #[arg(long, value_name = "FROM-TO", value_parser = parse_addresses)]
    range: Vec<Addresses>,

    /// Move what other processes map as well; for root
    #[arg(long)]
    shared: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A newtype, since a range of numbers means something else to clap.
#[derive(Clone, Debug)]
struct Addresses(Range<u64>);

fn parse_addresses(text: &str) -> Result<Addresses, String> {
    match parse_range(text) {
        Some(range) if range.start % PAGE == 0 && range.end % PAGE == 0 => Ok(Addresses(range)),
        _ => Err(
            "allowed: two multiples of 1000 in hexadecimal digits, the smaller first, \
             as in 7f0000000000-7f0000200000"
                .into(),
        ),
    }
}

/// Bytes, to whole pages.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        "T" => Some(40),
        _ => None,
    };
    shift
        .zip(digits.parse::<u64>().ok())
        .and_then(|(shift, count)| count.checked_mul(1 << shift))
        .filter(|bytes| *bytes != 0 && bytes % PAGE == 0)
        .ok_or_else(|| "allowed: whole pages of 4K, as in 4096, 64K, 2M or 1G".into())
}

/// Carries out the verb.
///
/// # Errors
///
/// If nothing could be asked of the kernel, or it refused.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let report = carry_out(&args)?;
    let text = if args.json {
        report.json()
    } else {
        report.text()
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(if report.outcomes.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Nodes that can have memory.
fn check_nodes(args: &Args) -> Result<(), Error> {
    if args.from == Some(args.to) {
        return Err(Error::SameNode(args.to));
    }
    let path = "/sys/devices/system/node/has_memory";
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Unsupported),
        Err(error) => return Err(Error::io(path, error)),
    };
    let nodes = parse_list(&text).unwrap_or_default();
    for node in [Some(args.to), args.from].into_iter().flatten() {
        if !nodes.contains(&node) {
            return Err(Error::NoNode {
                node,
                allowed: text.trim().to_owned(),
            });
        }
    }
    Ok(())
}

/// What of the mappings lies within the ranges; all of them if there are none.
fn within(mappings: Vec<Range<u64>>, ranges: &[Addresses]) -> Vec<Range<u64>> {
    if ranges.is_empty() {
        return mappings;
    }
    let cut = |mapping: &Range<u64>, Addresses(range): &Addresses| {
        let both = mapping.start.max(range.start)..mapping.end.min(range.end);
        (both.start < both.end).then_some(both)
    };
    let mut parts: Vec<Range<u64>> = mappings
        .iter()
        .flat_map(|mapping| ranges.iter().filter_map(|range| cut(mapping, range)))
        .collect();
    // What is named twice is moved once.
    parts.sort_by_key(|part| part.start);
    let mut end = 0;
    for part in &mut parts {
        part.start = part.start.max(end).min(part.end);
        end = end.max(part.end);
    }
    parts.retain(|part| part.start < part.end);
    parts
}

fn carry_out(args: &Args) -> Result<Report, Error> {
    let pid = args.pid;
    check_nodes(args)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_err(|_| Error::NoProcess(pid))?
        .trim_end()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let ranges = within(mappings(pid)?, &args.range);
    let mut memory = Live::open(pid, args.shared)?;
    let order = Order {
        to: args.to,
        from: args.from,
        most: args.size.map(|bytes| bytes / PAGE),
    };
    let vmstat = || {
        let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        parse_counters(&text)
    };
    let before = vmstat();
    let begun = Instant::now();
    let outcomes =
        mover::run(&mut memory, &ranges, &order).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Error::NoProcess(pid),
            Some(libc::EPERM) if args.shared => Error::SharedNotPermitted,
            Some(libc::EPERM) => Error::NotPermitted(pid),
            Some(libc::ENOSYS) => Error::Unsupported,
            Some(libc::EACCES) => Error::NotAllowed { pid, node: args.to },
            Some(libc::ENODEV) => Error::NoNode {
                node: args.to,
                allowed: "those in /sys/devices/system/node/has_memory".into(),
            },
            _ => Error::io("move_pages()", error),
        })?;
    Ok(Report {
        pid,
        name,
        from: args.from,
        to: args.to,
        outcomes,
        took: begun.elapsed(),
        before,
        after: vmstat(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::slice;

    fn parse(words: &str) -> Result<Args, String> {
        let words = ["move"].into_iter().chain(words.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn sizes_and_ranges_are_read() {
        let args = parse("7 --to 1 --size 3M --range 1000-3000 --range 0x7000-8000").unwrap();
        assert_eq!(args.size, Some(3 << 20));
        assert_eq!(args.range[0].0, 0x1000..0x3000);
        assert_eq!(args.range[1].0, 0x7000..0x8000);
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (words, value, allowed) in [
            ("7", "--to", "NODE"),
            ("x --to 1", "x", "PID"),
            ("0 --to 1", "0", "1.."),
            ("7 --to east", "east", "NODE"),
            ("7 --to -1", "-1", ""),
            ("7 --to 1 --size 5", "5", "whole pages"),
            ("7 --to 1 --size 0", "0", "whole pages"),
            ("7 --to 1 --size 99999999T", "99999999T", "whole pages"),
            (
                "7 --to 1 --range 3000-1000",
                "3000-1000",
                "the smaller first",
            ),
            ("7 --to 1 --range 1-2000", "1-2000", "multiples of 1000"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }

    #[test]
    fn nodes_are_checked_before_anything_moves() {
        let error = check_nodes(&parse("7 --from 1 --to 1").unwrap()).unwrap_err();
        assert!(error.to_string().contains("both node 1"), "{error}");
        let error = check_nodes(&parse("7 --to 4095").unwrap()).unwrap_err();
        assert!(
            matches!(error, Error::NoNode { node: 4095, .. } | Error::Unsupported),
            "{error}"
        );
    }

    #[test]
    fn ranges_cut_mappings() {
        let cut = |ranges: &[Range<u64>]| {
            let ranges: Vec<Addresses> = ranges.iter().cloned().map(Addresses).collect();
            within(vec![0..10, 20..30], &ranges)
        };
        assert_eq!(cut(&[]), [0..10, 20..30]);
        assert_eq!(cut(slice::from_ref(&(5..25))), [5..10, 20..25]);
        assert_eq!(cut(&[5..25, 0..7, 24..30]), [0..7, 7..10, 20..25, 25..30]);
        assert!(cut(slice::from_ref(&(10..20))).is_empty());
    }
}
