// SPDX-License-Identifier: GPL-2.0-or-later
//! Hosts in directories.
//!
//! A recording has a directory for each moment, `0`, `1`, ..., with the files
//! that were read then at their own paths below it, and what was listed as
//! directories, empty if nothing in them was read. `recording.json` is written
//! last: when the moments were, and which reads failed otherwise than for want
//! of the file. (A directory that was gone may be there in a recording, since
//! the one above it was listed before; so its error is kept as well.)
//!
//! A path has one answer at each moment: who records gets the first one again
//! when asking twice, as readers of the recording will.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::source::{Source, directories};

const SCHEMA: &str = "nearwalk.recording.v1";
const MANIFEST: &str = "recording.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Manifest {
    schema: String,
    /// How long the reader meant to look.
    length_ns: u64,
    moments: Vec<Moment>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Moment {
    /// Since the first one.
    at_ns: u64,
    /// The kernel's error number by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<PathBuf, i32>,
}

impl Moment {
    fn error(&self, path: &Path) -> Option<io::Error> {
        let errno = *self.errors.get(path)?;
        Some(io::Error::from_raw_os_error(errno))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The place of an absolute path in the directory of a moment.
fn place(dir: &Path, moment: usize, path: &Path) -> PathBuf {
    dir.join(moment.to_string())
        .join(path.strip_prefix("/").unwrap_or(path))
}

/// Reads from another source, and keeps what it says.
#[derive(Debug)]
pub struct Recorder<S> {
    source: S,
    dir: PathBuf,
    manifest: Manifest,
    /// What has been asked at this moment: files, and directories to list.
    read: HashSet<PathBuf>,
    listed: HashSet<PathBuf>,
    /// The first thing that could not be written.
    failed: Option<io::Error>,
}

impl<S: Source> Recorder<S> {
    /// Records into `dir`, which must be new or empty, for a reader that means
    /// to look for `length`.
    pub fn create(source: S, dir: &Path, length: Duration) -> Result<Self, Error> {
        let at = |source| Error::io(dir, source);
        fs::create_dir_all(dir).map_err(at)?;
        if fs::read_dir(dir).map_err(at)?.next().is_some() {
            return Err(Error::NotEmpty(dir.to_owned()));
        }
        fs::create_dir(dir.join("0")).map_err(at)?;
        let first = Moment {
            at_ns: nanoseconds(source.now()),
            ..Moment::default()
        };
        Ok(Self {
            source,
            dir: dir.to_owned(),
            manifest: Manifest {
                schema: SCHEMA.to_owned(),
                length_ns: nanoseconds(length),
                moments: vec![first],
            },
            read: HashSet::new(),
            listed: HashSet::new(),
            failed: None,
        })
    }

    /// Completes the recording. Without this, it is none.
    pub fn finish(self) -> Result<(), Error> {
        let write = || {
            let mut text = serde_json::to_string_pretty(&self.manifest)?;
            text.push('\n');
            fs::write(self.dir.join(MANIFEST), text)
        };
        match self.failed {
            Some(error) => Err(error),
            None => write(),
        }
        .map_err(|source| Error::Recording {
            dir: self.dir,
            source,
        })
    }

    fn moment(&mut self) -> (usize, &mut Moment) {
        let index = self.manifest.moments.len() - 1;
        (index, &mut self.manifest.moments[index])
    }

    fn keep(&mut self, path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) {
        let place = self.place(path);
        if let Err(error) = write(&place) {
            self.failed.get_or_insert(error);
        }
    }

    fn place(&self, path: &Path) -> PathBuf {
        place(&self.dir, self.manifest.moments.len() - 1, path)
    }

    /// The error that asking for `path` ended with at this moment.
    fn error(&self, path: &Path) -> Option<io::Error> {
        self.manifest.moments.last()?.error(path)
    }

    fn keep_error(&mut self, path: &Path, error: &io::Error) {
        if let Some(errno) = error.raw_os_error() {
            self.moment().1.errors.insert(path.to_owned(), errno);
        }
    }
}

impl<S: Source> Source for Recorder<S> {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        if !self.read.insert(path.to_owned()) {
            return self
                .error(path)
                .map_or_else(|| fs::read_to_string(self.place(path)), Err);
        }
        let text = self.source.read(path);
        match &text {
            Ok(text) => self.keep(path, |place| {
                if let Some(parent) = place.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(place, text)
            }),
            // That a file is not there shows by itself.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => self.keep_error(path, error),
        }
        text
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        if !self.listed.insert(path.to_owned()) {
            return self
                .error(path)
                .map_or_else(|| directories(&self.place(path)), Err);
        }
        let names = self.source.list(path);
        match &names {
            Ok(names) => self.keep(path, |place| {
                fs::create_dir_all(place)?;
                for name in names {
                    fs::create_dir_all(place.join(name))?;
                }
                Ok(())
            }),
            Err(error) => self.keep_error(path, error),
        }
        names
    }

    /// The time of the moment: it is what a reader of the recording gets.
    fn now(&self) -> Duration {
        let last = self.manifest.moments.last();
        Duration::from_nanos(last.map_or(0, |moment| moment.at_ns))
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.source.wait(time)?;
        self.read.clear();
        self.listed.clear();
        let at_ns = nanoseconds(self.source.now());
        self.manifest.moments.push(Moment {
            at_ns,
            ..Moment::default()
        });
        let (index, _) = self.moment();
        let created = fs::create_dir_all(self.dir.join(index.to_string()));
        if let Err(error) = created {
            self.failed.get_or_insert(error);
        }
        Ok(())
    }
}

/// A host in a directory.
#[derive(Debug)]
pub struct Recorded {
    dir: PathBuf,
    manifest: Manifest,
    moment: usize,
}

/// Reads what stands in a file of a recording, if it is of a version that is known.
///
/// # Errors
///
/// It is no JSON, of another `schema`, or lacks something.
pub fn parse<T: DeserializeOwned>(
    path: &Path,
    text: &str,
    schema: &'static str,
) -> Result<T, Error> {
    let bad = |error: serde_json::Error| Error::BadRecording {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(bad)?;
    let found = value["schema"].as_str().unwrap_or_default();
    if found != schema {
        return Err(Error::OtherRecording {
            dir: path.parent().unwrap_or(path).to_owned(),
            found: found.to_owned(),
            known: schema,
        });
    }
    serde_json::from_value(value).map_err(bad)
}

impl Recorded {
    /// Opens a recording.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if dir.exists() => Error::NoRecording(dir.to_owned()),
            io::ErrorKind::NotFound => Error::io(dir, source),
            _ => Error::io(&path, source),
        })?;
        let manifest: Manifest = parse(&path, &text, SCHEMA)?;
        let bad = |why: String| Error::BadRecording {
            path: path.clone(),
            why,
        };
        if manifest.moments.is_empty() {
            return Err(bad("it names no moments".to_owned()));
        }
        if !manifest.moments.is_sorted_by_key(|moment| moment.at_ns) {
            return Err(bad("its moments run backwards".to_owned()));
        }
        for moment in 0..manifest.moments.len() {
            let place = dir.join(moment.to_string());
            if !place.is_dir() {
                return Err(Error::BadRecording {
                    path: place,
                    why: format!("this moment of {} is missing", manifest.moments.len()),
                });
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            manifest,
            moment: 0,
        })
    }

    /// How long its reader meant to look.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.manifest.length_ns)
    }

    fn error(&self, path: &Path) -> Option<io::Error> {
        self.manifest.moments[self.moment].error(path)
    }
}

impl Source for Recorded {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        match self.error(path) {
            Some(error) => Err(error),
            None => fs::read_to_string(place(&self.dir, self.moment, path)),
        }
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        match self.error(path) {
            Some(error) => Err(error),
            None => directories(&place(&self.dir, self.moment, path)),
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.manifest.moments[self.moment].at_ns)
    }

    fn wait(&mut self, _: Duration) -> Result<(), Error> {
        self.moment += 1;
        if self.moment == self.manifest.moments.len() {
            self.moment -= 1;
            return Err(Error::RecordingEnds {
                dir: self.dir.clone(),
                moments: self.manifest.moments.len(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, scratch};

    const SECOND: Duration = Duration::from_secs(1);

    fn message(result: Result<Recorded, Error>) -> String {
        result.unwrap_err().to_string()
    }

    /// What a reader may ask of a source: text, errors, lists, time.
    fn ask(source: &mut dyn Source) -> String {
        let mut answers = String::new();
        for _ in 0..2 {
            for path in [
                "/proc/7/stat",
                "/proc/8/stat",
                "/proc/9/stat",
                "/proc/7/stat",
            ] {
                answers += &format!("{:?}\n", source.read(Path::new(path)).map_err(|e| e.kind()));
            }
            for path in ["/proc", "/proc/7/task", "/nowhere", "/nowhere"] {
                answers += &format!("{:?}\n", source.list(Path::new(path)).map_err(|e| e.kind()));
            }
            source.wait(SECOND).unwrap();
            answers += &format!("{:?}\n", source.now());
        }
        answers
    }

    fn host() -> Fixture {
        Fixture::default()
            .file("/proc/7/stat", "7 (a b) R\n")
            .file("/proc/7/task/7/stat", "x")
            .file("/proc/8/comm", "gone\n")
            .error("/proc/9/stat", libc::EACCES)
    }

    #[test]
    fn a_recording_says_what_the_host_said() {
        let dir = scratch("recording-same");
        let mut recorder = Recorder::create(host(), &dir, SECOND).unwrap();
        let live = ask(&mut recorder);
        recorder.finish().unwrap();
        let mut recorded = Recorded::open(&dir).unwrap();
        assert_eq!(recorded.length(), SECOND);
        assert_eq!(ask(&mut recorded), live);
        assert!(live.contains("PermissionDenied") && live.contains("NotFound"));
        let error = recorded.wait(SECOND).unwrap_err().to_string();
        assert!(error.contains("ends after 3 moments"), "{error}");
    }

    /// Says something else whenever it is asked, and every third time nothing.
    #[derive(Default)]
    struct Changing(u32);

    impl Changing {
        fn next(&mut self) -> io::Result<u32> {
            self.0 += 1;
            if self.0 % 3 == 0 {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(self.0)
        }
    }

    impl Source for Changing {
        fn read(&mut self, _: &Path) -> io::Result<String> {
            Ok(self.next()?.to_string())
        }

        fn list(&mut self, _: &Path) -> io::Result<Vec<OsString>> {
            let new = format!("9{}", self.next()?);
            Ok(["7", "8", &new].map(OsString::from).into())
        }

        fn now(&self) -> Duration {
            Duration::from_secs(self.0.into())
        }

        fn wait(&mut self, _: Duration) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn a_path_has_one_answer_at_each_moment() {
        let dir = scratch("recording-changing");
        let mut recorder = Recorder::create(Changing::default(), &dir, SECOND).unwrap();
        let ask_twice = |source: &mut dyn Source| {
            let first = ask(source);
            first + &ask(source)
        };
        let live = ask_twice(&mut recorder);
        recorder.finish().unwrap();
        assert_eq!(ask_twice(&mut Recorded::open(&dir).unwrap()), live);
        assert!(
            live.contains("Ok(\"1\")") && live.contains("Err("),
            "{live}"
        );
    }

    #[test]
    fn a_directory_in_use_is_not_recorded_into() {
        let dir = scratch("recording-in-use");
        fs::create_dir_all(dir.join("mine")).unwrap();
        let error = Recorder::create(host(), &dir, SECOND).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
    }

    #[test]
    fn what_is_no_whole_recording_is_refused() {
        let dir = scratch("recording-bad");
        assert!(message(Recorded::open(&dir)).contains("No such file"));
        let recorder = Recorder::create(host(), &dir, SECOND).unwrap();
        assert!(message(Recorded::open(&dir)).contains("cut short"));
        recorder.finish().unwrap();
        let manifest = dir.join(MANIFEST);
        let text = fs::read_to_string(&manifest).unwrap();
        let change = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            fs::write(&manifest, text.replace(from, to)).unwrap();
            message(Recorded::open(&dir))
        };
        assert!(change("recording.v1", "recording.v9").contains("kind `nearwalk.recording.v9`"));
        assert!(change("\"length_ns\": 1", "\"length_ns\": -1").contains("recording.json: "));
        assert!(change("}", "").contains("recording.json: "));
        fs::write(&manifest, &text).unwrap();
        fs::remove_dir(dir.join("0")).unwrap();
        assert!(message(Recorded::open(&dir)).contains("moment of 1 is missing"));
    }
}
