// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::fixture::Fixture;
use clap::CommandFactory;

const FILE: &str = "/sys/kernel/debug/kvm/139-14/pgtable_repl";

fn try_run(host: &mut Fixture, words: &str) -> anyhow::Result<(String, bool)> {
    let args = Args::try_parse_from(["vm"].into_iter().chain(words.split_whitespace()))?;
    let mut out = Vec::new();
    let code = carry_out(host, &args, &mut out)?;
    let clean = format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS);
    Ok((String::from_utf8(out).unwrap(), clean))
}

fn run(host: &mut Fixture, words: &str) -> String {
    try_run(host, words).unwrap().0
}

fn refused(host: &mut Fixture, words: &str) -> String {
    format!("{:#}", try_run(host, words).unwrap_err())
}

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn a_list_has_all_machines() {
    assert_eq!(
        run(&mut Fixture::host(), "list"),
        "\
PID-FD  NAME     VCPUS  MODE               TREES  TABLES
139-14  db           2  lazy on nodes 0-1      2      11
140-11  web,1        1  -                      -       -
150-5   python3      1  -                      -       -
"
    );
    let json = run(&mut Fixture::host(), "list --json");
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(first["name"], "db");
    assert_eq!(first["status"]["keys"][0]["on"][1][1], 5);
    let second: Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!(second["status"], Value::Null);
}

#[test]
fn one_is_shown_with_its_trees() {
    assert_eq!(
        run(&mut Fixture::host(), "show db"),
        "\
db (139-14): 2 vCPUs, lazy on nodes 0-1

tree  domain  node  vCPUs  tables on node       0       1
   0       1     1      1               6       1       5  fallback
   1       0     0      1               5       5       0

switches 2  fallbacks 1  drops 0  refused 0  cloned_entries 514  cloned_tables 1  moved_tables 3  looks 2  hints 0
"
    );
}

#[test]
fn what_trees_may_take_is_shown() {
    let status = crate::fixture::STATUS.to_owned() + "max 65536\ncopies 20480\nlimited 3\n";
    let mut host = Fixture::host().file(FILE, &status);
    let text = run(&mut host, "show db");
    for part in [
        "db (139-14): 2 vCPUs, lazy on nodes 0-1, at most 64 KiB of copies\n",
        "\ntrees beside the largest take 20 KiB\n",
        "  limited 3\n",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert_eq!(
        run(&mut host, "set db lazy --max 64K"),
        "db (139-14): lazy on nodes 0-1, at most 64 KiB of copies (was lazy on nodes 0-1, at most \
         64 KiB of copies)\n"
    );
    let json: Value = serde_json::from_str(&run(&mut host, "show db --json")).unwrap();
    assert_eq!(json["status"]["max"], 65536);
    assert_eq!(json["status"]["copies"], 20480);
}

#[test]
fn who_asks_for_a_mode_is_shown() {
    for (source, told) in [
        ("process", "as its process asks (`nearwalk set`)"),
        ("cgroup", "as its cgroup asks (`nearwalk set`)"),
        ("hand", ""),
        ("none", ""),
    ] {
        let status = crate::fixture::STATUS.to_owned() + &format!("source {source}\n");
        let mut host = Fixture::host().file(FILE, &status);
        let text = run(&mut host, "show db");
        assert!(text.contains(told), "no `{told}` in {text}");
        assert_eq!(text.contains(" asks "), !told.is_empty(), "{text}");
        let json: Value = serde_json::from_str(&run(&mut host, "show db --json")).unwrap();
        assert_eq!(json["status"]["source"], source);
    }
}

#[test]
fn on_another_kernel_nodes_are_what_there_is_to_say() {
    let text = run(&mut Fixture::host(), "show web,1");
    for part in [
        "web,1 (140-11): 1 vCPU; this kernel has no nested tables by domain\n",
        "of all machines of group machine/web:\n",
        "    node 1       1024 KiB\n",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    for verb in ["set 140 lazy", "set 140 off", "dump 140", "check 140"] {
        let error = refused(&mut Fixture::host(), verb);
        assert!(
            error.contains("web,1 (140-11): this kernel has no nested tables by domain"),
            "{error}"
        );
        assert!(error.contains("CONFIG_KVM_PGTABLE_REPL"), "{error}");
    }
}

#[test]
fn a_mode_is_written_as_the_kernel_reads_it() {
    for (words, written) in [
        ("set db lazy", "lazy"),
        ("set 139 off", "off"),
        ("set 139-14 lazy --nodes 0,1", "lazy 0-1"),
        ("set db migrate", "migrate"),
        ("set db migrate --nodes 1", "migrate 1"),
        ("set db fixed --nodes 1", "fixed 1"),
        ("set db lazy --max 1M", "lazy max 1048576"),
        ("set db lazy --max 0 --nodes 1", "lazy 1 max 0"),
        ("set db lazy --max max", "lazy max max"),
    ] {
        let mut host = Fixture::host();
        let text = run(&mut host, words);
        assert_eq!(host.written, [(FILE.into(), written.into())]);
        assert_eq!(
            text,
            "db (139-14): lazy on nodes 0-1 (was lazy on nodes 0-1)\n"
        );
    }
}

#[test]
fn misplaced_tables_are_moved_by_hand() {
    let mut host = Fixture::host();
    assert_eq!(
        run(&mut host, "move db"),
        "db (139-14): no table was misplaced that could be moved\n"
    );
    assert_eq!(host.written, [(FILE.into(), "move".into())]);
    assert!(
        refused(&mut Fixture::host(), "move 140")
            .contains("web,1 (140-11): this kernel has no nested tables by domain")
    );
}

#[test]
fn what_cannot_be_set_is_not_tried() {
    let unable = crate::fixture::STATUS.replace("able yes", "able no the TDP MMU is off");
    for (mut host, words, told) in [
        (
            Fixture::host(),
            "set db lazy --nodes 0,7",
            "there is no node 7",
        ),
        (
            Fixture::host(),
            "set db off --nodes 0",
            "db: --nodes with off: allowed: lazy or migrate with a list such as 0,2, fixed with a node",
        ),
        (
            Fixture::host(),
            "set db fixed",
            "db: fixed without --nodes: allowed: one node, as fixed --nodes 2",
        ),
        (
            Fixture::host(),
            "set db fixed --nodes 0,1",
            "db: --nodes 0-1 with fixed: allowed: one node, as fixed --nodes 2",
        ),
        (
            Fixture::host(),
            "set db eager",
            "possible values: lazy, migrate, fixed, off",
        ),
        (
            Fixture::host(),
            "set db migrate --max 1M",
            "db: --max 1048576 with migrate: allowed: with lazy, the mode that has several trees",
        ),
        (Fixture::host(), "set db lazy --max lots", "`lots`"),
        (
            Fixture::host(),
            "set db lazy --nodes x",
            "`x` is not a node number",
        ),
        (
            Fixture::host().file(FILE, &unable),
            "set db lazy",
            "db (139-14): cannot have nested tables by domain: the TDP MMU is off",
        ),
    ] {
        let error = refused(&mut host, words);
        assert!(error.contains(told), "{error}");
        assert!(host.written.is_empty());
    }
}

#[test]
fn what_the_kernel_says_is_told() {
    let mut host = Fixture::host().file(FILE, "mode lazy 0\nable perhaps\n");
    assert_eq!(
        refused(&mut host, "show db"),
        "db (139-14): pgtable_repl, line 2, `able perhaps`: `perhaps` is neither yes nor no"
    );
    let mut host = Fixture::host().error(FILE, libc::EACCES);
    assert!(refused(&mut host, "show db").contains("for root"));
    let mut gone = Fixture::host().without("/sys/kernel/debug/kvm/140-11/vcpu0/pid");
    assert!(refused(&mut gone, "show 140").contains("there is no virtual machine `140`"));
}

#[test]
fn violations_are_a_failure() {
    let path = "/sys/kernel/debug/kvm/139-14/pgtable_repl_check";
    let (text, clean) = try_run(&mut Fixture::host(), "check db").unwrap();
    assert_eq!(
        text,
        "db (139-14): 0 violations in 2 trees, 11 tables, 1030 leaves; 1 on another node than \
         their tree\n"
    );
    assert!(clean);
    let mut host = Fixture::host().file(path, "violations 1\ntrees 2\nviolation gfn 0x1: bad\n");
    let (text, clean) = try_run(&mut host, "check db").unwrap();
    assert!(text.contains("1 violation in 2 trees") && text.contains("\n    gfn 0x1: bad\n"));
    assert!(!clean);
}

#[test]
fn shares_are_printed_for_each_domain() {
    assert_eq!(
        run(&mut Fixture::host(), "dump db"),
        "\
db (139-14): 2 vCPUs, lazy on nodes 0-1; nested leaves by guest page, as the CPUs of each domain find them
                              local  remote  absent      pages
domain 0  node 0     1 vCPU  99.8 %     0 %   0.2 %        516  ###############################.
domain 1  node 1     1 vCPU   0.6 %  99.2 %   0.2 %        516  #------------------------------.
"
    );
    let json: Value = serde_json::from_str(&run(&mut Fixture::host(), "dump db --json")).unwrap();
    assert_eq!(json["domains"][1]["remote"], 512);
    assert_eq!(json["mode"]["name"], "lazy");
    assert_eq!(
        run(&mut Fixture::host(), "dump db --raw"),
        crate::fixture::DUMP
    );
}

#[test]
fn dumps_follow_each_other_in_time() {
    let mut host = Fixture::host();
    let text = run(&mut host, "dump db --every 5s --count 3");
    assert_eq!(text.matches("domain 1").count(), 3);
    assert_eq!(nearwalk_host::Source::now(&host), Duration::from_secs(10));
    for (words, told) in [
        ("dump db --every 0s", "longer than nothing"),
        ("dump db --every soon", "500ms, 5s or 2m"),
        ("dump db --count 3", "--every"),
        ("dump db --guest /nowhere", "/nowhere"),
    ] {
        let error = refused(&mut Fixture::host(), words);
        assert!(error.contains(told), "{error}");
    }
}
