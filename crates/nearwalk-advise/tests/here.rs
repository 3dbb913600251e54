// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk advise` of processes that run here, as if every other CPU were on
//! another node: what is read of them, how long that takes, and how they end
//! is real.

mod common;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Ran, answer, run_with, scratch};
use nearwalk_advise::subject::LiveInstruments;
use nearwalk_host::{Error, Live, Source, parse_list};

/// This host with a second node.
#[derive(Default)]
struct TwoNodes {
    live: Live,
    /// Whom to end when the look is on, and after how many waits.
    ends: Option<(Child, usize)>,
    /// A file to make when the look is on.
    tells: Option<PathBuf>,
}

impl Source for TwoNodes {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        let Ok(file) = path.strip_prefix("/sys/devices/system/node") else {
            return self.live.read(path);
        };
        let cpus = |odd: u32| {
            let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
            let mut cpus = parse_list(&online).unwrap();
            cpus.retain(|cpu| cpu % 2 == odd);
            let words: Vec<String> = cpus.iter().map(u32::to_string).collect();
            words.join(",")
        };
        Ok(match file.to_str().unwrap() {
            "online" => "0-1\n".into(),
            "node0/cpulist" => cpus(0),
            "node1/cpulist" => cpus(1),
            "node0/meminfo" => "Node 0 PageTables: 40000 kB\n".into(),
            "node1/meminfo" => "Node 1 PageTables: 40000 kB\n".into(),
            "node0/distance" => "10 21\n".into(),
            "node1/distance" => "21 10\n".into(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        })
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.live.list(path)
    }

    fn now(&self) -> Duration {
        self.live.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.live.wait(time)?;
        if let Some(file) = self.tells.take() {
            std::fs::write(file, "").unwrap();
        }
        if let Some((child, waits)) = &mut self.ends {
            if *waits == 0 {
                let _ = child.kill();
                child.wait().unwrap();
            }
            *waits = waits.saturating_sub(1);
        }
        Ok(())
    }
}

fn run_here(host: &mut TwoNodes, words: &[&str]) -> Ran {
    run_with(host, &mut LiveInstruments::default(), words)
}

/// Something that runs until it is killed.
fn busy() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    command.stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_process_is_looked_at_and_answered_alike_from_its_recording() {
    let mut busy = busy();
    let pid = busy.id().to_string();
    let dir = scratch("here");
    let words = [&pid, "--seconds", "0.5", "--json", "--record"];
    let words = [&words[..], &[dir.to_str().unwrap()]].concat();
    let ran = run_here(&mut TwoNodes::default(), &words);
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(answer(&dir, &["--json"]), ran.out);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["subject"]["pid"].to_string(), pid);
    assert_eq!(json["subject"]["threads"], 1);
    assert!(json["seconds"].as_f64().unwrap() >= 0.5, "{json}");
    let input = |name: &str| {
        let inputs = json["inputs"].as_array().unwrap();
        inputs
            .iter()
            .find(|input| input["name"] == name)
            .unwrap()
            .clone()
    };
    assert!(input("tables_bytes")["value"].as_u64().unwrap() > 0);
    if let Some(shares) = input("cpu_time")["value"].as_array() {
        let sum: f64 = shares.iter().map(|share| share.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{shares:?}");
    }
    // Either there are counters, or it is said why not.
    let cycles = input("cycles_per_walk");
    assert!(
        cycles["value"].is_f64() || cycles["missing"].is_string(),
        "{cycles}"
    );
}

#[test]
fn who_is_killed_while_it_is_looked_at_is_lost() {
    let child = busy();
    let pid = child.id().to_string();
    let mut host = TwoNodes {
        ends: Some((child, 1)),
        ..TwoNodes::default()
    };
    let ran = run_here(&mut host, &[&pid, "--seconds", "1"]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("ended within the"), "{}", ran.err);
}

#[test]
fn a_command_that_ends_before_the_look_does_is_lost() {
    let dir = scratch("here-ends");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("on");
    let command = format!("until [ -e {} ]; do sleep 0.05; done", file.display());
    let mut host = TwoNodes {
        tells: Some(file),
        ..TwoNodes::default()
    };
    let words = ["--seconds", "600", "--", "sh", "-c", &command];
    let ran = run_here(&mut host, &words);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("the command ended after"), "{}", ran.err);
}
