// SPDX-License-Identifier: GPL-2.0-or-later
//! What a command ends with: 0 it has answered, 1 the process is lost, 2 wrong
//! usage, 3 nothing could be read. `advise`, `trial` and `top` have the same.

use std::io;
use std::process::ExitCode;

use thiserror::Error;

use crate::live::LiveError;

/// Options that contradict each other, or a file that cannot be written.
#[derive(Debug, Error)]
#[error("{0:#}")]
struct Usage(anyhow::Error);

pub(super) fn usage(error: anyhow::Error) -> anyhow::Error {
    Usage(error).into()
}

/// Says what went wrong.
pub(super) fn ended(done: anyhow::Result<()>) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("nearwalk: {error:#}");
    ExitCode::from(status(&error))
}

/// The reader of a pipe has seen enough, as in `nearwalk dump PID | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn status(error: &anyhow::Error) -> u8 {
    let lost = matches!(
        error.downcast_ref(),
        Some(LiveError::NoProcess { .. } | LiveError::NoMemory { .. } | LiveError::Exited { .. })
    );
    match lost {
        true => 1,
        false if error.is::<Usage>() => 2,
        false => 3,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use nearwalk_walk::Refusal;

    use super::*;

    #[test]
    fn statuses_have_one_meaning_each() {
        let of = |error: LiveError| status(&anyhow::Error::from(error));
        assert_eq!(of(LiveError::NoProcess { pid: 4711 }), 1);
        assert_eq!(of(LiveError::NoMemory { pid: 2 }), 1);
        assert_eq!(of(LiveError::Exited { pid: 4711 }), 1);
        assert_eq!(of(LiveError::Permission), 3);
        assert_eq!(of(LiveError::Refused(Refusal::Confidential)), 3);
        let wrong = usage(anyhow::anyhow!("--csv - and --json"));
        assert_eq!(
            (status(&wrong), wrong.to_string().as_str()),
            (2, "--csv - and --json")
        );
        let missing = std::fs::File::open("/nonexistent").context("cannot open it");
        assert_eq!(status(&missing.unwrap_err()), 3);
        let lost = Err::<(), _>(LiveError::NoProcess { pid: 1 }).context("no snapshot");
        assert_eq!(status(&lost.unwrap_err()), 1);
    }
}
