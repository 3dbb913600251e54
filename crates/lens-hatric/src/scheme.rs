// SPDX-License-Identifier: GPL-2.0-or-later
//! Translation coherence: what happens when a nested entry has changed.
//!
//! A scheme is told of every store to a nested leaf entry and of the end of every
//! batch of stores. Caches have been made coherent by then, as in any machine; a
//! scheme makes translation structures coherent and says what that costs whom.
//!
//! To add one, implement [`Scheme`] and give it a name in [`Spec::parse`].

use crate::cores::{Cores, Rest, Tracks, bits};
use crate::cotag::{CoTag, Message};
use crate::counts::Why;
use crate::machine::Refused;

/// A store to a nested leaf entry.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// The entry.
    pub message: Message,
    /// The CPU that stored, or none if it runs no guest.
    pub by: Option<usize>,
    /// A page was brought in, so the entry had no translation before.
    pub was_absent: bool,
    /// CPUs that the directory took for holders of its line before the store.
    pub told: u64,
    /// Another copy of the table was stored to before this one, for the same change.
    pub again: bool,
}

/// Translation coherence.
pub trait Scheme {
    /// What the directory has to know of translation structures.
    fn tracks(&self) -> Tracks {
        Tracks::Nothing
    }
    /// Whether the directory has the machine's size, and not room for all.
    fn finite_directory(&self) -> bool {
        true
    }
    /// An entry has been stored to. No access is made before this returns.
    fn stored(&mut self, c: &Change, cores: &mut Cores);
    /// All stores of a fault, of a step of the daemon or of a move have been made.
    fn finished(&mut self, by: Option<usize>, cores: &mut Cores) {
        let _ = (by, cores);
    }
}

/// What is stale vanishes and costs nothing: the thesis' `ideal`, "achievable".
#[derive(Debug, Clone, Copy)]
pub struct Ideal;

impl Scheme for Ideal {
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        for cpu in 0..cores.count() {
            cores.vanish(cpu, c.message);
        }
    }
}

/// Interrupts the CPUs of `whom`, but for `by`, and waits until each is told.
fn interrupt(whom: u64, by: Option<usize>, cores: &mut Cores) {
    let told = |cpu: &usize| Some(*cpu) != by && whom >> *cpu & 1 == 1;
    let targets = (0..cores.count()).filter(told);
    let count = targets.clone().count();
    if count == 0 {
        return;
    }
    let p = cores.prices;
    cores.counts.ipis += count as u64;
    if let Some(cpu) = by {
        let cycles = p.ipi_first + p.ipi_each * (count - 1) as f64;
        cores.stop(cpu, cycles, Why::Initiate);
    }
    for cpu in targets {
        cores.counts.exits += u64::from(!cores.native());
        cores.stop(cpu, p.told, Why::Target);
    }
}

/// Interrupts `whom`, who flush everything.
fn flush(whom: u64, by: Option<usize>, cores: &mut Cores) {
    interrupt(whom, by, cores);
    for cpu in bits(whom) {
        cores.flush(cpu);
    }
}

/// What hypervisors did (thesis 2.3.2): each change interrupts all CPUs that run the
/// VM, which exit and flush everything.
#[derive(Debug, Clone, Copy)]
pub struct Software {
    /// A page that is brought in does so, too (2.3.1), though no structure can hold
    /// a translation of it.
    pub page_in: bool,
}

impl Scheme for Software {
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        if c.again || c.was_absent && !self.page_in {
            return;
        }
        flush(cores.running(c.message), c.by, cores);
    }
}

/// KVM of Linux 6.12: nothing for an entry that was absent, and one request to all
/// vCPUs for each range that a notifier is called with. A request flushes all of
/// the VM's translations.
#[derive(Debug, Clone, Copy)]
pub struct Kvm {
    /// Changes of one batch that a range covers, 1 or more.
    pub batch: u32,
    pending: u32,
    whom: u64,
}

impl Kvm {
    /// One that covers `batch` changes by a request.
    pub fn new(batch: u32) -> Self {
        Kvm {
            batch,
            pending: 0,
            whom: 0,
        }
    }

    fn request(&mut self, by: Option<usize>, cores: &mut Cores) {
        self.pending = 0;
        flush(std::mem::take(&mut self.whom), by, cores);
    }
}

impl Scheme for Kvm {
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        if c.was_absent || c.again {
            return;
        }
        self.pending += 1;
        self.whom |= cores.running(c.message);
        if self.pending == self.batch {
            self.request(c.by, cores);
        }
    }
    fn finished(&mut self, by: Option<usize>, cores: &mut Cores) {
        if self.pending > 0 {
            self.request(by, cores);
        }
    }
}

/// Software that asks the directory who may hold translations: only those CPUs exit
/// and flush everything. What a precise choice of targets is worth by itself.
#[derive(Debug, Clone, Copy)]
pub struct Targeted;

impl Scheme for Targeted {
    fn tracks(&self) -> Tracks {
        // Co-tags serve back-invalidations alone.
        Tracks::Lines {
            tag: CoTag::USUAL,
            rest: Rest::Tagged,
            extra: 2,
            eager: false,
            fine: false,
        }
    }
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        // For an entry that was absent, too: its line's other translations may be held,
        // and the directory has just forgotten by whom.
        if c.told != 0 {
            interrupt(c.told, c.by, cores);
        }
        for cpu in bits(c.told) {
            cores.flush(cpu);
        }
    }
}

/// Linux without a hypervisor: for a page that was present, the CPUs of its process are
/// interrupted and drop it, and with it their caches of upper entries.
#[derive(Debug, Clone, Copy)]
pub struct Shootdown;

impl Scheme for Shootdown {
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        if c.was_absent {
            return;
        }
        let whom = cores.running(c.message);
        if !c.again {
            interrupt(whom, c.by, cores);
        }
        for cpu in bits(whom) {
            cores.vanish(cpu, c.message);
            // Of all copies at once; each copy's own translations vanish above.
            if !c.again {
                cores.flush_rest(cpu);
            }
        }
    }
}

/// An instruction that has all CPUs drop all of the VM's translations, without an
/// exit; who issues it waits.
#[derive(Debug, Clone, Copy)]
pub struct Broadcast;

impl Scheme for Broadcast {
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        if c.was_absent || c.again {
            return;
        }
        cores.counts.broadcasts += 1;
        if let Some(cpu) = c.by {
            cores.stop(cpu, cores.prices.broadcast, Why::Initiate);
        }
        for cpu in 0..cores.count() {
            cores.flush(cpu);
        }
    }
}

/// Coherence messages reach translation structures: HATRIC (2.4) and UNITD++ (2.6).
#[derive(Debug, Clone, Copy)]
pub struct Tagged {
    /// What is tracked and compared.
    pub tracks: Tracks,
    /// Whether the directory is finite.
    pub finite: bool,
}

impl Scheme for Tagged {
    fn tracks(&self) -> Tracks {
        self.tracks
    }
    fn finite_directory(&self) -> bool {
        self.finite
    }
    fn stored(&mut self, c: &Change, cores: &mut Cores) {
        for cpu in bits(c.told) {
            cores.deliver(cpu, c.message);
        }
        let Tracks::Lines { rest, .. } = self.tracks else {
            return;
        };
        if rest == Rest::Software && !c.was_absent && !c.again {
            let whom = cores.running(c.message);
            interrupt(whom, c.by, cores);
            for cpu in bits(whom) {
                cores.flush_rest(cpu);
            }
        }
    }
}

/// A scheme by name and parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    text: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Ideal,
    Software { page_in: bool },
    Kvm { batch: u32 },
    Targeted,
    Shootdown,
    Broadcast,
    Tagged { tracks: Tracks, finite: bool },
}

/// What [`Spec::parse`] reads.
pub const NAMES: &str = "ideal, software[:page-in=yes|no], kvm[:batch=N], shootdown, targeted, broadcast, \
    unitd[:rest=flush|software,directory=..,extra=..] and hatric[:cotag=8..64,low=3..16,\
    grain=line|entry,tracking=pseudo|fine,update=lazy|eager,directory=finite|infinite,extra=1|2]";

impl Spec {
    /// Reads `NAME` or `NAME:KEY=VALUE,..`.
    ///
    /// # Errors
    /// What is not known, and what is.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut keys = Vec::new();
        for pair in rest.split(',').filter(|p| !p.is_empty()) {
            let pair = pair.split_once('=');
            keys.push(pair.ok_or_else(|| refuse(text))?);
        }
        let mut take = |key: &str, default: &'static str| -> String {
            match keys.iter().position(|(k, _)| *k == key) {
                Some(at) => keys.swap_remove(at).1.to_owned(),
                None => default.to_owned(),
            }
        };
        let choice = |key: &str, value: String, yes: &str, no: &str| -> Result<bool, Refused> {
            match value {
                v if v == yes => Ok(true),
                v if v == no => Ok(false),
                v => Err(Refused::value(key, v, format!("{yes} or {no} is allowed"))),
            }
        };
        let number = |key: &str, value: String, lo: u32, hi: u32| -> Result<u32, Refused> {
            let n = value.parse().ok().filter(|n| (lo..=hi).contains(n));
            n.ok_or_else(|| Refused::value(key, value, format!("{lo} to {hi} is allowed")))
        };
        let kind = match name {
            "ideal" => Kind::Ideal,
            "software" => Kind::Software {
                page_in: choice("page-in", take("page-in", "yes"), "yes", "no")?,
            },
            "kvm" => Kind::Kvm {
                batch: number("batch", take("batch", "1"), 1, 512)?,
            },
            "targeted" => Kind::Targeted,
            "shootdown" => Kind::Shootdown,
            "broadcast" => Kind::Broadcast,
            "unitd" | "hatric" => {
                let hatric = name == "hatric";
                let mut tag = CoTag::WHOLE;
                let mut rest = Rest::Tagged;
                let (mut fine, mut eager) = (false, false);
                if hatric {
                    tag = CoTag {
                        bits: number("cotag", take("cotag", "16"), 8, 64)?,
                        low: number("low", take("low", "6"), 3, 16)?,
                        line_grained: choice("grain", take("grain", "line"), "line", "entry")?,
                    }
                    .check()?;
                    fine = choice("tracking", take("tracking", "pseudo"), "fine", "pseudo")?;
                    eager = choice("update", take("update", "lazy"), "eager", "lazy")?;
                } else if choice("rest", take("rest", "flush"), "flush", "software")? {
                    rest = Rest::Flushed;
                } else {
                    rest = Rest::Software;
                }
                let finite = choice(
                    "directory",
                    take("directory", "finite"),
                    "finite",
                    "infinite",
                )?;
                let extra = number("extra", take("extra", "2"), 1, 2)? as usize;
                let tracks = Tracks::Lines {
                    tag,
                    rest,
                    extra,
                    eager,
                    fine,
                };
                Kind::Tagged { tracks, finite }
            }
            _ => return Err(refuse(text)),
        };
        match keys.is_empty() {
            true => Ok(Spec {
                text: text.to_owned(),
                kind,
            }),
            false => Err(refuse(text)),
        }
    }

    /// The text that it was read from.
    pub fn name(&self) -> &str {
        &self.text
    }

    /// The scheme, as it is when a run begins.
    pub fn build(&self) -> Box<dyn Scheme> {
        match self.kind {
            Kind::Ideal => Box::new(Ideal),
            Kind::Software { page_in } => Box::new(Software { page_in }),
            Kind::Kvm { batch } => Box::new(Kvm::new(batch)),
            Kind::Targeted => Box::new(Targeted),
            Kind::Shootdown => Box::new(Shootdown),
            Kind::Broadcast => Box::new(Broadcast),
            Kind::Tagged { tracks, finite } => Box::new(Tagged { tracks, finite }),
        }
    }
}

fn refuse(text: &str) -> Refused {
    Refused::value("scheme", format!("`{text}`"), format!("there are {NAMES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_names_and_parameters_and_others_are_refused() {
        for text in [
            "ideal",
            "software",
            "software:page-in=no",
            "kvm:batch=32",
            "broadcast",
            "unitd:rest=software",
            "hatric",
            "hatric:cotag=24,low=3,grain=entry,tracking=fine,update=eager,directory=infinite,extra=1",
        ] {
            let spec = Spec::parse(text).unwrap();
            assert_eq!(spec.name(), text);
            let _ = spec.build();
        }
        for (text, says) in [
            ("hatrick", "`hatrick`; there are ideal"),
            ("hatric:cotag=0", "cotag is 0; 8 to 64"),
            ("hatric:cotag=65", "cotag is 65"),
            ("hatric:low=2", "low is 2; 3 to 16"),
            ("hatric:grain=byte", "grain is byte; line or entry"),
            ("hatric:batch=2", "there are"),
            ("hatric:cotag", "there are"),
            ("unitd:extra=3", "extra is 3; 1 to 2"),
            ("kvm:batch=0", "batch is 0; 1 to 512"),
        ] {
            let e = Spec::parse(text).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
    }

    #[test]
    fn variants_of_the_directory_are_what_they_say() {
        let built = Spec::parse("hatric:directory=infinite").unwrap().build();
        assert!(!built.finite_directory());
        let usual = Spec::parse("hatric").unwrap().build();
        let Tracks::Lines {
            tag,
            extra,
            eager,
            fine,
            rest,
        } = usual.tracks()
        else {
            panic!("it tracks lines")
        };
        assert_eq!((tag, extra, eager, fine), (CoTag::USUAL, 2, false, false));
        assert_eq!(rest, Rest::Tagged);
        assert_eq!(
            Spec::parse("software").unwrap().build().tracks(),
            Tracks::Nothing
        );
    }
}
