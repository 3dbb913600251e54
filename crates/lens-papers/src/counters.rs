// SPDX-License-Identifier: GPL-2.0-or-later
//! Performance counters of all-local runs: what a program does whatever the
//! placement.
//!
//! Loads of a real program include many that no generator has (its stack, its
//! loop counters), so counts are compared a walk: which lines a walk reads,
//! how long it takes, and how many data lines come from memory meanwhile.

use crate::reference::ReferenceError;
use lens::stats::Stats;

/// Ratios that both a log and the model have.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Walker-active cycles over runtime.
    pub walk_share: f64,
    /// Cycles a walk.
    pub cycles: f64,
    /// Table lines that a walk reads, if known.
    pub refs: Option<f64>,
    /// Of these, from the core's own caches, from L3 and from memory.
    pub levels: Option<[f64; 3]>,
    /// Lines of data loads that come from memory, a walk.
    pub misses: Option<f64>,
    /// The same of a thousand loads and stores. A log's are all of the program's, of
    /// which generators make those that may miss.
    pub misses_of_thousand: Option<f64>,
}

/// One program's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// Workload.
    pub workload: String,
    /// Configuration, always an all-local one.
    pub config: String,
    /// What was counted.
    pub counts: Counts,
}

impl Counts {
    /// Those of a run of the model.
    pub fn of(s: &Stats) -> Self {
        let walks = s.walks.max(1) as f64;
        let memory: u64 = s.walk_mem.iter().flatten().sum();
        let near = s.walk_refs - s.walk_l3 - memory;
        Counts {
            walk_share: s.walk_share(),
            cycles: s.cycles_per_walk(),
            refs: Some(s.walk_refs as f64 / walks),
            levels: Some([near, s.walk_l3, memory].map(|n| n as f64 / walks)),
            misses: Some((s.data_mem[0] + s.data_mem[1]) as f64 / walks),
            misses_of_thousand: Some(
                1000.0 * (s.data_mem[0] + s.data_mem[1]) as f64 / s.accesses.max(1) as f64,
            ),
        }
    }
}

/// Reads the logs in `text`, a file called `name`; `None` if it holds none.
///
/// # Errors
/// [`ReferenceError`] with the line for a malformed number or a short row.
pub fn parse(name: &str, text: &str) -> Result<Option<Vec<Log>>, ReferenceError> {
    let mut lines = text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty());
    let header = lines.next().map_or("", |l| l.1);
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    if !columns.contains(&"walker_loads_memory") {
        return Ok(None);
    }
    let mut out = Vec::new();
    for (i, row) in lines {
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let fail = |what| ReferenceError {
            file: name.to_owned(),
            line: i + 1,
            what,
        };
        let text = |column: &str| {
            let at = columns.iter().position(|&c| c == column);
            let field = at.and_then(|i| fields.get(i).copied());
            field.ok_or_else(|| fail(format!("no column {column}")))
        };
        let logged = |column: &str| -> Result<Option<f64>, ReferenceError> {
            match text(column)? {
                "" => Ok(None),
                field => field
                    .parse()
                    .map(Some)
                    .map_err(|_| fail(format!("`{field}` in column {column} is not a number"))),
            }
        };
        let need = |column: &str| {
            let value = logged(column)?;
            value.ok_or_else(|| fail(format!("column {column} is empty")))
        };
        let walks = need("load_walks")? + need("store_walks")?;
        let cycles = need("load_walk_cycles")? + need("store_walk_cycles")?;
        let misses = logged("l3_load_misses")?;
        let accesses = match columns.contains(&"loads") {
            true => Some(need("loads")? + need("stores")?),
            false => None,
        };
        let own = [logged("walker_loads_l1")?, logged("walker_loads_l2")?];
        let levels = match (
            own,
            logged("walker_loads_l3")?,
            logged("walker_loads_memory")?,
        ) {
            ([Some(l1), Some(l2)], Some(l3), Some(memory)) => Some([l1 + l2, l3, memory]),
            _ => None,
        };
        out.push(Log {
            workload: text("workload")?.to_owned(),
            config: text("config")?.to_owned(),
            counts: Counts {
                walk_share: cycles / need("cycles")?,
                cycles: cycles / walks,
                refs: levels.map(|l| l.iter().sum::<f64>() / walks),
                levels: levels.map(|l| l.map(|n| n / walks)),
                misses: misses.map(|m| m / walks),
                misses_of_thousand: misses.zip(accesses).map(|(m, n)| 1000.0 * m / n),
            },
        });
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "figure,workload,config,cycles,load_walks,store_walks,load_walk_cycles,\
        store_walk_cycles,walker_loads_l1,walker_loads_l2,walker_loads_l3,walker_loads_memory,\
        l3_load_misses\n";

    #[test]
    fn logs_become_ratios_a_walk() {
        let text = format!(
            "{HEADER}f,A,LP-LD,1000,9,1,390,10,10,2,6,2,30\nf,B,LP-LD,100,4,1,20,30,,,,,\n"
        );
        let logs = parse("c.csv", &text).unwrap().unwrap();
        let a = logs[0].counts;
        assert_eq!((a.walk_share, a.cycles, a.misses), (0.4, 40.0, Some(3.0)));
        assert_eq!((a.refs, a.levels), (Some(2.0), Some([1.2, 0.6, 0.2])));
        let b = &logs[1];
        assert_eq!((&*b.workload, b.counts.cycles), ("B", 10.0));
        assert_eq!((b.counts.refs, b.counts.misses), (None, None));
        assert_eq!(a.misses_of_thousand, None, "no column of loads");
        let with = HEADER.replace("cycles,load_walks", "cycles,loads,stores,load_walks");
        let text = format!("{with}f,A,LP-LD,1000,400,100,9,1,390,10,10,2,6,2,30\n");
        let logs = parse("c.csv", &text).unwrap().unwrap();
        assert_eq!(logs[0].counts.misses_of_thousand, Some(60.0));
        assert_eq!(parse("d.csv", "workload,config,cycles\n").unwrap(), None);
        let e = parse("c.csv", &format!("{HEADER}f,A,LP-LD,x,9,1,1,1,,,,,\n")).unwrap_err();
        assert_eq!((e.line, e.to_string().contains("`x`")), (2, true));
    }

    #[test]
    fn the_models_lines_of_a_walk_add_up() {
        let s = Stats {
            cycles: 1000.0,
            walks: 10,
            walk_cycles: 400.0,
            walk_refs: 20,
            walk_l3: 6,
            walk_mem: [[1, 1], [0, 0]],
            data_mem: [30, 0],
            accesses: 120,
            ..Stats::default()
        };
        let c = Counts::of(&s);
        assert_eq!((c.refs, c.levels), (Some(2.0), Some([1.2, 0.6, 0.2])));
        assert_eq!((c.walk_share, c.cycles, c.misses), (0.4, 40.0, Some(3.0)));
        assert_eq!(c.misses_of_thousand, Some(250.0));
    }
}
