//! Members of structs by name and path.

use super::layout::{Kind, MEMBER_BYTES, TypeHead, read_u32};
use super::{Btf, bad};
use crate::{Result, SimError};

/// Longest chain of typedefs and qualifiers.
const CHAIN_MAX: usize = 64;
/// Deepest nesting of unnamed structs.
const DEPTH_MAX: usize = 32;
/// Most members that one look-up visits: damaged types could refer to themselves.
const VISITS_MAX: usize = 100_000;
/// Bytes of a pointer of the guest.
const POINTER_BYTES: u64 = 8;
/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 16;

/// Where a member is in its struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the outermost struct; of a bit field the byte of its first bit.
    pub offset_bytes: u64,
    /// Bytes of the member; of a bit field those that it touches.
    pub size_bytes: u64,
    /// Of a bit field: its first bit in that byte, and its bits.
    pub bit_field: Option<(u8, u8)>,
}

/// A member as it is found on the way, with the type that it has.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) offset_bits: u64,
    pub(super) bit_size: u32,
    pub(super) type_id: u32,
}

impl Btf {
    /// Bytes from the start of a struct to a member; `path` may go through structs inside, as in
    /// `se.vruntime`. Members of unnamed structs and unions inside are found by their names.
    ///
    /// # Errors
    /// When the struct or the member is not there, or the member is a bit field that does not
    /// begin at a byte.
    pub fn offset_of(&self, name: &str, path: &str) -> Result<u64> {
        let member = self.member(name, path)?;
        match member.bit_field {
            None | Some((0, _)) => Ok(member.offset_bytes),
            Some(_) => Err(missing(name, path, "is a bit field within a byte")),
        }
    }

    /// Place and size of a member.
    ///
    /// # Errors
    /// As [`Btf::offset_of`], but bit fields are found.
    pub fn member(&self, name: &str, path: &str) -> Result<Member> {
        let mut type_id = self.named(name)?;
        let mut offset_bits = 0;
        let mut bit_size = 0;
        let mut visits = 0;
        for step in path.split('.') {
            let found = self.find(type_id, step, 0, &mut visits)?;
            let found = found.ok_or_else(|| missing(name, path, "has no such member"))?;
            offset_bits += found.offset_bits;
            (type_id, bit_size) = (found.type_id, found.bit_size);
        }
        if bit_size == 0 {
            let size_bytes = self.size(type_id)?;
            return Ok(Member { offset_bytes: offset_bits / 8, size_bytes, bit_field: None });
        }
        let first = (offset_bits % 8) as u8;
        let bits = u8::try_from(bit_size).map_err(|_| bad("a bit field of over 255 bits"))?;
        let size_bytes = (u64::from(first) + u64::from(bits)).div_ceil(8);
        let bit_field = Some((first, bits));
        Ok(Member { offset_bytes: offset_bits / 8, size_bytes, bit_field })
    }

    /// Bytes of a struct, union or typedef.
    ///
    /// # Errors
    /// When there is none of this name, or it has no size.
    pub fn size_of(&self, name: &str) -> Result<u64> {
        self.size(self.named(name)?)
    }

    pub(super) fn named(&self, name: &str) -> Result<u32> {
        let id = self.by_name.get(name).copied();
        id.ok_or_else(|| SimError::data(format!("type {name:?}"), "not in this kernel's BTF"))
    }

    /// The type behind typedefs and qualifiers.
    pub(super) fn resolve(&self, mut id: u32) -> Result<TypeHead> {
        for _ in 0..CHAIN_MAX {
            let head = self.head(id).ok_or_else(|| bad("a type refers to none"))?;
            match head.kind {
                Kind::Typedef | Kind::Wrapper => id = head.size_or_type,
                _ => return Ok(head),
            }
        }
        Err(bad("types refer to each other in a circle"))
    }

    /// The member of this name, also through unnamed structs and unions.
    pub(super) fn find(
        &self,
        id: u32,
        name: &str,
        depth: usize,
        visits: &mut usize,
    ) -> Result<Option<Found>> {
        let head = self.resolve(id)?;
        if !matches!(head.kind, Kind::Struct | Kind::Union) || depth > DEPTH_MAX {
            return Ok(None);
        }
        for index in 0..head.count {
            *visits += 1;
            if *visits > VISITS_MAX {
                return Err(bad("too many members"));
            }
            let at = head.rest + index * MEMBER_BYTES;
            let word = |n: usize| read_u32(&self.bytes[..self.sections.types_end], at + 4 * n);
            let (Some(member), Some(type_id), Some(place)) = (word(0), word(1), word(2)) else {
                return Err(bad("a member is cut off"));
            };
            let (offset, bit_size) =
                if head.has_bit_sizes { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let offset_bits = u64::from(offset);
            match self.string(member) {
                Some("") => {
                    if let Some(inner) = self.find(type_id, name, depth + 1, visits)? {
                        let offset_bits = offset_bits + inner.offset_bits;
                        return Ok(Some(Found { offset_bits, ..inner }));
                    }
                }
                Some(other) if other == name => {
                    return Ok(Some(Found { offset_bits, bit_size, type_id }));
                }
                Some(_) => {}
                None => return Err(bad("a name is outside of the strings")),
            }
        }
        Ok(None)
    }

    pub(super) fn size(&self, mut id: u32) -> Result<u64> {
        let mut elements = 1u64;
        for _ in 0..DIMENSIONS_MAX {
            let head = self.resolve(id)?;
            let one = match head.kind {
                Kind::Pointer => POINTER_BYTES,
                Kind::Int | Kind::Struct | Kind::Union | Kind::Enum => head.size_or_type.into(),
                Kind::Array => {
                    let types = &self.bytes[..self.sections.types_end];
                    let (Some(of), Some(count)) =
                        (read_u32(types, head.rest), read_u32(types, head.rest + 8))
                    else {
                        return Err(bad("an array is cut off"));
                    };
                    id = of;
                    elements = elements.saturating_mul(count.into());
                    continue;
                }
                Kind::Typedef | Kind::Wrapper | Kind::Function | Kind::Prototype | Kind::Other => {
                    return Err(bad("a type without a size"));
                }
            };
            return Ok(elements.saturating_mul(one));
        }
        Err(bad("an array of too many dimensions"))
    }
}

fn missing(name: &str, path: &str, reason: &str) -> SimError {
    SimError::data(format!("{name}.{path}"), reason)
}
