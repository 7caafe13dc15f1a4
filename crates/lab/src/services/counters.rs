//! Names of the counters that columns use.

// Counters that show the cost of memory.
pub const CYCLES: &str = "cycles";
pub const INSTRUCTIONS: &str = "instructions";
pub const FETCH_STALL: &str = "fetch_stall_cycles";
pub const DATA_STALL: &str = "data_stall_cycles";
pub const PIPELINE_STALL: &str = "pipeline_stall_cycles";
