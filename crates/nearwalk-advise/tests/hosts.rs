// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk advise` on recorded hosts. What is printed is in `snapshots`.

mod common;

use std::fs;

use common::{
    Host, MIB, Process, Thread, answer, expect, four_nodes, run, run_on, scratch, usage_error,
};
use nearwalk_host::Recorded;

/// The row of someone in the JSON answer.
fn row(json: &str, name: &str) -> serde_json::Value {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let rows = json["ranked"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name} in {json}")).clone()
}

#[test]
fn a_host_of_four_nodes() {
    let dir = four_nodes().record("four-nodes");
    expect("four-nodes.txt", &answer(&dir, &[]));
    let json: serde_json::Value = serde_json::from_str(&answer(&dir, &["--json"])).unwrap();
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    expect("four-nodes.json", &(pretty + "\n"));
}

#[test]
fn host_is_what_is_looked_at_if_nothing_else_is_said() {
    let dir = four_nodes().record("host-option");
    assert_eq!(answer(&dir, &["--host"]), answer(&dir, &[]));
}

#[test]
fn one_node_is_said_and_nothing_else_is_looked_at() {
    let mut host = Host::new(1, 8);
    host.service("system.slice/big.service", &[900 * MIB], &[0]);
    expect("one-node.txt", &answer(&host.record("one-node"), &[]));
    let json = answer(&host.record("one-node-json"), &["--json"]);
    assert!(json.contains("\"ranked\":[]"), "{json}");
}

#[test]
fn a_kernel_without_nodes_is_one_node() {
    let dir = Host::new(1, 8).record("no-nodes");
    fs::remove_dir_all(dir.join("0/sys/devices/system/node")).unwrap();
    expect("one-node.txt", &answer(&dir, &[]));
}

/// Processes as they are on a host of cgroup v1.
fn loose(host: &mut Host) {
    let process = |host: &Host, pid, name: &str, tables, nodes: &[u32]| Process {
        pid,
        name: name.into(),
        tables,
        threads: nodes
            .iter()
            .map(|&node| Thread {
                name: name.into(),
                cpus: 0.9,
                on: vec![host.cpu(node, 3)],
            })
            .collect(),
    };
    host.loose = vec![
        process(host, 400, "postgres", 300 * MIB, &[1, 1]),
        process(host, 500, "small", MIB, &[1]),
        process(host, 600, "mysqld", 60 * MIB, &[0, 1]),
    ];
}

#[test]
fn cgroup_v1_has_processes_only() {
    let mut host = Host::new(2, 8);
    host.kernel = "5.10.0".into();
    host.mounts = "proc /proc proc rw 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
        .into();
    loose(&mut host);
    host.elsewhere = 370 * MIB;
    expect("cgroup-v1.txt", &answer(&host.record("cgroup-v1"), &[]));
}

#[test]
fn without_cgroups_there_are_processes_only() {
    let mut host = Host::new(2, 8);
    host.mounts = "proc /proc proc rw 0 0\n".into();
    loose(&mut host);
    host.elsewhere = 370 * MIB;
    let text = answer(&host.record("no-cgroups"), &[]);
    assert!(text.contains("cgroup v2 is not mounted"), "{text}");
    assert!(text.contains("postgres (pid 400)"), "{text}");
}

#[test]
fn groups_without_the_memory_controller_are_counted_and_their_processes_listed() {
    let mut host = Host::new(2, 8);
    host.service("user.slice/a", &[200 * MIB, 0], &[1])
        .uncounted = true;
    host.service("user.slice/b", &[0, 0], &[1]).uncounted = true;
    let text = answer(&host.record("no-controller"), &[]);
    assert!(
        text.contains("page tables of 2 groups without memory controller"),
        "{text}"
    );
    assert!(text.contains("a (pid 1000)  "), "{text}");
    assert!(text.contains("echo +memory"), "{text}");
}

#[test]
fn a_kernel_that_does_not_count_tables_by_group_has_processes_only() {
    let mut host = four_nodes();
    host.lines.clear();
    let text = answer(&host.record("old-kernel"), &[]);
    assert!(
        text.contains("no line `pagetables` on this kernel"),
        "{text}"
    );
    assert!(text.contains("redis (pid 1200)"), "{text}");
    host.lines = vec!["pagetables"];
    let text = answer(&host.record("old-kernel-nested"), &[]);
    assert!(
        text.contains("no line `sec_pagetables` on this kernel"),
        "{text}"
    );
    assert!(text.contains("system.slice/redis.service"), "{text}");
    assert!(!text.contains("(nested)"), "{text}");
}

#[test]
fn hidepid_and_other_namespaces_are_said() {
    let mut host = four_nodes();
    host.mounts = host
        .mounts
        .replace("relatime 0 0\ncgroup2", "hidepid=invisible 0 0\ncgroup2");
    host.groups[1].foreign = 2;
    // Its processes cannot be seen.
    let pid = host.groups[2].processes[0].pid;
    host.odd.insert(format!("/proc/{pid}/task"), Err(2));
    let dir = host.record("hidepid");
    let text = answer(&dir, &[]);
    assert!(text.contains("mounted with hidepid=invisible"), "{text}");
    assert!(
        text.contains("2 processes of other PID namespaces"),
        "{text}"
    );
    let redis = row(&answer(&dir, &["--json"]), "system.slice/redis.service");
    assert_eq!(redis["cpu_time"], serde_json::Value::Null);
    assert_eq!(redis["seen"], 0.0);
    // Node 2 has its tables, the others next to nothing.
    assert_eq!(
        (&redis["remote_lower"], &redis["remote_upper"]),
        (&0.0.into(), &1.0.into())
    );
}

#[test]
fn processes_that_refuse_are_counted() {
    let mut host = four_nodes();
    let pid = host.groups[2].processes[0].pid;
    host.odd.insert(format!("/proc/{pid}/task"), Err(13));
    let text = answer(&host.record("refused"), &[]);
    assert!(
        text.contains("CPU time of 1 process: no permission"),
        "{text}"
    );
}

#[test]
fn a_share_of_which_less_than_four_fifths_was_seen_is_not_used() {
    for (short_lived, known) in [(0.2, true), (0.24, true), (0.26, false), (5.0, false)] {
        let mut host = Host::new(2, 8);
        let group = host.service("g", &[100 * MIB, 0], &[1]);
        group.short_lived = short_lived * 0.98;
        let json = answer(&host.record("seen"), &["--json"]);
        let row = row(&json, "g");
        assert_eq!(row["cpu_time"].is_array(), known, "{row}");
        assert_eq!(row["remote_lower"] == 1.0, known, "{row}");
        assert_eq!(row["remote_upper"], 1.0);
    }
}

#[test]
fn what_the_kernel_counts_of_each_cpu_is_taken_for_groups() {
    let mut host = four_nodes();
    host.by_cpu = true;
    let dir = host.record("by-cpu");
    let text = answer(&dir, &[]);
    assert!(
        text.contains("CPU time: counted for each CPU by the kernel, 100 % seen"),
        "{text}"
    );
    let json = answer(&dir, &["--json"]);
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(all["cpu_time"]["source"], "counted");
    // Of its threads next to nothing is seen.
    let build = row(&json, "user.slice/build.scope");
    assert_eq!(build["cpu_time_known"], "counted");
    let shares: Vec<f64> = build["cpu_time"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_f64().unwrap())
        .collect();
    assert!((shares[1] - 11.0 / 11.98).abs() < 0.001, "{build}");
    assert!((shares[0] - 0.98 / 11.98).abs() < 0.001, "{build}");
    // Of a virtual machine only its CPUs' threads count, and processes are sampled.
    assert_eq!(
        row(&json, "machine.slice/vm-db.scope")["cpu_time_known"],
        "sampled"
    );
    assert_eq!(row(&json, "java")["cpu_time_known"], "sampled");
}

#[test]
fn a_group_below_that_was_removed_takes_its_count_along() {
    let mut host = Host::new(2, 8);
    host.by_cpu = true;
    host.service("g", &[100 * MIB, 0], &[1]);
    let dir = host.record("removed-below");
    let moments = (0..).map(|at| dir.join(format!("{at}/sys/fs/cgroup/g/nearwalk.cpu_time")));
    let last = moments.take_while(|path| path.exists()).last().unwrap();
    fs::write(&last, "8 9000\n").unwrap();
    let found = row(&answer(&dir, &["--json"]), "g");
    assert_eq!(found["cpu_time"], serde_json::Value::Null, "{found}");
    assert_eq!(found["cpu_time_known"], "no", "{found}");

    fs::write(&last, "8 many\n").unwrap();
    let text = answer(&dir, &[]);
    assert!(
        text.contains("`8 many` is not a CPU and nanoseconds"),
        "{text}"
    );
    // Its threads tell as well.
    let found = row(&answer(&dir, &["--json"]), "g");
    assert_eq!(found["cpu_time_known"], "sampled", "{found}");
}

#[test]
fn ticks_do_where_there_are_no_nanoseconds() {
    let mut host = four_nodes();
    host.coarse = true;
    let coarse = answer(&host.record("coarse"), &["--json"]);
    let fine = answer(&four_nodes().record("fine"), &["--json"]);
    for name in [
        "system.slice/redis.service",
        "system.slice/memcached.service",
    ] {
        let (coarse, fine) = (row(&coarse, name), row(&fine, name));
        assert_eq!(coarse["cpu_time"], fine["cpu_time"]);
        assert!(coarse["seen"].as_f64().unwrap() > 0.95, "{coarse}");
    }
}

#[test]
fn a_size_of_l3_that_is_not_known_leaves_nobody_out() {
    let mut host = four_nodes();
    host.l3_kib = None;
    let text = answer(&host.record("no-l3"), &[]);
    assert!(text.contains("not known: the size of the L3"), "{text}");
    assert!(text.contains("system.slice/small.service"), "{text}");
}

#[test]
fn what_is_not_understood_costs_its_group_only() {
    let mut host = four_nodes();
    let dir = "/sys/fs/cgroup/system.slice";
    let numa_stat = format!("{dir}/redis.service/memory.numa_stat");
    host.odd
        .insert(numa_stat.clone(), Ok("pagetables N0=lots\n".into()));
    let cpu_stat = format!("{dir}/memcached.service/cpu.stat");
    host.odd.insert(cpu_stat, Ok("usage_usec -1\n".into()));
    let text = answer(&host.record("odd"), &[]);
    let message = format!("not known: {numa_stat}: `N0=lots` is not a count such as N0=4096");
    assert!(text.contains(&message), "{text}");
    assert!(text.contains("and 2 more like this"), "{text}");
    assert!(
        text.contains("machine.slice/vm-db.scope (nested)"),
        "{text}"
    );
}

#[test]
fn a_recording_of_a_recording_answers_the_same() {
    let mut host = four_nodes();
    host.odd.insert("/proc/1200/task".into(), Err(13));
    host.removed.push("user.slice/gone".into());
    let first = host.record("recorded");
    let second = scratch("recorded-again");
    let mut live = Recorded::open(&first).unwrap();
    let ran = run_on(&mut live, &["--record", second.to_str().unwrap(), "--all"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    for options in [&["--all"][..], &["--json"], &[]] {
        assert_eq!(answer(&second, options), answer(&first, options));
    }
    assert_eq!(answer(&second, &["--all"]), ran.out);
}

#[test]
fn this_host_answers_the_same_from_its_recording() {
    let dir = scratch("this-host");
    let ran = run(&[
        "--seconds",
        "0.5",
        "--all",
        "--record",
        dir.to_str().unwrap(),
    ]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(answer(&dir, &["--all"]), ran.out);
}

#[test]
fn a_long_list_is_cut() {
    let mut host = Host::new(2, 8);
    for index in 0..25 {
        host.service(&format!("s{index:02}"), &[100 * MIB, 0], &[1]);
    }
    let dir = host.record("long");
    let text = answer(&dir, &[]);
    assert!(
        text.contains("5 more are less exposed; --all lists them"),
        "{text}"
    );
    assert!(text.contains(" s19 ") && !text.contains(" s20 "), "{text}");
    assert!(answer(&dir, &["--all"]).contains(" s24 "));
}

#[test]
fn statuses_have_one_meaning_each() {
    let nowhere = scratch("nowhere");
    let ran = run(&["--from", nowhere.to_str().unwrap()]);
    assert_eq!((ran.status, ran.out.as_str()), (3, ""));
    assert!(ran.err.starts_with("nearwalk: "), "{}", ran.err);

    let dir = Host::new(2, 8).record("other-version");
    let manifest = dir.join("recording.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("recording.v1", "recording.v2")).unwrap();
    let ran = run(&["--from", dir.to_str().unwrap()]);
    assert_eq!(ran.status, 3);
    assert!(
        ran.err
            .contains("this nearwalk reads nearwalk.recording.v1"),
        "{}",
        ran.err
    );
    fs::remove_file(&manifest).unwrap();
    assert!(
        run(&["--from", dir.to_str().unwrap()])
            .err
            .contains("cut short")
    );

    // Cut short in the middle.
    let dir = four_nodes().record("cut-short");
    let manifest = dir.join("recording.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["moments"].as_array_mut().unwrap().pop();
    fs::write(&manifest, json.to_string()).unwrap();
    let ran = run(&["--from", dir.to_str().unwrap()]);
    assert_eq!(ran.status, 3);
    assert!(ran.err.contains("ends after 4 moments"), "{}", ran.err);

    // Something that is not a host.
    let dir = Host::new(2, 8).record("no-host");
    fs::remove_file(dir.join("0/proc/sys/kernel/osrelease")).unwrap();
    let ran = run(&["--from", dir.to_str().unwrap()]);
    assert_eq!(ran.status, 3);
    assert!(
        ran.err.contains("/proc/sys/kernel/osrelease: "),
        "{}",
        ran.err
    );

    let ran = run(&["--record", dir.to_str().unwrap()]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("is not empty"), "{}", ran.err);
    for words in [
        &["--seconds", "0"][..],
        &["--seconds", "x"],
        &["--from", "a", "--record", "b"],
        &["--from", "a", "--seconds", "3"],
    ] {
        usage_error(words);
    }
    let error = usage_error(&["--seconds", "1e9"]);
    assert!(error.contains("write seconds from 0.2 to 3600"), "{error}");
}
