// SPDX-License-Identifier: GPL-2.0-or-later
//! Which module may use which: those before it.

use std::collections::BTreeMap;
use std::fs::read_dir;
use std::path::Path;

/// Modules in order. With `::*` those below it count as one with it.
const MODEL: &[&str] = &[
    "units",
    "hash",
    "address",
    "access",
    "stats",
    "machine::error",
    "machine::nodes",
    "machine",
    "simd::*",
    "tags",
    "part::hardware",
    "part::quick",
    "part::cache",
    "part::memory",
    "part::tlb",
    "part::walk_cache",
    "part",
    "part::standard",
    "part::shortcuts",
    "layout",
    "kernelside",
    "fabric",
    "pipe",
    "tables",
    "cpu",
    "system",
    "live",
    "trace",
    "champsim",
];

const PAPERS: &[&str] = &[
    "overhead",
    "workload::*",
    "config",
    "experiment",
    "reference",
    "counters",
    "fit",
    "class",
    "doubt",
    "validate",
    "cross",
];

const HATRIC: &[&str] = &[
    "assoc",
    "counts",
    "machine",
    "guest",
    "tape",
    "pager::*",
    "directory",
    "cotag",
    "cores::*",
    "energy",
    "program::*",
    "scheme",
    "sim::*",
];

/// The paths in `code` that lead to modules of its crate: absolute, without
/// `crate::`. `here` is the module that it is of, `below` are names of those in it.
fn paths(code: &str, here: &[&str], below: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in code.match_indices("::") {
        let head = &code[..at];
        let start = head.rfind(|c| !word(c)).map_or(0, |i| i + 1);
        if head[..start].ends_with("::") {
            // Not the first of its path.
            continue;
        }
        let above: Vec<String> = here.iter().map(|&s| s.to_owned()).collect();
        let base = match &head[start..] {
            "crate" => Vec::new(),
            "self" => above,
            "super" => above[..above.len().saturating_sub(1)].to_vec(),
            name if below.iter().any(|b| b == name) => [above, vec![name.to_owned()]].concat(),
            _ => continue,
        };
        tree(&code[at + 2..], base, &mut found);
    }
    found
}

/// Adds what the rest of a path stands for, with all that is in braces. Returns
/// what follows it.
fn tree<'a>(text: &'a str, mut base: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(mut inner) = text.strip_prefix('{') {
        loop {
            inner = inner.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            match inner.strip_prefix('}') {
                Some(rest) => return rest,
                None if inner.is_empty() => return inner,
                None => inner = tree(inner, base.clone(), found),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    text = rest;
    match name {
        "super" => _ = base.pop(),
        "self" | "*" => {}
        name => base.push(name.to_owned()),
    }
    if let Some(rest) = text.strip_prefix("::") {
        return tree(rest, base, found);
    }
    found.push(base);
    // `as` another name, and whatever else is no part of a path.
    let end = text.find([',', '}', ';', '\n']);
    &text[end.unwrap_or(text.len())..]
}

/// The code of `text`, tests and comments left out.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = code.lines().map(str::trim_start);
    lines
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Where in `order` the module of `path` is: the longest of its names that is there.
fn place(order: &[&str], path: &[String]) -> Option<usize> {
    (1..=path.len()).rev().find_map(|n| {
        let name = path[..n].join("::");
        let all = format!("{name}::*");
        order.iter().position(|&m| m == name || m == all)
    })
}

/// Uses of what comes later in `order`, in files by their modules.
fn wrong(files: &BTreeMap<String, String>, order: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (module, text) in files {
        let here: Vec<&str> = module.split("::").collect();
        let below: Vec<String> = files
            .keys()
            .filter_map(|m| m.strip_prefix(&format!("{module}::")))
            .filter(|name| !name.contains("::"))
            .map(str::to_owned)
            .collect();
        let own: Vec<String> = here.iter().map(|&s| s.to_owned()).collect();
        let at = place(order, &own);
        let listed = at.is_some_and(|i| {
            let name = order[i].trim_end_matches("::*");
            name == module || order[i].ends_with("::*")
        });
        if !listed {
            wrong.push(format!("{module} is not in the order"));
            continue;
        }
        for path in paths(&code(text), &here, &below) {
            let Some(there) = place(order, &path) else {
                // The crate itself: what it says of all.
                continue;
            };
            if Some(there) > at {
                wrong.push(format!("{module} uses {}", path.join("::")));
            }
        }
    }
    wrong
}

/// Sources of a crate by module, tests left out.
fn sources(name: &str) -> BTreeMap<String, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = BTreeMap::new();
    let mut walk = vec![(crates.join(name).join("src"), Vec::<String>::new())];
    while let Some((dir, modules)) = walk.pop() {
        for entry in read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let with = |stem: &str| [modules.clone(), vec![stem.to_owned()]].concat();
            if path.is_dir() {
                walk.push((path, with(&stem)));
                continue;
            }
            let tests = stem.ends_with("tests") || ["lib", "order"].contains(&&*stem);
            if path.extension().is_some_and(|e| e == "rs") && !tests {
                let module = match &*stem {
                    "mod" => modules.clone(),
                    stem => with(stem),
                };
                let text = std::fs::read_to_string(&path).unwrap();
                files.insert(module.join("::"), text);
            }
        }
    }
    files
}

#[test]
fn modules_use_those_before_them() {
    for (name, order) in [
        ("lens", MODEL),
        ("lens-papers", PAPERS),
        ("lens-hatric", HATRIC),
    ] {
        let mut files = sources(name);
        files.retain(|module, _| !module.split("::").any(|m| m == "tests"));
        assert!(files.len() >= order.len(), "{name}");
        assert_eq!(wrong(&files, order), [""; 0], "{name}");
    }
}

#[test]
fn a_ring_is_found_however_it_is_written() {
    let found = |a: &str, b: &str| {
        let files = [
            ("x", ""),
            ("x::a", a),
            ("x::b", b),
            ("y", "use crate::x::b;"),
        ];
        let files = files.map(|(m, t)| (m.to_owned(), t.to_owned()));
        wrong(&files.into(), &["x::a", "x::b", "x", "y"])
    };
    assert_eq!(
        found("use super::super::z;", "use super::a::{A, B};"),
        [""; 0]
    );
    for ring in [
        "use crate::x::b::B;",
        "use super::b::B;",
        "use super::{a, b};",
        "use super::{\n    a::{C, D as E},\n    b::B,\n};",
        "use crate::{z, x::{a, b}};",
        "fn f() { super::b::g() }",
        "use super::super::x::b;",
    ] {
        let found = found(ring, "");
        let all = found.iter().all(|f| f.starts_with("x::a uses x::b"));
        assert!(all && found.len() == 1, "{ring}: {found:?}");
    }
    assert_eq!(found("use super::X;", ""), ["x::a uses x::X"]);
    assert_eq!(found("use crate::y::Y;", ""), ["x::a uses y::Y"]);
    assert_eq!(
        found("// super::b\n#[cfg(test)]\nmod tests { use super::b; }", ""),
        [""; 0]
    );
}
