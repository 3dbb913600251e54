// SPDX-License-Identifier: GPL-2.0-or-later
//! Traces in a compact format; [`crate::champsim`] has ChampSim's.
//!
//! # Format
//!
//! A trace starts with the eight bytes `SPLTRC` 0x01 0x00 (magic, version 1).
//! Records follow, one per access:
//!
//! | bits of the first byte | meaning |
//! |---|---|
//! | 0 | store |
//! | 1 | the address depends on the previous load |
//! | 2 | another thread than the record before: its number follows |
//! | 3 | work other than 1: one byte follows, after the thread |
//! | 4 | a locked instruction |
//! | 5-7 | 0 |
//!
//! Then, in this order: the thread as an unsigned LEB128 number if bit 2 is
//! set, the work if bit 3 is, and the virtual address as the signed LEB128
//! difference from the previous address of the same thread. The first record
//! is of thread 0 unless it says otherwise; every thread's first difference is
//! from 0. A trace ends with the file; one that ends inside a record is an
//! error. Sequential accesses take two bytes each, random ones about seven.

use crate::access::{Access, Source};
use std::io::{self, Read, Write};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"SPLTRC\x01\x00";
const STORE: u8 = 1;
const DEPENDENT: u8 = 2;
const THREAD: u8 = 4;
const WORK: u8 = 8;
const LOCKED: u8 = 16;
/// Threads that a trace may have.
pub const MAX_THREADS: usize = 65_536;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The reader or writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a trace, or of another version.
    #[error("not a trace of version 1: starts with {0:02x?}, wanted {MAGIC:02x?}")]
    Magic([u8; 8]),
    /// A record that cannot be.
    #[error("record {record}: {what}")]
    Record {
        /// Number of the record, from 0.
        record: u64,
        /// What is wrong.
        what: String,
    },
}

/// Writes accesses as they come.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    out: W,
    thread: usize,
    last: Vec<u64>,
}

impl<W: Write> Recorder<W> {
    /// Starts a trace on `out`, which should be buffered.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        Ok(Recorder {
            out,
            thread: 0,
            last: vec![0],
        })
    }

    /// Appends one access of `thread`, which is below [`MAX_THREADS`].
    ///
    /// # Errors
    /// If the writer fails or the thread is out of range.
    pub fn record(&mut self, thread: usize, a: Access) -> io::Result<()> {
        if thread >= MAX_THREADS {
            let what = format!("thread {thread}; 0 to {} are allowed", MAX_THREADS - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if self.last.len() <= thread {
            self.last.resize(thread + 1, 0);
        }
        let mut head = 0;
        head |= if a.write { STORE } else { 0 };
        head |= if a.dependent { DEPENDENT } else { 0 };
        head |= if thread != self.thread { THREAD } else { 0 };
        head |= if a.work != 1 { WORK } else { 0 };
        head |= if a.locked { LOCKED } else { 0 };
        let mut bytes = Vec::with_capacity(16);
        bytes.push(head);
        if head & THREAD != 0 {
            unsigned(&mut bytes, thread as u64);
            self.thread = thread;
        }
        if head & WORK != 0 {
            bytes.push(a.work);
        }
        signed(&mut bytes, a.va.wrapping_sub(self.last[thread]) as i64);
        self.last[thread] = a.va;
        self.out.write_all(&bytes)
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn unsigned(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn signed(out: &mut Vec<u8>, mut v: i64) {
    loop {
        let low = (v & 0x7f) as u8;
        v >>= 7;
        let done = (v == 0 && low & 0x40 == 0) || (v == -1 && low & 0x40 != 0);
        out.push(if done { low } else { low | 0x80 });
        if done {
            return;
        }
    }
}

struct Cursor<R> {
    input: R,
    record: u64,
}

impl<R: Read> Cursor<R> {
    fn bad(&self, what: impl Into<String>) -> TraceError {
        TraceError::Record {
            record: self.record,
            what: what.into(),
        }
    }

    fn byte_or_end(&mut self) -> Result<Option<u8>, TraceError> {
        let mut b = [0];
        loop {
            match self.input.read(&mut b) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(b[0])),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        self.byte_or_end()?
            .ok_or_else(|| self.bad("the trace ends inside it"))
    }

    /// Bits of a LEB128 number and how many there are.
    fn leb(&mut self) -> Result<(u64, u32), TraceError> {
        let (mut v, mut shift) = (0u64, 0);
        loop {
            let b = self.byte()?;
            if shift > 63 {
                return Err(self.bad("a number of more than 64 bits"));
            }
            v |= u64::from(b & 0x7f) << shift;
            shift += 7;
            if b & 0x80 == 0 {
                return Ok((v, shift));
            }
        }
    }

    fn signed(&mut self) -> Result<i64, TraceError> {
        let (v, bits) = self.leb()?;
        let sign = bits < 64 && v >> (bits - 1) & 1 == 1;
        Ok(if sign {
            v as i64 | -1i64 << bits
        } else {
            v as i64
        })
    }
}

/// Reads a whole trace: the accesses of each thread. `input` should be
/// buffered.
///
/// # Errors
/// [`TraceError`] names the record and what is wrong with it.
pub fn read(input: impl Read) -> Result<Vec<Vec<Access>>, TraceError> {
    let mut c = Cursor { input, record: 0 };
    let mut magic = [0; 8];
    c.input.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(TraceError::Magic(magic));
    }
    let (mut threads, mut last, mut thread) = (vec![Vec::new()], vec![0u64], 0usize);
    while let Some(head) = c.byte_or_end()? {
        if head & !(STORE | DEPENDENT | THREAD | WORK | LOCKED) != 0 {
            return Err(c.bad(format!("reserved bits set in {head:#04x}")));
        }
        if head & THREAD != 0 {
            let (n, _) = c.leb()?;
            if n >= MAX_THREADS as u64 {
                let most = MAX_THREADS - 1;
                return Err(c.bad(format!("thread {n}; 0 to {most} are allowed")));
            }
            thread = n as usize;
            if threads.len() <= thread {
                threads.resize(thread + 1, Vec::new());
                last.resize(thread + 1, 0);
            }
        }
        let work = if head & WORK != 0 { c.byte()? } else { 1 };
        last[thread] = last[thread].wrapping_add(c.signed()? as u64);
        threads[thread].push(Access {
            va: last[thread],
            write: head & STORE != 0,
            dependent: head & DEPENDENT != 0,
            locked: head & LOCKED != 0,
            work,
        });
        c.record += 1;
    }
    Ok(threads)
}

/// Replays the accesses of one thread over and over.
#[derive(Debug, Clone)]
pub struct Replay {
    accesses: Arc<[Access]>,
    at: usize,
}

impl Replay {
    /// A source of `accesses`; `None` if there are none.
    pub fn new(accesses: impl Into<Arc<[Access]>>) -> Option<Self> {
        let accesses = accesses.into();
        (!accesses.is_empty()).then_some(Replay { accesses, at: 0 })
    }
}

impl Source for Replay {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let end = (self.at + 64).min(self.accesses.len());
        out.extend_from_slice(&self.accesses[self.at..end]);
        self.at = if end == self.accesses.len() { 0 } else { end };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Rng;

    /// An access of any kind, near or far from any other.
    fn any(rng: &mut Rng) -> Access {
        let distance = 1 << (3 + rng.below(30));
        Access {
            va: ((1 + rng.below(3)) << 40) + rng.below(distance),
            write: rng.below(2) == 0,
            dependent: rng.below(2) == 0,
            locked: rng.below(8) == 0,
            work: rng.below(256) as u8,
        }
    }

    #[test]
    fn what_was_recorded_is_replayed() {
        let mut want = vec![Vec::new(); 3];
        let mut recorder = Recorder::new(Vec::new()).unwrap();
        let mut rng = Rng::new(3);
        for list in &mut want {
            list.extend((0..1_000).map(|_| any(&mut rng)));
            list.push(Access::load(u64::MAX).with_work(9));
            list.push(Access::store(0));
        }
        let mut next = [0; 3];
        let total: usize = want.iter().map(Vec::len).sum();
        while next.iter().sum::<usize>() < total {
            let t = rng.below(3) as usize;
            if let Some(a) = want[t].get(next[t]) {
                recorder.record(t, *a).unwrap();
                next[t] += 1;
            }
        }
        let bytes = recorder.finish().unwrap();
        assert!(bytes.len() < 9 * total, "{} bytes for {total}", bytes.len());
        assert_eq!(read(&bytes[..]).unwrap(), want);

        let cut = read(&bytes[..bytes.len() - 1]).unwrap_err().to_string();
        assert!(cut.contains("ends inside"), "{cut}");
    }

    #[test]
    fn sequential_accesses_take_two_bytes() {
        let mut r = Recorder::new(Vec::new()).unwrap();
        (0..100).for_each(|i| r.record(0, Access::load(i * 8)).unwrap());
        assert_eq!(r.finish().unwrap().len(), 8 + 200);
    }

    #[test]
    fn bad_traces_are_refused() {
        assert!(matches!(read(&b"NOTATRACE"[..]), Err(TraceError::Magic(_))));
        let e = read(&b"SPLTRC\x01\x00\xf0\x00"[..])
            .unwrap_err()
            .to_string();
        assert!(e.contains("record 0") && e.contains("reserved"), "{e}");
        let e = read(&b"SPLTRC\x01\x00\x04\xff\xff\xff\x7f\x00"[..])
            .unwrap_err()
            .to_string();
        assert!(e.contains("65535"), "{e}");
        let mut r = Recorder::new(Vec::new()).unwrap();
        assert!(r.record(MAX_THREADS, Access::load(0)).is_err());
    }
}
