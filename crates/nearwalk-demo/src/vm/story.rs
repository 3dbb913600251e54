// SPDX-License-Identifier: GPL-2.0-or-later
//! The story on a terminal as it goes, and the closing summary.

use std::fmt::Write as _;

use super::model::{Event, Look, Run, Stage, passed, share, verdicts};
use crate::{
    number::{count, percent, plural, size, time},
    screen::Screen,
};

const STEPS: [&str; 7] = ["boot", "guest", "fill", "look", "nested", "guest's", "off"];
const MARGIN: usize = 14;

pub struct Story {
    screen: Screen,
    step: usize,
    begun: bool,
}

impl Story {
    pub fn new(screen: Screen) -> Story {
        Story {
            screen,
            step: 0,
            begun: false,
        }
    }

    pub fn title(&mut self, nodes: u32) {
        self.screen.line(&format!(
            "Nearwalk demo of a virtual machine: memcached in a guest of {nodes} memory nodes. A walk\n\
             goes through two tables, the guest's and, nested below it, the host's. While clients\n\
             ask, the host gets a tree of nested tables for each node, the guest copies of its own.\n"
        ));
        self.progress("starting the machine that is the host here");
    }

    pub fn overheard(&mut self, line: &str) {
        self.screen.line(&format!("{:MARGIN$}({line})", ""));
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Machine {
                release,
                nodes,
                cpus,
            } => self.end(&format!(
                "the host: Linux {release}, {} with {}, emulated",
                plural(*nodes as usize, "node"),
                plural(*cpus as usize, "CPU")
            )),
            Event::Guest {
                release,
                nodes,
                memory,
            } => self.end(&format!(
                "in it a guest of KVM: Linux {release}, {} with a CPU each, {memory}",
                plural(*nodes as usize, "node")
            )),
            Event::Server {
                version,
                values,
                value_size,
                ..
            } => self.end(&format!(
                "memcached {version} in the guest, {} values of {}, {} in all",
                count(*values),
                size(*value_size),
                size(values * value_size)
            )),
            Event::Progress(text) => self.progress(text),
            Event::Did(text) => self.say(text),
            Event::Look(look) => self.look(look),
            Event::Check(check) => self.end(&format!(
                "compared by the host's kernel {} leaves, {} violations; by the guest's {} \
                 entries, {} differences",
                count(check.leaves),
                count(check.violations),
                count(check.entries),
                count(check.differences)
            )),
            Event::Load(load) => self.say(&format!(
                "{} requests; {} values read back",
                count(load.requests),
                count(load.read_back)
            )),
            Event::Finished => {}
            Event::Failed(why) => self.say(&format!("FAILED: {why}")),
        }
    }

    fn look(&mut self, look: &Look) {
        match look.stage {
            Stage::Before => {
                self.say("walks that are local in both halves, seen from");
                self.end(&near(look));
            }
            Stage::Nested => {
                self.say(&near(look));
                let far = look.classes.iter().map(|c| c.lr + c.rr).sum::<u64>();
                self.end(&format!(
                    "{} nested leaves on another node; {} trees with {} pages",
                    count(far),
                    look.trees,
                    count(look.tables)
                ));
            }
            Stage::Both => self.say(&near(look)),
            Stage::Off => {
                self.say(&near(look));
                let (trees, tables) = (plural(look.trees as usize, "tree"), count(look.tables));
                self.say(&format!(
                    "{trees} with {tables} pages, the largest there was: all of it lies on one node"
                ));
            }
        }
    }

    fn end(&mut self, text: &str) {
        self.say(text);
        self.next();
    }

    fn next(&mut self) {
        self.step = (self.step + 1).min(STEPS.len() - 1);
        self.begun = false;
    }

    fn say(&mut self, text: &str) {
        let head = match self.begun {
            true => String::new(),
            false => format!("{}/{} {}", self.step + 1, STEPS.len(), STEPS[self.step]),
        };
        self.begun = true;
        self.screen.line(&format!("{head:MARGIN$}{text}"));
    }

    fn progress(&mut self, text: &str) {
        let step = self.step;
        let head = format!("{}/{} {}", step + 1, STEPS.len(), STEPS[step]);
        self.screen.progress(&format!("{head:MARGIN$}{text}"));
    }

    pub fn last(mut self, text: &str) {
        self.screen.line(text);
    }
}

fn near(look: &Look) -> String {
    let words = look.classes.iter().map(|classes| {
        let share = percent(share(classes.ll, classes));
        format!("node {}: {share:>5}", classes.node)
    });
    words.collect::<Vec<_>>().join("   ")
}

/// A screen of text.
pub fn summary(run: &Run) -> String {
    let mut text = String::new();
    if let Some(first) = run.looks().next() {
        let heads: String = first
            .classes
            .iter()
            .map(|c| format!("{:>8}", c.node))
            .collect();
        let width = heads.len().max(24);
        let _ = writeln!(
            text,
            "\n{:14}{:width$}   nested tables\n{:14}{heads:width$}   {:>6}{:>8}",
            "", "local in both halves, from node", "", "trees", "pages"
        );
        for look in run.looks() {
            let cells = look.classes.iter();
            let cells: String = cells
                .map(|c| format!("{:>8}", percent(share(c.ll, c))))
                .collect();
            let _ = writeln!(
                text,
                "{:14}{cells:width$}   {:>6}{:>8}",
                look.stage.name(),
                look.trees,
                count(look.tables)
            );
        }
    }
    if let Some(absent) = absent(run) {
        let _ = writeln!(text, "\n{absent}");
    }
    if let Some(load) = run.load() {
        let _ = writeln!(
            text,
            "\nclients  {} requests, each byte of each answer looked at: {} failed, {} wrong",
            count(load.requests),
            count(load.failed),
            count(load.wrong)
        );
    }
    let _ = writeln!(
        text,
        "counted in this run, which took {}; emulated, so that times say nothing\n",
        time(run.seconds)
    );
    for (claim, problems) in verdicts(run) {
        match problems {
            None => drop(writeln!(text, "not reached: {claim}")),
            Some(problems) if !problems.is_empty() => {
                let _ = writeln!(text, "not so: {claim}");
                for problem in problems {
                    let _ = writeln!(text, "    {}", problem.trim_end().replace('\n', "\n    "));
                }
            }
            Some(_) => {}
        }
    }
    text += if passed(run) { "PASSED" } else { "FAILED" };
    text
}

/// What trees that are filled by use do not have yet.
fn absent(run: &Run) -> Option<String> {
    let look = run.look(Stage::Both)?;
    let of = |f: fn(&nearwalk_vm::guest::Classes) -> u64| look.classes.iter().map(f).sum::<u64>();
    let (absent, all) = (of(|c| c.absent), of(|c| c.pages()));
    Some(format!(
        "shares are of what a node's CPUs have used since; {} of the pages were in no nested\n\
         table of theirs yet (absent), with a tree and a copy for each node",
        percent(absent as f64 / all.max(1) as f64)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{screen::tests::Paper, vm::model::tests::run};

    #[test]
    fn the_story_has_its_steps() {
        let paper = Paper::default();
        let mut story = Story::new(Screen::on_paper(paper.clone(), false));
        for event in &run().events {
            story.event(event);
        }
        let text = paper.text();
        for part in [
            "1/7 boot      memcached 1.6 in the guest, 64 values of 32 KiB, 2 MiB in all\n",
            "node 0:  25 %   node 1:  25 %",
            "0 nested leaves on another node; 2 trees with 190 pages",
            "by the host's kernel 200 leaves, 0 violations; by the guest's 180 entries, 0 differences",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
    }

    #[test]
    fn the_summary_ends_in_a_verdict() {
        let text = summary(&run());
        assert!(text.ends_with("\nPASSED"), "{text}");
        assert!(text.contains("nested+guest     100 %   100 %"), "{text}");
        assert!(text.contains("10 % of the pages"), "{text}");
        let text = summary(&Run::default());
        assert!(
            text.ends_with("FAILED") && text.contains("it ended early"),
            "{text}"
        );
    }
}
