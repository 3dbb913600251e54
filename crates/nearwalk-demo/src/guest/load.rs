// SPDX-License-Identifier: GPL-2.0-or-later
//! The clients: one thread and one connection for each worker of the server.
//! They ask one request after the other, look at every byte of every answer,
//! and time each one.

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{
    client::{Client, ClientError},
    machine,
    tally::{self, MAX_PHASES, Tally},
    value::{self, Wrong},
};
use crate::model::{Load, Phase};

/// One request in so many stores a new version, the others read.
const SET_EVERY: u64 = 10;
/// How often the progress of a long step is told.
const REPORT_STEP: Duration = Duration::from_millis(250);
/// Failures kept in words.
const MAX_EXAMPLES: usize = 8;

/// What there is to store.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    pub values: u64,
    /// Bytes, a multiple of 8.
    pub value_size: usize,
}

/// How a request went wrong.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Request(#[from] ClientError),
    #[error(transparent)]
    Content(#[from] Wrong),
}

/// A request for a key, through a buffer that is used again and again.
type Ask = fn(&mut Client, &Shared, u64, &mut Vec<u8>) -> Result<(), Failure>;

/// State that all clients share.
pub struct Shared {
    data: Data,
    versions: Vec<Version>,
    began: Instant,
    stop: AtomicBool,
    phase: AtomicUsize,
    phases: Mutex<Vec<(Phase, Duration)>>,
    answered: AtomicU64,
    examples: Mutex<Vec<String>>,
}

/// Versions of one key. Only the client that owns the key stores it, so they
/// grow one by one.
#[derive(Default)]
struct Version {
    /// The last that was sent.
    sent: AtomicU64,
    /// The last that the server said it had stored.
    stored: AtomicU64,
}

/// The connections of the clients, with the CPU that each one's thread runs on.
pub struct Clients(Vec<(Client, u32)>);

impl Clients {
    /// Connects a client for each of `cpus`, in this order: the server hands
    /// new connections to its workers in turn.
    pub fn connect(address: SocketAddr, cpus: &[u32]) -> Result<Clients, ClientError> {
        let connect = |&cpu| Ok((Client::connect(address)?, cpu));
        cpus.iter()
            .map(connect)
            .collect::<Result<_, _>>()
            .map(Clients)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Stores the next version of every value. Tells `progress` now and then
    /// how many are done.
    pub fn store_all(
        &mut self,
        shared: &Shared,
        progress: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.each_own_key(shared, Client::store, progress)
    }

    /// Reads every value once.
    pub fn read_all(
        &mut self,
        shared: &Shared,
        progress: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.each_own_key(shared, Client::read, progress)
    }

    fn each_own_key(
        &mut self,
        shared: &Shared,
        ask: Ask,
        mut progress: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let step = self.len();
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, (client, cpu)) in self.0.iter_mut().enumerate() {
                let done = &done;
                threads.push(scope.spawn(move || -> anyhow::Result<()> {
                    machine::pin_self(*cpu)?;
                    let mut buffer = Vec::new();
                    for key in (index as u64..shared.data.values).step_by(step) {
                        ask(client, shared, key, &mut buffer)
                            .with_context(|| format!("key {key}"))?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }));
            }
            while !threads.iter().all(|thread| thread.is_finished()) {
                thread::sleep(REPORT_STEP);
                progress(done.load(Ordering::Relaxed))?;
            }
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a client does not panic"))
        })
    }

    /// Lets every client ask until `work` is done; returns what `work` did and
    /// what the clients saw.
    pub fn ask_during<T>(&mut self, shared: &Shared, work: impl FnOnce() -> T) -> (T, Load) {
        let (done, tallies) = thread::scope(|scope| {
            let step = self.len();
            let threads: Vec<_> = self
                .0
                .iter_mut()
                .enumerate()
                .map(|(index, (client, cpu))| {
                    scope.spawn(move || {
                        let pinned = machine::pin_self(*cpu);
                        let mut tally = Tally::default();
                        if let Err(error) = pinned {
                            tally.failed += 1;
                            shared.note(error.to_string());
                            return tally;
                        }
                        client.ask_until_stop(shared, index, step, &mut tally);
                        tally
                    })
                })
                .collect();
            // Also when `work` panics, or the scope would wait for ever.
            let stop = StopOnDrop(&shared.stop);
            let done = work();
            drop(stop);
            let join = |thread: thread::ScopedJoinHandle<'_, Tally>| {
                thread.join().expect("a client does not panic")
            };
            (done, threads.into_iter().map(join).collect::<Vec<_>>())
        });
        (done, shared.sum(&tallies))
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Client {
    fn ask_until_stop(&mut self, shared: &Shared, index: usize, step: usize, tally: &mut Tally) {
        let (index, step) = (index as u64, step as u64);
        let own = (shared.data.values - index).div_ceil(step);
        let mut random = fastrand::Rng::with_seed(index);
        let mut buffer = Vec::new();
        while !shared.stop.load(Ordering::Relaxed) {
            let store = random.u64(0..SET_EVERY) == 0;
            let key = if store {
                // Only what is this client's own; see `Version`.
                random.u64(0..own) * step + index
            } else {
                random.u64(0..shared.data.values)
            };
            let first = shared.phase.load(Ordering::Relaxed);
            let sent = Instant::now();
            let result = if store {
                self.store(shared, key, &mut buffer)
            } else {
                self.read(shared, key, &mut buffer)
            };
            let took = sent.elapsed();
            let last = shared.phase.load(Ordering::Relaxed);
            tally.add(first..=last, took, shared.began.elapsed(), store);
            shared.answered.fetch_add(1, Ordering::Relaxed);
            match result {
                Ok(()) => {}
                Err(Failure::Content(wrong)) => {
                    tally.wrong += 1;
                    shared.note(format!("key {key}: {wrong}"));
                }
                Err(Failure::Request(error)) => {
                    tally.failed += 1;
                    shared.note(format!("key {key}: {error}"));
                    // What comes next on the connection is not known.
                    if !matches!(error, ClientError::Missing(_)) {
                        return;
                    }
                }
            }
        }
    }

    fn store(&mut self, shared: &Shared, key: u64, buffer: &mut Vec<u8>) -> Result<(), Failure> {
        let versions = &shared.versions[key as usize];
        let version = versions.sent.load(Ordering::Relaxed) + 1;
        buffer.resize(shared.data.value_size, 0);
        value::make(key, version, buffer);
        versions.sent.store(version, Ordering::SeqCst);
        self.set(&name(key), buffer)?;
        versions.stored.store(version, Ordering::SeqCst);
        Ok(())
    }

    fn read(&mut self, shared: &Shared, key: u64, buffer: &mut Vec<u8>) -> Result<(), Failure> {
        let versions = &shared.versions[key as usize];
        let oldest = versions.stored.load(Ordering::SeqCst);
        self.get(&name(key), buffer)?;
        let newest = versions.sent.load(Ordering::SeqCst);
        value::check(key, (oldest, newest), shared.data.value_size, buffer)?;
        Ok(())
    }
}

fn name(key: u64) -> String {
    format!("nearwalk:{key:08}")
}

impl Shared {
    /// The clients begin in `phase`.
    pub fn new(data: Data, phase: Phase) -> Shared {
        Shared {
            data,
            versions: (0..data.values).map(|_| Version::default()).collect(),
            began: Instant::now(),
            stop: AtomicBool::new(false),
            phase: AtomicUsize::new(0),
            phases: Mutex::new(vec![(phase, Duration::ZERO)]),
            answered: AtomicU64::new(0),
            examples: Mutex::default(),
        }
    }

    /// Starts the clock of the phases, just before the clients begin.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Seconds since the clients began.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// From now on requests belong to `phase`.
    pub fn enter(&self, phase: Phase) {
        let mut phases = self.phases.lock().unwrap();
        assert!(phases.len() < MAX_PHASES);
        phases.push((phase, self.began.elapsed()));
        self.phase.store(phases.len() - 1, Ordering::Relaxed);
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn note(&self, what: String) {
        let mut examples = self.examples.lock().unwrap();
        if examples.len() < MAX_EXAMPLES {
            examples.push(what);
        }
    }

    fn sum(&self, tallies: &[Tally]) -> Load {
        Load {
            examples: self.examples.lock().unwrap().clone(),
            ..tally::sum(tallies, &self.phases.lock().unwrap(), self.began.elapsed())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Stage;
    use rustix::thread::sched_getaffinity;
    use std::{
        collections::HashMap,
        io::{BufRead, BufReader, Read, Write},
        net::{Ipv4Addr, TcpListener, TcpStream},
        sync::Arc,
    };

    const DATA: Data = Data {
        values: 20,
        value_size: 4096,
    };

    /// A server of `set` and `get` that lets `spoil` at each value that it
    /// gives out; one that comes out empty ends the connection.
    fn server(spoil: fn(&mut Vec<u8>)) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let values = Arc::new(Mutex::new(HashMap::new()));
        thread::spawn(move || {
            for peer in listener.incoming().map_while(Result::ok) {
                let values = Arc::clone(&values);
                thread::spawn(move || serve(peer, &values, spoil));
            }
        });
        address
    }

    fn serve(
        peer: TcpStream,
        values: &Mutex<HashMap<String, Vec<u8>>>,
        spoil: fn(&mut Vec<u8>),
    ) -> Option<()> {
        let mut answers = peer.try_clone().ok()?;
        let mut requests = BufReader::new(peer);
        loop {
            let mut line = String::new();
            requests.read_line(&mut line).ok()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let key = words.get(1)?.to_string();
            if words[0] == "set" {
                let mut value = vec![0; words[4].parse::<usize>().ok()? + 2];
                requests.read_exact(&mut value).ok()?;
                value.truncate(value.len() - 2);
                values.lock().unwrap().insert(key, value);
                answers.write_all(b"STORED\r\n").ok()?;
                continue;
            }
            let mut value = values.lock().unwrap().get(&key)?.clone();
            spoil(&mut value);
            if value.is_empty() {
                return None;
            }
            let mut answer = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
            answer.extend(value);
            answer.extend(b"\r\nEND\r\n");
            answers.write_all(&answer).ok()?;
        }
    }

    fn clients(address: SocketAddr, count: usize) -> Clients {
        // Any CPU that this test may use.
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = (0..4096).find(|&cpu| allowed.is_set(cpu)).unwrap();
        Clients::connect(address, &vec![cpu as u32; count]).unwrap()
    }

    /// Three clients that have stored all values; they ask until `enough`.
    fn ask(spoil: fn(&mut Vec<u8>), enough: impl Fn(&Shared) -> bool) -> Load {
        let mut clients = clients(server(spoil), 3);
        let shared = Shared::new(DATA, Phase::Stay(Stage::Before));
        clients.store_all(&shared, |_| Ok(())).unwrap();
        let wait = || {
            while !enough(&shared) {
                thread::sleep(Duration::from_millis(1));
            }
        };
        clients.ask_during(&shared, wait).1
    }

    #[test]
    fn a_server_that_keeps_what_it_gets_has_no_failures() {
        let load = ask(|_| (), |shared| shared.answered() >= 500);
        assert_eq!((load.failed, load.wrong), (0, 0));
        assert!(load.gets > load.sets && load.sets > 0);
        assert_eq!(load.gets + load.sets, load.spans[0].requests);
        assert!(load.rate.iter().sum::<u64>() <= load.gets + load.sets);
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let load = ask(|value| value[4000] ^= 1, |shared| shared.answered() >= 50);
        assert_eq!((load.failed, load.wrong), (0, load.gets));
        assert!(load.examples[0].contains("wrong from byte 4000 on"));
        assert_eq!(load.examples.len(), MAX_EXAMPLES);
    }

    #[test]
    fn a_lost_store_is_noticed() {
        // Version 1 of whatever the key is.
        let stale = |value: &mut Vec<u8>| {
            let key = u64::from_le_bytes(value[..8].try_into().unwrap());
            value::make(key, 1, value);
        };
        let load = ask(stale, |shared| !shared.examples.lock().unwrap().is_empty());
        assert!(load.wrong > 0 && load.failed == 0);
        assert!(load.examples[0].contains("version 1; stored were"));
    }

    #[test]
    fn a_client_that_loses_its_connection_fails_and_stops() {
        let load = ask(Vec::clear, |shared| {
            shared.examples.lock().unwrap().len() == 3
        });
        assert_eq!((load.failed, load.wrong), (3, 0));
        assert!(load.examples[0].contains("closed the connection"));
    }

    #[test]
    fn a_value_that_is_gone_ends_a_read_of_all() {
        let mut clients = clients(server(Vec::clear), 2);
        let shared = Shared::new(DATA, Phase::Stay(Stage::Before));
        clients.store_all(&shared, |_| Ok(())).unwrap();
        let error = clients.read_all(&shared, |_| Ok(())).unwrap_err();
        assert!(format!("{error:#}").contains("closed the connection"));
    }
}
