//! What raises one interrupt, at a time that is about known.

mod cued;
mod disk;
mod echo;
mod ipi;
mod net;
mod timer;

use std::path::Path;
use std::time::Duration;

use lab::footprint::Source;

pub use disk::Disk;
pub use echo::echo;
pub use ipi::Ipi;
pub use net::{FarEnd, Net};
pub use timer::Timer;

/// Why a source can't be had: the reason, and the line that unlocks it.
#[derive(Debug)]
pub struct Unavailable {
    /// Why.
    pub reason: String,
    /// What would help.
    pub remedy: Option<String>,
}

impl Unavailable {
    fn because(reason: impl Into<String>) -> Self {
        Unavailable { reason: reason.into(), remedy: None }
    }
}

/// Under which name the kernel counts the interrupt in /proc/interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The line of that name.
    Line(&'static str),
    /// A line with a number: a device's.
    Device,
    /// A device's, or the call by which another CPU hands over what came in there.
    Arrival,
}

impl Counted {
    /// Whether a line of that label is it.
    #[must_use]
    pub fn is(self, label: &str) -> bool {
        match self {
            Counted::Line(line) => label == line,
            Counted::Device => label.parse::<u32>().is_ok(),
            Counted::Arrival => label == "CAL" || label.parse::<u32>().is_ok(),
        }
    }
}

/// One interrupt on the CPU of the calling thread.
pub trait Raise {
    /// How the kernel counts it.
    fn counted(&self) -> Counted;

    /// Has the interrupt come after `delay`, or when the device pleases.
    ///
    /// # Errors
    /// When the system refuses.
    fn schedule(&mut self, delay: Duration) -> std::io::Result<()>;

    /// Behind the window: waits until nothing of it is under way any more.
    ///
    /// # Errors
    /// When the system refuses.
    fn settle(&mut self) -> std::io::Result<()>;

    /// Whether it comes when it is asked to, to within some microseconds.
    fn is_timed(&self) -> bool {
        false
    }

    /// How it is done, for the tables.
    fn method(&self) -> String;
}

/// Makes a source ready, for a loop on `cpu`. `device`: what the disk sources read, if no file of their own;
/// `far`: from where messages come to the network sources.
///
/// # Errors
/// Where it can't be had.
pub fn ready(
    source: Source,
    cpu: u32,
    others: &[u32],
    (device, far): (Option<&Path>, &FarEnd),
) -> Result<Box<dyn Raise>, Unavailable> {
    let other = || others.iter().copied().find(|other| *other != cpu);
    match source {
        Source::Timer => Ok(Box::new(Timer::new()?)),
        Source::Ipi => Ok(Box::new(Ipi::new(other())?)),
        Source::Disk => Ok(Box::new(Disk::new(false, device)?)),
        Source::DiskEvent => Ok(Box::new(Disk::new(true, device)?)),
        Source::Net | Source::NetSignal => {
            let signal = source == Source::NetSignal;
            Ok(Box::new(match far {
                FarEnd::Peer(peer) => Net::to_peer(peer, signal)?,
                FarEnd::Cards => Net::over_cards(cpu, other(), signal)?,
                FarEnd::Veth => Net::new(cpu, other(), signal)?,
            }))
        }
    }
}
