// SPDX-License-Identifier: GPL-2.0-or-later
//! Finding the module for the running kernel and loading it.

use std::io;
use std::path::{Path, PathBuf};

use super::{LiveError, System};
use crate::format::DEVICE;

/// Loads the module: `explicit` and no other when given, else a build of
/// Nearwalk's own, else whatever `modprobe` finds.
pub(super) fn load<S: System>(system: &S, explicit: Option<&Path>) -> Result<(), LiveError> {
    let release = system
        .release()
        .map_err(|source| LiveError::Release { source })?;
    if let Some(path) = explicit {
        return load_file(system, path, &release);
    }

    let mut tried = Vec::new();
    for path in candidates(system, &release) {
        match load_file(system, &path, &release) {
            Err(LiveError::ModuleUnreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        tried.push(path.display().to_string());
    }
    match system.modprobe(DEVICE) {
        Ok(()) => Ok(()),
        Err(said) => {
            tried.push(said);
            Err(LiveError::ModuleMissing { release, tried })
        }
    }
}

/// Where `make -C module` puts the module.
fn candidates<S: System>(system: &S, release: &str) -> Vec<PathBuf> {
    system
        .build_roots()
        .into_iter()
        .map(|root| {
            root.join("build/module")
                .join(release)
                .join(format!("{DEVICE}.ko"))
        })
        .collect()
}

fn load_file<S: System>(system: &S, path: &Path, release: &str) -> Result<(), LiveError> {
    let contents = system
        .read_module(path)
        .map_err(|source| LiveError::ModuleUnreadable {
            path: path.into(),
            source,
        })?;
    if info(&contents, "name").as_deref() != Some(DEVICE) {
        return Err(LiveError::NotTheModule { path: path.into() });
    }
    let built_for = info(&contents, "vermagic")
        .and_then(|magic| magic.split(' ').next().map(str::to_owned))
        .unwrap_or_default();
    if built_for != release {
        return Err(LiveError::ModuleForOther {
            path: path.into(),
            built_for,
            release: release.into(),
        });
    }
    match system.load(path) {
        Ok(()) => Ok(()),
        // Someone else has just done so.
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        Err(source) => Err(LiveError::Load {
            path: path.into(),
            source,
        }),
    }
}

/// A `key=value` of the module's information section, found by its text: each
/// begins after a NUL or at the section's start, and ends with a NUL.
fn info(module: &[u8], key: &str) -> Option<String> {
    let needle = format!("\0{key}=").into_bytes();
    let at = module.windows(needle.len()).position(|w| w == needle)?;
    let value = &module[at + needle.len()..];
    let end = value.iter().position(|&b| b == 0)?;
    String::from_utf8(value[..end].to_vec()).ok()
}
