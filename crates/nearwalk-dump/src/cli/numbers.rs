// SPDX-License-Identifier: GPL-2.0-or-later
//! Numbers on the command line.

/// The number of a process or of one of its threads.
pub(super) fn parse_pid(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("allowed: the number of a process, from 1 on".into()),
    }
}

/// How many snapshots.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("allowed: numbers from 1 on".into()),
    }
}
