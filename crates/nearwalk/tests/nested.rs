// SPDX-License-Identifier: GPL-2.0-or-later
//! Guests of KVM in the lab's machine, under TCG, on our kernel or on what
//! `NEARWALK_TEST_KERNEL` names. Needs QEMU and `make kernel`; run with
//! `cargo test -p nearwalk --features vm-tests --test nested`.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

/// `nearwalk lab run` with these options, begun.
fn start(options: &[&str], command: &[&str]) -> Child {
    let kernel = env::var("NEARWALK_TEST_KERNEL").unwrap_or("ours".into());
    Command::new(env!("CARGO_BIN_EXE_nearwalk"))
        .args(["lab", "run", "--accel", "tcg", "--timeout", "900"])
        .args(["--kernel", &kernel])
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Such a run from start to end, and this input for the command.
fn lab(options: &[&str], command: &[&str], input: &str) -> Output {
    let mut child = start(options, command);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    eprintln!("{}", text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_runs_in_a_guest_of_the_machine() {
    let script = "cat; cd /sys/devices/system/node; cat has_cpu node3/cpulist; \
                  grep -c hypervisor /proc/cpuinfo; grep -c '[.]nohz *: 0' /proc/timer_list; \
                  echo words >&2; exit 7";
    let ran = lab(&["--nested"], &["sh", "-c", script], "in\n");
    assert_eq!(ran.status.code(), Some(7));
    assert_eq!(text(&ran.stdout), "in\n0-3\n3\n4\n4\n");
    assert_eq!(text(&ran.stderr), "words\n");
}

/// What the machine's kernel says of the threads and the memory of a guest's QEMU.
#[test]
fn a_guest_lies_where_it_is_put() {
    let script = r#"
guest() {
	mkfifo /run/in
	"$0" lab run --accel kvm "$@" -- \
		sh -c 'echo up; cat' </run/in >/run/out &
	exec 3>/run/in
	until grep -q up /run/out; do sleep 0.2; kill -0 $! || exit 9; done
	qemu=$(pgrep qemu-system)
	for task in /proc/"$qemu"/task/*; do
		read -r name <"$task/comm"
		case $name in CPU*KVM) echo "$name $(sed -n 's/^Cpus_allowed_list:.//p' "$task/status")" ;; esac
	done | sort
	grep -oE '(bind|interleave)(:|=static:|=relative:)[0-9,-]+' "/proc/$qemu/numa_maps" | sort | uniq -c
	exec 3>&-
	wait $! || exit 8
	rm /run/in /run/out
}
guest --node cpus=1,memory=256M --node cpus=1,memory=256M --vcpus-on 1,3 --memory-on local
guest --node cpus=2,memory=512M --vcpus-on 0,2 --memory-on interleave:1-2
"$0" lab run --accel kvm --vcpus-on 4 -- true
echo "status $?"
"#;
    let program = env!("CARGO_BIN_EXE_nearwalk");
    let ran = lab(&[], &["sh", "-c", script, program], "");
    assert_eq!(ran.status.code(), Some(0));
    let printed = text(&ran.stdout);
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "CPU 0/KVM 2-3",
            "CPU 1/KVM 6-7",
            "1 bind:1",
            "1 bind:3",
            "CPU 0/KVM 0-1",
            "CPU 1/KVM 4-5",
            "1 interleave:1-2",
            "status 125",
        ]
    );
    let error = text(&ran.stderr);
    let told =
        "--vcpus-on: the machine that runs the guest has no node 4 with CPUs; allowed: 0,1,2,3";
    assert!(error.contains(told), "{error}");
}

#[test]
fn a_guest_that_cannot_be_is_refused_before_anything_starts() {
    for (options, told) in [
        (
            &["--nested=thin", "--vcpus-on", "0,1"][..],
            "--vcpus-on 0,1: a thin guest runs on one node; allowed: one of 0, 1, 2, 3",
        ),
        (
            &["--nested", "--guest-memory", "4G"][..],
            "1G of the guest's memory on node 0 of the machine, which has 1G; allowed: up to 768M",
        ),
    ] {
        let ran = lab(options, &["true"], "");
        assert_eq!(ran.status.code(), Some(125));
        let error = text(&ran.stderr);
        assert!(error.contains(told), "{error}");
    }
}

/// What its kernel says is known to whoever started the machine.
#[test]
fn a_guest_kernel_that_panics_is_the_runs_failure() {
    let script = "echo c >/proc/sysrq-trigger; sleep 100";
    let ran = lab(&["--nested=thin"], &["sh", "-c", script], "");
    assert_eq!(ran.status.code(), Some(240));
    let error = text(&ran.stderr);
    assert!(
        error.contains("nearwalk lab (nested): the guest kernel stopped"),
        "{error}"
    );
    let (_, log) = error.rsplit_once("console log: ").unwrap();
    let log = std::fs::read_to_string(log.lines().next().unwrap()).unwrap();
    assert!(log.contains("Kernel panic - not syncing"), "{log}");
}

/// Both machines say what they wait for when the time is over.
#[test]
fn a_run_at_its_limit_says_where_machine_and_guest_stand() {
    let mut child = start(
        &["--nested=thin"],
        &["sh", "-c", "echo up; exec sleep 1000"],
    );
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let pid = child.id().to_string();
    Command::new("kill").args(["-ALRM", &pid]).status().unwrap();
    let ended = child.wait_with_output().unwrap();
    let error = text(&ended.stderr);
    eprintln!("{error}");
    assert_eq!(line, "up\n");
    assert_eq!(ended.status.code(), Some(124));
    let mut guest = String::new();
    let mut machine = String::new();
    for line in error.lines() {
        match line.strip_prefix("nearwalk lab (nested): ") {
            Some(line) => guest += line,
            None => machine += line,
        }
    }
    for words in [
        "stopped after the limit",
        "CPU 1: RIP=",
        "looked at, all threads",
    ] {
        assert!(guest.contains(words), "no '{words}' in {guest}");
    }
    for words in [
        "stopped after the limit",
        "CPU 7: RIP=",
        "CPU 1/KVM ",
        "looked at, all threads",
    ] {
        assert!(machine.contains(words), "no '{words}' in {machine}");
    }
}
