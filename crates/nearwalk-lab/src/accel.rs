// SPDX-License-Identifier: GPL-2.0-or-later
//! KVM or TCG. A `/dev/kvm` that opens proves nothing: on some machines it
//! runs no ordinary guest. Trusted are the CPU's flags and a guest that has
//! booted.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use crate::{AccelChoice, Error, Job, NodeSpec, Size, VmConfig, paths::build_dir, vm::Vm};

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    Tcg,
    Kvm,
}

/// A guest that KVM can run boots in one or two seconds.
const TRIAL_LIMIT: Duration = Duration::from_secs(30);

impl Accel {
    /// What `config` gets on this host.
    pub(crate) fn choose(config: &VmConfig) -> Result<Accel, Error> {
        match config.accel {
            AccelChoice::Tcg => Ok(Accel::Tcg),
            AccelChoice::Kvm => offered().map(|()| Accel::Kvm).map_err(Error::NoKvm),
            AccelChoice::Auto if config.icount || config.plugin.is_some() || offered().is_err() => {
                Ok(Accel::Tcg)
            }
            AccelChoice::Auto if trial(config) => Ok(Accel::Kvm),
            AccelChoice::Auto => Ok(Accel::Tcg),
        }
    }
}

/// Whether the host claims to run KVM guests; if not, why.
fn offered() -> Result<(), String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !has_virtualisation(&cpuinfo) {
        return Err("this CPU offers neither vmx nor svm".into());
    }
    File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .map(drop)
        .map_err(|error| format!("/dev/kvm cannot be opened: {error}"))
}

/// Whether this machine is itself one of QEMU's under TCG, by the signature in CPUID
/// leaf 0x40000000, which hypervisors share (Linux: `hypervisor_cpuid_base()`).
#[cfg(target_arch = "x86_64")]
pub fn is_emulated() -> bool {
    use std::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 CPU has the instruction. (Newer Rust knows that.)
    #[allow(unused_unsafe)]
    let cpuid = |leaf| unsafe { __cpuid(leaf) };
    let leaf = cpuid(0x4000_0000);
    let signature = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
    cpuid(1).ecx >> 31 == 1 && signature.concat() == b"TCGTCGTCGTCG"
}

#[cfg(not(target_arch = "x86_64"))]
pub fn is_emulated() -> bool {
    false
}

fn has_virtualisation(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .flat_map(str::split_whitespace)
        .any(|flag| flag == "vmx" || flag == "svm")
}

/// Boots the kernel once under KVM; remembers the answer until the host
/// reboots.
fn trial(config: &VmConfig) -> bool {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memo = build_dir().join("lab/kvm-trial");
    if let Some(answer) = remembered(&memo, &boot_id) {
        return answer;
    }
    let small = VmConfig {
        nodes: vec![NodeSpec {
            cpus: 1,
            memory: Size::mib(512),
        }],
        kernel: config.kernel.clone(),
        accel: AccelChoice::Kvm,
        timeout: Some(TRIAL_LIMIT),
        ..VmConfig::default()
    };
    let job = Job::new(["true"])
        .cwd("/")
        .stdout(std::io::sink())
        .stderr(std::io::sink());
    let works = Vm::start(&small, job)
        .and_then(Vm::wait)
        .is_ok_and(|outcome| outcome.success());
    let _ = fs::create_dir_all(build_dir().join("lab"));
    let _ = fs::write(&memo, format!("{works} {boot_id}"));
    works
}

fn remembered(memo: &Path, boot_id: &str) -> Option<bool> {
    let text = fs::read_to_string(memo).ok()?;
    let (answer, id) = text.split_once(' ')?;
    (id == boot_id).then(|| answer.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole_words() {
        assert!(has_virtualisation("flags\t\t: fpu svm sse\n"));
        assert!(has_virtualisation("flags : vmx\n"));
        assert!(!has_virtualisation("flags : svm_lock vmxx\nbugs : svm\n"));
        assert!(!has_virtualisation(""));
    }

    #[test]
    fn icount_never_takes_kvm() {
        let config = VmConfig {
            icount: true,
            ..VmConfig::default()
        };
        assert_eq!(Accel::choose(&config).unwrap(), Accel::Tcg);
    }
}
