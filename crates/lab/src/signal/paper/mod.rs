//! The tables of the paper `signal-afterburner`, its figures compared with measured ones, and its findings
//! as statements.

mod findings;
mod measured;
mod published;
mod tables;

pub use findings::findings;
pub use published::{Published, PublishedRoundTrip, PublishedTable};
pub use tables::{round_trips, throughput};
