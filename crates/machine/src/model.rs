//! The parts that all models share: the geometry of caches and TLBs with its checks, and the error of a refused model.

use std::fmt;

use serde::Deserialize;

/// The reason why a model is refused. Users read it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ModelError {
    /// The line of the text, from 1. `None` if the error does not belong to a text.
    pub line: Option<usize>,
    /// The field, such as `l2.ways`. Empty if the error does not belong to a field.
    pub field: String,
    /// The problem, and the allowed values.
    pub problem: String,
}

impl ModelError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        ModelError { line: None, field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(out, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(out, "{}: ", self.field)?;
        }
        out.write_str(&self.problem)
    }
}

/// The replacement policy: which line of a set is evicted for a new line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The least recently used line.
    #[default]
    Lru,
    /// Pseudo-LRU by a tree of bits.
    TreePlru,
    /// A random line, by a generator with a fixed seed.
    Random,
}

/// The geometry of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheModel {
    /// Capacity in bytes.
    pub size_bytes: u64,
    pub ways: u32,
    /// Line size in bytes; a power of two.
    pub line_bytes: u64,
    pub replacement: Replacement,
}

/// Maximum number of slices of a cache.
const SLICES_MAX: u64 = 1 << 16;
/// Maximum size of a cache, in bytes.
pub(crate) const CACHE_BYTES_MAX: u64 = 4 << 30;
/// Minimum line size, in bytes. It keeps line numbers below 2^62, so that a number with all bits set can stand for an
/// empty way.
pub(crate) const LINE_BYTES_MIN: u64 = 4;
/// Maximum entries of a TLB.
pub(crate) const TLB_ENTRIES_MAX: u32 = 1 << 16;
/// Maximum ways: the bits of a pseudo-LRU tree must fit one word.
pub(crate) const WAYS_MAX: u32 = 64;

impl CacheModel {
    /// The number of sets, at least 1.
    #[must_use]
    pub fn sets(&self) -> u64 {
        (self.size_bytes / self.line_bytes.max(1) / u64::from(self.ways.max(1))).max(1)
    }

    /// The number of slices: the odd factor of the number of sets. A slice has a power of two of sets, and a hash of the
    /// line's address selects the slice.
    #[must_use]
    pub fn slices(&self) -> u64 {
        let sets = self.sets();
        sets >> sets.trailing_zeros()
    }

    /// Refuses a geometry that a cache without slices cannot have. `name` is the field that holds it.
    ///
    /// Fails with [`ModelError`], naming the field.
    pub fn check(&self, name: &str) -> Result<(), ModelError> {
        self.check_with_slices(name, 1)
    }

    /// [`CacheModel::check`] for a cache that may have several slices, so that its number of sets need not be a power of two.
    pub(crate) fn check_sliced(&self, name: &str) -> Result<(), ModelError> {
        self.check_with_slices(name, SLICES_MAX)
    }

    /// Checks size, line and ways of a cache with up to `slices_max` slices. `name`: the path of the cache in the
    /// model, for the error.
    fn check_with_slices(&self, name: &str, slices_max: u64) -> Result<(), ModelError> {
        let refuse =
            |field: &str, problem: String| Err(ModelError::new(format!("{name}.{field}"), problem));
        if !self.line_bytes.is_power_of_two() || !(LINE_BYTES_MIN..=4096).contains(&self.line_bytes)
        {
            return refuse(
                "line_bytes",
                format!("{} is no power of two in {LINE_BYTES_MIN}..=4096", self.line_bytes),
            );
        }
        if !(1..=WAYS_MAX).contains(&self.ways) {
            return refuse("ways", format!("{} is not in 1..={WAYS_MAX}", self.ways));
        }
        if self.replacement == Replacement::TreePlru && !self.ways.is_power_of_two() {
            return refuse("ways", format!("{}: a tree needs a power of two", self.ways));
        }
        let set_bytes = self.line_bytes * u64::from(self.ways);
        let is_multiple = self.size_bytes >= set_bytes && self.size_bytes.is_multiple_of(set_bytes);
        if !is_multiple || self.size_bytes > CACHE_BYTES_MAX || self.slices() > slices_max {
            let sets = match slices_max {
                1 => "a power of two".to_owned(),
                _ => format!("a power of two times an odd number up to {slices_max}"),
            };
            let problem = format!(
                "{} is not ways times line size times {sets}, up to {CACHE_BYTES_MAX}",
                self.size_bytes
            );
            return refuse("size_bytes", problem);
        }
        Ok(())
    }
}

/// The geometry of a TLB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbModel {
    pub entries: u32,
    /// Associativity; equals `entries` in a fully associative TLB.
    pub ways: u32,
    /// Page size in bytes: a power of two, at least the guest's smallest page of 4 KiB.
    pub page_bytes: u64,
    pub replacement: Replacement,
}

impl TlbModel {
    /// The geometry of the tag array for this TLB. Only sets, ways and replacement matter, so the line size is the
    /// smallest.
    pub(crate) fn as_cache(&self) -> CacheModel {
        CacheModel {
            size_bytes: u64::from(self.entries) * LINE_BYTES_MIN,
            ways: self.ways,
            line_bytes: LINE_BYTES_MIN,
            replacement: self.replacement,
        }
    }

    /// Checks that sizes are powers of two in their ranges. Errors call the TLB `name`.
    pub(crate) fn check(&self, name: &str) -> Result<(), ModelError> {
        let sizes = 4 << 10..=1 << 30;
        if !self.page_bytes.is_power_of_two() || !sizes.contains(&self.page_bytes) {
            return Err(ModelError::new(
                format!("{name}.page_bytes"),
                format!("{} is no power of two in 4 KiB..=1 GiB", self.page_bytes),
            ));
        }
        if !(1..=TLB_ENTRIES_MAX).contains(&self.entries) {
            return Err(ModelError::new(
                format!("{name}.entries"),
                format!("{} is not in 1..={TLB_ENTRIES_MAX}", self.entries),
            ));
        }
        let is_multiple = self.ways > 0 && self.entries.is_multiple_of(self.ways);
        if !is_multiple || !(self.entries / self.ways).is_power_of_two() {
            return Err(ModelError::new(
                format!("{name}.entries"),
                format!("{} is not ways times a power of two", self.entries),
            ));
        }
        self.as_cache().check(name)
    }
}
