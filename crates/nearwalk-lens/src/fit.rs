// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens fit`: how the constants in the machine files were made.

use crate::util;
use anyhow::Context;
use clap::Args;
use lens_papers::experiment::Budget;
use lens_papers::fit::{KEYS, fit, get};
use lens_papers::reference::{Content, parse};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Prints constants to put into the machine's TOML file, where they stay.")]
pub struct FitArgs {
    /// CSV file of published runs that holds GUPS
    file: PathBuf,
    /// Machine to start from: a built-in name or a TOML file
    #[arg(long)]
    machine: String,
    /// Constants to fit [default: all that can be]
    #[arg(long, value_delimiter = ',')]
    keys: Vec<String>,
}

pub fn run(a: &FitArgs) -> anyhow::Result<ExitCode> {
    let mut m = util::machine(&a.machine)?;
    let keys: Vec<&str> = if a.keys.is_empty() {
        KEYS.to_vec()
    } else {
        a.keys.iter().map(String::as_str).collect()
    };
    if let Some(bad) = keys.iter().find(|k| !KEYS.contains(k)) {
        anyhow::bail!("`{bad}` cannot be fitted; there are {}", KEYS.join(", "));
    }
    if let Some((key, why)) = keys.iter().find_map(|k| Some((k, m.unread(k)?))) {
        anyhow::bail!("`{key}` of {} cannot be fitted: {why}", m.name);
    }
    let text = std::fs::read_to_string(&a.file).with_context(|| a.file.display().to_string())?;
    let name = a.file.file_name().unwrap_or_default().to_string_lossy();
    let Content::Runs(data) = parse(&name, &text)? else {
        anyhow::bail!("{} holds no runs", a.file.display());
    };
    let budget = Budget {
        warm_up: 900_000,
        measured: 150_000,
    };
    let base = fit(&mut m, &keys, &data.runs, budget, |loss, key, value| {
        eprintln!("loss {loss:.5}: {key} {value:.1}");
    });
    for k in KEYS {
        let mark = if keys.contains(k) { "fitted" } else { "kept" };
        println!("{k} = {:.1} ({mark})", get(&m, k));
    }
    println!("GUPS base = {base:.1}");
    Ok(ExitCode::SUCCESS)
}
