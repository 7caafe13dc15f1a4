//! Pictures of `noise`, a panel for each CPU.

mod causes;
mod repetitions;
mod sizes;
mod spectrum;

pub use repetitions::repetitions_svg;
pub use sizes::sizes_svg;
pub use spectrum::spectrum_svg;
