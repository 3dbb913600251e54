// SPDX-License-Identifier: GPL-2.0-or-later
//! How many files are read on a large host: that is what a frame costs. No test
//! asserts a time.

#[path = "../../nearwalk-advise/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{Host, MIB, Process};
use nearwalk_top::sample::Sampler;

/// 300 groups with 1,000 processes of one thread each, of which 300 run; the
/// tables of a tenth of the groups are worth a look.
fn host() -> Host {
    let mut host = Host::new(4, 16);
    for index in 0..300 {
        let tables = if index < 30 { 90 * MIB } else { 2 * MIB };
        let name = format!("system.slice/s{index}.service");
        let group = host.service(&name, &[tables, 0, 0, 0], &[index % 4]);
        group.unread = index >= 30;
        let first = group.processes[0].clone();
        for other in 0..if index < 100 { 3 } else { 2 } {
            let mut idle = Process {
                pid: first.pid + 1 + other,
                ..first.clone()
            };
            idle.threads[0].cpus = 0.0;
            group.processes.push(idle);
        }
    }
    host
}

#[test]
fn a_frame_reads_few_files() {
    let mut source = host().in_memory();
    let mut sampler = Sampler::begin(&mut source).unwrap();
    let around = source.asked;
    let frame = sampler.tick(&mut source, Duration::from_secs(2)).unwrap();
    assert_eq!(
        frame
            .report
            .ranked
            .iter()
            .filter(|row| row.group.is_none())
            .count(),
        300
    );
    let first = source.asked - around;
    sampler.tick(&mut source, Duration::from_secs(2)).unwrap();
    let frame = source.asked - around - first;
    eprintln!("to look around: {around} files, a frame: {frame}");
    // A listing, numa_stat and cpu.stat of each group; more of a tenth of them.
    assert!(around < 3 * 300 + 30 * 20, "{around}");
    // cpu.stat of each group; more of a tenth of them.
    assert!(frame < 300 + 30 * 15, "{frame}");
}
