// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's initial RAM file system: its first process and its job. The
//! job's format is described in lab/init/job.c, which reads it.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{Emulator, Error, Job, VmConfig, bochs, cpio::Archive, modules, qemu};

const INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));

/// Directories in which the guest has file systems of its own.
const HIDDEN: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// Room for lists in lab/init/init.h.
const MAX_LIST: usize = 64;

/// Host directories to show at other places in the guest.
pub type Binds = Vec<(PathBuf, PathBuf)>;

pub fn build(config: &VmConfig, job: &Job, binds: &Binds) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::default();
    archive.directory("dev");
    // Standard input and output of the first process, until devtmpfs is there.
    archive.char_device("dev/console", 0o600, 5, 1);
    archive.file("init", 0o755, INIT);
    archive.file("job", 0o600, &records(config, job, binds)?);
    if let Some(dir) = &config.modules {
        archive.directory("modules");
        for (index, path) in modules::files(dir)?.iter().enumerate() {
            let data = std::fs::read(path)
                .map_err(|e| Error::Invalid(format!("{}: {e}", path.display())))?;
            archive.file(&format!("modules/{index:02}"), 0o600, &data);
        }
    }
    if config.emulator == Emulator::Bochs {
        bochs::add_files(&mut archive, config, job)?;
    }
    Ok(archive.finish())
}

fn records(config: &VmConfig, job: &Job, binds: &Binds) -> Result<Vec<u8>, Error> {
    let mut out = Records::default();
    if job.argv.is_empty() {
        return Err(Error::Invalid("there is no command to run".into()));
    }
    if config
        .shares
        .len()
        .max(config.sysctls.len())
        .max(binds.len())
        > MAX_LIST
    {
        return Err(Error::Invalid(format!(
            "too many shares or sysctls; allowed: {MAX_LIST} of each"
        )));
    }
    for word in &job.argv {
        out.add("arg", &[word])?;
    }
    for (name, value) in &job.env {
        out.add("env", &[name, "=".as_ref(), value])?;
    }
    out.add("cwd", &[job.cwd.as_os_str()])?;
    if let Some(size) = job.terminal {
        out.add("tty", &[format!("{} {}", size.rows, size.cols).as_ref()])?;
    }
    // Several in the time after which the guest counts as hung.
    let beat = (config.patience().as_secs() / 12).clamp(1, 10);
    out.add("beat", &[beat.to_string().as_ref()])?;
    if config.emulator == Emulator::Bochs {
        out.add("alone", &["1".as_ref()])?;
    }
    for (index, share) in config.shares.iter().enumerate() {
        let tag = qemu::share_tag(index);
        out.add("share", &[tag.as_ref(), " ".as_ref(), share.as_os_str()])?;
    }
    for (from, to) in binds {
        out.add("bind", &[from.as_os_str(), "\n".as_ref(), to.as_os_str()])?;
    }
    for (name, value) in &config.sysctls {
        out.add("sysctl", &[name.as_ref(), "=".as_ref(), value.as_ref()])?;
    }
    Ok(out.0)
}

/// The binds that make `dir` visible in the guest by its own name and, if links
/// lead to it, by its real one.
pub fn binds_if_hidden(dir: &Path) -> Binds {
    let Ok(real) = dir.canonicalize() else {
        return Vec::new();
    };
    let mut names = vec![dir.to_path_buf(), real.clone()];
    names.dedup();
    names.retain(|name| is_hidden(name));
    names.into_iter().map(|name| (real.clone(), name)).collect()
}

fn is_hidden(dir: &Path) -> bool {
    HIDDEN
        .iter()
        .any(|own| dir.starts_with(own) && dir != Path::new(own))
}

#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, key: &str, value: &[&OsStr]) -> Result<(), Error> {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b' ');
        for part in value {
            if part.as_bytes().contains(&0) {
                return Err(Error::Invalid(format!(
                    "a NUL byte in {key} {}",
                    part.to_string_lossy()
                )));
            }
            self.0.extend_from_slice(part.as_bytes());
        }
        self.0.push(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(config: &VmConfig, job: &Job, binds: &Binds) -> String {
        String::from_utf8(records(config, job, binds).unwrap()).unwrap()
    }

    #[test]
    fn a_job_is_written_record_by_record() {
        let mut job = Job::new(["echo", "a b"]).cwd("/work dir");
        job.env = vec![("A".into(), "1=2".into())];
        let config = VmConfig {
            sysctls: vec![("vm.nr_hugepages".into(), "8".into())],
            shares: vec!["/out".into()],
            ..VmConfig::default()
        };
        let binds = vec![("/tmp/x".into(), "/tmp/y".into())];
        assert_eq!(
            text(&config, &job, &binds),
            "arg echo\0arg a b\0env A=1=2\0cwd /work dir\0beat 5\0share share0 /out\0\
             bind /tmp/x\n/tmp/y\0sysctl vm.nr_hugepages=8\0"
        );
    }

    #[test]
    fn a_nul_byte_or_no_command_is_refused() {
        let config = VmConfig::default();
        assert!(records(&config, &Job::new([""; 0]), &Vec::new()).is_err());
        assert!(records(&config, &Job::new(["a\0b"]), &Vec::new()).is_err());
    }

    #[test]
    fn only_directories_under_the_guests_own_need_a_bind() {
        assert!(is_hidden(Path::new("/tmp/a/b")));
        assert!(!is_hidden(Path::new("/tmp")));
        assert!(!is_hidden(Path::new("/home/a")));
        assert!(!is_hidden(Path::new("/tmpfoo")));
        assert_eq!(binds_if_hidden(Path::new("/proc")), []);
        assert_eq!(binds_if_hidden(Path::new("/tmp/no/such/directory")), []);
    }
}
