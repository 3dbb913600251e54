// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU's command line for a [`VmConfig`].

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use crate::{Accel, Pti, VmConfig, accel::is_emulated, clock};

pub const PROGRAM: &str = "qemu-system-x86_64";

/// File descriptors of QEMU's ends of the connections, and the initial RAM
/// file system.
pub struct Endpoints {
    pub console: i32,
    pub qmp: i32,
    pub ctl: i32,
    pub stdin: i32,
    pub stdout: i32,
    pub stderr: i32,
    pub initramfs: i32,
}

pub fn arguments(
    config: &VmConfig,
    accel: Accel,
    kernel: &Path,
    ends: &Endpoints,
) -> Vec<OsString> {
    let mut args = Arguments::default();
    args.words("-nodefaults -no-user-config -no-reboot -display none");
    // Not `pc`: that one makes its interrupt routing in a loop of ACPI code, for
    // which a debug kernel needs more than the 30 s that it allows.
    args.words("-machine q35,sata=off");
    args.option("-name", "nearwalk-lab,debug-threads=on");
    args.option("-accel", accelerator(config, accel));
    args.option("-cpu", cpu_model(config, accel));
    args.option("-smp", topology(config));
    memory(config, &mut args);

    if let Some(plugin) = &config.plugin {
        let mut value = OsString::from("file=");
        value.push(escape(plugin.library.as_os_str()));
        for (key, word) in &plugin.options {
            value.push(format!(",{key}="));
            value.push(escape(word));
        }
        args.option("-plugin", value);
    }

    if config.placement.cpus.is_some() {
        // Until each runs where it should.
        args.words("-S");
    }
    args.option("-kernel", kernel);
    args.option("-initrd", format!("/proc/self/fd/{}", ends.initramfs));
    args.option("-append", command_line(config, accel));

    chardev(&mut args, "console", ends.console);
    args.words("-serial chardev:console");
    chardev(&mut args, "qmp", ends.qmp);
    args.words("-mon chardev=qmp,mode=control");
    args.option("-device", virtio("virtio-serial-pci"));
    for (name, fd) in [
        ("ctl", ends.ctl),
        ("stdin", ends.stdin),
        ("stdout", ends.stdout),
        ("stderr", ends.stderr),
    ] {
        chardev(&mut args, name, fd);
        args.option(
            "-device",
            format!("virtserialport,chardev={name},name=nearwalk.{name}"),
        );
    }

    export(&mut args, "root", Path::new("/"), ",readonly=on");
    for (index, share) in config.shares.iter().enumerate() {
        export(&mut args, &share_tag(index), share, "");
    }
    args.0
}

/// The 9p tag of the `index`th of [`VmConfig::shares`].
pub fn share_tag(index: usize) -> String {
    format!("share{index}")
}

/// All emulated CPUs read the host's one clock; without this the kernel finds them
/// apart and falls back to a slow timer. The timer check and the lockup detector
/// must bear a host that runs few of them at a time.
const SLOW_CPUS: &str = "tsc=reliable no_timer_check watchdog_thresh=60";

/// A vCPU thread of QEMU before 8.1 can translate code just before another one
/// changes it and enter the stale translation into its cache afterwards. The
/// kernel's patching of static branches then ends in an "Oops: int3" with the right
/// bytes in memory. Our kernels write twice; since the stock kernel does not, and
/// since each write stops all CPUs, have the hooks of replication opened before the
/// second CPU starts, too.
const PATCHED_CODE: &str = "text_poke_again pgtable_repl=hold";

/// QEMU 7.2 translates a program anew for each address that it lies at, and has all
/// translations of a page in one list, which each store to the page goes through. After
/// hundreds of programs, each elsewhere, a CPU that used again what had been a page of
/// the C library stood still for minutes. At the same addresses, one translation is there
/// for all.
const SAME_ADDRESSES: &str = "norandmaps";

/// For a guest of KVM in an emulated machine. QEMU before 9.1, entering such a guest,
/// forgets that its last instruction was STI (`helper_vmrun()` does not read the
/// VMCB's interrupt shadow). What arrives between the `sti` and the `hlt` of an idle
/// CPU is then handled before the `hlt`, and the CPU sleeps although it was woken:
/// until its next interrupt, which without a tick may never come.
const LOST_WAKEUPS: &str = "nohz=off";

/// What a guest of KVM in an emulated machine is told: its kernel finds the CPUs of a
/// hypervisor, and yet they are as slow, and as forgetful of changed code, as the
/// machine's. `own` is the command line of the machine's kernel, which knows whether
/// that holds: not if one thread runs all its CPUs.
fn for_emulated_host(own: &str) -> impl Iterator<Item = &'static str> + '_ {
    let has = |words: &str| {
        let mut words = words.split(' ');
        words.all(|word| own.split_whitespace().any(|told| told == word))
    };
    let same = [PATCHED_CODE, SAME_ADDRESSES].into_iter();
    let same = same.filter(move |words| has(words));
    [SLOW_CPUS, LOST_WAKEUPS].into_iter().chain(same)
}

/// The kernel's command line.
pub fn command_line(config: &VmConfig, accel: Accel) -> String {
    // Warnings and worse on the console: that is where findings come from. An
    // oops ends the run; an NMI, sent to a guest that hangs, shows where.
    let mut line = String::from(
        "console=ttyS0 loglevel=5 panic=-1 oops=panic unknown_nmi_panic panic_print=0x48",
    );
    if accel == Accel::Tcg {
        line.push(' ');
        line += SLOW_CPUS;
        if !config.icount && !config.single_thread {
            line.push(' ');
            line += PATCHED_CODE;
        }
        // Counts of instructions are of programs as they are.
        if !config.icount {
            line.push(' ');
            line += SAME_ADDRESSES;
        }
        let khz = if config.icount {
            Some(clock::ICOUNT_KHZ)
        } else {
            clock::host_tsc_khz()
        };
        if let Some(khz) = khz {
            line += &format!(" tsc_early_khz={khz}");
        }
    }
    if accel == Accel::Kvm && is_emulated() {
        let own = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
        for words in for_emulated_host(&own) {
            line.push(' ');
            line += words;
        }
    }
    line += match config.pti {
        Pti::Auto => "",
        Pti::On => " pti=on",
        Pti::Off => " pti=off",
    };
    for word in &config.append {
        line.push(' ');
        line += word;
    }
    line
}

fn accelerator(config: &VmConfig, accel: Accel) -> &'static str {
    match (accel, config.icount || config.single_thread) {
        (Accel::Kvm, _) => "kvm",
        (Accel::Tcg, false) => "tcg,thread=multi",
        // The count itself is an option of its own, see `topology`.
        (Accel::Tcg, true) => "tcg,thread=single",
    }
}

/// Of a guest of KVM in an emulated machine. QEMU 7.2 does not tell a hypervisor of XSETBV:
/// the guest's kernel finds sizes in CPUID that do not fit what it has enabled, and warns.
/// A guest in the guest would be too slow to be of use, but to be ready for one, the
/// guest's kernel patches a hundred calls, each of which interrupts all its CPUs.
const EMULATED_HOST: &str = "host,-xsave,-svm";

fn cpu_model(config: &VmConfig, accel: Accel) -> String {
    let mut model = config.cpu_model.clone().unwrap_or_else(|| {
        match accel {
            Accel::Kvm if is_emulated() => EMULATED_HOST,
            Accel::Kvm => "host",
            // Nested paging, so that the guest can run KVM guests itself.
            Accel::Tcg => "EPYC,+svm,+npt",
        }
        .into()
    });
    // `max` and `host` may have it unasked; a model that names it decides.
    if !model.contains("la57") {
        model += if config.la57 { ",+la57" } else { ",-la57" };
    }
    model
}

fn topology(config: &VmConfig) -> String {
    let cpus = config.cpus();
    let with_cpus: Vec<u32> = config
        .nodes
        .iter()
        .map(|node| node.cpus)
        .filter(|&cpus| cpus > 0)
        .collect();
    // A socket a node where nodes are alike, else a socket a CPU.
    let sockets = if with_cpus.windows(2).all(|pair| pair[0] == pair[1]) {
        with_cpus.len() as u32
    } else {
        cpus
    };
    format!(
        "{cpus},sockets={sockets},cores={},threads=1",
        cpus / sockets
    )
}

fn memory(config: &VmConfig, args: &mut Arguments) {
    let mut size = format!("{}M", config.memory().in_mib());
    if !config.dimms.is_empty() {
        // Each begins at a multiple of a GiB.
        let room: u64 = config
            .dimms
            .iter()
            .map(|dimm| dimm.size.in_mib().next_multiple_of(1024))
            .sum();
        size += &format!(
            ",slots={},maxmem={}M",
            config.dimms.len(),
            config.memory().in_mib() + room
        );
    }
    args.option("-m", size);
    if config.icount {
        args.words("-icount shift=0,sleep=off");
    }
    let mut first_cpu = 0;
    for (id, node) in config.nodes.iter().enumerate() {
        let mut numa = format!("node,nodeid={id}");
        if node.cpus > 0 {
            let last = first_cpu + node.cpus - 1;
            numa += &format!(",cpus={first_cpu}-{last}");
            first_cpu += node.cpus;
        }
        if node.memory.bytes() > 0 {
            let size = node.memory.in_mib();
            let mut backend = match &config.memory_dir {
                None => OsString::from(format!("memory-backend-ram,id=m{id},size={size}M")),
                Some(dir) => {
                    let mut backend = OsString::from(format!(
                        "memory-backend-file,id=m{id},size={size}M,share=on,mem-path="
                    ));
                    backend.push(escape(dir.join(format!("node{id}")).as_os_str()));
                    backend
                }
            };
            if let Some(policy) = config.placement.policy(id) {
                for node in policy.nodes.iter() {
                    backend.push(format!(",host-nodes={node}"));
                }
                backend.push(format!(",policy={}", policy.name));
            }
            args.option("-object", backend);
            numa += &format!(",memdev=m{id}");
        }
        args.option("-numa", numa);
    }
    for (id, dimm) in config.dimms.iter().enumerate() {
        args.option(
            "-object",
            format!("memory-backend-ram,id=d{id},size={}M", dimm.size.in_mib()),
        );
        args.option(
            "-device",
            format!("pc-dimm,id=dimm{id},memdev=d{id},node={}", dimm.node),
        );
    }
}

fn chardev(args: &mut Arguments, id: &str, fd: i32) {
    args.option("-chardev", format!("socket,id={id},fd={fd}"));
}

fn export(args: &mut Arguments, tag: &str, path: &Path, more: &str) {
    let mut option = OsString::from(format!("local,id={tag},path="));
    option.push(escape(path.as_os_str()));
    option.push(format!(",security_model=none,multidevs=remap{more}"));
    args.option("-fsdev", option);
    args.option(
        "-device",
        virtio(&format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")),
    );
}

/// A virtio device that the guest reaches by I/O ports alone: no PCI device of the
/// machine has memory.
///
/// In QEMU before 8.1 a vCPU thread can look up what it remembers of an address in
/// the map of devices that another vCPU has just replaced (`tcg_commit()`), and its
/// write, most often to the local APIC, reaches another device: an interrupt is
/// never ended, or QEMU stops at an assertion in `msix_table_mmio_write()`. The map
/// changes whenever Linux, sizing a device's BARs, switches its memory off and on.
fn virtio(device: &str) -> String {
    format!("{device},disable-legacy=off,disable-modern=on,vectors=0")
}

/// QEMU splits options at commas, except at doubled ones.
fn escape(value: &OsStr) -> OsString {
    let mut escaped = Vec::new();
    for &byte in value.as_bytes() {
        escaped.push(byte);
        if byte == b',' {
            escaped.push(byte);
        }
    }
    OsString::from_vec(escaped)
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn words(&mut self, words: &str) {
        self.0.extend(words.split(' ').map(OsString::from));
    }

    fn option(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.0.push(name.into());
        self.0.push(value.as_ref().into());
    }
}

/// One line that a shell reads back as these words.
pub fn shell_quoted<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let quote = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeSpec, Size};

    #[test]
    fn a_guest_is_told_what_its_emulated_machine_was() {
        let told = |own| for_emulated_host(own).collect::<Vec<_>>();
        let slow = [SLOW_CPUS, LOST_WAKEUPS];
        assert_eq!(told("console=ttyS0 pgtable_repl=hold norandmapsets"), slow);
        let all = [SLOW_CPUS, LOST_WAKEUPS, PATCHED_CODE, SAME_ADDRESSES];
        assert_eq!(told("norandmaps text_poke_again pgtable_repl=hold\n"), all);
    }

    const ENDS: Endpoints = Endpoints {
        console: 3,
        qmp: 4,
        ctl: 5,
        stdin: 6,
        stdout: 7,
        stderr: 8,
        initramfs: 9,
    };

    fn line(config: &VmConfig, accel: Accel) -> String {
        let args = arguments(config, accel, Path::new("/k/bzImage"), &ENDS);
        shell_quoted(args.iter().map(OsString::as_os_str))
    }

    #[test]
    fn the_default_machine_has_four_nodes_of_two_cpus() {
        let line = line(&VmConfig::default(), Accel::Tcg);
        for part in [
            "-accel tcg,thread=multi",
            "-cpu EPYC,+svm,+npt,-la57",
            "-smp 8,sockets=4,cores=2,threads=1",
            "-m 4096M",
            "-object memory-backend-ram,id=m3,size=1024M -numa node,nodeid=3,cpus=6-7,memdev=m3",
            "-kernel /k/bzImage -initrd /proc/self/fd/9",
            " norandmaps",
            "-chardev socket,id=stderr,fd=8 -device virtserialport,chardev=stderr,name=nearwalk.stderr",
            "-fsdev local,id=root,path=/,security_model=none,multidevs=remap,readonly=on",
            "-device virtio-9p-pci,fsdev=root,mount_tag=root,disable-legacy=off,disable-modern=on,vectors=0",
        ] {
            assert!(line.contains(part), "no '{part}' in {line}");
        }
    }

    #[test]
    fn nodes_without_memory_or_cpus_leave_that_part_out() {
        let node = |cpus, memory| NodeSpec { cpus, memory };
        let config = VmConfig {
            nodes: vec![
                node(3, Size::gib(1)),
                node(1, Size::mib(0)),
                node(0, Size::gib(2)),
            ],
            ..VmConfig::default()
        };
        let line = line(&config, Accel::Tcg);
        assert!(
            line.contains("-numa node,nodeid=1,cpus=3-3 -object"),
            "{line}"
        );
        assert!(line.contains("-numa node,nodeid=2,memdev=m2"), "{line}");
        assert!(line.contains("-smp 4,sockets=4,cores=1"), "{line}");
    }

    #[test]
    fn memory_modules_have_slots_and_room() {
        let config = VmConfig {
            dimms: vec!["3=256M".parse().unwrap()],
            ..VmConfig::default()
        };
        let line = line(&config, Accel::Tcg);
        for part in [
            "-m 4096M,slots=1,maxmem=5120M",
            "-object memory-backend-ram,id=d0,size=256M -device pc-dimm,id=dimm0,memdev=d0,node=3",
        ] {
            assert!(line.contains(part), "no '{part}' in {line}");
        }
    }

    #[test]
    fn switches_reach_cpu_accelerator_and_kernel() {
        let config = VmConfig {
            la57: true,
            pti: Pti::On,
            icount: true,
            append: vec!["foo=bar".into()],
            ..VmConfig::default()
        };
        let line = line(&config, Accel::Tcg);
        for part in [
            ",+la57",
            "-accel tcg,thread=single",
            "-icount shift=0,sleep=off",
            " tsc_early_khz=1000000 ",
            " pti=on foo=bar'",
        ] {
            assert!(line.contains(part), "no '{part}' in {line}");
        }
        let named = VmConfig {
            cpu_model: Some("max,-la57".into()),
            ..config
        };
        assert_eq!(cpu_model(&named, Accel::Tcg), "max,-la57");
    }

    #[test]
    fn under_kvm_the_clock_is_the_hypervisors() {
        let line = line(&VmConfig::default(), Accel::Kvm);
        assert!(line.contains("-accel kvm -cpu host,-la57"), "{line}");
        assert!(!line.contains("tsc=reliable"), "{line}");
        assert!(!line.contains("norandmaps"), "{line}");
    }

    #[test]
    fn memory_is_placed_and_cpus_wait_until_they_are() {
        let with = |cpus: &str, memory: &str| {
            let config = VmConfig {
                placement: crate::Placement {
                    cpus: Some(cpus.parse().unwrap()),
                    memory: memory.parse().unwrap(),
                },
                ..VmConfig::default()
            };
            line(&config, Accel::Kvm)
        };
        let local = with("0-3", "local");
        assert!(local.contains(" -S "), "{local}");
        let object = "memory-backend-ram,id=m3,size=1024M,host-nodes=3,policy=bind ";
        assert!(local.contains(object), "{local}");
        let interleaved = with("0,2", "interleave");
        let object = "id=m3,size=1024M,host-nodes=0,host-nodes=2,policy=interleave ";
        assert!(interleaved.contains(object), "{interleaved}");
        let anywhere = line(&VmConfig::default(), Accel::Kvm);
        assert!(!anywhere.contains("host-nodes") && !anywhere.contains(" -S "));
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        let config = VmConfig {
            shares: vec!["/a,b".into()],
            memory_dir: Some("/c,d".into()),
            ..VmConfig::default()
        };
        let line = line(&config, Accel::Tcg);
        assert!(line.contains("local,id=share0,path=/a,,b,"), "{line}");
        assert!(line.contains("share=on,mem-path=/c,,d/node0"), "{line}");
    }

    #[test]
    fn a_plugin_gets_its_options() {
        let config = VmConfig {
            plugin: Some(crate::Plugin {
                library: "/l/p,q.so".into(),
                options: vec![("mode", "count".into()), ("out", "/o,p".into())],
            }),
            ..VmConfig::default()
        };
        let line = line(&config, Accel::Tcg);
        let expected = "-plugin file=/l/p,,q.so,mode=count,out=/o,,p";
        assert!(line.contains(expected), "{line}");
    }

    #[test]
    fn quoted_lines_survive_a_shell() {
        let words = ["plain", "two words", "it's", ""].map(OsStr::new);
        assert_eq!(shell_quoted(words), r"plain 'two words' 'it'\''s' ''");
    }
}
