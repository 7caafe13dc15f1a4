//! Type information of a kernel (BTF, Documentation/bpf/btf.rst): offsets of struct members, and the shape
//! of values in memory.
//!
//! [`crate::annotate`] compiles expressions with it, [`crate::watch`] looks up the offsets that the plugin needs.
//! `services` names the member of a structure that missed in a cache.
//! The bytes come from the guest: every offset is checked against the sections, every chain of types is
//! bounded, and damaged data is an error. Keep these bounds: a type can refer to itself.

mod arguments;

use std::collections::HashMap;

pub use arguments::{Location, Parameter};

use crate::text::hint;
use crate::{Result, SimError};

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;
/// Size of the head of each type (`struct btf_type`), bytes.
const HEAD_BYTES: usize = 12;
/// Size of the entry of a struct's or union's member (`struct btf_member`), bytes.
const MEMBER_BYTES: usize = 12;
/// Maximum number of types; a full kernel has some 150,000.
const TYPES_MAX: usize = 4_000_000;
/// Maximum length of a chain of typedefs and qualifiers.
const CHAIN_MAX: usize = 64;
/// Maximum nesting of unnamed structs.
const DEPTH_MAX: usize = 32;
/// Maximum number of members that one look-up visits: damaged types could refer to themselves.
const VISITS_MAX: usize = 100_000;
/// Size of a pointer of the guest, bytes.
const POINTER_BYTES: u64 = 8;
/// Maximum number of dimensions of an array.
const DIMENSIONS_MAX: usize = 16;
/// Maximum number of member names that are compared with an unknown name, to suggest a similar one.
const NAMES_MAX: usize = 10_000;
/// Maximum nesting of unnamed structs whose members are suggested.
const SUGGESTION_DEPTH_MAX: usize = 8;
/// Maximum number of parameters of a function.
const PARAMETERS_MAX: usize = 64;
const PARAMETER_BYTES: usize = 8;
/// Types into which [`Btf::member_at`] does not look: their members say less than the member that has such a type.
const OPAQUE_TYPES: [&str; 17] = [
    "spinlock",
    "raw_spinlock",
    "rwlock_t",
    "mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "semaphore",
    "seqcount",
    "lockref",
    "list_head",
    "hlist_node",
    "hlist_head",
    "rb_node",
    "atomic_t",
    "atomic64_t",
    "refcount_struct",
    "percpu_counter",
];
/// Size of an entry of an enumeration whose values have up to 32 bits, bytes.
const ENUMERATOR_BYTES: usize = 8;

/// Types of a kernel.
#[derive(Clone, Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    sections: Sections,
    /// Where each type starts in `bytes`. The type with id N is at index N - 1; id 0 is `void`.
    types: Vec<u32>,
    /// Ids of structs, unions and typedefs by name. If a struct and a typedef share a name, it is the struct's.
    by_name: HashMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the outermost struct to the member, or to the byte with a bit field's first bit.
    pub offset_bytes: u64,
    /// Bytes of the member, or of the bytes that a bit field touches.
    pub size_bytes: u64,
    /// First bit of a bit field in the byte at `offset_bytes`, and its number of bits.
    pub bit_field: Option<(u8, u8)>,
}

/// A member that [`Btf::find_member`] has found. `bit_size` is 0 unless the member is a bit field.
#[derive(Clone, Copy)]
struct FoundMember {
    offset_bits: u64,
    bit_size: u32,
    type_id: u32,
}

/// A type, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(u32);

/// How a value of a type is represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number of 1, 2, 4 or 8 bytes: an integer, an enumeration, a boolean.
    Number {
        /// Its size, bytes.
        bytes: u8,
        /// Whether it may be negative.
        is_signed: bool,
        /// Whether it is a character.
        is_char: bool,
    },
    Pointer(TypeId),
    /// A struct or union.
    Aggregate,
    /// An array: the type and number of its elements.
    Array(TypeId, u32),
    /// Anything without a value here: a function, a float, `void`.
    Other,
}

/// A member of a struct: its offset and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the struct.
    pub offset_bytes: u64,
    pub member_type: TypeId,
    /// First bit of a bit field in the byte at the offset, and its number of bits.
    pub bit_field: Option<(u8, u8)>,
}

impl Btf {
    /// Parses the content of `/sys/kernel/btf/vmlinux`.
    ///
    /// Fails when it is damaged, of another byte order or version, or too large.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf> {
        let sections = Sections::read(&bytes)?;
        let mut btf = Btf { bytes, sections, types: Vec::new(), by_name: HashMap::new() };
        let mut offset = btf.sections.types_start;
        while offset < btf.sections.types_end {
            let head = TypeHead::read(&btf.bytes[..btf.sections.types_end], offset)
                .ok_or_else(|| bad("a type is cut off"))?;
            if btf.types.len() >= TYPES_MAX {
                return Err(bad("too many types"));
            }
            let start = u32::try_from(offset).map_err(|_| bad("too large"))?;
            btf.types.push(start);
            btf.add_to_index(&head);
            let end = offset.checked_add(head.bytes()).filter(|&end| end <= btf.sections.types_end);
            offset = end.ok_or_else(|| bad("a type is cut off"))?;
        }
        Ok(btf)
    }

    /// Returns the number of types.
    #[must_use]
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Returns whether there are no types.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Adds the last type of `types` to `by_name`, if it is a struct, a union or a typedef with a name.
    fn add_to_index(&mut self, head: &TypeHead) {
        let is_aggregate = matches!(head.kind, Kind::Struct | Kind::Union);
        if !is_aggregate && head.kind != Kind::Typedef {
            return;
        }
        // Fits: there are at most TYPES_MAX types.
        let id = self.types.len() as u32;
        let Some(name) = self.string(head.name).filter(|name| !name.is_empty()) else { return };
        let name = name.to_owned();
        match self.by_name.get(&name).and_then(|&kept| self.head(kept)) {
            // The first type of a name is kept, except that a struct replaces a typedef.
            Some(kept) if !is_aggregate || kept.kind != Kind::Typedef => {}
            _ => drop(self.by_name.insert(name, id)),
        }
    }

    /// Returns the head of a type; `None` for `void` and for an id that no type has.
    fn head(&self, id: u32) -> Option<TypeHead> {
        let offset = *self.types.get(id.checked_sub(1)? as usize)?;
        TypeHead::read(&self.bytes[..self.sections.types_end], offset as usize)
    }

    /// Returns the text at an offset in the section of strings.
    fn string(&self, offset: u32) -> Option<&str> {
        let start = self.sections.strings_start.checked_add(offset as usize)?;
        let bytes = self.bytes.get(start..self.sections.strings_end)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }

    /// Returns the offset of a member in a struct, bytes; `path` may name members of nested structs, as in
    /// `se.vruntime`. Members of unnamed structs and unions count as members of the struct around them.
    ///
    /// Fails when the struct or the member is not there, or the member is a bit field that does not
    /// start at a byte.
    pub fn offset_of(&self, name: &str, path: &str) -> Result<u64> {
        let member = self.member(name, path)?;
        match member.bit_field {
            None | Some((0, _)) => Ok(member.offset_bytes),
            Some(_) => Err(missing_error(name, path, "is a bit field within a byte")),
        }
    }

    /// Returns the place and size of a member. `path` is as in [`Btf::offset_of`].
    ///
    /// Fails as [`Btf::offset_of`] does, but bit fields are found.
    pub fn member(&self, name: &str, path: &str) -> Result<Member> {
        let mut type_id = self.named(name)?;
        let mut offset_bits = 0;
        let mut bit_field_size = 0;
        let mut visits = 0;
        for step in path.split('.') {
            let found_member = self.find_member(type_id, step, 0, &mut visits)?;
            let FoundMember { offset_bits: step_offset_bits, bit_size, type_id: member_type } =
                found_member.ok_or_else(|| missing_error(name, path, "has no such member"))?;
            offset_bits += step_offset_bits;
            (type_id, bit_field_size) = (member_type, bit_size);
        }
        if bit_field_size == 0 {
            let size_bytes = self.size(type_id)?;
            return Ok(Member { offset_bytes: offset_bits / 8, size_bytes, bit_field: None });
        }
        let first_bit = (offset_bits % 8) as u8;
        let bit_count =
            u8::try_from(bit_field_size).map_err(|_| bad("a bit field of over 255 bits"))?;
        let size_bytes = (u64::from(first_bit) + u64::from(bit_count)).div_ceil(8);
        let bit_field = Some((first_bit, bit_count));
        Ok(Member { offset_bytes: offset_bits / 8, size_bytes, bit_field })
    }

    /// Returns the size of a struct, bytes.
    ///
    /// Fails when there is no such type.
    pub fn size_of(&self, name: &str) -> Result<u64> {
        self.size(self.named(name)?)
    }

    /// Returns the number of the value `value` of the enumeration `name`. `None` if it does not exist, or if the
    /// enumeration has values of more than 32 bits.
    #[must_use]
    pub fn enumerator(&self, name: &str, value: &str) -> Option<u64> {
        let types = &self.bytes[..self.sections.types_end];
        let heads = (1..=self.types.len() as u32).filter_map(|id| self.head(id));
        let is_small_enum = |head: &TypeHead| {
            head.kind == Kind::Enum && head.body_bytes == head.count * ENUMERATOR_BYTES
        };
        for head in heads.filter(is_small_enum).filter(|head| self.string(head.name) == Some(name))
        {
            for index in 0..head.count {
                let entry_offset = head.body + index * ENUMERATOR_BYTES;
                if read_u32(types, entry_offset).and_then(|text| self.string(text)) == Some(value) {
                    return read_u32(types, entry_offset + 4).map(u64::from);
                }
            }
        }
        None
    }

    /// Returns the path of the innermost named member of a struct at an offset, and the distance of the offset from
    /// the member's start, bytes. In a union it takes the first member. It does not look into `OPAQUE_TYPES`. `None` if
    /// there is no type of this name, or no named member at the offset.
    #[must_use]
    pub fn member_at(&self, name: &str, offset_bytes: u64) -> Option<(String, u64)> {
        let mut type_id = self.named(name).ok()?;
        let (mut path, mut distance_bytes) = (String::new(), offset_bytes);
        for _ in 0..DEPTH_MAX {
            if self.is_opaque(type_id) {
                break;
            }
            let Some((member, member_type, inner_bytes)) =
                self.member_around(type_id, distance_bytes)
            else {
                break;
            };
            if !member.is_empty() {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&member);
            }
            (type_id, distance_bytes) = (member_type, inner_bytes);
        }
        (!path.is_empty()).then_some((path, distance_bytes))
    }

    /// Returns whether [`OPAQUE_TYPES`] has the name of a type, or of a type behind its typedefs.
    fn is_opaque(&self, mut id: u32) -> bool {
        for _ in 0..CHAIN_MAX {
            let Some(head) = self.head(id) else { return false };
            if self.string(head.name).is_some_and(|name| OPAQUE_TYPES.contains(&name)) {
                return true;
            }
            match head.kind {
                Kind::Typedef | Kind::Wrapper => id = head.size_or_type,
                _ => return false,
            }
        }
        false
    }

    /// Returns the member of a struct that covers an offset: its name, which may be empty, its type, and the distance
    /// from its start to the offset, bytes. `None` if no member does, or the types are damaged.
    fn member_around(&self, id: u32, offset_bytes: u64) -> Option<(String, u32, u64)> {
        let head = self.resolve(id).ok()?;
        if !matches!(head.kind, Kind::Struct | Kind::Union) {
            return None;
        }
        let types = &self.bytes[..self.sections.types_end];
        for index in 0..head.count {
            let entry_offset = head.body + index * MEMBER_BYTES;
            let word = |index_of_word: usize| read_u32(types, entry_offset + 4 * index_of_word);
            let (name, type_id, offset_word) = (word(0)?, word(1)?, word(2)?);
            // The low 24 bits are the offset, in bits, if the upper 8 are the size of a bit field.
            let offset_bits =
                if head.has_bit_sizes { offset_word & 0xff_ffff } else { offset_word };
            let start_bytes = u64::from(offset_bits) / 8;
            let Ok(size_bytes) = self.size(type_id) else { continue };
            if (start_bytes..start_bytes.saturating_add(size_bytes)).contains(&offset_bytes) {
                return Some((self.string(name)?.to_owned(), type_id, offset_bytes - start_bytes));
            }
        }
        None
    }

    /// Returns the id of the struct, union or typedef of this name.
    fn named(&self, name: &str) -> Result<u32> {
        let id = self.by_name.get(name).copied();
        id.ok_or_else(|| SimError::data(format!("type {name:?}"), "not in this kernel's BTF"))
    }

    /// Resolves typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Result<TypeHead> {
        for _ in 0..CHAIN_MAX {
            let head = self.head(id).ok_or_else(|| bad("a type refers to none"))?;
            match head.kind {
                Kind::Typedef | Kind::Wrapper => id = head.size_or_type,
                _ => return Ok(head),
            }
        }
        Err(bad("types refer to each other in a circle"))
    }

    /// Finds the member `name` of a struct or union, also in its unnamed structs and unions. `None` if there is none.
    /// `depth` is the nesting so far. `visits` counts the members of one look-up over all its calls.
    fn find_member(
        &self,
        id: u32,
        name: &str,
        depth: usize,
        visits: &mut usize,
    ) -> Result<Option<FoundMember>> {
        let head = self.resolve(id)?;
        if !matches!(head.kind, Kind::Struct | Kind::Union) || depth > DEPTH_MAX {
            return Ok(None);
        }
        for index in 0..head.count {
            *visits += 1;
            if *visits > VISITS_MAX {
                return Err(bad("too many members"));
            }
            let entry_offset = head.body + index * MEMBER_BYTES;
            let word =
                |n: usize| read_u32(&self.bytes[..self.sections.types_end], entry_offset + 4 * n);
            let (Some(name_offset), Some(type_id), Some(offset_word)) = (word(0), word(1), word(2))
            else {
                return Err(bad("a member is cut off"));
            };
            let (offset_in_bits, bit_size) = if head.has_bit_sizes {
                (offset_word & 0xff_ffff, offset_word >> 24)
            } else {
                (offset_word, 0)
            };
            let offset_bits = u64::from(offset_in_bits);
            match self.string(name_offset) {
                Some("") => {
                    if let Some(inner_member) =
                        self.find_member(type_id, name, depth + 1, visits)?
                    {
                        let offset_bits = offset_bits + inner_member.offset_bits;
                        return Ok(Some(FoundMember { offset_bits, ..inner_member }));
                    }
                }
                Some(member_name) if member_name == name => {
                    return Ok(Some(FoundMember { offset_bits, bit_size, type_id }));
                }
                Some(_) => {}
                None => return Err(bad("a name is outside of the strings")),
            }
        }
        Ok(None)
    }

    /// Returns the size of a value of a type, bytes.
    fn size(&self, mut id: u32) -> Result<u64> {
        let mut elements = 1u64;
        for _ in 0..DIMENSIONS_MAX {
            let head = self.resolve(id)?;
            let element_bytes = match head.kind {
                Kind::Pointer => POINTER_BYTES,
                Kind::Int | Kind::Struct | Kind::Union | Kind::Enum => head.size_or_type.into(),
                Kind::Array => {
                    let types = &self.bytes[..self.sections.types_end];
                    let (Some(element), Some(count)) =
                        (read_u32(types, head.body), read_u32(types, head.body + 8))
                    else {
                        return Err(bad("an array is cut off"));
                    };
                    id = element;
                    elements = elements.saturating_mul(count.into());
                    continue;
                }
                Kind::Typedef | Kind::Wrapper | Kind::Function | Kind::Prototype | Kind::Other => {
                    return Err(bad("a type without a size"));
                }
            };
            return Ok(elements.saturating_mul(element_bytes));
        }
        Err(bad("an array of too many dimensions"))
    }

    /// Finds the struct, union or typedef of a name.
    ///
    /// Fails when there is none; the message names the nearest ones.
    pub fn type_named(&self, name: &str) -> Result<TypeId> {
        self.named(name).map(TypeId).map_err(|_| {
            let suggestion = hint(name, self.by_name.keys().map(String::as_str));
            SimError::data(
                format!("type {name:?}"),
                format!("not in this kernel's BTF{suggestion}"),
            )
        })
    }

    /// Returns how a value of the type is represented.
    ///
    /// Fails when the types are damaged.
    pub fn shape(&self, id: TypeId) -> Result<Shape> {
        // `void`, as in `void *`, has no entry in the list.
        if id.0 == 0 {
            return Ok(Shape::Other);
        }
        let head = self.resolve(id.0)?;
        let types = &self.bytes[..self.sections.types_end];
        let word =
            |offset: usize| read_u32(types, head.body + offset).ok_or_else(|| bad("a type is cut"));
        Ok(match head.kind {
            Kind::Int => {
                let is_char = self.string(head.name) == Some("char");
                let is_signed = word(0)? >> 24 & 1 != 0;
                number(head.size_or_type, is_signed, is_char)
            }
            // An enumeration has the flag if its values are signed.
            Kind::Enum => number(head.size_or_type, head.has_bit_sizes, false),
            Kind::Pointer => Shape::Pointer(TypeId(head.size_or_type)),
            Kind::Struct | Kind::Union => Shape::Aggregate,
            Kind::Array => Shape::Array(TypeId(word(0)?), word(8)?),
            Kind::Typedef | Kind::Wrapper | Kind::Function | Kind::Prototype | Kind::Other => {
                Shape::Other
            }
        })
    }

    /// Returns the size of a value of the type, bytes.
    ///
    /// Fails when it has no size.
    pub fn bytes_of(&self, id: TypeId) -> Result<u64> {
        self.size(id.0)
    }

    /// Returns a member of a struct or union, also of unnamed ones in it.
    ///
    /// Fails when there is none; the message names the nearest ones.
    pub fn field(&self, id: TypeId, name: &str) -> Result<Field> {
        let Some(member) = self.find_member(id.0, name, 0, &mut 0)? else {
            let mut names = Vec::new();
            self.collect_member_names(id.0, 0, &mut names);
            let type_name = self.name_of(id);
            let reason = format!("has no member {name:?}{}", hint(name, names.into_iter()));
            return Err(SimError::data(type_name, reason));
        };
        let bits =
            u8::try_from(member.bit_size).map_err(|_| bad("a bit field of over 255 bits"))?;
        Ok(Field {
            offset_bytes: member.offset_bits / 8,
            member_type: TypeId(member.type_id),
            bit_field: (bits > 0).then_some(((member.offset_bits % 8) as u8, bits)),
        })
    }

    /// Returns the name of a type, or a text that says that it has none.
    #[must_use]
    pub fn name_of(&self, id: TypeId) -> String {
        let head = self.resolve(id.0).ok();
        let name = head.and_then(|head| Some((self.string(head.name)?, head.kind)));
        match name.filter(|(name, _)| !name.is_empty()) {
            Some((name, Kind::Struct)) => format!("struct {name}"),
            Some((name, Kind::Union)) => format!("union {name}"),
            Some((name, _)) => name.to_owned(),
            None => "a type without a name".to_owned(),
        }
    }

    /// Adds the names of the members of a type to `names`, to suggest similar names: at most [`NAMES_MAX`], also of unnamed
    /// structs in it. Ends early where the types are damaged.
    fn collect_member_names<'a>(&'a self, id: u32, depth: usize, names: &mut Vec<&'a str>) {
        if depth >= SUGGESTION_DEPTH_MAX {
            return;
        }
        let Ok(head) = self.resolve(id) else { return };
        if !matches!(head.kind, Kind::Struct | Kind::Union) {
            return;
        }
        let types = &self.bytes[..self.sections.types_end];
        for index in 0..head.count {
            let entry_offset = head.body + index * MEMBER_BYTES;
            let (Some(name), Some(member_type)) =
                (read_u32(types, entry_offset), read_u32(types, entry_offset + 4))
            else {
                return;
            };
            match self.string(name) {
                _ if names.len() >= NAMES_MAX => return,
                Some("") => self.collect_member_names(member_type, depth + 1, names),
                Some(name) => names.push(name),
                None => {}
            }
        }
    }
}

/// The error for a member that does not exist.
fn missing_error(name: &str, path: &str, reason: &str) -> SimError {
    SimError::data(format!("{name}.{path}"), reason)
}

/// Returns the shape of an integer or enumeration. `Other` for a size that no load instruction has.
fn number(bytes: u32, is_signed: bool, is_char: bool) -> Shape {
    match bytes {
        1 | 2 | 4 | 8 => Shape::Number { bytes: bytes as u8, is_signed, is_char },
        _ => Shape::Other,
    }
}

/// The error for damaged BTF.
fn bad(reason: &str) -> SimError {
    SimError::data("BTF of the guest", reason)
}

/// Offsets of the sections in the bytes, after the header.
#[derive(Clone, Debug)]
struct Sections {
    types_start: usize,
    types_end: usize,
    strings_start: usize,
    strings_end: usize,
}

impl Sections {
    /// Reads the header. Fails when the byte order or the version differs, or a section is not within the bytes.
    fn read(bytes: &[u8]) -> Result<Sections> {
        let number = |offset| read_u32(bytes, offset).ok_or_else(|| bad("the header is cut off"));
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
        let outside_error = || bad("a section is outside of the file");
        let (types_start, types_end) = types.ok_or_else(outside_error)?;
        let (strings_start, strings_end) = strings.ok_or_else(outside_error)?;
        Ok(Sections { types_start, types_end, strings_start, strings_end })
    }
}

/// Kinds of types that are distinguished here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Typedef,
    /// `const`, `volatile`, `restrict` and tags, which stand for the type that they refer to.
    Wrapper,
    Function,
    /// The signature of a function.
    Prototype,
    Other,
}

/// The first words of a type.
#[derive(Clone, Copy, Debug)]
struct TypeHead {
    name: u32,
    kind: Kind,
    /// The flag `kind_flag`. In a struct or union: whether members hold the size of a bit field in addition to the
    /// offset.
    has_bit_sizes: bool,
    /// Number of members.
    count: usize,
    /// The size of the type in bytes, or the type that it refers to, by kind.
    size_or_type: u32,
    /// Offset of the data that follow the head, bytes.
    body: usize,
    body_bytes: usize,
}

impl TypeHead {
    /// Reads the head of the type at an offset. `None` if it is cut off, or its kind is unknown.
    fn read(bytes: &[u8], offset: usize) -> Option<TypeHead> {
        let name = read_u32(bytes, offset)?;
        let info = read_u32(bytes, offset.checked_add(4)?)?;
        let size_or_type = read_u32(bytes, offset.checked_add(8)?)?;
        let count = (info & 0xffff) as usize;
        let (kind, body_bytes) = match (info >> 24) & 0x1f {
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
            // The length of an unknown kind is unknown, so the next type cannot be found.
            _ => return None,
        };
        let body = offset.checked_add(HEAD_BYTES)?;
        let has_bit_sizes = info >> 31 == 1;
        Some(TypeHead { name, kind, has_bit_sizes, count, size_or_type, body, body_bytes })
    }

    /// Returns the size of the whole type, bytes.
    fn bytes(&self) -> usize {
        HEAD_BYTES + self.body_bytes
    }
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes BTF: types as words, names into the string section.
    pub(crate) struct Maker {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    pub(crate) const INT: u32 = 1;
    pub(crate) const POINTER: u32 = 2;
    pub(crate) const ARRAY: u32 = 3;
    pub(crate) const STRUCT: u32 = 4;
    pub(crate) const FLOAT: u32 = 16;
    const UNION: u32 = 5;
    const ENUM: u32 = 6;
    const TYPEDEF: u32 = 8;
    const CONST: u32 = 10;
    const FUNCTION: u32 = 12;
    const PROTOTYPE: u32 = 13;

    impl Maker {
        pub(crate) fn new() -> Maker {
            Maker { types: Vec::new(), strings: vec![0] }
        }

        /// Parameters of a function without a result, and the function: name, type.
        pub(crate) fn function(&mut self, name: &str, prototype: u32, parameters: &[(&str, u32)]) {
            self.function_with_result(name, prototype, 0, parameters);
        }

        /// Parameters of a function that returns the type `result`, and the function: name, type.
        pub(crate) fn function_with_result(
            &mut self,
            name: &str,
            prototype: u32,
            result: u32,
            parameters: &[(&str, u32)],
        ) {
            let mut fields = vec![0, PROTOTYPE << 24 | parameters.len() as u32, result];
            for (parameter, parameter_type) in parameters {
                fields.extend([self.name(parameter), *parameter_type]);
            }
            fields.extend([self.name(name), FUNCTION << 24, prototype]);
            for word in fields {
                self.types.extend(word.to_le_bytes());
            }
        }

        fn name(&mut self, name: &str) -> u32 {
            if name.is_empty() {
                return 0;
            }
            let offset = self.strings.len() as u32;
            self.strings.extend(name.bytes());
            self.strings.push(0);
            offset
        }

        pub(crate) fn add(&mut self, kind: u32, name: &str, size_or_type: u32, rest: &[u32]) {
            let name = self.name(name);
            for word in [&[name, kind << 24, size_or_type], rest].concat() {
                self.types.extend(word.to_le_bytes());
            }
        }

        /// Members: name, type, bit offset (and bit size in the top byte).
        pub(crate) fn aggregate(
            &mut self,
            kind: u32,
            name: &str,
            size: u32,
            members: &[(&str, u32, u32)],
        ) {
            let flag = u32::from(members.iter().any(|(_, _, place)| place >> 24 != 0)) << 31;
            let name = self.name(name);
            let mut fields = vec![name, flag | kind << 24 | members.len() as u32, size];
            for (member, member_type, place) in members {
                fields.extend([self.name(member), *member_type, *place]);
            }
            for word in fields {
                self.types.extend(word.to_le_bytes());
            }
        }

        /// An enumeration: names and numbers.
        fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) {
            let mut fields = vec![self.name(name), ENUM << 24 | values.len() as u32, 4];
            for (value, number) in values {
                fields.extend([self.name(value), *number]);
            }
            for word in fields {
                self.types.extend(word.to_le_bytes());
            }
        }

        pub(crate) fn finish(self) -> Vec<u8> {
            let mut bytes = vec![0x9f, 0xeb, 1, 0];
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            for word in [24, 0, types, types, strings] {
                bytes.extend(u32::to_le_bytes(word));
            }
            [bytes, self.types, self.strings].concat()
        }
    }

    fn example() -> Vec<u8> {
        let mut maker = Maker::new();
        maker.add(INT, "int", 4, &[32]); // 1
        maker.add(POINTER, "", 1, &[]); // 2
        maker.add(ARRAY, "", 0, &[1, 1, 16]); // 3: int[16]
        maker.aggregate(UNION, "", 8, &[("left", 1, 0), ("right", 2, 0)]); // 4
        maker.aggregate(STRUCT, "inner", 24, &[("a", 1, 0), ("", 4, 64), ("list", 3, 128)]); // 5
        maker.add(TYPEDEF, "inner_t", 5, &[]); // 6
        maker.add(CONST, "", 6, &[]); // 7
        maker.aggregate(STRUCT, "outer", 64, &[("p", 2, 0), ("in", 7, 64)]); // 8
        maker.aggregate(STRUCT, "flags", 4, &[("x", 1, 0), ("y", 1, 3 << 24 | 37)]); // 9
        maker.finish()
    }

    #[test]
    fn members_are_found_by_offset_and_locks_are_whole() {
        let mut maker = Maker::new();
        maker.add(INT, "int", 4, &[32]); // 1
        maker.aggregate(STRUCT, "spinlock", 4, &[("value", 1, 0)]); // 2
        maker.add(TYPEDEF, "spinlock_t", 2, &[]); // 3
        maker.aggregate(STRUCT, "queue", 12, &[("length", 1, 0), ("lock", 3, 64)]); // 4
        maker.aggregate(STRUCT, "device", 28, &[("id", 1, 0), ("", 4, 32), ("q", 4, 128)]); // 5
        let btf = Btf::parse(maker.finish()).unwrap();
        let member = |offset| btf.member_at("device", offset);
        assert_eq!(member(0), Some(("id".to_owned(), 0)));
        assert_eq!(member(16), Some(("q.length".to_owned(), 0)));
        assert_eq!(member(24), Some(("q.lock".to_owned(), 0)));
        assert_eq!(member(26), Some(("q.lock".to_owned(), 2)));
        // A member of an unnamed structure counts as a member of the outer structure.
        assert_eq!(member(4), Some(("length".to_owned(), 0)));
        assert_eq!((member(28), btf.member_at("none", 0)), (None, None));
        assert_eq!(btf.size_of("device").unwrap(), 28);
    }

    #[test]
    fn values_of_enumerations_are_found() {
        let mut maker = Maker::new();
        maker.enumeration("pageflags", &[("PG_locked", 0), ("PG_slab", 9)]);
        let btf = Btf::parse(maker.finish()).unwrap();
        assert_eq!(btf.enumerator("pageflags", "PG_slab"), Some(9));
        assert_eq!(btf.enumerator("pageflags", "PG_other"), None);
        assert_eq!(btf.enumerator("other", "PG_slab"), None);
    }

    #[test]
    fn members_through_paths_typedefs_and_unnamed_unions() {
        let btf = Btf::parse(example()).unwrap();
        assert_eq!(btf.len(), 9);
        let offset = |name, path| btf.offset_of(name, path).unwrap();
        assert_eq!(offset("outer", "in"), 8);
        assert_eq!(offset("outer", "in.right"), 16);
        assert_eq!(offset("inner_t", "left"), 8);
        assert_eq!(btf.member("outer", "in.list").unwrap().size_bytes, 64);
        assert_eq!(btf.member("inner", "right").unwrap().size_bytes, 8);
    }

    #[test]
    fn bit_fields() {
        let btf = Btf::parse(example()).unwrap();
        let member = btf.member("flags", "y").unwrap();
        assert_eq!(member, Member { offset_bytes: 4, size_bytes: 1, bit_field: Some((5, 3)) });
        assert!(btf.offset_of("flags", "y").is_err());
        assert_eq!(btf.offset_of("flags", "x").unwrap(), 0);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let btf = Btf::parse(example()).unwrap();
        for (name, path) in [("outer", "nix"), ("outer", "p.a"), ("nix", "a"), ("outer", "")] {
            let error = btf.offset_of(name, path).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn circles_end() {
        let mut maker = Maker::new();
        maker.add(TYPEDEF, "a", 2, &[]);
        maker.add(TYPEDEF, "b", 1, &[]);
        maker.aggregate(STRUCT, "self", 8, &[("", 3, 0), ("", 3, 0)]);
        maker.add(ARRAY, "", 0, &[4, 1, 2]);
        maker.aggregate(STRUCT, "list", 8, &[("me", 4, 0)]);
        let btf = Btf::parse(maker.finish()).unwrap();
        assert!(btf.offset_of("a", "x").is_err());
        assert!(btf.offset_of("self", "x").is_err());
        assert!(btf.member("list", "me").is_err());
    }

    #[test]
    fn every_cut_is_an_error_or_consistent() {
        let bytes = example();
        for length in 0..bytes.len() {
            assert!(Btf::parse(bytes[..length].to_vec()).is_err(), "{length}");
        }
        assert!(Btf::parse(vec![0xeb, 0x9f, 1, 0]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Btf::parse(bytes);
        }

        #[test]
        fn damaged_bytes_never_panic(changes in proptest::collection::vec((24usize..300, 0u8..), 1..8)) {
            let mut bytes = example();
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Ok(btf) = Btf::parse(bytes) {
                for (name, path) in [("outer", "in.right"), ("inner", "list"), ("flags", "y")] {
                    let _ = btf.member(name, path);
                }
            }
        }
    }
}
