//! Bytes of BTF: header, heads of types, sizes of what follows them.

use super::bad;
use crate::Result;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;
/// Bytes of the head of each type.
const HEAD_BYTES: usize = 12;
/// Bytes of a member of a struct or union.
pub(super) const MEMBER_BYTES: usize = 12;

/// Where the sections are in the bytes.
#[derive(Clone, Debug)]
pub(super) struct Sections {
    pub(super) types_start: usize,
    pub(super) types_end: usize,
    pub(super) strings_start: usize,
    pub(super) strings_end: usize,
}

impl Sections {
    pub(super) fn of(bytes: &[u8]) -> Result<Sections> {
        let number = |at| read_u32(bytes, at).ok_or_else(|| bad("the header is cut off"));
        let magic = bytes.get(..2).ok_or_else(|| bad("is empty"))?;
        if magic != MAGIC.to_le_bytes() {
            return Err(bad("no BTF of this byte order"));
        }
        if bytes.get(2) != Some(&VERSION) {
            return Err(bad("another version of BTF"));
        }
        let header = number(4)? as usize;
        if header < HEADER_BYTES {
            return Err(bad("the header is too short"));
        }
        let section = |offset: u32, length: u32| {
            let start = header.checked_add(offset as usize)?;
            let end = start.checked_add(length as usize)?;
            (end <= bytes.len()).then_some((start, end))
        };
        let types = section(number(8)?, number(12)?);
        let strings = section(number(16)?, number(20)?);
        let outside = || bad("a section is outside of the file");
        let (types_start, types_end) = types.ok_or_else(outside)?;
        let (strings_start, strings_end) = strings.ok_or_else(outside)?;
        Ok(Sections { types_start, types_end, strings_start, strings_end })
    }
}

/// Kinds of types that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Typedef,
    /// `const`, `volatile`, `restrict` and tags: the type behind is what counts.
    Wrapper,
    Function,
    /// What a function takes and gives.
    Prototype,
    Other,
}

/// The first words of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeHead {
    pub(super) name: u32,
    pub(super) kind: Kind,
    /// Members hold a bit field's size beside the offset.
    pub(super) has_bit_sizes: bool,
    /// Number of members.
    pub(super) count: usize,
    /// Bytes of the type, or the type that it refers to, by kind.
    pub(super) size_or_type: u32,
    /// Where the rest begins.
    pub(super) rest: usize,
    rest_bytes: usize,
}

impl TypeHead {
    pub(super) fn read(bytes: &[u8], at: usize) -> Option<TypeHead> {
        let name = read_u32(bytes, at)?;
        let info = read_u32(bytes, at.checked_add(4)?)?;
        let size_or_type = read_u32(bytes, at.checked_add(8)?)?;
        let count = (info & 0xffff) as usize;
        let (kind, rest_bytes) = match (info >> 24) & 0x1f {
            1 => (Kind::Int, 4),
            2 => (Kind::Pointer, 0),
            3 => (Kind::Array, 12),
            4 => (Kind::Struct, count * MEMBER_BYTES),
            5 => (Kind::Union, count * MEMBER_BYTES),
            6 => (Kind::Enum, count * 8),
            8 => (Kind::Typedef, 0),
            9..=11 | 18 => (Kind::Wrapper, 0),
            7 | 16 => (Kind::Other, 0), // forward declaration, float
            12 => (Kind::Function, 0),
            13 => (Kind::Prototype, count * 8),
            14 | 17 => (Kind::Other, 4), // variable, tag of a declaration
            15 => (Kind::Other, count * 12), // section
            19 => (Kind::Enum, count * 12),
            _ => return None,
        };
        let rest = at.checked_add(HEAD_BYTES)?;
        let has_bit_sizes = info >> 31 == 1;
        Some(TypeHead { name, kind, has_bit_sizes, count, size_or_type, rest, rest_bytes })
    }

    /// Bytes of the whole type.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + self.rest_bytes
    }
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}
