// SPDX-License-Identifier: GPL-2.0-or-later
//! What an instruction's bytes say: a mark for the plugin, or a store that is
//! atomic.
//!
//! A mark is a NOP that no compiler emits, `0f 1f 80 CC 4e 50 53`, with the
//! code CC; see `lab/bench/mark.h`. It does nothing on any CPU, works in user
//! and kernel mode on any kernel, and needs no privilege.

/// What the guest's program tells the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A measured section begins on this CPU.
    Begin,
    /// It ends.
    End,
    /// A program starts; sections are numbered anew.
    Program,
}

const MARK: [u8; 3] = [0x0f, 0x1f, 0x80];
const SIGNATURE: [u8; 3] = [0x4e, 0x50, 0x53];

/// The mark that `insn` is, if it is one.
pub fn mark(insn: &[u8]) -> Option<Mark> {
    if insn.len() != 7 || insn[..3] != MARK || insn[4..] != SIGNATURE {
        return None;
    }
    match insn[3] {
        1 => Some(Mark::Begin),
        2 => Some(Mark::End),
        3 => Some(Mark::Program),
        _ => None,
    }
}

/// Whether `insn` reads and writes memory as one step: it has a lock prefix,
/// or is an exchange with memory.
pub fn is_atomic(insn: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    const LEGACY: [u8; 10] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];
    let mut rest = insn;
    while let [first, tail @ ..] = rest {
        match first {
            &LOCK => return true,
            byte if LEGACY.contains(byte) => rest = tail,
            _ => break,
        }
    }
    if let [0x40..=0x4f, tail @ ..] = rest {
        rest = tail;
    }
    matches!(rest, [0x86 | 0x87, modrm, ..] if modrm >> 6 != 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_from_other_nops() {
        assert_eq!(
            mark(&[0x0f, 0x1f, 0x80, 1, 0x4e, 0x50, 0x53]),
            Some(Mark::Begin)
        );
        assert_eq!(
            mark(&[0x0f, 0x1f, 0x80, 2, 0x4e, 0x50, 0x53]),
            Some(Mark::End)
        );
        assert_eq!(mark(&[0x0f, 0x1f, 0x80, 0, 0, 0, 0]), None);
        assert_eq!(mark(&[0x0f, 0x1f, 0x80, 9, 0x4e, 0x50, 0x53]), None);
        assert_eq!(mark(&[0x90]), None);
        assert_eq!(mark(&[]), None);
    }

    #[test]
    fn atomics_are_locked_or_exchanges_with_memory() {
        assert!(is_atomic(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f])); // lock cmpxchg %rcx,(%rdi)
        assert!(is_atomic(&[0x66, 0xf0, 0xff, 0x07])); // lock incw (%rdi)
        assert!(is_atomic(&[0x48, 0x87, 0x07])); // xchg %rax,(%rdi)
        assert!(is_atomic(&[0x65, 0x48, 0x87, 0x04, 0x25])); // xchg %rax,%gs:...
        assert!(!is_atomic(&[0x48, 0x87, 0xc7])); // xchg %rax,%rdi
        assert!(!is_atomic(&[0x48, 0x89, 0x07])); // mov %rax,(%rdi)
        assert!(!is_atomic(&[0xf3, 0x48, 0xab])); // rep stos
        assert!(!is_atomic(&[]));
    }
}
