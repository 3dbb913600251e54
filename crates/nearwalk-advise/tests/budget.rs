// SPDX-License-Identifier: GPL-2.0-or-later
//! How many files are read on a large host: that is what an answer costs. No
//! test asserts a time.

mod common;

use common::{Host, MIB, run_on};

/// 300 groups and 2,000 threads, of which 300 run; the tables of `large` groups
/// are worth a look.
fn host(large: usize) -> Host {
    let mut host = Host::new(4, 16);
    host.kernel_threads = 700;
    for index in 0..300 {
        let tables = if index < large { 90 * MIB } else { 2 * MIB };
        let threads = vec![index as u32 % 4; if index < 200 { 7 } else { 6 }];
        let name = format!("system.slice/s{index}.service");
        let group = host.service(&name, &[tables, 0, 0, 0], &threads);
        group.unread = index >= large;
        for thread in &mut group.processes[0].threads[1..] {
            thread.cpus = 0.0;
        }
    }
    host
}

fn asked(large: usize) -> usize {
    let mut source = host(large).in_memory();
    let ran = run_on(&mut source, &["--all"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    eprintln!("{large} groups worth a look: {} files", source.asked);
    source.asked
}

#[test]
fn groups_with_small_tables_cost_two_reads_each() {
    assert!(asked(0) < 2 * 300 + 100);
}

#[test]
fn a_host_where_a_tenth_is_worth_a_look_is_within_1900_files() {
    assert!(asked(30) < 1900);
}

#[test]
fn threads_that_wait_are_read_four_times() {
    // stat and schedstat at first, then schedstat twice; and a dozen files for
    // each group with a thread that runs.
    assert!(asked(300) < 4 * 2000 + 13 * 300);
}
