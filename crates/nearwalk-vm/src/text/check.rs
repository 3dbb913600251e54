// SPDX-License-Identifier: GPL-2.0-or-later
//! `pgtable_repl_check`.

use serde::Serialize;

use super::{TextError, lines, missing};

const FILE: &str = "pgtable_repl_check";

/// What the kernel found when it compared all trees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub violations: u64,
    pub trees: u64,
    pub tables: u64,
    pub leaves: u64,
    /// Tables on another node than their tree: no violation.
    pub misplaced: u64,
    /// The first violations, in the kernel's words.
    pub found: Vec<String>,
}

impl Report {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Report, TextError> {
        let mut report = Report::default();
        let mut violations = None;
        for mut line in lines(FILE, text) {
            let Ok(word) = line.word("word") else {
                continue;
            };
            match word {
                "violations" => violations = Some(line.number("count")?),
                "trees" => report.trees = line.number("count")?,
                "tables" => report.tables = line.number("count")?,
                "leaves" => report.leaves = line.number("count")?,
                "misplaced" => report.misplaced = line.number("count")?,
                "violation" => report.found.push(line.tail().to_owned()),
                _ => {}
            }
        }
        report.violations = violations.ok_or_else(|| missing(FILE, text, "violations"))?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_violations_are_read() {
        let text = "violations 1\ntrees 4\ntables 39\nleaves 5123\nmisplaced 1\n\
                    violation gfn 0x1: pfn 2 and 3\n";
        let report = Report::parse(text).unwrap();
        assert_eq!((report.violations, report.trees), (1, 4));
        assert_eq!((report.tables, report.leaves), (39, 5123));
        assert_eq!(report.misplaced, 1);
        assert_eq!(report.found, ["gfn 0x1: pfn 2 and 3"]);
    }

    #[test]
    fn a_file_without_the_answer_is_none() {
        let error = Report::parse("trees 4\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "pgtable_repl_check, line 2, ``: there is no line `violations`"
        );
        let error = Report::parse("violations none\n").unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
