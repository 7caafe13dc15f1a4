//! One module for each verb of the command: its options, and `run`, which `main` calls.

pub mod affinity;
pub mod bench;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod echo;
pub mod export;
pub mod fleet;
pub mod footprint;
pub mod handlers;
pub mod machines;
pub mod man;
pub mod noise;
mod noise_collective;
mod noise_scale;
pub mod report;
pub mod reproduce;
pub mod services;
pub mod show;
pub mod signal;
pub mod sim;
pub mod sweep;
pub mod wakeup;
pub mod watch;
