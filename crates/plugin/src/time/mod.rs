//! Guest time: how it passes, how vCPUs share it, and when it ends.

pub(crate) mod clock;
pub(crate) mod idle;
pub(crate) mod limit;
pub(crate) mod pause;
pub(crate) mod progress;
pub(crate) mod rounds;
pub(crate) mod tsc;
