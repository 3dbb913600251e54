// SPDX-License-Identifier: GPL-2.0-or-later
//! ChampSim traces: 64-byte records, one an instruction.
//!
//! A record is the instruction pointer, two branch flags, 2 destination and 4
//! source registers, 2 destination and 4 source addresses, little-endian.
//! Such traces come compressed; these functions take them decompressed.

use crate::access::Access;
use crate::trace::TraceError;
use std::io::{self, Read, Write};

/// Bytes of one instruction.
pub const RECORD: usize = 64;

/// Imports a trace.
///
/// Source addresses become loads, then destination addresses stores. Work is
/// the number of instructions since the access before, at most 255. An access
/// depends on the one before if that was a load which, directly or through
/// other instructions' registers, feeds its own source registers.
///
/// # Errors
/// If the reader fails or the file ends inside a record.
pub fn import(mut input: impl Read) -> Result<Vec<Access>, TraceError> {
    let mut out: Vec<Access> = Vec::new();
    // For each register, 1 + the index of the last load that feeds it.
    let mut feeds = [0usize; 256];
    let mut since = 0u32;
    let mut record = 0u64;
    loop {
        let mut r = [0u8; RECORD];
        let mut have = 0;
        while have < r.len() {
            match input.read(&mut r[have..])? {
                0 if have == 0 => return Ok(out),
                0 => {
                    let what = format!("the trace ends {have} bytes into it");
                    return Err(TraceError::Record { record, what });
                }
                n => have += n,
            }
        }
        record += 1;
        since += 1;
        let word = |at: usize| u64::from_le_bytes(r[at..at + 8].try_into().expect("8 bytes"));
        let (dest, src) = (&r[10..12], &r[12..16]);
        let mut fed = src
            .iter()
            .filter(|&&s| s != 0)
            .map(|&s| feeds[s as usize])
            .max()
            .unwrap_or(0);
        let before = out.len();
        for (i, write) in (2..6).map(|i| (i, false)).chain((0..2).map(|i| (i, true))) {
            let va = word(16 + 8 * i);
            if va == 0 {
                continue;
            }
            let follows_load = out.last().is_some_and(|p| !p.write);
            let dependent = follows_load && fed == out.len() && out.len() == before && fed > 0;
            out.push(Access {
                va,
                write,
                dependent,
                locked: false,
                work: since.min(255) as u8,
            });
            since = 0;
        }
        if word(32) != 0 {
            // The instruction loads: its results come from its last load.
            let loads = (2..6).filter(|i| word(16 + 8 * i) != 0).count();
            fed = before + loads;
        }
        for &d in dest.iter().filter(|&&d| d != 0) {
            feeds[d as usize] = fed;
        }
    }
}

/// Writes accesses as a trace: for each, `work - 1` instructions without an
/// address and then one with it, so that [`import`] gives the accesses back
/// (with work 0 as 1). Returns how many instructions that was.
///
/// # Errors
/// If the writer fails.
pub fn export(mut out: impl Write, accesses: &[Access]) -> io::Result<u64> {
    // Two registers take turns as the last load's result; a third holds
    // addresses that are known. 0 would mean none.
    const KNOWN: u8 = 10;
    let mut last = 11u8;
    let mut instructions = 0u64;
    for a in accesses {
        for i in 0..u64::from(a.work.max(1)) {
            let mut r = [0u8; RECORD];
            // A loop of straight code: what matters is not instructions.
            let ip = 0x40_0000 + (instructions % 1024) * 4;
            r[..8].copy_from_slice(&ip.to_le_bytes());
            instructions += 1;
            if i + 1 == u64::from(a.work.max(1)) {
                r[12] = if a.dependent { last } else { KNOWN };
                let at = if a.write { 16 } else { 32 };
                r[at..at + 8].copy_from_slice(&a.va.to_le_bytes());
                if !a.write {
                    last = 23 - last;
                    r[10] = last;
                }
            }
            out.write_all(&r)?;
        }
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(dest: u8, src: u8, load: u64, store: u64) -> [u8; 64] {
        let mut r = [0; 64];
        r[10] = dest;
        r[12] = src;
        r[16..24].copy_from_slice(&store.to_le_bytes());
        r[32..40].copy_from_slice(&load.to_le_bytes());
        r
    }

    #[test]
    fn champsim_dependences_follow_registers() {
        let trace = [
            instruction(1, 2, 0x1000, 0), // r1 = [r2]
            instruction(3, 1, 0, 0),      // r3 = f(r1)
            instruction(4, 3, 0x2000, 0), // r4 = [r3]: depends on the load before
            instruction(5, 2, 0x3000, 0), // r5 = [r2]: does not
            instruction(0, 5, 0, 0x4000), // [r5] = ...: depends
        ]
        .concat();
        let a = import(&trace[..]).unwrap();
        let got: Vec<_> = a
            .iter()
            .map(|a| (a.va, a.write, a.dependent, a.work))
            .collect();
        assert_eq!(
            got,
            [
                (0x1000, false, false, 1),
                (0x2000, false, true, 2),
                (0x3000, false, false, 1),
                (0x4000, true, true, 1)
            ]
        );
        assert!(import(&trace[..100]).is_err());
    }

    #[test]
    fn what_was_exported_is_imported() {
        let accesses = [
            Access::load(0x1000),
            Access::chase(0x2000).with_work(5),
            Access::store(0x3000),
            Access::load(0x4000).with_work(2),
            Access::chase(0x5008),
            Access::chase(0x6000),
        ];
        let mut bytes = Vec::new();
        let instructions = export(&mut bytes, &accesses).unwrap();
        assert_eq!(instructions, 1 + 5 + 1 + 2 + 1 + 1);
        assert_eq!(bytes.len() as u64, instructions * RECORD as u64);
        assert_eq!(import(&bytes[..]).unwrap(), accesses);
    }
}
