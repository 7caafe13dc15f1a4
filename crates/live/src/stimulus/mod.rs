//! Stimuli, which raise interrupts on the measured CPUs, and the busy load. Each runs in a separate process, for
//! `handlers` and for irqlab's benchmarks of itself (`selfbench`), on this machine and in a guest.
//!
//! # Design constraints
//! - **The measuring process stays idle.** A stimulus runs in a child process of the same
//!   program ([`Helper`]). The two exchange messages over the child's stdin and stdout only at
//!   the start and at the end.
//! - **Nothing outlives the run.** The child receives `SIGKILL` when its parent dies, ends when its
//!   stdin closes, and holds only resources that the kernel frees with it: unlinked files, unnamed
//!   network namespaces, perf events.
//! - **No external command and no BPF**: this code also runs in a guest that has no `ip`, no `ping`
//!   and no shell.
//! - **An unavailable stimulus is an error with reason and remedy**
//!   ([`StimulusError::Unavailable`]).
//!
//! `docs/stimuli.md` says what each stimulus does, where its threads are pinned and which
//! interrupts it raises.
//!
//! # Architecture invariant
//! This module uses only `journal`, `host` and `network` of `live`.

mod disk;
mod error;
mod facts;
mod helper;
mod ipi;
mod load;
mod net;
mod peer;
mod running;
mod scratch;
mod settings;
mod system;
mod timer;
mod wire;
mod worker_pool;

pub use error::StimulusError;
pub use helper::helper_main;
pub use lab::handlers::{Load, Rate, Stimulus};
pub use net::steered::Ends;
pub use running::{Helper, Running};
pub use scratch::default_scratch_dir;
pub use settings::{LoadSettings, StimulusSettings};
pub use wire::Report;

use error::WorkerError;
use wire::Job;

/// The hidden verb under which a program must call [`helper_main`] with its next argument.
pub const HELPER_VERB: &str = "__stimulus";

/// Starts a stimulus and waits until it runs.
///
/// Call this from a thread that outlives the stimulus, because the kernel's parent-death signal
/// follows the *thread* that started the child. [`Stimulus::None`] starts no process.
///
/// Fails with [`StimulusError::Invalid`] for invalid settings, and with [`StimulusError::Unavailable`] if this
/// machine cannot raise the stimulus; that error has a reason and a remedy. Fails with the other variants if the
/// child cannot be started or dies.
pub fn start(settings: &StimulusSettings, helper: &Helper) -> Result<Running, StimulusError> {
    settings.validate()?;
    let name = format!("{} {}", settings.stimulus, settings.rate);
    if settings.stimulus == Stimulus::None {
        return Ok(Running::nothing(name));
    }
    Running::spawn(name, Job::Source(settings.clone()), helper)
}

/// Creates an unnamed file of this size on the disk of `directory`. Its reads bypass the page cache.
///
/// The error is the reason and the remedy if such a file is unavailable.
pub fn scratch_file(
    directory: &std::path::Path,
    bytes: u64,
) -> Result<std::fs::File, (String, String)> {
    let target = scratch::make(directory, bytes).map_err(WorkerError::into_parts)?;
    let refused = || (format!("{}: O_DIRECT is refused", target.place), scratch::REMEDY.to_owned());
    if target.is_direct { Ok(target.file) } else { Err(refused()) }
}

/// Opens a file or a block device for reads that bypass the page cache. Returns it with its size in bytes.
///
/// The error is the reason and the remedy if it is not on a disk, or cannot be read.
pub fn direct_file(path: &std::path::Path) -> Result<(std::fs::File, u64), (String, String)> {
    let target = scratch::open(path).map_err(WorkerError::into_parts)?;
    let refused = || (format!("{}: O_DIRECT is refused", target.place), scratch::REMEDY.to_owned());
    if target.is_direct { Ok((target.file, target.size_bytes)) } else { Err(refused()) }
}

/// Opens a TCP connection over a new veth pair. The kernel handles packets that arrive at the near end on `cpu`.
///
/// The error is the reason and the remedy if the pair is unavailable.
pub fn connected_ends(cpu: u32) -> Result<Ends, (String, String)> {
    net::steered::connected(cpu).map_err(WorkerError::into_parts)
}

/// Like [`connected_ends`], over the two cards of a simulated machine, which are connected back to
/// back. The kernel handles the near card on `cpu`, and the far card on CPU `other`.
///
/// The error is the reason and the remedy if the cards are unavailable.
pub fn connected_cards(cpu: u32, other: u32) -> Result<Ends, (String, String)> {
    net::steered::connected_cards(cpu, other).map_err(WorkerError::into_parts)
}

/// Runs `far` at the far end of a veth pair and `near` at its near end, like [`connected_ends`].
#[cfg(test)]
pub(crate) fn across_pair<F: Send + 'static, N: Send + 'static>(
    cpu: u32,
    far: impl FnOnce(std::net::TcpListener) -> F + Send + 'static,
    near: impl FnOnce(std::net::SocketAddr) -> N + Send + 'static,
) -> Result<N, (String, String)> {
    let made =
        std::thread::spawn(move || net::steered::across(net::steered::veth(cpu)?, far, near));
    let made = made.join().expect("no panic in either");
    made.map(|(near, _)| near).map_err(WorkerError::into_parts)
}

/// Starts the busy load (zlib compression, one thread per CPU) and waits until it runs.
///
/// Has the errors of [`start`].
pub fn start_load(settings: &LoadSettings, helper: &Helper) -> Result<Running, StimulusError> {
    settings.validate()?;
    Running::spawn("busy load".to_owned(), Job::Load(settings.clone()), helper)
}
