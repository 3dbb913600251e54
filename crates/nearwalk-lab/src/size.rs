// SPDX-License-Identifier: GPL-2.0-or-later
//! Amounts of memory as people write them.

use std::{fmt, str::FromStr};

/// An amount of memory: bytes, a whole number of MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    pub const fn mib(mib: u64) -> Size {
        Size(mib << 20)
    }

    pub const fn gib(gib: u64) -> Size {
        Size(gib << 30)
    }

    pub fn bytes(self) -> u64 {
        self.0
    }

    pub fn in_mib(self) -> u64 {
        self.0 >> 20
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bad = || {
            format!("'{text}' is no memory size; allowed: a whole number with M, G or T, as in 4G")
        };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(bad()),
        };
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(1 << shift))
            .map(Size)
            .ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 > 0 && self.0 % (1 << 30) == 0 {
            write!(f, "{}G", self.0 >> 30)
        } else {
            write!(f, "{}M", self.0 >> 20)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_each_unit() {
        assert_eq!("512M".parse(), Ok(Size::mib(512)));
        assert_eq!("4g".parse(), Ok(Size::gib(4)));
        assert_eq!("1T".parse(), Ok(Size::gib(1024)));
        assert_eq!("2GiB".parse(), Ok(Size::gib(2)));
    }

    #[test]
    fn bad_sizes_are_named() {
        for bad in ["", "4", "G", "1.5G", "-1G", "4K", "99999999999T"] {
            let error = bad.parse::<Size>().unwrap_err();
            assert!(error.contains(&format!("'{bad}'")), "{error}");
        }
    }

    #[test]
    fn sizes_print_as_they_are_read() {
        for text in ["4G", "1536M", "0M"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
    }
}
