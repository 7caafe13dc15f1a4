//! Tables of what simulated machines executed: by context, miss, annotation, repetition. The verbs of `irqlab sim`
//! and the experiments on a simulated machine show and record them.
//!
//! Figures that both benches have are tables of `lab`. The figures here exist in a simulator only.

#![forbid(unsafe_code)]

pub mod annotations;
pub mod bare;
pub mod contexts;
pub mod misses;
pub mod mitigations;
mod regions;
pub mod repeat;
pub mod sampled;
pub mod shadow_caches;

/// How a simulated machine counts instructions. A part of the documentation of columns of instructions.
const REPETITIONS_COUNT: &str = "Each repetition of a string instruction (rep movs, rep stos, ...) counts as an instruction; \
                                 a processor counts one for all repetitions.";
