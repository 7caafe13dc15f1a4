//! Tables of what simulated machines executed: by context, miss, annotation, repetition. The experiments of `lab`
//! make their own tables, because another bench reports the same samples; these figures exist in a simulator only.

#![forbid(unsafe_code)]

pub mod annotations;
pub mod bare;
pub mod contexts;
pub mod misses;
mod regions;
pub mod repeat;
pub mod sampled;
pub mod shadow_caches;
