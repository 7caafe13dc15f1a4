//! Pictures of `noise`. Each has a panel for each CPU, and colours by cause of the lost time.

mod causes;
mod repetitions;
mod scale;
mod sizes;
mod spectrum;
mod timeline;

pub use repetitions::repetitions;
pub use scale::scale;
pub use sizes::sizes;
pub use spectrum::spectrum;
pub use timeline::timeline;
