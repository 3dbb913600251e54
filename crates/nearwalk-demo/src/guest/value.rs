// SPDX-License-Identifier: GPL-2.0-or-later
//! What the clients store: values that say themselves which key and version
//! they are, and whose every word depends on both and on its place. A page of
//! another value, of an older version or from another offset is noticed.

/// Key, version and two words of pattern.
pub const MIN_SIZE: usize = 32;

/// An odd constant without structure: the fraction of the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Why an answer is not the value that was stored.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Wrong {
    #[error("{found} bytes instead of {expected}")]
    Size { found: usize, expected: usize },
    #[error("the value of key {found}")]
    Key { found: u64 },
    #[error("version {found}; stored were {oldest} to {newest}")]
    Version {
        found: u64,
        oldest: u64,
        newest: u64,
    },
    #[error("wrong from byte {offset} on: {found:#018x} instead of {expected:#018x}")]
    Content {
        offset: usize,
        found: u64,
        expected: u64,
    },
}

/// Writes version `version` of the value of `key` to `buffer`, whose length
/// must be a multiple of 8 and [`MIN_SIZE`] or more.
pub fn make(key: u64, version: u64, buffer: &mut [u8]) {
    assert!(buffer.len() >= MIN_SIZE && buffer.len() % 8 == 0);
    let (head, body) = buffer.split_at_mut(16);
    head[..8].copy_from_slice(&key.to_le_bytes());
    head[8..].copy_from_slice(&version.to_le_bytes());
    let mut word = seed(key, version);
    for slot in body.chunks_exact_mut(8) {
        slot.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
}

/// Checks an answer to a request for `key` against every version that it may
/// be, of `size` bytes: those from `oldest`, the last one known to be stored when the request
/// was sent, to `newest`, the last one sent when the answer was complete.
pub fn check(
    key: u64,
    (oldest, newest): (u64, u64),
    size: usize,
    answer: &[u8],
) -> Result<(), Wrong> {
    if answer.len() != size {
        return Err(Wrong::Size {
            found: answer.len(),
            expected: size,
        });
    }
    let mut words = answer
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let mut next = || words.next().expect("values have MIN_SIZE");
    let found = next();
    if found != key {
        return Err(Wrong::Key { found });
    }
    let version = next();
    if !(oldest..=newest).contains(&version) {
        return Err(Wrong::Version {
            found: version,
            oldest,
            newest,
        });
    }
    let mut expected = seed(key, version);
    for (index, found) in words.enumerate() {
        if found != expected {
            return Err(Wrong::Content {
                offset: (index + 2) * 8,
                found,
                expected,
            });
        }
        expected = expected.wrapping_add(STEP);
    }
    Ok(())
}

/// Mixes key and version (the finalizer of SplitMix64).
fn seed(key: u64, version: u64) -> u64 {
    let mut mixed = key.rotate_left(32) ^ version.wrapping_mul(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 8 << 10;

    fn value(key: u64, version: u64) -> Vec<u8> {
        let mut buffer = vec![0; SIZE];
        make(key, version, &mut buffer);
        buffer
    }

    #[test]
    fn what_was_stored_is_right() {
        assert_eq!(check(7, (3, 5), SIZE, &value(7, 4)), Ok(()));
        let mut smallest = [0; MIN_SIZE];
        make(1, 1, &mut smallest);
        assert_eq!(check(1, (1, 1), MIN_SIZE, &smallest), Ok(()));
    }

    #[test]
    fn another_key_version_or_size_is_wrong() {
        assert_eq!(
            check(7, (1, 1), SIZE, &value(8, 1)),
            Err(Wrong::Key { found: 8 })
        );
        for version in [2, 6] {
            assert!(matches!(
                check(7, (3, 5), SIZE, &value(7, version)),
                Err(Wrong::Version { found, .. }) if found == version
            ));
        }
        assert!(matches!(
            check(7, (1, 1), SIZE + 8, &value(7, 1)),
            Err(Wrong::Size { .. })
        ));
        assert!(matches!(
            check(7, (1, 1), SIZE, &[]),
            Err(Wrong::Size { .. })
        ));
    }

    #[test]
    fn a_page_from_elsewhere_is_wrong() {
        // Of an older version, of another key, and of another offset.
        let old = value(7, 1);
        let other = value(8, 2);
        let good = value(7, 2);
        for page in [&old[4096..], &other[4096..], &good[..4096], &[0; 4096]] {
            let mut mixed = good.clone();
            mixed[4096..].copy_from_slice(page);
            assert!(matches!(
                check(7, (1, 2), SIZE, &mixed),
                Err(Wrong::Content { offset: 4096, .. })
            ));
        }
    }

    #[test]
    fn every_single_bit_counts() {
        let good = value(3, 9);
        for byte in [16, 1000, SIZE - 1] {
            let mut flipped = good.clone();
            flipped[byte] ^= 0x10;
            assert!(check(3, (9, 9), SIZE, &flipped).is_err());
        }
    }
}
