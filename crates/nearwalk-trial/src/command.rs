// SPDX-License-Identifier: GPL-2.0-or-later
//! A metric that a command of the user's prints.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use nearwalk_host::Source;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::run::{Metric, Stop, wait};

/// How long it may take.
pub const LIMIT: Duration = Duration::from_secs(10);

/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// As much as a number could ever take.
const MOST: u64 = 4096;

/// A command, for `sh -c`.
#[derive(Clone, Debug)]
pub struct Printed {
    command: String,
    /// It prints a number that grows: its growth a second counts.
    total: bool,
    limit: Duration,
}

impl Printed {
    /// The metric that it prints.
    pub fn new(command: String, total: bool) -> Self {
        Self {
            command,
            total,
            limit: LIMIT,
        }
    }

    /// Runs it once and reads its number.
    pub fn ask(&self, source: &mut dyn Source) -> Result<f64, Stop> {
        let text = self.output(source)?;
        let text = text.trim();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number.ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            self.bad(&format!(
                "printed `{}`; it is to print one number",
                shown.escape_debug()
            ))
        })?;
        if number < 0.0 || (number == 0.0 && !self.total) {
            return Err(self.bad(&format!(
                "printed {number}; it is to print a number above 0, since ratios are compared"
            )));
        }
        Ok(number)
    }

    fn bad(&self, why: &str) -> Stop {
        Stop::Metric(format!("the metric `{}` {why}", self.command))
    }

    fn output(&self, source: &mut dyn Source) -> Result<String, Stop> {
        let end = source.now() + self.limit;
        let child = Command::new("sh")
            .args(["-c", &self.command])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.map_err(|error| self.bad(&format!("cannot be run: {error}")))?;
        let mut running = Running(child);
        let output = running.read();
        let mut text = None;
        loop {
            if text.is_none() {
                text = match output.try_recv() {
                    Ok(text) => Some(text),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => Some(String::new()),
                };
            }
            let status = running.0.try_wait();
            let status = status.map_err(|error| self.bad(&error.to_string()))?;
            match (status, text.take()) {
                (Some(status), Some(text)) if status.success() => return Ok(text),
                (Some(status), Some(_)) => return Err(self.bad(&format!("failed: {status}"))),
                (_, so_far) => text = so_far,
            }
            if source.now() >= end {
                let limit = self.limit.as_secs_f64();
                return Err(self.bad(&format!("has not ended after {limit} s")));
            }
            wait(source, LOOK)?;
        }
    }
}

/// Is killed with all that it has started, if it has not ended.
struct Running(Child);

impl Running {
    fn read(&mut self) -> Receiver<String> {
        let (sender, receiver) = mpsc::channel();
        if let Some(out) = self.0.stdout.take() {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = out.take(MOST).read_to_end(&mut bytes);
                let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            });
        }
        receiver
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

impl Metric for Printed {
    fn measure(&mut self, source: &mut dyn Source, length: Duration) -> Result<f64, Stop> {
        if !self.total {
            wait(source, length)?;
            return self.ask(source);
        }
        let before = self.ask(source)?;
        let begun = source.now();
        wait(source, length)?;
        let after = self.ask(source)?;
        let rate = (after - before) / (source.now() - begun).as_secs_f64();
        if rate <= 0.0 {
            return Err(self.bad(&format!(
                "printed {before}, and a period later {after}; it is to print a number that grows"
            )));
        }
        Ok(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearwalk_host::{Error, Live};
    use std::ffi::OsString;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    /// Where much time has passed once a file has been written.
    struct Until(PathBuf);

    impl Source for Until {
        fn read(&mut self, _: &Path) -> io::Result<String> {
            unreachable!()
        }

        fn list(&mut self, _: &Path) -> io::Result<Vec<OsString>> {
            unreachable!()
        }

        fn now(&self) -> Duration {
            let written = std::fs::read_to_string(&self.0).is_ok_and(|text| text.ends_with('\n'));
            Duration::from_secs(if written { 3600 } else { 0 })
        }

        fn wait(&mut self, time: Duration) -> Result<(), Error> {
            thread::sleep(time);
            Ok(())
        }
    }

    fn ask(command: &str) -> Result<f64, String> {
        let asked = Printed::new(command.into(), false).ask(&mut Live::default());
        asked.map_err(|stop| stop.to_string())
    }

    #[test]
    fn a_number_is_read() {
        assert_eq!(ask("echo 17.5"), Ok(17.5));
        assert_eq!(ask("printf ' 2e3'"), Ok(2000.0));
    }

    #[test]
    fn what_is_no_number_is_named() {
        for (command, why) in [
            ("echo fast", "printed `fast`; it is to print one number"),
            ("echo 1 2", "printed `1 2`; it is to print one number"),
            ("true", "printed ``"),
            ("echo nan", "printed `nan`"),
            ("echo inf", "printed `inf`"),
            ("echo -3", "printed -3; it is to print a number above 0"),
            ("echo 0", "printed 0; it is to print a number above 0"),
            ("echo 5; exit 3", "failed: exit status: 3"),
            ("no-such-program-here", "failed: exit status: 127"),
        ] {
            let error = ask(command).unwrap_err();
            let said = format!("the metric `{command}` {why}");
            assert!(error.starts_with(&said), "{error}");
        }
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let dir = std::env::temp_dir().join(format!("nearwalk-metric-{}", std::process::id()));
        let metric = Printed {
            limit: Duration::from_millis(300),
            ..Printed::new(
                format!("sleep 60 & echo $! >{}; wait", dir.display()),
                false,
            )
        };
        let error = metric.ask(&mut Until(dir.clone())).unwrap_err().to_string();
        assert!(error.contains("has not ended after 0.3 s"), "{error}");
        let pid = std::fs::read_to_string(&dir).unwrap();
        std::fs::remove_file(&dir).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let begun = Instant::now();
        // Gone, or a zombie that nobody has waited for.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "still there");
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn of_what_grows_the_rate_counts() {
        let path = std::env::temp_dir().join(format!("nearwalk-total-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let count = format!("echo >>{0}; wc -c <{0}", path.display());
        let live = &mut Live::default();
        let mut metric = Printed::new(count, true);
        let rate = metric.measure(live, Duration::from_millis(200)).unwrap();
        std::fs::remove_file(&path).unwrap();
        // One more in 0.2 s, and a little for running it.
        assert!(rate > 0.0 && rate <= 5.0, "{rate}");
        let mut stuck = Printed::new("echo 7".into(), true);
        let error = stuck.measure(live, Duration::from_millis(10)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("printed 7, and a period later 7"), "{error}");
    }
}
