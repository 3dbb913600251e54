// SPDX-License-Identifier: GPL-2.0-or-later
//! The command itself on four nodes, under TCG, on our kernel or on what
//! `NEARWALK_TEST_KERNEL` names. Needs QEMU and `make kernel`; run with
//! `cargo test -p nearwalk --features vm-tests`.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearwalk_lab::{AccelChoice, End, Job, Kernel, NodeSpec, Size, Vm, VmConfig};

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

/// What a script prints: it runs in `sh` with the program that makes tables on
/// one node and runs on another as `$1`, the directories of `nearwalk` and of
/// modules as `$2` and `$3`, and one that kills trials, or another, as `$4`. Each of its steps begins
/// with a line `== NAME`.
struct Steps(String);

impl Steps {
    fn run(script: &str) -> Self {
        Self::run_with(script, include_str!("killer.py"))
    }

    fn run_with(script: &str, fourth: &str) -> Self {
        let command = PathBuf::from(env!("CARGO_BIN_EXE_nearwalk"));
        let config = VmConfig {
            nodes: NodeSpec::even(4, 8, Size::gib(2)).unwrap(),
            kernel: env::var("NEARWALK_TEST_KERNEL")
                .map_or(Kernel::Ours, |name| name.parse().unwrap()),
            accel: AccelChoice::Tcg,
            shares: vec![command.parent().unwrap().to_owned()],
            timeout: Some(Duration::from_secs(900)),
            ..VmConfig::default()
        };
        let walker = include_str!("../../nearwalk-advise/tests/walker.py");
        let out = Capture::default();
        let modules = nearwalk_lab::build_dir().join("module");
        let words = ["sh", "-c", script, "sh", walker].map(OsString::from);
        let directory = command.parent().unwrap().to_owned();
        let rest = [directory.into(), modules.into(), OsString::from(fourth)];
        let words = words.into_iter().chain(rest);
        let job = Job::new(words).stdout(out.clone()).stderr(out.clone());
        let outcome = Vm::start(&config, job).unwrap().wait().unwrap();
        let text = String::from_utf8_lossy(&out.0.lock().unwrap()).into_owned();
        eprintln!("{text}{}", outcome.report());
        assert_eq!(outcome.end, End::Exited(0));
        Self(text)
    }

    /// What a step printed.
    fn of(&self, name: &str) -> &str {
        let begin = format!("== {name}\n");
        let at = self.0.find(&begin).unwrap_or_else(|| panic!("no {name}"));
        let text = &self.0[at + begin.len()..];
        text.split("\n== ").next().unwrap()
    }

    #[track_caller]
    fn assert(&self, step: &str, text: &str) {
        let printed = self.of(step);
        assert!(printed.contains(text), "{step}: no `{text}` in\n{printed}");
    }
}

/// Groups, the reader of page tables, and what the scripts have in common.
const BEGIN: &str = r#"
walker=$1 PATH=$2:$PATH killer=$4
step() { printf '\n== %s\n' "$1"; }
insmod "$3/$(uname -r)/nearwalk_ptdump.ko"
cd /sys/fs/cgroup
echo +memory >cgroup.subtree_control
# start NAME RUN MIB: in group NAME, MIB of tables on node 0, runs on node RUN.
start() {
	sh -c 'echo $$ >/sys/fs/cgroup/$1/cgroup.procs
		exec taskset -c 0,1 /usr/bin/python3 -c "$4" 0 "$2" "$3" 3600' \
		sh "$1" "$2" "$3" "$walker" >/run/out &
	started=$!
	until [ -s /run/out ]; do sleep 0.1; done
	rm /run/out
}
setting() { sed -n 's/^mode:.//p;s/^nodes:.//p;s/^source:.//p' /proc/$1/pgtable_repl | tr '\n' ' '; }
"#;

/// From the question to the answer, as docs/advise.md has it.
#[test]
fn advice_is_tried_set_seen_and_taken_back() {
    let ran = Steps::run(&format!(
        "{BEGIN}{}",
        r#"
mkdir service
start service 2 12
pid=$started
step advise
nearwalk advise --seconds 2 $pid
step trial
nearwalk trial $pid --metric remote-leaves --pairs 6 --period 1 --settle 0.2
step before
nearwalk locality $pid
kill -STOP $pid
for split in vma perm none; do
	step contiguity-$split
	nearwalk contiguity --json --split $split $pid
done
kill -CONT $pid
/usr/bin/python3 -c '
import ctypes, mmap, os, threading, time
file = os.open(b"/run/caf\xe9", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
named, own = mmap.mmap(file, 1 << 20), mmap.mmap(-1, 4 << 20)
named[:], own[:] = b"x" * (1 << 20), b"y" * (4 << 20)
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)' &
ended=$!
until grep -q '^State:.Z' /proc/$ended/status; do sleep 0.1; done
step ended
nearwalk contiguity --json --by vma $ended
kill -9 $ended
step set
nearwalk set $pid all
nearwalk locality $pid
step default
nearwalk set $pid default
nearwalk locality $pid
setting $pid
for node in 0 1 3; do start service $node 2; done
step group
nearwalk trial --cgroup service --metric remote-leaves --pairs 6 --period 1 --settle 0.2 --json
step end
cat service/memory.pgtable_repl
"#
    ));
    ran.assert("advise", "verdict   measure");
    ran.assert("advise", "check     sudo nearwalk trial ");
    ran.assert("trial", "verdict   lower: -");
    ran.assert("trial", "restored  `default`, as it was found");
    // The tables of all that the program maps were made on node 0.
    let remote = |step: &str| -> Vec<u32> {
        let lines = ran
            .of(step)
            .lines()
            .filter(|line| line.starts_with("node "));
        lines
            .map(|line| {
                let share = line.split("% remote").next().unwrap();
                share.split_whitespace().last().unwrap().parse().unwrap()
            })
            .collect()
    };
    assert_eq!(remote("before"), [0, 100, 100, 100]);
    assert_eq!(remote("set"), [0, 0, 0, 0]);
    let [vma, perm, none] = ["vma", "perm", "none"].map(|split| {
        let line = ran.of(&format!("contiguity-{split}")).trim();
        serde_json::from_str::<serde_json::Value>(line).unwrap()
    });
    let regions = |of: &serde_json::Value| of["regions"].as_u64().unwrap();
    assert_ne!(none["bytes"], 0, "{none}");
    assert!(regions(&vma) >= regions(&perm), "{vma}\n{perm}");
    assert!(regions(&perm) >= regions(&none), "{perm}\n{none}");
    assert_eq!(vma["bytes"], none["bytes"], "{vma}\n{none}");
    // The first thread of this one has ended, and it maps a file whose name is no text.
    let line = ran.of("ended").trim();
    let ended: serde_json::Value = serde_json::from_str(line).unwrap();
    let groups = ended["groups"].as_array().unwrap();
    let sizes = groups.iter().map(|group| group["bytes"].as_u64().unwrap());
    assert!(sizes.clone().any(|size| size == 4 << 20), "{ended}");
    assert_eq!(ended["bytes"], sizes.sum::<u64>(), "{ended}");
    let mapped = groups.iter().all(|group| group["start"].is_u64());
    assert!(mapped, "{ended}");
    assert_eq!(remote("default"), remote("before"));
    ran.assert("default", "off  none");
    let json = ran.of("group").trim();
    let group: serde_json::Value = serde_json::from_str(json).unwrap();
    // Three of four run off their tables.
    assert_eq!(group["verdict"], "lower", "{group}");
    let estimate = &group["estimate"];
    let [low, middle, high] = ["low", "middle", "high"].map(|of| estimate[of].as_f64().unwrap());
    assert!(low <= middle && middle <= high, "{estimate}");
    assert!((-0.85..=-0.65).contains(&middle), "{estimate}");
    assert!(high < -0.5 && low > -0.95, "{estimate}");
    assert_eq!(group["pairs"].as_array().unwrap().len(), 6);
    ran.assert("end", "default");
}

/// What was found is set again, whoever is killed.
#[test]
fn what_a_trial_found_is_set_again_on_any_end() {
    let ran = Steps::run(&format!(
        "{BEGIN}{}",
        r#"
mkdir big policy policy/below killed
start big 2 16
pid=$started
kill -STOP $pid # nothing is measured, and its CPU is the emulator's
# kill_in PHASE WANTED SEED ARG...: see killer.py.
kill_in() {
	local phase=$1 wanted=$2 seed=$3
	shift 3
	/usr/bin/python3 -c "$killer" $pid "$phase" "$wanted" --period 600 --seed $seed "$@" || exit 1
}
begin() {
	nearwalk trial $pid --period 600 --metric 'echo 1' >/run/trial 2>&1 &
	trial=$!
}
until_set() {
	until grep -q "$1" /proc/$pid/pgtable_repl; do
		kill -0 $pid || exit 1
		sleep 0.05
	done
}

step kill
none='off  none'
kill_in /run/asked "$none" 1 $pid --metric 'touch /run/asked; sleep 600'
kill_in note "$none" 1 $pid --metric 'echo 1'
# By these seeds copies are off, or on, in the first period.
kill_in 'source:	proc' "$none" 2 $pid --metric 'echo 1' --settle 0
# Most often while they are made, which is over after a moment, and later.
kill_in 'eager' "$none" 1 $pid --metric 'echo 1' --settle 600
kill_in 'built' "$none" 1 $pid --metric 'echo 1'

step own
echo lazy 0,3 prefetch=7 >/proc/$pid/pgtable_repl
kill_in 'nodes:	0-2' 'lazy 0,3 proc' 1 $pid --on lazy:0-2 --metric 'echo 1'
grep prefetch /proc/$pid/pgtable_repl
echo default >/proc/$pid/pgtable_repl

step term
begin
until_set 'source:.proc'
kill -TERM $trial
wait $trial
echo "status $?"
cat /run/trial
setting $pid

step second
begin
until_set 'source:.proc'
nearwalk trial $pid --metric 'echo 1'
echo "status $?"
nearwalk trial --cgroup big --metric 'echo 1'
echo "status $?"
nearwalk trial --restore

step theirs
kill -9 $(pgrep -P $trial) # its guard
nearwalk set $pid 1
kill -TERM $trial
wait $trial
echo "status $?"
setting $pid
nearwalk trial --restore
nearwalk set $pid default

step changed
nearwalk trial $pid --period 1 --settle 2 --seed 1 --metric 'echo 1' >/run/trial 2>&1 &
trial=$!
until_set 'source:.proc'
nearwalk set $pid 3
wait $trial
echo "status $?"
cat /run/trial
setting $pid
ls /run/nearwalk
nearwalk set $pid default

step policy
start policy/below 2 2
pid=$started
kill -STOP $pid
nearwalk set --cgroup policy lazy:0-1
kill_in 'source:	proc' 'lazy 0-1 cgroup' 1 $pid --metric 'echo 1'
kill_in 'nodes:	0-3' 'lazy 0-1 cgroup' 1 --cgroup policy --metric 'echo 1'
cat policy/memory.pgtable_repl

step left
nearwalk set --cgroup policy default
sh -c 'echo $$ >/sys/fs/cgroup/killed/cgroup.procs; exec nearwalk trial '$pid' \
	--period 600 --metric "echo 1"' >/run/trial 2>&1 &
until_set 'source:.proc'
echo 1 >killed/cgroup.kill
until grep -q 'populated 0' killed/cgroup.events; do sleep 0.1; done
setting $pid
nearwalk show $pid
nearwalk trial $pid --metric 'echo 1'
echo "status $?"
nearwalk trial --restore
setting $pid
nearwalk trial --restore

step gone
nearwalk trial $pid --period 1 --settle 5 --metric 'echo 1' >/run/trial 2>&1 &
trial=$!
until_set 'source:.proc'
kill -9 $pid
wait $trial
echo "status $?"
cat /run/trial
nearwalk trial $pid --metric 'echo 1'
echo "status $?"
nearwalk trial --cgroup nobody --metric 'echo 1'
echo "status $?"

step refused
start big 2 2
pid=$started
for metric in 'echo fast' 'exit 3'; do
	nearwalk trial $pid --metric "$metric"
	echo "status $?"
done
nearwalk trial $pid
echo "status $?"
nearwalk trial $pid --on off --metric 'echo 1'
echo "status $?"
echo 0 >/proc/sys/vm/pgtable_repl_node_max
nearwalk trial $pid --metric 'echo 1'
echo "status $?"
setting $pid
ls /run/nearwalk
"#
    ));
    assert_eq!(ran.of("kill").matches("back after").count(), 5);
    ran.assert("own", "prefetch:\t7");
    ran.assert("term", "status 143");
    ran.assert("term", "restored  `default`, as it was found");
    ran.assert("term", "off  none");
    ran.assert("second", "is running (process ");
    assert_eq!(ran.of("second").matches("status 2").count(), 2);
    ran.assert("second", "its trial is running");
    ran.assert("theirs", "eager 1 proc");
    ran.assert("theirs", "nothing is left of a trial");
    ran.assert("changed", "status 1");
    ran.assert("changed", "somebody has set it to `eager 3` meanwhile");
    ran.assert("changed", "eager 3 proc");
    assert_eq!(ran.of("policy").matches("back after").count(), 2);
    assert!(ran.of("policy").trim_end().ends_with("lazy 0-1"));
    ran.assert("left", "and so was its guard: `nearwalk trial --restore`");
    ran.assert("left", "status 2");
    ran.assert("left", "): `default`, as it was found");
    ran.assert("left", "off  none");
    ran.assert("left", "nothing is left of a trial");
    ran.assert("gone", "has gone; 0 of 10 pairs were measured");
    assert_eq!(ran.of("gone").matches("status 1").count(), 3);
    ran.assert("refused", "printed `fast`; it is to print one number");
    ran.assert("refused", "failed: exit status: 3");
    ran.assert("refused", "name something else to measure");
    assert_eq!(ran.of("refused").matches("status 3").count(), 3);
    ran.assert("refused", "there are no copies to try");
    ran.assert("refused", "vm.pgtable_repl_node_max allows 0 KiB there");
    assert_eq!(ran.of("refused").matches("status 2").count(), 2);
    ran.assert("refused", "off  none");
}

/// Memory goes to other nodes and stays what it was; what cannot be done is told.
#[test]
fn memory_moves_and_stays_what_it_was() {
    let script = r#"
step() { printf '\n== %s\n' "$1"; }
status() { "$@"; echo "status $?"; }
PATH=$2:$PATH
mkfifo /run/say
taskset -c 0 /usr/bin/python3 -c "$4" 40 </run/say >/run/holder &
pid=$!
exec 3>/run/say
until [ -s /run/holder ]; do sleep 0.1; done
step move
nearwalk move $pid --to 2 --json
step again
nearwalk move $pid --to 2 --json
step part
nearwalk move $pid --from 2 --to 3 --size 8M --json
step helped
echo 4 >/proc/sys/vm/migrate_copy_threads
echo 4096 >/proc/sys/vm/migrate_batch_pages
nearwalk move $pid --to 1 --shared --json
step text
status nearwalk move $pid --to 0 --shared
step refused
status nearwalk move $pid --to 9
status nearwalk move $pid --from 1 --to 1
status nearwalk move 999999 --to 1
status nearwalk move 2 --to 1
status nearwalk move $pid --to 1 --size 3
status setpriv --reuid=65534 --clear-groups nearwalk move $pid --to 1
step data
echo >&3
wait $pid
cat /run/holder
"#;
    let ran = Steps::run_with(script, include_str!("holder.py"));
    let json = |step: &str| -> serde_json::Value {
        serde_json::from_str(ran.of(step).trim()).unwrap_or_else(|_| panic!("{}", ran.of(step)))
    };
    let pages = |step: &str, outcome: &str| json(step)["pages"][outcome].as_u64().unwrap();
    let filled = (40 << 20) / 4096;
    assert!(pages("move", "moved") >= filled, "{}", ran.of("move"));
    assert_eq!(pages("move", "busy"), 0, "{}", ran.of("move"));
    // What others mapped as well can be the process's own by now.
    assert!(pages("again", "moved") <= pages("move", "shared"));
    assert!(pages("again", "there") >= pages("move", "moved"));
    // The page that reaches the size is a huge one, or the size was reached before.
    let part = pages("part", "moved");
    assert!((2048..2048 + 512).contains(&part), "{}", ran.of("part"));
    assert!(pages("part", "left") >= filled - part - 512);
    let copied = json("helped")["counters"]["pgmigrate_copied"].as_u64();
    assert!(copied.unwrap() >= filled, "{}", ran.of("helped"));
    ran.assert("text", "to node 0, ");
    ran.assert("text", "status 0");
    ran.assert("refused", "node 9 has no memory; allowed: 0-3");
    ran.assert("refused", "--from and --to are both node 1");
    ran.assert("refused", "there is no process 999999");
    ran.assert("refused", "process 2 has no memory of its own");
    ran.assert("refused", "whole pages of 4K");
    ran.assert("refused", "no permission");
    assert_eq!(ran.of("refused").matches("status 1").count(), 5);
    assert_eq!(ran.of("refused").matches("status 2").count(), 1);
    ran.assert("data", "40 of 40 MiB are the same");
}

/// Pages of a process change places and stay what they were; what cannot is told, or
/// moved. Those of a group that are hot take the places of cold ones.
#[test]
fn pages_change_places_and_stay_what_they_were() {
    let script = r#"
step() { printf '\n== %s\n' "$1"; }
status() { "$@"; echo "status $?"; }
PATH=$2:$PATH
echo 0 >/proc/sys/kernel/numa_balancing
mkfifo /run/say
places=$4
taskset -c 0 /usr/bin/python3 -c "$places" </run/say >/run/places &
pid=$!
exec 3>/run/say
until grep -q filled /run/places; do sleep 0.1; done
at() { sed -n "s/^$1 //p" /run/places; }
pages() { a=$1 b=$2; shift 2; nearwalk exchange $pid --a $(at $a) --b $(at $b) "$@"; }
regions() { grep -v shared /run/places | /usr/bin/python3 -c "$places" $pid; }
step base
pages a b --verify --json
step back
status pages a b
step huge
pages huge_a huge_b --verify --json
step unequal
status pages a shared
step fallback
pages b shared --fallback migrate --verify --json
step refused
status pages a a
status nearwalk exchange $pid --a $(at a) --b $(at huge_a)
status nearwalk exchange 999999 --a 1000-2000 --b 3000-4000
status nearwalk exchange 2 --a 1000-2000 --b 3000-4000
status setpriv --reuid=65534 --clear-groups nearwalk exchange $pid --a 1000-2000 --b 3000-4000
step shuffled
echo shuffle >&3
until grep -q shuffled /run/places; do sleep 0.1; done
regions
step ranger
nearwalk ranger $pid --json
step together
regions
step ranger_again
nearwalk ranger $pid --json
step again
regions
step ranger_text
status nearwalk ranger $pid --align 1G --anchor first-fit
step ranger_refused
status nearwalk ranger 999999
status nearwalk ranger 2
status setpriv --reuid=65534 --clear-groups nearwalk ranger $pid
status setpriv --reuid=65534 --clear-groups nearwalk ranger $pid --background on
status setpriv --reuid=65534 --clear-groups nearwalk run --ranger -- true
step ranger_background
echo 100 >/proc/sys/vm/ranger_cpu_percent
# One pass, when it is switched on: another one could be cut short.
echo 86400000 >/proc/sys/vm/ranger_interval_ms
nearwalk ranger $pid --background on
until nearwalk ranger $pid --show | grep -q ' [1-9][0-9]* of them in the background'; do sleep 0.1; done
nearwalk ranger $pid --background off
nearwalk ranger $pid --show
step ranger_shown
nearwalk ranger $pid --show --json
step ranger_run
status nearwalk run --ranger -- sh -c 'nearwalk ranger $$ --show'
step data
echo >&3
wait $pid
cat /run/places
step tier-none
hot=/sys/fs/cgroup/hot
[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "+memory +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
mkdir $hot
nearwalk tier show --cgroup hot
# Switches between processes of a CPU have translations loaded again.
sh -c "echo \$\$ >$hot/cgroup.procs; exec taskset -c 0 /usr/bin/python3 -c \"\$1\"" hot "$HOT" >/run/hot &
pid=$!
until grep -q filled /run/hot; do sleep 0.1; done
step tier-run
taskset -c 0 nearwalk tier run --cgroup hot --fast 0 --slow 1 --rounds 5 --interval 500ms \
	--scan 100 --fast-max 4M --json
step tier-once
nearwalk tier once --cgroup $hot --fast 0 --slow 1 --no-exchange --split --amount 1M
step tier-show
nearwalk tier show --cgroup hot --json
step tier-refused
once() { status nearwalk tier once --cgroup "$@"; }
once none --fast 0 --slow 1
once hot --fast 0 --slow 9
once hot --fast 1 --slow 1
status setpriv --reuid=65534 --clear-groups nearwalk tier once --cgroup hot --fast 0 --slow 1
echo 0 >$hot/cpuset.mems
once hot --fast 0 --slow 1
echo y >/sys/kernel/mm/lru_gen/enabled
once hot --fast 0 --slow 1
echo n >/sys/kernel/mm/lru_gen/enabled
kill $pid
"#;
    let script = script.replace("$HOT", HOT);
    let ran = Steps::run_with(&script, include_str!("places.py"));
    let json = |step: &str| -> serde_json::Value {
        serde_json::from_str(ran.of(step).trim()).unwrap_or_else(|_| panic!("{}", ran.of(step)))
    };
    let equal = |step: &str, path: &str, wanted: u64| {
        let found = json(step).pointer(path).and_then(serde_json::Value::as_u64);
        assert_eq!(found, Some(wanted), "{step}{path}: {}", ran.of(step));
    };
    equal("base", "/pairs/exchanged", 512);
    equal("base", "/verified_pages", 1024);
    ran.assert("back", "512 pairs       2M each");
    ran.assert("back", "status 0");
    equal("huge", "/pairs/exchanged", 2);
    equal("huge", "/pages/exchanged", 1024);
    ran.assert("unequal", "not anonymous memory");
    ran.assert("unequal", "status 1");
    equal("fallback", "/pairs/moved", 512);
    equal("fallback", "/verified_pages", 1024);
    ran.assert("refused", "--a and --b overlap");
    ran.assert("refused", "--a has 512 pages and --b has 1024");
    ran.assert("refused", "there is no process 999999");
    ran.assert("refused", "process 2 has no memory of its own");
    ran.assert("refused", "only root can exchange pages");
    let times = |step: &str, text: &str, wanted: usize| {
        let found = ran.of(step).matches(text).count();
        assert_eq!(found, wanted, "{step}: `{text}` in\n{}", ran.of(step));
    };
    times("refused", "status 1", 5);
    // Bringing pages together: each is counted, and those in their place stay there.
    let in_place = |step: &str| -> (u64, u64) {
        let json = json(step);
        let pages = json["pages"].as_object().unwrap();
        let sum = |there: bool| -> u64 {
            let counted = pages.iter().filter(|(name, _)| {
                ["home", "moved", "exchanged"].contains(&name.as_str()) == there
            });
            counted.map(|(_, pages)| pages.as_u64().unwrap()).sum()
        };
        (sum(true), sum(false))
    };
    let (there, _) = in_place("ranger");
    assert!(there >= 1024, "{}", ran.of("ranger"));
    let home = json("ranger_again")["pages"]["home"].as_u64();
    assert!(home >= Some(there), "{}", ran.of("ranger_again"));
    equal("ranger_again", "/claims_made", 0);
    // Each of these has one claim, which pages that stay elsewhere cut through.
    let regions = |step: &str, name: &str| -> u64 {
        let regions = json(step)[name].as_u64();
        regions.unwrap_or_else(|| panic!("{step}: no {name} in\n{}", ran.of(step)))
    };
    for (pass, seen) in [("ranger", "together"), ("ranger_again", "again")] {
        let (_, left) = in_place(pass);
        for name in ["a", "b", "huge_a", "huge_b"] {
            let found = regions(seen, name);
            assert!(
                found <= 1 + 2 * left,
                "{name}: {found} regions, {left} pages left\n{}\n{}",
                ran.of(pass),
                ran.of(seen)
            );
        }
    }
    for name in ["a", "b"] {
        let (before, after) = (regions("shuffled", name), regions("again", name));
        assert!(before > 256, "{name}: {}", ran.of("shuffled"));
        assert!(
            after * 2 < before,
            "{name}: {after} of {before} regions\n{}\n{}",
            ran.of("ranger"),
            ran.of("ranger_again")
        );
    }
    ran.assert("ranger_text", "in their place before");
    ran.assert("ranger_text", "status 0");
    ran.assert("ranger_refused", "there is no process 999999");
    ran.assert("ranger_refused", "process 2 has no memory of its own");
    ran.assert("ranger_refused", "no permission to bring pages together");
    times("ranger_refused", "status 1\n", 4);
    times("ranger_refused", "status 125", 1);
    // In the background, without anybody waiting, and inherited by what is run.
    ran.assert("ranger_background", ": no passes in the background, ");
    ran.assert("ranger_background", "The last pass:\nin their place before");
    let shown = json("ranger_shown");
    assert_eq!(shown["on"], false, "{shown}");
    assert!(shown["background_passes"].as_u64() >= Some(1), "{shown}");
    assert!(shown["last"]["home"].as_u64() >= Some(there), "{shown}");
    ran.assert("ranger_run", ": passes in the background, ");
    ran.assert("ranger_run", "status 0");
    ran.assert("data", "5 of 5 are the same");
    ran.assert("tier-none", "rounds: 0");
    let rounds: Vec<serde_json::Value> = ran
        .of("tier-run")
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(rounds.len(), 5, "{}", ran.of("tier-run"));
    for outcome in ["exchanged", "promoted", "demoted"] {
        let pages = rounds.iter().map(|round| &round["counters"][outcome]);
        let pages: u64 = pages.filter_map(serde_json::Value::as_u64).sum();
        assert!(pages >= 512, "{outcome}: {}", ran.of("tier-run"));
    }
    ran.assert("tier-once", "hot: a round of");
    equal("tier-show", "/counters/rounds", 6);
    ran.assert("tier-refused", "there is no cgroup `none`");
    ran.assert("tier-refused", "node 9 has no memory; allowed: 0-3");
    ran.assert("tier-refused", "--fast and --slow are both node 1");
    ran.assert("tier-refused", "memory.tier: no permission");
    ran.assert("tier-refused", "may have no memory on node 1");
    ran.assert("tier-refused", "echo n > /sys/kernel/mm/lru_gen/enabled");
    times("tier-refused", "status 1", 6);
}

/// Fills 8 MiB on node 0 and 4 MiB on node 1, and goes on using the latter. Half of these
/// are shared memory, which cannot be exchanged.
const HOT: &str = r"
import ctypes, mmap
libc = ctypes.CDLL(None)
def bound(node, size, flags):
    m = mmap.mmap(-1, size, flags | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    at, mask = ctypes.addressof(ctypes.c_char.from_buffer(m)), ctypes.c_ulong(1 << node)
    libc.syscall(237, ctypes.c_ulong(at), ctypes.c_ulong(size), 2, ctypes.byref(mask), 64, 0)
    for i in range(0, size, 4096):
        m[i] = node
    return m
cold = bound(0, 8 << 20, mmap.MAP_PRIVATE)
hot, shared = (bound(1, 2 << 20, flags) for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED))
print('filled', flush=True)
while True:
    for i in range(0, len(hot), 4096):
        hot[i] ^= 2
        shared[i] ^= 2
";
