// SPDX-License-Identifier: GPL-2.0-or-later
//! A virtual machine from start to end: its emulator as a child process, threads that
//! carry its streams, and the watch over its signs of life.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    Accel, Emulator, End, Error, FindingKind, Job, Outcome, Terminal, VmConfig, bochs,
    console::Scanner,
    initramfs,
    paths::build_dir,
    placement,
    progress::ProgressClock,
    qemu::{self, Endpoints},
    qmp::Monitor,
    relay::{self, Progress},
};

/// How often deadlines, and QEMU's own death, are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// What a dying kernel gets to finish its report, by the guest's clock.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(30);

/// What the threads tell [`Vm::wait`].
pub(crate) enum Event {
    /// The guest is set up and starts the command.
    Ready,
    Beat,
    /// The guest has printed what its threads wait for.
    Told,
    /// The limit has passed, somebody else says.
    Limit,
    /// The command ended: status, bytes of output, bytes of errors.
    Exit(u8, u64, u64),
    /// The guest could not set itself up.
    Fail(String),
    /// The console has a new finding, at worst of this kind.
    Found(FindingKind),
    /// The guest announced its end on the console.
    Ended,
    /// Nobody reads the command's output any more.
    SinkGone,
    Kill,
}

/// A running virtual machine. Dropping it ends the machine. QEMU also ends
/// when the thread that called [`Vm::start`] does.
pub struct Vm {
    pub(crate) qemu: Qemu,
    pub(crate) events: Receiver<Event>,
    pub(crate) handle: VmHandle,
    outputs: [(Arc<Progress>, JoinHandle<()>); 2],
    console: Console,
    pub(crate) monitor: Option<Monitor>,
    pub(crate) cpus: u32,
    /// What the CPUs did when the guest was asked where it stands.
    pub(crate) states: Vec<String>,
    pub(crate) limit_signal: Option<i32>,
    started: Instant,
    patience: Duration,
    timeout: Option<Duration>,
    /// What Bochs reads as it goes; removed when all else has ended.
    _files: Option<bochs::Machine>,
}

/// Controls a [`Vm`] while another thread waits for it.
#[derive(Clone)]
pub struct VmHandle {
    ctl: Arc<Mutex<UnixStream>>,
    events: Sender<Event>,
}

impl VmHandle {
    /// Sends a signal to the command's process group.
    pub fn signal(&self, signal: i32) {
        self.send(&format!("signal {signal}\n"));
    }

    pub fn resize(&self, terminal: Terminal) {
        self.send(&format!("winsize {} {}\n", terminal.rows, terminal.cols));
    }

    /// Ends the machine at once.
    pub fn kill(&self) {
        let _ = self.events.send(Event::Kill);
    }

    /// Ends the machine as if its limit had passed.
    pub fn end_at_limit(&self) {
        let _ = self.events.send(Event::Limit);
    }

    /// A guest that has gone needs no commands: failure to send is no error.
    pub(crate) fn send(&self, line: &str) {
        let _ = self.ctl.lock().unwrap().write_all(line.as_bytes());
    }
}

impl Vm {
    /// Boots `config` and runs `job` in it.
    pub fn start(config: &VmConfig, job: Job) -> Result<Vm, Error> {
        config.validate()?;
        let build = build_dir();
        let kernel = config.kernel.image(&build)?;
        let accel = Accel::choose(config)?;
        let masks = placement::masks(config)?;
        let config = &with_absolute_paths(config)?;
        let binds = match config.emulator {
            Emulator::Qemu => binds(config, &job, &build),
            Emulator::Bochs => initramfs::Binds::new(),
        };
        let archive = initramfs::build(config, &job, &binds)?;
        if let Some(dir) = &config.memory_dir {
            fs::create_dir_all(dir).map_err(Error::io(dir.display().to_string()))?;
        }
        let console_log = ConsoleLog::create(config, &build)?;

        let initramfs = memory_file(&archive).map_err(Error::io("a file in memory"))?;
        let mut pairs = Vec::new();
        for _ in 0..6 {
            pairs.push(UnixStream::pair().map_err(Error::io("a pair of sockets"))?);
        }
        let (host, guest): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let [console, qmp, ctl, stdin, stdout, stderr] =
            <[UnixStream; 6]>::try_from(host).expect("six pairs were made");
        let ends = Endpoints {
            console: guest[0].as_raw_fd(),
            qmp: guest[1].as_raw_fd(),
            ctl: guest[2].as_raw_fd(),
            stdin: guest[3].as_raw_fd(),
            stdout: guest[4].as_raw_fd(),
            stderr: guest[5].as_raw_fd(),
            initramfs: initramfs.as_raw_fd(),
        };
        let mut inherited: Vec<RawFd> = guest.iter().map(AsRawFd::as_raw_fd).collect();
        inherited.push(initramfs.as_raw_fd());

        let started = Instant::now();
        let mut files = None;
        let mut qemu = if config.emulator == Emulator::Bochs {
            let (serial, port) = bochs::pipe().map_err(Error::io("a pipe"))?;
            let machine =
                bochs::Machine::create(config, &build, &kernel, &archive, port.as_raw_fd())?;
            let qemu = Qemu::spawn(bochs::PROGRAM, &machine.arguments(), vec![port.as_raw_fd()])?;
            let [console, _, ctl, _, stdout, stderr] =
                <[UnixStream; 6]>::try_from(guest).expect("six pairs were made");
            let streams = bochs::Streams {
                console,
                ctl,
                stdout,
                stderr,
            };
            bochs::take_apart(serial, streams);
            files = Some(machine);
            qemu
        } else {
            let arguments = qemu::arguments(config, accel, &kernel, &ends);
            let qemu = Qemu::spawn(qemu::PROGRAM, &arguments, inherited)?;
            drop(guest);
            qemu
        };

        let mut monitor = match config.emulator {
            Emulator::Qemu => Monitor::new(qmp).ok(),
            Emulator::Bochs => None,
        };
        if let Some(monitor) = monitor.as_mut().filter(|_| !masks.is_empty()) {
            if let Err(error) = place(monitor, &masks) {
                qemu.kill();
                return Err(match qemu.last_words() {
                    words if words.is_empty() => Error::io("placing the guest's CPUs")(error),
                    words => Error::Qemu(words),
                });
            }
        }

        let scanner = match config.emulator {
            Emulator::Qemu => Scanner::default(),
            Emulator::Bochs => Scanner::knowing(bochs::KNOWN_WARNINGS),
        };
        let clone = |stream: &UnixStream| stream.try_clone().map_err(Error::io("a socket"));
        let (sender, events) = mpsc::channel();
        let ctl_reader = clone(&ctl)?;
        let ctl_events = sender.clone();
        thread::spawn(move || control(ctl_reader, &ctl_events));
        if config.emulator == Emulator::Qemu {
            relay::input(job.stdin, stdin, clone(&ctl)?);
        }
        Ok(Vm {
            qemu,
            events,
            outputs: [
                relay::output(stdout, job.stdout, sender.clone()),
                relay::output(stderr, job.stderr, sender.clone()),
            ],
            console: Console::watch(console, scanner, console_log, sender.clone()),
            monitor,
            cpus: config.cpus(),
            states: Vec::new(),
            limit_signal: job.limit_signal,
            handle: VmHandle {
                ctl: Arc::new(Mutex::new(ctl)),
                events: sender,
            },
            started,
            patience: config.patience(),
            timeout: config.timeout,
            _files: files,
        })
    }

    pub fn handle(&self) -> VmHandle {
        self.handle.clone()
    }

    /// Waits for the end, whatever it is.
    pub fn wait(mut self) -> Result<Outcome, Error> {
        let mut boot = None;
        let end = self.watch(&mut boot)?;
        match end {
            End::Hung(_) => self.ask_where(),
            End::TimedOut(_) => self.ask_what(boot.is_some()),
            _ => {}
        }
        self.qemu.kill();
        let stderr = self.qemu.last_words();
        for (_, thread) in self.outputs {
            let _ = thread.join();
        }
        let total = self.started.elapsed();
        let (scanner, mut log) = self.console.finish();
        let findings = scanner.findings().to_vec();
        // QEMU leaves when a kernel that panicked restarts the machine.
        let panicked = findings
            .iter()
            .any(|found| found.kind == FindingKind::Panic);
        let end = match end {
            End::Died(_) if panicked => End::Panicked,
            End::Died(_) if boot.is_none() && findings.is_empty() && !log.has_output => {
                return Err(Error::Qemu(stderr));
            }
            End::Died(_) => End::Died(stderr),
            end => end,
        };
        let clean = matches!(end, End::Exited(_)) && findings.is_empty();
        Ok(Outcome {
            end,
            findings,
            boot,
            total,
            cpus: self.states,
            last_lines: scanner.tail(),
            console_log: log.settle(clean),
        })
    }

    /// Follows the guest until something ends it.
    fn watch(&mut self, boot: &mut Option<Duration>) -> Result<End, Error> {
        let mut clock = self.qemu.progress();
        let mut last_sign = Duration::ZERO;
        let mut dying: Option<Duration> = None;
        let mut ended = false;
        loop {
            let event = self.events.recv_timeout(TICK);
            let now = clock.tick();
            match event {
                Ok(Event::Ready) => {
                    *boot = Some(self.started.elapsed());
                    last_sign = now;
                }
                Ok(Event::Beat) => last_sign = now,
                Ok(Event::Exit(status, out, err)) => {
                    self.collect(out, err, ended);
                    return Ok(End::Exited(status));
                }
                Ok(Event::Fail(reason)) => {
                    self.qemu.kill();
                    return Err(Error::Guest(reason));
                }
                Ok(Event::Found(FindingKind::Panic)) => {
                    dying.get_or_insert(now);
                }
                Ok(Event::Found(_)) => {}
                Ok(Event::Ended) => ended = true,
                Ok(Event::SinkGone) => self.handle.signal(libc::SIGPIPE),
                Ok(Event::Limit) => return Ok(End::TimedOut(self.started.elapsed())),
                Ok(Event::Told) => {}
                Ok(Event::Kill) => return Ok(End::Killed),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("self holds a sender"),
            }
            if self.qemu.has_ended() {
                // What the guest said last may still be in the channel.
                if let Some(end) = self.last_event(ended) {
                    return Ok(end);
                }
                return Ok(End::Died(String::new()));
            }
            if dying.is_some_and(|since| now - since > LAST_WORDS) {
                return Ok(End::Panicked);
            }
            if dying.is_none() && now - last_sign > self.patience {
                return Ok(End::Hung(now - last_sign));
            }
            if let Some(limit) = self.timeout.filter(|&limit| self.started.elapsed() > limit) {
                return Ok(End::TimedOut(limit));
            }
        }
    }

    /// The command is through: waits until its output and the console are.
    pub(crate) fn collect(&self, out: u64, err: u64, mut ended: bool) {
        for ((progress, _), bytes) in self.outputs.iter().zip([out, err]) {
            progress.wait_for(bytes, self.patience);
        }
        let mut clock = self.qemu.progress();
        while !ended && clock.tick() < LAST_WORDS {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Ended) => ended = true,
                Ok(Event::Kill) => return,
                // The port may be slower than the console was.
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn last_event(&self, mut ended: bool) -> Option<End> {
        // The threads end with QEMU's sockets.
        while let Ok(event) = self.events.recv_timeout(TICK) {
            match event {
                Event::Ended => ended = true,
                Event::Exit(status, out, err) => {
                    self.collect(out, err, ended);
                    return Some(End::Exited(status));
                }
                _ => {}
            }
        }
        None
    }
}

/// Has each of the guest's CPUs, which wait, run on those of its mask.
fn place(monitor: &mut Monitor, masks: &[Vec<u32>]) -> io::Result<()> {
    let threads = monitor.cpu_threads()?;
    if threads.len() != masks.len() {
        let text = format!("QEMU has {} of {} CPUs", threads.len(), masks.len());
        return Err(io::Error::other(text));
    }
    for (&thread, mask) in threads.iter().zip(masks) {
        placement::pin(thread, mask)?;
    }
    monitor.resume()
}

/// The guest must find what the command line names wherever it starts.
fn with_absolute_paths(config: &VmConfig) -> Result<VmConfig, Error> {
    let mut config = config.clone();
    for share in &mut config.shares {
        *share = share
            .canonicalize()
            .map_err(Error::io(share.display().to_string()))?;
    }
    Ok(config)
}

/// What lies where the guest has file systems of its own must be bound over
/// those: the current directory, the directories of this program and of
/// kernels. The kernel's modules go where programs look for them.
fn binds(config: &VmConfig, job: &Job, build: &Path) -> initramfs::Binds {
    let program = std::env::current_exe().ok();
    let program_dir = program.as_deref().and_then(Path::parent);
    let mut binds: initramfs::Binds = [Some(job.cwd.as_path()), program_dir, Some(build)]
        .into_iter()
        .flatten()
        .filter(|dir| !config.shares.iter().any(|share| dir.starts_with(share)))
        .flat_map(initramfs::binds_if_hidden)
        .collect();
    let objects = config.kernel.object_dir(build);
    let modules = objects.map(|dir| dir.join("modules/lib/modules"));
    let versions = modules.iter().filter_map(|dir| fs::read_dir(dir).ok());
    for version in versions.flatten().flatten() {
        let target = Path::new("/lib/modules").join(version.file_name());
        binds.push((version.path(), target));
    }
    binds.sort();
    binds.dedup();
    binds
}

/// A file without a name, for QEMU to open through /proc.
fn memory_file(content: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string; the descriptor is owned by nobody else.
    let fd = unsafe {
        let fd = libc::memfd_create(c"nearwalk-initramfs".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut file = File::from(fd);
    file.write_all(content)?;
    Ok(file)
}

/// Reads the guest's first process's lines; see lab/init for the other end.
fn control(ctl: UnixStream, events: &Sender<Event>) {
    for line in BufReader::new(ctl).lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let event = match line.split(' ').next() {
            Some("ready") => Event::Ready,
            Some("beat") => Event::Beat,
            Some("fail") => Event::Fail(line[4..].trim().to_string()),
            Some("exit") => {
                number(); // the word itself
                match (number(), number(), number()) {
                    (Some(status), Some(out), Some(err)) => Event::Exit(status as u8, out, err),
                    _ => continue,
                }
            }
            _ => continue,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// The emulator, killed when this is dropped.
pub(crate) struct Qemu {
    child: Child,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Qemu {
    fn spawn(
        program: &str,
        arguments: &[impl AsRef<OsStr>],
        inherited: Vec<RawFd>,
    ) -> Result<Qemu, Error> {
        let mut command = Command::new(program);
        let bochs = program == bochs::PROGRAM;
        command
            .args(arguments)
            .stdin(if bochs { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A key that interrupts goes to the command in the guest.
            .process_group(0);
        // SAFETY: between fork and exec only async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                for &fd in &inherited {
                    if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(|source| match bochs {
            true => Error::NoBochs {
                program: program.into(),
                source,
            },
            false => Error::NoQemu {
                program: program.into(),
                source,
            },
        })?;
        // Debian's Bochs starts in its debugger. The pipe stays open: at its end
        // the debugger would end, too.
        if let Some(stdin) = &mut child.stdin {
            stdin
                .write_all(b"c\n")
                .map_err(Error::io("the debugger of Bochs"))?;
        }
        let stderr = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&stderr);
        let pipe = child.stderr.take().expect("stderr is piped");
        let reader = thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                // One line for each CPU and each feature that TCG lacks.
                if !line.contains("TCG doesn't support requested feature") {
                    let mut text = shared.lock().unwrap();
                    text.push_str(&line);
                    text.push('\n');
                }
            }
        });
        Ok(Qemu {
            child,
            stderr,
            reader: Some(reader),
        })
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn progress(&self) -> ProgressClock {
        ProgressClock::new(self.child.id())
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What QEMU wrote about itself; only after it has ended.
    fn last_words(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.stderr.lock().unwrap().trim().to_string()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The thread that reads the console.
struct Console {
    thread: JoinHandle<(Scanner, ConsoleLog)>,
}

impl Console {
    fn watch(
        mut port: UnixStream,
        mut scanner: Scanner,
        mut log: ConsoleLog,
        events: Sender<Event>,
    ) -> Console {
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = port.read(&mut buffer) {
                log.write(&buffer[..count]);
                let (ended, looked) = (scanner.ended(), scanner.looked());
                if let Some(kind) = scanner.feed(&buffer[..count]) {
                    let _ = events.send(Event::Found(kind));
                }
                if scanner.ended() && !ended {
                    let _ = events.send(Event::Ended);
                }
                if scanner.looked() && !looked {
                    let _ = events.send(Event::Told);
                }
            }
            (scanner, log)
        });
        Console { thread }
    }

    fn finish(self) -> (Scanner, ConsoleLog) {
        self.thread
            .join()
            .expect("the console thread does not panic")
    }
}

/// The console's text on disk.
struct ConsoleLog {
    file: File,
    path: PathBuf,
    keep: bool,
    has_output: bool,
}

impl ConsoleLog {
    fn create(config: &VmConfig, build: &Path) -> Result<ConsoleLog, Error> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let path = match &config.log {
            Some(path) => path.clone(),
            None => {
                let dir = build.join("lab");
                fs::create_dir_all(&dir).map_err(Error::io(dir.display().to_string()))?;
                let run = RUNS.fetch_add(1, Ordering::Relaxed);
                dir.join(format!("console-{}-{run}.log", std::process::id()))
            }
        };
        let file = File::create(&path).map_err(Error::io(path.display().to_string()))?;
        Ok(ConsoleLog {
            file,
            path,
            keep: config.log.is_some(),
            has_output: false,
        })
    }

    /// A full disk must not stop the guest.
    fn write(&mut self, bytes: &[u8]) {
        self.has_output = true;
        let _ = self.file.write_all(bytes);
    }

    /// Removes the log of a clean run unless somebody asked for it.
    fn settle(&mut self, clean: bool) -> Option<PathBuf> {
        if clean && !self.keep {
            let _ = fs::remove_file(&self.path);
            return None;
        }
        Some(self.path.clone())
    }
}
