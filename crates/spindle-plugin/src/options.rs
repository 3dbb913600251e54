// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's arguments, as QEMU hands them over: `key=value`.

use std::path::PathBuf;

use crate::layout::Layout;

/// What the plugin is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// The machine's nodes.
    pub layout: Layout,
}

impl Options {
    /// Reads all arguments; each must be there once.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        let (mut mode, mut out, mut layout) = (None, None, None);
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("'{word}' is no KEY=VALUE"))?;
            let slot = match key {
                "mode" => &mut mode,
                "out" => &mut out,
                "layout" => &mut layout,
                _ => {
                    return Err(format!("'{key}' is unknown; allowed: mode, out, layout"));
                }
            };
            if slot.replace(value).is_some() {
                return Err(format!("'{key}' is given twice"));
            }
        }
        match mode.ok_or("mode is missing; allowed: count")? {
            "count" => {}
            other => return Err(format!("mode '{other}' is unknown; allowed: count")),
        }
        Ok(Options {
            out: out.ok_or("out is missing: a file to write")?.into(),
            layout: layout.ok_or("layout is missing")?.parse()?,
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
        assert_eq!(options.layout.nodes(), 2);
    }

    #[test]
    fn bad_arguments_are_named() {
        for (words, named) in [
            (&["mode=count", "out=x"][..], "layout"),
            (&["mode=count", "mode=count"], "'mode' is given twice"),
            (&["mode=fly", "out=x", "layout=1x1"], "'fly'"),
            (&["speed=9"], "'speed'"),
            (&["on"], "'on'"),
            (&["mode=count", "out=x", "layout=ax1"], "'ax1'"),
        ] {
            let error = Options::parse(words.iter().copied()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
