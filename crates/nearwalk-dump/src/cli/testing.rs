// SPDX-License-Identifier: GPL-2.0-or-later
//! Made-up time and snapshots.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::clock::Clock;
use crate::stream::{Attrs, End, Header, Kind, NodeInfo, Run, Table, TableHead, View, Writer};

/// Time that passes when one sleeps.
#[derive(Default)]
pub struct Fake {
    pub now: Cell<Duration>,
    pub sleeps: RefCell<Vec<Duration>>,
}

impl Clock for Fake {
    fn now(&self) -> Duration {
        self.now.get()
    }

    fn sleep(&self, time: Duration) {
        self.sleeps.borrow_mut().push(time);
        self.now.set(self.now.get() + time);
    }
}

/// A snapshot of a process that has five pages.
pub fn stream(start_time_ns: u64) -> Vec<u8> {
    snapshot(start_time_ns, true)
}

pub fn snapshot(start_time_ns: u64, complete: bool) -> Vec<u8> {
    let mut writer = Writer::new(&Header {
        version: (1, 0),
        outside: false,
        replication: false,
        levels: 4,
        nr_nodes: 1,
        nr_domains: 0,
        pid: 7,
        realtime_ns: 0,
        boottime_ns: 0,
        start_time_ns,
        comm: "x".into(),
        release: "y".into(),
    });
    writer.node(NodeInfo {
        node: 0,
        online: true,
        cpus: true,
        memory: true,
    });
    let head = TableHead {
        level: 1,
        view: View::Canonical,
        addr: 0x20_0000,
        frame: 9,
        node: Some(0),
        replica: false,
        unread: false,
        same: false,
    };
    let run = Run {
        first: 3,
        count: 5,
        kind: Kind::Page,
        attrs: Attrs::NX,
        node: Some(0),
        frame: 77,
    };
    writer.table(Table { head, runs: &[run] });
    writer.end(End {
        complete,
        tables: 0,
        stretches: 1,
        duration_ns: 1,
    })
}
