//! Stimuli that raise a single interrupt at an approximately known time, for one repetition of `footprint`. Unlike
//! `crate::stimulus`, they run in the measuring process.

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
    /// The lines of /proc/interrupts that may count the interrupt.
    fn counted_as(&self) -> CountedAs;

    /// Requests the interrupt after `delay`. If a device raises it, it comes some time later.
    ///
    /// Fails if the kernel refuses.
    fn schedule(&mut self, delay: Duration) -> std::io::Result<()>;

    /// Waits until no request is pending, or cancels the request. For the time after the window of the repetition.
    ///
    /// Fails if the kernel refuses.
    fn drain(&mut self) -> std::io::Result<()>;

    /// Whether the interrupt comes at the requested time, within some microseconds.
    fn is_timed(&self) -> bool {
        false
    }

    /// Whether the interrupt never comes before its delay, and comes soon after it. A window that is open then contains
    /// the interrupt.
    fn comes_in_window(&self) -> bool {
        self.is_timed()
    }

    /// How the interrupt is raised, with the device or sender: the text of the tables' method. Nothing parses it.
    fn method(&self) -> String;
}

/// Prepares a stimulus for a loop on `cpu`. `others`: CPUs that may send the interrupt or the message. `device`: what the disk stimuli read
/// instead of scratch files. `far`: the sender of the network stimuli's messages.
///
/// Fails if this machine cannot provide the stimulus.
pub fn prepare_stimulus(
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
            let sends_signal = stimulus == Stimulus::NetSignal;
            Ok(Box::new(match far {
                FarEnd::Peer(peer) => Net::to_peer(peer, sends_signal)?,
                FarEnd::Cards => Net::over_cards(cpu, other_cpu(), sends_signal)?,
                FarEnd::Veth => Net::new(cpu, other_cpu(), sends_signal)?,
            }))
        }
    }
}
