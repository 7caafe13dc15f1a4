//! Pictures of `noise`, a panel for each CPU.

mod causes;
mod repetitions;
mod sizes;
mod spectrum;
mod timeline;

pub use repetitions::repetitions;
pub use sizes::sizes;
pub use spectrum::spectrum;
pub use timeline::timeline;
