// SPDX-License-Identifier: GPL-2.0-or-later
//! The program in the guest: memcached and its clients, which ask from the first command
//! to the last. A command a line of standard input, an answer a line of standard output.
//!
//! While something takes long, lines that begin with `still` say how far it is.
//!
//! | command | what | answer after `ok` |
//! |---|---|---|
//! | `ask MILLISECONDS` | nothing but that time passes | requests so far |
//! | `set TEXT` | what the guest's kernel keeps for memcached | |
//! | `check` | that kernel compares copies with what they are of | tables, entries, differences |
//! | `dump FILE` | memcached's page tables | |

use std::{
    fs,
    io::{self, BufRead, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::model::Load;
use crate::{
    guest::{
        load::{Clients, Data, Shared},
        machine,
        server::Server,
        tables,
    },
    model::{Phase, Stage},
};

/// How often a long step tells how far it is.
const TICK: Duration = Duration::from_secs(2);

/// Stores `bytes` in values of `value_size` and answers commands until there are none.
pub fn serve(bytes: u64, value_size: u64) -> anyhow::Result<()> {
    let done = run(bytes, value_size);
    if let Err(error) = &done {
        say(&format!("failed {error:#}"))?;
    }
    done
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())?;
    Ok(())
}

fn run(bytes: u64, value_size: u64) -> anyhow::Result<()> {
    let machine = machine::look()?;
    let nodes = machine.nodes.iter();
    let cpus: Vec<u32> = nodes.flat_map(|node| node.cpus.iter().copied()).collect();
    say(&format!("ok {}", machine.release))?;
    let mut server = Server::start(&cpus, bytes)?;
    let mut clients = Clients::connect(server.address, &cpus)?;
    let values = bytes / value_size;
    let data = Data {
        values,
        value_size: value_size as usize,
    };
    let mut shared = Shared::new(data, Phase::Stay(Stage::Before));
    let mut told = Instant::now();
    let mut still = |what: &str, done| match told.elapsed() > TICK {
        true => {
            told = Instant::now();
            say(&format!("still {what}: {done} of {values} values"))
        }
        false => Ok(()),
    };
    clients.store_all(&shared, |done| still("storing", done))?;
    say(&format!("ok {} {} {values}", server.pid(), server.version))?;

    shared.begin();
    let (done, load) = clients.ask_during(&shared, || obey_all(&mut server, &shared));
    done?;
    let mut load = Load {
        requests: load.gets + load.sets,
        failed: load.failed,
        wrong: load.wrong,
        read_back: 0,
        examples: load.examples,
    };
    if load.failed + load.wrong == 0 {
        clients.read_all(&shared, |done| still("reading back", done))?;
        load.read_back = values;
    }
    say(&format!("ok {}", serde_json::to_string(&load)?))
}

fn obey_all(server: &mut Server, shared: &Shared) -> anyhow::Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line == "stop" {
            return Ok(());
        }
        match obey(server, shared, &line) {
            Ok(answer) => say(&format!("ok {answer}"))?,
            Err(error) => say(&format!("failed {error:#}"))?,
        }
    }
    bail!("the machine does not say more")
}

fn obey(server: &mut Server, shared: &Shared, line: &str) -> anyhow::Result<String> {
    if let Some(ended) = server.has_ended() {
        bail!(ended);
    }
    match line.split_once(' ').unwrap_or((line, "")) {
        ("ask", time) => {
            thread::sleep(Duration::from_millis(time.parse()?));
            Ok(shared.answered().to_string())
        }
        ("set", text) => {
            let path = format!("/proc/{}/pgtable_repl", server.pid());
            fs::write(&path, text).with_context(|| format!("'{text}' into {path}"))?;
            Ok(String::new())
        }
        ("check", "") => {
            let check = tables::check(server.pid(), Stage::Replicated)?;
            Ok(format!(
                "{} {} {}",
                check.tables, check.entries, check.differences
            ))
        }
        ("dump", file) => {
            nearwalk_bench::vm::dump(server.pid(), Path::new(file)).map(|()| String::new())
        }
        _ => bail!("'{line}' is no command"),
    }
}
