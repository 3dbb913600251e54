// SPDX-License-Identifier: GPL-2.0-or-later
//! The little of QEMU's monitor protocol that the lab needs: sending a command
//! and waiting until it is done.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::Value;

pub struct Monitor {
    write: UnixStream,
    read: BufReader<UnixStream>,
}

impl Monitor {
    /// Takes the connection; the greeting is read with the first command.
    pub fn new(stream: UnixStream) -> std::io::Result<Monitor> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Monitor {
            write: stream.try_clone()?,
            read: BufReader::new(stream),
        })
    }

    /// Sends an NMI to every CPU of the guest, which makes a lab kernel that
    /// still can print where each CPU is, and stop.
    pub fn inject_nmi(&mut self) -> std::io::Result<()> {
        self.execute("qmp_capabilities")?;
        self.execute("inject-nmi")
    }

    fn execute(&mut self, command: &str) -> std::io::Result<()> {
        writeln!(self.write, "{}", serde_json::json!({ "execute": command }))?;
        loop {
            let mut line = String::new();
            if self.read.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if message.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = message.get("error") {
                return Err(std::io::Error::other(error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_from_greeting_and_events() {
        let (mut qemu, ours) = UnixStream::pair().unwrap();
        qemu.write_all(
            b"{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"STOP\"}\n{\"return\": {}}\n",
        )
        .unwrap();
        Monitor::new(ours).unwrap().inject_nmi().unwrap();
        let mut sent = BufReader::new(qemu).lines();
        let first = sent.next().unwrap().unwrap();
        assert_eq!(first, r#"{"execute":"qmp_capabilities"}"#);
        assert_eq!(sent.next().unwrap().unwrap(), r#"{"execute":"inject-nmi"}"#);
    }

    #[test]
    fn an_error_is_passed_on() {
        let (mut qemu, ours) = UnixStream::pair().unwrap();
        qemu.write_all(b"{\"error\": {\"desc\": \"no\"}}\n")
            .unwrap();
        let error = Monitor::new(ours).unwrap().inject_nmi().unwrap_err();
        assert!(error.to_string().contains("no"));
    }
}
