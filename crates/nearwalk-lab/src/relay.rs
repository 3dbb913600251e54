// SPDX-License-Identifier: GPL-2.0-or-later
//! Carries the command's input and output between the host and QEMU's ports,
//! each stream in a thread of its own.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Condvar, Mutex, mpsc::Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{Input, vm::Event};

/// How much of an output stream has arrived.
#[derive(Default)]
pub struct Progress {
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Progress {
    fn advance(&self, bytes: u64, closed: bool) {
        let mut state = self.state.lock().unwrap();
        state.0 += bytes;
        state.1 |= closed;
        self.changed.notify_all();
    }

    /// Waits until `bytes` have arrived or no more can; false if neither
    /// happened within `limit`.
    pub fn wait_for(&self, bytes: u64, limit: Duration) -> bool {
        let state = self.state.lock().unwrap();
        let (_guard, waited) = self
            .changed
            .wait_timeout_while(state, limit, |&mut (have, closed)| have < bytes && !closed)
            .unwrap();
        !waited.timed_out()
    }
}

/// Copies `port` to `sink` until the port ends. If nobody reads the sink any
/// more, says so once and goes on taking what the guest writes.
pub fn output(
    mut port: UnixStream,
    mut sink: Box<dyn Write + Send>,
    events: Sender<Event>,
) -> (Arc<Progress>, JoinHandle<()>) {
    let progress = Arc::new(Progress::default());
    let shared = Arc::clone(&progress);
    let thread = thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        let mut gone = false;
        while let Ok(count @ 1..) = port.read(&mut buffer) {
            if !gone
                && sink
                    .write_all(&buffer[..count])
                    .and_then(|()| sink.flush())
                    .is_err()
            {
                gone = true;
                let _ = events.send(Event::SinkGone);
            }
            shared.advance(count as u64, false);
        }
        shared.advance(0, true);
    });
    (progress, thread)
}

/// Copies `from` to `port`; at its end tells the guest how much there was. The
/// thread may outlive the VM, waiting for input that nobody needs.
pub fn input(from: Input, mut port: UnixStream, mut ctl: UnixStream) {
    let mut from: Box<dyn Read + Send> = match from {
        Input::Null => Box::new(io::empty()),
        Input::Inherit => Box::new(io::stdin()),
        Input::Reader(reader) => reader,
    };
    thread::spawn(move || {
        let mut sent = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if port.write_all(&buffer[..count]).is_err() => return,
                Ok(count) => sent += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = ctl.write_all(format!("eof {sent}\n").as_bytes());
        // Kept open: the guest must not see its end before the data.
        let _ = port.read(&mut buffer);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn progress_counts_what_arrived_and_notices_the_end() {
        let (mut guest, port) = UnixStream::pair().unwrap();
        let (progress, thread) = output(port, Box::new(io::sink()), mpsc::channel().0);
        guest.write_all(b"12345").unwrap();
        assert!(progress.wait_for(5, Duration::from_secs(60)));
        assert!(!progress.wait_for(6, Duration::from_millis(1)));
        drop(guest);
        thread.join().unwrap();
        assert!(progress.wait_for(6, Duration::ZERO));
    }

    #[test]
    fn a_sink_that_is_gone_does_not_stop_the_guest() {
        let (mut guest, port) = UnixStream::pair().unwrap();
        let (events, received) = mpsc::channel();
        let (progress, _) = output(port, Box::new(Full), events);
        guest.write_all(b"12345").unwrap();
        assert!(progress.wait_for(5, Duration::from_secs(60)));
        assert!(matches!(received.recv(), Ok(Event::SinkGone)));
    }

    #[test]
    fn the_end_of_input_comes_with_its_length() {
        let (mut guest, port) = UnixStream::pair().unwrap();
        let (mut control, ctl) = UnixStream::pair().unwrap();
        input(Input::Reader(Box::new(&b"hello"[..])), port, ctl);
        let mut data = [0; 5];
        guest.read_exact(&mut data).unwrap();
        let mut line = [0; 6];
        control.read_exact(&mut line).unwrap();
        assert_eq!((&data, &line), (b"hello", b"eof 5\n"));
    }
}
