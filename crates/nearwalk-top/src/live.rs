// SPDX-License-Identifier: GPL-2.0-or-later
//! The program on a terminal: one thread samples, one reads keys, one hears
//! signals, and the first one draws.

use std::io::{self, stdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{ffi::OsString, panic, path::Path};

use nearwalk_advise::advice::advise;
use nearwalk_advise::counting::Counting;
use nearwalk_advise::cpu_time::Sampling;
use nearwalk_advise::report::Kind;
use nearwalk_advise::shown;
use nearwalk_advise::subject::{self, LiveInstruments, Whom};
use nearwalk_host::{Error, Recorder, Source};
use nearwalk_repl::{Linux, Subject};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::app::{App, Change, Reaction};
use crate::frame::{Frame, Key};
use crate::sample::Sampler;

/// The first frame comes sooner than the others.
const FIRST: Duration = Duration::from_secs(1);
/// For how long someone is looked at whom advice is asked for.
const ADVICE: Duration = Duration::from_secs(3);

enum Event {
    Frame(Box<Frame>),
    /// There are no more.
    Ended(Ended),
    Input(Input),
    Signal(i32),
    Advice(String),
    /// What came of a change, and what was before it.
    Changed(String, Option<Before>),
}

/// Why there are no more frames.
enum Ended {
    Recording,
    Error(Error),
    Panic,
}

/// What is shown.
pub enum From<'a> {
    /// The running host, as anything that reads it.
    Live(Box<dyn Source + Send>),
    /// The running host, kept in a directory.
    Record(Box<dyn Source + Send>, &'a Path),
    /// A recording.
    Recorded(Box<dyn Source + Send>),
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// As the user wished.
    Quit,
    /// By this signal, which is for the caller to die of.
    Signal(i32),
    /// Nothing could be read any more.
    Error(Error),
    /// The directory was not fit for a recording.
    NotRecorded(Error),
    /// By a panic, which goes on before anybody sees this.
    Panic,
}

/// Waits as long as what is waited for takes, or until it is told to stop.
struct Paced {
    source: Box<dyn Source + Send>,
    stop: Receiver<()>,
    /// Time passes there only if it is waited for.
    recorded: bool,
}

impl Source for Paced {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        self.source.read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.source.list(path)
    }

    fn now(&self) -> Duration {
        self.source.now()
    }

    fn wait(&mut self, mut time: Duration) -> Result<(), Error> {
        if self.recorded {
            let before = self.source.now();
            self.source.wait(time)?;
            time = self.source.now().saturating_sub(before);
        }
        match self.stop.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Error::Ended("the user has seen enough".to_owned())),
        }
    }
}

/// Shows it until the user has seen enough.
pub fn run(from: From<'_>, interval: Duration) -> io::Result<End> {
    let (stop, stopped) = mpsc::channel();
    let (source, dir, recorded) = match from {
        From::Live(source) => (source, None, false),
        From::Record(source, dir) => (source, Some(dir), false),
        From::Recorded(source) => (source, None, true),
    };
    let paced = Paced {
        source,
        stop: stopped,
        recorded,
    };
    let recorder = dir.map(|dir| dir.to_owned());
    let (events, inbox) = mpsc::channel();
    let sampler = match recorder {
        Some(dir) => {
            let mut recorder = match Recorder::create(paced, &dir, interval) {
                Ok(recorder) => recorder,
                Err(error) => return Ok(End::NotRecorded(error)),
            };
            spawn(&events, move |events| {
                sample(&mut recorder, interval, &events);
                recorder.finish()
            })
        }
        None => {
            let mut paced = paced;
            spawn(&events, move |events| {
                sample(&mut paced, interval, &events);
                Ok(())
            })
        }
    };
    hear(&events)?;
    let mut screen = Screen {
        app: App::default(),
        terminal: ratatui::try_init()?,
        events,
        recorded,
        before: Vec::new(),
    };
    read_keys(&screen.events);
    let end = screen.run(&inbox);
    // After a panic that has been done, and what it says stands there.
    if !matches!(end, Ok(End::Panic)) {
        ratatui::restore();
    }
    drop(stop);
    match sampler.join() {
        Err(panic) => panic::resume_unwind(panic),
        Ok(Err(error)) => Ok(End::NotRecorded(error)),
        Ok(Ok(())) => end,
    }
}

/// Runs the sampler. If it panics, the screen hears of it.
fn spawn(
    events: &Sender<Event>,
    run: impl FnOnce(Sender<Event>) -> Result<(), Error> + Send + 'static,
) -> JoinHandle<Result<(), Error>> {
    struct Guard(Sender<Event>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if thread::panicking() {
                let _ = self.0.send(Event::Ended(Ended::Panic));
            }
        }
    }
    let events = events.clone();
    thread::spawn(move || {
        let guard = Guard(events);
        run(guard.0.clone())
    })
}

/// Sends frames as long as there are any, and someone takes them.
fn sample(source: &mut dyn Source, interval: Duration, events: &Sender<Event>) {
    let ended = |error| match error {
        // The user has seen enough, and nobody listens.
        Error::Ended(_) => {}
        Error::RecordingEnds { .. } => drop(events.send(Event::Ended(Ended::Recording))),
        error => drop(events.send(Event::Ended(Ended::Error(error)))),
    };
    let mut sampler = match Sampler::begin(source) {
        Ok(sampler) => sampler,
        Err(error) => return ended(error),
    };
    let mut length = interval.min(FIRST);
    loop {
        match sampler.tick(source, length) {
            Ok(frame) => {
                if events.send(Event::Frame(Box::new(frame))).is_err() {
                    return;
                }
            }
            Err(error) => return ended(error),
        }
        length = interval;
    }
}

fn hear(events: &Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCONT])?;
    let events = events.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            let _ = events.send(Event::Signal(signal));
        }
    });
    Ok(())
}

fn read_keys(events: &Sender<Event>) {
    let events = events.clone();
    thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(input) => Event::Input(input),
                // The terminal is gone.
                Err(_) => Event::Signal(SIGHUP),
            };
            let is_last = matches!(event, Event::Signal(_));
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    });
}

struct Screen {
    app: App,
    terminal: DefaultTerminal,
    events: Sender<Event>,
    recorded: bool,
    /// What was before each change, the last one last.
    before: Vec<Before>,
}

/// What was set for someone.
struct Before {
    name: String,
    subject: Subject,
    text: String,
}

impl Screen {
    fn run(&mut self, inbox: &Receiver<Event>) -> io::Result<End> {
        loop {
            let app = &mut self.app;
            self.terminal
                .draw(|frame| app.draw(frame.area(), frame.buffer_mut()))?;
            let Ok(event) = inbox.recv() else {
                return Ok(End::Quit);
            };
            if let Some(end) = self.take(event)? {
                return Ok(end);
            }
        }
    }

    fn take(&mut self, event: Event) -> io::Result<Option<End>> {
        match event {
            Event::Frame(frame) => self.app.take(*frame),
            Event::Ended(Ended::Recording) => self.app.end(),
            Event::Ended(Ended::Error(error)) => return Ok(Some(End::Error(error))),
            Event::Ended(Ended::Panic) => return Ok(Some(End::Panic)),
            Event::Signal(SIGCONT) => self.resume()?,
            Event::Signal(signal) => return Ok(Some(End::Signal(signal))),
            Event::Advice(text) => self.app.show("advice", text),
            Event::Changed(said, before) => {
                self.app.say(said);
                self.before.extend(before);
            }
            Event::Input(Input::Key(key)) if key.kind != KeyEventKind::Release => {
                match self.app.press(key) {
                    Reaction::None => {}
                    Reaction::Quit => return Ok(Some(End::Quit)),
                    Reaction::Suspend => {
                        ratatui::restore();
                        emulate_default_handler(SIGTSTP)?;
                    }
                    Reaction::Advise(key) => self.advise(key),
                    Reaction::Set(key, change) => self.set(key, change),
                    Reaction::Undo => self.undo(),
                }
            }
            Event::Input(_) => {}
        }
        Ok(None)
    }

    /// The shell may have changed the terminal while this process was stopped.
    fn resume(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen)?;
        self.terminal.clear()
    }

    fn advise(&mut self, key: Key) {
        let whom = match key {
            _ if self.recorded => {
                let text =
                    "a recording has no answer of this; `nearwalk advise` asks a running host";
                return self.app.show("advice", text.to_owned());
            }
            Key { kind: Kind::Vm, .. } => {
                let text = "of virtual machines, no more is known than this row says";
                return self.app.show("advice", text.to_owned());
            }
            Key { pid: Some(pid), .. } => Whom::Process(pid),
            Key { name, .. } => Whom::Cgroup(name),
        };
        let seconds = ADVICE.as_secs();
        self.app
            .show("advice", format!("looking for {seconds} s ..."));
        let events = self.events.clone();
        thread::spawn(move || {
            let (source, instruments) = (&mut Counting::default(), &mut LiveInstruments::default());
            let times = &mut Sampling::default();
            let text = match subject::look(source, times, instruments, &whom, ADVICE) {
                Ok(subject) => shown::text(&subject, &advise(&subject)),
                Err(error) => error.to_string(),
            };
            let _ = events.send(Event::Advice(text));
        });
    }

    /// Changes someone, which takes as long as the copies take to build.
    fn set(&mut self, key: Key, change: Change) {
        if self.recorded {
            return self.app.say("a recording cannot be changed".to_owned());
        }
        let text = change.text();
        self.app.say(format!("{}: {text} ...", key.name));
        let events = self.events.clone();
        thread::spawn(move || {
            let (said, before) = match set(&key, text) {
                Ok(before) => {
                    let said = format!("{}: {text} is set; u takes it back", key.name);
                    (said, Some(before))
                }
                Err(error) => (error.to_string(), None),
            };
            let _ = events.send(Event::Changed(said, before));
        });
    }

    fn undo(&mut self) {
        let Some(before) = self.before.pop() else {
            return self.app.say("nothing was set".to_owned());
        };
        self.app
            .say(format!("{}: {} ...", before.name, before.text));
        let events = self.events.clone();
        thread::spawn(move || {
            let said = match before.subject.set(&Linux, &before.text) {
                Ok(()) => format!("{}: {} is set again", before.name, before.text),
                Err(error) => error.to_string(),
            };
            let _ = events.send(Event::Changed(said, None));
        });
    }
}

fn set(key: &Key, text: &str) -> Result<Before, nearwalk_repl::Error> {
    let subject = match key.pid {
        Some(pid) => Subject::process(&Linux, pid)?,
        None => Subject::cgroup(&Linux, Path::new(&key.name))?,
    };
    let before = Before {
        name: key.name.clone(),
        text: subject.setting(&Linux)?.text,
        subject,
    };
    before.subject.set(&Linux, text)?;
    Ok(before)
}
