// SPDX-License-Identifier: GPL-2.0-or-later
//! What papers ran on the modelled machines, and what came of it.
//!
//! The model ([`lens`]) names no paper. Here are programs at the sizes that
//! papers ran them ([`workload`]), placements under the papers' names
//! ([`config`]), published numbers ([`reference`],
//! [`counters`]), and how far the model is
//! from them ([`validate`], [`cross`]), which says how far predictions may be off
//! ([`doubt`]). [`experiment`] puts one of each on a machine.
//!
//! What the model has from papers, without their names:
//! [`TablePolicy::Replicated`](lens::layout::TablePolicy::Replicated) tables are
//! Mitosis' and `Migrated` ones vMitosis';
//! [`Layout::remote_leaf_share`](lens::layout::Layout::remote_leaf_share) is what
//! Mitosis' Figure 4 shows; that a kernel has to OR the
//! [`LeafBits`](lens::kernelside::LeafBits) of all copies is Mitosis, section 5.4;
//! [`LazyFill`](lens::kernelside::LazyFill) is Hydra's (section 4).

#![forbid(unsafe_code)]

pub mod class;
pub mod config;
pub mod counters;
pub mod cross;
pub mod doubt;
pub mod experiment;
pub mod fit;
pub mod overhead;
pub mod reference;
pub mod validate;
pub mod workload;
