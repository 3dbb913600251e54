// SPDX-License-Identifier: GPL-2.0-or-later
//! Which CPU this is, and whether its counters can be used.

use std::path::Path;

use nearwalk_host::Source;

use crate::events::Model;
use crate::missing::Missing;

/// A CPU model, in the kernel's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// `VENDOR-FAMILY-MODEL-STEPPING`, as perf's map of models has it: the family
    /// in decimal, model and stepping in hexadecimal.
    pub id: String,
}

impl Cpu {
    /// Reads it; none where /proc/cpuinfo says no such thing, as on other
    /// architectures.
    pub fn read(source: &mut dyn Source) -> Option<Self> {
        let text = source.read(Path::new("/proc/cpuinfo")).ok()?;
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
            Some(value.trim())
        };
        let number = |name| value(name)?.parse::<u32>().ok();
        let vendor = value("vendor_id")?;
        let (family, model) = (number("cpu family")?, number("model")?);
        let stepping = number("stepping").unwrap_or(0);
        Some(Self {
            id: format!("{vendor}-{family}-{model:X}-{stepping:X}"),
        })
    }
}

/// The events that count here, or why there are none: said before anything is
/// opened, in the order in which it would have to be remedied.
pub fn prepare(source: &mut dyn Source) -> Result<&'static Model, Missing> {
    let devices = Path::new("/sys/bus/event_source/devices");
    let pmu = source.read(&devices.join("cpu/type")).is_ok();
    if !pmu && source.read(&devices.join("cpu_core/type")).is_err() {
        return Err(Missing::NoPmu);
    }
    let cpu = Cpu::read(source).ok_or(Missing::NoCpu)?;
    let Some(model) = Model::of(&cpu.id) else {
        return Err(Missing::UnknownModel { cpu: cpu.id });
    };
    if model.walks.is_empty() {
        return Err(Missing::NoEvents {
            cpu: cpu.id,
            model: model.name.clone(),
        });
    }
    Ok(model)
}

/// `perf_event_paranoid`.
pub(crate) fn paranoid(source: &mut dyn Source) -> Option<i32> {
    let text = source.read(Path::new("/proc/sys/kernel/perf_event_paranoid"));
    text.ok()?.trim().parse().ok()
}

/// Whether the NMI watchdog has a counter.
pub(crate) fn watchdog(source: &mut dyn Source) -> bool {
    let text = source.read(Path::new("/proc/sys/kernel/nmi_watchdog"));
    text.is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::io;
    use std::time::Duration;

    use nearwalk_host::Error;

    use super::*;

    #[derive(Default)]
    struct Files(BTreeMap<&'static str, String>);

    impl Source for Files {
        fn read(&mut self, path: &Path) -> io::Result<String> {
            let text = self.0.get(path.to_str().unwrap()).cloned();
            text.ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn list(&mut self, _: &Path) -> io::Result<Vec<OsString>> {
            unreachable!("no directory is listed")
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn wait(&mut self, _: Duration) -> Result<(), Error> {
            unreachable!("nobody waits")
        }
    }

    fn host(vendor: &str, family: u32, model: u32, stepping: u32) -> Files {
        let mut files = Files::default();
        let text = format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: x: y\nstepping\t: {stepping}\n\nprocessor\t: 1\nmodel\t\t: 99\n"
        );
        files.0.insert("/proc/cpuinfo", text);
        files
            .0
            .insert("/sys/bus/event_source/devices/cpu/type", "4\n".into());
        files
    }

    #[test]
    fn models_are_named_as_perf_does() {
        let id = |mut files: Files| Cpu::read(&mut files).unwrap().id;
        assert_eq!(id(host("GenuineIntel", 6, 85, 7)), "GenuineIntel-6-55-7");
        assert_eq!(id(host("GenuineIntel", 6, 143, 10)), "GenuineIntel-6-8F-A");
        assert_eq!(id(host("AuthenticAMD", 25, 17, 1)), "AuthenticAMD-25-11-1");
    }

    #[test]
    fn what_is_missing_is_named_before_anything_is_opened() {
        let missing = |mut files: Files| prepare(&mut files).unwrap_err();
        assert_eq!(missing(Files::default()), Missing::NoPmu);
        let mut arm = host("", 0, 0, 0);
        arm.0
            .insert("/proc/cpuinfo", "CPU implementer\t: 0x41\n".into());
        assert_eq!(missing(arm), Missing::NoCpu);
        let unknown = missing(host("GenuineIntel", 6, 255, 3));
        assert!(
            unknown
                .to_string()
                .starts_with("CPU model GenuineIntel-6-FF-3 is not in the lists of Linux 6.")
        );
        let bonnell = missing(host("GenuineIntel", 6, 28, 2));
        assert!(
            bonnell.to_string().contains("(bonnell) has no event"),
            "{bonnell}"
        );
        let model = prepare(&mut host("GenuineIntel", 6, 85, 7)).unwrap();
        assert_eq!(model.name, "cascadelakex");
    }
}
