//! Type information of a kernel (BTF, Documentation/bpf/btf.rst), as far as offsets of struct
//! members and values in memory need it.
//!
//! The bytes come from the guest: every offset is checked against the sections, every chain of
//! types is bounded, and what does not fit is an error.

mod layout;
mod members;
mod types;

use std::collections::HashMap;

use layout::{Kind, Sections, TypeHead};
pub use members::Member;
pub use types::{Field, Shape, TypeId};

use crate::{Result, SimError};

/// Most types; a full kernel has some 150,000.
const TYPES_MAX: usize = 4_000_000;

/// Types of a kernel.
#[derive(Clone, Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    sections: Sections,
    /// Where each type begins in `bytes`; type 1 is the first.
    types: Vec<u32>,
    /// Structs, unions and typedefs by name; a struct before a typedef of its name.
    by_name: HashMap<String, u32>,
}

impl Btf {
    /// From the content of `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// When it is damaged, of another byte order or version, or too large.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf> {
        let sections = Sections::of(&bytes)?;
        let mut btf = Btf { bytes, sections, types: Vec::new(), by_name: HashMap::new() };
        let mut at = btf.sections.types_start;
        while at < btf.sections.types_end {
            let head = TypeHead::read(&btf.bytes[..btf.sections.types_end], at)
                .ok_or_else(|| bad("a type is cut off"))?;
            if btf.types.len() >= TYPES_MAX {
                return Err(bad("too many types"));
            }
            let start = u32::try_from(at).map_err(|_| bad("too large"))?;
            btf.types.push(start);
            btf.index(&head);
            let end = at.checked_add(head.bytes()).filter(|&end| end <= btf.sections.types_end);
            at = end.ok_or_else(|| bad("a type is cut off"))?;
        }
        Ok(btf)
    }

    /// Number of types.
    #[must_use]
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    fn index(&mut self, head: &TypeHead) {
        let is_aggregate = matches!(head.kind, Kind::Struct | Kind::Union);
        if !is_aggregate && head.kind != Kind::Typedef {
            return;
        }
        let id = self.types.len() as u32; // at most TYPES_MAX
        let Some(name) = self.string(head.name).filter(|name| !name.is_empty()) else { return };
        let name = name.to_owned();
        match self.by_name.get(&name).and_then(|&other| self.head(other)) {
            // The first of a name counts, except that a struct hides a typedef.
            Some(other) if !is_aggregate || other.kind != Kind::Typedef => {}
            _ => drop(self.by_name.insert(name, id)),
        }
    }

    fn head(&self, id: u32) -> Option<TypeHead> {
        let at = *self.types.get(id.checked_sub(1)? as usize)?;
        TypeHead::read(&self.bytes[..self.sections.types_end], at as usize)
    }

    fn string(&self, offset: u32) -> Option<&str> {
        let start = self.sections.strings_start.checked_add(offset as usize)?;
        let bytes = self.bytes.get(start..self.sections.strings_end)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }
}

fn bad(reason: &str) -> SimError {
    SimError::data("BTF of the guest", reason)
}

#[cfg(test)]
pub(crate) mod tests;
