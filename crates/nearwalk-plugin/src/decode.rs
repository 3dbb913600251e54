// SPDX-License-Identifier: GPL-2.0-or-later
//! What an instruction's bytes say: a mark for the plugin, or a store that is
//! atomic.
//!
//! A mark is a NOP that no compiler emits, `0f 1f 80 CC 4e 50 53`, with the
//! code CC; see `lab/bench/mark.h`. It does nothing on any CPU, works in user
//! and kernel mode on any kernel, and needs no privilege.

/// What the guest's program tells the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A measured section begins on this CPU.
    Begin,
    /// It ends.
    End,
    /// A program starts; sections are numbered anew.
    Program,
    /// The next load on this CPU is of a note of the module `nearwalk_lens`.
    Note,
    /// Not a mark: the CPU loads a page-table root or drops all translations.
    LoadsRoot,
    /// Not a mark: the CPU drops the translation of a page.
    DropsPage,
}

impl Event {
    /// To go through QEMU as a word of user data, and back.
    pub const ALL: [Event; 6] = [
        Event::Begin,
        Event::End,
        Event::Program,
        Event::Note,
        Event::LoadsRoot,
        Event::DropsPage,
    ];
}

const MARK: [u8; 3] = [0x0f, 0x1f, 0x80];
const SIGNATURE: [u8; 3] = [0x4e, 0x50, 0x53];

/// The event that `insn` is, if it is one.
pub fn event(insn: &[u8]) -> Option<Event> {
    match insn {
        [m0, m1, m2, code, signature @ ..] if [*m0, *m1, *m2] == MARK => {
            if signature != SIGNATURE {
                return None;
            }
            match code {
                0x01 => Some(Event::Begin),
                0x02 => Some(Event::End),
                0x03 => Some(Event::Program),
                0x10 => Some(Event::Note),
                _ => None,
            }
        }
        _ => drops(insn),
    }
}

/// The event that `insn` is if it drops translations. Registers of its operand may be
/// of those that take a REX prefix, which comes last.
fn drops(insn: &[u8]) -> Option<Event> {
    let (_, rest) = after_prefixes(insn);
    let prefixes = &insn[..insn.len() - rest.len()];
    match rest {
        // CR3; or CR4, by which kernels drop what is global.
        [0x0f, 0x22, modrm] if matches!(modrm >> 3 & 7, 3 | 4) => Some(Event::LoadsRoot),
        // INVPCID
        [0x0f, 0x38, 0x82, ..] if prefixes.contains(&0x66) => Some(Event::LoadsRoot),
        // INVLPG
        [0x0f, 0x01, modrm, ..] if modrm >> 6 != 3 && modrm >> 3 & 7 == 7 => Some(Event::DropsPage),
        _ => None,
    }
}

/// Splits off the prefixes of `insn`; tells whether one of them is a lock.
fn after_prefixes(insn: &[u8]) -> (bool, &[u8]) {
    const LOCK: u8 = 0xf0;
    const LEGACY: [u8; 11] = [
        0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3, LOCK,
    ];
    let opcode = insn.iter().position(|byte| !LEGACY.contains(byte));
    let (prefixes, mut rest) = insn.split_at(opcode.unwrap_or(insn.len()));
    if let [0x40..=0x4f, tail @ ..] = rest {
        rest = tail;
    }
    (prefixes.contains(&LOCK), rest)
}

/// Whether `insn` reads and writes memory as one step: it has a lock prefix,
/// or is an exchange with memory.
pub fn is_atomic(insn: &[u8]) -> bool {
    let (locked, rest) = after_prefixes(insn);
    locked || matches!(rest, [0x86 | 0x87, modrm, ..] if modrm >> 6 != 3)
}

/// Whether `insn` calls a function: it goes elsewhere and leaves on the stack where
/// to return to.
pub fn is_call(insn: &[u8]) -> bool {
    match after_prefixes(insn).1 {
        [0xe8, ..] => true,
        [0xff, modrm, ..] => modrm >> 3 & 7 == 2,
        _ => false,
    }
}

/// Whether `insn` is likely to access data in memory. For splitting a block's
/// instructions between its accesses, where a rare mistake moves an
/// instruction from one access to the next.
pub fn may_access(insn: &[u8]) -> bool {
    let in_memory = |modrm: &u8| modrm >> 6 != 3;
    match after_prefixes(insn).1 {
        // Two-byte opcodes that have no operand in memory: SYSCALL, RDTSC and
        // their like, NOP, jumps, CPUID, BSWAP.
        [
            0x0f,
            0x05..=0x0b | 0x1e | 0x1f | 0x30..=0x37 | 0x80..=0x8f | 0xa2 | 0xc8..=0xcf,
            ..,
        ] => false,
        [0x0f, 0x38 | 0x3a, _, modrm, ..] | [0x0f, _, modrm, ..] => in_memory(modrm),
        // Stack and string operations.
        [0x50..=0x5f | 0x68 | 0x6a | 0xa4..=0xa7 | 0xaa..=0xaf, ..] => true,
        [0xc2 | 0xc3 | 0xc9 | 0xe8 | 0x9c | 0x9d | 0xcf, ..] => true,
        [0x8d, ..] => false, // LEA
        [0x00..=0x3f, modrm, ..] if insn_has_modrm(after_prefixes(insn).1[0]) => in_memory(modrm),
        [
            0x63
            | 0x69
            | 0x6b
            | 0x80..=0x8f
            | 0xc0
            | 0xc1
            | 0xc6
            | 0xc7
            | 0xd0..=0xd3
            | 0xf6
            | 0xf7
            | 0xfe
            | 0xff,
            modrm,
            ..,
        ] => in_memory(modrm),
        [0xc5, _, _, modrm, ..] | [0xc4, _, _, _, modrm, ..] => in_memory(modrm),
        _ => false,
    }
}

/// Of the arithmetic opcodes 00 to 3f: not those with an immediate.
fn insn_has_modrm(opcode: u8) -> bool {
    opcode & 7 < 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_from_other_nops() {
        let mark = |code| event(&[0x0f, 0x1f, 0x80, code, 0x4e, 0x50, 0x53]);
        assert_eq!(mark(1), Some(Event::Begin));
        assert_eq!(mark(2), Some(Event::End));
        assert_eq!(mark(3), Some(Event::Program));
        assert_eq!(mark(0x10), Some(Event::Note));
        assert_eq!(mark(9), None);
        assert_eq!(event(&[0x0f, 0x1f, 0x80, 1, 0, 0, 0]), None);
        assert_eq!(event(&[0x90]), None);
        assert_eq!(event(&[]), None);
    }

    #[test]
    fn instructions_that_drop_translations_are_known() {
        assert_eq!(event(&[0x0f, 0x22, 0xd8]), Some(Event::LoadsRoot)); // mov %rax,%cr3
        assert_eq!(event(&[0x0f, 0x22, 0xe0]), Some(Event::LoadsRoot)); // mov %rax,%cr4
        assert_eq!(event(&[0x41, 0x0f, 0x22, 0xdc]), Some(Event::LoadsRoot)); // %r12
        assert_eq!(event(&[0x0f, 0x22, 0xc0]), None); // mov %rax,%cr0
        assert_eq!(event(&[0x0f, 0x20, 0xd8]), None); // mov %cr3,%rax
        assert_eq!(event(&[0x0f, 0x01, 0x3f]), Some(Event::DropsPage)); // invlpg (%rdi)
        assert_eq!(event(&[0x41, 0x0f, 0x01, 0x3f]), Some(Event::DropsPage)); // (%r15)
        assert_eq!(
            event(&[0x65, 0x42, 0x0f, 0x01, 0x3c, 0x20]), // %gs:(%rax,%r12)
            Some(Event::DropsPage)
        );
        let invpcid = |bytes: &[u8]| assert_eq!(event(bytes), Some(Event::LoadsRoot));
        invpcid(&[0x66, 0x0f, 0x38, 0x82, 0x04, 0x24]); // invpcid (%rsp),%rax
        invpcid(&[0x66, 0x44, 0x0f, 0x38, 0x82, 0x04, 0x24]); // %r8
        invpcid(&[0x66, 0x41, 0x0f, 0x38, 0x82, 0x07]); // (%r15),%rax
        assert_eq!(event(&[0x66, 0x44, 0x0f, 0x38, 0x80, 0x07]), None); // invept
        assert_eq!(event(&[0x0f, 0x01, 0xf8]), None); // swapgs
        assert_eq!(event(&[0x41, 0x0f, 0x01, 0xf8]), None);
        assert_eq!(event(&[0x0f, 0x01, 0xd0]), None); // xgetbv
    }

    #[test]
    fn events_survive_the_way_through_qemu() {
        for event in Event::ALL {
            assert_eq!(Event::ALL[event as usize], event);
        }
    }

    #[test]
    fn calls_are_known() {
        assert!(is_call(&[0xe8, 1, 2, 3, 4]));
        assert!(is_call(&[0xff, 0xd0])); // call *%rax
        assert!(is_call(&[0x41, 0xff, 0xd3])); // call *%r11
        assert!(is_call(&[0x2e, 0xe8, 1, 2, 3, 4]));
        assert!(!is_call(&[0xe9, 1, 2, 3, 4])); // jmp
        assert!(!is_call(&[0xff, 0xe0])); // jmp *%rax
        assert!(!is_call(&[0xff, 0x30])); // push (%rax)
    }

    #[test]
    fn accesses_are_guessed_from_the_operand() {
        for insn in [
            &[0x48, 0x8b, 0x07][..],   // mov (%rdi),%rax
            &[0x55],                   // push %rbp
            &[0xc3],                   // ret
            &[0xf3, 0x48, 0xab],       // rep stos
            &[0x65, 0x48, 0x01, 0x05], // add %rax,%gs:...
            &[0x0f, 0xb6, 0x00],       // movzbl (%rax),%eax
            &[0xc5, 0xfd, 0x6f, 0x06], // vmovdqa (%rsi),%ymm0
        ] {
            assert!(may_access(insn), "{insn:02x?}");
        }
        for insn in [
            &[0x48, 0x89, 0xc7][..],   // mov %rax,%rdi
            &[0x48, 0x8d, 0x04, 0x0a], // lea (%rdx,%rcx),%rax
            &[0x74, 0x02],             // je
            &[0x0f, 0x84, 0, 0, 0, 0], // je
            &[0x0f, 0x1f, 0x00],       // nopl (%rax)
            &[0x05, 1, 0, 0, 0],       // add $1,%eax
            &[0xb8, 1, 0, 0, 0],       // mov $1,%eax
            &[],
        ] {
            assert!(!may_access(insn), "{insn:02x?}");
        }
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
