//! The options of `cargo xtask bench sim`. Comments with `///` at the fields are the command's help.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;

use super::waits::WaitName;
use super::works::WorkName;
use crate::results::PrintArgs;

/// Options of `--waits`.
#[derive(Debug, clap::Args)]
pub struct WaitsArgs {
    /// Measure how long irqlab's commands take, the first and the second time, instead of the levels' speed
    #[arg(long, conflicts_with_all = ["work", "vcpus", "loops", "rounds", "quick", "budget", "model", "ooo", "cache_plugin"])]
    pub waits: bool,
    /// The irqlab to run [default: the one that is built next to this program]
    #[arg(long, value_name = "FILE", requires = "waits")]
    pub irqlab: Option<PathBuf>,
    /// Longest time of a command
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "300s", requires = "waits")]
    pub limit: Duration,
    /// Commands to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", requires = "waits")]
    pub row: Vec<WaitName>,
}

#[derive(Debug, clap::Args)]
pub struct SimArgs {
    /// Works to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub work: Vec<WorkName>,
    /// CPUs of the simulated machine, 1 to 16; the works gcc and database always have one
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub vcpus: u32,
    /// Number of iterations of the work loop
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub loops: u32,
    /// How often to run each work at each level; the median time is the result. At the levels ooo, sampled and
    /// QEMU's cache plugin, works run at most three times, and the boot once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Run one round only, without the boot at slow levels
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
    /// Host time for all measurements; the slowest levels get fewer rounds to stay within it. The time to boot
    /// and set up machines that the cache does not have is extra [default: 17m, with --quick 3m45s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Models for the level timed, by name or file
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "r4400-1994")]
    pub model: Vec<String>,
    /// Models for the level ooo, by name or file
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "zen3")]
    pub ooo: Vec<String>,
    /// QEMU's own cache plugin (contrib/plugins/cache.c of its source, built), to compare with
    #[arg(long, value_name = "FILE")]
    pub cache_plugin: Option<PathBuf>,
    #[command(flatten)]
    pub waits: WaitsArgs,
    #[command(flatten)]
    pub printing: PrintArgs,
}

/// Parses a time such as `90s` or `2m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let time: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(time).map_err(|error| error.to_string())
}
