// SPDX-License-Identifier: GPL-2.0-or-later
//! memcached, with a worker thread on each CPU.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::Pid;

use super::{
    PATIENCE,
    client::{Client, ClientError},
    machine,
};

const PROGRAM: &str = "memcached";
/// What it calls its workers.
const WORKER: &str = "mc-worker";

/// A running server; ends when this is dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    pub version: String,
}

impl Server {
    /// Starts a server with a worker pinned to each of `cpus` and room for
    /// `bytes` of values.
    ///
    /// A worker touches first, and so places, the memory that it takes for new
    /// values, and with it the tables that map it: with workers on all nodes,
    /// and kept there, tables lie on all nodes.
    pub fn start(cpus: &[u32], bytes: u64) -> anyhow::Result<Server> {
        let address = free_address().context("no free port")?;
        // Values lie in chunks of a few sizes, so some of each chunk is lost.
        let mebibytes = bytes.div_ceil(1 << 20) * 3 / 2 + 128;
        let child = Command::new(PROGRAM)
            .args(["--user=nobody", "--listen=127.0.0.1", "--udp-port=0"])
            .arg(format!("--port={}", address.port()))
            .arg(format!("--threads={}", cpus.len()))
            .arg(format!("--memory-limit={mebibytes}"))
            // Rather refuse than lose a value.
            .arg("--disable-evictions")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| {
                format!("cannot run {PROGRAM}; `scripts/setup.sh demo` installs it")
            })?;
        let mut server = Server {
            child,
            address,
            version: String::new(),
        };
        server.wait_until_it_answers()?;
        server.pin_workers(cpus)?;
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the server has ended by itself.
    pub fn has_ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{PROGRAM} has ended: {status}"))
    }

    fn wait_until_it_answers(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Client::connect(self.address) {
                Ok(mut client) => {
                    self.version = client.version()?;
                    return Ok(());
                }
                Err(ClientError::Connect { .. }) if Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(ended) = self.has_ended() {
                bail!(ended);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn pin_workers(&self, cpus: &[u32]) -> anyhow::Result<()> {
        let tasks = format!("/proc/{}/task", self.pid());
        let mut workers = Vec::new();
        for entry in fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}"))? {
            let entry = entry?;
            if machine::read(entry.path().join("comm"))?.trim() == WORKER {
                let tid = entry.file_name().to_str().and_then(|tid| tid.parse().ok());
                workers.extend(tid.and_then(Pid::from_raw));
            }
        }
        // Threads start one after the other, each with a higher number.
        workers.sort_by_key(|worker| worker.as_raw_nonzero());
        if workers.len() != cpus.len() {
            bail!(
                "{PROGRAM} {} has {} threads called {WORKER}; {} were asked for",
                self.version,
                workers.len(),
                cpus.len()
            );
        }
        for (worker, &cpu) in workers.into_iter().zip(cpus) {
            machine::pin(Some(worker), cpu)?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
