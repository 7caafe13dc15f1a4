//! The hidden verb whose services `irqlab bench kernel` compares: it executes kernel paths on either bench.

use std::process::ExitCode;

use anyhow::Context;
use live::kernels::execute_mix;

use crate::options::usable_cpus;

pub const VERB: &str = "__kernel-mix";

#[derive(Debug, clap::Args)]
pub struct KernelMixArgs {
    /// Windows of each kernel
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    windows: u32,
}

/// Executes the program on the last usable CPU.
pub fn run(args: &KernelMixArgs) -> anyhow::Result<ExitCode> {
    let cpus = usable_cpus(None)?;
    let cpu = *cpus.last().context("no CPU can be used")?;
    execute_mix(cpu, args.windows).with_context(|| format!("cannot use CPU {cpu}"))?;
    Ok(ExitCode::SUCCESS)
}
