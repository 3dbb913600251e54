// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether the run shows what the demo claims.

use crate::{
    model::{Run, Stage, View},
    number::{count, percent, plural},
};

/// A claim of the demo, and what the run says of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub claim: &'static str,
    pub finding: Finding,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Finding {
    Holds,
    /// The run did not come as far.
    NotReached,
    /// Not so, and why.
    Fails(Vec<String>),
}

impl Finding {
    fn of(problems: Vec<String>) -> Finding {
        if problems.is_empty() {
            Finding::Holds
        } else {
            Finding::Fails(problems)
        }
    }
}

/// All claims, in the order of the story.
pub fn verdicts(run: &Run) -> Vec<Verdict> {
    [
        ("the demo came to its end", finished as fn(&Run) -> Finding),
        ("before, walks from every node met remote leaf PTEs", remote),
        (
            "with a copy on every node, every walk was local",
            replicated,
        ),
        (
            "with a copy on one node, walks from there were local",
            moved,
        ),
        ("at the end no copy was left", off),
        ("the copies never differed from the original", identical),
        (
            "clients got every answer, and every one was right",
            answered,
        ),
        ("the kernel had nothing to complain of", quiet),
    ]
    .map(|(claim, judge)| Verdict {
        claim,
        finding: judge(run),
    })
    .into()
}

pub fn passed(run: &Run) -> bool {
    verdicts(run)
        .iter()
        .all(|verdict| verdict.finding == Finding::Holds)
}

fn finished(run: &Run) -> Finding {
    Finding::of(match (&run.failure, run.finished) {
        (Some(reason), _) => vec![reason.clone()],
        (None, false) => vec!["it ended early".into()],
        (None, true) => Vec::new(),
    })
}

/// Judges each view of a stage.
fn each_view(run: &Run, stage: Stage, judge: impl Fn(&View) -> Option<String>) -> Finding {
    match run.picture(stage) {
        None => Finding::NotReached,
        // A look at nothing proves nothing.
        Some(picture) if picture.views.is_empty() => Finding::NotReached,
        Some(picture) => Finding::of(picture.views.iter().filter_map(judge).collect()),
    }
}

fn remote(run: &Run) -> Finding {
    each_view(run, Stage::Before, |view| {
        (view.remote == 0).then(|| format!("none is remote from node {}", view.node))
    })
}

fn local(view: &View) -> Option<String> {
    if !view.own_tree {
        return Some(format!("node {} has no tables of its own", view.node));
    }
    (view.remote > 0 || view.local == 0).then(|| {
        format!(
            "{} of {} leaf PTEs are remote from node {} ({})",
            count(view.remote),
            count(view.local + view.remote),
            view.node,
            percent(view.remote_share())
        )
    })
}

fn none_of_its_own(view: &View) -> Option<String> {
    (view.own_tree || view.replica_pages > 0).then(|| {
        format!(
            "node {} still has tables of its own, {} pages",
            view.node,
            count(view.replica_pages)
        )
    })
}

fn replicated(run: &Run) -> Finding {
    each_view(run, Stage::Replicated, local)
}

fn moved(run: &Run) -> Finding {
    let target = run.switch(Stage::OneNode).and_then(|switch| switch.node);
    each_view(run, Stage::OneNode, |view| {
        if Some(view.node) == target {
            local(view)
        } else {
            none_of_its_own(view)
        }
    })
}

fn off(run: &Run) -> Finding {
    let Some(left) = &run.leftover else {
        return Finding::NotReached;
    };
    if left.after > left.before {
        return Finding::Fails(vec![format!(
            "{} pages of copies were not given back ({} before, {} after)",
            count(left.after - left.before),
            count(left.before),
            count(left.after)
        )]);
    }
    each_view(run, Stage::Off, none_of_its_own)
}

fn identical(run: &Run) -> Finding {
    let mut problems = Vec::new();
    for stage in [Stage::Replicated, Stage::OneNode] {
        let Some(check) = run.checks.iter().find(|check| check.stage == stage) else {
            continue;
        };
        if check.differences > 0 {
            problems.push(plural(check.differences as usize, "difference"));
            problems.extend(check.examples.iter().cloned());
        } else if check.tables == 0 {
            problems.push("no table was compared".into());
        }
    }
    if problems.is_empty() && run.checks.len() < 2 {
        return Finding::NotReached;
    }
    Finding::of(problems)
}

fn answered(run: &Run) -> Finding {
    let Some(load) = &run.load else {
        return Finding::NotReached;
    };
    if load.failed + load.wrong > 0 {
        let mut problems = vec![format!(
            "of {} requests {} failed and {} got a wrong answer",
            count(load.gets + load.sets),
            count(load.failed),
            count(load.wrong)
        )];
        problems.extend(load.examples.iter().cloned());
        return Finding::Fails(problems);
    }
    // Every value is read once more when all else is done.
    match &run.fill {
        Some(fill) if load.read_back == fill.values => Finding::Holds,
        _ => Finding::NotReached,
    }
}

fn quiet(run: &Run) -> Finding {
    Finding::of(run.kernel_report.iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    /// The claims that do not hold, with what is said of them.
    fn failing(run: &Run) -> Vec<(&'static str, Finding)> {
        verdicts(run)
            .into_iter()
            .filter(|verdict| verdict.finding != Finding::Holds)
            .map(|verdict| (verdict.claim, verdict.finding))
            .collect()
    }

    fn only_failure(run: &Run) -> String {
        match failing(run).as_slice() {
            [(_, Finding::Fails(problems))] => problems.join("; "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_good_run_passes() {
        assert_eq!(failing(&run()), []);
        assert!(passed(&run()));
    }

    #[test]
    fn one_remote_leaf_entry_is_too_many() {
        let mut run = run();
        run.pictures[1].views[3].remote = 1;
        assert!(only_failure(&run).contains("1 of 80,001 leaf PTEs are remote from node 3"));
        assert!(!passed(&run));
    }

    #[test]
    fn a_tree_that_is_not_there_is_not_local() {
        let mut run = run();
        run.pictures[1].views[2].own_tree = false;
        assert!(only_failure(&run).contains("node 2 has no tables"));
    }

    #[test]
    fn after_the_move_only_one_node_has_tables() {
        let mut run = run();
        run.pictures[2].views[0].replica_pages = 5;
        assert!(only_failure(&run).contains("node 0 still has tables of its own, 5 pages"));
    }

    #[test]
    fn copies_must_be_given_back() {
        let mut run = run();
        run.leftover.as_mut().unwrap().after = 3;
        assert!(only_failure(&run).contains("3 pages of copies"));
    }

    #[test]
    fn a_difference_is_told_in_the_kernels_words() {
        let mut run = run();
        run.checks[1].differences = 1;
        run.checks[1].examples = vec!["pid 9: entry".into()];
        assert_eq!(only_failure(&run), "1 difference; pid 9: entry");
    }

    #[test]
    fn a_check_of_nothing_proves_nothing() {
        let mut run = run();
        run.checks[0].tables = 0;
        assert!(!passed(&run));
    }

    #[test]
    fn one_wrong_answer_fails() {
        let mut run = run();
        let load = run.load.as_mut().unwrap();
        load.wrong = 1;
        load.examples = vec!["key 7: version 1; stored were 2 to 2".into()];
        assert!(only_failure(&run).contains("0 failed and 1 got a wrong answer; key 7"));
    }

    #[test]
    fn a_complaint_of_the_kernel_fails() {
        let mut run = run();
        run.kernel_report = Some("WARNING: CPU: 3".into());
        assert_eq!(only_failure(&run), "WARNING: CPU: 3");
    }

    #[test]
    fn a_run_that_ended_early_shows_what_it_reached() {
        let mut run = run();
        run.pictures.truncate(1);
        run.switches.clear();
        run.checks.clear();
        run.leftover = None;
        run.finished = false;
        run.failure = Some("no replication here".into());
        let failing = failing(&run);
        assert_eq!(
            failing[0].1,
            Finding::Fails(vec!["no replication here".into()])
        );
        assert_eq!(failing.len(), 5);
        assert!(
            failing[1..]
                .iter()
                .all(|(_, finding)| *finding == Finding::NotReached)
        );
    }
}
