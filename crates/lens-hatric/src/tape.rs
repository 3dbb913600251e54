// SPDX-License-Identifier: GPL-2.0-or-later
//! Tapes: remaps that a real hypervisor made, played in place of the pager.
//!
//! A tape is JSON, an object a line: a [`Header`], [`Event`]s in the order of their
//! time, an [`End`]. `docs/hatric.md` has the format for who writes a recorder.

use crate::guest::Gpn;
use crate::machine::Refused;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::BufRead;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`Header::FORMAT`].
    pub tape: String,
    /// [`Header::VERSION`].
    pub version: u32,
    /// Pages of 4 KiB that the guest has.
    pub memory: u64,
    /// Pages of fast memory that the hypervisor paged it with.
    pub stacked: u64,
    /// vCPUs of the guest.
    pub vcpus: u32,
    /// First page and how many, of ranges that are in fast memory when it begins.
    pub resident: Vec<(Gpn, u64)>,
    /// Whatever else is worth knowing: kernel, machine, how time was counted.
    #[serde(default)]
    pub note: String,
}

impl Header {
    /// What a tape says that it is.
    pub const FORMAT: &str = "nearwalk-hatric";
    /// Of the format.
    pub const VERSION: u32 = 1;
}

/// What happened to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It came into fast memory.
    In,
    /// It left it.
    Out,
    /// It got another frame of the same memory.
    Moved,
    /// No page: the hypervisor flushed for another reason. Counted, not played.
    Flush,
}

/// A line between the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Accesses that all vCPUs had made since the tape began.
    pub at: u64,
    /// What happened.
    pub what: What,
    /// The guest-physical page of 4 KiB; not of a flush.
    pub page: Option<Gpn>,
    /// The vCPU that waited for it; none for a thread of the hypervisor.
    pub cpu: Option<u32>,
    /// vCPUs that ran then.
    pub vcpus: u32,
    /// Exits that it brought about.
    #[serde(default)]
    pub exits: u32,
    /// Interrupts that were sent for it.
    #[serde(default)]
    pub interrupts: u32,
    /// vCPUs whose translations were flushed.
    #[serde(default)]
    pub flushes: u32,
}

/// The last line, without which a tape was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Accesses that had been made when recording stopped.
    pub end: u64,
    /// Events that there are.
    pub events: u64,
}

/// A tape that was read and makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tape {
    /// Its first line.
    pub header: Header,
    /// Its events.
    pub events: Vec<Event>,
    /// Its last line.
    pub end: End,
}

fn bad(line: usize, what: impl ToString, allowed: impl Into<String>) -> Refused {
    Refused::value(format!("line {line} of the tape"), what, allowed)
}

fn parse<T: DeserializeOwned>(line: usize, text: &str, allowed: &str) -> Result<T, Refused> {
    serde_json::from_str(text).map_err(|e| bad(line, e, allowed))
}

impl Tape {
    /// Reads one.
    ///
    /// # Errors
    /// The line, what is wrong with it, and what is allowed.
    pub fn read(input: impl BufRead) -> Result<Self, Refused> {
        let mut lines = Vec::new();
        for (i, line) in input.lines().enumerate() {
            lines.push(line.map_err(|e| bad(i + 1, e, "text is allowed"))?);
        }
        // Editors and `echo` end a file so.
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        let first = lines.first().map_or("", String::as_str);
        let header: Header = parse(1, first, "the header of a tape is allowed first")?;
        let of = (header.tape.as_str(), header.version);
        if of != (Header::FORMAT, Header::VERSION) {
            let (format, version) = (Header::FORMAT, Header::VERSION);
            let says = format!("{format} of version {version} is allowed");
            return Err(bad(1, format!("{} of version {}", of.0, of.1), says));
        }
        let last = lines.len();
        let cut = "a tape ends with a line of `end` and `events`: this one was cut short";
        let end: End = match last {
            1 => return Err(bad(1, "the last one", cut)),
            _ => parse(last, &lines[last - 1], cut)?,
        };
        let mut events: Vec<Event> = Vec::with_capacity(last - 2);
        let known = "an event of a tape is allowed here";
        for (i, text) in lines[1..last - 1].iter().enumerate() {
            events.push(parse(i + 2, text, known)?);
        }
        let tape = Tape {
            header,
            events,
            end,
        };
        tape.check()?;
        Ok(tape)
    }

    /// Writes it as [`Tape::read`] reads it.
    ///
    /// # Panics
    /// Never: all of it can be written as JSON.
    pub fn text(&self) -> String {
        let json = |r: serde_json::Result<String>| r.expect("plain data") + "\n";
        let mut text = json(serde_json::to_string(&self.header));
        for e in &self.events {
            text += &json(serde_json::to_string(e));
        }
        text + &json(serde_json::to_string(&self.end))
    }

    /// Whether pages are where each event says, and everything else is in range.
    fn check(&self) -> Result<(), Refused> {
        let h = &self.header;
        if !(1..1 << 31).contains(&h.memory) || !(1..=64).contains(&h.vcpus) {
            let what = format!("{} pages and {} vCPUs", h.memory, h.vcpus);
            return Err(bad(
                1,
                what,
                "up to 2^31 - 1 pages and 1 to 64 vCPUs are allowed",
            ));
        }
        let mut inside = vec![false; h.memory as usize];
        let mut count = 0;
        for &(first, n) in &h.resident {
            let end = first.checked_add(n).filter(|end| *end <= h.memory);
            let end = end.ok_or_else(|| {
                let says = format!("pages below {} are allowed", h.memory);
                bad(1, format!("resident ({first}, {n})"), says)
            })?;
            inside[first as usize..end as usize].fill(true);
            count += n;
        }
        if count > h.stacked || inside.iter().filter(|i| **i).count() as u64 != count {
            let says = format!(
                "each page once, and the {} of fast memory, are allowed",
                h.stacked
            );
            return Err(bad(1, format!("{count} resident pages"), says));
        }
        let mut before = 0;
        for (i, e) in self.events.iter().enumerate() {
            let line = i + 2;
            if e.at < before || e.at > self.end.end {
                let says = format!("{before} to {}, the end, is allowed", self.end.end);
                return Err(bad(line, format!("at {}", e.at), says));
            }
            before = e.at;
            let vcpus = h.vcpus;
            if !(1..=vcpus).contains(&e.vcpus) || e.cpu.is_some_and(|c| c >= vcpus) {
                let what = format!("of {} vCPUs and of vCPU {:?}", e.vcpus, e.cpu);
                return Err(bad(line, what, format!("the tape has {vcpus}")));
            }
            let page = match (e.what, e.page) {
                (What::Flush, None) => continue,
                (_, Some(page)) if e.what != What::Flush && page < h.memory => page as usize,
                _ => {
                    let what = format!("{:?} of page {:?}", e.what, e.page);
                    let says = format!("a page below {}, or none for a flush", h.memory);
                    return Err(bad(line, what, says));
                }
            };
            let wrong = match e.what {
                What::In => inside[page].then_some("is in fast memory already"),
                What::Out => (!inside[page]).then_some("is not in fast memory"),
                _ => None,
            };
            if let Some(wrong) = wrong {
                return Err(bad(
                    line,
                    format!("page {page}, which {wrong}"),
                    "a page that is where the event takes it from",
                ));
            }
            match e.what {
                What::In => count += 1,
                What::Out => count -= 1,
                _ => {}
            }
            inside[page] = match e.what {
                What::In => true,
                What::Out => false,
                _ => inside[page],
            };
            if count > h.stacked {
                let says = format!("{} are allowed, all of fast memory", h.stacked);
                return Err(bad(
                    line,
                    format!("the page that makes {count} in fast memory"),
                    says,
                ));
            }
        }
        if self.events.len() as u64 != self.end.events {
            let says = format!("{} are there: a part is missing", self.events.len());
            return Err(bad(
                self.events.len() + 2,
                format!("events {}", self.end.events),
                says,
            ));
        }
        Ok(())
    }

    /// What changes of a page brought about, by the number of vCPUs that ran: vCPUs,
    /// changes, and exits, interrupts and flushes of each on average. Flushes of no
    /// page count as brought about by the changes.
    pub fn costs(&self) -> Vec<(u32, u64, [f64; 3])> {
        let mut all = Vec::new();
        for vcpus in 1..=self.header.vcpus {
            let of = || self.events.iter().filter(|e| e.vcpus == vcpus);
            let changes = of().filter(|e| e.what != What::Flush).count() as u64;
            if changes > 0 {
                let mean = |what: fn(&Event) -> u32| {
                    of().map(|e| f64::from(what(e))).sum::<f64>() / changes as f64
                };
                let costs = [
                    mean(|e| e.exits),
                    mean(|e| e.interrupts),
                    mean(|e| e.flushes),
                ];
                all.push((vcpus, changes, costs));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"tape":"nearwalk-hatric","version":1,"memory":4096,"stacked":3,"vcpus":4,"resident":[[8,2]]}"#;
    const IN: &str =
        r#"{"at":5,"what":"in","page":100,"cpu":2,"vcpus":4,"exits":3,"interrupts":3,"flushes":4}"#;
    const OUT: &str = r#"{"at":9,"what":"out","page":8,"cpu":null,"vcpus":2,"exits":1}"#;
    const FLUSH: &str = r#"{"at":9,"what":"flush","page":null,"cpu":null,"vcpus":2,"flushes":2}"#;
    const END: &str = r#"{"end":50,"events":3}"#;

    fn read(lines: &[&str]) -> Result<Tape, Refused> {
        Tape::read(lines.join("\n").as_bytes())
    }

    #[test]
    fn a_tape_reads_as_it_was_written_and_its_costs_are_means() {
        let tape = read(&[HEADER, IN, OUT, FLUSH, END]).unwrap();
        assert_eq!(Tape::read(tape.text().as_bytes()).unwrap(), tape);
        assert_eq!(tape.events[0].page, Some(100));
        assert_eq!(
            read(&[HEADER, IN, OUT, FLUSH, END, "", " ", ""]).unwrap(),
            tape
        );
        let e = read(&[HEADER, "", ""]).unwrap_err().to_string();
        assert!(e.contains("cut short"), "{e}");
        let e = read(&[HEADER, "", END]).unwrap_err().to_string();
        assert!(e.contains("line 2 of the tape"), "{e}");
        let costs = [(2, 1, [1.0, 0.0, 2.0]), (4, 1, [3.0, 3.0, 4.0])];
        assert_eq!(tape.costs(), costs);
    }

    #[test]
    fn tapes_that_are_wrong_are_refused_by_line() {
        let event = |more: &str| format!(r#"{{"at":9,"cpu":null,"vcpus":2,{more}}}"#);
        for (lines, says) in [
            (vec![], "line 1 of the tape"),
            (vec![HEADER], "cut short"),
            (
                vec![HEADER, IN, OUT],
                "line 3 of the tape is unknown field `at`",
            ),
            (
                vec![HEADER, IN, OUT, END],
                "events 3; 2 are there: a part is missing",
            ),
            (
                vec![HEADER, OUT, IN, FLUSH, END],
                "line 3 of the tape is at 5; 9 to 50",
            ),
            (
                vec![HEADER, IN, IN, END],
                "page 100, which is in fast memory already",
            ),
            (
                vec![HEADER, OUT, OUT, END],
                "page 8, which is not in fast memory",
            ),
            (
                vec![HEADER, &event(r#""what":"in","page":4096"#), END],
                "page below 4096",
            ),
            (
                vec![HEADER, &event(r#""what":"flush","page":1"#), END],
                "none for a flush",
            ),
            (
                vec![HEADER, &event(r#""what":"up","page":1"#), END],
                "unknown variant `up`",
            ),
            (
                vec![HEADER, &event(r#""what":"in","pages":1"#), END],
                "unknown field `pages`",
            ),
            (
                vec![&HEADER.replace(":1,", ":2,"), END],
                "of version 2; nearwalk-hatric of version 1",
            ),
            (
                vec![&HEADER.replace("[8,2]", "[4095,2]"), END],
                "resident (4095, 2); pages below 4096",
            ),
            (
                vec![&HEADER.replace("[8,2]", "[8,4]"), END],
                "4 resident pages; each page once",
            ),
            (
                vec![&HEADER.replace("[8,2]", "[8,2],[9,1]"), END],
                "3 resident pages",
            ),
            (
                vec![&HEADER.replace("\"vcpus\":4", "\"vcpus\":1"), IN, END],
                "the tape has 1",
            ),
            (
                vec![&HEADER.replace("\"stacked\":3", "\"stacked\":2"), IN, END],
                "makes 3 in fast memory; 2 are allowed",
            ),
        ] {
            let e = read(&lines).unwrap_err().to_string();
            assert!(e.contains(says), "{lines:?}: {e}");
        }
    }
}
