// SPDX-License-Identifier: GPL-2.0-or-later
//! The person's terminal: its size, and raw mode while a guest has it.

use std::io;

use crate::Terminal;

const STDIN: i32 = libc::STDIN_FILENO;

/// The size of the terminal on standard input, if that is one.
pub fn size() -> Option<Terminal> {
    // SAFETY: the ioctl fills the structure that it is given.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(STDIN, libc::TIOCGWINSZ, &mut size) == 0).then_some(size)?
    };
    (size.ws_row > 0 && size.ws_col > 0).then_some(Terminal {
        rows: size.ws_row,
        cols: size.ws_col,
    })
}

/// The terminal on standard input in raw mode: each key goes to the guest.
/// Restored when dropped.
pub struct Raw {
    before: libc::termios,
}

impl Raw {
    pub fn enter() -> io::Result<Raw> {
        // SAFETY: both calls only read or fill the structure given.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(STDIN, &mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut raw = before;
            libc::cfmakeraw(&mut raw);
            if libc::tcsetattr(STDIN, libc::TCSANOW, &raw) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Raw { before })
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the structure is the one that tcgetattr filled.
        unsafe {
            libc::tcsetattr(STDIN, libc::TCSADRAIN, &self.before);
        }
    }
}
