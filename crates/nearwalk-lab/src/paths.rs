// SPDX-License-Identifier: GPL-2.0-or-later
//! Where the project's build directory is.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The directory of everything generated: `$NEARWALK_BUILD`, else `build` in the
/// checkout that the current directory lies in or this program was built in, else
/// `nearwalk` in the user's cache directory.
pub fn build_dir() -> PathBuf {
    if let Some(dir) = env::var_os("NEARWALK_BUILD").filter(|dir| !dir.is_empty()) {
        return std::path::absolute(&dir).unwrap_or(dir.into());
    }
    let here = env::current_dir().ok();
    here.as_deref()
        .and_then(checkout_above)
        .or_else(|| sources_of(&env::current_exe().ok()?))
        .map(|checkout| checkout.join("build"))
        .unwrap_or_else(cache_dir)
}

/// The checkout that `program` was built from, if it still lies in there: an
/// installed program does not look above itself.
fn sources_of(program: &Path) -> Option<&'static Path> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    program.starts_with(sources).then_some(sources)
}

/// A directory at or above `start` that is a checkout of this project.
fn checkout_above(start: &Path) -> Option<&Path> {
    start
        .ancestors()
        .find(|dir| dir.join("kernel/config/lab.config").is_file())
}

fn cache_dir() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or("/".into())).join(".cache");
    env::var_os("XDG_CACHE_HOME")
        .map_or_else(home, PathBuf::from)
        .join("nearwalk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_program_has_no_sources() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        let built = sources.unwrap().join("target/debug/nearwalk");
        assert_eq!(sources_of(&built), sources);
        assert_eq!(sources_of(Path::new("/usr/bin/nearwalk")), None);
    }

    #[test]
    fn the_checkout_is_found_from_inside_it() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert_eq!(checkout_above(&source), source.ancestors().nth(3));
        assert_eq!(checkout_above(Path::new("/proc/self")), None);
    }
}
