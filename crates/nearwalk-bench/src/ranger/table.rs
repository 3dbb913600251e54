// SPDX-License-Identifier: GPL-2.0-or-later
//! The findings as text and CSV.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::{
    model::{Findings, Run, Sample},
    plan::{Class, Program, Setting},
};

/// What the last pass can leave where it is, and why it must: frames that cannot be had.
const FIXED: [&str; 5] = ["kernel", "free", "hugetlb", "pinned", "mlocked"];

/// All of it, for people.
pub fn text(findings: &Findings) -> String {
    let mut text = String::new();
    contiguity(&mut text, findings);
    rested(&mut text, findings);
    done(&mut text, findings);
    text
}

fn setting_of(run: &Run) -> Option<Setting> {
    Setting::from_str(&run.begin.setting, false).ok()
}

fn class_of(run: &Run) -> Option<Class> {
    Program::from_str(&run.begin.program, false)
        .ok()
        .map(Program::class)
}

fn class_name(run: &Run) -> &'static str {
    match class_of(run) {
        Some(Class::A) => "A",
        Some(Class::B) => "B",
        None => "?",
    }
}

/// Runs by program, and in the order of settings.
fn by_program(findings: &Findings) -> Vec<&Run> {
    let mut runs: Vec<&Run> = findings.runs.iter().collect();
    runs.sort_by_key(|run| {
        let program = Program::from_str(&run.begin.program, false).ok();
        Program::value_variants()
            .iter()
            .position(|&p| Some(p) == program)
    });
    runs
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0))
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn contiguity(text: &mut String, findings: &Findings) {
    text.push_str(
        "How the memory of programs lies (Figures 4.8 and 4.9). Counted: means over the steps\n\
         in which all of it is in use, and the largest region of the last one, in MiB. 'scaled'\n\
         are as many regions as 32 and 128 are of 120 GB, so that they are as large.\n\
         Published: of 32 and 128 regions of 120 GB, on hardware; compare with 'scaled'.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<9}{:<2}{:<18}{:>8}{:>9}{:>8}{:>9}{:>9}{:>11}{:>11}{:>8}{:>8}{:>9}{:>8}{:>8}  published 32, 128",
        "program",
        "",
        "setting",
        "MiB",
        "regions",
        "/first",
        "32 cover",
        "128",
        "scaled 32",
        "scaled 128",
        "N80",
        "N90",
        "N99",
        "largest",
        "2M fit"
    );
    let mut first: Option<(&str, f64)> = None;
    for run in by_program(findings) {
        let regions = run.mean(|sample| sample.regions as f64);
        let program = run.begin.program.as_str();
        match (first, regions) {
            (Some((name, _)), _) if name == program => {}
            (_, Some(regions)) => {
                if first.is_some() {
                    text.push('\n');
                }
                first = Some((program, regions));
            }
            _ => first = None,
        }
        let cover = |nr: usize| percent(run.mean(|sample| sample.coverage[nr]));
        let needed = |nr: usize| number(run.mean(|sample| sample.needed[nr] as f64));
        let scaled = |nr: usize| format!("{} x{}", cover(nr), run.begin.regions[nr]);
        let ratio = match (first, regions) {
            (Some((_, first)), Some(regions)) => format!("{:.2}", regions / first),
            _ => "-".into(),
        };
        let last = run.samples.last();
        let published = match (setting_of(run), class_of(run)) {
            (Some(setting), Some(class)) => setting.published(class),
            _ => None,
        };
        let published = published.map_or("-".into(), |[few, many]| format!("{few}, {many}"));
        let _ = writeln!(
            text,
            "{program:<9}{:<2}{:<18}{:>8}{:>9}{ratio:>8}{:>9}{:>9}{:>11}{:>11}{:>8}{:>8}{:>9}{:>8}{:>8}  {published}",
            class_name(run),
            run.begin.setting,
            last.map_or("-".into(), |last| mib(last.bytes)),
            number(regions),
            cover(0),
            cover(1),
            scaled(2),
            scaled(3),
            needed(0),
            needed(1),
            needed(2),
            last.map_or("-".into(), |last| mib(last.largest_bytes)),
            percent(run.mean(|sample| sample.aligned[0])),
        );
    }
}

fn number(mean: Option<f64>) -> String {
    mean.map_or_else(|| "-".into(), |mean| format!("{mean:.0}"))
}

fn rested(text: &mut String, findings: &Findings) {
    if findings.runs.iter().all(|run| run.end.is_none()) {
        return;
    }
    text.push_str(
        "\nPasses over a program that rests, after its last step. Counted: pages that each pass\n\
         moved or exchanged; regions of all its memory; places that parts of mappings have, and\n\
         regions of what is in them; pages that the last pass left elsewhere because their frame\n\
         cannot be had (fixed), or for another reason. It holds if regions in places are no more\n\
         than fixed pages and places together.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<9}{:<18}{:>18}{:>9}{:>8}{:>11}{:>8}{:>8}{:>7}  why",
        "program",
        "setting",
        "passes",
        "regions",
        "places",
        "in places",
        "fixed",
        "others",
        "holds"
    );
    for run in by_program(findings) {
        let Some(end) = &run.end else { continue };
        let passes: Vec<String> = end.passes.iter().map(u64::to_string).collect();
        let left = |name: &&str| end.pages.get(*name).copied().unwrap_or(0);
        let fixed: u64 = FIXED.iter().map(&left).sum();
        let others: Vec<(&str, u64)> = OTHERS
            .iter()
            .map(|name| (*name, left(name)))
            .filter(|(_, pages)| *pages != 0)
            .collect();
        let why: Vec<String> = FIXED
            .iter()
            .map(|name| (*name, left(name)))
            .filter(|(_, pages)| *pages != 0)
            .chain(others.iter().copied())
            .map(|(name, pages)| format!("{name} {pages}"))
            .collect();
        let holds = end.home_regions <= fixed + end.places;
        let _ = writeln!(
            text,
            "{:<9}{:<18}{:>18}{:>9}{:>8}{:>11}{fixed:>8}{:>8}{:>7}  {}",
            run.begin.program,
            run.begin.setting,
            passes.join(" "),
            end.regions,
            end.places,
            end.home_regions,
            others.iter().map(|(_, pages)| pages).sum::<u64>(),
            if holds { "yes" } else { "no" },
            why.join(", "),
        );
    }
}

/// And other reasons.
const OTHERS: [&str; 8] = [
    "no_claim",
    "twin",
    "unaligned",
    "file",
    "ksm",
    "size",
    "busy",
    "gone",
];

fn done(text: &mut String, findings: &Findings) {
    text.push_str(
        "\nWhat it took (Figure 4.10), counted: MiB that passes moved to free frames, exchanged,\n\
         and moved out of the way; the kernel's huge pages and compactions. CPU time of passes\n\
         is the emulator's, and says nothing of hardware.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<9}{:<18}{:>9}{:>11}{:>9}{:>9}{:>10}{:>10}{:>10}{:>12}{:>9}",
        "program",
        "setting",
        "moved",
        "exchanged",
        "evicted",
        "CPU s",
        "THP touch",
        "no THP",
        "collapsed",
        "compactions",
        "free 2M"
    );
    for run in by_program(findings) {
        let Some(last) = run.samples.last() else {
            continue;
        };
        let event = |name: &str| last.events.get(name).copied().unwrap_or(0);
        let pages = |pages: u64| mib(super::driver::bytes(pages));
        // Blocks of 2 MiB, and twice as many in each of 4 MiB.
        let free: u64 = run
            .begin
            .free_blocks
            .iter()
            .enumerate()
            .skip(9)
            .map(|(order, blocks)| blocks << (order - 9))
            .sum();
        let _ = writeln!(
            text,
            "{:<9}{:<18}{:>9}{:>11}{:>9}{:>9.1}{:>10}{:>10}{:>10}{:>12}{free:>9}",
            run.begin.program,
            run.begin.setting,
            pages(last.moved),
            pages(last.exchanged),
            pages(last.evicted),
            last.cpu_us as f64 / 1e6,
            event("thp_fault_alloc"),
            event("thp_fault_fallback"),
            event("thp_collapse_alloc"),
            event("compact_stall"),
        );
    }
}

/// A line for each step of each program with each setting, with a head.
pub fn csv(findings: &Findings) -> String {
    let mut text = String::from(
        "program,class,setting,step,bytes,regions,coverage_32,coverage_128,scaled_32,\
         coverage_scaled_32,scaled_128,coverage_scaled_128,n80,n90,n99,largest_bytes,aligned_2m,\
         aligned_1g,moved_pages,exchanged_pages,evicted_pages,cpu_us\n",
    );
    for run in &findings.runs {
        for sample in &run.samples {
            csv_line(&mut text, run, sample);
        }
    }
    text
}

fn csv_line(text: &mut String, run: &Run, sample: &Sample) {
    let [c32, c128, few, many] = sample.coverage;
    let [_, _, scaled_32, scaled_128] = run.begin.regions;
    let [n80, n90, n99] = sample.needed;
    let [fit_2m, fit_1g] = sample.aligned;
    let _ = writeln!(
        text,
        "{},{},{},{},{},{},{c32:.6},{c128:.6},{scaled_32},{few:.6},{scaled_128},{many:.6},\
         {n80},{n90},{n99},{},{fit_2m:.6},{fit_1g:.6},{},{},{},{}",
        run.begin.program,
        class_name(run),
        run.begin.setting,
        sample.step,
        sample.bytes,
        sample.regions,
        sample.largest_bytes,
        sample.moved,
        sample.exchanged,
        sample.evicted,
        sample.cpu_us,
    );
}

#[cfg(test)]
mod tests {
    use super::{super::model::tests::findings, *};

    #[test]
    fn each_program_has_a_line_a_setting() {
        let text = text(&findings());
        let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("gups")).collect();
        assert_eq!(lines.len(), 2 + 1 + 2, "{text}");
        assert!(lines[0].contains("< 1 %, < 1 %"), "{text}");
        assert!(lines[1].contains("> 60 %, > 90 %"), "{text}");
        // Four regions of three pages that cannot be in their place, and one place.
        assert!(lines[2].contains("12 0"), "{text}");
        assert!(lines[2].contains(" yes  kernel 3"), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_not_there() {
        let mut findings = findings();
        findings.runs.truncate(1);
        findings.runs[0].samples.clear();
        let text = text(&findings);
        assert!(text.contains("gups     A default"), "{text}");
        assert!(!text.contains("rests"), "{text}");
    }

    #[test]
    fn scripts_have_a_line_a_step() {
        let csv = csv(&findings());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 11);
        let columns = |line: &str| line.split(',').count();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])));
        assert!(lines[1].starts_with("gups,A,default,0,1073741824,1000,0.1"));
    }
}
