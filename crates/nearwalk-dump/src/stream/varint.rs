// SPDX-License-Identifier: GPL-2.0-or-later
//! Variable-length numbers of a record's payload.

use super::Problem;

/// Takes numbers from the front of a payload.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Next unsigned LEB128 number.
    pub fn varint(&mut self) -> Result<u64, Problem> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Problem::ShortNumber)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                return Err(Problem::LongNumber);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Problem::LongNumber)
    }

    /// Next signed number, folded to unsigned.
    pub fn zigzag(&mut self) -> Result<i64, Problem> {
        let folded = self.varint()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    /// Next number, which has to be in `min..=max`.
    pub fn ranged(&mut self, what: &'static str, min: u64, max: u64) -> Result<u64, Problem> {
        let value = self.varint()?;
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            Err(Problem::OutOfRange {
                what,
                value,
                min,
                max,
            })
        }
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut fields = Fields(&out);
            assert_eq!(fields.varint(), Ok(value));
            assert!(fields.is_empty());
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_zigzag(&mut out, value);
            assert_eq!(Fields(&out).zigzag(), Ok(value));
        }
    }

    #[test]
    fn overlong_and_cut_numbers_are_errors() {
        assert_eq!(Fields(&[0xff; 11]).varint(), Err(Problem::LongNumber));
        let mut tenth = [0xff; 10];
        tenth[9] = 2;
        assert_eq!(Fields(&tenth).varint(), Err(Problem::LongNumber));
        assert_eq!(Fields(&[0x80]).varint(), Err(Problem::ShortNumber));
        assert_eq!(Fields(&[]).varint(), Err(Problem::ShortNumber));
    }
}
