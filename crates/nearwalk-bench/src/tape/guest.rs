// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest without a kernel: its vCPUs read and write their memory by a seeded pattern,
//! and wait in the guest when each has made as many accesses as it may.

use std::{
    arch::global_asm,
    ops::Range,
    ptr, slice,
    sync::atomic::{AtomicU8, AtomicU32, Ordering},
    thread::{self, JoinHandle},
};

use anyhow::{Context, bail, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::model::Plan;
use crate::kvm::{EXIT_HLT, Mapping, RBP, RBX, RDI, RFLAGS, RIP, RSI, Registers, Vcpu, Vm};

/// Of a page.
pub const PAGE: usize = 4096;
/// Pages behind those that are paged: code, counters, and what was used. The model's
/// guests have their tables there.
pub const BEHIND: usize = 512;
/// Where words are behind the paged memory, a line of them for each vCPU.
const WORDS: usize = PAGE;
const LINE: usize = 64;
/// The words of a line: accesses that were made, whether to stop, turns that the vCPU
/// made, of which some are accesses, and accesses that it may have made.
const MADE: usize = 0;
const STOP: usize = 8;
const TURNS: usize = 16;
const MAY: usize = 24;
/// A byte for each page, which the guest sets when it uses the page.
const USED: usize = 2 * PAGE;
/// How many of these there is room for.
#[cfg(test)]
pub const MOST_PAGES: usize = (BEHIND - 2) * PAGE;
/// What `sys_move_pages` and `mbind` are told.
const MOVE: u64 = 2;
const BIND: u64 = 2;

// ebx has the state of xorshift32, esi the last page's number, edi the vCPU's words, ebp
// the bytes of what was used. First each page is read once, so that all have nested
// entries. A page's rank has those bits that two of the numbers drawn have: few bits are
// the most likely. A factor spreads ranks over memory. Who waits executes no `pause`, by
// which a vCPU may leave.
global_asm!(
    ".pushsection .rodata",
    ".code32",
    ".globl nearwalk_tape_guest, nearwalk_tape_guest_end",
    ".hidden nearwalk_tape_guest, nearwalk_tape_guest_end",
    "nearwalk_tape_guest:",
    "mov ecx, esi",
    "5:",
    "mov eax, ecx",
    "shl eax, 12",
    "mov edx, dword ptr [eax]",
    "dec ecx",
    "jns 5b",
    "jmp 6f",
    "4:",
    "mov eax, ebx",
    "shl eax, 13",
    "xor ebx, eax",
    "mov eax, ebx",
    "shr eax, 17",
    "xor ebx, eax",
    "mov eax, ebx",
    "shl eax, 5",
    "xor ebx, eax",
    "mov eax, ebx",
    "shr eax, 13",
    "and eax, ebx",
    "imul eax, eax, 0x1e3779b1",
    "and eax, esi",
    "mov byte ptr [ebp + eax], 1",
    "shl eax, 12",
    "mov edx, ebx",
    "shr edx, 20",
    "and edx, 0xfc0",
    "add eax, edx",
    "test ebx, 0x60000",
    "jz 2f",
    "mov edx, dword ptr [eax]",
    "jmp 3f",
    "2:",
    "mov dword ptr [eax], ebx",
    "3:",
    "add dword ptr [edi], 1",
    "6:",
    "add dword ptr [edi + 16], 1",
    "cmp dword ptr [edi + 8], 0",
    "jne 7f",
    "mov eax, dword ptr [edi]",
    "cmp eax, dword ptr [edi + 24]",
    "je 6b",
    "jmp 4b",
    "7:",
    "hlt",
    "jmp 7b",
    "nearwalk_tape_guest_end:",
    ".code64",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "nearwalk_tape_guest"]
    static CODE: u8;
    #[link_name = "nearwalk_tape_guest_end"]
    static CODE_END: u8;
}

fn code() -> &'static [u8] {
    let Range { start, end } = (&raw const CODE)..(&raw const CODE_END);
    // SAFETY: both are labels of the section above, the second behind the first.
    unsafe { slice::from_raw_parts(start, end.offset_from(start) as usize) }
}

struct Memory {
    /// What is paged: from guest-physical address 0 on.
    data: Mapping,
    behind: Mapping,
}

impl Memory {
    fn word(&self, vcpu: u32, word: usize) -> &AtomicU32 {
        let at = WORDS + vcpu as usize * LINE + word;
        // SAFETY: inside the mapping, aligned, and the guest's writes are one word each.
        unsafe { &*self.behind.start.byte_add(at).cast() }
    }
}

pub struct Guest {
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
    /// In the order in which they go.
    waiting: Vec<Vcpu>,
    vm: Vm,
    /// Behind the machine, which goes first.
    memory: Memory,
    plan: Plan,
    /// Accesses that all vCPUs together may have made.
    pub allowed: u64,
}

impl Guest {
    /// With the first pages on the fast node, as many as it has room for, and the others
    /// on the slow one.
    pub fn new(plan: &Plan) -> anyhow::Result<Guest> {
        let memory = Memory {
            data: Mapping::small_pages(plan.pages * PAGE)?,
            behind: Mapping::small_pages(BEHIND * PAGE)?,
        };
        let vm = Vm::new()?;
        place(&memory.data, 0..plan.fast, plan.nodes[0])?;
        place(&memory.data, plan.fast..plan.pages, plan.nodes[1])?;
        place(&memory.behind, 0..BEHIND, plan.nodes[0])?;
        let behind = plan.pages * PAGE;
        // SAFETY: the code is shorter than a page, and the memory goes after the machine.
        unsafe {
            let code = code();
            ptr::copy_nonoverlapping(code.as_ptr(), memory.behind.start.cast(), code.len());
            vm.add_memory(0, 0, &memory.data)?;
            vm.add_memory(1, behind as u64, &memory.behind)?;
        }
        let vcpus = (0..plan.vcpus).map(|number| {
            let vcpu = vm.vcpu(number)?;
            begin(&vcpu, number, plan)?;
            Ok(vcpu)
        });
        Ok(Guest {
            threads: Vec::new(),
            waiting: vcpus.collect::<anyhow::Result<_>>()?,
            vm,
            memory,
            plan: plan.clone(),
            allowed: 0,
        })
    }

    /// Has each vCPU run, on a CPU of its own behind the first.
    pub fn start(&mut self) {
        for (number, vcpu) in self.waiting.drain(..).enumerate() {
            self.threads.push(thread::spawn(move || {
                on_cpu(1 + number)?;
                vcpu.run()?;
                let reason = vcpu.reason();
                ensure!(
                    reason == EXIT_HLT,
                    "vCPU {number} left with {reason}, not with {EXIT_HLT}"
                );
                Ok(())
            }));
        }
    }

    /// Has all vCPUs end.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        for vcpu in 0..self.plan.vcpus {
            self.memory.word(vcpu, STOP).store(1, Ordering::Relaxed);
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("a vCPU's thread does not panic")?;
        }
        Ok(())
    }

    /// Lets each vCPU make so many more accesses.
    pub fn allow(&mut self, more: u32) {
        for vcpu in 0..self.plan.vcpus {
            let may = self.memory.word(vcpu, MAY);
            may.store(
                may.load(Ordering::Relaxed).wrapping_add(more),
                Ordering::Relaxed,
            );
        }
        self.allowed += u64::from(more) * u64::from(self.plan.vcpus);
    }

    /// Whether all have made the accesses that they may have made.
    pub fn waits(&self) -> bool {
        let word = |vcpu, word| self.memory.word(vcpu, word).load(Ordering::Acquire);
        (0..self.plan.vcpus).all(|vcpu| word(vcpu, MADE) == word(vcpu, MAY))
    }

    /// Of each vCPU, a number that changes while it is in the guest.
    pub fn turns(&self) -> Vec<u32> {
        let turns = |vcpu| self.memory.word(vcpu, TURNS).load(Ordering::Relaxed);
        (0..self.plan.vcpus).map(turns).collect()
    }

    /// A byte a page: whether it was used since the byte was cleared.
    pub fn used(&self) -> &[AtomicU8] {
        // SAFETY: inside the mapping; the guest writes bytes of it.
        unsafe {
            let start = self.memory.behind.start.byte_add(USED);
            slice::from_raw_parts(start.cast(), self.plan.pages)
        }
    }

    /// One of KVM's counts, of all vCPUs together.
    pub fn stat(&self, name: &str) -> anyhow::Result<u64> {
        self.vm.stat(name)
    }

    /// Moves a page to a node; whether it is there then.
    pub fn move_page(&self, page: u32, node: i32) -> anyhow::Result<bool> {
        let address = self
            .memory
            .data
            .start
            .wrapping_byte_add(page as usize * PAGE);
        let mut status = -1i32;
        // SAFETY: one page, one node and one status; contents stay as they are.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                1u64,
                &raw const address,
                &raw const node,
                &raw mut status,
                MOVE,
            )
        };
        if result < 0 {
            return Err(std::io::Error::last_os_error()).context("cannot move pages");
        }
        Ok(status == node)
    }
}

impl Drop for Guest {
    /// Ends what an error left.
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// 32 bits, flat, without paging.
fn begin(vcpu: &Vcpu, number: u32, plan: &Plan) -> anyhow::Result<()> {
    vcpu.set_special(|special| {
        special.cr0 |= 1;
        for (index, segment) in special.segments[..6].iter_mut().enumerate() {
            segment.base = 0;
            segment.limit = u32::MAX;
            segment.selector = if index == 0 { 8 } else { 16 };
            segment.kind = if index == 0 { 11 } else { 3 };
            (segment.present, segment.privilege) = (1, 0);
            (segment.wide, segment.ordinary, segment.pages) = (1, 1, 1);
            (segment.long, segment.unusable) = (0, 0);
        }
    })?;
    let behind = (plan.pages * PAGE) as u64;
    let mut registers = Registers::default();
    registers[RBX] = seed(plan.seed, number).into();
    registers[RSI] = plan.pages as u64 - 1;
    registers[RDI] = behind + (WORDS + number as usize * LINE) as u64;
    registers[RBP] = behind + USED as u64;
    registers[RIP] = behind;
    registers[RFLAGS] = 2;
    vcpu.set(&registers)
}

/// What a vCPU's pattern begins with: never 0, which xorshift would not leave.
fn seed(seed: u64, vcpu: u32) -> u32 {
    let mixed = (seed ^ (u64::from(vcpu) << 32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 27)) >> 16) as u32 | 1
}

pub fn on_cpu(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// Fills pages of a mapping, on a node.
fn place(memory: &Mapping, pages: Range<usize>, node: i32) -> anyhow::Result<()> {
    let Range { start, end } = pages;
    let at = memory.start.wrapping_byte_add(start * PAGE);
    let size = (end - start) * PAGE;
    let nodes = 1u64 << node;
    // SAFETY: part of a mapping that nobody else knows yet.
    unsafe {
        if libc::syscall(libc::SYS_mbind, at, size, BIND, &raw const nodes, 64, 0) != 0 {
            bail!("node {node}: {}", std::io::Error::last_os_error());
        }
        ptr::write_bytes(at.cast::<u8>(), 0, size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_there_and_fits() {
        assert!((80..160).contains(&code().len()), "{}", code().len());
        // mov ecx, esi; mov eax, ecx; shl eax, 12; and at the end a jump of two bytes.
        assert_eq!(code()[4..7], [0xc1, 0xe0, 12]);
        assert_eq!(code()[code().len() - 2], 0xeb);
    }

    #[test]
    fn vcpus_draw_different_pages() {
        let seeds: Vec<u32> = (0..8).flat_map(|v| [seed(1, v), seed(2, v)]).collect();
        for (index, seed) in seeds.iter().enumerate() {
            assert!(*seed != 0 && !seeds[..index].contains(seed), "{seeds:?}");
        }
    }
}
