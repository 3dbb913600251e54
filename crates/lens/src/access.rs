// SPDX-License-Identifier: GPL-2.0-or-later
//! What a program asks of memory.

/// One memory access of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Virtual address.
    pub va: u64,
    /// Stores take the line exclusively.
    pub write: bool,
    /// The address is known only when the previous access' value is there.
    pub dependent: bool,
    /// A locked instruction, as [`Access::locked`] makes.
    pub locked: bool,
    /// Work before the access, in units of the workload's base cycles.
    pub work: u8,
}

impl Access {
    /// A load that depends on the previous access.
    pub const fn chase(va: u64) -> Self {
        Access {
            va,
            write: false,
            dependent: true,
            locked: false,
            work: 1,
        }
    }
    /// A load whose address is known in advance.
    pub const fn load(va: u64) -> Self {
        Access {
            va,
            write: false,
            dependent: false,
            locked: false,
            work: 1,
        }
    }
    /// A store whose address is known in advance.
    pub const fn store(va: u64) -> Self {
        Access {
            va,
            write: true,
            dependent: false,
            locked: false,
            work: 1,
        }
    }
    /// A locked read-modify-write whose address is known in advance. It is
    /// done when all before it are, and what follows waits for it unless it is
    /// locked as well.
    pub const fn locked(va: u64) -> Self {
        Access {
            va,
            write: true,
            dependent: false,
            locked: true,
            work: 1,
        }
    }
    /// The same with an address that the previous access' value gives.
    pub const fn after_load(mut self) -> Self {
        self.dependent = true;
        self
    }
    /// The same with `work` units of work before it.
    pub const fn with_work(mut self, work: u8) -> Self {
        self.work = work;
        self
    }
}

/// An endless stream of accesses of one thread.
pub trait Source {
    /// Appends the accesses of the next operation, at least one.
    fn fill(&mut self, out: &mut Vec<Access>);
}
