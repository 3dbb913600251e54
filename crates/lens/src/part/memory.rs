// SPDX-License-Identifier: GPL-2.0-or-later
//! Nodes' memory and the links between them, with load-dependent waiting.
//!
//! Each node's memory and each directed link is a server that needs a fixed
//! time per line (64 bytes over its bandwidth). Simulated CPUs advance in
//! quanta; the traffic of one quantum sets the wait of the next.
//!
//! A server with service time `s` at utilisation `u` makes a line wait
//! `s u / (2 (1 - u))`, as an M/D/1 queue does. The requesters are a closed
//! population: more wait means fewer requests. So the wait is the one at which
//! `requests per (latency + wait)`, as just observed, brings about that
//! utilisation. At saturation this alone decides, and the population sends
//! what the server can do.
//!
//! The interferer is such a population, too: it keeps a number of lines
//! outstanding at its node whatever happens. One law holds for all who share a
//! server: with `N` lines of ours and `H` of its own under way, `u` is
//! `(N + H) s / (latency + w)`. So few of ours wait until a line takes `H s`,
//! if that is longer than the latency, and many get `N / (N + H)` of what the
//! server can do.
//!
//! A modified line that leaves the caches is sent back: it needs a node's time
//! as a read does, and the link's other direction. Nobody waits for it to
//! arrive, but the line that takes its place waits until it has left, which is
//! when the queue in front of it has.
//!
//! The line that a prefetcher reads beside another comes from the same DRAM
//! row, which is open then: it needs the time of a streamed line, not of a
//! random one. Nobody waits for it; what it costs is throughput. Prefetchers
//! of some machines give way to what is asked for: they read nothing while that
//! waits for longer than their patience.

use super::hardware::{Memory, fill_by_parts};
use crate::machine::{Machine, Node};

/// A line among arrivals that nobody waits for.
pub(super) const UNAWAITED: u64 = 1 << 32;

/// Aligned, so that the one of a node is found without a multiplication.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Server {
    /// Cycles that one line occupies it.
    service: f64,
    /// Latency of a line without waiting.
    pub(super) nominal: f64,
    /// Service times that the interferer's lines take, in cycles.
    standing: f64,
    /// The wait when only they are there.
    idle: f64,
    /// Service times that a line takes that nobody waits for.
    unawaited: f64,
    /// Lines of this quantum: below 2^32 those that someone waits for, above it
    /// the others.
    pub(super) arrivals: u64,
    pub(super) wait: f64,
    /// Lines served since the start, for reports.
    lines: u64,
}

impl Server {
    fn new(service: f64, nominal: f64, unawaited: f64) -> Self {
        Server {
            service,
            nominal,
            unawaited,
            ..Default::default()
        }
    }

    #[inline(always)]
    fn arrive(&mut self) -> f64 {
        self.arrivals += 1;
        self.wait
    }

    /// `beside` are service times of lines that others have under way, in cycles;
    /// returns those of the lines that came in this quantum.
    fn end_quantum(&mut self, cycles: f64, beside: f64) -> f64 {
        if self.arrivals == 0 && self.wait == self.idle && beside == 0.0 {
            // Idle for long: most servers of a machine that one node uses.
            return 0.0;
        }
        let (awaited, others) = (self.arrivals % UNAWAITED, self.arrivals / UNAWAITED);
        let load = (awaited as f64 + others as f64 * self.unawaited) * self.service / cycles;
        self.lines += awaited;
        self.arrivals = 0;
        let own = load * (self.nominal + self.wait);
        let settled = self.queue(self.standing + own + beside);
        // Half of the step, for those who also wait for other things.
        self.wait += 0.5 * (settled - self.wait);
        own
    }

    /// Has `lines` of others under way from now on.
    fn share_with(&mut self, lines: f64) {
        self.standing = lines * self.service;
        self.idle = self.queue(self.standing);
        self.wait = self.idle;
    }

    /// The wait `w` of an M/D/1 queue whose utilisation is
    /// `pressure / (nominal + w)`: the positive root of
    /// `w = service u / (2 (1 - u))`, a quadratic equation once multiplied out.
    fn queue(&self, pressure: f64) -> f64 {
        let slack = self.nominal - pressure;
        let half = self.service * pressure / 2.0;
        (-slack + (slack * slack + 4.0 * half).sqrt()) / 2.0
    }
}

/// Memory behind one queue per node and one per directed link.
#[derive(Debug, Clone)]
pub struct QueuedMemory {
    pub(super) nodes: Vec<Server>,
    links: Vec<Server>,
    /// Latency of a line that another node's cache supplies, by holder and who asks.
    caches: Box<[f64]>,
    /// A forwarded line is read by its home all the same.
    directory: bool,
    hog: f64,
    /// Longest wait at which a prefetcher still reads.
    patience: f64,
    /// No line waits longer, whatever its way.
    pub(super) calm: bool,
}

impl QueuedMemory {
    /// The memory of `m`, idle.
    pub fn new(m: &Machine) -> Self {
        let nodes = m.nodes();
        let n = nodes.len();
        let memory = |(i, node): (usize, &Node)| {
            let streaming = node.bandwidth.cycles_per_line(m.clock).0;
            let per_line = streaming / node.random_efficiency;
            // A row that is open already takes the time of streaming.
            Server::new(per_line, m.latency(i, i), node.random_efficiency)
        };
        let link = |i: usize| {
            let (home, from) = (i / n, i % n);
            let per_line = m.link_bandwidth(from, home).cycles_per_line(m.clock).0;
            Server::new(per_line, m.latency(from, home), 1.0)
        };
        QueuedMemory {
            nodes: nodes.iter().enumerate().map(memory).collect(),
            links: (0..n * n).map(link).collect(),
            caches: (0..n * n).map(|i| m.cache_latency(i % n, i / n)).collect(),
            directory: m.memory.directory,
            hog: m.interferer.outstanding,
            patience: match m.cache.prefetch_patience {
                Some(wait) => wait.at(m.clock).0,
                None => f64::INFINITY,
            },
            calm: true,
        }
    }

    fn note_waits(&mut self) {
        let longest = |servers: &[Server]| servers.iter().map(|s| s.wait).fold(0.0, f64::max);
        self.calm = longest(&self.nodes) + longest(&self.links) <= self.patience;
    }

    /// Lines that `node`'s memory has served in finished quanta.
    pub fn lines_served(&self, node: usize) -> u64 {
        self.nodes[node].lines
    }
}

impl Memory for QueuedMemory {
    #[inline(always)]
    fn read(&mut self, from: usize, home: usize) -> f64 {
        let n = self.nodes.len();
        let node = &mut self.nodes[home];
        let wait = node.arrive();
        if from == home {
            return node.nominal + wait;
        }
        let link = &mut self.links[home * n + from];
        link.nominal + wait + link.arrive()
    }

    #[inline(always)]
    fn forward(&mut self, from: usize, holder: usize, home: usize) -> f64 {
        if self.directory {
            // Nobody waits: the cache is asked meanwhile, and is faster.
            self.nodes[home].arrive();
        }
        let n = self.nodes.len();
        let way = holder * n + from;
        self.caches[way] + self.links[way].arrive()
    }

    #[inline(always)]
    fn prefetches(&self, from: usize, home: usize) -> bool {
        let mut wait = self.nodes[home].wait;
        if from != home {
            wait += self.links[home * self.nodes.len() + from].wait;
        }
        wait <= self.patience
    }

    #[inline(always)]
    fn prefetch(&mut self, from: usize, home: usize) {
        self.nodes[home].arrivals += UNAWAITED;
        if from != home {
            let n = self.nodes.len();
            self.links[home * n + from].arrivals += UNAWAITED;
        }
    }

    #[inline(always)]
    fn write_back(&mut self, from: usize, home: usize) -> f64 {
        let wait = self.nodes[home].arrive();
        if from == home {
            return wait;
        }
        let n = self.nodes.len();
        wait + self.links[from * n + home].arrive()
    }

    #[inline(always)]
    fn fill(&mut self, from: usize, home: usize, prefetched: bool, modified: bool) -> f64 {
        if from != home {
            return fill_by_parts(self, from, home, prefetched, modified);
        }
        // What most lines do, with one look at their node.
        let node = &mut self.nodes[home];
        node.arrivals += 1 + u64::from(modified) + u64::from(prefetched) * UNAWAITED;
        let cycles = node.nominal + node.wait;
        if modified { cycles + node.wait } else { cycles }
    }

    fn end_quantum(&mut self, cycles: f64) {
        for s in self.nodes.iter_mut().chain(&mut self.links) {
            s.end_quantum(cycles, 0.0);
        }
        self.note_waits();
    }

    fn end_quantum_beside(&mut self, cycles: f64, beside: &[f64], own: &mut Vec<f64>) {
        own.clear();
        let beside = beside.iter().copied().chain(std::iter::repeat(0.0));
        let servers = self.nodes.iter_mut().chain(&mut self.links);
        own.extend(servers.zip(beside).map(|(s, b)| s.end_quantum(cycles, b)));
        self.note_waits();
    }

    fn add_interferer(&mut self, node: usize) {
        self.nodes[node].share_with(self.hog);
        self.note_waits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Rng;

    fn memory() -> QueuedMemory {
        let mut m = Machine::builtin("e7-4850v3").unwrap();
        m.interferer.outstanding = 190.0;
        m.memory.random_efficiency = 1.0;
        QueuedMemory::new(&m)
    }

    type With = fn(&mut QueuedMemory, usize, usize) -> f64;
    const ALONE: With = |_, _, _| 0.0;
    const WRITE_BACK: With = |m, from, home| m.write_back(from, home);
    const PREFETCH: With = |m, from, home| {
        m.prefetch(from, home);
        0.0
    };

    /// A closed population of `n` requesters on `from`, each sending its next
    /// line to `home` when the last arrived, `with` something else for
    /// each. Returns lines fetched per cycle.
    fn throughput(mem: &mut QueuedMemory, n: u32, from: usize, home: usize, with: With) -> f64 {
        let quantum = 20_000.0;
        let mut due = vec![0.0; n as usize];
        let (mut lines, rounds) = (0u64, 400);
        for round in 0..rounds {
            let end = quantum * f64::from(round + 1);
            for t in &mut due {
                while *t < end {
                    *t += mem.read(from, home);
                    *t += with(mem, from, home);
                    lines += u64::from(round >= rounds / 2);
                }
            }
            mem.end_quantum(quantum);
        }
        lines as f64 / (quantum * f64::from(rounds / 2))
    }

    #[test]
    fn an_idle_machine_has_its_nominal_latencies() {
        let mut m = memory();
        m.end_quantum(1e4);
        assert_eq!(m.read(0, 0), 280.0);
        assert_eq!(m.read(0, 3), 580.0);
        assert_eq!(m.forward(0, 3, 3), 360.0);
    }

    #[test]
    fn nodes_have_latency_and_bandwidth_of_their_own() {
        let text = crate::machine::BUILTIN[0].1.to_owned()
            + "[[node]]\nlatency = \"700 cycles\"\nbandwidth = \"7 GB/s\"\n";
        let mut machine = Machine::from_toml(&text).unwrap();
        machine.node[0].random_efficiency = Some(1.0);
        let mut m = QueuedMemory::new(&machine);
        assert_eq!((m.read(0, 4), m.read(0, 3)), (1000.0, 580.0));
        // Many requesters get what its memory has, less than the link.
        let many = throughput(&mut m, 400, 0, 4, ALONE);
        assert!((many * 4.0 * LINE - 1.0).abs() < 0.03, "{many}");
    }

    #[test]
    fn a_forwarded_line_is_read_where_the_directory_is_in_memory() {
        let read = |directory| {
            let mut m = Machine::builtin("e7-4850v3").unwrap();
            m.memory.directory = directory;
            let mut memory = QueuedMemory::new(&m);
            assert_eq!(memory.forward(0, 2, 3), 360.0);
            memory.end_quantum(1e4);
            (memory.lines_served(2), memory.lines_served(3))
        };
        assert_eq!((read(true), read(false)), ((0, 1), (0, 0)));
    }

    #[test]
    fn few_requesters_get_their_latency_and_many_get_the_bandwidth() {
        let one = throughput(&mut memory(), 1, 0, 0, ALONE);
        assert!((one * 280.0 - 1.0).abs() < 0.02, "{one}");
        let peak = 28e9 / 64.0 / 2.2e9;
        let many = throughput(&mut memory(), 400, 0, 0, ALONE);
        assert!((many / peak - 1.0).abs() < 0.03, "{many} of {peak}");
        let link = 11e9 / 64.0 / 2.2e9;
        let many = throughput(&mut memory(), 400, 0, 1, ALONE);
        assert!((many / link - 1.0).abs() < 0.03, "{many} of {link}");
    }

    #[test]
    fn a_line_written_back_takes_time_of_its_home_and_waits_only_in_queues() {
        let mut m = memory();
        assert_eq!((m.write_back(0, 0), m.write_back(0, 3)), (0.0, 0.0));
        m.end_quantum(1e4);
        assert_eq!((m.lines_served(0), m.lines_served(3)), (1, 1));
        m.add_interferer(1);
        m.end_quantum(1e4);
        let ahead = m.read(0, 1) - 580.0;
        assert!(ahead > 100.0);
        assert!((m.write_back(0, 1) - ahead).abs() < 1e-6);
        // Requesters that send a line back for each that they fetch get half
        // of a node, and of a link all of either direction.
        let peak = 28e9 / 64.0 / 2.2e9;
        let fetched = throughput(&mut memory(), 400, 0, 0, WRITE_BACK);
        assert!((fetched / peak - 0.5).abs() < 0.02, "{fetched} of {peak}");
        let link = 11e9 / 64.0 / 2.2e9;
        let fetched = throughput(&mut memory(), 400, 0, 1, WRITE_BACK);
        assert!((fetched / link - 1.0).abs() < 0.03, "{fetched} of {link}");
    }

    #[test]
    fn a_prefetched_line_takes_streaming_time_of_its_node_and_a_line_of_its_link() {
        let mut m = Machine::builtin("e7-4850v3").unwrap();
        m.memory.random_efficiency = 0.5;
        let mut random = QueuedMemory::new(&m);
        let peak = 28e9 / 64.0 / 2.2e9;
        // One random line takes two streamed lines' time, the other one.
        let fetched = throughput(&mut random, 800, 0, 0, PREFETCH);
        assert!((fetched / peak * 3.0 - 1.0).abs() < 0.03, "{fetched}");
        let link = 11e9 / 64.0 / 2.2e9;
        let fetched = throughput(&mut QueuedMemory::new(&m), 400, 0, 1, PREFETCH);
        assert!((fetched / link * 2.0 - 1.0).abs() < 0.03, "{fetched}");
    }

    #[test]
    fn a_filled_line_is_what_its_parts_are() {
        for (home, prefetched, modified) in (0..8).map(|i| (i & 1, i & 2 != 0, i & 4 != 0)) {
            let [mut whole, mut parts] = [memory(), memory()];
            for i in 1..=20_000 {
                if prefetched {
                    parts.prefetch(0, home);
                }
                let mut cycles = parts.read(0, home);
                if modified {
                    cycles += parts.write_back(0, home);
                }
                let filled = whole.fill(0, home, prefetched, modified);
                assert_eq!(filled, cycles, "node {home}, line {i}");
                if i % 400 == 0 {
                    whole.end_quantum(1e4);
                    parts.end_quantum(1e4);
                }
            }
        }
    }

    /// Cycles that a line needs of a node, and of the latency of a local one.
    const LINE: f64 = 64.0 / 28e9 * 2.2e9;
    const LOCAL: f64 = 280.0;
    const HOG: f64 = 190.0;

    /// Lines that `n` requesters of a node fetch there beside the hog, and that
    /// the hog does by Little's law, both as shares of what the node can do.
    fn beside_the_hog(n: u32) -> (f64, f64) {
        let mut m = memory();
        m.add_interferer(0);
        let ours = throughput(&mut m, n, 0, 0, ALONE) * LINE;
        (ours, HOG / m.read(0, 0) * LINE)
    }

    #[test]
    fn few_wait_beside_the_hog_until_a_line_takes_what_its_own_do() {
        let mut m = memory();
        m.add_interferer(1);
        m.end_quantum(1e4);
        let wait = HOG * LINE - LOCAL;
        assert!((m.read(0, 1) - (580.0 + wait)).abs() < 0.01 * wait);
        assert_eq!(m.read(0, 2), 580.0, "other nodes have no hog");
        let (one, _) = beside_the_hog(1);
        assert!((one * HOG - 1.0).abs() < 0.02, "{one}");
        // One that leaves its node half idle is hardly noticed.
        let mut m = Machine::builtin("e7-4850v3").unwrap();
        m.memory.random_efficiency = 1.0;
        m.interferer.outstanding = LOCAL / LINE / 2.0;
        let mut memory = QueuedMemory::new(&m);
        memory.add_interferer(0);
        let wait = memory.read(0, 0) - LOCAL;
        assert!(wait > 0.0 && wait < LINE, "{wait}");
    }

    #[test]
    fn those_whose_quanta_ended_before_are_a_hog_to_others() {
        // Two take turns of many quanta at node 1, 200 lines of each under way: as
        // 400 at the same time, they get half of what it can do each.
        let mut m = memory();
        let quantum = 20_000.0;
        let mut own = [Vec::new(), Vec::new()];
        let mut lines = [0u64; 2];
        for round in 0..8 {
            for who in 0..2 {
                let mut due = vec![0.0; 200];
                for part in 1..=40 {
                    for t in &mut due {
                        while *t < quantum * f64::from(part) {
                            *t += m.read(1, 1);
                            lines[who] += u64::from(round >= 4);
                        }
                    }
                    let other = own[1 - who].clone();
                    m.end_quantum_beside(quantum, &other, &mut own[who]);
                }
            }
        }
        for n in lines {
            let ours = n as f64 / (4.0 * 40.0 * quantum) * LINE;
            assert!((ours - 0.5).abs() < 0.02, "{ours}");
        }
        assert_eq!(m.read(0, 0), LOCAL, "nobody is at another node");
    }

    #[test]
    fn many_get_their_part_of_a_node_beside_the_hog() {
        for (n, part) in [(224, 0.54), (400, 0.68)] {
            let (ours, _) = beside_the_hog(n);
            assert!((ours - part).abs() < 0.01, "{n}: {ours}");
        }
    }

    #[test]
    fn a_shared_node_does_what_it_can_and_no_more() {
        for n in [1, 4, 30, 100, 800] {
            let (ours, hogs) = beside_the_hog(n);
            assert!((0.97..1.005).contains(&(ours + hogs)), "{n}: {ours} {hogs}");
        }
        // Requesters of two nodes at the memory of one, with the hog there.
        let mut m = memory();
        m.add_interferer(1);
        let quantum = 20_000.0;
        let mut due = [0.0; 300];
        let (mut lines, rounds) = (0u64, 400);
        for round in 0..rounds {
            let end = quantum * f64::from(round + 1);
            for (i, t) in due.iter_mut().enumerate() {
                while *t < end {
                    *t += m.read(i % 2, 1);
                    lines += u64::from(round >= rounds / 2);
                }
            }
            m.end_quantum(quantum);
        }
        let ours = lines as f64 / (quantum * f64::from(rounds / 2)) * LINE;
        let all = ours + HOG / m.read(1, 1) * LINE;
        assert!((0.97..1.005).contains(&all), "{all}");
    }

    /// Someone who has lines under way at a node's memory, and what each brings along.
    struct Requester {
        from: usize,
        home: usize,
        lines: usize,
        writes: bool,
        prefetched: bool,
    }

    #[test]
    fn whoever_asks_a_node_or_a_link_does_what_it_can_and_no_more() {
        let mut random = Rng::new(7);
        for case in 0..60 {
            let mut machine = Machine::builtin("e7-4850v3").unwrap();
            machine.memory.random_efficiency = 0.5 + random.below(6) as f64 / 10.0;
            machine.interferer.outstanding = random.below(300) as f64;
            let mut m = QueuedMemory::new(&machine);
            let hog = random.below(5) as usize;
            if hog < 4 {
                m.add_interferer(hog);
            }
            let who: Vec<Requester> = (0..1 + random.below(5))
                .map(|_| Requester {
                    from: random.below(4) as usize,
                    home: random.below(2) as usize,
                    lines: 1 + random.below(200) as usize,
                    writes: random.below(2) == 0,
                    prefetched: random.below(2) == 0,
                })
                .collect();
            let quantum = 20_000.0;
            let mut due: Vec<Vec<f64>> = who.iter().map(|r| vec![0.0; r.lines]).collect();
            let rounds = 300;
            // Time that lines of each kind have taken of servers, in cycles, once
            // waits have settled.
            let n = m.nodes.len();
            let (mut nodes, mut links) = (vec![0.0; n], vec![0.0; n * n]);
            let time = quantum * f64::from(rounds / 2);
            for round in 0..rounds {
                for (r, due) in who.iter().zip(&mut due) {
                    let streamed = m.nodes[r.home].unawaited;
                    for t in due {
                        while *t < quantum * f64::from(round + 1) {
                            *t += m.fill(r.from, r.home, r.prefetched, r.writes);
                            if round < rounds / 2 {
                                continue;
                            }
                            let [write, other] =
                                [r.writes, r.prefetched].map(|b| f64::from(u8::from(b)));
                            let lines = 1.0 + write + other * streamed;
                            nodes[r.home] += lines * m.nodes[r.home].service;
                            if r.from != r.home {
                                let [there, back] = [r.home * n + r.from, r.from * n + r.home];
                                links[there] += (1.0 + other) * m.links[there].service;
                                links[back] += write * m.links[back].service;
                            }
                        }
                    }
                }
                if round >= rounds / 2 {
                    // The hog's, by Little's law.
                    for (used, server) in nodes.iter_mut().zip(&m.nodes) {
                        *used += server.standing / (server.nominal + server.wait) * quantum;
                    }
                }
                m.end_quantum(quantum);
            }
            for (server, used) in nodes.iter().chain(&links).enumerate() {
                assert!(
                    used / time < 1.01,
                    "case {case}, server {server}: {}",
                    used / time
                );
            }
            // Nobody who has many lines under way leaves all that is on their way idle.
            for r in who.iter().filter(|r| r.lines > 150) {
                let [there, back] = [r.home * n + r.from, r.from * n + r.home];
                let busiest = [nodes[r.home], links[there], links[back]]
                    .into_iter()
                    .fold(0.0, f64::max);
                assert!(busiest / time > 0.9, "case {case}: {}", busiest / time);
            }
        }
    }
}
