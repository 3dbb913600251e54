// SPDX-License-Identifier: GPL-2.0-or-later
//! Notes of what was set before a trial changed it, so that it can be brought
//! back by whoever is left.
//!
//! A note is a file in a directory that lasts until the host stops. Who looks
//! after it, the trial or else its guard, holds a shared lock on it: a note that
//! can be locked for oneself is one that nobody looks after any more.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::subject::Subject;
use crate::system::System;

const SCHEMA: &str = "nearwalk.held.v1";

/// What a trial changes, and what there was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    schema: String,
    /// Which run of the host it is of.
    boot: String,
    /// Whose setting it is.
    pub subject: Subject,
    /// What messages call it.
    pub name: String,
    /// Its group, or it itself, below the mount point; ends in `/`.
    pub group: Option<String>,
    /// What brings back what was found.
    pub found: String,
    /// What the trial sets.
    pub sets: Vec<String>,
    /// The trial's process.
    pub holder: u32,
}

/// What became of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is as it was found.
    AsFound,
    /// Somebody else has set this meanwhile; it was left.
    Theirs(String),
    /// The process or group has gone.
    Gone,
}

impl Note {
    /// A note of this trial's. Nothing is written yet.
    ///
    /// # Errors
    ///
    /// If the kernel does not say which run of the host this is.
    pub fn new(
        system: &impl System,
        subject: Subject,
        name: String,
        group: Option<String>,
        found: String,
        sets: Vec<String>,
    ) -> Result<Self, Error> {
        Ok(Self {
            schema: SCHEMA.to_owned(),
            boot: boot(system)?,
            subject,
            name,
            group,
            found,
            sets,
            holder: std::process::id(),
        })
    }

    /// Brings back what was found, unless somebody else has set something.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn restore(&self, system: &impl System) -> Result<Outcome, Error> {
        if boot(system)? != self.boot {
            return Ok(Outcome::Gone);
        }
        let restored = self.subject.setting(system).and_then(|now| {
            if now.text == self.found {
                return Ok(Outcome::AsFound);
            }
            if !self.sets.iter().any(|set| now.is_of(set)) {
                return Ok(Outcome::Theirs(now.text));
            }
            self.subject.set(system, &self.found)?;
            Ok(Outcome::AsFound)
        });
        match restored {
            Err(Error::NoProcess(_) | Error::NoAddressSpace(_) | Error::NoCgroup(_)) => {
                Ok(Outcome::Gone)
            }
            restored => restored,
        }
    }

    /// Where it is kept.
    pub fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.subject.file_name())
    }

    /// Whether this is of the same processes as `other`, all or some.
    fn overlaps(&self, other: &Self) -> bool {
        let within = |one: &Self, all: &Self| {
            matches!(all.subject, Subject::Cgroup { .. })
                && one
                    .group
                    .as_ref()
                    .zip(all.group.as_ref())
                    .is_some_and(|(one, all)| one.starts_with(all))
        };
        self.subject == other.subject || within(self, other) || within(other, self)
    }
}

fn boot(system: &impl System) -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let id = system.read(path);
    let id = id.map_err(|source| Error::io(path, source))?;
    Ok(id.trim().to_owned())
}

/// The directory of this user's notes.
///
/// # Errors
///
/// If there is none that lasts as long as the host runs.
pub fn directory() -> Result<PathBuf, Error> {
    let parent = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let named = named.filter(|path| path.is_absolute());
        named.ok_or(Error::NoRuntimeDirectory)?
    };
    Ok(parent.join("nearwalk"))
}

/// A note that is kept, and looked after by this process.
#[derive(Debug)]
pub struct Kept {
    /// What it says.
    pub note: Note,
    /// Its file.
    pub path: PathBuf,
    _lock: File,
}

/// A note in the directory.
#[derive(Debug)]
pub struct Found {
    /// What it says.
    pub note: Note,
    /// Somebody looks after it.
    pub running: bool,
    path: PathBuf,
    _lock: File,
}

impl Kept {
    /// Writes the note, looked after from the first moment on.
    ///
    /// # Errors
    ///
    /// If there is another note of the same processes.
    pub fn create(directory: &Path, note: Note) -> Result<Self, Error> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let failed = |source| Error::io(directory, source);
        builder.create(directory).map_err(failed)?;
        check(directory, &note)?;
        let path = note.path(directory);
        let text = serde_json::to_string(&note).expect("it has only text and numbers");
        let new = unfinished(directory, note.holder);
        let failed = |source| Error::io(&path, source);
        fs::write(&new, text + "\n").map_err(failed)?;
        let lock = File::open(&new).map_err(failed)?;
        flock(&lock, FlockOperation::LockShared).map_err(|error| failed(error.into()))?;
        // Fails if there is one already. Whenever this is killed, there is one file.
        let named = renameat_with(CWD, &new, CWD, &path, RenameFlags::NOREPLACE);
        let Err(error) = named.map_err(io::Error::from) else {
            return Ok(Self {
                note,
                path,
                _lock: lock,
            });
        };
        remove(&new)?;
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(failed(error));
        }
        Err(open(&path)?.map_or_else(|| failed(error), |found| found.error()))
    }

    /// Looks after the note of `holder`, which has ended; nothing if it has not
    /// written any, or not to the end, or has removed it.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn take_over(path: &Path, holder: u32) -> Result<Option<Self>, Error> {
        if let Some(directory) = path.parent() {
            remove(&unfinished(directory, holder))?;
        }
        let lock = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|source| Error::io(path, source))?,
        };
        flock(&lock, FlockOperation::LockShared).map_err(|error| Error::io(path, error.into()))?;
        let note = read(path)?;
        Ok((note.holder == holder).then(|| Self {
            note,
            path: path.to_owned(),
            _lock: lock,
        }))
    }

    /// Brings back what was found and removes the note.
    ///
    /// # Errors
    ///
    /// If the kernel refuses; the note is then kept.
    pub fn restore(&self, system: &impl System) -> Result<Outcome, Error> {
        let outcome = self.note.restore(system)?;
        self.remove()?;
        Ok(outcome)
    }

    /// Removes the note: what is set now is somebody else's.
    ///
    /// # Errors
    ///
    /// Those of the directory.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.path)
    }
}

impl Found {
    /// Why there can be no other trial.
    pub fn error(&self) -> Error {
        let name = self.note.name.clone();
        if self.running {
            Error::Held {
                name,
                holder: self.note.holder,
            }
        } else {
            Error::LeftOver {
                name,
                found: self.note.found.clone(),
            }
        }
    }

    /// Brings back what was found and removes the note.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or somebody looks after it.
    pub fn restore(&self, system: &impl System) -> Result<Outcome, Error> {
        if self.running {
            return Err(self.error());
        }
        let outcome = self.note.restore(system)?;
        remove(&self.path)?;
        Ok(outcome)
    }
}

/// Fails if there is a note of some of the same processes.
///
/// # Errors
///
/// That, and those of [`list`].
pub fn check(directory: &Path, note: &Note) -> Result<(), Error> {
    let mut notes = list(directory)?.into_iter();
    match notes.find(|found| found.note.overlaps(note)) {
        Some(found) => Err(found.error()),
        None => Ok(()),
    }
}

/// All notes in the directory.
///
/// # Errors
///
/// If one cannot be read.
pub fn list(directory: &Path) -> Result<Vec<Found>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| Error::io(directory, source))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| Error::io(directory, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("trial-") && name.ends_with(".json") {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    let mut all = Vec::new();
    for path in paths {
        all.extend(open(&path)?);
    }
    Ok(all)
}

/// One line for each trial of this user's that nobody looks after any more.
pub fn left_over() -> Vec<String> {
    let all = directory().and_then(|directory| list(&directory));
    let all = all.unwrap_or_default().into_iter();
    all.filter(|found| !found.running)
        .map(|found| found.error().to_string())
        .collect()
}

/// A note; nothing if it has just been removed.
fn open(path: &Path) -> Result<Option<Found>, Error> {
    let lock = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|source| Error::io(path, source))?,
    };
    let running = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => false,
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        Err(error) => return Err(Error::io(path, error.into())),
    };
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(Found {
        note: read(path)?,
        running,
        path: path.to_owned(),
        _lock: lock,
    }))
}

fn read(path: &Path) -> Result<Note, Error> {
    let bad = |why: String| Error::BadNote {
        path: path.to_owned(),
        why,
    };
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    let note: Note = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    if note.schema != SCHEMA {
        return Err(bad(format!("it is of kind `{}`", note.schema)));
    }
    Ok(note)
}

/// A note that is being written.
fn unfinished(directory: &Path, holder: u32) -> PathBuf {
    directory.join(format!(".new-{holder}"))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| Error::io(path, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, OFF};

    const SETS: [&str; 2] = ["off", "eager 0-3"];

    fn status(mode: &str, nodes: &str, source: &str) -> String {
        let lazy = if mode == "lazy" {
            "prefetch:\t5\nfills:\t0\nipis:\trequested=0 sent=0 saved=0\n"
        } else {
            ""
        };
        format!("mode:\t{mode}\nnodes:\t{nodes}\nsource:\t{source}\npages:\nfallbacks:\t0\n{lazy}")
    }

    fn machine() -> Fixture {
        let mut fixture = Fixture::four_nodes();
        fixture.process(7, "x", OFF);
        fixture.file("/proc/7/stat", &stat(900));
        fixture.file("/proc/sys/kernel/random/boot_id", "one\n");
        fixture.file("/proc/sys/vm/pgtable_repl_prefetch", "3\n");
        fixture
    }

    fn stat(started: u64) -> String {
        format!("7 (a) b) S{} {started} 0\n", " 0".repeat(18))
    }

    fn note(fixture: &Fixture) -> Note {
        let subject = Subject::process(fixture, 7).unwrap();
        let found = subject.setting(fixture).unwrap().text;
        note_of(fixture, subject, "a.slice/b/", &found)
    }

    fn note_of(fixture: &Fixture, subject: Subject, group: &str, found: &str) -> Note {
        let sets = SETS.map(str::to_owned).to_vec();
        let (name, group) = (format!("{subject:?}"), Some(group.to_owned()));
        Note::new(fixture, subject, name, group, found.to_owned(), sets).unwrap()
    }

    fn scratch(name: &str) -> PathBuf {
        let name = format!("nearwalk-held-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn what_was_found_is_brought_back_in_the_kernels_words() {
        for (mode, nodes, source, text) in [
            ("off", "", "none", "default"),
            ("eager", "0-3", "cgroup", "default"),
            ("lazy", "0-3", "system", "default"),
            ("off", "", "prctl", "off"),
            ("eager", "0,2", "inherited", "eager 0,2"),
            ("lazy", "0-3", "proc", "lazy 0-3 prefetch=5"),
        ] {
            let mut fixture = machine();
            fixture.process(7, "x", &status(mode, nodes, source));
            let note = note(&fixture);
            assert_eq!(note.found, text);
            fixture.process(7, "x", &status("eager", "0-3", "proc"));
            assert_eq!(note.restore(&fixture).unwrap(), Outcome::AsFound);
            let log = fixture.log.borrow();
            assert_eq!(*log, [format!("/proc/7/pgtable_repl <- {text}")]);
        }
        // Who asked for what holds anyway is not pinned to it.
        let mut fixture = machine();
        fixture.file("/proc/sys/vm/pgtable_repl_prefetch", "5\n");
        fixture.process(7, "x", &status("lazy", "0-3", "prctl"));
        assert_eq!(note(&fixture).found, "lazy 0-3");
    }

    #[test]
    fn what_others_have_set_is_left() {
        let mut fixture = machine();
        let note = note(&fixture);
        for (mode, nodes, source, text) in [
            ("eager", "0-3", "prctl", "eager 0-3"),
            ("eager", "0-2", "proc", "eager 0-2"),
            ("off", "", "prctl", "off"),
        ] {
            fixture.process(7, "x", &status(mode, nodes, source));
            let outcome = note.restore(&fixture).unwrap();
            assert_eq!(outcome, Outcome::Theirs(text.to_owned()));
        }
        // What is as it was needs no writing.
        fixture.process(7, "x", OFF);
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::AsFound);
        assert!(fixture.log.borrow().is_empty());
    }

    #[test]
    fn another_process_of_that_number_is_not_touched() {
        let mut fixture = machine();
        let note = note(&fixture);
        fixture.process(7, "x", &status("eager", "0-3", "proc"));
        fixture.file("/proc/7/stat", &stat(901));
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::Gone);
        fixture.file("/proc/7/stat", &stat(900));
        fixture.file("/proc/sys/kernel/random/boot_id", "two\n");
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::Gone);
        assert!(fixture.log.borrow().is_empty());
    }

    #[test]
    fn groups_get_their_policy_back_and_later_ones_of_that_name_do_not() {
        let mut fixture = machine();
        let file = "/sys/fs/cgroup/db/memory.pgtable_repl";
        fixture.file("/sys/fs/cgroup/db/cgroup.controllers", "memory\n");
        fixture.file(file, "lazy all prefetch=2\n");
        let subject = Subject::cgroup(&fixture, Path::new("/sys/fs/cgroup/db")).unwrap();
        let found = subject.setting(&fixture).unwrap().text;
        let note = note_of(&fixture, subject, "db/", &found);
        fixture.file(file, "eager 0-3\n");
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::AsFound);
        let written = format!("{file} <- lazy all prefetch=2");
        assert_eq!(*fixture.log.borrow(), [written]);
        fixture.inode.set(12);
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::Gone);
    }

    #[test]
    fn what_is_asked_for_virtual_machines_stays() {
        let mut fixture = machine();
        let nested = "nested:\tlazy nodes=0-1 source=proc\n";
        fixture.process(7, "x", &(status("off", "", "none") + nested));
        let note = note(&fixture);
        assert_eq!(note.found, "default");
        note.subject.set(&fixture, "eager 0-3").unwrap();
        fixture.process(7, "x", &(status("eager", "0-3", "proc") + nested));
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::AsFound);
        // That of a group is not the process's own.
        let nested = nested.replace("proc", "cgroup");
        fixture.process(7, "x", &(status("eager", "0-3", "proc") + &nested));
        note.subject.set(&fixture, "off").unwrap();
        assert_eq!(
            fixture.log.take(),
            [
                "/proc/7/pgtable_repl <- eager 0-3 nested lazy 0-1",
                "/proc/7/pgtable_repl <- default nested lazy 0-1",
                "/proc/7/pgtable_repl <- off",
            ]
        );

        let file = "/sys/fs/cgroup/db/memory.pgtable_repl";
        fixture.file("/sys/fs/cgroup/db/cgroup.controllers", "memory\n");
        fixture.file(file, "lazy all nested migrate all\n");
        let subject = Subject::cgroup(&fixture, Path::new("/sys/fs/cgroup/db")).unwrap();
        let found = subject.setting(&fixture).unwrap().text;
        assert_eq!(found, "lazy all");
        let note = note_of(&fixture, subject, "db/", &found);
        fixture.file(file, "eager 0-3 nested migrate all\n");
        assert_eq!(note.restore(&fixture).unwrap(), Outcome::AsFound);
        assert_eq!(
            fixture.log.take(),
            [format!("{file} <- lazy all nested migrate all")]
        );
    }

    #[test]
    fn a_subject_has_one_trial_at_a_time() {
        let fixture = machine();
        let directory = scratch("one");
        let first = Kept::create(&directory, note(&fixture)).unwrap();
        let holder = std::process::id();
        let guard = Kept::take_over(&first.path, holder).unwrap().unwrap();
        assert!(Kept::take_over(&first.path, holder + 1).unwrap().is_none());
        let again = Kept::create(&directory, note(&fixture)).unwrap_err();
        assert!(again.to_string().contains("is running"), "{again}");
        // The group that it is in, one above that, and others.
        let group = |directory: &str, inode| {
            let directory = PathBuf::from("/sys/fs/cgroup").join(directory);
            Subject::Cgroup { directory, inode }
        };
        for (name, free) in [("a.slice/b/", false), ("a.slice/", false), ("a/", true)] {
            let of_group = note_of(&fixture, group(name, 5), name, "default");
            let kept = Kept::create(&directory, of_group);
            assert_eq!(kept.is_ok(), free, "{name}");
            if let Ok(kept) = kept {
                kept.remove().unwrap();
            }
        }
        // Its guard is left, which is enough.
        drop(first);
        assert!(list(&directory).unwrap()[0].running);
        drop(guard);
        let again = Kept::create(&directory, note(&fixture)).unwrap_err();
        assert!(again.to_string().contains("trial --restore"), "{again}");
        let [left] = &list(&directory).unwrap()[..] else {
            panic!("there is one note");
        };
        assert_eq!(left.restore(&fixture).unwrap(), Outcome::AsFound);
        assert!(list(&directory).unwrap().is_empty());
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn what_was_not_written_to_the_end_is_removed() {
        let fixture = machine();
        let directory = scratch("unfinished");
        fs::create_dir(&directory).unwrap();
        let (path, holder) = (note(&fixture).path(&directory), std::process::id());
        fs::write(unfinished(&directory, holder), "{").unwrap();
        assert!(Kept::take_over(&path, holder).unwrap().is_none());
        // Nor is anything left of one that is refused.
        let first = Kept::create(&directory, note(&fixture)).unwrap();
        Kept::create(&directory, note(&fixture)).unwrap_err();
        first.remove().unwrap();
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn notes_that_cannot_be_read_are_named() {
        let directory = scratch("bad");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("trial-1.json");
        for (text, why) in [("", "EOF"), ("{}", "missing field")] {
            fs::write(&path, text).unwrap();
            let error = list(&directory).unwrap_err().to_string();
            assert!(
                error.contains("trial-1.json") && error.contains(why),
                "{error}"
            );
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
