//! Kernels of the validation suite: samples from a real processor or a simulated machine, kept data, and the
//! comparison of a processor with its model.
//!
//! The kernels themselves are in the crate `kernels`. `irqlab bench model` compares, and `irqlab machines
//! fit` makes a model that agrees.

mod comparison;
mod exits;
pub mod fit;
pub mod in_guest;
mod measured;
mod processes;
mod sample;
mod tables;

pub use comparison::{Comparison, Pair, error_factor, is_held_out};
pub use exits::host_exits;
pub use measured::{Kept, MEASURED_BYTES_MAX};
pub use processes::middle_of_processes;
pub use sample::{Figures, KernelSample, Processor, Statistics};
pub use tables::{comparison_tables, field_table, measured_table, preset_table};
