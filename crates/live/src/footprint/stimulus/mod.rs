//! Stimuli that raise a single interrupt at an approximately known time.

mod disk;
mod ipi;
mod net;
mod timer;

use lab::experiment::BenchError;
use std::path::Path;
use std::time::Duration;

use lab::footprint::Stimulus;

use super::interrupt_line::CountedAs;

pub use disk::Disk;
pub use ipi::Ipi;
pub use net::{FarEnd, Net};
pub use timer::Timer;

/// Raises one interrupt at a time on the CPU of the calling thread.
pub trait RaiseInterrupt {
    /// The line with which the kernel counts the interrupt.
    fn counted_as(&self) -> CountedAs;

    /// Requests the interrupt after `delay`; a device may choose another time.
    ///
    /// Fails if the system refuses.
    fn schedule(&mut self, delay: Duration) -> std::io::Result<()>;

    /// Waits, after the window, until nothing is in flight.
    ///
    /// Fails if the system refuses.
    fn drain(&mut self) -> std::io::Result<()>;

    /// Whether the interrupt comes at the requested time, within some microseconds.
    fn is_timed(&self) -> bool {
        false
    }

    /// Whether the interrupt never comes before its delay, and soon after it. So a window that is open at that time
    /// has it.
    fn comes_in_window(&self) -> bool {
        self.is_timed()
    }

    /// How the interrupt is raised, for the tables.
    fn method(&self) -> String;
}

/// Prepares a stimulus for a loop on `cpu`. `device`: the disk stimuli read it instead of scratch
/// files;
/// `far`: where the network stimuli's messages come from.
///
/// Fails if the stimulus is unavailable.
pub fn ready(
    stimulus: Stimulus,
    cpu: u32,
    others: &[u32],
    (device, far): (Option<&Path>, &FarEnd),
) -> Result<Box<dyn RaiseInterrupt>, BenchError> {
    let other_cpu = || others.iter().copied().find(|other_cpu| *other_cpu != cpu);
    match stimulus {
        Stimulus::Timer => Ok(Box::new(Timer::new()?)),
        Stimulus::Ipi => Ok(Box::new(Ipi::new(other_cpu())?)),
        Stimulus::Disk => Ok(Box::new(Disk::new(false, device)?)),
        Stimulus::DiskEvent => Ok(Box::new(Disk::new(true, device)?)),
        Stimulus::Net | Stimulus::NetSignal => {
            let signal = stimulus == Stimulus::NetSignal;
            Ok(Box::new(match far {
                FarEnd::Peer(peer) => Net::to_peer(peer, signal)?,
                FarEnd::Cards => Net::over_cards(cpu, other_cpu(), signal)?,
                FarEnd::Veth => Net::new(cpu, other_cpu(), signal)?,
            }))
        }
    }
}
