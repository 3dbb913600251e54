// SPDX-License-Identifier: GPL-2.0-or-later
//! What machine to boot.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use crate::{Error, Placement, Plugin, Size, bochs};

/// The lab kernel's `CONFIG_NR_CPUS` and number of nodes.
const MAX_CPUS: u32 = 64;
const MAX_NODES: usize = 64;
/// Below this the kernel and the tmpfs that holds what programs write do not
/// fit.
const MIN_MEMORY: Size = Size::mib(256);
/// Linux's memory blocks, which come and go as a whole.
const DIMM_UNIT: Size = Size::mib(128);

/// One memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// May be 0: a node of memory only.
    pub cpus: u32,
    /// May be 0: a node of CPUs only.
    pub memory: Size,
}

impl NodeSpec {
    /// `nodes` nodes that share `cpus` CPUs and `memory` evenly.
    pub fn even(nodes: u32, cpus: u32, memory: Size) -> Result<Vec<NodeSpec>, Error> {
        if nodes == 0 || nodes as usize > MAX_NODES {
            return Err(Error::Invalid(format!(
                "{nodes} nodes; allowed: 1 to {MAX_NODES}"
            )));
        }
        if cpus == 0 || cpus > MAX_CPUS || cpus % nodes != 0 {
            return Err(Error::Invalid(format!(
                "{cpus} CPUs on {nodes} nodes; allowed: a multiple of {nodes} up to {MAX_CPUS} \
                 (for uneven nodes, describe each with --node)"
            )));
        }
        let each = Size::mib(memory.in_mib() / u64::from(nodes));
        Ok(vec![
            NodeSpec {
                cpus: cpus / nodes,
                memory: each,
            };
            nodes as usize
        ])
    }
}

impl FromStr for NodeSpec {
    type Err = String;

    /// Reads `cpus=N,memory=SIZE`; what is left out is 0.
    fn from_str(text: &str) -> Result<NodeSpec, String> {
        let mut node = NodeSpec {
            cpus: 0,
            memory: Size::mib(0),
        };
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("cpus", count)) => {
                    node.cpus = count
                        .parse()
                        .map_err(|_| format!("'{count}' is no number of CPUs"))?;
                }
                Some(("memory", size)) => node.memory = size.parse()?,
                _ => {
                    return Err(format!(
                        "'{part}' describes no node; allowed: cpus=N, memory=SIZE"
                    ));
                }
            }
        }
        Ok(node)
    }
}

/// A memory module: memory of a node that the guest adds to it at run time,
/// offline, and that can go offline as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimm {
    pub node: usize,
    pub size: Size,
}

impl FromStr for Dimm {
    type Err = String;

    /// Reads `NODE=SIZE`.
    fn from_str(text: &str) -> Result<Dimm, String> {
        let wrong = || format!("'{text}' is no memory module; allowed: NODE=SIZE, as 3=256M");
        let (node, size) = text.split_once('=').ok_or_else(wrong)?;
        Ok(Dimm {
            node: node.parse().map_err(|_| wrong())?,
            size: size.parse()?,
        })
    }
}

/// Which kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// With Nearwalk: `make kernel`.
    Ours,
    /// Unmodified: `make kernel-stock`.
    Stock,
    /// With Nearwalk and every check: `make kernel-debug`.
    Debug,
    /// An image, or the directory of a kernel build.
    Path(PathBuf),
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Kernel, String> {
        match text {
            "ours" => Ok(Kernel::Ours),
            "stock" => Ok(Kernel::Stock),
            "debug" => Ok(Kernel::Debug),
            path if Path::new(path).exists() => Ok(Kernel::Path(path.into())),
            _ => Err(format!(
                "'{text}' is no kernel; allowed: ours, stock, debug, or the path of an image \
                 or of a kernel's build directory"
            )),
        }
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::Ours => "ours",
            Kernel::Stock => "stock",
            Kernel::Debug => "debug",
            Kernel::Path(path) => return path.display().fmt(f),
        })
    }
}

impl Kernel {
    /// The object directory, where that is known.
    pub(crate) fn object_dir(&self, build: &Path) -> Option<PathBuf> {
        match self {
            Kernel::Ours => Some(build.join("kernel-nearwalk")),
            Kernel::Stock => Some(build.join("kernel-stock")),
            Kernel::Debug => Some(build.join("kernel-debug")),
            Kernel::Path(path) => path.is_dir().then(|| path.clone()),
        }
    }

    /// The image to boot.
    pub fn image(&self, build: &Path) -> Result<PathBuf, Error> {
        let remedy = match self {
            Kernel::Ours => "make kernel",
            Kernel::Stock => "make kernel-stock",
            Kernel::Debug => "make kernel-debug",
            Kernel::Path(_) => "make bzImage",
        };
        let path = match (self, self.object_dir(build)) {
            (_, Some(dir)) => dir.join("arch/x86/boot/bzImage"),
            (Kernel::Path(path), None) => path.clone(),
            (_, None) => unreachable!("only a path can be without an object directory"),
        };
        if path.is_file() {
            std::path::absolute(&path).map_err(Error::io("the current directory"))
        } else {
            Err(Error::NoKernel { path, remedy })
        }
    }
}

/// Which program is the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Emulator {
    /// Nodes, devices, the host's files
    #[default]
    Qemu,
    /// An Intel machine with PCID, INVPCID and VMX, and a console
    Bochs,
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AccelChoice {
    /// KVM where the host's CPU offers it and a trial boot works, else TCG
    #[default]
    Auto,
    /// Emulation; works anywhere
    Tcg,
    /// Hardware virtualisation
    Kvm,
}

/// Page-table isolation: a second root for user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Pti {
    /// As the kernel decides for the CPU model
    #[default]
    Auto,
    On,
    Off,
}

/// A machine. The default is what `nearwalk lab run` boots: four nodes with two
/// CPUs and 1 GiB each.
#[derive(Clone, Debug)]
pub struct VmConfig {
    pub emulator: Emulator,
    /// Bochs has no nodes: its kernel makes as many as these of its memory.
    pub nodes: Vec<NodeSpec>,
    pub kernel: Kernel,
    /// Where a kernel has its modules that is not one of ours, as
    /// `lib/modules/6.1.0-56-amd64`: what it needs of them for the host's files
    /// is loaded first.
    pub modules: Option<PathBuf>,
    pub accel: AccelChoice,
    /// QEMU's `-cpu`, or Bochs's model; `None` takes an AMD CPU with nested paging (TCG) or the
    /// host's (KVM).
    pub cpu_model: Option<String>,
    /// Five-level page tables.
    pub la57: bool,
    pub pti: Pti,
    /// One thread for all CPUs and a clock that counts instructions: slow, and
    /// the same on every run.
    pub icount: bool,
    /// One thread for all CPUs, as with `icount`, and the host's clock.
    pub single_thread: bool,
    /// Added to the kernel's command line.
    pub append: Vec<String>,
    /// Set before the command starts.
    pub sysctls: Vec<(String, String)>,
    /// Host directories that the guest may write, at the same path.
    pub shares: Vec<PathBuf>,
    /// What a guest of Bochs gets beside the command: files, or directories with
    /// all in them. Programs bring their libraries.
    pub files: Vec<PathBuf>,
    /// Beside the nodes' own memory.
    pub dimms: Vec<Dimm>,
    /// Back each node's memory by a file `nodeN` here, which others can map.
    pub memory_dir: Option<PathBuf>,
    /// Which nodes of the machine that runs QEMU the guest lies on.
    pub placement: Placement,
    /// A library that QEMU loads to watch the guest; TCG only.
    pub plugin: Option<Plugin>,
    /// Longest run, from start; `None` is no limit.
    pub timeout: Option<Duration>,
    /// Longest silence of the guest's first process before the guest counts as
    /// hung; `None` chooses by kernel and accelerator. Time in which the host
    /// does not run the guest's CPUs, though they want to, does not count.
    pub patience: Option<Duration>,
    /// Keep the console log here; `None` keeps it in the build directory, and
    /// only if the run fails.
    pub log: Option<PathBuf>,
}

impl Default for VmConfig {
    fn default() -> VmConfig {
        let node = NodeSpec {
            cpus: 2,
            memory: Size::gib(1),
        };
        VmConfig {
            emulator: Emulator::Qemu,
            nodes: vec![node; 4],
            kernel: Kernel::Ours,
            modules: None,
            accel: AccelChoice::Auto,
            cpu_model: None,
            la57: false,
            pti: Pti::Auto,
            icount: false,
            single_thread: false,
            append: Vec::new(),
            sysctls: Vec::new(),
            shares: Vec::new(),
            files: Vec::new(),
            dimms: Vec::new(),
            memory_dir: None,
            placement: Placement::default(),
            plugin: None,
            timeout: None,
            patience: None,
            log: None,
        }
    }
}

impl VmConfig {
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpus).sum()
    }

    pub fn memory(&self) -> Size {
        Size::mib(self.nodes.iter().map(|node| node.memory.in_mib()).sum())
    }

    /// Refuses what QEMU or the kernel would refuse less clearly.
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::Invalid(message));
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return invalid(format!(
                "{} nodes; allowed: 1 to {MAX_NODES}",
                self.nodes.len()
            ));
        }
        if let Some(bare) = self
            .nodes
            .iter()
            .position(|node| node.cpus == 0 && node.memory.bytes() == 0)
        {
            return invalid(format!("node {bare} has neither CPUs nor memory"));
        }
        if self.nodes[0].cpus == 0 || self.nodes[0].memory.bytes() == 0 {
            return invalid("node 0 boots the machine: it needs CPUs and memory".into());
        }
        // Linux numbers nodes as it meets them in the firmware's tables, which
        // list CPUs first: any other order would not be the guest's.
        let bare = self.nodes.iter().position(|node| node.cpus == 0);
        let last = self.nodes.iter().rposition(|node| node.cpus > 0);
        if let (Some(bare), Some(last)) = (bare, last) {
            if bare < last {
                return invalid(format!(
                    "node {bare} has no CPUs, node {last} has; allowed: nodes without CPUs last"
                ));
            }
        }
        if self.cpus() > MAX_CPUS {
            return invalid(format!("{} CPUs; allowed: 1 to {MAX_CPUS}", self.cpus()));
        }
        if self.memory() < MIN_MEMORY {
            return invalid(format!(
                "{} of memory; allowed: {MIN_MEMORY} or more",
                self.memory()
            ));
        }
        for dimm in &self.dimms {
            if dimm.node >= self.nodes.len() {
                return invalid(format!(
                    "memory module of node {}; allowed: 0 to {}",
                    dimm.node,
                    self.nodes.len() - 1
                ));
            }
            if dimm.size.bytes() == 0 || dimm.size.in_mib() % DIMM_UNIT.in_mib() != 0 {
                return invalid(format!(
                    "memory module of {}; allowed: multiples of {DIMM_UNIT}",
                    dimm.size
                ));
            }
        }
        self.placement.validate(&self.nodes)?;
        if self.placement.cpus.is_some() && (self.icount || self.single_thread) {
            return invalid(
                "--vcpus-on: with --icount or --lens one thread runs all CPUs; allowed: without"
                    .into(),
            );
        }
        if self.icount && self.accel == AccelChoice::Kvm {
            return invalid("--icount counts emulated instructions: it excludes KVM".into());
        }
        if let Some(plugin) = &self.plugin {
            if self.accel == AccelChoice::Kvm {
                return invalid("a plugin watches emulated instructions: it excludes KVM".into());
            }
            if !plugin.library.is_file() {
                return invalid(format!(
                    "no plugin at {}; `cargo build --release` makes it",
                    plugin.library.display()
                ));
            }
        }
        if self.emulator == Emulator::Bochs {
            self.validate_bochs()?;
        } else if let Some(file) = self.files.first() {
            return invalid(format!(
                "--file {}: QEMU's guests see the host's files; allowed: with --emulator bochs",
                file.display()
            ));
        }
        for word in &self.append {
            if word.contains('\0') || word.contains('\n') {
                return invalid(format!("kernel parameter {word:?} has a line end in it"));
            }
        }
        for (name, _) in &self.sysctls {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            if name.is_empty() || !name.chars().all(allowed) || name.contains("..") {
                return invalid(format!(
                    "'{name}' is no sysctl; allowed: a name such as vm.nr_hugepages"
                ));
            }
        }
        for share in &self.shares {
            if !share.is_dir() {
                return invalid(format!(
                    "cannot share {}: it is not a directory",
                    share.display()
                ));
            }
        }
        Ok(())
    }

    /// Refuses what that machine has not got.
    fn validate_bochs(&self) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::Invalid(message));
        let cpus = self.nodes[0].cpus;
        if self.nodes.iter().any(|node| *node != self.nodes[0]) {
            return invalid(
                "--node: Bochs has no nodes, its kernel makes them alike (numa=fake); allowed: \
                 --nodes, --cpus and --memory"
                    .into(),
            );
        }
        if self.cpus() > bochs::MAX_CPUS || cpus == 0 {
            return invalid(format!(
                "{} CPUs; allowed with Bochs: 1 to {}",
                self.cpus(),
                bochs::MAX_CPUS
            ));
        }
        if self.memory().in_mib() > bochs::MAX_MIB {
            return invalid(format!(
                "{} of memory; allowed with Bochs: {MIN_MEMORY} to {}",
                self.memory(),
                Size::mib(bochs::MAX_MIB)
            ));
        }
        if let Some(model) = &self.cpu_model {
            if !bochs::MODELS.contains(&model.as_str()) {
                return invalid(format!(
                    "'{model}' is no CPU model of Bochs; allowed: {}",
                    bochs::MODELS.join(", ")
                ));
            }
        }
        for (given, option, why) in [
            (
                self.accel == AccelChoice::Kvm,
                "--accel kvm",
                "it emulates every instruction",
            ),
            (self.la57, "--la57", "none of its CPUs has five levels"),
            (
                self.icount || self.single_thread,
                "--icount",
                "it has another clock",
            ),
            (
                !self.shares.is_empty(),
                "--share",
                "its guest cannot write to the host",
            ),
            (!self.dimms.is_empty(), "--dimm", "it has no memory modules"),
            (
                self.memory_dir.is_some(),
                "--memory-file",
                "its memory is its own",
            ),
            (
                self.placement != Placement::default(),
                "--vcpus-on or --memory-on",
                "one thread runs it",
            ),
            (
                self.plugin.is_some(),
                "--lens",
                "the lens is a plugin of QEMU's",
            ),
        ] {
            if given {
                return invalid(format!(
                    "{option} is not for Bochs: {why}; allowed: --emulator qemu"
                ));
            }
        }
        for file in &self.files {
            if !file.exists() {
                return invalid(format!("--file {}: there is no such file", file.display()));
            }
        }
        Ok(())
    }

    /// How long the guest may be silent. A debug kernel checks each access.
    pub(crate) fn patience(&self) -> Duration {
        let base = match self.kernel {
            Kernel::Ours | Kernel::Stock => 60,
            Kernel::Debug | Kernel::Path(_) => 240,
        };
        let factor = match (self.emulator, self.icount) {
            // One host thread runs all CPUs, some ten million instructions a second.
            (Emulator::Bochs, _) => 10,
            (_, true) => 10,
            _ => 1,
        };
        self.patience.unwrap_or(Duration::from_secs(base * factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut VmConfig)) -> String {
        let mut config = VmConfig::default();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_default_machine_is_valid() {
        let config = VmConfig::default();
        config.validate().unwrap();
        assert_eq!(config.cpus(), 8);
        assert_eq!(config.memory(), Size::gib(4));
    }

    #[test]
    fn cpus_and_memory_are_shared_evenly() {
        let nodes = NodeSpec::even(3, 6, Size::gib(3)).unwrap();
        let each = NodeSpec {
            cpus: 2,
            memory: Size::gib(1),
        };
        assert_eq!(nodes, [each; 3]);
    }

    #[test]
    fn uneven_cpus_are_refused_with_both_numbers() {
        let error = NodeSpec::even(4, 6, Size::gib(4)).unwrap_err().to_string();
        assert!(error.contains("6 CPUs on 4 nodes"), "{error}");
        assert!(NodeSpec::even(0, 1, Size::gib(1)).is_err());
        assert!(NodeSpec::even(65, 65, Size::gib(65)).is_err());
    }

    #[test]
    fn memory_modules_belong_to_a_node_and_are_whole_blocks() {
        let with = |text: &str| {
            let dimm = text.parse().unwrap();
            refused(move |config| config.dimms.push(dimm))
        };
        assert!(with("4=256M").contains("node 4; allowed: 0 to 3"));
        assert!(with("3=100M").contains("multiples of 128M"));
        assert!("3".parse::<Dimm>().unwrap_err().contains("NODE=SIZE"));
        let mut config = VmConfig::default();
        config.dimms.push("3=256M".parse().unwrap());
        config.validate().unwrap();
    }

    #[test]
    fn a_node_may_lack_cpus_or_memory_but_not_both() {
        assert_eq!(
            "cpus=2".parse(),
            Ok(NodeSpec {
                cpus: 2,
                memory: Size::mib(0)
            })
        );
        let bare = "memory=0M".parse().unwrap();
        assert_eq!(
            refused(|config| config.nodes[3] = bare),
            "node 3 has neither CPUs nor memory"
        );
        let memory_only = "memory=1G".parse().unwrap();
        assert!(refused(|config| config.nodes[0] = memory_only).contains("node 0"));
        assert!(
            "cpus=2,disk=1"
                .parse::<NodeSpec>()
                .unwrap_err()
                .contains("'disk=1'")
        );
    }

    #[test]
    fn bad_settings_are_named() {
        assert!(refused(|c| c.nodes.truncate(0)).contains("0 nodes"));
        assert!(refused(|c| c.nodes[1].cpus = 0).contains("node 1 has no CPUs, node 3 has"));
        assert!(refused(|c| c.nodes[0].cpus = 99).contains("105 CPUs"));
        assert!(refused(|c| c.sysctls = vec![("a b".into(), "1".into())]).contains("'a b'"));
        assert!(refused(|c| c.sysctls = vec![("../x".into(), "1".into())]).contains("'../x'"));
        assert!(refused(|c| c.shares = vec!["/nowhere".into()]).contains("/nowhere"));
        assert!(refused(|c| c.append = vec!["a\nb".into()]).contains("a\\nb"));
        assert!(refused(|c| c.placement.cpus = "0-4".parse().ok()).contains("--vcpus-on"));
        let pinned = |c: &mut VmConfig| {
            c.icount = true;
            c.placement.cpus = "0".parse().ok();
        };
        assert!(refused(pinned).contains("one thread"));
    }

    #[test]
    fn what_bochs_has_not_got_is_refused() {
        let refused = |change: fn(&mut VmConfig)| {
            refused(|config| {
                config.emulator = Emulator::Bochs;
                config.nodes = NodeSpec::even(4, 4, Size::gib(1)).unwrap();
                change(config);
            })
        };
        assert!(refused(|c| c.nodes[1].memory = Size::gib(1)).contains("--nodes, --cpus"));
        assert!(refused(|c| c.nodes[0].cpus = 2).contains("--nodes, --cpus"));
        assert!(refused(|c| c.nodes.iter_mut().for_each(|n| n.cpus = 3)).contains("12 CPUs"));
        assert!(refused(|c| c.cpu_model = Some("EPYC".into())).contains("'EPYC' is no CPU model"));
        assert!(refused(|c| c.accel = AccelChoice::Kvm).contains("--accel kvm is not for Bochs"));
        assert!(refused(|c| c.icount = true).contains("--icount"));
        assert!(refused(|c| c.la57 = true).contains("--la57"));
        assert!(refused(|c| c.placement.cpus = "0".parse().ok()).contains("--vcpus-on"));
        assert!(refused(|c| c.shares = vec!["/tmp".into()]).contains("--share"));
        assert!(refused(|c| c.files = vec!["/nowhere".into()]).contains("/nowhere"));
        let qemu = VmConfig {
            files: vec!["/bin/sh".into()],
            ..VmConfig::default()
        };
        let error = qemu.validate().unwrap_err().to_string();
        assert!(error.contains("--emulator bochs"), "{error}");
    }

    #[test]
    fn kernels_are_named_or_paths() {
        assert_eq!("stock".parse(), Ok(Kernel::Stock));
        assert_eq!("/proc".parse(), Ok(Kernel::Path("/proc".into())));
        assert!("nosuch".parse::<Kernel>().unwrap_err().contains("'nosuch'"));
    }

    #[test]
    fn a_missing_kernel_says_how_to_build_it() {
        let error = Kernel::Debug.image(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("make kernel-debug"), "{error}");
    }
}
