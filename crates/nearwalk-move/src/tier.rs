// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk tier`: hot pages of a group on a fast node, cold ones on a slow one.
//!
//! The kernel does a round when its file is written to; [`group`] writes and reads,
//! [`report`] prints, and the period is here.

mod group;
mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::parse_size;
use crate::error::Error;
use group::{Group, Host, Request};

/// Keep hot pages of a group on a fast node, and cold ones on a slow one, on Nearwalk's kernel
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// A round each period, until it is interrupted
    #[command(after_help = HELP)]
    Run(RunArgs),
    /// One round
    #[command(after_help = HELP)]
    Once(OnceArgs),
    /// What lies where, and what became of pages since the group was made
    Show(ShowArgs),
}

const HELP: &str = "\
Each round looks at the group's pages on both nodes: who was touched in two rounds is
hot. Hot pages of the slow node move to the fast one, while it has room; then they change
places with cold ones, or cold ones move away first. Nothing is swapped out.

Examples:
  nearwalk tier run --cgroup db.slice --fast 0 --slow 2
  nearwalk tier run --cgroup db.slice --fast 0 --slow 2 --fast-max 16G --interval 10s
  nearwalk tier once --cgroup db.slice --fast 0 --slow 2 --scan 100 --json

Exit status: 0 if the rounds were done, 1 if one could not be, 2 for wrong usage.";

#[derive(Debug, clap::Args)]
struct RoundArgs {
    /// The group: its path, or that below cgroup v2's mount point
    #[arg(long, value_name = "GROUP")]
    cgroup: PathBuf,

    /// The node for what is hot
    #[arg(long, value_name = "NODE")]
    fast: u32,

    /// The node for what is cold
    #[arg(long, value_name = "NODE")]
    slow: u32,

    /// Bring up at most this much in a round: bytes, with K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    amount: Option<u64>,

    /// Leave the group no more than this on the fast node; new memory is not limited
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    fast_max: Option<u64>,

    /// Do not have pages change places: move cold ones away first
    #[arg(long)]
    no_exchange: bool,

    /// Split huge pages, and move base pages
    #[arg(long)]
    split: bool,

    /// Look at this part of each list in a round, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    scan: u32,

    /// Print JSON, a line a round
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    round: RoundArgs,

    /// From the beginning of a round to that of the next: 500ms, 5s or 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    interval: Duration,

    /// End after so many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct OnceArgs {
    #[command(flatten)]
    round: RoundArgs,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The group (repeat): its path, or that below cgroup v2's mount point
    #[arg(long, value_name = "GROUP", required = true)]
    cgroup: Vec<PathBuf>,

    /// Print JSON, a line a group
    #[arg(long)]
    json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => 0,
    };
    text[..text.len() - unit.len()]
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .filter(|interval| (100..=3_600_000).contains(interval))
        .map(Duration::from_millis)
        .ok_or_else(|| "allowed: 100ms to 60m, as in 500ms, 5s or 1m".into())
}

impl RoundArgs {
    fn request(&self) -> Request {
        Request {
            fast: self.fast,
            slow: self.slow,
            amount: self.amount,
            fast_max: self.fast_max,
            exchange: !self.no_exchange,
            split: self.split,
            scan: self.scan,
        }
    }
}

/// Carries out the verb.
///
/// # Errors
///
/// If there is no such group, or the kernel cannot or would not.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut host = nearwalk_host::Live::default();
    let mut out = io::stdout().lock();
    let done = match args.verb {
        Verb::Run(args) => {
            let stop = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM] {
                signal_hook::flag::register(signal, Arc::clone(&stop))?;
            }
            run_rounds(&mut host, &args, &stop, &mut out)
        }
        Verb::Once(args) => once(&mut host, &args.round, &mut out),
        Verb::Show(args) => show(&mut host, &args, &mut out),
    };
    match done {
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, text: &str) -> Result<(), Error> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Error::Output)
}

fn once(host: &mut impl Host, args: &RoundArgs, out: &mut impl Write) -> Result<(), Error> {
    let request = args.request();
    let group = Group::find(host, &args.cgroup)?;
    group.check(host, &request)?;
    let before = group.counters(host)?;
    let begun = host.now();
    group.round(host, &request)?;
    let took = host.now() - begun;
    let round = report::difference(&before, &group.counters(host)?);
    let places = group.places(host)?;
    if args.json {
        let text = report::json(&group.name, Some((&request, took)), &round, &places);
        return print(out, &text);
    }
    let text = format!(
        "{}: a round of {:.3} s\n\n{}\n{}",
        group.name,
        took.as_secs_f64(),
        report::outcomes(&round),
        report::places(&places, Some(&request))
    );
    print(out, &text)
}

fn run_rounds(
    host: &mut impl Host,
    args: &RunArgs,
    stop: &AtomicBool,
    out: &mut impl Write,
) -> Result<(), Error> {
    let request = args.round.request();
    let group = Group::find(host, &args.round.cgroup)?;
    group.check(host, &request)?;
    if !args.round.json {
        print(out, &report::head())?;
    }
    let mut next = host.now();
    for number in 1..=args.rounds.unwrap_or(u64::MAX) {
        let before = group.counters(host)?;
        let begun = host.now();
        group.round(host, &request)?;
        let took = host.now() - begun;
        let round = report::difference(&before, &group.counters(host)?);
        let places = group.places(host)?;
        let on = |node| places.get(&node).map_or(0, |lists| lists.iter().sum());
        let text = if args.round.json {
            report::json(&group.name, Some((&request, took)), &round, &places)
        } else {
            report::line(number, took, &round, on(request.fast), on(request.slow))
        };
        print(out, &text)?;
        if Some(number) == args.rounds {
            break;
        }
        // A round that took longer than the period is followed by the next at once.
        next = host.now().max(next + args.interval);
        while host.now() < next && !stop.load(Ordering::Relaxed) {
            let left = next - host.now();
            host.wait(left.min(Duration::from_millis(100)))?;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

fn show(host: &mut impl Host, args: &ShowArgs, out: &mut impl Write) -> Result<(), Error> {
    for (index, name) in args.cgroup.iter().enumerate() {
        let group = Group::find(host, name)?;
        let counters = group.counters(host)?;
        let places = group.places(host)?;
        if args.json {
            print(out, &report::json(&group.name, None, &counters, &places))?;
            continue;
        }
        let rounds = counters.get("rounds").copied().unwrap_or(0);
        let text = format!(
            "{}{}\n{}\nrounds: {}\n{}",
            if index == 0 { "" } else { "\n" },
            group.name,
            report::places(&places, None),
            rounds,
            if rounds == 0 {
                String::new()
            } else {
                report::outcomes(&counters)
            }
        );
        print(out, &text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::group::tests::Fake;
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<Args, String> {
        let words = ["tier"].into_iter().chain(words.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn text_of(words: &str, host: &mut Fake) -> Result<String, Error> {
        let mut out = Vec::new();
        let stop = AtomicBool::new(false);
        match parse(words).unwrap().verb {
            Verb::Run(args) => run_rounds(host, &args, &stop, &mut out),
            Verb::Once(args) => once(host, &args.round, &mut out),
            Verb::Show(args) => show(host, &args, &mut out),
        }?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (words, value, allowed) in [
            ("once --fast 0 --slow 1", "--cgroup", "GROUP"),
            ("once --cgroup g --fast x --slow 1", "x", "--fast"),
            ("once --cgroup g --fast 0 --slow 1 --scan 0", "0", "1..=100"),
            ("once --cgroup g --fast 0 --slow 1 --amount 5", "5", "64K"),
            (
                "run --cgroup g --fast 0 --slow 1 --interval 5",
                "5",
                "100ms to 60m",
            ),
            (
                "run --cgroup g --fast 0 --slow 1 --interval 2h",
                "2h",
                "100ms to 60m",
            ),
            ("show", "--cgroup", "GROUP"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }

    #[test]
    fn intervals_are_read() {
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("1m"), Ok(Duration::from_secs(60)));
        assert!(parse_interval("50ms").is_err() && parse_interval("s").is_err());
    }

    #[test]
    fn a_round_tells_what_it_did_and_what_lies_where() {
        let mut host = Fake::new();
        let text = text_of("once --cgroup db --fast 0 --slow 1", &mut host).unwrap();
        assert!(text.starts_with("db: a round of 0.000 s\n"), "{text}");
        assert!(
            text.contains("looked at                         0K"),
            "{text}"
        );
        assert_eq!(host.written.len(), 1);
    }

    #[test]
    fn rounds_follow_each_other_by_the_period() {
        let mut host = Fake::new();
        let words = "run --cgroup db --fast 0 --slow 1 --rounds 3 --interval 2s";
        let text = text_of(words, &mut host).unwrap();
        assert_eq!(text.lines().count(), 4);
        assert_eq!(host.written.len(), 3);
        assert_eq!(nearwalk_host::Source::now(&host), Duration::from_secs(4));
    }

    #[test]
    fn nothing_is_written_where_something_is_wrong() {
        let mut host = Fake::new();
        for words in [
            "once --cgroup db --fast 1 --slow 1",
            "run --cgroup db --fast 0 --slow 9",
            "once --cgroup no --fast 0 --slow 1",
        ] {
            assert!(text_of(words, &mut host).is_err(), "{words}");
        }
        assert!(host.written.is_empty());
    }

    #[test]
    fn a_group_is_shown_with_its_outcomes() {
        let text = text_of("show --cgroup db", &mut Fake::new()).unwrap();
        assert!(
            text.contains("rounds: 1\n") && text.contains("moved up, into room"),
            "{text}"
        );
        let text = text_of("show --cgroup db --cgroup db --json", &mut Fake::new()).unwrap();
        assert_eq!(text.lines().count(), 2);
        let json: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(json["counters"]["promoted"], 2);
        assert!(json.get("seconds").is_none());
    }
}
