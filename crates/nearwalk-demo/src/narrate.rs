// SPDX-License-Identifier: GPL-2.0-or-later
//! Tells people what they see, step by step.

use crate::{
    model::{Check, Event, Hypervisor, Machine, Picture, Progress, Run, Stage, Switch, View},
    number::{count, percent, plural, size, time},
    screen::Screen,
};

const STEPS: [&str; 7] = [
    "boot",
    "fill",
    "look",
    "replicate",
    "check",
    "move",
    "switch off",
];
/// Where text begins, after `1/7 switch off  `.
const MARGIN: usize = 16;

pub struct Narrator {
    screen: Screen,
    step: usize,
    /// The present step has said something.
    begun: bool,
}

impl Narrator {
    pub fn new(screen: Screen) -> Narrator {
        Narrator {
            screen,
            step: 0,
            begun: false,
        }
    }

    pub fn title(&mut self, nodes: usize) {
        self.screen.line(&format!(
            "Nearwalk demo: a memcached server on {nodes} memory nodes. While clients use it, its\n\
             page tables are copied to every node, moved to one node, and made one again.\n"
        ));
        self.progress("starting the virtual machine");
    }

    /// What somebody in the machine has to say who is not the driver.
    pub fn overheard(&mut self, line: &str) {
        self.screen.line(&format!("{:MARGIN$}({line})", ""));
    }

    /// Tells of an event that `run` has already been told of.
    pub fn event(&mut self, event: &Event, run: &Run) {
        match event {
            Event::Machine(machine) => {
                self.say(&boot(machine, run));
                self.next();
                self.progress("starting memcached");
            }
            Event::Server(_) => self.progress("clients begin to store values"),
            Event::Progress(progress) => self.progress(&match *progress {
                Progress::Stored { done, of } => format!("{} of {} stored", size(done), size(of)),
                Progress::Asked { requests } => {
                    format!("clients ask: {} requests", count(requests))
                }
                Progress::ReadBack { done, of } => {
                    format!("{} of {} values read back", count(done), count(of))
                }
            }),
            Event::Fill(fill) => {
                let server = run.server.as_ref();
                let (version, workers) =
                    server.map_or(("?", 0), |s| (s.version.as_str(), s.workers));
                let nodes = run.machine.as_ref().map_or(0, |m| m.nodes.len());
                self.say(&format!(
                    "memcached {version}, {} on {}, filled by {}:",
                    plural(workers, "thread"),
                    plural(nodes, "node"),
                    plural(workers, "client"),
                ));
                self.say(&format!(
                    "{} values of {}, {} in all, in {}",
                    count(fill.values),
                    size(fill.value_size),
                    size(fill.values * fill.value_size),
                    time(fill.seconds)
                ));
                self.next();
            }
            Event::Picture(picture) => self.picture(picture),
            Event::Switch(switch) => self.switch(switch, run),
            Event::Check(check) => self.check(check),
            Event::Leftover(left) => self.say(&format!(
                "{} pages of copies in use, {} were; allocated {}, freed {}",
                count(left.after),
                count(left.before),
                count(left.allocated),
                count(left.freed)
            )),
            Event::Load(load) if load.read_back > 0 => {
                self.say(&format!("all {} values read back", count(load.read_back)));
            }
            Event::Load(_) | Event::Finished => {}
            Event::Failed(reason) => self.say(&format!("FAILED: {reason}")),
        }
    }

    fn picture(&mut self, picture: &Picture) {
        if picture.stage == Stage::Before {
            self.say("leaf PTEs that a page walk finds on another node, seen from");
        }
        let share = |view: &View| {
            let share = percent(view.remote_share());
            format!("node {}: {share:>5}", view.node)
        };
        let shares: Vec<String> = picture.views.iter().map(share).collect();
        for line in shares.chunks(4) {
            self.say(&line.join("   "));
        }
        if picture.stage == Stage::Before {
            self.next();
        }
    }

    fn switch(&mut self, switch: &Switch, run: &Run) {
        let pid = run.server.as_ref().map_or(0, |server| server.pid);
        let (nodes, what) = match switch.stage {
            Stage::Replicated => ("all".into(), "a copy of the tables on every node"),
            Stage::OneNode => (
                switch.node.map_or("?".into(), |node| node.to_string()),
                "a copy on that node only",
            ),
            Stage::Before | Stage::Off => ("off".to_string(), "no copies"),
        };
        self.say(&format!(
            "nearwalk set {pid} {nodes}: {what}, after {}",
            time(switch.seconds)
        ));
        if switch.fallbacks > 0 {
            self.say(&format!(
                "{} tables had no room on their node",
                count(switch.fallbacks)
            ));
        }
    }

    fn check(&mut self, check: &Check) {
        if check.stage == Stage::Replicated {
            self.next();
        }
        self.say(&format!(
            "{} tables with {} entries compared by the kernel: {}",
            count(check.tables),
            count(check.entries),
            plural(check.differences as usize, "difference"),
        ));
        for example in &check.examples {
            self.say(example);
        }
        self.next();
    }

    fn say(&mut self, text: &str) {
        for line in text.lines() {
            let margin = if self.begun {
                String::new()
            } else {
                self.label()
            };
            self.screen.line(&format!("{margin:MARGIN$}{line}"));
            self.begun = true;
        }
    }

    fn progress(&mut self, text: &str) {
        let margin = if self.begun {
            String::new()
        } else {
            self.label()
        };
        self.screen.progress(&format!("{margin:MARGIN$}{text} ..."));
    }

    fn label(&self) -> String {
        let step = self.step.min(STEPS.len() - 1);
        format!("{}/{} {}", step + 1, STEPS.len(), STEPS[step])
    }

    fn next(&mut self) {
        self.step += 1;
        self.begun = false;
    }

    /// Text below the story.
    pub fn end(mut self, text: &str) {
        self.screen.line(&format!("\n{}", text.trim_end()));
    }
}

fn boot(machine: &Machine, run: &Run) -> String {
    let cpus: usize = machine.nodes.iter().map(|node| node.cpus.len()).sum();
    let how = match &machine.hypervisor {
        Some(Hypervisor::Tcg) => ", emulated (QEMU TCG)",
        Some(Hypervisor::Kvm) => ", under KVM",
        Some(Hypervisor::Other(_)) | None => "",
    };
    let took = run.boot_seconds.map_or(String::new(), |seconds| {
        format!(", up after {}", time(seconds))
    });
    format!(
        "Linux {}, {} with {}{how}{took}",
        machine.release,
        plural(machine.nodes.len(), "node"),
        plural(cpus, "CPU"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, screen::tests::Paper};

    /// The story of these events, as people read it.
    fn story(events: &[Event]) -> String {
        let paper = Paper::default();
        let mut narrator = Narrator::new(Screen::on_paper(paper.clone(), false));
        narrator.title(4);
        let mut run = Run {
            boot_seconds: Some(7.0),
            ..Run::default()
        };
        for event in events {
            run.add(event.clone());
            narrator.event(event, &run);
        }
        narrator.end("the summary");
        paper.text()
    }

    /// A good run as the driver tells it.
    fn events() -> Vec<Event> {
        let run = fixture::run();
        let mut events = vec![
            Event::Machine(run.machine.unwrap()),
            Event::Server(run.server.unwrap()),
            Event::Progress(Progress::Stored { done: 1, of: 2 }),
            Event::Fill(run.fill.unwrap()),
        ];
        let mut checks = run.checks.into_iter().map(Event::Check);
        let mut switches = run.switches.into_iter().map(Event::Switch);
        for picture in run.pictures {
            let stage = picture.stage;
            if stage != Stage::Before {
                events.extend(switches.next());
            }
            events.push(Event::Picture(picture));
            if stage != Stage::Before {
                events.extend(checks.next());
            }
        }
        events.push(Event::Leftover(run.leftover.unwrap()));
        events.push(Event::Load(run.load.unwrap()));
        events.push(Event::Finished);
        events
    }

    #[test]
    fn the_story_has_seven_steps() {
        let expected = "\
Nearwalk demo: a memcached server on 4 memory nodes. While clients use it, its
page tables are copied to every node, moved to one node, and made one again.

1/7 boot        Linux 6.12.0-test, 4 nodes with 8 CPUs, emulated (QEMU TCG), up after 7.0 s
2/7 fill        memcached 1.6.18, 8 threads on 4 nodes, filled by 8 clients:
                10,000 values of 32 KiB, 312 MiB in all, in 12 s
3/7 look        leaf PTEs that a page walk finds on another node, seen from
                node 0:  75 %   node 1:  75 %   node 2:  75 %   node 3:  75 %
4/7 replicate   nearwalk set 97 all: a copy of the tables on every node, after 50 ms
                node 0:   0 %   node 1:   0 %   node 2:   0 %   node 3:   0 %
5/7 check       660 tables with 337,920 entries compared by the kernel: 0 differences
6/7 move        nearwalk set 97 2: a copy on that node only, after 50 ms
                node 0:  75 %   node 1:  75 %   node 2:   0 %   node 3:  75 %
                165 tables with 84,480 entries compared by the kernel: 0 differences
7/7 switch off  nearwalk set 97 off: no copies, after 50 ms
                node 0:  75 %   node 1:  75 %   node 2:  75 %   node 3:  75 %
                0 pages of copies in use, 0 were; allocated 700, freed 700
                all 10,000 values read back

the summary
";
        assert_eq!(story(&events()), expected);
    }

    #[test]
    fn a_failure_is_told_in_the_step_that_it_ends() {
        let mut events = events();
        events.truncate(5);
        events.push(Event::Failed("no replication here".into()));
        assert!(story(&events).contains("\n4/7 replicate   FAILED: no replication here\n"));
    }

    #[test]
    fn many_nodes_take_several_lines() {
        let mut picture = fixture::run().pictures[0].clone();
        picture.views.extend(picture.views.clone());
        let story = story(&[Event::Picture(picture)]);
        assert_eq!(story.matches("node 3:  75 %\n").count(), 2);
    }

    #[test]
    fn what_the_driver_sends_is_what_the_host_hears() {
        for event in events() {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            let heard: Event = serde_json::from_str(&line).unwrap();
            assert_eq!(serde_json::to_string(&heard).unwrap(), line);
        }
    }
}
