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
    /// The number of the last message: an answer that comes too late is not taken for
    /// the next one's.
    id: u64,
}

impl Monitor {
    /// Takes the connection; the greeting is read with the first command.
    pub fn new(stream: UnixStream) -> io::Result<Monitor> {
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Monitor {
            write: stream.try_clone()?,
            read: BufReader::new(stream),
            ready: false,
            id: 0,
        })
    }

    /// Sends an NMI to every CPU of the guest, which makes a lab kernel that
    /// still can print where each CPU is, and stop.
    pub fn inject_nmi(&mut self) -> io::Result<()> {
        self.begin()?;
        self.execute("inject-nmi").map(drop)
    }

    /// For each of the guest's CPUs a line: what it executes, whether it is halted,
    /// and the interrupts that its local APIC has in service and those that wait.
    /// Those that have been asked for until one fails are kept.
    pub fn cpu_states(&mut self, cpus: u32, states: &mut Vec<String>) -> io::Result<()> {
        self.begin()?;
        for cpu in 0..cpus {
            let registers = self.ask(cpu, "info registers")?;
            let apic = self.ask(cpu, "info lapic")?;
            states.push(format!("CPU {cpu}: {}", cpu_state(&registers, &apic)));
        }
        Ok(())
    }

    /// What QEMU's monitor for people says about this CPU.
    fn ask(&mut self, cpu: u32, question: &str) -> io::Result<String> {
        let arguments = serde_json::json!({ "command-line": question, "cpu-index": cpu });
        let answer = self.execute_with("human-monitor-command", arguments)?;
        Ok(answer.as_str().unwrap_or_default().to_string())
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
        self.send(serde_json::json!({ "execute": command }))
    }

    fn execute_with(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        self.send(serde_json::json!({ "execute": command, "arguments": arguments }))
    }

    fn send(&mut self, mut message: Value) -> io::Result<Value> {
        self.id += 1;
        message["id"] = self.id.into();
        writeln!(self.write, "{message}")?;
        loop {
            let mut line = String::new();
            if self.read.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if message.get("id").and_then(Value::as_u64) != Some(self.id) {
                continue;
            }
            if let Some(value) = message.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = message.get("error") {
                return Err(io::Error::other(error.to_string()));
            }
        }
    }
}

/// RIP, RFL, HLT of the registers, ISR and IRR of the local APIC.
fn cpu_state(registers: &str, apic: &str) -> String {
    let of_cpu = registers.split_ascii_whitespace().filter(|word| {
        ["RIP=", "RFL=", "HLT="]
            .iter()
            .any(|key| word.starts_with(key))
    });
    let of_apic = apic
        .lines()
        .filter(|line| line.starts_with("ISR") || line.starts_with("IRR"))
        .flat_map(str::split_ascii_whitespace);
    of_cpu.chain(of_apic).collect::<Vec<_>>().join(" ")
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
        let (mut monitor, qemu) = monitor(
            b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 1}\n{\"event\": \"STOP\"}\n\
                      {\"return\": {}, \"id\": 2}\n",
        );
        monitor.inject_nmi().unwrap();
        assert_eq!(
            sent(monitor, qemu),
            [
                r#"{"execute":"qmp_capabilities","id":1}"#,
                r#"{"execute":"inject-nmi","id":2}"#
            ]
        );
    }

    #[test]
    fn an_answer_that_was_given_up_is_not_the_next_ones() {
        let (mut monitor, _qemu) = monitor(
            b"{\"return\": {}, \"id\": 1}\n{\"return\": [], \"id\": 0}\n\
              {\"return\": \"RIP=1\", \"id\": 2}\n{\"return\": \"IRR 7\", \"id\": 3}\n",
        );
        let mut states = Vec::new();
        monitor.cpu_states(1, &mut states).unwrap();
        assert_eq!(states, ["CPU 0: RIP=1 IRR 7"]);
    }

    #[test]
    fn an_error_is_passed_on() {
        let (mut monitor, _qemu) = monitor(b"{\"error\": {\"desc\": \"no\"}, \"id\": 1}\n");
        let error = monitor.inject_nmi().unwrap_err();
        assert!(error.to_string().contains("no"));
    }

    #[test]
    fn of_a_cpu_what_tells_a_lost_interrupt_is_kept() {
        let registers = "CPU#1\nRAX=00 RBX=01\nRIP=ffffffff81000000 RFL=00000246 [---Z-P-] \
                         CPL=0 II=0 A20=1 SMM=0 HLT=1\nES =0000";
        let apic = "dumping local APIC state for CPU 1\n\nESR\t 0x00000000\n\
                    ISR\t (none)\nIRR\t 236 253 \n\nAPR 0x00 TPR 0x00";
        assert_eq!(
            cpu_state(registers, apic),
            "RIP=ffffffff81000000 RFL=00000246 HLT=1 ISR (none) IRR 236 253"
        );
    }

    #[test]
    fn threads_are_in_the_order_of_cpus_and_the_greeting_is_sent_once() {
        let (mut monitor, qemu) = monitor(
            b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 1}\n{\"return\": [{\"cpu-index\": 1, \"thread-id\": 8}, \
              {\"cpu-index\": 0, \"thread-id\": 9}], \"id\": 2}\n{\"return\": {}, \"id\": 3}\n",
        );
        assert_eq!(monitor.cpu_threads().unwrap(), [9, 8]);
        monitor.resume().unwrap();
        assert_eq!(
            sent(monitor, qemu),
            [
                r#"{"execute":"qmp_capabilities","id":1}"#,
                r#"{"execute":"query-cpus-fast","id":2}"#,
                r#"{"execute":"cont","id":3}"#
            ]
        );
    }
}
