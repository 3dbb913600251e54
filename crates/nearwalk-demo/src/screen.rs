// SPDX-License-Identifier: GPL-2.0-or-later
//! The story as it goes: lines that stay, and on a terminal one line of
//! progress below them that is overwritten.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// How often progress is worth a line where lines cannot be overwritten.
const LINE_STEP: Duration = Duration::from_secs(10);

pub struct Screen {
    out: Box<dyn Write + Send>,
    overwrites: bool,
    /// A line of progress is there.
    in_progress: bool,
    last: Instant,
}

impl Screen {
    pub fn stdout() -> Screen {
        let out = io::stdout();
        Screen {
            overwrites: out.is_terminal(),
            out: Box::new(out),
            in_progress: false,
            last: Instant::now(),
        }
    }

    /// Text that stays. Nobody looking is no reason to stop.
    pub fn line(&mut self, text: &str) {
        self.clear();
        let _ = writeln!(self.out, "{text}");
        let _ = self.out.flush();
        self.last = Instant::now();
    }

    /// How far it is.
    pub fn progress(&mut self, text: &str) {
        if self.overwrites {
            let _ = write!(self.out, "\r{text}\x1b[K");
            self.in_progress = true;
        } else if self.last.elapsed() >= LINE_STEP {
            let _ = writeln!(self.out, "{text}");
            self.last = Instant::now();
        }
        let _ = self.out.flush();
    }

    fn clear(&mut self) {
        if self.in_progress {
            let _ = write!(self.out, "\r\x1b[K");
            self.in_progress = false;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Where a test reads what was printed.
    #[derive(Clone, Default)]
    pub struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Screen {
        pub fn on_paper(paper: Paper, overwrites: bool) -> Screen {
            Screen {
                out: Box::new(paper),
                overwrites,
                in_progress: false,
                last: Instant::now(),
            }
        }
    }

    fn show(overwrites: bool) -> String {
        let paper = Paper::default();
        let mut screen = Screen::on_paper(paper.clone(), overwrites);
        screen.progress("1 of 2");
        screen.line("done");
        screen.line("next");
        paper.text()
    }

    #[test]
    fn progress_is_overwritten_on_a_terminal() {
        assert_eq!(show(true), "\r1 of 2\x1b[K\r\x1b[Kdone\nnext\n");
    }

    #[test]
    fn short_steps_show_no_progress_elsewhere() {
        assert_eq!(show(false), "done\nnext\n");
    }
}
