// SPDX-License-Identifier: GPL-2.0-or-later
//! Which module may use which: those before it.

use std::fs::read_dir;
use std::path::Path;

const MODEL: &[&str] = &[
    "units",
    "hash",
    "address",
    "access",
    "stats",
    "machine",
    "simd",
    "tags",
    "part",
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
    "workload",
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

/// Modules that the code of `text` names, tests and comments left out.
fn used(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .filter_map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .collect()
}

fn check(file: &Path, module: &str, order: &[&str]) {
    let at = |name: &str| order.iter().position(|&m| m == name);
    let here = at(module).unwrap_or_else(|| panic!("{module} is not in the order"));
    for name in used(&std::fs::read_to_string(file).unwrap()) {
        let there = at(name).unwrap_or_else(|| panic!("{name} is not in the order"));
        assert!(there <= here, "{} uses {name}", file.display());
    }
}

fn check_crate(name: &str, order: &[&str]) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    let mut walk = vec![(crates.join(name).join("src"), None::<String>)];
    while let Some((dir, module)) = walk.pop() {
        for entry in read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let module = module.clone().unwrap_or_else(|| stem.clone());
            if path.is_dir() {
                walk.push((path, Some(module)));
                continue;
            }
            let tests = stem.ends_with("_tests") || ["lib", "order"].contains(&&*stem);
            if path.extension().is_some_and(|e| e == "rs") && !tests {
                check(&path, &module, order);
                checked += 1;
            }
        }
    }
    assert!(checked >= order.len(), "{name}");
}

#[test]
fn modules_use_those_before_them() {
    check_crate("lens", MODEL);
    check_crate("lens-papers", PAPERS);
}
