// SPDX-License-Identifier: GPL-2.0-or-later
//! The bits of an x86-64 entry, as `module/entry.h` has them.

pub const PRESENT: u64 = 1 << 0;
pub const WRITE: u64 = 1 << 1;
pub const ACCESSED: u64 = 1 << 5;
pub const DIRTY: u64 = 1 << 6;
/// A leaf above level 1.
pub const HUGE: u64 = 1 << 7;
/// Of an entry that is not present: inaccessible memory.
pub const PROTNONE: u64 = 1 << 8;
/// Linux' own: no page of the process.
pub const SPECIAL: u64 = 1 << 9;
pub const NX: u64 = 1 << 63;

/// The field of the frame.
pub const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Bytes that an entry of a table of `level` covers.
pub const fn size(level: u8) -> u64 {
    1 << (12 + 9 * (level as u32 - 1))
}

/// Accessed and dirty alone do not make an entry: a CPU erratum sets them.
pub const fn is_none(entry: u64) -> bool {
    entry & !(ACCESSED | DIRTY) == 0
}

/// Maps or names memory. A huge leaf that is being split is neither present
/// nor inaccessible for a moment.
pub const fn is_present(entry: u64, level: u8) -> bool {
    let huge = if level > 1 { HUGE } else { 0 };
    entry & (PRESENT | PROTNONE | huge) != 0
}

pub const fn is_protnone(entry: u64) -> bool {
    entry & (PRESENT | PROTNONE) == PROTNONE
}

/// Of an entry that is present.
pub const fn is_leaf(entry: u64, level: u8) -> bool {
    level == 1 || entry & HUGE != 0
}

pub const fn is_table(entry: u64, level: u8) -> bool {
    !is_none(entry) && is_present(entry, level) && !is_leaf(entry, level)
}

/// Physical address in an entry that is present; `mask` has the bits of
/// [`FRAME`] that name memory, without the one that says it is encrypted. Linux
/// inverts the frame of entries that hardware does not follow (L1TF).
pub const fn address(entry: u64, level: u8, mask: u64) -> u64 {
    let inverted = entry != 0 && entry & PRESENT == 0;
    let bits = if inverted { !entry } else { entry };
    // The low bits of a huge leaf's frame hold PAT.
    let within = if is_leaf(entry, level) {
        size(level) - 1
    } else {
        0
    };
    bits & mask & FRAME & !within
}

/// Type of the swap entry in an entry that is neither empty nor present.
pub const fn swap_type(entry: u64) -> u8 {
    (entry >> 59) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_lose_what_is_not_theirs() {
        let frame = 0x12_3456_7000;
        assert_eq!(address(frame | PRESENT | NX, 1, FRAME), frame);
        // An inverted one, as mprotect(PROT_NONE) leaves it.
        let none = !frame & FRAME | PROTNONE;
        assert!(is_present(none, 1) && is_protnone(none));
        assert_eq!(address(none, 1, FRAME), frame);
        // PAT of a huge leaf is bit 12.
        let huge = 0x12_3460_0000 | 1 << 12 | HUGE | PRESENT;
        assert_eq!(address(huge, 2, FRAME), 0x12_3460_0000);
        // Bit 51 says that the page is encrypted.
        let secret = 1 << 51;
        assert_eq!(address(frame | secret | PRESENT, 1, FRAME & !secret), frame);
    }

    #[test]
    fn what_is_a_table() {
        assert!(is_table(0x1000 | PRESENT, 2));
        assert!(!is_table(0x1000 | PRESENT, 1));
        assert!(!is_table(0x20_0000 | PRESENT | HUGE, 2));
        assert!(is_none(ACCESSED | DIRTY));
        // Of a leaf that is being split only the size is left.
        assert!(is_present(0x20_0000 | HUGE, 2) && !is_table(0x20_0000 | HUGE, 2));
        assert!(!is_present(0x20_0000 | HUGE, 1));
        assert_eq!(swap_type(31 << 59 | 0x200), 31);
    }
}
