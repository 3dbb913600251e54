// SPDX-License-Identifier: GPL-2.0-or-later
//! Counting by `perf_event_open`.

use std::fs::File;
use std::io;

use nearwalk_host::Source;
use perf_event_open::config::{self, Cgroup, Cpu, Inherit, Opts, Priv, Proc, StatFormat};
use perf_event_open::count::Counter;
use perf_event_open::count::group::CounterGroup;
use perf_event_open::event::hw::Hardware;
use perf_event_open::event::raw::Raw;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cpu::{paranoid, watchdog};
use crate::events::{Event, Model, Role};
use crate::missing::Missing;
use crate::reading::{Count, Reading};

/// Whose walks are counted.
#[derive(Debug)]
pub enum Target<'a> {
    /// These threads, and those that they start.
    Threads(&'a [u32]),
    /// A control group, by its directory, on these CPUs.
    Cgroup(&'a File, &'a [u32]),
}

enum Code {
    Cycles,
    Raw(u64),
    /// A software event, which needs no PMU.
    #[cfg(test)]
    Clock,
}

/// Something that is counted: its name, what it counts, and how to ask for it.
type Wanted = (String, Role, Code);

/// Counters that count.
pub struct Perf {
    model: String,
    groups: Vec<Opened>,
}

/// A group of events.
struct Opened {
    events: Vec<(String, Role)>,
    /// That of each thread or CPU.
    each: Vec<CounterGroup>,
}

impl Perf {
    /// Begins to count the events of `model`.
    pub fn open(
        model: &Model,
        target: &Target<'_>,
        source: &mut dyn Source,
    ) -> Result<Self, Missing> {
        let wanted = |(role, event): (Role, Option<&Event>)| match event {
            Some(event) => (event.name.clone(), role, Code::Raw(event.config)),
            None => ("cycles".to_owned(), role, Code::Cycles),
        };
        let groups = model.groups().into_iter();
        let groups = groups.map(|group| group.into_iter().map(wanted).collect());
        Self::open_groups(&model.name, groups.collect(), target, source)
    }

    fn open_groups(
        model: &str,
        groups: Vec<Vec<Wanted>>,
        target: &Target<'_>,
        source: &mut dyn Source,
    ) -> Result<Self, Missing> {
        let events: usize = groups.iter().map(Vec::len).sum();
        let needed = events * target.len();
        room_for(needed);
        let mut perf = Self {
            model: model.to_owned(),
            groups: Vec::new(),
        };
        for wanted in groups {
            let mut each = Vec::new();
            for one in target.each() {
                match open_group(&wanted, one, target.inherit()) {
                    Ok(group) => each.push(group),
                    Err((_, error)) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err((event, error)) => return Err(refusal(source, event, &error, needed)),
                }
            }
            if each.is_empty() {
                return Err(Missing::Idle);
            }
            let names = wanted.into_iter().map(|(name, role, _)| (name, role));
            perf.groups.push(Opened {
                events: names.collect(),
                each,
            });
        }
        Ok(perf)
    }

    /// What was counted since it began.
    pub fn read(&self, source: &mut dyn Source) -> Result<Reading, Missing> {
        let mut counts = Vec::new();
        for Opened { events, each } in &self.groups {
            let mut sums: Vec<Count> = events
                .iter()
                .map(|(event, role)| Count {
                    event: event.clone(),
                    role: *role,
                    count: 0,
                    enabled_ns: 0,
                    running_ns: 0,
                })
                .collect();
            for group in each {
                let siblings = group.siblings().iter().map(AsRef::as_ref);
                let members = std::iter::once(group.leader()).chain(siblings);
                for (sum, counter) in sums.iter_mut().zip(members) {
                    add(sum, counter).map_err(|error| Missing::Event {
                        event: sum.event.clone(),
                        error: error.to_string(),
                    })?;
                }
            }
            counts.extend(sums);
        }
        judge(&counts, source)?;
        Ok(Reading {
            model: self.model.clone(),
            counts,
        })
    }
}

/// Whether all events were counted for at least some of the time.
fn judge(counts: &[Count], source: &mut dyn Source) -> Result<(), Missing> {
    if counts.iter().all(|count| count.enabled_ns == 0) {
        return Err(Missing::Idle);
    }
    let never = |count: &Count| count.enabled_ns > 0 && count.running_ns == 0;
    if counts.iter().any(never) {
        return Err(Missing::NotCounted {
            watchdog: watchdog(source),
        });
    }
    Ok(())
}

/// Has so many more files be open, as far as that is for this process to say.
fn room_for(files: usize) {
    let limit = getrlimit(Resource::Nofile);
    // Some are open already.
    let wanted = files as u64 + 256;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // Where it does not, opening says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

fn add(sum: &mut Count, counter: &Counter) -> io::Result<()> {
    let stat = counter.stat()?;
    let (enabled, running) = (
        stat.time_enabled.unwrap_or(0),
        stat.time_running.unwrap_or(0),
    );
    sum.enabled_ns += enabled;
    sum.running_ns += running;
    if running > 0 {
        sum.count += (stat.count as f64 * (enabled as f64 / running as f64)) as u64;
    }
    Ok(())
}

impl Target<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Threads(threads) => threads.len(),
            Self::Cgroup(_, cpus) => cpus.len(),
        }
    }

    fn each(&self) -> Vec<config::Target> {
        match *self {
            Self::Threads(threads) => threads
                .iter()
                .map(|&tid| (Proc(tid), Cpu::ALL).into())
                .collect(),
            Self::Cgroup(dir, cpus) => cpus
                .iter()
                .map(|&cpu| (Cgroup(dir), Cpu(cpu)).into())
                .collect(),
        }
    }

    /// Threads that are started later are counted with those that start them;
    /// a group has all of its own anyway.
    fn inherit(&self) -> Option<Inherit> {
        match self {
            Self::Threads(_) => Some(Inherit::NewChild),
            Self::Cgroup(..) => None,
        }
    }
}

/// User mode only: walks of the kernel are of its own tables, which are not
/// copied, and counting them needs more rights. No guests: their walks are of
/// nested tables as well, which are others than the process's.
fn exclude() -> Priv {
    Priv {
        kernel: true,
        guest: true,
        hv: true,
        ..Priv::default()
    }
}

fn open_group(
    wanted: &[Wanted],
    target: config::Target,
    inherit: Option<Inherit>,
) -> Result<CounterGroup, (&str, io::Error)> {
    let opts = Opts {
        exclude: exclude(),
        inherit,
        // Inherited events cannot be read as a group: each is read by itself.
        stat_format: StatFormat {
            time_enabled: true,
            time_running: true,
            ..StatFormat::default()
        },
        enable: true,
        ..Opts::default()
    };
    let sibling = config::sibling::Opts {
        exclude: exclude(),
        inherit,
        stat_format: config::sibling::StatFormat {
            time_enabled: true,
            time_running: true,
            ..config::sibling::StatFormat::default()
        },
        enable: true,
        ..config::sibling::Opts::default()
    };
    let (first, others) = wanted.split_first().expect("no group is empty");
    let leader = match first.2 {
        Code::Cycles => Counter::new(Hardware::CpuCycle, target, &opts),
        Code::Raw(config) => Counter::new(raw(config), target, &opts),
        #[cfg(test)]
        Code::Clock => Counter::new(
            perf_event_open::event::sw::Software::TaskClock,
            target,
            &opts,
        ),
    };
    let mut group = CounterGroup::from(leader.map_err(|error| (first.0.as_str(), error))?);
    for (name, _, code) in others {
        let added = match *code {
            Code::Cycles => group.add(Hardware::CpuCycle, &sibling),
            Code::Raw(config) => group.add(raw(config), &sibling),
            #[cfg(test)]
            Code::Clock => group.add(perf_event_open::event::sw::Software::TaskClock, &sibling),
        };
        added.map_err(|error| (name.as_str(), error))?;
    }
    Ok(group)
}

fn raw(config: u64) -> Raw {
    Raw {
        config,
        config1: 0,
        config2: 0,
        config3: 0,
    }
}

fn refusal(source: &mut dyn Source, event: &str, error: &io::Error, needed: usize) -> Missing {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Missing::Refused {
            paranoid: paranoid(source),
        },
        Some(libc::EMFILE | libc::ENFILE) => Missing::TooMany { needed },
        // No PMU takes such an event, whatever sysfs says.
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Missing::NoPmu,
        _ => Missing::Event {
            event: event.to_owned(),
            error: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use nearwalk_host::Live;

    use super::*;

    fn clocks() -> Vec<Vec<Wanted>> {
        let clock = |name: &str, role| (name.to_owned(), role, Code::Clock);
        vec![
            vec![clock("first", Role::Cycles), clock("second", Role::Active)],
            vec![clock("third", Role::Walks)],
        ]
    }

    fn spin(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            black_box(0);
        }
    }

    /// Opens clocks; none where the sandbox forbids the call.
    fn open(target: &Target<'_>) -> Option<Result<Perf, Missing>> {
        let perf = Perf::open_groups("test", clocks(), target, &mut Live::default());
        match perf {
            Err(Missing::Refused { .. }) => {
                eprintln!("skipped: perf_event_open is not permitted here");
                None
            }
            perf => Some(perf),
        }
    }

    #[test]
    fn threads_and_those_that_they_start_are_counted() {
        let own = this_thread();
        let Some(perf) = open(&Target::Threads(&[own])) else {
            return;
        };
        let perf = perf.unwrap();
        spin(Duration::from_millis(20));
        std::thread::spawn(|| spin(Duration::from_millis(20)))
            .join()
            .unwrap();
        let reading = perf.read(&mut Live::default()).unwrap();
        let names: Vec<&str> = reading.counts.iter().map(|c| c.event.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        for count in &reading.counts {
            assert!(count.running_ns > 0 && count.count > 0, "{reading:?}");
        }
        assert!(reading.counted() > 0.0);
    }

    /// The number of this thread, which the standard library does not tell.
    fn this_thread() -> u32 {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_that_is_gone_is_not_counted() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let Some(perf) = open(&Target::Threads(&[gone])) else {
            return;
        };
        assert_eq!(perf.err(), Some(Missing::Idle));
        let both = [gone, this_thread()];
        assert!(open(&Target::Threads(&both)).unwrap().is_ok());
    }

    #[test]
    fn more_files_than_the_shell_allows_can_be_open() {
        let before = getrlimit(Resource::Nofile);
        let Some(current) = before.current else {
            return;
        };
        let most = before.maximum.unwrap_or(u64::MAX);
        room_for(current as usize);
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, Some(most.min(current + 256)));
        assert_eq!(after.maximum, before.maximum);
        setrlimit(Resource::Nofile, before).unwrap();
    }

    #[test]
    fn what_never_had_a_counter_is_not_counted() {
        let count = |enabled_ns, running_ns| Count {
            event: "x".into(),
            role: Role::Walks,
            count: 0,
            enabled_ns,
            running_ns,
        };
        let mut live = Live::default();
        assert_eq!(judge(&[count(9, 9), count(9, 1)], &mut live), Ok(()));
        assert_eq!(judge(&[count(0, 0)], &mut live), Err(Missing::Idle));
        let never = judge(&[count(9, 9), count(9, 0)], &mut live).unwrap_err();
        assert!(matches!(never, Missing::NotCounted { .. }), "{never}");
        let watchdog = Missing::NotCounted { watchdog: true }.to_string();
        assert!(
            watchdog.contains("sysctl kernel.nmi_watchdog=0"),
            "{watchdog}"
        );
    }

    #[test]
    fn refusals_say_what_to_do() {
        let mut live = Live::default();
        let mut of = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            refusal(&mut live, "an event", &error, 700).to_string()
        };
        assert!(
            of(libc::EACCES).contains("CAP_PERFMON"),
            "{}",
            of(libc::EACCES)
        );
        assert!(of(libc::EMFILE).starts_with("700 counters are needed"));
        assert!(of(libc::ENOENT).starts_with("none here (no `cpu`"));
        assert!(of(libc::EINVAL).starts_with("the kernel refuses an event: Invalid"));
    }
}
