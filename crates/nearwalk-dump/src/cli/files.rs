// SPDX-License-Identifier: GPL-2.0-or-later
//! Files that results are written to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Whether both are one file, also one that is not there yet.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (Err(_), Err(_)) => place(one).is_some_and(|at| place(other) == Some(at)),
        _ => false,
    }
}

/// Where a file would be made.
fn place(path: &Path) -> Option<PathBuf> {
    Some(
        fs::canonicalize(directory(path))
            .ok()?
            .join(path.file_name()?),
    )
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn cannot(path: &Path) -> impl Fn() -> String {
    move || format!("cannot write {}", path.display())
}

/// Whether the file could be written, as far as that can be said without making
/// or changing it.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => OpenOptions::new().write(true).open(path).map(drop),
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::metadata(directory(path)).map(drop)
        }
        Err(error) => Err(error),
    }
    .with_context(cannot(path))
}

/// A file that grows line by line; `-` is standard output.
pub(super) struct Lines {
    path: PathBuf,
    to: Box<dyn Write>,
}

impl Lines {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let to: Box<dyn Write> = if path.as_os_str() == "-" {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(path).with_context(cannot(path))?)
        };
        let path = path.to_owned();
        Ok(Lines { path, to })
    }

    pub fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush())
            .with_context(cannot(&self.path))
    }
}

/// Puts the text in the place of what the file held. Who looks finds one or the
/// other, also if this is interrupted.
pub(super) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    // A link stays one.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&target).ok();
    let in_place = || fs::write(&target, text);
    let written = if before.as_ref().is_some_and(|found| !found.is_file()) {
        in_place()
    } else {
        match put(&target, before.as_ref(), text) {
            // One may write to the file, but make none beside it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && before.is_some() => {
                in_place()
            }
            put => put,
        }
    };
    written.with_context(cannot(path))
}

fn put(target: &Path, before: Option<&fs::Metadata>, text: &str) -> io::Result<()> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.{}", std::process::id()));
    // Of one that had our number and was interrupted.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)?;
    let mut put = || {
        file.write_all(text.as_bytes())?;
        if let Some(before) = before {
            // Root may write files of others; they stay theirs.
            let _ = chown(&beside, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        fs::rename(&beside, target)
    };
    let put = put();
    if put.is_err() {
        let _ = fs::remove_file(&beside);
    }
    put
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A directory of this test's own.
    fn directory_of(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("nearwalk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn files_are_the_same_by_any_name() {
        let dir = directory_of("same");
        let [one, two, link] = ["one", "two", "link"].map(|name| dir.join(name));
        assert!(are_same(&one, &dir.join(".").join("one")), "not made yet");
        assert!(!are_same(&one, &two));
        fs::write(&one, "").unwrap();
        assert!(!are_same(&one, &two));
        symlink(&one, &link).unwrap();
        assert!(are_same(&one, &link));
        let null = Path::new("/dev/null");
        assert!(!are_same(null, null));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_is_replaced_at_once_and_stays_what_it_was() {
        let dir = directory_of("replace");
        let [file, link] = ["file", "link"].map(|name| dir.join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        let mut open = File::open(&file).unwrap();
        replace(&link, "new").unwrap();
        let old = io::read_to_string(&mut open).unwrap();
        assert_eq!(old, "old", "whoever has it open reads on");
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing is left");
        replace(Path::new("/dev/null"), "new").unwrap();
        let error = replace(&dir.join("none/file"), "new").unwrap_err();
        assert!(
            format!("{error:#}").contains("none/file: No such file"),
            "{error:#}"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_check_changes_nothing() {
        let dir = directory_of("check");
        let [file, new] = ["file", "new"].map(|name| dir.join(name));
        fs::write(&file, "old").unwrap();
        check(&file).unwrap();
        check(&new).unwrap();
        assert!(check(&dir).is_err());
        assert!(check(&dir.join("none/file")).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert!(!new.exists());
        fs::remove_dir_all(dir).unwrap();
    }
}
