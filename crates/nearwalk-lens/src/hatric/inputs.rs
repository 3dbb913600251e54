// SPDX-License-Identifier: GPL-2.0-or-later
//! Files that a case is made of: programs, machines, traces, tapes.

use crate::util::fingerprint;
use anyhow::Context;
use lens::machine::MachineError;
use lens_hatric::machine::BUILTIN;
use lens_hatric::program::{self, Program, Recorded};
use lens_hatric::tape::Tape;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// All programs of a file, or those that come with the model; and the text.
pub fn programs(file: Option<&str>) -> anyhow::Result<(BTreeMap<String, Program>, String)> {
    let Some(path) = file else {
        return Ok((Program::builtin(), program::BUILTIN.to_owned()));
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let all = Program::read(&text).with_context(|| path.to_owned())?;
    Ok((all, text))
}

/// The text of a machine that comes with the model, or of a file.
pub fn machine_text(name: &str) -> Result<Cow<'static, str>, MachineError> {
    lens::machine::text_of(name, BUILTIN, |path| std::fs::read_to_string(path))
}

/// What was read, and a number that changes with the file.
type Read<T> = (Arc<T>, u64);

/// Many cases are made of the same large files: each is read once.
fn once<T>(
    all: &Mutex<BTreeMap<PathBuf, Read<T>>>,
    path: PathBuf,
    parse: impl FnOnce(&[u8]) -> anyhow::Result<T>,
) -> anyhow::Result<Read<T>> {
    let mut all = all.lock().expect("nobody panics while reading");
    if let Some(read) = all.get(&path) {
        return Ok(read.clone());
    }
    let name = path.display().to_string();
    let bytes = std::fs::read(&path).with_context(|| format!("reading {name}"))?;
    let print = fingerprint(&[&bytes]);
    let read = (Arc::new(parse(&bytes).context(name)?), print);
    all.insert(path, read.clone());
    Ok(read)
}

/// The trace at `path`, beside the file of programs that names it.
pub fn trace(programs: Option<&str>, path: &str) -> anyhow::Result<Read<Recorded>> {
    static ALL: Mutex<BTreeMap<PathBuf, Read<Recorded>>> = Mutex::new(BTreeMap::new());
    let folder = programs.and_then(|p| Path::new(p).parent());
    let path = folder.unwrap_or(Path::new("")).join(path);
    once(&ALL, path, |bytes| {
        Ok(Recorded::new(lens::trace::read(bytes)?)?)
    })
}

/// The tape at `path`.
pub fn tape(path: &str) -> anyhow::Result<Read<Tape>> {
    static ALL: Mutex<BTreeMap<PathBuf, Read<Tape>>> = Mutex::new(BTreeMap::new());
    once(&ALL, path.into(), |bytes| Ok(Tape::read(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::super::case::Ready;
    use super::super::sweep::vary;
    use super::*;
    use clap::Parser;
    use lens::access::Access;
    use lens::trace::Recorder;

    #[derive(Debug, Parser)]
    struct Args {
        program: String,
        #[arg(long, default_value_t = 2)]
        vcpus: u32,
        #[command(flatten)]
        options: super::super::case::Options,
    }

    /// Files in a folder of its own, and a case made of them.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Folder(dir)
        }
        fn file(&self, name: &str, bytes: &[u8]) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path.display().to_string()
        }
        /// `files` are options, each with what its file in the folder is called.
        fn ready(&self, args: &str, files: &[(&str, &str)]) -> anyhow::Result<Ready> {
            let mut all = vec!["test".to_owned()];
            all.extend(args.split_whitespace().map(str::to_owned));
            for (option, name) in files {
                all.push((*option).to_owned());
                all.push(self.0.join(name).display().to_string());
            }
            let a = Args::parse_from(all);
            Ready::new(&[a.program], a.vcpus, &a.options)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const SMALL: &str = "--accesses 2000 --schemes ideal,software --set cores_per_socket=2 \
        --set memory.per_node=\"8MiB\"";

    fn trace(threads: usize) -> Vec<u8> {
        let mut r = Recorder::new(Vec::new()).unwrap();
        for i in 0..6000u64 {
            for t in 0..threads {
                r.record(t, Access::load(((i * 7 + t as u64) % 4000) << 12))
                    .unwrap();
            }
        }
        r.finish().unwrap()
    }

    fn programs(trace: &str) -> String {
        format!("[t]\nnote = \"a trace\"\nbase = 2.0\nwindow = 4.0\ntrace = \"{trace}\"\n")
    }

    #[test]
    fn files_that_differ_in_bytes_of_no_text_have_other_fingerprints() {
        let dir = Folder::new("hatric-bytes");
        let all = Mutex::new(BTreeMap::new());
        let print = |name, byte| {
            let path = dir.file(name, &[byte]);
            once(&all, path.into(), |_| Ok(())).unwrap().1
        };
        // Neither is UTF-8.
        assert_ne!(print("a", 0x80), print("b", 0x81));
        assert_eq!(print("c", 0x80), print("a", 0x80));
    }

    #[test]
    fn a_tape_is_not_given_with_what_it_takes_the_place_of() {
        for other in [
            "--policy fifo",
            "--turnover 1",
            "--patience 9",
            "--defragment 0",
            "--stolen-daemon",
        ] {
            let words = format!("test t --tape x {other}");
            let e = Args::try_parse_from(words.split(' ')).unwrap_err();
            let name = other.split(' ').next().unwrap();
            let e = e.to_string();
            assert!(e.contains("--tape") && e.contains(name), "{e}");
            Args::try_parse_from(words.replace("--tape x ", "").split(' ')).unwrap();
            let key = name.trim_start_matches('-');
            if key == "patience" {
                continue;
            }
            let mut o = Args::parse_from(["test", "t", "--tape", "x"]).options;
            let e = vary(&format!("{key}=1"), &mut o).unwrap_err().to_string();
            assert!(e.contains(&format!("--vary {key} beside --tape")), "{e}");
        }
    }

    #[test]
    fn a_program_may_be_a_trace_beside_its_file() {
        let dir = Folder::new("hatric-trace");
        dir.file("t.trace", &trace(2));
        dir.file("programs.toml", programs("t.trace").as_bytes());
        let files = [("--programs", "programs.toml")];
        let report = dir.ready(&format!("t {SMALL}"), &files).unwrap();
        let report = report.run(|_| ()).unwrap();
        assert!(
            report
                .lines
                .iter()
                .all(|l| l.outcome.counts.stale_uses == 0)
        );
        assert!(report.lines.last().unwrap().outcome.counts.remaps() > 100);
        let why = |args: &str, programs: &str| {
            let e = dir.ready(&format!("t {args} {SMALL}"), &[("--programs", programs)]);
            format!("{:#}", e.unwrap_err())
        };
        let e = why("--vcpus 1", "programs.toml");
        assert!(e.contains("vCPUs of t is 1; 2 are allowed"), "{e}");
        let e = why("--scale-program plateau=2", "programs.toml");
        assert!(e.contains("of a recorded program base and window"), "{e}");
        dir.file("cut.trace", &trace(2)[..500]);
        for (file, says) in [
            ("none.trace", "none.trace"),
            ("programs.toml", "not a trace of version 1"),
            ("cut.trace", "ends inside it"),
        ] {
            dir.file("bad.toml", programs(file).as_bytes());
            let e = why("", "bad.toml");
            assert!(e.contains(says), "{e}");
        }
    }

    #[test]
    fn a_tape_is_read_and_one_of_another_machine_is_refused() {
        let dir = Folder::new("hatric-tape");
        dir.file("t.trace", &trace(2));
        dir.file("programs.toml", programs("t.trace").as_bytes());
        let header = r#"{"tape":"nearwalk-hatric","version":1,"memory":5000,"stacked":2048,"vcpus":2,"resident":[[0,2000]]}"#;
        let event = r#"{"at":700,"what":"out","page":7,"cpu":1,"vcpus":2,"exits":1}"#;
        let end = r#"{"end":9000,"events":1}"#;
        let tape = [header, event, end].join("\n");
        dir.file("good.tape", tape.as_bytes());
        let with = |tape| {
            let files = [("--programs", "programs.toml"), ("--tape", tape)];
            dir.ready(&format!("t {SMALL}"), &files)
        };
        let report = with("good.tape").unwrap().run(|_| ()).unwrap();
        assert!(report.case.tape.is_some());
        let last = &report.lines.last().unwrap().outcome.counts;
        assert_eq!(
            (last.remaps(), last.out_awaited),
            (0, 0),
            "before the window"
        );
        dir.file("other.tape", tape.replace("2048", "9999").as_bytes());
        let e = with("other.tape")
            .unwrap()
            .run(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("stacked of the tape is 9999; 2048 is allowed"),
            "{e}"
        );
        dir.file("cut.tape", tape.replace(end, "").trim().as_bytes());
        let e = format!("{:#}", with("cut.tape").unwrap_err());
        assert!(e.contains("cut.tape") && e.contains("was cut short"), "{e}");
    }
}
