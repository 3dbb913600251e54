// SPDX-License-Identifier: GPL-2.0-or-later
//! `events.toml` is what comes of the kernel's own lists of events.
//!
//! `NEARWALK_ACCEPT=1 cargo test -p nearwalk-perf --test events` writes it anew
//! from the kernel tree that `make kernel` prepares. With `NEARWALK_EVENTS` in the
//! environment it is an error that there is none.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const LISTS: &str = "tools/perf/pmu-events/arch/x86";

/// Events of a model by name, without regard to case.
struct Events(BTreeMap<String, (String, u64)>);

impl Events {
    /// Reads all lists of a model; none of one with several kinds of cores,
    /// which no machine with several nodes has.
    fn read(dir: &Path) -> Option<Self> {
        let mut events = BTreeMap::new();
        for file in fs::read_dir(dir).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let list: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            // counter.json and metrics are lists as well, of other things.
            for event in list.as_array().into_iter().flatten() {
                match event["Unit"].as_str() {
                    Some("cpu_core" | "cpu_atom") => return None,
                    // Of what is outside of the cores.
                    Some(_) => continue,
                    None => {}
                }
                if let (Some(name), Some(config)) = (event["EventName"].as_str(), config(event)) {
                    events.insert(name.to_lowercase(), (name.to_owned(), config));
                }
            }
        }
        Some(Self(events))
    }

    fn get(&self, name: &str) -> Option<(String, u64)> {
        self.0.get(&name.to_lowercase()).cloned()
    }

    /// The event of loads and that of stores; both or none.
    fn both(&self, what: &str) -> Option<Vec<(String, u64)>> {
        let of = |kind| self.get(&format!("DTLB_{kind}_MISSES.{what}"));
        Some(vec![of("LOAD")?, of("STORE")?])
    }

    /// AMD counts walks by page size. Zen 4 and later also list the event with
    /// all of them; it is made here for the others.
    fn amd_walks(&self) -> Option<Vec<(String, u64)>> {
        if let Some(all) = self.get("ls_l1_d_tlb_miss.all_l2_miss") {
            return Some(vec![all]);
        }
        let mut sizes = self.0.iter().filter(|(name, _)| {
            name.starts_with("ls_l1_d_tlb_miss.tlb_reload_")
                && (name.ends_with("_l2_miss") || name.ends_with("_page_miss"))
        });
        let config = sizes.clone().fold(0, |all, (_, (_, config))| all | config);
        sizes.next()?;
        Some(vec![("ls_l1_d_tlb_miss.tlb_reload_*_miss".into(), config)])
    }
}

/// `perf_event_attr.config` of an event, as perf's own generator makes it.
fn config(event: &Value) -> Option<u64> {
    let number = |name: &str| {
        let text = event[name].as_str().unwrap_or("0");
        let text = text.split(',').next().unwrap().trim();
        match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        }
        .unwrap_or_else(|_| panic!("{name} of {event}"))
    };
    event["EventCode"].as_str()?;
    let code = number("EventCode");
    Some(
        code & 0xff
            | (code >> 8) << 32
            | number("UMask") << 8
            | number("EdgeDetect") << 18
            | number("AnyThread") << 21
            | number("Invert") << 23
            | number("CounterMask") << 24,
    )
}

fn list(name: &str, events: Option<Vec<(String, u64)>>) -> String {
    let mut text = format!("{name} = [");
    for (event, config) in events.into_iter().flatten() {
        write!(
            text,
            "\n    {{ event = \"{event}\", config = {config:#x} }},"
        )
        .unwrap();
    }
    if text.ends_with(',') {
        text.push('\n');
    }
    text + "]\n"
}

fn generate(tree: &Path) -> String {
    let makefile = fs::read_to_string(tree.join("Makefile")).unwrap();
    let version = |name: &str| {
        let mut lines = makefile.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.trim().strip_prefix("= "));
        value.unwrap().to_owned()
    };
    let mut text = format!(
        "# SPDX-License-Identifier: GPL-2.0-or-later\n\
         # Generated from {LISTS} of the kernel: do not edit.\n\
         # tests/events.rs says how, and compares.\n\n\
         kernel = \"{}.{}\"\n",
        version("VERSION"),
        version("PATCHLEVEL"),
    );
    let lists = tree.join(LISTS);
    let map = fs::read_to_string(lists.join("mapfile.csv")).unwrap();
    for line in map.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [cpus, _, name, "core"] = fields[..] else {
            panic!("{line} in mapfile.csv");
        };
        let Some(events) = Events::read(&lists.join(name)) else {
            continue;
        };
        // Before Skylake there is one event for both, of a CPU with one walker.
        let duration = || events.both("WALK_DURATION");
        let walks = events.both("WALK_COMPLETED");
        write!(text, "\n[[model]]\nname = \"{name}\"\ncpus = \"{cpus}\"\n").unwrap();
        text += &list("walks", walks.or_else(|| events.amd_walks()));
        text += &list("active", events.both("WALK_ACTIVE").or_else(duration));
        text += &list("pending", events.both("WALK_PENDING").or_else(duration));
    }
    text
}

#[test]
fn the_table_is_what_comes_of_the_kernels_lists() {
    let build = match std::env::var_os("NEARWALK_BUILD") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build"),
    };
    let trees = ["linux-nearwalk", "linux-stock"].map(|name| build.join(name));
    let Some(tree) = trees.iter().find(|tree| tree.join(LISTS).is_dir()) else {
        assert!(
            std::env::var_os("NEARWALK_EVENTS").is_none(),
            "no kernel tree in {}",
            build.display()
        );
        eprintln!(
            "skipped: no kernel tree in {}; `make kernel` makes one",
            build.display()
        );
        return;
    };
    let text = generate(tree);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/events.toml");
    if std::env::var_os("NEARWALK_ACCEPT").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let now = fs::read_to_string(&file).unwrap();
    assert!(
        now == text,
        "events.toml is not what {} gives; NEARWALK_ACCEPT=1 writes it anew",
        tree.display()
    );
}
