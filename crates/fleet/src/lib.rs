//! Fleets: one irqlab command, measured on each of many hosts, and what tells the hosts apart.
//!
//! [`parse_hosts`] checks a list of hosts. A [`FleetDirectory`] holds the command and one result for each host. A
//! conversation ([`conversation`]) with the irqlab of a host compares the clocks, sends the command and receives the run
//! as an archive. [`robust_scores`], [`compare_groups`] and [`differing_facts`] find outliers and what they have in
//! common.
//!
//! This crate starts no process: the command connects to hosts. Nothing that a host sends is trusted.

#![forbid(unsafe_code)]

mod archive;
mod clock;
pub mod conversation;
mod directory;
mod error;
mod facts;
mod groups;
mod hosts;
mod outliers;
mod rank_test;

pub use archive::{ArchiveFile, FILES_MAX, archive_bytes, files_of_run, receive_run, send_run};
pub use clock::{ClockOffset, RoundTrip};
pub use directory::{FleetDirectory, HostRecord, HostState, NewHost, Plan};
pub use error::FleetError;
pub use facts::{DifferingFact, Facts, differing_facts, facts_of, varying_facts};
pub use groups::{GROUP_MIN, GroupComparison, GroupVerdict, compare_groups};
pub use hosts::{HOST_LIST_BYTES_MAX, HOSTS_MAX, check_host, parse_hosts};
pub use outliers::{HOSTS_MIN, OUTLIER_SCORE, RobustScores, Unscored, robust_scores};
pub use rank_test::PValueMethod;
