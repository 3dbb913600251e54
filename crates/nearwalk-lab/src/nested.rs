// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lab run --nested`: the command runs in a guest of KVM in the lab's
//! machine. There, this program runs itself.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Emulator, Error, Kernel, MemoryPlace, NodeSpec, Nodes, Placement, Size, VmConfig,
    outcome::status, paths::build_dir, placement,
};

/// What the machine itself keeps of the memory of each node.
const OWN_MEMORY: Size = Size::mib(256);

/// How a guest lies on the machine's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// A node of its own on each
    Wide,
    /// CPUs on each, and a single node of its own
    Oblivious,
    /// All on one
    Thin,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "A guest in the machine")]
pub struct NestedArgs {
    /// Run the command in a guest of KVM inside the machine: wide (a node of its own on each
    /// of the machine's), oblivious (CPUs on each, one node of its own) or thin (all on one)
    #[arg(
        long,
        value_name = "SHAPE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "wide",
        conflicts_with_all = ["lens", "memory_file"],
    )]
    nested: Option<Shape>,

    /// That guest's CPUs [default: one for each node it lies on, thin: 2]
    #[arg(long, value_name = "N", requires = "nested")]
    guest_cpus: Option<u32>,

    /// That guest's memory [default: 256M for each node it lies on, thin: 512M]
    #[arg(long, value_name = "SIZE", requires = "nested")]
    guest_memory: Option<Size>,

    /// That guest's kernel [default: the machine's]
    #[arg(long, value_name = "KERNEL", requires = "nested")]
    guest_kernel: Option<Kernel>,

    /// Add to the command line of that guest's kernel (repeat, or several in one)
    #[arg(
        long,
        value_name = "PARAMETERS",
        allow_hyphen_values = true,
        requires = "nested"
    )]
    guest_append: Vec<String>,
}

/// A guest that is to run in the machine.
pub struct Nested {
    pub config: VmConfig,
    /// Where the guest's console log arrives.
    log: PathBuf,
    /// Where it is wanted, if it is.
    keep: Option<PathBuf>,
}

impl NestedArgs {
    pub fn asked(&self) -> bool {
        self.nested.is_some()
    }

    /// The guest, and what the machine needs for it; nothing if none is asked for.
    pub fn guest(
        &self,
        machine: &mut VmConfig,
        cpus: Option<Nodes>,
        memory: Option<MemoryPlace>,
    ) -> Result<Option<Nested>, Error> {
        let Some(shape) = self.nested else {
            return Ok(None);
        };
        if machine.emulator == Emulator::Bochs {
            return Err(Error::Invalid(
                "--nested is not for Bochs, which has no files for a guest's QEMU; allowed: \
                 --emulator qemu"
                    .into(),
            ));
        }
        let mut config = VmConfig {
            kernel: self.guest_kernel.clone().unwrap_or(machine.kernel.clone()),
            append: self
                .guest_append
                .iter()
                .flat_map(|words| words.split_whitespace())
                .map(String::from)
                .collect(),
            shares: machine.shares.clone(),
            patience: machine.patience,
            ..VmConfig::default()
        };
        if config.kernel == machine.kernel {
            config.modules = machine.modules.clone();
        }
        let with_cpus = with_cpus(&machine.nodes);
        let cpus = match (shape, cpus) {
            (Shape::Thin, Some(nodes)) if nodes.len() > 1 => {
                return Err(Error::Invalid(format!(
                    "--vcpus-on {nodes}: a thin guest runs on one node; allowed: one of {}, or \
                     --nested=wide",
                    list(&with_cpus)
                )));
            }
            (_, Some(nodes)) => nodes,
            (Shape::Thin, None) => Nodes::one(0),
            (_, None) => Nodes::new(with_cpus.clone()).unwrap_or(Nodes::one(0)),
        };
        let wide = cpus.len() as u32;
        let (nodes, vcpus, size, place) = match shape {
            Shape::Wide => (wide, wide, 256 * u64::from(wide), MemoryPlace::Local),
            Shape::Oblivious => (1, wide, 256 * u64::from(wide), MemoryPlace::Any),
            Shape::Thin => (1, 2, 512, MemoryPlace::Local),
        };
        config.nodes = NodeSpec::even(
            nodes,
            self.guest_cpus.unwrap_or(vcpus),
            self.guest_memory.unwrap_or(Size::mib(size)),
        )
        .map_err(|error| Error::Invalid(format!("the guest in the machine: {error}")))?;
        config.placement = Placement {
            cpus: Some(cpus),
            memory: memory.unwrap_or(place),
        };
        config.validate()?;
        let all: Vec<u32> = (0..machine.nodes.len() as u32).collect();
        placement::check(&config, &all, &with_cpus)?;
        check_memory(&config, &machine.nodes)?;

        // The machine's own build directory is in its memory, gone with it.
        let dir = build_dir().join("lab").join("nested");
        fs::create_dir_all(&dir).map_err(Error::io(dir.display().to_string()))?;
        let log = dir.join(format!("console-{}.log", std::process::id()));
        machine.shares.push(dir);
        Ok(Some(Nested {
            config,
            log,
            keep: machine.log.clone(),
        }))
    }
}

impl Nested {
    /// The command of the machine that runs `command` in the guest.
    pub fn wrap(&self, verbose: bool, command: &[OsString]) -> Result<Vec<OsString>, Error> {
        let config = &self.config;
        let program = std::env::current_exe().map_err(Error::io("the path of this program"))?;
        let mut words: Vec<OsString> = vec![program.into()];
        let mut add = |option: &str, value: OsString| words.extend([option.into(), value]);
        add("lab", "run".into());
        add("--accel", "kvm".into());
        add("--kernel", word(&config.kernel).into());
        for node in &config.nodes {
            let spec = format!("cpus={},memory={}M", node.cpus, node.memory.in_mib());
            add("--node", spec.into());
        }
        if let Some(nodes) = &config.placement.cpus {
            add("--vcpus-on", nodes.to_string().into());
        }
        add("--memory-on", config.placement.memory.to_string().into());
        for parameter in &config.append {
            add("--append", parameter.into());
        }
        if let Some(dir) = &config.modules {
            add("--modules", dir.into());
        }
        for share in &config.shares {
            add("--share", share.into());
        }
        let patience = config.patience().as_secs().to_string();
        add("--patience", patience.into());
        add("--log", self.log.clone().into());
        if verbose {
            words.push("--verbose".into());
        }
        words.push("--".into());
        words.extend(command.iter().cloned());
        Ok(words)
    }

    /// Puts the guest's console log beside the machine's, named as that with
    /// `.nested`, where one was asked for; removes that of a clean run.
    pub fn settle(&self, code: u8) -> Result<(), Error> {
        if !self.log.is_file() {
            return Ok(());
        }
        if let Some(keep) = &self.keep {
            let mut name = keep.clone().into_os_string();
            name.push(".nested");
            fs::copy(&self.log, &name).map_err(Error::io(name.to_string_lossy()))?;
        }
        let clean = ![status::TIMED_OUT, status::LAB_FAILED, status::KILLED].contains(&code);
        if code < status::PANIC && clean {
            fs::remove_file(&self.log).map_err(Error::io(self.log.display().to_string()))?;
        }
        Ok(())
    }
}

fn with_cpus(nodes: &[NodeSpec]) -> Vec<u32> {
    let numbered = (0..).zip(nodes);
    numbered
        .filter(|(_, node)| node.cpus > 0)
        .map(|(id, _)| id)
        .collect()
}

fn list(nodes: &[u32]) -> String {
    let words: Vec<String> = nodes.iter().map(u32::to_string).collect();
    words.join(", ")
}

/// As `--kernel` reads it.
fn word(kernel: &Kernel) -> &Path {
    Path::new(match kernel {
        Kernel::Ours => "ours",
        Kernel::Stock => "stock",
        Kernel::Debug => "debug",
        Kernel::Path(path) => return path,
    })
}

/// Refuses a guest whose memory does not go where it is to lie: the machine would
/// run out of it in the middle.
fn check_memory(guest: &VmConfig, nodes: &[NodeSpec]) -> Result<(), Error> {
    let mut bound = vec![0; nodes.len()];
    let mut free = 0;
    for (index, node) in guest.nodes.iter().enumerate() {
        match guest.placement.policy(index) {
            None => free += node.memory.in_mib(),
            Some(policy) => {
                for on in policy.nodes.iter() {
                    bound[on as usize] += node.memory.in_mib().div_ceil(policy.nodes.len() as u64);
                }
            }
        }
    }
    let room = |node: &NodeSpec| node.memory.in_mib().saturating_sub(OWN_MEMORY.in_mib());
    for (id, (node, &bound)) in nodes.iter().zip(&bound).enumerate() {
        if bound > room(node) {
            return Err(Error::Invalid(format!(
                "{} of the guest's memory on node {id} of the machine, which has {}; allowed: up \
                 to {} (less with --guest-memory, more with --memory or --node)",
                Size::mib(bound),
                node.memory,
                Size::mib(room(node))
            )));
        }
    }
    let all: u64 = nodes.iter().map(room).sum();
    if free > all {
        return Err(Error::Invalid(format!(
            "a guest of {} in a machine of {}; allowed: up to {} (more with --memory or --node)",
            guest.memory(),
            Size::mib(nodes.iter().map(|node| node.memory.in_mib()).sum()),
            Size::mib(all)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu;

    fn args(shape: Shape) -> NestedArgs {
        NestedArgs {
            nested: Some(shape),
            ..NestedArgs::default()
        }
    }

    fn guest(args: &NestedArgs, cpus: &str, memory: &str) -> Result<Nested, Error> {
        let cpus = (!cpus.is_empty()).then(|| cpus.parse().unwrap());
        let memory = (!memory.is_empty()).then(|| memory.parse().unwrap());
        let guest = args.guest(&mut VmConfig::default(), cpus, memory)?;
        Ok(guest.expect("one is asked for"))
    }

    fn line(nested: &Nested) -> String {
        let words = nested.wrap(true, &["true".into()]).unwrap();
        qemu::shell_quoted(words[1..].iter().map(OsString::as_os_str))
    }

    #[test]
    fn shapes_are_nodes_cpus_and_places() {
        for (shape, nodes, each) in [
            (
                Shape::Wide,
                4,
                "--node cpus=1,memory=256M --vcpus-on 0,1,2,3 --memory-on local ",
            ),
            (
                Shape::Oblivious,
                1,
                "--node cpus=4,memory=1024M --vcpus-on 0,1,2,3 --memory-on any ",
            ),
            (
                Shape::Thin,
                1,
                "--node cpus=2,memory=512M --vcpus-on 0 --memory-on local ",
            ),
        ] {
            let nested = guest(&args(shape), "", "").unwrap();
            assert_eq!(nested.config.nodes.len(), nodes);
            let line = line(&nested);
            assert!(line.contains(each), "{line}");
        }
    }

    #[test]
    fn options_reach_the_guest() {
        let args = NestedArgs {
            guest_cpus: Some(4),
            guest_memory: Some(Size::gib(1)),
            guest_kernel: Some(Kernel::Stock),
            guest_append: vec!["numa_balancing=disable a=b".into()],
            ..args(Shape::Wide)
        };
        let line = line(&guest(&args, "1,2", "interleave").unwrap());
        for part in [
            "lab run --accel kvm --kernel stock",
            "--node cpus=2,memory=512M --node cpus=2,memory=512M --vcpus-on 1,2 --memory-on interleave ",
            " --append numa_balancing=disable --append a=b ",
            " --verbose -- true",
        ] {
            assert!(line.contains(part), "no '{part}' in {line}");
        }
    }

    #[test]
    fn what_the_machine_cannot_hold_is_named_with_what_is_allowed() {
        let big = |shape, mib| NestedArgs {
            guest_memory: Some(Size::mib(mib)),
            ..args(shape)
        };
        for (args, cpus, memory, value, allowed) in [
            (args(Shape::Thin), "0-1", "", "--vcpus-on 0,1", "0, 1, 2, 3"),
            (args(Shape::Wide), "4", "", "no node 4", "0,1,2,3"),
            (args(Shape::Thin), "0", "5", "no node 5", "0,1,2,3"),
            (
                args(Shape::Oblivious),
                "",
                "local",
                "--memory-on local",
                "interleave",
            ),
            (
                big(Shape::Thin, 1024),
                "2",
                "",
                "1G of the guest's memory on node 2",
                "768M",
            ),
            (big(Shape::Oblivious, 4096), "", "", "a guest of 4G", "3G"),
            (
                big(Shape::Oblivious, 4096),
                "",
                "interleave",
                "1G of the guest's memory on node 0",
                "768M",
            ),
            (big(Shape::Thin, 64), "", "", "64M of memory", "256M"),
        ] {
            let error = guest(&args, cpus, memory).err().unwrap().to_string();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
        let uneven = NestedArgs {
            guest_cpus: Some(3),
            ..args(Shape::Wide)
        };
        let error = guest(&uneven, "", "").err().unwrap().to_string();
        assert!(error.contains("3 CPUs on 4 nodes"), "{error}");
    }

    #[test]
    fn a_log_is_kept_where_it_is_wanted_or_the_run_failed() {
        let dir = std::env::temp_dir().join(format!("nearwalk-nested-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut nested = guest(&args(Shape::Thin), "", "").unwrap();
        nested.log = dir.join("guest");
        for (keep, code, left) in [
            (None, 0, false),
            (None, status::PANIC, true),
            (None, status::LAB_FAILED, true),
            (None, status::TIMED_OUT, true),
            (Some(dir.join("log")), 3, false),
        ] {
            fs::write(&nested.log, "words").unwrap();
            nested.keep = keep.clone();
            nested.settle(code).unwrap();
            assert_eq!(nested.log.is_file(), left, "{code}");
            if keep.is_some() {
                let kept = fs::read_to_string(dir.join("log.nested")).unwrap();
                assert_eq!(kept, "words");
            }
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn without_being_asked_for_there_is_no_guest() {
        let mut machine = VmConfig::default();
        let none = NestedArgs::default().guest(&mut machine, None, None);
        assert!(none.unwrap().is_none());
        assert!(machine.shares.is_empty());
        machine.emulator = Emulator::Bochs;
        let error = args(Shape::Wide).guest(&mut machine, None, None);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("--emulator qemu"), "{error}");
    }
}
