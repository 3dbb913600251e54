// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver: runs in the machine with several nodes, starts the server and
//! its clients, takes the server's page tables from stage to stage, and tells
//! the host what it sees, one JSON object a line on standard output.

mod client;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod server;
pub(crate) mod tables;
mod tally;
mod value;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;

use nearwalk_bench::vm::wire::tell;
use nearwalk_repl::Request;

use self::{
    load::{Clients, Data, Shared},
    server::Server,
    tables::{Counters, Tables},
};
use crate::model::{Event, Fill, Phase, Picture, Progress, Stage, Switch};

/// After this long, what does not happen does not happen: an answer, the
/// server's start, the freeing of copies. An emulated machine on a busy host
/// can take many seconds over any of them.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a long step tells how far it is.
const TICK: Duration = Duration::from_millis(500);

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Values to store.
    pub values: u64,
    /// Bytes of each.
    pub value_size: usize,
    /// How long the clients ask in each stage.
    pub stay: Duration,
    /// Leave NUMA balancing as it is, else switch it off.
    pub numa_balancing: bool,
}

/// Runs the plan; an error is told like everything else.
pub fn drive(plan: &Plan) -> bool {
    let result = run(plan);
    let event = match &result {
        Ok(()) => Event::Finished,
        Err(error) => Event::Failed(format!("{error:#}")),
    };
    tell(&event).is_ok() && result.is_ok()
}

fn progress(progress: Progress) -> anyhow::Result<()> {
    tell(&Event::Progress(progress))
}

fn run(plan: &Plan) -> anyhow::Result<()> {
    if !plan.numa_balancing {
        machine::stop_numa_balancing()?;
    }
    let machine = machine::look()?;
    tell(&Event::Machine(machine.clone()))?;
    let cpus: Vec<u32> = machine
        .nodes
        .iter()
        .flat_map(|node| node.cpus.iter().copied())
        .collect();

    let bytes = plan.values * plan.value_size as u64;
    let mut server = Server::start(&cpus, bytes)?;
    // Clients after everybody else who connects: one for each worker.
    let mut clients = Clients::connect(server.address, &cpus)?;
    tell(&Event::Server(crate::model::Server {
        version: server.version.clone(),
        pid: server.pid(),
        workers: cpus.len(),
        clients: clients.len(),
    }))?;

    let data = Data {
        values: plan.values,
        value_size: plan.value_size,
    };
    let mut shared = Shared::new(data, Phase::Stay(Stage::Before));
    let start = Instant::now();
    clients.store_all(&shared, |values| {
        let done = values * plan.value_size as u64;
        progress(Progress::Stored { done, of: bytes })
    })?;
    tell(&Event::Fill(Fill {
        values: plan.values,
        value_size: plan.value_size as u64,
        seconds: start.elapsed().as_secs_f64(),
    }))?;

    let mut tables = Tables::open(server.pid(), &machine.release)?;
    shared.begin();
    let (done, mut load) = clients.ask_during(&shared, || {
        let mut story = Story {
            plan,
            shared: &shared,
            server: &mut server,
            tables: &mut tables,
        };
        let nodes: Vec<u32> = machine.nodes.iter().map(|node| node.node).collect();
        story.tell(&nodes)
    });
    // What the clients saw is worth knowing after a failure above all.
    if done.is_err() || load.failed + load.wrong > 0 {
        tell(&Event::Load(load))?;
        return done;
    }
    clients.read_all(&shared, |values| {
        progress(Progress::ReadBack {
            done: values,
            of: plan.values,
        })
    })?;
    load.read_back = plan.values;
    load.gets += plan.values;
    tell(&Event::Load(load))
}

/// What happens to the server while the clients ask.
struct Story<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    server: &'a mut Server,
    tables: &'a mut Tables,
}

impl Story<'_> {
    fn tell(&mut self, nodes: &[u32]) -> anyhow::Result<()> {
        self.stay()?;
        self.look(Stage::Before)?;
        tables::require_support()?;
        let counters = Counters::read()?;

        self.switch(Stage::Replicated, &Request::All)?;
        self.stay()?;
        self.look(Stage::Replicated)?;
        self.check(Stage::Replicated)?;

        let target = [nodes[nodes.len() / 2]].into_iter().collect();
        self.switch(Stage::OneNode, &Request::Nodes(target))?;
        self.stay()?;
        self.look(Stage::OneNode)?;
        self.check(Stage::OneNode)?;

        self.switch(Stage::Off, &Request::Off)?;
        self.stay()?;
        self.look(Stage::Off)?;
        tell(&Event::Leftover(counters.leftover(PATIENCE)?))
    }

    /// Lets the clients ask for a while.
    fn stay(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.plan.stay {
            thread::sleep(TICK.min(self.plan.stay - start.elapsed()));
            if let Some(ended) = self.server.has_ended() {
                bail!(ended);
            }
            let requests = self.shared.answered();
            progress(Progress::Asked { requests })?;
        }
        Ok(())
    }

    fn look(&mut self, stage: Stage) -> anyhow::Result<()> {
        let at = self.shared.now();
        let views = self.tables.look()?;
        tell(&Event::Picture(Picture { stage, at, views }))
    }

    /// Makes the request that brings the tables into `stage`.
    fn switch(&mut self, stage: Stage, request: &Request) -> anyhow::Result<()> {
        self.shared.enter(Phase::Switch(stage));
        let at = self.shared.now();
        let result = tables::set(self.server.pid(), request);
        self.shared.enter(Phase::Stay(stage));
        let seconds = result?;
        let status = tables::status(self.server.pid())?;
        tell(&Event::Switch(Switch {
            stage,
            request: request.to_string(),
            node: match request {
                Request::Nodes(nodes) => nodes.iter().next(),
                Request::Default | Request::Off | Request::All | Request::Lazy { .. } => None,
            },
            at,
            seconds,
            fallbacks: status.fallbacks,
        }))
    }

    fn check(&self, stage: Stage) -> anyhow::Result<()> {
        tell(&Event::Check(tables::check(self.server.pid(), stage)?))
    }
}
