// SPDX-License-Identifier: GPL-2.0-or-later
//! Modules that a distribution's kernel needs to reach the host's files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::Error;

/// What the guest's first process cannot do without, where it is no part of the
/// kernel itself.
const NEEDED: [&str; 5] = [
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
];

/// The files of `dir`, a `lib/modules/RELEASE` with depmod's lists, that have to
/// be loaded, in that order.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |name: &str| {
        fs::read_to_string(dir.join(name)).map_err(|e| {
            let dir = dir.display();
            Error::Invalid(format!(
                "{dir}/{name}: {e}; --modules takes a lib/modules/RELEASE"
            ))
        })
    };
    let (dep, builtin) = (read("modules.dep")?, read("modules.builtin")?);
    let mut order: Vec<PathBuf> = Vec::new();
    for name in NEEDED {
        let line = dep.lines().find_map(|line| {
            let (path, needs) = line.split_once(':')?;
            (module_name(path) == name).then_some((path, needs))
        });
        let Some((path, needs)) = line else {
            if builtin.lines().any(|path| module_name(path) == name) {
                continue;
            }
            let dir = dir.display();
            let text = format!("{dir} has no module {name}, without which the guest has no files");
            return Err(Error::Invalid(text));
        };
        // What a module needs stands in the order in which it is unloaded.
        for path in needs.split_whitespace().rev().chain([path]) {
            let path = dir.join(path);
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

fn module_name(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(name: &str, dep: &str, builtin: &str) -> Result<Vec<String>, Error> {
        let dir = std::env::temp_dir().join(format!("nearwalk-lab-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("modules.dep"), dep).unwrap();
        fs::write(dir.join("modules.builtin"), builtin).unwrap();
        let files = files(&dir);
        fs::remove_dir_all(&dir).unwrap();
        let text = |path: PathBuf| path.strip_prefix(&dir).unwrap().display().to_string();
        files.map(|files| files.into_iter().map(text).collect())
    }

    const DEP: &str = "k/9pnet_virtio.ko.xz: k/9pnet.ko.xz k/virtio.ko.xz\n\
                       k/9p.ko.xz: k/netfs.ko.xz k/9pnet.ko.xz\n\
                       k/overlay.ko.xz:\nk/9pnet.ko.xz:\nk/other.ko.xz:\n";

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let builtin = "k/virtio_pci.ko\nk/virtio_console.ko\n";
        let files = modules("order", DEP, builtin).unwrap();
        let expected = ["virtio", "9pnet", "9pnet_virtio", "netfs", "9p", "overlay"];
        assert_eq!(files, expected.map(|name| format!("k/{name}.ko.xz")));
    }

    #[test]
    fn a_kernel_that_cannot_reach_the_host_is_refused() {
        let error = modules("none", DEP, "k/virtio_pci.ko\n").unwrap_err();
        assert!(
            error.to_string().contains("no module virtio_console"),
            "{error}"
        );
        assert!(files(Path::new("/proc/self")).is_err());
    }
}
