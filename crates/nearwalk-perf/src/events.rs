// SPDX-License-Identifier: GPL-2.0-or-later
//! Which events of which CPU count walks.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Cycles of the program, in user mode.
    Cycles,
    /// Walks that loads and stores caused.
    Walks,
    /// Cycles in which at least one walker was busy.
    Active,
    /// Busy cycles of all walkers together.
    Pending,
}

/// An event, as the kernel's list has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Its name there.
    #[serde(rename = "event")]
    pub name: String,
    /// `perf_event_attr.config` of the raw event.
    pub config: u64,
}

/// The events of a CPU model. A list is empty where the model has no such event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Model {
    /// The kernel's name of it.
    pub name: String,
    /// The CPUs that it stands for: a regular expression, as perf matches it.
    pub cpus: String,
    /// Walks that loads and stores caused.
    pub walks: Vec<Event>,
    /// Cycles in which a walker was busy for loads, and for stores.
    pub active: Vec<Event>,
    /// Busy cycles of all walkers together, for loads and for stores.
    pub pending: Vec<Event>,
}

#[derive(Deserialize)]
struct Events {
    kernel: String,
    model: Vec<Model>,
}

static EVENTS: LazyLock<Events> =
    LazyLock::new(|| toml::from_str(include_str!("events.toml")).expect("events.toml is tested"));

/// The release of the kernel whose lists these are.
pub static KERNEL: LazyLock<&'static str> = LazyLock::new(|| &EVENTS.kernel);

impl Model {
    /// The events of the CPU `cpu`, such as `GenuineIntel-6-55-7`.
    pub fn of(cpu: &str) -> Option<&'static Self> {
        EVENTS.model.iter().find(|model| model.is_for(cpu))
    }

    /// As perf does it: the whole name has to match, and where the pattern says
    /// nothing of the stepping, that is cut off.
    fn is_for(&self, cpu: &str) -> bool {
        let dashes = |text: &str| text.matches('-').count();
        let cpu = match cpu.rsplit_once('-') {
            Some((model, _)) if dashes(&self.cpus) < 3 => model,
            _ => cpu,
        };
        Regex::new(&format!("^(?:{})$", self.cpus)).is_ok_and(|regex| regex.is_match(cpu))
    }

    /// All events, in groups that are counted together. None needs more than two
    /// counters beside the one for cycles, so that each finds room, whoever
    /// else counts; the kernel takes turns where not all do.
    pub(crate) fn groups(&self) -> Vec<Vec<(Role, Option<&Event>)>> {
        let mut groups = vec![vec![(Role::Cycles, None)]];
        groups[0].extend(self.active.iter().map(|event| (Role::Active, Some(event))));
        for (index, walks) in self.walks.iter().enumerate() {
            let mut group = vec![(Role::Walks, Some(walks))];
            let pending = self.pending.get(index);
            group.extend(pending.map(|event| (Role::Pending, Some(event))));
            groups.push(group);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(cpu: &str) -> Option<&'static str> {
        Model::of(cpu).map(|model| model.name.as_str())
    }

    #[test]
    fn cpus_are_matched_as_perf_does() {
        assert_eq!(name("GenuineIntel-6-3F-2"), Some("haswellx"));
        assert_eq!(name("GenuineIntel-6-55-4"), Some("skylakex"));
        assert_eq!(name("GenuineIntel-6-55-7"), Some("cascadelakex"));
        assert_eq!(name("GenuineIntel-6-8F-8"), Some("sapphirerapids"));
        assert_eq!(name("AuthenticAMD-25-1-1"), Some("amdzen3"));
        assert_eq!(name("AuthenticAMD-25-11-1"), Some("amdzen4"));
        assert_eq!(name("AuthenticAMD-23-31-0"), Some("amdzen2"));
        for unknown in [
            "GenuineIntel-6-FF-0",
            "GenuineIntel-15-3F-2",
            "Centaur-6-7-1",
            "",
        ] {
            assert_eq!(name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn walks_active_and_pending_cycles_are_apart() {
        let configs = |cpu: &str| {
            let model = Model::of(cpu).unwrap();
            let of = |events: &[Event]| -> Vec<u64> { events.iter().map(|e| e.config).collect() };
            (of(&model.walks), of(&model.active), of(&model.pending))
        };
        let haswell = configs("GenuineIntel-6-3F-2");
        assert_eq!(
            haswell,
            (
                vec![0xe08, 0xe49],
                vec![0x1008, 0x1049],
                vec![0x1008, 0x1049]
            )
        );
        let cascade_lake = configs("GenuineIntel-6-55-7");
        assert_eq!(cascade_lake.1, [0x100_1008, 0x100_1049]);
        assert_eq!(cascade_lake.2, [0x1008, 0x1049]);
        let sapphire_rapids = configs("GenuineIntel-6-8F-8");
        assert_eq!(sapphire_rapids.0, [0xe12, 0xe13]);
        assert_eq!(sapphire_rapids.1, [0x100_1012, 0x100_1013]);
        assert_eq!(sapphire_rapids.2, [0x1012, 0x1013]);
        for cpu in [
            "AuthenticAMD-23-31-0",
            "AuthenticAMD-25-1-1",
            "AuthenticAMD-25-11-1",
        ] {
            assert_eq!(configs(cpu), (vec![0xf045], vec![], vec![]), "{cpu}");
        }
    }

    #[test]
    fn no_group_needs_more_than_two_counters_beside_cycles() {
        for model in &EVENTS.model {
            for group in model.groups() {
                let raw = group.iter().filter(|(role, _)| *role != Role::Cycles);
                assert!(raw.count() <= 2, "{}", model.name);
            }
        }
    }
}
