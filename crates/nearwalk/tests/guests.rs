// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk vm` on a small guest of KVM with a virtual CPU on each of four nodes, under
//! TCG, on our kernel or on what `NEARWALK_TEST_KERNEL` names. Needs QEMU and `make
//! kernel`; run with `cargo test -p nearwalk --features vm-tests --test guests`.

use std::env;
use std::process::{Command, Output};

/// What a script prints in the lab; it gets `nearwalk` as `$0`, the guest as `$1`. Each
/// of its steps begins with a line `== NAME`.
fn steps(script: &str) -> String {
    let kernel = env::var("NEARWALK_TEST_KERNEL").unwrap_or("ours".into());
    let nearwalk = env!("CARGO_BIN_EXE_nearwalk");
    let guest = include_str!("kvm_guest.py");
    let Output { status, stdout, .. } = Command::new(nearwalk)
        .args([
            "lab",
            "run",
            "--accel",
            "tcg",
            "--timeout",
            "600",
            "--kernel",
            &kernel,
        ])
        .args([
            "--memory",
            "2G",
            "--",
            "sh",
            "-c",
            &format!("{BEGIN}{script}"),
        ])
        .args([nearwalk, guest])
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    eprintln!("{text}");
    assert_eq!(status.code(), Some(0));
    text
}

/// Starts the guest and lets its CPUs run.
const BEGIN: &str = r#"
step() { printf '\n== %s\n' "$1"; }
mkfifo /run/in /run/out
/usr/bin/python3 -c "$1" 0 1 2 3 </run/in >/run/out &
pid=$!
exec 3>/run/in 4</run/out
let_run() { echo >&3; read -r answer <&4; [ "$answer" = ran ] || exit 9; }
let_run
"#;

fn step<'a>(text: &'a str, name: &str) -> &'a str {
    let begin = format!("== {name}\n");
    let at = text.find(&begin).unwrap_or_else(|| panic!("no {name}"));
    text[at + begin.len()..].split("\n== ").next().unwrap()
}

#[track_caller]
fn assert_in(text: &str, name: &str, part: &str) {
    let printed = step(text, name);
    assert!(printed.contains(part), "{name}: no `{part}` in\n{printed}");
}

/// Of each domain: local, remote, absent.
fn counts(text: &str, name: &str) -> Vec<[u64; 3]> {
    let line = step(text, name).lines().find(|line| line.starts_with('{'));
    let dump: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
    let domains = dump["domains"].as_array().unwrap().iter();
    let of = |domain: &serde_json::Value| {
        ["local", "remote", "absent"].map(|key| domain[key].as_u64().unwrap())
    };
    domains.map(of).collect()
}

/// Whatever the kernel, machines are listed, and what it does not have is said.
const ANY: &str = r#"
step kernel
ls -d /sys/kernel/debug/kvm/$pid-*/pgtable_repl 2>/dev/null
step list
"$0" vm list
step show
"$0" vm show $pid
step name
"$0" vm show nobody 2>&1
"#;

const STOCK: &str = r#"
step set
"$0" vm set $pid lazy 2>&1
echo "status $?"
true
"#;

/// No table is moved but where that is asked for: what is absent is counted.
const OURS: &str = r#"
echo 0 >/sys/module/kvm/parameters/pgtable_repl_zap_rate
step one
"$0" vm dump $pid --json
"$0" vm dump $pid
step set
"$0" vm set python3 lazy
let_run
step lazy
"$0" vm dump $pid --json
"$0" vm dump $pid
"$0" vm show $pid
step check
"$0" vm check || exit 9
step some
"$0" vm set $pid lazy --nodes 1-2
let_run
"$0" vm show $pid
step bad
"$0" vm set $pid lazy --nodes 4 2>&1
echo "status $?"
step limited
"$0" vm set $pid lazy --max 0
let_run
# Those that have no room are being taken down.
until [ "$("$0" vm list | awk 'NR == 2 { print $(NF - 1) }')" = 1 ]; do sleep 0.1; done
let_run
"$0" vm show $pid
"$0" vm dump $pid --json
step off
"$0" vm set $pid off
let_run
"$0" vm dump $pid --json
step fixed
"$0" vm set $pid fixed --nodes 3
"$0" vm move $pid
let_run
"$0" vm dump $pid --json
step fixed_off
"$0" vm set $pid off
"$0" vm move $pid 2>&1
echo "status $?"
step last
"$0" vm check || exit 9
"#;

#[test]
fn machines_are_listed_set_and_shown() {
    let has = "if [ -e /sys/kernel/debug/kvm/$pid-*/pgtable_repl ]; then";
    let text = steps(&format!("{ANY}\n{has}\n{OURS}\nelse\n{STOCK}\nfi\n"));
    assert_in(&text, "list", "python3      4  ");
    let unknown = "there is no virtual machine `nobody`; there are python3 (";
    assert_in(&text, "name", unknown);
    let config = include_str!("../../../kernel/config/lab.config");
    let asked_for = config.contains("\nCONFIG_KVM_PGTABLE_REPL=y\n");
    if step(&text, "kernel").trim().is_empty() {
        let other = env::var("NEARWALK_TEST_KERNEL").is_ok();
        assert!(other || !asked_for, "our kernel has no pgtable_repl");
        let told = "4 vCPUs; this kernel has no nested tables by domain";
        assert_in(&text, "show", told);
        assert_in(&text, "show", "    node 3  ");
        let told = "Nearwalk's has, built with CONFIG_KVM_PGTABLE_REPL\nstatus 1";
        assert_in(&text, "set", told);
        return;
    }
    // 224 pages that each CPU writes, and the one of the code.
    assert_in(&text, "show", "4 vCPUs, off");
    // The first CPU had the only tree to build.
    let all = [225, 0, 0];
    let none = [0, 225, 0];
    assert_eq!(counts(&text, "one"), [all, none, none, none]);
    assert_in(&text, "set", "lazy on nodes 0-3 (was off)");
    assert_eq!(counts(&text, "lazy"), [all; 4]);
    assert_in(
        &text,
        "lazy",
        "domain 3  node 3     1 vCPU   100 %     0 %     0 %",
    );
    assert_in(&text, "check", ": 0 violations in 4 trees");
    assert_in(&text, "some", "lazy on nodes 1-2 (was lazy on nodes 0-3)");
    assert_in(&text, "bad", "node 4");
    assert_in(&text, "bad", "status 1");
    let told = "lazy on nodes 0-3, at most 0 KiB of copies (was lazy on nodes 1-2)";
    assert_in(&text, "limited", told);
    let shared = |name| {
        let counts = counts(&text, name);
        let having = |what| counts.iter().filter(|domain| **domain == what).count();
        (having(all), having(none))
    };
    assert_eq!(shared("limited"), (1, 3), "{}", step(&text, "limited"));
    assert_eq!(shared("off"), (1, 3), "{}", step(&text, "off"));
    assert_in(&text, "fixed", "fixed on node 3 (was off)");
    assert_in(&text, "fixed", "come");
    assert_eq!(counts(&text, "fixed"), [none, none, none, all]);
    assert_in(&text, "fixed_off", "its mode is off");
    assert_in(&text, "fixed_off", "status 1");
    assert_in(&text, "last", ": 0 violations in 1 tree,");
}
