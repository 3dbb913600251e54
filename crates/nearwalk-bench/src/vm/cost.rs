// SPDX-License-Identifier: GPL-2.0-or-later
//! What a nested page fault costs the host's kernel in instructions: a guest of a few
//! bytes of code and no kernel writes to pages that are in no nested table yet, in a
//! machine whose time-stamp counter counts instructions.

use std::{arch::x86_64::_rdtsc, fs, ptr, time::Duration};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::model::Cost;
use crate::kvm::{EXIT_HLT, Mapping, RFLAGS, Registers, Vcpu, Vm};

pub const SETTINGS: &[&str] = &["off", LAZY];
pub const LAZY: &str = "lazy";

/// `mov ax, 0x1000; again: mov ds, ax; mov byte [0], 1; add ax, 0x100; cmp ax, 0xf000;
/// jb again; hlt`: a write to each page from 64 KiB to 960 KiB.
const CODE: &[u8] = &[
    0xb8, 0x00, 0x10, 0x8e, 0xd8, 0xc6, 0x06, 0x00, 0x00, 0x01, 0x05, 0x00, 0x01, 0x3d, 0x00, 0xf0,
    0x72, 0xf1, 0xf4,
];
const MEMORY: usize = 2 << 20;
/// Guests, one after the other; the median counts.
const ROUNDS: usize = 9;

/// Counts instructions of faults in trees as `setting` makes them.
pub fn measure(kernel: &str, setting: &str) -> anyhow::Result<Cost> {
    let mut set = CpuSet::new();
    set.set(1);
    sched_setaffinity(None, &set).context("cannot run on CPU 1")?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(round(setting)?);
        // What the kernel put off is done now.
        std::thread::sleep(Duration::from_millis(100));
    }
    rounds.sort_by_key(|&(_, instructions)| instructions);
    let (faults, instructions) = rounds[ROUNDS / 2];
    Ok(Cost {
        kernel: kernel.into(),
        setting: setting.into(),
        faults,
        instructions,
    })
}

/// Faults, and what the first run takes longer than one without.
fn round(setting: &str) -> anyhow::Result<(u64, u64)> {
    let machine = Machine::new()?;
    if setting == LAZY {
        fs::write(machine.vm.dir.join("pgtable_repl"), LAZY)
            .with_context(|| format!("'{LAZY}' for {}", machine.vm.dir.display()))?;
    }
    let before = machine.faults()?;
    let first = machine.run()?;
    let faults = machine.faults()? - before;
    let again = machine.run()?;
    ensure!(faults > 200, "the guest had {faults} faults");
    Ok((faults, first.saturating_sub(again)))
}

struct Machine {
    vcpu: Vcpu,
    vm: Vm,
    _memory: Mapping,
}

impl Machine {
    fn new() -> anyhow::Result<Machine> {
        let vm = Vm::new()?;
        let memory = Mapping::small_pages(MEMORY)?;
        // SAFETY: the mapping is this function's, and goes after the machine.
        unsafe {
            // All of it is there, so that only nested tables lack.
            ptr::write_bytes(memory.start.cast::<u8>(), 0x90, MEMORY);
            ptr::copy_nonoverlapping(CODE.as_ptr(), memory.start.cast(), CODE.len());
            vm.add_memory(0, 0, &memory)?;
        }
        Ok(Machine {
            vcpu: vm.vcpu(0)?,
            vm,
            _memory: memory,
        })
    }

    /// From the first instruction to `hlt`; returns instructions of all.
    fn run(&self) -> anyhow::Result<u64> {
        let mut registers = Registers::default();
        registers[RFLAGS] = 2;
        self.vcpu.set_special(|special| {
            let code = &mut special.segments[0];
            (code.base, code.limit, code.selector) = (0, 0xffff, 0);
        })?;
        self.vcpu.set(&registers)?;
        // SAFETY: every CPU has the counter.
        let before = unsafe { _rdtsc() };
        self.vcpu.run()?;
        // SAFETY: the same.
        let instructions = unsafe { _rdtsc() } - before;
        let reason = self.vcpu.reason();
        ensure!(
            reason == EXIT_HLT,
            "the guest left with {reason}, not with {EXIT_HLT}"
        );
        Ok(instructions)
    }

    fn faults(&self) -> anyhow::Result<u64> {
        self.vm.stat("pf_fixed")
    }
}
