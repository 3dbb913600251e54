// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's arguments, as QEMU hands them over: `key=value`.

use std::path::PathBuf;

use crate::layout::Layout;

/// What the plugin is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub mode: Mode,
    /// Where results go.
    pub out: PathBuf,
    /// The machine's nodes.
    pub layout: Layout,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Count stores to other nodes' memory.
    Count,
    /// Count instructions by phase.
    Phases {
        /// A file that says which functions begin which phases.
        symbols: PathBuf,
    },
    /// Feed accesses to the timing model.
    Lens {
        /// A built-in machine's name, or a TOML file.
        machine: String,
        /// Directory with the files that are the nodes' memory, `node0` on.
        memory: PathBuf,
        /// Levels of the guest's page tables, 4 or 5.
        levels: u32,
    },
}

impl Options {
    /// Reads all arguments; none may be there twice.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        const KEYS: [&str; 7] = [
            "mode", "out", "layout", "machine", "memory", "levels", "symbols",
        ];
        let mut values = [None; KEYS.len()];
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("'{word}' is no KEY=VALUE"))?;
            let index = KEYS.iter().position(|known| *known == key);
            let index =
                index.ok_or_else(|| format!("'{key}' is unknown; allowed: {}", KEYS.join(", ")))?;
            if values[index].replace(value).is_some() {
                return Err(format!("'{key}' is given twice"));
            }
        }
        let need =
            |index: usize| values[index].ok_or_else(|| format!("'{}' is missing", KEYS[index]));
        let mode = match need(0)? {
            "count" => Mode::Count,
            "phases" => Mode::Phases {
                symbols: need(6)?.into(),
            },
            "lens" => Mode::Lens {
                machine: need(3)?.into(),
                memory: need(4)?.into(),
                levels: match need(5)? {
                    "4" => 4,
                    "5" => 5,
                    other => return Err(format!("'{other}' levels; allowed: 4, 5")),
                },
            },
            other => {
                return Err(format!(
                    "mode '{other}' is unknown; allowed: count, phases, lens"
                ));
            }
        };
        Ok(Options {
            mode,
            out: need(1)?.into(),
            layout: need(2)?.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let options = Options::parse(["mode=count", "out=/a=b", "layout=512x2:256x1"]).unwrap();
        assert_eq!(options.out, PathBuf::from("/a=b"));
        assert_eq!(options.layout.memory().len(), 2);
        let lens = "mode=lens machine=e7-4850v3 memory=/m levels=4 out=x layout=1x1";
        let options = Options::parse(lens.split(' ')).unwrap();
        assert!(matches!(options.mode, Mode::Lens { levels: 4, .. }));
        let phases = "mode=phases symbols=/s out=x layout=1x1";
        let options = Options::parse(phases.split(' ')).unwrap();
        assert!(matches!(options.mode, Mode::Phases { .. }));
    }

    #[test]
    fn bad_arguments_are_named() {
        for (words, named) in [
            (&["mode=count", "out=x"][..], "layout"),
            (&["mode=count", "mode=count"], "'mode' is given twice"),
            (&["mode=fly", "out=x", "layout=1x1"], "'fly'"),
            (&["mode=lens", "out=x", "layout=1x1"], "'machine'"),
            (&["mode=phases", "out=x", "layout=1x1"], "'symbols'"),
            (&["speed=9"], "'speed'"),
            (&["on"], "'on'"),
            (&["mode=count", "out=x", "layout=ax1"], "'ax1'"),
        ] {
            let error = Options::parse(words.iter().copied()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
