//! Verbs of processes that irqlab starts itself, on this host or in a simulated machine. No user types them.
//!
//! They have a parser of their own. The parser of all other verbs executes 230 million instructions in a debug build
//! before it has read the first word; a simulated machine would execute them for each process.

pub mod in_guest;
pub mod kernel_mix;
mod memory_simulation;
mod stimulus;
mod timed_reads;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct HelperCli {
    #[command(subcommand)]
    verb: HelperVerb,
}

#[derive(Debug, Subcommand)]
pub enum HelperVerb {
    #[command(name = live::stimulus::HELPER_VERB)]
    Stimulus(stimulus::StimulusArgs),
    #[command(name = in_guest::VERB)]
    InGuest(in_guest::InGuestArgs),
    #[command(name = kernel_mix::VERB)]
    KernelMix(kernel_mix::KernelMixArgs),
    #[command(name = memory_simulation::VERB)]
    MemorySimulation(memory_simulation::MemorySimulationArgs),
    #[command(name = timed_reads::VERB)]
    TimedReads(timed_reads::TimedReadsArgs),
}

/// Parses the words of a command line, of which the first is the program. `None`: the second word is no verb of this file.
///
/// Ends the process with a message if another word is wrong.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Option<HelperVerb> {
    let words: Vec<OsString> = words.into_iter().collect();
    let verb = words.get(1)?.to_str()?;
    HelperVerb::has_subcommand(verb).then(|| HelperCli::parse_from(words).verb)
}

impl HelperVerb {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            HelperVerb::Stimulus(args) => stimulus::run(args),
            HelperVerb::InGuest(args) => in_guest::run(args),
            HelperVerb::KernelMix(args) => kernel_mix::run(args),
            HelperVerb::MemorySimulation(args) => memory_simulation::run(args),
            HelperVerb::TimedReads(args) => timed_reads::run(args),
        }
    }
}
