// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lab run --lens MACHINE`: what the command would have cost on a
//! machine that is not here, as the timing model has it.

use std::{
    ffi::OsString,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{Error, Kernel, Plugin, VmConfig, paths::build_dir};

/// A run under the lens: its files, removed when this is dropped.
pub struct Lens {
    scratch: PathBuf,
    module: PathBuf,
}

impl Lens {
    /// Prepares `config` for the model of `machine`, a name or a file.
    pub fn new(config: &mut VmConfig, machine: &str) -> Result<Lens, Error> {
        let module = module(&config.kernel, &build_dir())?;
        // In memory where that is possible: no disk sees the guest's pages.
        let shared = Path::new("/dev/shm");
        let parent = match shared.is_dir() {
            true => shared.into(),
            false => build_dir().join("lab"),
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let scratch = parent.join(format!("nearwalk-lens-{}-{nth}", std::process::id()));
        fs::create_dir_all(&scratch).map_err(Error::io(scratch.display().to_string()))?;
        let machine = match Path::new(machine).is_file() {
            true => std::path::absolute(machine)
                .map_err(Error::io(machine))?
                .to_string_lossy()
                .into_owned(),
            false => machine.into(),
        };
        let lens = Lens { scratch, module };
        Plugin::lens(config, &machine, &lens.results(), &lens.scratch);
        Ok(lens)
    }

    fn results(&self) -> PathBuf {
        self.scratch.join("results")
    }

    /// The command, after the module that tells the plugin of its processes.
    /// They are one session; the shell becomes the command.
    pub fn wrap(&self, command: Vec<OsString>) -> Vec<OsString> {
        let script = "PATH=$PATH:/usr/sbin:/sbin insmod \"$0\" session=$$ && exec \"$@\"";
        let mut words = vec!["sh".into(), "-c".into(), script.into()];
        words.push(self.module.clone().into());
        words.extend(command);
        words
    }

    /// What the plugin found, for people: each marked section, or the whole.
    pub fn summary(&self) -> Result<String, Error> {
        Ok(summary(&self.lines()?))
    }

    /// What the plugin found: for each marked section, and at last for the
    /// whole, cycles of both modes and what they went to.
    pub fn lines(&self) -> Result<Vec<Value>, Error> {
        let path = self.results();
        let text = fs::read_to_string(&path).map_err(Error::io(path.display().to_string()))?;
        text.lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(|error| Error::io(path.display().to_string())(io::Error::other(error)))
    }
}

impl Drop for Lens {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// The module for a kernel, as `make module` leaves it.
fn module(kernel: &Kernel, build: &Path) -> Result<PathBuf, Error> {
    let objects = kernel.object_dir(build).ok_or_else(|| {
        Error::Invalid(
            "--lens needs a module for the kernel; name its build directory, not its image".into(),
        )
    })?;
    kernel.image(build)?;
    let header = objects.join("include/generated/utsrelease.h");
    let text = fs::read_to_string(&header).map_err(Error::io(header.display().to_string()))?;
    let release = text.split('"').nth(1).unwrap_or_default();
    let module = build.join("module").join(release).join("nearwalk_lens.ko");
    if !module.is_file() {
        return Err(Error::Invalid(format!(
            "no module at {}; build it with `make module KDIR={}`",
            module.display(),
            objects.display()
        )));
    }
    Ok(module)
}

fn summary(lines: &[Value]) -> String {
    let sections: Vec<&Value> = lines
        .iter()
        .filter(|line| line["kind"] == "section")
        .collect();
    let total = lines.iter().rfind(|line| line["kind"] == "total");
    let shown = match sections.is_empty() {
        true => total.into_iter().collect(),
        false => sections,
    };
    if shown.is_empty() {
        return "lens: the command did not end, or the module was not there: no result\n".into();
    }
    let mut text = String::new();
    for line in shown {
        let what = match line["kind"] == "section" {
            true => format!("section {}", line["section"]),
            false => "the whole command".into(),
        };
        let name = line["machine"].as_str().unwrap_or_default();
        let _ = writeln!(text, "lens: {what}, modelled on {name}");
        let _ = writeln!(
            text,
            "{:<8}{:>14}{:>16}{:>9}{:>9}{:>9}{:>14}{:>14}{:>14}",
            "mode",
            "accesses",
            "cycles",
            "base",
            "data",
            "walks",
            "page walks",
            "cycles/walk",
            "remote walks"
        );
        for mode in ["user", "kernel"] {
            let mode_value = &line[mode];
            let number = |key: &str| mode_value[key].as_f64().unwrap_or(0.0);
            let share = |part: f64, of: f64| match of > 0.0 {
                true => format!("{:.1} %", 100.0 * part / of),
                false => "-".into(),
            };
            let cycles = number("cycles");
            let walks = number("walks");
            let each = match walks > 0.0 {
                true => format!("{:.0}", number("walker_cycles") / walks),
                false => "-".into(),
            };
            let _ = writeln!(
                text,
                "{mode:<8}{:>14}{:>16.0}{:>9}{:>9}{:>9}{:>14}{each:>14}{:>14}",
                number("accesses"),
                cycles,
                share(number("base_cycles"), cycles),
                share(number("data_cycles"), cycles),
                share(number("walk_cycles"), cycles),
                walks,
                share(number("walker_remote_cycles"), number("walker_cycles")),
            );
        }
        if let Some(astray @ 1..) = line["walks_astray"].as_u64() {
            let _ = writeln!(
                text,
                "lens: {astray} walks of all ended elsewhere than QEMU's, as when a page moves"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(kind: &str, section: u64, cycles: f64) -> Value {
        let mode = json!({
            "accesses": 1000, "cycles": cycles, "base_cycles": 1.0, "data_cycles": 2.0,
            "walk_cycles": cycles / 4.0, "walks": 10, "walker_cycles": 500.0,
            "walker_remote_cycles": 250.0,
        });
        json!({
            "kind": kind, "section": section, "machine": "some server",
            "user": mode, "kernel": mode, "walks_astray": 0,
        })
    }

    #[test]
    fn the_summary_is_of_the_marked_sections() {
        let lines = [line("section", 1, 4000.0), line("total", 1, 9000.0)];
        let text = summary(&lines);
        assert!(
            text.contains("section 1, modelled on some server"),
            "{text}"
        );
        let user = text.lines().find(|line| line.starts_with("user")).unwrap();
        assert!(user.contains("4000") && user.contains("25.0 %"), "{user}");
        assert!(user.contains("50.0 %"), "remote share: {user}");
        assert!(
            !text.contains("9000") && !text.contains("elsewhere"),
            "{text}"
        );
    }

    #[test]
    fn without_marks_it_is_of_the_whole() {
        assert!(summary(&[line("total", 0, 9000.0)]).contains("whole command"));
        assert!(summary(&[]).contains("no result"));
    }

    #[test]
    fn the_module_must_be_there_for_the_kernel() {
        let dir = std::env::temp_dir().join(format!("nearwalk-lens-lab-{}", std::process::id()));
        let header = dir.join("kernel-stock/include/generated");
        let boot = dir.join("kernel-stock/arch/x86/boot");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("bzImage"), "").unwrap();
        fs::create_dir_all(&header).unwrap();
        fs::write(
            header.join("utsrelease.h"),
            "#define UTS_RELEASE \"6.12.1-x\"\n",
        )
        .unwrap();
        let missing = module(&Kernel::Stock, &dir).unwrap_err().to_string();
        let made = dir.join("module/6.12.1-x");
        fs::create_dir_all(&made).unwrap();
        fs::write(made.join("nearwalk_lens.ko"), "").unwrap();
        let found = module(&Kernel::Stock, &dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!(missing.contains("make module KDIR="), "{missing}");
        assert_eq!(found.unwrap(), made.join("nearwalk_lens.ko"));
    }
}
