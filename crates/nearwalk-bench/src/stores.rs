// SPDX-License-Identifier: GPL-2.0-or-later
//! What the plugin saw: stores between the program's marks, and whose memory
//! they went to. `nearwalk-plugin` writes the file, its module `count` says how.

/// Stores of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    pub all: u64,
    /// To memory of another node than the CPU's.
    pub remote: u64,
    /// Different cache lines among those.
    pub remote_lines: u64,
    /// Atomic read-modify-writes, of all and of the remote ones.
    pub atomic: u64,
    pub remote_atomic: u64,
}

/// Sections of each program that ran, in order.
#[derive(Debug, Default)]
pub struct Programs(Vec<Vec<Stores>>);

impl Programs {
    /// Reads the plugin's file; the error is a line that is none of its.
    pub fn parse(text: &str) -> Result<Programs, String> {
        let mut programs = Programs::default();
        for line in text.lines() {
            if line == "program" {
                programs.0.push(Vec::new());
                continue;
            }
            let stores = section(line).ok_or(line)?;
            programs.0.last_mut().ok_or(line)?.push(stores);
        }
        Ok(programs)
    }

    /// The median of each count over these sections of a program; `None` if
    /// one is not there.
    pub fn median(&self, program: usize, sections: &[usize]) -> Option<Stores> {
        let program = self.0.get(program)?;
        let seen: Vec<Stores> = sections
            .iter()
            .map(|&section| program.get(section).copied())
            .collect::<Option<_>>()?;
        let median = |count: fn(&Stores) -> u64| {
            let mut counts: Vec<u64> = seen.iter().map(count).collect();
            counts.sort_unstable();
            counts.get(counts.len() / 2).copied()
        };
        Some(Stores {
            all: median(|stores| stores.all)?,
            remote: median(|stores| stores.remote)?,
            remote_lines: median(|stores| stores.remote_lines)?,
            atomic: median(|stores| stores.atomic)?,
            remote_atomic: median(|stores| stores.remote_atomic)?,
        })
    }
}

fn section(line: &str) -> Option<Stores> {
    let numbers: Vec<u64> = line
        .strip_prefix("section ")?
        .split(' ')
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let [all, remote, remote_lines, atomic, remote_atomic] = numbers[..] else {
        return None;
    };
    Some(Stores {
        all,
        remote,
        remote_lines,
        atomic,
        remote_atomic,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_each_counts_own() {
        let text = "program\nsection 1 9 1 0 0\nsection 2 8 1 0 0\nsection 3 7 1 5 0\n";
        let programs = Programs::parse(text).unwrap();
        let median = programs.median(0, &[0, 1, 2]).unwrap();
        assert_eq!((median.all, median.remote, median.atomic), (2, 8, 0));
        assert_eq!(programs.median(0, &[2]).unwrap().atomic, 5);
        assert_eq!(programs.median(0, &[3]), None);
        assert_eq!(programs.median(1, &[0]), None);
    }

    #[test]
    fn other_lines_are_refused() {
        for bad in ["section 1 2 3 4 5", "program\nsection 1 2", "program\nfoo"] {
            assert!(Programs::parse(bad).is_err(), "{bad}");
        }
    }
}
