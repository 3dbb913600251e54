// SPDX-License-Identifier: GPL-2.0-or-later
//! `--verify`: the process stands still, and what it has is the same afterwards.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

use crate::error::Error;
use crate::memory::{Live, PAGE};
use crate::pairs::{Outcome, Pair};

/// A process that is stopped, until this is dropped.
pub(crate) struct Stopped {
    pid: i32,
    /// Somebody else has stopped it; it stays so.
    before: bool,
    /// The signal that is to end this program, or 0. It waits: nobody else would
    /// have the process go on.
    told: Arc<AtomicUsize>,
}

/// Whether each thread stands still.
fn is_stopped(pid: i32) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
            continue;
        };
        // Behind the name, which is in parentheses and may have any characters.
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        if !state.starts_with(['T', 't', 'Z', 'X']) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Stopped {
    pub(crate) fn stop(pid: u32) -> Result<Stopped, Error> {
        let number = i32::try_from(pid).map_err(|_| Error::NoProcess(pid))?;
        let look = || is_stopped(number).map_err(|_| Error::NoProcess(pid));
        let stopped = Stopped {
            pid: number,
            before: look()?,
            told: Arc::default(),
        };
        if !stopped.before {
            for signal in [SIGHUP, SIGINT, SIGTERM] {
                let number = usize::try_from(signal).expect("a signal's number");
                flag::register_usize(signal, Arc::clone(&stopped.told), number)
                    .map_err(|error| Error::io("sigaction()", error))?;
            }
            // SAFETY: no memory is passed.
            if unsafe { libc::kill(number, libc::SIGSTOP) } != 0 {
                return Err(Error::NotPermitted(pid));
            }
            while !look()? && stopped.told.load(Ordering::Relaxed) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.before {
            // SAFETY: no memory is passed. It may have been killed meanwhile.
            unsafe { libc::kill(self.pid, libc::SIGCONT) };
        }
        if let Ok(signal @ 1..) = i32::try_from(self.told.load(Ordering::Relaxed)) {
            // If it fails, this program ends a little later.
            let _ = emulate_default_handler(signal);
        }
    }
}

/// What a page holds, and which frame it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    hash: Option<u64>,
    frame: u64,
}

/// What both pages of each pair hold.
pub(crate) struct Picture(Vec<[Vec<Seen>; 2]>);

fn look(live: &Live, memory: &File, begin: u64, pages: u64) -> io::Result<Vec<Seen>> {
    let mut page = vec![0; usize::try_from(PAGE).expect("small")];
    let frames = live.frames(&(begin..begin + pages * PAGE))?;
    let mut seen = Vec::new();
    for (index, frame) in frames.into_iter().enumerate() {
        // To read what is not there would bring it in, or wait for who should.
        let read = frame != 0
            && memory
                .read_exact_at(&mut page, begin + index as u64 * PAGE)
                .is_ok();
        let hash = read.then(|| {
            let mut hasher = DefaultHasher::new();
            page.hash(&mut hasher);
            hasher.finish()
        });
        seen.push(Seen { hash, frame });
    }
    Ok(seen)
}

impl Picture {
    pub(crate) fn take(pid: u32, live: &Live, pairs: &[Pair]) -> Result<Picture, Error> {
        let path = format!("/proc/{pid}/mem");
        let memory = File::open(&path).map_err(|error| Error::io(&path, error))?;
        let of = |pair: &Pair| {
            let side = |begin| look(live, &memory, begin, pair.pages);
            Ok([side(pair.a)?, side(pair.b)?])
        };
        let seen: io::Result<Vec<_>> = pairs.iter().map(of).collect();
        Ok(Picture(seen.map_err(|error| Error::io(path, error))?))
    }

    /// How many pages it has, if all hold what they held, and those that were
    /// exchanged are in their partner's frames.
    pub(crate) fn compare(&self, after: &Picture, outcomes: &[Outcome]) -> Result<u64, Error> {
        let (mut pages, mut changed, mut misplaced) = (0, 0, 0);
        for ((was, is), outcome) in self.0.iter().zip(&after.0).zip(outcomes) {
            for side in 0..2 {
                let frames = if *outcome == Outcome::Exchanged {
                    &was[1 - side]
                } else {
                    &is[side]
                };
                for ((was, is), there) in was[side].iter().zip(&is[side]).zip(frames) {
                    pages += 1;
                    changed += u64::from(was.hash != is.hash);
                    misplaced += u64::from(is.frame != there.frame);
                }
            }
        }
        if changed + misplaced != 0 {
            return Err(Error::NotVerified {
                pages,
                changed,
                misplaced,
            });
        }
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(words: [u64; 4]) -> Picture {
        let seen = |hash, frame| {
            vec![Seen {
                hash: Some(hash),
                frame,
            }]
        };
        Picture(vec![[seen(words[0], words[1]), seen(words[2], words[3])]])
    }

    #[test]
    fn data_stay_and_frames_change_places() {
        let before = picture([7, 1, 8, 2]);
        let done = [Outcome::Exchanged];
        assert_eq!(before.compare(&picture([7, 2, 8, 1]), &done).unwrap(), 2);
        let error = before.compare(&picture([7, 2, 9, 2]), &done).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("1 pages have changed, 1 are not"), "{text}");
        // One that was moved may be in any frame.
        let moved = [Outcome::Moved];
        assert_eq!(before.compare(&picture([7, 5, 8, 6]), &moved).unwrap(), 2);
    }

    #[test]
    fn a_child_is_stopped_and_goes_on() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id();
        let number = i32::try_from(pid).unwrap();
        let stopped = Stopped::stop(pid).unwrap();
        assert!(is_stopped(number).unwrap());
        drop(Stopped::stop(pid).unwrap());
        assert!(is_stopped(number).unwrap(), "it was stopped before");
        drop(stopped);
        while is_stopped(number).unwrap() {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(Stopped::stop(u32::MAX), Err(Error::NoProcess(_))));
    }
}
