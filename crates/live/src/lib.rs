//! The live bench: measures the machine on which irqlab runs.
//!
//! The command (`irqlab`) builds the bench of an experiment from this crate, and `lab` runs the experiment on it. The
//! crate returns samples: it knows no tables and no files of runs. In a simulated machine, the guest's irqlab runs the
//! same stimuli and loops from here (modules `in_guest`).
//!
//! Each experiment has a module: [`handlers`], [`noise`], [`footprint`], [`services`], [`signal`],
//! [`wakeup`].
//! Parts that several experiments share are modules of their own:
//!
//! - [`bpf`]: the BPF programs
//! - [`clock`]: the time-stamp counter
//! - [`window`]: the window, its end, the stop request
//! - [`threads`] and [`spawn`]: pinning and scheduling of threads; starting a thread, and naming the limit that
//!   refuses a thread or a process
//! - [`perf`]: performance events, which the BPF programs read
//! - [`probe_overhead`]: the time and the events that a pair of probes adds to a span
//! - [`marks`]: the kernel's events (interrupts, task switches, page faults) as a stream
//! - `ring`: records from a measuring thread to the thread that reads them
//! - `companion`: the user's command that runs while irqlab measures
//! - [`threshold`]: what `noise` and `wakeup` do at detours and wake-ups that reach a threshold
//! - [`syscall_loop`]: a loop of system calls
//! - [`echo`]: answers messages: the other end of a connection, here or on another machine
//! - `network`: network namespaces and their interfaces, for stimuli
//! - [`nic`]: settings of one of the machine's network interfaces
//! - [`stimulus`]: load and stimuli
//! - [`host`]: facts about the machine
//! - [`irq_lines`]: the interrupt lines that `irqlab affinity` places
//! - [`journal`]: changes to undo when irqlab ends, or after it was killed
//! - [`program_rights`]: capabilities of the programs that irqlab starts
//!
//! [`kernels`] measures the kernels of the validation suite of processor models.
//! [`selfbench`] measures irqlab itself and runs the experiments' benches.
//!
//! **Architecture invariant:** no experiment's module imports from another experiment's module.

pub mod bpf;
pub mod clock;
mod companion;
pub mod echo;
pub mod footprint;
pub mod handlers;
pub mod host;
pub mod irq_lines;
pub mod journal;
pub mod kernels;
pub mod marks;
mod network;
pub mod nic;
pub mod noise;
pub mod perf;
pub mod probe_overhead;
pub mod program_rights;
mod ring;
pub mod selfbench;
pub mod services;
pub mod signal;
pub mod spawn;
pub mod stimulus;
pub mod syscall_loop;
pub mod threads;
pub mod threshold;
pub mod wakeup;
pub mod window;
