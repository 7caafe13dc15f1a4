//! What values of a type are, and the parameters of functions.

use super::layout::{Kind, MEMBER_BYTES, read_u32};
use super::{Btf, bad};
use crate::text::hint;
use crate::{Result, SimError};

/// Most members whose names are looked at for one that is not there.
const NAMES_MAX: usize = 10_000;
/// Deepest nesting of unnamed structs in them.
const DEPTH_MAX: usize = 8;
/// Most parameters of a function.
const PARAMETERS_MAX: usize = 64;
const PARAMETER_BYTES: usize = 8;

/// A type, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(u32);

/// What a value of a type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number of 1, 2, 4 or 8 bytes: an integer, an enumeration, a truth.
    Number {
        /// Its size.
        bytes: u8,
        /// Whether it may be negative.
        is_signed: bool,
        /// Whether it is a sign of a text.
        is_char: bool,
    },
    /// A pointer to such.
    Pointer(TypeId),
    /// A struct or union.
    Aggregate,
    /// So many of a type.
    Array(TypeId, u32),
    /// What has no value here: a function, a float, nothing.
    Other,
}

/// A member as a place in its struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the struct.
    pub offset_bytes: u64,
    /// Its type.
    pub of: TypeId,
    /// Of a bit field: its first bit in the byte there, and its bits.
    pub bit_field: Option<(u8, u8)>,
}

impl Btf {
    /// The struct, union or typedef of a name.
    ///
    /// # Errors
    /// When there is none; the message names the nearest ones.
    pub fn type_named(&self, name: &str) -> Result<TypeId> {
        self.named(name).map(TypeId).map_err(|_| {
            let near = hint(name, self.by_name.keys().map(String::as_str));
            SimError::data(format!("type {name:?}"), format!("not in this kernel's BTF{near}"))
        })
    }

    /// What a value of the type is.
    ///
    /// # Errors
    /// When the types are damaged.
    pub fn shape(&self, id: TypeId) -> Result<Shape> {
        // Nothing, as in a pointer to it, is no type of the list.
        if id.0 == 0 {
            return Ok(Shape::Other);
        }
        let head = self.resolve(id.0)?;
        let types = &self.bytes[..self.sections.types_end];
        let word = |at: usize| read_u32(types, head.rest + at).ok_or_else(|| bad("a type is cut"));
        Ok(match head.kind {
            Kind::Int => {
                let is_char = self.string(head.name) == Some("char");
                let is_signed = word(0)? >> 24 & 1 != 0;
                number(head.size_or_type, is_signed, is_char)
            }
            Kind::Enum => number(head.size_or_type, head.has_bit_sizes, false),
            Kind::Pointer => Shape::Pointer(TypeId(head.size_or_type)),
            Kind::Struct | Kind::Union => Shape::Aggregate,
            Kind::Array => Shape::Array(TypeId(word(0)?), word(8)?),
            Kind::Typedef | Kind::Wrapper | Kind::Function | Kind::Prototype | Kind::Other => {
                Shape::Other
            }
        })
    }

    /// Bytes of a value of the type.
    ///
    /// # Errors
    /// When it has no size.
    pub fn bytes_of(&self, id: TypeId) -> Result<u64> {
        self.size(id.0)
    }

    /// A member of a struct or union, also of unnamed ones inside.
    ///
    /// # Errors
    /// When there is none; the message names the nearest ones.
    pub fn field(&self, id: TypeId, name: &str) -> Result<Field> {
        let Some(found) = self.find(id.0, name, 0, &mut 0)? else {
            let mut names = Vec::new();
            self.names(id.0, 0, &mut names);
            let of = self.name_of(id);
            let reason = format!("has no member {name:?}{}", hint(name, names.into_iter()));
            return Err(SimError::data(of, reason));
        };
        let bits = u8::try_from(found.bit_size).map_err(|_| bad("a bit field of over 255 bits"))?;
        Ok(Field {
            offset_bytes: found.offset_bits / 8,
            of: TypeId(found.type_id),
            bit_field: (bits > 0).then_some(((found.offset_bits % 8) as u8, bits)),
        })
    }

    /// The name of a type, or that it has none.
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

    /// The parameters of a function, with their types; none if the types don't tell.
    #[must_use]
    pub fn parameters(&self, function: &str) -> Option<Vec<(String, TypeId)>> {
        let ids = 1..=u32::try_from(self.types.len()).ok()?;
        let is_wanted = |id: &u32| {
            self.head(*id).is_some_and(|head| {
                head.kind == Kind::Function && self.string(head.name) == Some(function)
            })
        };
        let function = self.head(ids.into_iter().find(is_wanted)?)?;
        let prototype = self.head(function.size_or_type)?;
        if prototype.kind != Kind::Prototype {
            return None;
        }
        let types = &self.bytes[..self.sections.types_end];
        let parameter = |index: usize| {
            let at = prototype.rest + index * PARAMETER_BYTES;
            let name = self.string(read_u32(types, at)?)?;
            Some((name.to_owned(), TypeId(read_u32(types, at + 4)?)))
        };
        (0..prototype.count.min(PARAMETERS_MAX)).map(parameter).collect()
    }

    /// Adds the names of members.
    fn names<'a>(&'a self, id: u32, depth: usize, names: &mut Vec<&'a str>) {
        let Some(head) = self.resolve(id).ok().filter(|_| depth < DEPTH_MAX) else { return };
        if !matches!(head.kind, Kind::Struct | Kind::Union) {
            return;
        }
        let types = &self.bytes[..self.sections.types_end];
        for index in 0..head.count {
            let at = head.rest + index * MEMBER_BYTES;
            let (Some(name), Some(of)) = (read_u32(types, at), read_u32(types, at + 4)) else {
                return;
            };
            match self.string(name) {
                _ if names.len() >= NAMES_MAX => return,
                Some("") => self.names(of, depth + 1, names),
                Some(name) => names.push(name),
                None => {}
            }
        }
    }
}

fn number(bytes: u32, is_signed: bool, is_char: bool) -> Shape {
    match bytes {
        1 | 2 | 4 | 8 => Shape::Number { bytes: bytes as u8, is_signed, is_char },
        _ => Shape::Other,
    }
}
