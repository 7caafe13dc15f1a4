//! Machine models as data: from TOML text to a checked [`SystemModel`], and to a drawing. `sim` reads models here;
//! `irqlab machines` draws, changes (`--set`) and fits them. The text may come from a user: no text may panic.

mod check;
mod draw;
pub(crate) mod fields;
mod parse;
mod set;
pub mod units;

pub use draw::draw;
pub use set::{set, with_assignments};

use crate::model::ModelError;
use crate::system_model::{BlockingModel, SystemModel};

/// Maximum length of a model's text, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

impl SystemModel {
    /// Parses and checks a model.
    ///
    /// Fails with [`ModelError`], which names the line, the field and its allowed values.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        parse::parse(text)
    }

    /// Checks that a [`MemorySystem`](crate::memory::MemorySystem) of this model can have `cpus` processors, which may
    /// be more than the model's own number.
    ///
    /// Fails with [`ModelError`], which names the field and its allowed values.
    pub fn check_cpus(&self, cpus: u32) -> Result<(), ModelError> {
        check::check_cores(self, cpus.div_ceil(self.threads_per_core))
    }
}

impl BlockingModel {
    /// Parses and checks a model for [`BlockingMachine`](crate::BlockingMachine). Refuses other models, with a list of
    /// the features that the fast path does not have.
    ///
    /// Fails with [`ModelError`], which names the line and the field.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        SystemModel::parse(text)?.blocking()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const R4400: &str = include_str!("../../../../machines/r4400-1994.toml");

    #[test]
    fn the_1994_machine_is_that_of_the_paper() {
        let model = BlockingModel::parse(R4400).unwrap();
        let ns = |cycles: u64| cycles * 1_000_000_000 / model.clock_hz;
        assert_eq!((ns(model.l2_hit_cycles), ns(model.memory_cycles)), (50, 500));
        assert_eq!((model.l1d.sets(), model.l2.sets()), (512, 8192));
    }

    #[test]
    fn what_cannot_be_built_is_refused_by_name() {
        let refused = |from: &str, to: &str| {
            BlockingModel::parse(&R4400.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(refused("ways = 2", "ways = 3").starts_with("line 18: l1i.size_bytes: "));
        assert!(refused("ways = 2", "ways = 0").starts_with("line 19: l1i.ways: 0 is not in 1..="));
        assert!(
            refused("line_bytes = 16", "line_bytes = 24").starts_with("line 20: l1i.line_bytes")
        );
        assert!(refused("line_bytes = 128", "line_bytes = 8").contains("l2.line_bytes"));
        assert!(refused("clock_hz", "clock_khz").contains("clock"));
        assert!(refused("entries = 32", "entries = 0").contains(": itlb.entries: 0 is not in"));
        assert!(refused("entries = 32", "entries = 131072").contains(": itlb.entries"));
        assert!(refused("page_bytes = 4096", "page_bytes = 2048").contains(": itlb.page_bytes"));
        assert!(
            refused("memory_cycles = 100", "memory_cycles = 100000000").contains("memory_cycles")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}") {
            let _ = BlockingModel::parse(&text);
        }
    }
}
