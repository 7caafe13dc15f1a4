//! Which simulated machine: options of `sim` and of `handlers --on sim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use sim::boot::Limits;
use sim::devices::{Disk, NicModel};
use sim::image::Tools;
use sim::kernel::{Flavour, Kernel};
use sim::watch::Detail;
use sim::{Cache, Machine, image, kernel};

use crate::args::duration;
use crate::output;

/// A Debian kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlavourName {
    /// For virtual machines: boots fast, few drivers
    Cloud,
    /// With all drivers: e1000, AHCI, SCSI
    Full,
}

impl From<FlavourName> for Flavour {
    fn from(name: FlavourName) -> Flavour {
        match name {
            FlavourName::Cloud => Flavour::Cloud,
            FlavourName::Full => Flavour::Full,
        }
    }
}

/// How a model of the processor is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModelDetail {
    /// Fast: one instruction after the other, with two levels of blocking caches
    #[default]
    Timed,
    /// Any model: its core in or out of order, all of its caches, its predictors
    Ooo,
}

impl From<ModelDetail> for Detail {
    fn from(detail: ModelDetail) -> Detail {
        match detail {
            ModelDetail::Timed => Detail::Timed,
            ModelDetail::Ooo => Detail::Ooo,
        }
    }
}

/// Which kernel the guest has.
#[derive(Debug, Default, clap::Args)]
pub struct KernelArgs {
    /// A kernel of your own: its bzImage
    #[arg(long, value_name = "BZIMAGE")]
    pub kernel: Option<PathBuf>,
    /// Directory with its modules
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Debian kernel to use [default: cloud]
    #[arg(long, value_enum, conflicts_with = "kernel")]
    pub flavour: Option<FlavourName>,
}

impl KernelArgs {
    /// The kernel; fetched when it is Debian's and not there.
    pub fn kernel(&self, cache: &Cache) -> anyhow::Result<Kernel> {
        Ok(match &self.kernel {
            Some(path) => kernel::of_file(path, self.modules.as_deref())?,
            None => {
                let flavour = self.flavour.unwrap_or(FlavourName::Cloud);
                kernel::debian(cache, flavour.into(), &say)?
            }
        })
    }
}

/// What the guest is made of, but for its CPUs.
#[derive(Debug, Default, clap::Args)]
pub struct GuestArgs {
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// The guest's memory, as in 512M or 2G [default: 512M]
    #[arg(long, value_parser = memory_mib)]
    pub mem: Option<u32>,
    /// More for the kernel's command line
    #[arg(long, value_name = "WORD")]
    pub append: Vec<String>,
    /// A disk: virtio-blk, nvme, ahci, ide or lsi, with `,size=64M` or `,file=FILE` (the guest works on a
    /// copy), and `,latency=100us`, which a machine has that is watched; up to four
    #[arg(long, value_name = "DISK")]
    pub disk: Vec<Disk>,
    /// Two network cards, joined back to back: virtio-net, e1000 or rtl8139
    #[arg(long, value_name = "MODEL")]
    pub net: Option<NicModel>,
    /// Guest time follows the host's clock: about twice as fast, and not repeatable
    #[arg(long)]
    pub free_running: bool,
    /// Start the guest from this checkpoint
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// Kill the machine after this time on the host's clock [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub limit: Option<Duration>,
    /// Have the guest power off after this time on its own clock [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub guest_limit: Option<Duration>,
}

impl GuestArgs {
    /// How long it may run.
    pub fn limits(&self) -> Limits {
        let default = Limits::default();
        let seconds = |limit: Duration| u32::try_from(limit.as_secs().max(1)).unwrap_or(u32::MAX);
        Limits {
            wall: self.limit.unwrap_or(default.wall),
            guest_s: self.guest_limit.map_or(default.guest_s, seconds),
        }
    }

    /// The machine, with its image packed, and its kernel.
    pub fn machine(
        &self,
        cache: &Cache,
        cpus: u32,
        tools: Tools,
    ) -> anyhow::Result<(Machine, Kernel)> {
        let kernel = self.kernel.kernel(cache)?;
        let mut machine = Machine::new(&kernel, &image::build(cache, &kernel, tools)?);
        machine.cpus = cpus;
        machine.memory_mib = self.mem.unwrap_or(machine.memory_mib);
        machine.append.clone_from(&self.append);
        machine.disks.clone_from(&self.disk);
        machine.nics = self.net;
        if self.free_running {
            machine.timing = sim::Timing::HostClock;
        }
        machine.check()?;
        Ok((machine, kernel))
    }

    /// The first of these options that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--kernel", self.kernel.kernel.is_some()),
            ("--flavour", self.kernel.flavour.is_some()),
            ("--mem", self.mem.is_some()),
            ("--append", !self.append.is_empty()),
            ("--disk", !self.disk.is_empty()),
            ("--net", self.net.is_some()),
            ("--free-running", self.free_running),
            ("--from", self.from.is_some()),
            ("--limit", self.limit.is_some()),
            ("--guest-limit", self.guest_limit.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

fn say(text: &str) {
    output::say(false, text);
}

/// `512M` or `2G` in MiB.
fn memory_mib(text: &str) -> Result<u32, String> {
    let units = [("M", 1), ("G", 1024)];
    units
        .iter()
        .find_map(|(unit, mib)| text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(*mib))
        .ok_or_else(|| "a number with M or G, as in 512M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes() {
        assert_eq!(memory_mib("512M"), Ok(512));
        assert_eq!(memory_mib("2G"), Ok(2048));
        for nonsense in ["", "M", "512", "-1G", "1.5G", "9999999G", "1T"] {
            assert!(memory_mib(nonsense).is_err(), "{nonsense}");
        }
    }
}
