// SPDX-License-Identifier: GPL-2.0-or-later
//! Why this kernel, or this user, cannot have page tables read by BPF.

use std::fs;
use std::io;
use std::path::Path;

use thiserror::Error;

/// What is missing, why it is needed, and how to get it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("this nearwalk was built without the feature bpf; build it with its default features")]
    Built,
    #[error(
        "Linux {release} is older than 6.1, whose BPF iterators can be told one process; \
         boot a newer kernel"
    )]
    Old { release: String },
    #[error(
        "Linux {release} has no BTF (/sys/kernel/btf/vmlinux), which says where fields lie; \
         boot a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf { release: String },
    #[error(
        "/sys/kernel/security/lockdown is confidentiality, which lets BPF read nothing of the \
         kernel; boot with lockdown=integrity, which Secure Boot is content with"
    )]
    Confidential,
    #[error(
        "the entries of Xen PV guests hold frames of the machine, not of the guest; \
         run the guest as PVH or HVM"
    )]
    Xen,
    #[error(
        "{} missing, which reading the kernel's memory needs; run nearwalk as root, or \
         setcap cap_bpf,cap_perfmon+ep on it",
        names.join(" and ") + if names.len() > 1 { " are" } else { " is" }
    )]
    Capabilities { names: Vec<&'static str> },
    #[error(
        "loading the BPF program failed: {reason}; a security module, a seccomp filter or a kernel \
         without CONFIG_BPF_EVENTS may forbid it"
    )]
    Load { reason: String },
    #[error("{what} cannot be read")]
    Unreadable {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "where Linux {release} maps memory is not to be found: the tables of the kernel lead \
         nowhere from any of the places that are possible"
    )]
    NoMap { release: String },
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Looks for a reason below `root`, which is `/` but in tests.
pub fn refusal(root: &Path) -> Option<Refusal> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let release = text("proc/sys/kernel/osrelease").trim().to_owned();
    if version(&release).is_some_and(|version| version < (6, 1)) {
        return Some(Refusal::Old { release });
    }
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        return Some(Refusal::NoBtf { release });
    }
    // Readable by root only, who sees the reason; others fail at the load.
    if text("sys/kernel/security/lockdown").contains("[confidentiality]") {
        return Some(Refusal::Confidential);
    }
    if text("sys/hypervisor/guest_type").trim() == "PV" {
        return Some(Refusal::Xen);
    }
    let held = text("proc/self/status")
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or(!0);
    let lacks = |cap: u32| held & (1 << cap | 1 << CAP_SYS_ADMIN) == 0;
    let names: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter_map(|(cap, name)| lacks(cap).then_some(name))
        .collect();
    (!names.is_empty()).then_some(Refusal::Capabilities { names })
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Host;

    fn host(name: &str) -> Host {
        Host::new(name)
            .file("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n")
            .file("sys/kernel/btf/vmlinux", "")
            .file(
                "sys/kernel/security/lockdown",
                "none [integrity] confidentiality\n",
            )
            .file("proc/self/status", "CapEff:\t000000c000000000\n")
    }

    fn said(host: &Host) -> String {
        let refusal = refusal(host.root()).expect("refused");
        let text = refusal.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn two_capabilities_are_enough() {
        assert!(refusal(host("enough").root()).is_none());
        let admin = host("admin").file("proc/self/status", "CapEff:\t0000000000200000\n");
        assert!(refusal(admin.root()).is_none());
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = host("none").file("proc/self/status", "CapEff:\t0000000000000000\n");
        assert!(said(&none).starts_with("CAP_BPF and CAP_PERFMON are missing"));
        let bpf = host("bpf").file("proc/self/status", "CapEff:\t0000008000000000\n");
        assert!(said(&bpf).starts_with("CAP_PERFMON is missing"));
        let secret = host("secret").file(
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
        );
        assert!(said(&secret).contains("lockdown=integrity"));
        let old = host("old").file("proc/sys/kernel/osrelease", "5.10.0-32-amd64\n");
        assert!(said(&old).starts_with("Linux 5.10.0-32-amd64 is older than 6.1"));
        let xen = host("xen").file("sys/hypervisor/guest_type", "PV\n");
        assert!(said(&xen).contains("Xen PV"));
        let plain = Host::new("plain").file("proc/sys/kernel/osrelease", "6.12.1\n");
        assert!(said(&plain).starts_with("Linux 6.12.1 has no BTF"));
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version("6.12.117+deb12-amd64"), Some((6, 12)));
        assert_eq!(version("10.0-rc1"), Some((10, 0)));
        assert_eq!(version("next"), None);
    }
}
