// SPDX-License-Identifier: GPL-2.0-or-later
//! The command on four nodes, under TCG: on the stock kernel, or on what
//! `NEARWALK_TEST_KERNEL` names. Needs QEMU and `make kernel-stock`; run with
//! `cargo test -p nearwalk-top --features vm-tests`.

mod pty;

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use nearwalk_lab::{AccelChoice, End, Job, Kernel, NodeSpec, Size, Vm, VmConfig};
use pty::{Terminal, WORDS};
use rustix::process::Signal;

/// `moved` runs off its tables, and `local` does not.
const SCRIPT: &str = r#"
walker=$1 program=$2
cd /sys/fs/cgroup
echo +memory >cgroup.subtree_control
mkdir moved local
start() {
	sh -c 'echo $$ >/sys/fs/cgroup/$1/cgroup.procs; exec /usr/bin/python3 -c "$5" $2 $3 $4 300' \
		sh "$1" "$2" "$3" "$4" "$walker" >/run/"$1" &
}
start moved 0 2 12
start local 1 1 12
for file in moved local; do
	until [ -s /run/$file ]; do sleep 0.2; done
done
exec "$program" --exact in_the_guest --ignored --nocapture
"#;

#[test]
#[ignore = "is what the other tests run in a terminal"]
fn in_the_terminal() {
    pty::run(&env::var(WORDS).unwrap());
}

fn row(screen: &str, name: &str) -> Option<String> {
    let mut lines = screen.lines();
    lines.find(|line| line.starts_with(name)).map(str::to_owned)
}

/// What may be remote of a row that is marked, in per cent. Not all: a program has tables
/// of its stacks and libraries where it runs, too.
fn remote(row: &str) -> Option<u32> {
    let (before, _) = row.split_once(" % !")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[test]
#[ignore = "is what the other tests run in the guest"]
fn in_the_guest() {
    let policy = || fs::read_to_string("/sys/fs/cgroup/moved/memory.pgtable_repl");
    let has = |screen: &str, name: &str, text: &str| {
        row(screen, name).is_some_and(|row| row.contains(text))
    };
    let mut terminal = Terminal::start("", 120, 24);
    let screen = terminal.until("sampled", |screen| {
        row(screen, "moved").and_then(|row| remote(&row)) > Some(95) && has(screen, "local", "0 ")
    });
    println!("{screen}");
    // The first row is `moved`.
    assert!(
        screen.lines().nth(2).unwrap().starts_with("moved"),
        "{screen}"
    );
    terminal.press("je");
    if policy().is_ok() {
        terminal.until_shown("set eager all for moved?");
        terminal.press("n");
        terminal.until_shown("q quit");
        assert_eq!(policy().unwrap(), "default\n");
        terminal.press("ey");
        terminal.until_shown("moved: eager all is set");
        assert_eq!(policy().unwrap(), "eager all\n");
        let screen = terminal.until("copied", |screen| {
            has(screen, "moved", "copied") && has(screen, "moved", " eager ")
        });
        println!("{screen}");
        terminal.press("u");
        terminal.until_shown("moved: default is set again");
        assert_eq!(policy().unwrap(), "default\n");
        terminal.until("off again", |screen| {
            row(screen, "moved").and_then(|row| remote(&row)) > Some(95)
                && has(screen, "moved", " off ")
        });
        terminal.press("u");
        terminal.until_shown("nothing was set");
    } else {
        terminal.until_shown("this kernel does not copy page tables");
    }
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.end().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn it_shows_who_runs_off_its_tables_and_sets_what_is_asked_for() {
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
    let walker = include_str!("../../nearwalk-advise/tests/walker.py");
    let program = program.to_str().unwrap();
    let job = Job::new(["sh", "-c", SCRIPT, "sh", walker, program]);
    let outcome = Vm::start(&config, job).unwrap().wait().unwrap();
    eprintln!("{}", outcome.report());
    assert_eq!(outcome.end, End::Exited(0));
}
