// SPDX-License-Identifier: GPL-2.0-or-later
//! Nearwalk's plugin for QEMU: where it is, and what it is told.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{NodeSpec, VmConfig};

const LIBRARY: &str = "libnearwalk_plugin.so";

/// A library for QEMU to load, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub library: PathBuf,
    pub options: Vec<(&'static str, OsString)>,
}

impl Plugin {
    /// Nearwalk's plugin, counting stores between the guest's marks into the
    /// file `out`.
    pub fn count(nodes: &[NodeSpec], out: &Path) -> Plugin {
        Plugin {
            library: library(),
            options: vec![
                ("mode", "count".into()),
                ("out", out.into()),
                ("layout", layout(nodes).into()),
            ],
        }
    }

    /// Nearwalk's plugin, counting instructions between the guest's marks by phase
    /// into the file `out`; `symbols` says which functions begin which phases.
    pub fn phases(nodes: &[NodeSpec], symbols: &Path, out: &Path) -> Plugin {
        Plugin {
            library: library(),
            options: vec![
                ("mode", "phases".into()),
                ("out", out.into()),
                ("layout", layout(nodes).into()),
                ("symbols", symbols.into()),
            ],
        }
    }

    /// Nearwalk's plugin, feeding the timing model of `machine` and writing
    /// what it found to `out`. Changes `config` as the model needs it: each
    /// node's memory a file in `memory`, one thread for all CPUs.
    pub(crate) fn lens(config: &mut VmConfig, machine: &str, out: &Path, memory: &Path) {
        config.memory_dir = Some(memory.into());
        config.single_thread = true;
        config.plugin = Some(Plugin {
            library: library(),
            options: vec![
                ("mode", "lens".into()),
                ("out", out.into()),
                ("layout", layout(&config.nodes).into()),
                ("machine", machine.into()),
                ("memory", memory.into()),
                ("levels", if config.la57 { "5" } else { "4" }.into()),
            ],
        });
    }
}

/// `$NEARWALK_PLUGIN`, else beside this program, else (for tests and examples,
/// which cargo puts into directories of their own) one above.
fn library() -> PathBuf {
    if let Some(path) = env::var_os("NEARWALK_PLUGIN").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let program = env::current_exe().unwrap_or_default();
    let beside = program.with_file_name(LIBRARY);
    let above = program.parent().map(|dir| dir.with_file_name(LIBRARY));
    above
        .filter(|above| above.is_file() && !beside.is_file())
        .unwrap_or(beside)
}

/// As the plugin reads it: MiB and CPUs of each node.
fn layout(nodes: &[NodeSpec]) -> String {
    let parts: Vec<String> = nodes
        .iter()
        .map(|node| format!("{}x{}", node.memory.in_mib(), node.cpus))
        .collect();
    parts.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;

    #[test]
    fn the_plugin_learns_the_machine() {
        let nodes = NodeSpec::even(2, 4, Size::gib(1)).unwrap();
        let plugin = Plugin::count(&nodes, Path::new("/x/out"));
        assert_eq!(plugin.options[1], ("out", "/x/out".into()));
        assert_eq!(plugin.options[2], ("layout", "512x2:512x2".into()));
    }
}
