// SPDX-License-Identifier: GPL-2.0-or-later
//! Shared by the commands: machines from files, work on all cores.

use anyhow::Context;
use lens::hash::mix;
use lens::machine::{self, BUILTIN, Machine};
use lens::part::Parts;
use lens::part::standard::Standard;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A built-in machine by name, or a TOML file by path.
pub fn machine(name: &str) -> anyhow::Result<Machine> {
    machine_with(name, &[])
}

/// The same with other values for some of its keys, each as `key=value`.
pub fn machine_with(name: &str, sets: &[String]) -> anyhow::Result<Machine> {
    let text = machine::text_of(name, BUILTIN, |path| std::fs::read_to_string(path))?;
    let pairs = sets
        .iter()
        .map(|s| {
            let pair = s.split_once('=');
            pair.with_context(|| format!("--set {s}: KEY=VALUE is allowed"))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let m = Machine::from_toml_with(&text, &pairs).with_context(|| name.to_owned())?;
    Standard::check(&m).with_context(|| name.to_owned())?;
    Ok(m)
}

/// A number that other texts, or files of bytes, do not have.
pub fn fingerprint<T: AsRef<[u8]>>(texts: &[T]) -> u64 {
    let texts = texts.iter().map(AsRef::as_ref);
    let bytes = texts.flat_map(|text| text.iter().copied().chain([0]));
    bytes.fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Refuses a base or a window out of range.
pub fn pace_in_range(base: Option<f64>, window: Option<f64>) -> anyhow::Result<()> {
    for (key, value, lo, hi) in [("base", base, 0.0, 1e6), ("window", window, 1.0, 32.0)] {
        if let Some(v) = value.filter(|v| !(lo..=hi).contains(v)) {
            anyhow::bail!("--{key} is {v}; {lo} to {hi} is allowed");
        }
    }
    Ok(())
}

/// As many jobs as asked for, or as the host has CPUs.
pub fn jobs(asked: Option<usize>) -> usize {
    asked
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
        .max(1)
}

/// Applies `f` to every item on `jobs` threads; results keep the order of the
/// items. `done` is told of each result as it comes, one at a time.
pub fn parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    f: impl Fn(&T) -> R + Sync,
    done: impl FnMut(usize, &R) + Send,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<(Vec<Option<R>>, _)> =
        Mutex::new((items.iter().map(|_| None).collect(), done));
    std::thread::scope(|s| {
        for _ in 0..jobs.min(items.len()) {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(i) else { return };
                    let r = f(item);
                    let mut guard = results.lock().expect("no job panics while it reports");
                    guard.1(i, &r);
                    guard.0[i] = Some(r);
                }
            });
        }
    });
    let (results, _) = results.into_inner().expect("all jobs have ended");
    results
        .into_iter()
        .map(|r| r.expect("every item was taken"))
        .collect()
}
