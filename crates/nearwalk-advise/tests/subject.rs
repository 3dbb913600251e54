// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk advise` of one process or group, on hosts and with counts that are
//! made up. What is printed is in `snapshots`.

mod common;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{
    Group, Host, MIB, Ran, answer, expect, expect_in_docs, run, run_with, scratch, usage_error,
};
use nearwalk_advise::subject::{Instruments, LiveInstruments};
use nearwalk_host::{Error, Live, Machine, Recorded, Source};
use nearwalk_perf::{Count, Missing, Model, Reading, Role, Target};

/// A CPU as /proc/cpuinfo has it.
type Cpu = (&'static str, u32, u32, u32);

const HASWELL: Cpu = ("GenuineIntel", 6, 63, 4);
const CASCADE_LAKE: Cpu = ("GenuineIntel", 6, 85, 7);
const SAPPHIRE_RAPIDS: Cpu = ("GenuineIntel", 6, 143, 8);
const ZEN4: Cpu = ("AuthenticAMD", 25, 17, 1);

/// Counters that say what a program of these walks would have them say, by the
/// events of the CPU that the host has.
struct Counted {
    share: f64,
    cycles: f64,
    /// The share of the time in which they have a counter.
    running: f64,
    /// What the leaf tables of each process map, by node.
    tables: Result<Vec<u64>, String>,
    model: Option<&'static Model>,
    targets: Vec<String>,
}

fn counted(share: f64, cycles: f64) -> Counted {
    Counted {
        share,
        cycles,
        running: 1.0,
        tables: Err("needs CAP_BPF".into()),
        model: None,
        targets: Vec::new(),
    }
}

impl Instruments for Counted {
    fn begin(&mut self, source: &mut dyn Source, target: &Target<'_>) -> Result<(), Missing> {
        self.targets.push(match target {
            Target::Threads(threads) => format!("{} threads", threads.len()),
            Target::Cgroup(..) => "group".to_owned(),
        });
        self.model = Some(nearwalk_perf::prepare(source)?);
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Source) -> Result<Reading, Missing> {
        let model = self.model.unwrap();
        let all = 20e9;
        let walks = self.share * all / self.cycles;
        let mut counts = vec![("cycles", Role::Cycles, all)];
        let lists = [
            (&model.walks, Role::Walks, walks),
            (&model.active, Role::Active, self.share * all),
            (&model.pending, Role::Pending, walks * self.cycles),
        ];
        for (events, role, count) in lists {
            let part = count / events.len() as f64;
            counts.extend(events.iter().map(|event| (event.name.as_str(), role, part)));
        }
        let counts = counts.into_iter().map(|(event, role, count)| Count {
            event: event.to_owned(),
            role,
            count: count as u64,
            enabled_ns: 1_000_000_000,
            running_ns: (self.running * 1e9) as u64,
        });
        Ok(Reading {
            model: model.name.clone(),
            counts: counts.collect(),
        })
    }

    fn tables(&mut self, _: u32) -> Result<Vec<(Option<u32>, u64)>, String> {
        let nodes = (0..).map(Some);
        Ok(nodes.zip(self.tables.clone()?).collect())
    }
}

/// Four nodes, as far apart as those of the published machine.
fn four_nodes(cpu: Option<Cpu>) -> Host {
    let mut host = Host::new(4, 16);
    for node in 0..4 {
        let distances: Vec<&str> = (0..4)
            .map(|to| if to == node { "10" } else { "21" })
            .collect();
        host.odd.insert(
            format!("/sys/devices/system/node/node{node}/distance"),
            Ok(distances.join(" ") + "\n"),
        );
    }
    host.odd
        .insert("/proc/uptime".into(), Ok("90000.00 1.00\n".into()));
    host.odd.insert(
        "/sys/kernel/mm/transparent_hugepage/enabled".into(),
        Ok("always [madvise] never\n".into()),
    );
    if let Some((vendor, family, model, stepping)) = cpu {
        host.odd.insert(
            "/sys/bus/event_source/devices/cpu/type".into(),
            Ok("4\n".into()),
        );
        host.odd.insert(
            "/proc/cpuinfo".into(),
            Ok(format!(
                "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nstepping\t: {stepping}\n"
            )),
        );
    }
    host
}

/// A service on all nodes, whose tables are mostly where it began.
fn memcached(host: &mut Host) -> &mut Group {
    let all: Vec<u32> = (0..32).map(|index| index % 4).collect();
    let tables = [740 * MIB, 5 * MIB, 5 * MIB, 5 * MIB];
    host.service("system.slice/memcached.service", &tables, &all)
}

const MEMCACHED: &str = "system.slice/memcached.service";

/// A service that was moved to node 1, off its tables.
fn redis(host: &mut Host) -> &mut Group {
    host.service("system.slice/redis.service", &[120 * MIB, 0, 0, 0], &[1, 1])
}

fn look(host: &Host, name: &str, instruments: &mut dyn Instruments, words: &[&str]) -> Ran {
    let mut live = Recorded::open(&host.record(name)).unwrap();
    let mut all = vec!["--seconds", "2"];
    all.extend(words);
    run_with(&mut live, instruments, &all)
}

fn look_json(
    host: &Host,
    name: &str,
    instruments: &mut dyn Instruments,
    words: &[&str],
) -> serde_json::Value {
    let mut all = vec!["--json"];
    all.extend(words);
    let ran = look(host, name, instruments, &all);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn each_cpu_is_counted_by_its_own_events_and_answered_alike_from_a_recording() {
    let since_skylake = &[
        "cycles",
        "DTLB_LOAD_MISSES.WALK_COMPLETED",
        "DTLB_STORE_MISSES.WALK_COMPLETED",
        "DTLB_LOAD_MISSES.WALK_ACTIVE",
        "DTLB_STORE_MISSES.WALK_ACTIVE",
        "DTLB_LOAD_MISSES.WALK_PENDING",
        "DTLB_STORE_MISSES.WALK_PENDING",
    ][..];
    let mut text = String::new();
    for (name, cpu, events) in [
        (
            "haswell",
            Some(HASWELL),
            &[
                "cycles",
                "DTLB_LOAD_MISSES.WALK_COMPLETED",
                "DTLB_STORE_MISSES.WALK_COMPLETED",
                "DTLB_LOAD_MISSES.WALK_DURATION",
                "DTLB_STORE_MISSES.WALK_DURATION",
                "DTLB_LOAD_MISSES.WALK_DURATION",
                "DTLB_STORE_MISSES.WALK_DURATION",
            ][..],
        ),
        ("cascade-lake", Some(CASCADE_LAKE), since_skylake),
        ("sapphire-rapids", Some(SAPPHIRE_RAPIDS), since_skylake),
        (
            "zen-4",
            Some(ZEN4),
            &["cycles", "ls_l1_d_tlb_miss.all_l2_miss"],
        ),
        ("no-pmu", None, &[]),
    ] {
        let mut host = four_nodes(cpu);
        memcached(&mut host);
        let dir = scratch(&format!("recorded-{name}"));
        let words = ["--cgroup", MEMCACHED, "--record", dir.to_str().unwrap()];
        let ran = look(&host, name, &mut counted(0.32, 470.0), &words);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        assert_eq!(answer(&dir, &[]), ran.out);
        text += &format!("{name}\n{}\n", ran.out);
        if name == "cascade-lake" {
            expect_in_docs(&ran.out);
        }
        let evidence = fs::read_to_string(dir.join("evidence.json")).unwrap();
        let evidence: serde_json::Value = serde_json::from_str(&evidence).unwrap();
        let counts = evidence["counters"]["Ok"]["counts"].as_array();
        let names: Vec<&str> = counts
            .into_iter()
            .flatten()
            .map(|count| count["event"].as_str().unwrap())
            .collect();
        assert_eq!(names, events);
        let json: serde_json::Value = serde_json::from_str(&answer(&dir, &["--json"])).unwrap();
        let strongest = if matches!(name, "zen-4" | "no-pmu") {
            "measure"
        } else {
            "copy"
        };
        assert_eq!(json["verdict"], strongest, "{name}");
    }
    expect("advice-cpus.txt", &text);
}

#[test]
fn who_was_moved_gets_its_tables_moved() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    redis(&mut host);
    host.odd
        .insert("/proc/self/pgtable_repl".into(), Ok(OFF.into()));
    let mut instruments = counted(0.4, 480.0);
    let json = look_json(&host, "moved", &mut instruments, &["1000"]);
    assert_eq!(json["verdict"], "move");
    assert_eq!(json["nodes"], serde_json::json!([1]));
    assert_eq!(json["confidence"], "high");
    assert_eq!(json["memory_bytes"], 120 * MIB);
    assert_eq!(json["commands"]["do"], "sudo nearwalk set 1000 1");
    assert_eq!(json["commands"]["undo"], "sudo nearwalk set 1000 default");
    assert_eq!(json["supported"], true);
    let gain = |which: &str| json["gain"][which].as_f64().unwrap();
    assert!(0.0 < gain("low") && gain("low") < gain("middle") && gain("middle") < gain("high"));
    assert_eq!(
        instruments.targets,
        ["2 threads"],
        "the group is no directory here"
    );
    // By any thread, and as text.
    host.odd
        .insert("/proc/1001/status".into(), Ok("Tgid:\t1000\n".into()));
    let ran = look(&host, "moved-text", &mut counted(0.4, 480.0), &["1001"]);
    expect("advice-moved.txt", &ran.out);
}

#[test]
fn tables_that_were_read_are_known_better_than_the_groups() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    let group = memcached(&mut host);
    group.tables = vec![0, 0, 0, 755 * MIB];
    let mut instruments = counted(0.32, 470.0);
    instruments.tables = Ok(vec![1 << 38, 0, 0, 0]);
    let json = look_json(&host, "read", &mut instruments, &["--cgroup", MEMCACHED]);
    let input = |name: &str| {
        let inputs = json["inputs"].as_array().unwrap();
        inputs.iter().find(|input| input["name"] == name).unwrap()
    };
    assert_eq!(input("tables_by_node")["source"], "read");
    assert_eq!(
        input("tables_by_node")["value"],
        serde_json::json!([1u64 << 38, 0, 0, 0])
    );
    assert_eq!(input("walk_share")["value"], 0.32);
    let cycles = input("cycles_per_walk")["value"].as_f64().unwrap();
    assert!((cycles - 470.0).abs() < 0.01, "{cycles}");
}

/// What our kernel says of a process that has no copies, and of one that has.
const OFF: &str = "mode:\toff\nnodes:\t\nsource:\tnone\npages:\nfallbacks:\t0\n";
const EAGER: &str = "mode:\teager\nnodes:\t0-1\nsource:\tproc\npages:\tN1=9\nfallbacks:\t0\n";

#[test]
fn what_holds_already_is_seen_and_brought_back() {
    let with = |name: &str, text: &str| {
        let mut host = four_nodes(Some(CASCADE_LAKE));
        redis(&mut host);
        for who in ["self", "1000"] {
            let path = format!("/proc/{who}/pgtable_repl");
            host.odd.insert(path, Ok(text.into()));
        }
        let prefetch = "/proc/sys/vm/pgtable_repl_prefetch".to_owned();
        host.odd.insert(prefetch, Ok("3\n".to_owned()));
        look_json(&host, name, &mut counted(0.4, 480.0), &["1000"])
    };
    let json = with("has-copies", EAGER);
    assert_eq!(json["verdict"], "nothing");
    let because = json["because"].to_string();
    assert!(
        because.contains("copies of its tables on nodes 0-1 already (eager, by proc)"),
        "{because}"
    );
    for (name, from, to, undo) in [
        (
            "lazy-elsewhere",
            "eager\nnodes:\t0-1",
            "lazy\nnodes:\t2-3",
            "lazy:2-3",
        ),
        (
            "lazy-with-its-own-prefetch",
            "eager\nnodes:\t0-1",
            "lazy\nprefetch:\t5\nfills:\t0\nipis:\trequested=0 sent=0 saved=0\nnodes:\t2-3",
            "lazy:2-3 --prefetch 5",
        ),
        (
            "lazy-as-the-system-asks",
            "eager\nnodes:\t0-1",
            "lazy\nprefetch:\t3\nfills:\t0\nipis:\trequested=0 sent=0 saved=0\nnodes:\t2-3",
            "lazy:2-3",
        ),
        ("eager-elsewhere", "0-1", "2", "2"),
        (
            "of-its-group",
            "0-1\nsource:\tproc",
            "2\nsource:\tcgroup",
            "default",
        ),
        (
            "off-by-itself",
            "eager\nnodes:\t0-1",
            "off\nnodes:\t",
            "off",
        ),
    ] {
        assert!(EAGER.contains(from));
        let json = with(name, &EAGER.replace(from, to));
        assert_eq!(json["verdict"], "move", "{name}");
        assert_eq!(
            json["commands"]["undo"],
            format!("sudo nearwalk set 1000 {undo}")
        );
    }
}

#[test]
fn a_trial_is_named_where_the_kernel_can_make_copies() {
    let check = |name: &str, cpu, ours: bool, group: bool| {
        let mut host = four_nodes(cpu);
        let words = if group {
            memcached(&mut host);
            vec!["--cgroup", MEMCACHED]
        } else {
            redis(&mut host);
            vec!["1000"]
        };
        if ours {
            host.odd
                .insert("/proc/self/pgtable_repl".into(), Ok(OFF.into()));
        }
        look_json(&host, name, &mut counted(0.4, 480.0), &words)["check"].clone()
    };
    assert_eq!(
        check("trial-move", Some(CASCADE_LAKE), true, false),
        "sudo nearwalk trial 1000 --on 1"
    );
    assert_eq!(
        check("trial-copy", Some(CASCADE_LAKE), true, true),
        format!("sudo nearwalk trial --cgroup {MEMCACHED}")
    );
    // Nothing was counted that a trial could go by.
    assert_eq!(
        check("trial-measure", None, true, false),
        "sudo nearwalk trial 1000 --metric CMD"
    );
    let stock = check("trial-stock", Some(CASCADE_LAKE), false, false);
    assert_eq!(stock, serde_json::Value::Null);
}

#[test]
fn walks_in_a_virtual_machine_are_left_to_the_survey() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    redis(&mut host).nested = vec![380 * MIB, 0, 0, 0];
    let json = look_json(&host, "nested", &mut counted(0.4, 480.0), &["1000"]);
    let without = json["without"].to_string();
    assert!(
        without.contains("also of 380M of nested tables"),
        "{without}"
    );
}

/// Why there is nothing to do.
fn nothing(host: &Host, name: &str, instruments: &mut dyn Instruments, words: &[&str]) -> String {
    let json = look_json(host, name, instruments, words);
    assert_eq!(json["verdict"], "nothing", "{json}");
    assert_eq!(json["commands"], serde_json::Value::Null);
    let because = json["because"].as_array().unwrap();
    because.last().unwrap().as_str().unwrap().to_owned()
}

#[test]
fn any_one_proof_that_nothing_is_to_be_had_will_do() {
    let mut one = Host::new(1, 8);
    one.service("a", &[900 * MIB], &[0]);
    let why = nothing(&one, "one-node", &mut counted(0.9, 900.0), &["1000"]);
    assert_eq!(why, "there is 1 node: no walk can be remote");

    let case = |name: &str, tables: &[u64], node: u32, walks: (f64, f64)| {
        let mut host = four_nodes(Some(CASCADE_LAKE));
        host.service("a", tables, &[node]);
        nothing(&host, name, &mut counted(walks.0, walks.1), &["1000"])
    };
    let big = [100 * MIB, 0, 0, 0];
    let why = case("small", &[15 * MIB, 0, 0, 0], 1, (0.9, 900.0));
    assert!(why.contains("smaller than half of an L3 (32M)"), "{why}");
    let why = case("local", &big, 0, (0.9, 900.0));
    assert!(why.starts_with("tables are where it runs"), "{why}");
    let why = case("few-walks", &big, 1, (0.01, 900.0));
    assert!(why.contains("1.6 % of the time at most"), "{why}");
    let why = case("cached", &big, 1, (0.47, 70.0));
    assert!(why.starts_with("0.0 reads of memory in each walk"), "{why}");

    let mut idle = four_nodes(Some(CASCADE_LAKE));
    let group = idle.service("a", &big, &[1]);
    group.processes[0].threads[0].cpus = 0.05;
    let why = nothing(&idle, "idle", &mut counted(0.9, 900.0), &["1000"]);
    assert!(why.starts_with("it used 0.05 CPUs"), "{why}");

    let mut young = four_nodes(Some(CASCADE_LAKE));
    young.service("a", &[4096 * MIB, 0, 0, 0], &[1]);
    young
        .odd
        .insert("/proc/uptime".into(), Ok("60.00 1.00\n".into()));
    let why = nothing(&young, "young", &mut counted(0.9, 900.0), &["1000"]);
    assert!(why.starts_with("it has lived for 10.0 s"), "{why}");
}

#[test]
fn without_cycles_a_walk_or_places_it_is_no_more_than_measure() {
    let missing = |host: &Host, name: &str, words: &[&str]| {
        let json = look_json(host, name, &mut counted(0.5, 800.0), words);
        assert_eq!(json["verdict"], "measure", "{json}");
        assert_eq!(json["commands"], serde_json::Value::Null);
        json["without"].to_string()
    };
    let mut zen = four_nodes(Some(ZEN4));
    redis(&mut zen);
    let why = missing(&zen, "zen", &["1000"]);
    assert!(
        why.contains("amdzen4 counts walks and not how long they take"),
        "{why}"
    );

    let mut unknown = four_nodes(Some(("GenuineIntel", 6, 255, 1)));
    redis(&mut unknown);
    let why = missing(&unknown, "unknown-cpu", &["1000"]);
    assert!(
        why.contains("CPU model GenuineIntel-6-FF-1 is not in the lists"),
        "{why}"
    );

    // Counted, but it is not known where it runs.
    let mut unseen = four_nodes(Some(CASCADE_LAKE));
    memcached(&mut unseen).short_lived = 100.0;
    let why = missing(&unseen, "unseen", &["--cgroup", MEMCACHED]);
    assert!(
        why.contains("where its CPU time goes: only 24 % was seen"),
        "{why}"
    );

    // Nor where its tables are, among those of others.
    let mut among = four_nodes(Some(CASCADE_LAKE));
    let group = among.service("a", &[100 * MIB, 100 * MIB, 0, 0], &[0, 1]);
    let mut other = group.processes[0].clone();
    other.pid = 1100;
    group.processes.push(other);
    group.processes[0].tables = 100 * MIB;
    let why = missing(&among, "among", &["1000"]);
    assert!(
        why.contains("page tables themselves: needs CAP_BPF"),
        "{why}"
    );
}

#[test]
fn who_may_not_count_is_told_how() {
    struct Refused;
    impl Instruments for Refused {
        fn begin(&mut self, _: &mut dyn Source, _: &Target<'_>) -> Result<(), Missing> {
            Err(Missing::Refused { paranoid: Some(3) })
        }
        fn end(&mut self, _: &mut dyn Source) -> Result<Reading, Missing> {
            unreachable!("it never began")
        }
        fn tables(&mut self, _: u32) -> Result<Vec<(Option<u32>, u64)>, String> {
            Err("needs CAP_BPF".into())
        }
    }
    let mut host = four_nodes(Some(CASCADE_LAKE));
    memcached(&mut host);
    let ran = look(&host, "refused", &mut Refused, &["--cgroup", MEMCACHED]);
    expect("advice-refused.txt", &ran.out);
}

#[test]
fn something_else_comes_first_where_it_gains_more() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    memcached(&mut host);
    let words = ["--cgroup", MEMCACHED];
    let json = look_json(&host, "few-huge", &mut counted(0.32, 470.0), &words);
    assert_eq!(json["verdict"], "copy");
    assert!(
        json["instead"][0]
            .as_str()
            .unwrap()
            .starts_with("huge pages first")
    );
    host.odd.insert(
        "/sys/kernel/mm/transparent_hugepage/enabled".into(),
        Ok("always madvise [never]\n".into()),
    );
    let json = look_json(&host, "no-huge", &mut counted(0.32, 470.0), &words);
    assert_eq!(json["verdict"], "huge-pages-first");
    let commands = &json["commands"];
    let file = "| sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
    assert_eq!(commands["do"], format!("echo always {file}"));
    assert_eq!(commands["undo"], format!("echo never {file}"));

    let mut far = four_nodes(Some(CASCADE_LAKE));
    redis(&mut far);
    far.odd.insert(
        "/sys/fs/cgroup/system.slice/redis.service/memory.numa_stat".into(),
        Ok("anon N0=900000000 N1=0\nfile N0=1 N1=1\npagetables N0=125829120 N1=0\n".into()),
    );
    let json = look_json(&far, "far-data", &mut counted(0.4, 480.0), &["1000"]);
    assert_eq!(json["verdict"], "data-first");
    assert_eq!(json["commands"]["do"], "sudo migratepages 1000 0 1");
    assert_eq!(json["commands"]["undo"], "sudo migratepages 1000 1 0");
}

#[test]
fn a_share_that_rests_on_alike_use_is_trusted_less_than_a_certain_one() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    memcached(&mut host).tables = vec![700 * MIB, 20 * MIB, 17 * MIB, 18 * MIB];
    let words = ["--cgroup", MEMCACHED];
    let json = look_json(&host, "alike", &mut counted(0.32, 470.0), &words);
    assert_eq!(
        (&json["verdict"], &json["confidence"]),
        (&"copy".into(), &"medium".into())
    );
    assert_eq!(json["nodes"], serde_json::json!([0, 1, 2, 3]));
    assert_eq!(json["memory_bytes"], 3 * 755 * MIB);
    let because = json["because"].to_string();
    assert!(
        because.contains("if each node uses all of its memory alike, and 0 % at least"),
        "{because}"
    );
}

#[test]
fn a_gain_that_may_be_none_is_no_more_than_measure() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    memcached(&mut host);
    let words = ["--cgroup", MEMCACHED];
    let json = look_json(&host, "may-be-none", &mut counted(0.1, 130.0), &words);
    assert_eq!(json["verdict"], "measure");
    assert!(json["gain"]["high"].as_f64().unwrap() > 0.02, "{json}");
    let ran = look(&host, "may-be-none-text", &mut counted(0.1, 130.0), &words);
    assert!(
        ran.out.contains("  verdict   measure: cannot tell, "),
        "{}",
        ran.out
    );
}

#[test]
fn nodes_that_are_farther_apart_gain_more() {
    let gain = |name: &str, distance: Option<&str>| {
        let mut host = four_nodes(Some(CASCADE_LAKE));
        redis(&mut host);
        for node in 0..4 {
            let path = format!("/sys/devices/system/node/node{node}/distance");
            match distance {
                Some(text) => host.odd.insert(path, Ok(format!("{text}\n"))),
                None => host.odd.remove(&path),
            };
        }
        let json = look_json(&host, name, &mut counted(0.4, 480.0), &["1000"]);
        let told = json["without"].to_string().contains("how far nodes are");
        assert_eq!(told, distance.is_none(), "{json}");
        json["gain"]["middle"].as_f64().unwrap()
    };
    let near = gain("near", Some("12 12 12 12"));
    let far = gain("far", Some("40 40 40 40"));
    let published = gain("untold", None);
    assert!(
        near < published && published < far,
        "{near} {published} {far}"
    );
}

#[test]
fn counters_that_others_use_as_well_are_trusted_less() {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    redis(&mut host);
    let mut instruments = counted(0.4, 480.0);
    instruments.running = 0.1;
    let json = look_json(&host, "shared", &mut instruments, &["1000"]);
    assert_eq!(json["confidence"], "low");
    let because = json["because"].to_string();
    assert!(
        because.contains("each event 10 % of the time or more"),
        "{because}"
    );
}

#[test]
fn a_subject_that_is_lost_is_status_1() {
    let mut host = four_nodes(None);
    redis(&mut host);
    let lost = |host: &Host, name: &str, words: &[&str]| {
        let ran = look(host, name, &mut counted(0.4, 480.0), words);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{}", ran.err);
        ran.err
    };
    let err = lost(&host, "no-process", &["4711"]);
    assert!(
        err.starts_with("nearwalk: no process 4711: it has ended"),
        "{err}"
    );
    host.odd.insert(
        "/proc/2/status".into(),
        Ok("Name:\tkthreadd\nTgid:\t2\n".into()),
    );
    let stat = "2 (kthreadd) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0\n";
    host.odd.insert("/proc/2/stat".into(), Ok(stat.into()));
    host.odd
        .insert("/proc/2/task/2/stat".into(), Ok(stat.into()));
    let err = lost(&host, "kernel-thread", &["2"]);
    assert!(
        err.contains("(kthreadd) has no page tables of its own"),
        "{err}"
    );
    let err = lost(&host, "no-group", &["--cgroup", "system.slice/none"]);
    assert!(
        err.contains("no group system.slice/none in /sys/fs/cgroup"),
        "{err}"
    );
    let err = lost(&host, "root", &["--cgroup", "/"]);
    assert!(err.contains("is the whole host"), "{err}");
    let err = lost(&host, "out", &["--cgroup", "../../etc"]);
    assert!(err.contains("has no `..`"), "{err}");
    host.odd.insert(
        "/sys/fs/cgroup/empty/cgroup.procs".into(),
        Ok(String::new()),
    );
    let err = lost(&host, "empty", &["--cgroup", "/sys/fs/cgroup/empty/"]);
    assert!(err.contains("group empty: it has no processes"), "{err}");

    // What ends while it is looked at, and who gets its number.
    for (name, path) in [("ended", "proc/1000/status"), ("reused", "proc/1000/stat")] {
        let dir = four_nodes_with_redis().record(name);
        let file = dir.join("4").join(path);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(
            &file,
            text.replace("VmPTE", "Vm").replace(" 5000 ", " 6000 "),
        )
        .unwrap();
        let mut live = Recorded::open(&dir).unwrap();
        let ran = run_with(
            &mut live,
            &mut counted(0.4, 480.0),
            &["--seconds", "2", "1000"],
        );
        assert_eq!(ran.status, 1, "{name}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("ended within the 2.0 s"), "{}", ran.err);
    }
}

fn four_nodes_with_redis() -> Host {
    let mut host = four_nodes(Some(CASCADE_LAKE));
    redis(&mut host);
    host
}

fn record(name: &str) -> PathBuf {
    let dir = scratch(&format!("kept-{name}"));
    let words = ["1000", "--record", dir.to_str().unwrap()];
    let ran = look(
        &four_nodes_with_redis(),
        name,
        &mut counted(0.4, 480.0),
        &words,
    );
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    dir
}

#[test]
fn recordings_that_do_not_fit_are_refused() {
    let refused = |dir: &Path| {
        let ran = run(&["--from", dir.to_str().unwrap()]);
        assert_eq!((ran.status, ran.out.as_str()), (3, ""));
        ran.err
    };
    let dir = record("changed");
    let file = dir.join("evidence.json");
    let text = fs::read_to_string(&file).unwrap();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replace(from, to)).unwrap();
        refused(&dir)
    };
    let err = change("evidence.v1", "evidence.v7");
    assert!(
        err.contains("this nearwalk reads nearwalk.evidence.v1"),
        "{err}"
    );
    let err = change("\"nodes\": 4", "\"nodes\": 8");
    assert!(
        err.contains("was made on 8 nodes, and the recording beside it on 4"),
        "{err}"
    );
    let err = change("\"counters\"", "\"c\"");
    assert!(err.contains("evidence.json: "), "{err}");
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    assert!(refused(&dir).contains("evidence.json: "));
    fs::write(&file, &text).unwrap();
    fs::remove_file(dir.join("recording.json")).unwrap();
    assert!(refused(&dir).contains("cut short"));
}

/// This host, on which a command ends when nothing more is read of it.
struct UntilRead {
    live: Live,
    one_node: bool,
    done: PathBuf,
}

impl Source for UntilRead {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        if self.one_node && path == Path::new("/proc/uptime") {
            fs::write(&self.done, "")?;
        }
        self.live.read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.live.list(path)
    }

    fn now(&self) -> Duration {
        self.live.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.live.wait(time)
    }
}

/// Reads tables last, where there are several nodes.
struct LastRead(PathBuf);

impl Instruments for LastRead {
    fn begin(&mut self, _: &mut dyn Source, _: &Target<'_>) -> Result<(), Missing> {
        Err(Missing::NoPmu)
    }

    fn end(&mut self, _: &mut dyn Source) -> Result<Reading, Missing> {
        unreachable!("it never began")
    }

    fn tables(&mut self, _: u32) -> Result<Vec<(Option<u32>, u64)>, String> {
        fs::write(&self.0, "").unwrap();
        Err("not here".into())
    }
}

#[test]
fn a_command_is_looked_at_while_it_runs() {
    let mark = scratch("command-ran");
    let done = scratch("command-done");
    let _ = fs::remove_file(&mark);
    let _ = fs::remove_file(&done);
    let script = format!(
        "echo once >>{}; until [ -e {} ]; do sleep 0.1; done",
        mark.display(),
        done.display()
    );
    let mut live = Live::default();
    let one_node = Machine::read(&mut live).unwrap().nodes.len() <= 1;
    let mut live = UntilRead {
        live,
        one_node,
        done: done.clone(),
    };
    let words = ["--seconds", "0.3", "--json", "--", "sh", "-c", &script];
    let ran = run_with(&mut live, &mut LastRead(done), &words);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["subject"]["kind"], "process");
    assert_eq!(fs::read_to_string(&mark).unwrap(), "once\n");
    let ran = run(&["--", "/no/such/program"]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.err.contains("/no/such/program cannot be run"),
        "{}",
        ran.err
    );
}

#[test]
fn leaf_tables_of_a_process_are_read_where_that_can_be_had() {
    match LiveInstruments::default().tables(std::process::id()) {
        Ok(by_node) => {
            let here: u64 = by_node.iter().map(|(_, bytes)| bytes).sum();
            assert!(here > MIB, "{by_node:?}");
        }
        Err(why) => {
            assert!(!why.is_empty() && !why.contains('\n'), "{why}");
            eprintln!("skipped: {why}");
        }
    }
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    for words in [
        &["--host", "17"][..],
        &["--cgroup", "a", "17"],
        &["--from", "a", "17"],
        &["--all", "17"],
        &["17", "--", "true"],
        &["0"],
        &["x"],
    ] {
        usage_error(words);
    }
}
