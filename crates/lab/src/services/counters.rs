//! Names of the counters in [`super::ServicesSample::counters`] that tables read. The names are public: they are parts
//! of columns' names. A bench without a model has no stall counters.

pub const CYCLES: &str = "cycles";
pub const INSTRUCTIONS: &str = "instructions";
pub const FETCH_STALL: &str = "fetch_stall_cycles";
pub const DATA_STALL: &str = "data_stall_cycles";
pub const PIPELINE_STALL: &str = "pipeline_stall_cycles";
pub const BRANCH_STALL: &str = "branch_stall_cycles";
