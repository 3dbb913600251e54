// SPDX-License-Identifier: GPL-2.0-or-later
//! What instruments said, in a file beside a recording.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use nearwalk_host::recording::parse;
use nearwalk_host::{Error, Source};
use nearwalk_perf::{Missing, Reading, Target};
use serde::{Deserialize, Serialize};

use crate::subject::{Instruments, Whom};

/// The file's name in the directory of a recording.
const FILE: &str = "evidence.json";
const SCHEMA: &str = "nearwalk.evidence.v1";

/// What a process's leaf tables map, by node; or why it is not known.
type TablesOf = Result<Vec<(Option<u32>, u64)>, String>;

/// What was asked, and what instruments said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evidence {
    schema: String,
    /// Whom it is about.
    pub whom: Whom,
    /// How many nodes the host has.
    pub nodes: usize,
    /// What was counted.
    pub counters: Result<Reading, Missing>,
    /// By process.
    pub tables: BTreeMap<u32, TablesOf>,
}

impl Evidence {
    /// None yet.
    pub fn new(whom: Whom) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            whom,
            nodes: 0,
            counters: Err(Missing::NotRecorded),
            tables: BTreeMap::new(),
        }
    }

    /// Reads that of a recording; none of one that is about the whole host.
    pub fn open(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        };
        parse(&path, &text, SCHEMA).map(Some)
    }

    /// Writes it into the directory of a recording.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from);
        text.and_then(|text| fs::write(dir.join(FILE), text + "\n"))
            .map_err(|source| Error::Recording {
                dir: dir.to_owned(),
                source,
            })
    }

    /// Whether it is of the host that the recording beside it is of.
    pub fn check(&self, dir: &Path, nodes: usize) -> Result<(), Error> {
        if self.nodes == nodes {
            return Ok(());
        }
        Err(Error::BadRecording {
            path: dir.join(FILE),
            why: format!(
                "it was made on {} nodes, and the recording beside it on {nodes}: they are not of one \
                 look",
                self.nodes
            ),
        })
    }
}

/// Asks other instruments, and keeps what they say.
pub struct Noted<'a> {
    /// The others.
    pub instruments: &'a mut dyn Instruments,
    /// What they said.
    pub evidence: Evidence,
}

impl Instruments for Noted<'_> {
    fn begin(&mut self, source: &mut dyn Source, target: &Target<'_>) -> Result<(), Missing> {
        let begun = self.instruments.begin(source, target);
        if let Err(missing) = &begun {
            self.evidence.counters = Err(missing.clone());
        }
        begun
    }

    fn end(&mut self, source: &mut dyn Source) -> Result<Reading, Missing> {
        self.evidence.counters = self.instruments.end(source);
        self.evidence.counters.clone()
    }

    fn tables(&mut self, pid: u32) -> TablesOf {
        let tables = self.instruments.tables(pid);
        self.evidence.tables.insert(pid, tables.clone());
        tables
    }
}

/// Says what others said when it was recorded.
impl Instruments for Evidence {
    fn begin(&mut self, _: &mut dyn Source, _: &Target<'_>) -> Result<(), Missing> {
        self.counters.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn end(&mut self, _: &mut dyn Source) -> Result<Reading, Missing> {
        self.counters.clone()
    }

    fn tables(&mut self, pid: u32) -> TablesOf {
        let tables = self.tables.get(&pid).cloned();
        tables.unwrap_or_else(|| Err("the recording has none of this process".to_owned()))
    }
}
