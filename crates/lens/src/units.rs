// SPDX-License-Identifier: GPL-2.0-or-later
//! Units as types, written in machine files with their unit beside the number.
//!
//! A plain number is refused everywhere, so a file can never mean bytes where
//! the model reads KiB. Every parse error names the text and what is allowed.

use serde::Deserialize;
use std::fmt;

/// Why a quantity in a machine file or on a command line was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}; write {expected}")]
pub struct UnitError {
    /// The text as given.
    pub text: String,
    /// What was wanted.
    pub what: &'static str,
    /// An example of what is allowed.
    pub expected: &'static str,
}

fn split(text: &str) -> Option<(f64, &str)> {
    let t = text.trim();
    let end = t
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(t.len());
    let number: f64 = t[..end].replace('_', "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number, t[end..].trim()))
}

fn scaled(
    text: &str,
    what: &'static str,
    expected: &'static str,
    units: &[(&str, f64)],
) -> Result<f64, UnitError> {
    split(text)
        .and_then(|(n, unit)| units.iter().find(|(u, _)| *u == unit).map(|(_, f)| n * f))
        .ok_or_else(|| UnitError {
            text: text.to_owned(),
            what,
            expected,
        })
}

/// A size in bytes, 0 to 2^63. Written `64 B`, `256 KiB`, `35 MiB`, `8 TiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Default)]
#[serde(try_from = "String")]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` binary kilobytes.
    pub const fn kib(n: u64) -> Self {
        Bytes(n << 10)
    }
    /// `n` binary megabytes.
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }
    /// `n` binary gigabytes.
    pub const fn gib(n: u64) -> Self {
        Bytes(n << 30)
    }
}

impl TryFrom<String> for Bytes {
    type Error = UnitError;
    fn try_from(text: String) -> Result<Self, UnitError> {
        let v = scaled(
            &text,
            "size",
            "a number and B, KiB, MiB, GiB or TiB, such as \"256 KiB\"",
            &[
                ("B", 1.0),
                ("KiB", 1024.0),
                ("MiB", 1048576.0),
                ("GiB", 1073741824.0),
                ("TiB", 1099511627776.0),
            ],
        )?;
        Ok(Bytes(v as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut v, mut unit) = (self.0 as f64, "B");
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if v < 1024.0 {
                break;
            }
            v /= 1024.0;
            unit = next;
        }
        let text = format!("{v:.2}");
        write!(
            f,
            "{} {unit}",
            text.trim_end_matches('0').trim_end_matches('.')
        )
    }
}

/// A clock in cycles per second. Written `2.2 GHz` or `2100 MHz`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "String")]
pub struct Hertz(pub f64);

impl TryFrom<String> for Hertz {
    type Error = UnitError;
    fn try_from(text: String) -> Result<Self, UnitError> {
        scaled(
            &text,
            "frequency",
            "a number and MHz or GHz, such as \"2.2 GHz\"",
            &[("MHz", 1e6), ("GHz", 1e9)],
        )
        .map(Hertz)
    }
}

/// A throughput in bytes per second. Written `28 GB/s` (decimal) or `500 MB/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "String")]
pub struct Bandwidth(pub f64);

impl TryFrom<String> for Bandwidth {
    type Error = UnitError;
    fn try_from(text: String) -> Result<Self, UnitError> {
        scaled(
            &text,
            "bandwidth",
            "a number and MB/s or GB/s, such as \"28 GB/s\"",
            &[("MB/s", 1e6), ("GB/s", 1e9)],
        )
        .map(Bandwidth)
    }
}

impl Bandwidth {
    /// Cycles of a clock that one cache line of 64 bytes occupies the pipe.
    pub fn cycles_per_line(self, clock: Hertz) -> Cycles {
        Cycles(64.0 * clock.0 / self.0)
    }
}

/// A time in core clock cycles; fractions are allowed, negatives are not.
/// Written `280 cycles`, or `127 ns` when the machine's clock turns it into
/// cycles (see [`Latency`]).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Cycles(pub f64);

/// The greater of two times in cycles. Unlike [`f64::max`] it need not mind what
/// is not a number.
#[inline(always)]
pub(crate) fn later(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The lesser of two times.
#[inline(always)]
pub(crate) fn earlier(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// A latency as a file gives it: cycles, or nanoseconds to be multiplied by
/// the clock.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Latency {
    /// Core clock cycles.
    Cycles(f64),
    /// Nanoseconds.
    Nanoseconds(f64),
}

impl Latency {
    /// The latency in cycles of `clock`.
    pub fn at(self, clock: Hertz) -> Cycles {
        match self {
            Latency::Cycles(c) => Cycles(c),
            Latency::Nanoseconds(n) => Cycles(n * clock.0 / 1e9),
        }
    }
}

impl TryFrom<String> for Latency {
    type Error = UnitError;
    fn try_from(text: String) -> Result<Self, UnitError> {
        let bad = || UnitError {
            text: text.clone(),
            what: "latency",
            expected: "a number and cycles or ns, such as \"280 cycles\"",
        };
        match split(&text).ok_or_else(bad)? {
            (n, "cycles" | "cycle") => Ok(Latency::Cycles(n)),
            (n, "ns") => Ok(Latency::Nanoseconds(n)),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_need_their_unit() {
        assert_eq!(Bytes::try_from("256 KiB".to_owned()), Ok(Bytes::kib(256)));
        assert_eq!(Bytes::try_from("35.75 MiB".to_owned()), Ok(Bytes(37486592)));
        let e = Bytes::try_from("256".to_owned()).unwrap_err();
        assert!(
            e.to_string().contains("`256`") && e.to_string().contains("KiB"),
            "{e}"
        );
        assert!(Bytes::try_from("-1 KiB".to_owned()).is_err());
        assert!(Hertz::try_from("2.2".to_owned()).is_err());
        assert!(Latency::try_from("5 s".to_owned()).is_err());
    }

    #[test]
    fn nanoseconds_become_cycles_of_the_clock() {
        let ghz = Hertz::try_from("2.5 GHz".to_owned()).unwrap();
        assert_eq!(
            Latency::try_from("100 ns".to_owned()).unwrap().at(ghz),
            Cycles(250.0)
        );
        assert_eq!(
            Latency::try_from("280 cycles".to_owned()).unwrap().at(ghz),
            Cycles(280.0)
        );
    }

    #[test]
    fn a_line_occupies_the_pipe_for_size_over_bandwidth() {
        let bw = Bandwidth::try_from("28 GB/s".to_owned()).unwrap();
        let c = bw.cycles_per_line(Hertz(2.2e9)).0;
        assert!((c - 5.0286).abs() < 1e-3, "{c}");
    }
}
