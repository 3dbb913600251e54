// SPDX-License-Identifier: GPL-2.0-or-later
//! Boots a kernel for real, under TCG: the stock one, or what
//! `NEARWALK_TEST_KERNEL` names as `--kernel` would. Needs `make kernel-stock`
//! and QEMU; run with `cargo test -p nearwalk-lab --features vm-tests`.

use std::{
    env, fs,
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use nearwalk_lab::{
    AccelChoice, End, Error, FindingKind, Input, Job, Kernel, NodeSpec, Outcome, Pti, Size,
    Terminal, Vm, VmConfig, VmHandle,
};

fn kernel() -> Kernel {
    env::var("NEARWALK_TEST_KERNEL").map_or(Kernel::Stock, |name| name.parse().unwrap())
}

/// A small machine, so that a test takes a few seconds.
fn machine() -> VmConfig {
    VmConfig {
        nodes: NodeSpec::even(2, 2, Size::mib(512)).unwrap(),
        kernel: kernel(),
        accel: AccelChoice::Tcg,
        ..VmConfig::default()
    }
}

/// Collects what a stream brings.
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

impl Capture {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

struct Ran {
    outcome: Outcome,
    stdout: String,
    stderr: String,
}

fn try_run(config: &VmConfig, job: Job) -> Result<Ran, Error> {
    let (stdout, stderr) = (Capture::default(), Capture::default());
    let job = job.stdout(stdout.clone()).stderr(stderr.clone());
    let outcome = Vm::start(config, job)?.wait()?;
    Ok(Ran {
        outcome,
        stdout: stdout.text(),
        stderr: stderr.text(),
    })
}

fn run(config: &VmConfig, job: Job) -> Ran {
    let ran = try_run(config, job).unwrap();
    eprintln!("{}{}", ran.stderr, ran.outcome.report());
    ran
}

fn shell(config: &VmConfig, script: &str) -> Ran {
    run(config, Job::new(["sh", "-c", script]))
}

/// A directory of this test's own, under the build directory.
fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn the_commands_status_and_streams_come_back() {
    let ran = shell(&machine(), "echo out; echo err >&2; exit 3");
    assert_eq!(ran.outcome.end, End::Exited(3));
    assert_eq!(ran.outcome.exit_code(), 3);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("out\n", "err\n")
    );
    assert_eq!(ran.outcome.console_log, None, "kept the log of a clean run");
}

#[test]
fn death_by_signal_is_reported_as_a_shell_does() {
    let ran = shell(&machine(), "kill -TERM $$");
    assert_eq!(ran.outcome.end, End::Exited(128 + 15));
}

#[test]
fn a_command_that_is_not_there_is_127() {
    let ran = run(&machine(), Job::new(["no-such-command"]));
    assert_eq!(ran.outcome.end, End::Exited(127));
    assert!(ran.stderr.contains("no-such-command"), "{}", ran.stderr);
}

#[test]
fn input_and_output_of_some_size_arrive_whole() {
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 8)) as u8).collect();
    let expected = data.clone();
    let out = Capture::default();
    let job = Job::new(["cat"])
        .stdin(Input::Reader(Box::new(io::Cursor::new(data))))
        .stdout(out.clone());
    let outcome = Vm::start(&machine(), job).unwrap().wait().unwrap();
    assert_eq!(outcome.end, End::Exited(0));
    assert!(*out.0.lock().unwrap() == expected, "what came back differs");
}

#[test]
fn the_guest_has_the_nodes_that_were_asked_for() {
    let node = |cpus, memory| NodeSpec { cpus, memory };
    let config = VmConfig {
        nodes: vec![
            node(2, Size::mib(512)),
            node(1, Size::mib(0)),
            node(0, Size::mib(256)),
        ],
        ..machine()
    };
    let ran = shell(
        &config,
        "cd /sys/devices/system/node; cat possible has_cpu has_memory node*/cpulist",
    );
    assert_eq!(ran.stdout, "0-2\n0-1\n0,2\n0-1\n2\n\n");
}

#[test]
fn environment_and_directory_are_the_hosts() {
    let dir = scratch("cwd with space");
    fs::write(dir.join("file"), "content").unwrap();
    let script = "echo $NEARWALK_LAB $COLOUR; cat file; pwd";
    let job = Job::new(["sh", "-c", script])
        .cwd(&dir)
        .env("COLOUR", "deep blue");
    let ran = run(&machine(), job);
    assert_eq!(
        ran.stdout,
        format!("1 deep blue\ncontent{}\n", dir.display())
    );
}

#[test]
fn a_directory_under_tmp_is_visible_and_only_shares_are_written() {
    let here = tempdir_in("/tmp");
    let share = scratch("share");
    fs::write(here.join("seen"), "yes").unwrap();
    let config = VmConfig {
        shares: vec![share.clone()],
        ..machine()
    };
    let script = format!(
        "cat seen && echo changed >seen && cat seen && touch /etc/here /tmp/there && \
         echo result >{}/result",
        share.display()
    );
    let ran = run(&config, Job::new(["sh", "-c", &script]).cwd(&here));
    let seen = fs::read_to_string(here.join("seen")).unwrap();
    fs::remove_dir_all(&here).unwrap();
    assert_eq!(ran.stdout, "yeschanged\n");
    assert_eq!(seen, "yes");
    assert_eq!(
        fs::read_to_string(share.join("result")).unwrap(),
        "result\n"
    );
    assert!(!PathBuf::from("/etc/here").exists());
}

#[test]
fn a_link_under_tmp_to_the_directory_is_followed() {
    let here = tempdir_in("/tmp");
    let real = scratch("real");
    fs::write(real.join("file"), "there").unwrap();
    std::os::unix::fs::symlink(&real, here.join("link")).unwrap();
    let job = Job::new(["cat", "file"]).cwd(here.join("link"));
    let ran = run(&machine(), job);
    fs::remove_dir_all(&here).unwrap();
    assert_eq!(ran.stdout, "there");
}

fn tempdir_in(parent: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("nearwalk-lab-{}-{count}", std::process::id());
    let dir = PathBuf::from(parent).join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn sysctls_are_set_before_the_command() {
    let config = VmConfig {
        sysctls: vec![("vm.nr_hugepages".into(), "4".into())],
        ..machine()
    };
    assert_eq!(
        shell(&config, "cat /proc/sys/vm/nr_hugepages").stdout,
        "4\n"
    );
}

#[test]
fn a_sysctl_that_is_not_there_is_an_error_that_names_it() {
    let config = VmConfig {
        sysctls: vec![("vm.no_such".into(), "4".into())],
        ..machine()
    };
    let error = try_run(&config, Job::new(["true"])).err().unwrap();
    assert!(error.to_string().contains("vm.no_such"), "{error}");
}

#[test]
fn paging_modes_reach_the_kernel() {
    let config = VmConfig {
        la57: true,
        pti: Pti::On,
        append: vec!["loglevel=7".into()],
        ..machine()
    };
    let script = "grep -o -m1 la57 /proc/cpuinfo; dmesg | grep -o 'page tables isolation: enabled'; \
                  dmesg | grep -o '5-level paging enabled' || true";
    let ran = shell(&config, script);
    assert!(ran.stdout.contains("la57\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("isolation: enabled"), "{}", ran.stdout);
}

#[test]
fn a_terminal_has_the_size_that_was_asked_for() {
    let job = Job::new(["sh", "-c", "stty size; test -t 0 && test -t 1 && echo tty"]).terminal(
        Terminal {
            rows: 33,
            cols: 111,
        },
    );
    assert_eq!(run(&machine(), job).stdout, "33 111\r\ntty\r\n");
}

#[test]
fn a_panic_is_a_failure_of_its_own_and_the_log_is_kept() {
    let ran = shell(&machine(), "echo c >/proc/sysrq-trigger; sleep 100");
    assert_eq!(ran.outcome.end, End::Panicked);
    assert_eq!(ran.outcome.exit_code(), 240);
    let finding = ran.outcome.worst_finding().unwrap();
    assert_eq!(finding.kind, FindingKind::Panic);
    let log = fs::read_to_string(ran.outcome.console_log.unwrap()).unwrap();
    assert!(log.contains("Kernel panic - not syncing"), "{log}");
}

#[test]
fn a_kernel_warning_fails_a_command_that_succeeds() {
    let script = "insmod $(find /lib/modules/$(uname -r) -name lkdtm.ko) && \
                  echo WARNING >/sys/kernel/debug/provoke-crash/DIRECT && echo done";
    let ran = shell(&machine(), script);
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(ran.outcome.end, End::Exited(0));
    assert_eq!(ran.outcome.exit_code(), 244);
    assert!(ran.outcome.console_log.is_some());
}

#[test]
fn a_guest_whose_first_process_cannot_run_hangs() {
    let config = VmConfig {
        nodes: NodeSpec::even(1, 1, Size::mib(512)).unwrap(),
        patience: Some(Duration::from_secs(20)),
        sysctls: vec![("kernel.sched_rt_runtime_us".into(), "-1".into())],
        ..machine()
    };
    let ran = shell(&config, "exec chrt -f 99 sh -c 'while :; do :; done'");
    assert!(
        matches!(ran.outcome.end, End::Hung(_)),
        "{:?}",
        ran.outcome.end
    );
    assert_eq!(ran.outcome.exit_code(), 241);
    // The NMI made the kernel say where it was.
    let log = fs::read_to_string(ran.outcome.console_log.unwrap()).unwrap();
    assert!(log.contains("NMI"), "{log}");
}

/// Runs the script until it says "ready", then does this to the machine.
fn when_ready(script: &str, then: impl FnOnce(VmHandle) + Send + 'static) -> (Outcome, String) {
    let out = Capture::default();
    let job = Job::new(["sh", "-c", script]).stdout(out.clone());
    let vm = Vm::start(&machine(), job).unwrap();
    let handle = vm.handle();
    let watched = out.clone();
    std::thread::spawn(move || {
        while !watched.text().contains("ready") {
            std::thread::sleep(Duration::from_millis(50));
        }
        then(handle);
    });
    (vm.wait().unwrap(), out.text())
}

#[test]
fn the_time_limit_ends_a_run() {
    let config = VmConfig {
        timeout: Some(Duration::from_secs(15)),
        ..machine()
    };
    let ran = shell(&config, "sleep 1000");
    assert_eq!(ran.outcome.exit_code(), 124);
}

#[test]
fn a_run_at_its_limit_says_where_it_stands() {
    let script = "echo ready; sleep 1000; true";
    let (outcome, _) = when_ready(script, |handle| handle.end_at_limit());
    assert_eq!(outcome.exit_code(), 124);
    let report = outcome.report();
    for words in ["CPU 1: RIP=", "ISR", "sh ", "looked at, all threads"] {
        assert!(report.contains(words), "no '{words}' in {report}");
    }
}

#[test]
fn a_signal_reaches_the_command() {
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let (outcome, out) = when_ready(script, |handle| handle.signal(2));
    assert_eq!(outcome.end, End::Exited(9));
    assert_eq!(out, "ready\ncaught\n");
}
