// SPDX-License-Identifier: GPL-2.0-or-later
//! What a run whose limit has passed, or whose guest hangs, says of where it stands
//! before it is ended.

use std::{io, sync::mpsc::RecvTimeoutError, thread, time::Duration};

use crate::{
    qmp::Monitor,
    vm::{Event, LAST_WORDS, TICK, Vm},
};

/// What the guest's first process gets to look at all threads, by the guest's clock.
const LOOK: Duration = Duration::from_secs(20);
/// What a command that hears of the limit gets to say where it stands: it may be a
/// run of a guest of its own, which does all of this first.
const FAREWELL: Duration = Duration::from_secs(60);

impl Vm {
    /// Has the guest print what each thread waits for, and the command, if it wants
    /// to hear of it, say the same of itself.
    pub(crate) fn ask_what(&mut self, ready: bool) {
        if self.monitor.is_none() {
            return;
        }
        self.ask_cpus();
        if ready {
            self.handle.send("where\n");
            if !self.wait_until(LOOK, |event| matches!(event, Event::Told)) {
                return;
            }
        }
        if let Some(signal) = self.limit_signal.filter(|_| ready) {
            self.handle.signal(signal);
            let mut sizes = None;
            let mut ended = false;
            self.wait_until(FAREWELL, |event| match event {
                Event::Exit(_, out, err) => {
                    sizes = Some((*out, *err));
                    true
                }
                // The port may be slower than the console was.
                Event::Ended => {
                    ended = true;
                    false
                }
                _ => false,
            });
            if let Some((out, err)) = sizes {
                self.collect(out, err, ended);
            }
        }
    }

    /// Makes a hung guest print where its CPUs are, if it still can.
    pub(crate) fn ask_where(&mut self) {
        self.ask_cpus();
        let asked = self.monitor.as_mut().map(Monitor::inject_nmi);
        // It has been sent, also if the answer takes long.
        let sent = match asked {
            Some(Ok(())) => true,
            Some(Err(error)) => error.kind() == io::ErrorKind::WouldBlock,
            None => false,
        };
        if !sent {
            return;
        }
        let mut clock = self.qemu.progress();
        while clock.tick() < LAST_WORDS && !self.qemu.has_ended() {
            thread::sleep(TICK);
        }
    }

    fn ask_cpus(&mut self) {
        if let Some(monitor) = &mut self.monitor {
            // What was answered until then is shown.
            let _ = monitor.cpu_states(self.cpus, &mut self.states);
        }
    }

    /// False: somebody wants the machine ended now.
    fn wait_until(&mut self, limit: Duration, mut done: impl FnMut(&Event) -> bool) -> bool {
        let mut clock = self.qemu.progress();
        while clock.tick() < limit && !self.qemu.has_ended() {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Kill) => return false,
                Ok(event) if done(&event) => return true,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
        true
    }
}
