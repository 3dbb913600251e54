// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's files of a virtual machine, as its
//! `Documentation/virt/kvm/x86/pgtable_repl.rst` describes them: lines that begin
//! with a word, which readers skip if they do not know it, as they do fields behind
//! those that they know.

mod check;
mod dump;
mod status;

pub use check::Report;
pub use dump::{Domain, Dump, Slot, Table, Tree, Vcpu};
pub use status::{Key, Mode, Status};

/// Where a file is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}, `{text}`: {why}")]
pub struct TextError {
    /// The file's name.
    pub file: &'static str,
    /// Counted from 1; behind the last one if something lacks.
    pub line: usize,
    /// What is there.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// A line while it is taken apart.
struct Line<'a> {
    file: &'static str,
    number: usize,
    text: &'a str,
    rest: &'a str,
}

fn lines<'a>(file: &'static str, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    let lines = text.lines().enumerate();
    lines.map(move |(index, text)| Line {
        file,
        number: index + 1,
        text,
        rest: text,
    })
}

impl<'a> Line<'a> {
    fn bad(&self, why: impl Into<String>) -> TextError {
        // A line may be long, and hold anything.
        let printable = |c: char| if c.is_control() { '?' } else { c };
        TextError {
            file: self.file,
            line: self.number,
            text: self.text.chars().take(60).map(printable).collect(),
            why: why.into(),
        }
    }

    /// The next field; `what` is its name.
    fn word(&mut self, what: &str) -> Result<&'a str, TextError> {
        let rest = self.rest.trim_start_matches(' ');
        let end = rest.find(' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        match word {
            "" => Err(self.bad(format!("there is no {what}"))),
            word => Ok(word),
        }
    }

    /// All that is left.
    fn tail(&self) -> &'a str {
        self.rest.trim()
    }

    /// A decimal number.
    fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N, TextError> {
        let word = self.word(what)?;
        let number = plain(word).and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.bad(format!("{what} `{word}` is not a number")))
    }

    /// One that may be `-`.
    fn optional<N: std::str::FromStr>(&mut self, what: &str) -> Result<Option<N>, TextError> {
        let before = self.rest;
        if self.word(what)? == "-" {
            return Ok(None);
        }
        self.rest = before;
        self.number(what).map(Some)
    }

    /// A number that begins with `0x`.
    fn hex(&mut self, what: &str) -> Result<u64, TextError> {
        let word = self.word(what)?;
        let digits = word.strip_prefix("0x").and_then(plain_hex);
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.ok_or_else(|| self.bad(format!("{what} `{word}` is not a number such as 0x1f")))
    }

    /// A list such as `0-3,8`, or `-`.
    fn list(&mut self, what: &str) -> Result<Vec<u32>, TextError> {
        let word = self.word(what)?;
        if word == "-" {
            return Ok(Vec::new());
        }
        let list = nearwalk_host::parse_list(word).filter(|list| !list.is_empty());
        list.ok_or_else(|| self.bad(format!("{what} `{word}` is not a list such as 0-3,8")))
    }

    /// A word that says what the next field is.
    fn expect(&mut self, word: &str) -> Result<(), TextError> {
        match self.word(&format!("`{word}`"))? {
            found if found == word => Ok(()),
            found => Err(self.bad(format!("`{found}` where `{word}` should be"))),
        }
    }
}

/// Digits alone: `parse()` would take a sign, too.
fn plain(word: &str) -> Option<&str> {
    word.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(word)
}

fn plain_hex(word: &str) -> Option<&str> {
    word.bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then_some(word)
}

/// A file without a line that it must have.
fn missing(file: &'static str, text: &str, word: &str) -> TextError {
    TextError {
        file,
        line: text.lines().count() + 1,
        text: String::new(),
        why: format!("there is no line `{word}`"),
    }
}
