// SPDX-License-Identifier: GPL-2.0-or-later
//! What is on the screen, of recorded hosts: `snapshots`.

#[path = "../../nearwalk-advise/tests/common/mod.rs"]
mod common;

use std::path::Path;

use clap::Parser;
use common::{Host, MIB, expect, four_nodes, scratch};
use nearwalk_host::{Live, Recorded, Source};
use nearwalk_top::cli::{self, Args};
use nearwalk_top::draw::{Lines, draw, screen};
use nearwalk_top::frame::Frame;
use nearwalk_top::sample;
use nearwalk_top::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::TableState;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

#[derive(Parser)]
struct Top {
    #[command(flatten)]
    args: Args,
}

/// The exit status, what is printed, and what is said to stderr.
fn print_on(live: &mut dyn Source, words: &[&str]) -> (u8, String, String) {
    let words = ["top", "--once"].into_iter().chain(words.iter().copied());
    let args = Top::try_parse_from(words).unwrap().args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = cli::print(&args, live, 80, &mut out, &mut err).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status, text(out), text(err))
}

fn print(words: &[&str]) -> (u8, String, String) {
    print_on(&mut Live::default(), words)
}

fn frame(dir: &Path) -> Frame {
    let mut recorded = Recorded::open(dir).unwrap();
    let length = recorded.length();
    sample::once(&mut recorded, length).unwrap()
}

fn drawn(frame: &Frame, view: &View, size: (u16, u16)) -> String {
    drawn_beside(frame, view, &Lines::default(), size)
}

fn drawn_beside(frame: &Frame, view: &View, lines: &Lines, (width, height): (u16, u16)) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(
        frame,
        view,
        lines,
        &mut TableState::default(),
        area,
        &mut buffer,
    );
    screen(&buffer)
}

/// Compares with the screens of a host in all sizes, one of its groups opened.
fn expect_screens(name: &str, host: &Host) {
    let frame = frame(&host.record(name));
    let mut view = View::default();
    view.opened.insert("kubepods/pod-7".to_owned());
    for size in SIZES {
        let file = format!("{name}-{}x{}.txt", size.0, size.1);
        expect(&file, &drawn(&frame, &view, size));
    }
}

/// A user without rights on a stock kernel: others' processes are closed.
fn without_rights() -> Host {
    let mut host = four_nodes();
    for index in [2, 5] {
        let pid = host.groups[index].processes[0].pid;
        host.odd
            .insert(format!("/proc/{pid}/task"), Err(libc::EACCES));
    }
    host
}

/// Our kernel, on which one group is eager, one lazy, and in one the processes
/// differ.
fn ours() -> Host {
    let mut host = four_nodes();
    host.kernel = "6.12.117-nearwalk".into();
    let mut file = |path: String, text: String| {
        host.odd.insert(path, Ok(text));
    };
    let status = |mode: &str, pages: u64| {
        format!("mode:\t{mode}\nnodes:\t0-3\nsource:\tcgroup\npages:\tN1={pages}\nfallbacks:\t0\n")
    };
    file("/proc/self/pgtable_repl".into(), status("off", 0));
    let lazy = status("lazy", 300)
        + "prefetch:\t3\nfills:\t65812\nipis:\trequested=37710 sent=1003 saved=36707\n";
    for (pid, name, text, bytes) in [
        (
            1100,
            "system.slice/memcached.service",
            status("eager", 9000),
            9000 << 12,
        ),
        (1200, "system.slice/redis.service", lazy, 300 << 12),
        (1500, "kubepods/pod-7", status("eager", 70), 70 << 12),
    ] {
        let mode = text.split(['\t', '\n']).nth(1).unwrap().to_owned();
        file(format!("/proc/{pid}/pgtable_repl"), text);
        let dir = format!("/sys/fs/cgroup/{name}/memory.pgtable_repl");
        file(format!("{dir}.current"), format!("{bytes}\n"));
        let effective = if name.contains("pod") {
            "off".into()
        } else {
            format!("{mode} 0-3")
        };
        file(format!("{dir}.effective"), effective + "\n");
    }
    file("/proc/1590/pgtable_repl".into(), status("off", 0));
    host
}

#[test]
fn a_stock_kernel_without_rights() {
    expect_screens("without-rights", &without_rights());
}

#[test]
fn a_stock_kernel() {
    expect_screens("stock", &four_nodes());
}

#[test]
fn our_kernel() {
    expect_screens("ours", &ours());
}

#[test]
fn once_is_text_with_all_rows() {
    let mut host = Host::new(2, 8);
    for index in 0..30 {
        host.service(&format!("s{index:02}"), &[100 * MIB, 0], &[1]);
    }
    let dir = host.record("once");
    let (status, out, err) = print(&["--from", dir.to_str().unwrap()]);
    assert_eq!((status, err.as_str()), (0, ""));
    let rows = out.lines().filter(|line| line.starts_with('s')).count();
    assert_eq!(rows, 30, "{out}");
}

#[test]
fn what_was_recorded_is_shown_again() {
    let dir = scratch("top-recorded");
    let mut live = Recorded::open(&four_nodes().record("top-live")).unwrap();
    let (status, out, err) = print_on(&mut live, &["--record", dir.to_str().unwrap()]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("system.slice/redis.service"), "{out}");
    assert_eq!(
        print(&["--from", dir.to_str().unwrap()]),
        (0, out, String::new())
    );
}

#[test]
fn this_host_is_shown() {
    let (status, out, err) = print(&["--interval", "0.5"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("nearwalk top  "), "{out}");
    assert!(out.lines().nth(1).unwrap().starts_with("NAME "), "{out}");
}

#[test]
fn one_node_is_said() {
    let mut host = Host::new(1, 8);
    host.service("system.slice/big.service", &[900 * MIB], &[0]);
    expect(
        "one-node-80x24.txt",
        &drawn(&frame(&host.record("top-one")), &View::default(), SIZES[0]),
    );
}

#[test]
fn many_nodes_have_bars_or_nothing() {
    for nodes in [8u32, 64] {
        let mut host = Host::new(nodes, 4);
        let mut tables = vec![0; nodes as usize];
        tables[0] = 100 * MIB;
        host.service("a-service", &tables, &[1]);
        let frame = frame(&host.record(&format!("nodes-{nodes}")));
        for size in SIZES {
            let screen = drawn(&frame, &View::default(), size);
            let row = screen
                .lines()
                .find(|line| line.starts_with("a-service"))
                .unwrap();
            assert!(row.contains("100M") && row.contains("100 % !"), "{screen}");
        }
    }
}

#[test]
fn any_size_is_drawn() {
    let frame = frame(&ours().record("sizes"));
    for width in [0, 1, 20, 59, 60, 61, 99, 100, 300] {
        for height in [0, 1, 7, 8, 9, 60] {
            let screen = drawn(&frame, &View::default(), (width, height));
            let fits = width >= 60 && height >= 8;
            assert_eq!(
                screen.contains("scope (VM)"),
                fits,
                "{width} x {height}\n{screen}"
            );
        }
    }
    assert!(drawn(&frame, &View::default(), (59, 8)).starts_with("needs 60 x 8"));
}

#[test]
fn the_first_line_has_the_state_apart() {
    let frame = frame(&ours().record("first-line"));
    let lines = Lines {
        status: "by exposure, 2.0 s".into(),
        ..Lines::default()
    };
    for width in 60..=120 {
        let screen = drawn_beside(&frame, &View::default(), &lines, (width, 24));
        let first = screen.lines().next().unwrap();
        let left = first.strip_suffix(&lines.status).expect(first);
        assert!(left.ends_with("  "), "{width}: {first}");
        // Its parts are there as a whole, or not at all.
        let whole = "nearwalk top  6.12.117-nearwalk  4 nodes  tables 1.4G  nested 380M  ";
        let parts = left.trim_end().to_owned() + "  ";
        assert!(whole.starts_with(&parts), "{width}: {first}");
    }
    // As with a filter of so many letters.
    let lines = Lines {
        status: format!("only {}, by exposure, 2.0 s", "x".repeat(26)),
        ..Lines::default()
    };
    let screen = drawn_beside(&frame, &View::default(), &lines, (60, 24));
    assert_eq!(screen.lines().next().unwrap().trim_start(), lines.status);
}

#[test]
fn statuses_have_one_meaning_each() {
    let nowhere = scratch("top-nowhere");
    let (status, out, err) = print(&["--from", nowhere.to_str().unwrap()]);
    assert_eq!((status, out.as_str()), (3, ""));
    assert!(err.starts_with("nearwalk: "), "{err}");
    let used = four_nodes().record("top-used");
    let (status, out, err) = print(&["--record", used.to_str().unwrap()]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("is not empty"), "{err}");
    for words in [&["--interval", "0"][..], &["--from", "a", "--record", "b"]] {
        assert!(
            Top::try_parse_from(["top"].iter().chain(words)).is_err(),
            "{words:?}"
        );
    }
}

#[test]
fn the_screen_in_the_docs_is_what_is_drawn() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_to_string(here.join("../../docs/top.md")).unwrap();
    let frame = frame(&four_nodes().record("docs"));
    let mut view = View::default();
    view.opened.insert("kubepods/pod-7".to_owned());
    for line in drawn(&frame, &view, (120, 40)).lines() {
        let indented = format!("    {line}\n");
        assert!(line.is_empty() || docs.contains(&indented), "{line}");
    }
}
