//! A translation look-aside buffer: which pages are in.

use crate::cache::{Cache, Outcome};
use crate::model::TlbModel;

/// A TLB of pages of one size.
#[derive(Clone, Debug)]
pub struct Tlb {
    pages: Cache,
}

impl Tlb {
    /// An empty TLB of the model's geometry.
    #[must_use]
    pub fn new(model: &TlbModel) -> Self {
        Tlb { pages: Cache::new(&model.as_cache()) }
    }

    /// Looks a page up, brings it in when it is not there; true when it was.
    pub fn access(&mut self, page: u64) -> bool {
        self.pages.access(page, false) == Outcome::Hit
    }

    /// Forgets all pages.
    pub fn flush(&mut self) {
        self.pages.clear();
    }
}
