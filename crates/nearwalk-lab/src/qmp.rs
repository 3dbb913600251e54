// SPDX-License-Identifier: GPL-2.0-or-later
//! The little of QEMU's monitor protocol that the lab needs: sending a command
//! and waiting until it is done.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::Value;

/// What an answer may take; the first one waits for QEMU's own start, in a
/// guest that is emulated itself.
const ANSWER: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_secs(120);

pub struct Monitor {
    write: UnixStream,
    read: BufReader<UnixStream>,
    ready: bool,
}

impl Monitor {
    /// Takes the connection; the greeting is read with the first command.
    pub fn new(stream: UnixStream) -> io::Result<Monitor> {
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Monitor {
            write: stream.try_clone()?,
            read: BufReader::new(stream),
            ready: false,
        })
    }

    /// Sends an NMI to every CPU of the guest, which makes a lab kernel that
    /// still can print where each CPU is, and stop.
    pub fn inject_nmi(&mut self) -> io::Result<()> {
        self.begin()?;
        self.execute("inject-nmi").map(drop)
    }

    /// The threads that run the guest's CPUs, by the numbers of those. Waits until
    /// QEMU has made them.
    pub fn cpu_threads(&mut self) -> io::Result<Vec<i32>> {
        self.read.get_ref().set_read_timeout(Some(START))?;
        self.begin()?;
        let answer = self.execute("query-cpus-fast")?;
        self.read.get_ref().set_read_timeout(Some(ANSWER))?;
        let number = |cpu: &Value, key: &str| cpu.get(key).and_then(Value::as_i64);
        let mut cpus: Vec<(i64, i32)> = answer
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|cpu| {
                let thread = number(cpu, "thread-id")?;
                Some((number(cpu, "cpu-index")?, i32::try_from(thread).ok()?))
            })
            .collect();
        cpus.sort_unstable();
        Ok(cpus.into_iter().map(|(_, thread)| thread).collect())
    }

    /// Starts CPUs that waited for it (`-S`).
    pub fn resume(&mut self) -> io::Result<()> {
        self.begin()?;
        self.execute("cont").map(drop)
    }

    /// QEMU takes this once.
    fn begin(&mut self) -> io::Result<()> {
        if !self.ready {
            self.execute("qmp_capabilities")?;
            self.ready = true;
        }
        Ok(())
    }

    fn execute(&mut self, command: &str) -> io::Result<Value> {
        writeln!(self.write, "{}", serde_json::json!({ "execute": command }))?;
        loop {
            let mut line = String::new();
            if self.read.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if let Some(value) = message.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = message.get("error") {
                return Err(io::Error::other(error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(answers: &[u8]) -> (Monitor, UnixStream) {
        let (mut qemu, ours) = UnixStream::pair().unwrap();
        qemu.write_all(answers).unwrap();
        (Monitor::new(ours).unwrap(), qemu)
    }

    fn sent(monitor: Monitor, qemu: UnixStream) -> Vec<String> {
        drop(monitor);
        BufReader::new(qemu).lines().map(Result::unwrap).collect()
    }

    #[test]
    fn replies_are_told_from_greeting_and_events() {
        let (mut monitor, qemu) =
            monitor(b"{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"STOP\"}\n{\"return\": {}}\n");
        monitor.inject_nmi().unwrap();
        assert_eq!(
            sent(monitor, qemu),
            [
                r#"{"execute":"qmp_capabilities"}"#,
                r#"{"execute":"inject-nmi"}"#
            ]
        );
    }

    #[test]
    fn an_error_is_passed_on() {
        let (mut monitor, _qemu) = monitor(b"{\"error\": {\"desc\": \"no\"}}\n");
        let error = monitor.inject_nmi().unwrap_err();
        assert!(error.to_string().contains("no"));
    }

    #[test]
    fn threads_are_in_the_order_of_cpus_and_the_greeting_is_sent_once() {
        let (mut monitor, qemu) = monitor(
            b"{\"QMP\": {}}\n{\"return\": {}}\n{\"return\": [{\"cpu-index\": 1, \"thread-id\": 8}, \
              {\"cpu-index\": 0, \"thread-id\": 9}]}\n{\"return\": {}}\n",
        );
        assert_eq!(monitor.cpu_threads().unwrap(), [9, 8]);
        monitor.resume().unwrap();
        assert_eq!(
            sent(monitor, qemu),
            [
                r#"{"execute":"qmp_capabilities"}"#,
                r#"{"execute":"query-cpus-fast"}"#,
                r#"{"execute":"cont"}"#
            ]
        );
    }
}
