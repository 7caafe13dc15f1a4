//! QEMU and a guest for the tests of a machine.

use std::sync::OnceLock;
use std::time::Duration;

use sim::boot::Limits;
use sim::checkpoint::{self, Start};
use sim::image::Tools;
use sim::kernel::{self, Flavour, Kernel};
use sim::qemu::Qemu;
use sim::{Cache, GuestText, Machine, SimError, Stream, image, setup};

pub const LIMITS: Limits = Limits { wall: Duration::from_secs(120), guest_s: 60 };

pub struct Bench {
    pub cache: Cache,
    pub qemu: Qemu,
    pub kernel: Kernel,
}

/// QEMU and a guest, got once; `None`, with the reason on stderr, if they are not available.
pub fn bench() -> Option<&'static Bench> {
    static BENCH: OnceLock<Result<Bench, SimError>> = OnceLock::new();
    let quiet = |_: &str| {};
    let made = BENCH.get_or_init(|| {
        let cache = Cache::from_environment()?;
        let qemu = setup::setup(&cache, Flavour::Cloud, false, &quiet)?;
        let kernel = kernel::debian(&cache, Flavour::Cloud, &quiet)?;
        Ok(Bench { cache, qemu, kernel })
    });
    match made {
        Ok(bench) => Some(bench),
        Err(error) => {
            needs::not_run(needs::Need::Qemu, error);
            None
        }
    }
}

impl Bench {
    pub fn machine(&self) -> Machine {
        Machine::new(&self.kernel, &image::build(&self.cache, &self.kernel, Tools::None).unwrap())
    }

    /// Where such a machine starts so that it waits for a request: most tests have nothing to do with its
    /// boot, and all of them share one.
    pub fn ready(&self, machine: &Machine) -> Start {
        checkpoint::ready(&self.cache, &self.qemu, machine, &|_| {}, &|| false).unwrap()
    }
}

/// Keeps the standard output of a command.
pub fn keep_stdout(kept: &mut Vec<u8>) -> impl FnMut(GuestText<'_>) {
    |text| {
        if text.stream == Stream::Stdout {
            kept.extend_from_slice(text.bytes);
        }
    }
}
