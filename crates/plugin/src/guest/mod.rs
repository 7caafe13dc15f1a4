//! The software that runs in the guest: what it executes, for whom, and where its data is.
//!
//! - Contexts: `tracker` follows the task and the stack of contexts on each CPU. `spans` writes spans and
//!   transitions, `executed_blocks` writes the blocks of a short time, and `irq` reads the numbers and names of IRQ lines.
//!   `task` reads what a task is and whether it waits. `first_context` finds the context of a CPU that was not followed
//!   before. `memory_context` encodes a context for the memory system.
//! - The guest's memory: `memory`.
//! - Delays: `delays` joins the events that begin and end them, `delays_of_guest` reads from the guest what is delayed,
//!   and `guest_time` computes the guest's clocks.
//! - Senders: `senders` joins the calls that CPUs queue for other CPUs to their runs, and `senders_of_guest` reads from
//!   the guest who sends.
//! - Block requests: `requests` follows them from their submission to their completion, and `requests_of_guest` reads from
//!   the guest who submits them.
//! - Control groups: `groups` notes the group of the task that each CPU runs.
//! - Regions of interest: `markers` acts on the guest's markers, `regions` knows the open region, and `region_rows`
//!   writes its rows. `enough` decides when a region has measured enough, and `close_time` when it closes then.
//! - Services of the kernel: `services` follows them, `service_sums` adds up their counts, and `service_misses` their
//!   cache misses.
//! - Cache misses of other contexts: `misses`.
//! - Names of addresses: `user_functions` for programs, and `structures` for data.
//! - `identity`: what the processor tells the guest about itself.
//! - `annotations`: actions at addresses and events that the user chooses.

pub(crate) mod annotations;
pub(crate) mod close_time;
pub(crate) mod delays;
mod delays_of_guest;
pub(crate) mod enough;
pub(crate) mod executed_blocks;
pub(crate) mod first_context;
pub(crate) mod groups;
mod guest_time;
pub(crate) mod identity;
pub(crate) mod irq;
pub(crate) mod markers;
pub(crate) mod memory;
pub(crate) mod memory_context;
pub(crate) mod misses;
pub(crate) mod region_rows;
pub(crate) mod regions;
pub(crate) mod requests;
mod requests_of_guest;
pub(crate) mod senders;
pub(crate) mod senders_of_guest;
pub(crate) mod service_misses;
pub(crate) mod service_sums;
pub(crate) mod services;
pub(crate) mod spans;
pub(crate) mod structures;
pub(crate) mod task;
pub(crate) mod tracker;
pub(crate) mod user_functions;
