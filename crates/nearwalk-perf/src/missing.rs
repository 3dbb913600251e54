// SPDX-License-Identifier: GPL-2.0-or-later
//! Why nothing was counted.

use serde::{Deserialize, Serialize};

use crate::events::KERNEL;

/// Why nothing was counted, and what to do about it. One line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Missing {
    /// No counters at all.
    #[error(
        "none here (no `cpu` in /sys/bus/event_source/devices), as in most \
         virtual machines: look on a host, or give the machine a virtual PMU"
    )]
    NoPmu,
    /// Not an x86 CPU, or none that /proc/cpuinfo tells of.
    #[error("/proc/cpuinfo does not tell family and model of the CPU")]
    NoCpu,
    /// A model that the lists do not have.
    #[error(
        "CPU model {cpu} is not in the lists of Linux {} that this nearwalk has, and no event is \
         guessed: a newer nearwalk may know it",
        *KERNEL
    )]
    UnknownModel {
        /// The model, as in [`crate::Cpu::id`].
        cpu: String,
    },
    /// A model whose list has no event that counts walks.
    #[error("CPU model {cpu} ({model}) has no event that counts walks of loads and stores")]
    NoEvents {
        /// The model.
        cpu: String,
        /// The kernel's name of it.
        model: String,
    },
    /// No permission.
    #[error(
        "no permission to count: kernel.perf_event_paranoid is {}; root may, and so may who has \
         CAP_PERFMON, unless a container's seccomp profile forbids the call",
        paranoid.map_or_else(|| "not known".to_owned(), |value| value.to_string())
    )]
    Refused {
        /// `perf_event_paranoid`.
        paranoid: Option<i32>,
    },
    /// More counters than files may be open.
    #[error(
        "{needed} counters are needed, more than files may be open: raise the limit (ulimit -n)"
    )]
    TooMany {
        /// How many.
        needed: usize,
    },
    /// The kernel refuses an event.
    #[error("the kernel refuses {event}: {error}")]
    Event {
        /// Its name.
        event: String,
        /// What the kernel says.
        error: String,
    },
    /// Others had the counters all the time.
    #[error(
        "others had the counters all the time{}",
        if *watchdog {
            ": the NMI watchdog has one; `sysctl kernel.nmi_watchdog=0` gives it back"
        } else {
            ": another profiler, or a virtual machine, may have them"
        }
    )]
    NotCounted {
        /// Whether the NMI watchdog is one of them.
        watchdog: bool,
    },
    /// The subject ended before anything was counted.
    #[error("nothing ran that could be counted")]
    Idle,
    /// Nobody looked.
    #[error("the recording has none")]
    NotRecorded,
}

impl Missing {
    /// A word for scripts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoPmu => "no-pmu",
            Self::NoCpu => "no-cpu",
            Self::UnknownModel { .. } => "unknown-model",
            Self::NoEvents { .. } => "no-events",
            Self::Refused { .. } => "refused",
            Self::TooMany { .. } => "too-many",
            Self::Event { .. } => "event",
            Self::NotCounted { .. } => "not-counted",
            Self::Idle => "idle",
            Self::NotRecorded => "not-recorded",
        }
    }
}
