// SPDX-License-Identifier: GPL-2.0-or-later
//! How far the kernel is with copying the tables of a large process.
//!
//! The `write()` that asks for replication returns when all tables have been
//! copied. Meanwhile the file that was written to has a line `building:`.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::set::status_path;
use crate::system::System;

/// How often the file is read; what takes no longer shows nothing.
const PERIOD: Duration = Duration::from_millis(200);

/// Tables done, and tables in all, while there is something to be done.
fn building(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|l| l.strip_prefix("building:"))?;
    let (done, total) = line.trim().split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

/// Whether tables of process `pid` are being copied, as for a group's policy.
pub fn is_building(system: &impl System, pid: u32) -> bool {
    let text = system.read(&status_path(pid));
    text.is_ok_and(|text| building(&text).is_some())
}

/// Runs `change`, and meanwhile tells `progress` what `status` says: tables done,
/// and tables in all.
fn follow<T: Send>(
    change: impl FnOnce() -> io::Result<T> + Send,
    status: impl Fn() -> io::Result<String>,
    period: Duration,
    mut progress: impl FnMut(u64, u64),
) -> io::Result<T> {
    thread::scope(|scope| {
        let (sender, finished) = mpsc::channel();
        let changing = scope.spawn(move || {
            let result = change();
            // Whoever waits is still there: it waits for this thread.
            let _ = sender.send(());
            result
        });
        while finished.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            // A process may end at any time; `change` tells.
            if let Some((done, total)) = status().ok().and_then(|text| building(&text)) {
                progress(done, total);
            }
        }
        changing
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `change` and meanwhile shows what `status` tells on the standard error
/// output, if that is a terminal.
pub(crate) fn show<T: Send>(
    label: &str,
    change: impl FnOnce() -> io::Result<T> + Send,
    status: impl Fn() -> io::Result<String>,
) -> io::Result<T> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len} tables")
        .expect("the template is valid");
    let bar = ProgressBar::new(0)
        .with_style(style)
        .with_message(label.to_owned());
    let result = follow(change, status, PERIOD, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_there_while_tables_are_copied() {
        let head = "mode:\teager\nnodes:\t0-3\n";
        assert_eq!(building(head), None);
        let text = format!("{head}building:\t512/8223\n");
        assert_eq!(building(&text), Some((512, 8223)));
        for damaged in ["building:\n", "building:\t5\n", "building:\t-1/x\n"] {
            assert_eq!(building(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn progress_is_told_until_the_change_is_done() {
        let (sender, reads) = mpsc::channel();
        let change = move || {
            // Has been looked at three times.
            for _ in 0..3 {
                reads.recv().unwrap();
            }
            Ok(5)
        };
        let status = || {
            let _ = sender.send(());
            Ok("building:\t7/9\n".to_owned())
        };
        let mut told = Vec::new();
        let period = Duration::from_millis(1);
        let result = follow(change, status, period, |done, total| {
            told.push((done, total));
        });
        assert_eq!(result.unwrap(), 5);
        assert!(told.len() >= 3, "{told:?}");
        assert!(told.iter().all(|&pair| pair == (7, 9)), "{told:?}");
    }

    #[test]
    fn errors_of_the_change_are_returned() {
        let error = follow(
            || Err::<(), _>(io::ErrorKind::PermissionDenied.into()),
            || Err(io::ErrorKind::NotFound.into()),
            Duration::from_millis(1),
            |_, _| panic!("there is nothing to tell"),
        )
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
