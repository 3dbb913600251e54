// SPDX-License-Identifier: GPL-2.0-or-later
//! The table on runs of a machine so small that they take no time.

use super::*;
use crate::hatric::claims::Kind;

/// Reports of all cases of the quick set, shrunk.
fn data() -> Data {
    let mut o = defaults(4_000);
    o.turnover = 0.1;
    o.set.push("memory.per_node=\"64 MiB\"".to_owned());
    o.schemes = format!(
        "ideal,hatric,unitd,software;hatric:cotag=8;hatric:cotag=24;hatric:extra=1;\
         {EAGER};{FINE};{INFINITE};{ALL}"
    );
    let mut d = Data::default();
    for label in [BASE, "part.hatric.victim=\"4000 cycles\""] {
        let mut o = o.clone();
        if label.starts_with("part") {
            vary(label, &mut o).unwrap();
        }
        for p in PAGED {
            let report = Ready::new(&[p.to_owned()], 2, &o).unwrap().run(|_| ());
            d.reports
                .insert((label.to_owned(), p.to_owned()), report.unwrap());
        }
    }
    d
}

#[test]
fn each_claim_is_set_beside_what_was_run_and_the_rest_is_said_not_to_be() {
    let d = data();
    let rows: Vec<Row> = statements::all().iter().map(|c| row(c, &d)).collect();
    let find = |says: &str| rows.iter().find(|r| r.says.contains(says)).unwrap();
    let behind = find("UNITD++ is 5 to 10 % behind");
    let [least, most] = behind.ours.clone().unwrap();
    assert!(least.1 > 0.0 && least.1 <= most.1);
    assert_eq!((behind.of, behind.swept.is_some()), (1, true));
    // Not run: other policies, mixes, programs that fit.
    assert!(find("FIFO").ours.is_none() && find("more than 70 %").ours.is_none());
    let text = text(
        &rows,
        &[("slices of 200 cycles", 0.001, "software".to_owned())],
    );
    assert!(text.contains("| not run | order |"), "{text}");
    assert!(
        text.contains("no ratio moves by more than 0.10 %"),
        "{text}"
    );
    assert_eq!(csv(&rows).lines().count(), rows.len() + 1);
    for row in &rows {
        if row.holds == Some(false) {
            let missed = format!("{}, **missed**", row.kind);
            assert!(text.contains(&missed), "{}", row.says);
        }
    }
    let dir = std::env::temp_dir().join(format!("nearwalk-hatric-plots-{}", std::process::id()));
    plot::all(&d, &dir).unwrap();
    let chart = std::fs::read_to_string(dir.join("fig-2.16.svg")).unwrap();
    assert!(chart.contains("facesim unitd") && chart.ends_with("</svg>\n"));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 10);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_case_of_the_table_can_be_run_and_no_two_are_alike() {
    let words = ["table", "--mixes", "3"];
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: TableArgs,
    }
    let mut a = Cli::parse_from(words).args;
    let full = cases(&a).unwrap();
    a.quick = true;
    let quick = cases(&a).unwrap();
    assert!(quick.len() >= 40 && full.len() > 5 * quick.len() / 2);
    for (i, l) in full.iter().enumerate() {
        let same = |other: &&Labelled| other.ready.case == l.ready.case;
        assert!(full[..i].iter().find(same).is_none(), "{}", l.label);
    }
    // What no file has was not run, and nothing runs to print that.
    let file = std::env::temp_dir().join(format!("nearwalk-table-{}.jsonl", std::process::id()));
    a.output.out = Some(file.clone());
    let ready: Vec<Ready> = quick.into_iter().map(|l| l.ready).collect();
    let done = many::done(&ready, &a.output).unwrap();
    assert!(done.len() == ready.len() && done.iter().all(Option::is_none));
    std::fs::remove_file(&file).unwrap();
    // One run of the pager serves most of the sweeps.
    let mut ahead: Vec<String> = full.iter().filter_map(|l| l.ready.ahead()).collect();
    ahead.sort();
    ahead.dedup();
    assert!(
        ahead.len() < full.len() / 3,
        "{} of {}",
        ahead.len(),
        full.len()
    );
}

#[test]
fn a_claim_holds_if_all_of_its_values_are_within() {
    let all = statements::all();
    let c = all
        .iter()
        .find(|c| c.says.contains("UNITD++ is 5"))
        .unwrap();
    let values = |v: [f64; 2]| vec![("a".to_owned(), v[0]), ("b".to_owned(), v[1])];
    assert!(c.holds(&values([0.05, 0.1])) && !c.holds(&values([0.06, 0.11])));
    assert_eq!(show(0.0012, true), "0.12 %");
    assert_eq!(interval([0.5, 1.25], false), "0.500 to 1.250");
    // No more was fitted than the issue allows: three programs, and two of energy.
    let fitted = all.iter().filter(|c| c.kind == Kind::Fitted).count();
    assert_eq!(fitted, 5);
}
