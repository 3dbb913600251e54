// SPDX-License-Identifier: GPL-2.0-or-later
//! The command on four nodes, under TCG: on the stock kernel, or on what
//! `NEARWALK_TEST_KERNEL` names. Needs QEMU and `make kernel-stock`; run with
//! `cargo test -p nearwalk-advise --features vm-tests`.

mod common;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearwalk_lab::{AccelChoice, End, Job, Kernel, NodeSpec, Size, Vm, VmConfig};

/// In the guest, this program runs the command in this variable and prints
/// what it prints.
const COMMAND: &str = "NEARWALK_ADVISE_COMMAND";

/// `moved` runs off its tables, `local` does not, those of `small` fit into the
/// L3 (QEMU's has 8 MiB). `both` runs on two nodes, on each in a group below
/// that has no memory controller. In `vm`, a virtual CPU runs off the nested
/// tables.
const SCRIPT: &str = r#"
walker=$1 guest=$2 program=$3
advise() {
	NEARWALK_ADVISE_COMMAND="$*" setpriv --reuid=65534 --regid=65534 --clear-groups \
		"$program" --exact in_the_guest --ignored --nocapture
}
cd /sys/fs/cgroup
echo +memory >cgroup.subtree_control
mkdir moved local small vm both both/a both/b
start() {
	sh -c 'echo $$ >/sys/fs/cgroup/$1/cgroup.procs; exec /usr/bin/python3 -c "$5" $2 $3 $4 300' \
		sh "$1" "$2" "$3" "$4" "$5" >/run/"$(basename "$1")" &
}
start moved 0 2 12 "$walker"
start local 1 1 12 "$walker"
start small 3 0 2 "$walker"
start both/a 3 0 12 "$walker"
start both/b 3 1 2 "$walker"
start vm 0 3 6 "$guest"
for file in moved local small a b vm; do
	until [ -s /run/$file ]; do sleep 0.2; done
	cat /run/$file >&2
done
usage() { sed -n "s/usage_usec/$1/p" both/a/cpu.stat both/b/cpu.stat; }
mkdir -m 777 /run/for-nobody
usage before
advise --json --seconds 4
usage after
advise --all --record /run/for-nobody/host
echo ---
advise --all --from /run/for-nobody/host
"#;

#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "is what the other tests run in the guest"]
fn in_the_guest() {
    let command = env::var(COMMAND).unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let ran = common::run(&words);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    println!("\n{}", ran.out);
}

#[test]
fn a_service_that_runs_off_its_tables_comes_first_for_nobody() {
    let program = env::current_exe().unwrap();
    let config = VmConfig {
        nodes: NodeSpec::even(4, 8, Size::gib(2)).unwrap(),
        kernel: env::var("NEARWALK_TEST_KERNEL")
            .map_or(Kernel::Stock, |name| name.parse().unwrap()),
        accel: AccelChoice::Tcg,
        shares: vec![PathBuf::from(program.parent().unwrap())],
        timeout: Some(Duration::from_secs(400)),
        ..VmConfig::default()
    };
    let (stdout, stderr) = (Capture::default(), Capture::default());
    let (walker, guest) = (include_str!("walker.py"), include_str!("guest.py"));
    let program = program.to_str().unwrap();
    let job = Job::new(["sh", "-c", SCRIPT, "sh", walker, guest, program])
        .stdout(stdout.clone())
        .stderr(stderr.clone());
    let outcome = Vm::start(&config, job).unwrap().wait().unwrap();
    let text = |of: Capture| String::from_utf8_lossy(&of.0.lock().unwrap()).into_owned();
    let out = text(stdout);
    eprintln!("{out}{}{}", text(stderr), outcome.report());
    assert_eq!(outcome.end, End::Exited(0));

    let json = out.lines().find(|line| line.starts_with('{')).unwrap();
    let answer: serde_json::Value = serde_json::from_str(json).unwrap();
    let ranked = answer["ranked"].as_array().unwrap();
    // Those that run off their tables, and nobody else.
    let groups = ranked.iter().filter(|row| row["kind"] != "process");
    let mut names: Vec<&str> = groups.map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["both", "moved", "vm"], "{answer}");
    assert!(ranked.iter().all(|row| row["certain"] == true), "{answer}");
    let vm = ranked.iter().find(|row| row["name"] == "vm").unwrap();
    assert_eq!(
        (&vm["kind"], &vm["whole_group"]),
        (&"vm".into(), &false.into())
    );
    assert!(vm["cpu_time"][3].as_f64().unwrap() > 0.95, "{vm}");
    assert!(vm["tables_by_node"][0].as_u64().unwrap() >= 6 << 20, "{vm}");
    let moved = ranked.iter().find(|row| row["name"] == "moved").unwrap();
    assert!(moved["cpu_time"][2].as_f64().unwrap() > 0.95, "{moved}");
    assert!(moved["remote_lower"].as_f64().unwrap() > 0.95, "{moved}");
    let reason = |name: &str| {
        let left = answer["left_out"].as_array().unwrap();
        let left = left.iter().find(|left| left["name"] == name).unwrap();
        left["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason("local"), "local");
    assert_eq!(reason("small"), "fits-l3");

    // The share as the kernel counts it, of a little more time.
    let usage = |word: &str| -> Vec<f64> {
        let lines = out.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|number| number.trim().parse().unwrap()).collect()
    };
    let (before, after) = (usage("before "), usage("after "));
    let used = [after[0] - before[0], after[1] - before[1]];
    let counted = used[0] / (used[0] + used[1]);
    let both = ranked.iter().find(|row| row["name"] == "both").unwrap();
    let sampled = both["cpu_time"][0].as_f64().unwrap();
    eprintln!(
        "share of node 0: counted {counted:.4}, sampled {sampled:.4}, seen {}",
        both["seen"]
    );
    assert!((counted - sampled).abs() < 0.1, "{counted} {sampled}");

    let answers: Vec<&str> = out
        .match_indices("4 nodes with CPUs")
        .map(|(at, _)| out[at..].split("\n\n").next().unwrap())
        .collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1], "a recording answers otherwise");
}
