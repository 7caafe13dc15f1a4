//! Where a function finds its parameters at its first instruction, by the calling convention of x86-64 (System V ABI,
//! 3.2.3).
//!
//! A parameter of up to 8 bytes takes the next register, and a parameter of up to 16 bytes takes two. Larger parameters
//! are in memory and take none. So the position of a parameter does not tell its register.

use super::{
    Btf, Kind, MEMBER_BYTES, PARAMETER_BYTES, PARAMETERS_MAX, TypeHead, TypeId, VISITS_MAX, bad,
    read_u32,
};
use crate::Result;

/// How many registers hold parameters.
const REGISTERS_MAX: usize = 6;
const REGISTER_BYTES: u64 = 8;
/// The largest value that registers hold.
const IN_REGISTERS_BYTES_MAX: u64 = 2 * REGISTER_BYTES;

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub type_id: TypeId,
    pub location: Location,
}

/// Where a parameter is at the first instruction of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The whole parameter is in the register with this number. The order is rdi, rsi, rdx, rcx, r8, r9.
    Register(u8),
    /// The parameter has two registers.
    TwoRegisters,
    /// The parameter is on the stack.
    Memory,
    /// The register is unknown, because this parameter or an earlier one has a floating-point part.
    Unknown,
}

/// How the calling convention passes a value to a function or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Registers(usize),
    Memory,
    FloatingPoint,
}

/// The scalars of an aggregate that matter for its class.
#[derive(Default)]
struct Scalars {
    has_floating_point: bool,
    /// Whether a scalar is at an offset that is not a multiple of its size.
    has_unaligned: bool,
    visits: usize,
}

impl Btf {
    /// Returns the parameters of a function; `None` if they are not known.
    #[must_use]
    pub fn parameters(&self, function: &str) -> Option<Vec<Parameter>> {
        let prototype = self.prototype(function)?;
        let types = &self.bytes[..self.sections.types_end];
        // A result in memory: the first register has its address.
        let is_result_in_memory = match prototype.size_or_type {
            0 => false,
            result => self.class_of(result).ok()? == Class::Memory,
        };
        let mut used = Some(usize::from(is_result_in_memory));
        let mut parameters = Vec::new();
        for index in 0..prototype.count.min(PARAMETERS_MAX) {
            let entry_offset = prototype.body + index * PARAMETER_BYTES;
            let name = self.string(read_u32(types, entry_offset)?)?;
            let type_id = read_u32(types, entry_offset + 4)?;
            // `void` stands for the variable arguments, which come last and have no name.
            if type_id == 0 {
                break;
            }
            let location = locate(self.class_of(type_id).ok()?, &mut used);
            parameters.push(Parameter {
                name: name.to_owned(),
                type_id: TypeId(type_id),
                location,
            });
        }
        Some(parameters)
    }

    /// Returns the prototype of the first function with this name.
    fn prototype(&self, function: &str) -> Option<TypeHead> {
        let ids = 1..=u32::try_from(self.types.len()).ok()?;
        let is_wanted = |id: &u32| {
            self.head(*id).is_some_and(|head| {
                head.kind == Kind::Function && self.string(head.name) == Some(function)
            })
        };
        let function = self.head(ids.into_iter().find(is_wanted)?)?;
        let prototype = self.head(function.size_or_type)?;
        (prototype.kind == Kind::Prototype).then_some(prototype)
    }

    /// Returns the class of a value of a type.
    ///
    /// Fails when the type is damaged.
    fn class_of(&self, id: u32) -> Result<Class> {
        let mut scalars = Scalars::default();
        self.visit_scalars(id, 0, 0, &mut scalars)?;
        let bytes = if scalars.has_floating_point { 0 } else { self.size(id)? };
        Ok(match bytes {
            _ if scalars.has_floating_point => Class::FloatingPoint,
            _ if scalars.has_unaligned || bytes > IN_REGISTERS_BYTES_MAX => Class::Memory,
            _ => Class::Registers(bytes.div_ceil(REGISTER_BYTES) as usize),
        })
    }

    /// Visits the scalars of a value at `offset`, and notes what matters for the class of the whole value. A value that
    /// is too large for registers is visited in part: its class is certain. `depth`: how deep the value is nested.
    fn visit_scalars(
        &self,
        id: u32,
        offset: u64,
        depth: usize,
        scalars: &mut Scalars,
    ) -> Result<()> {
        scalars.visits += 1;
        if scalars.visits > VISITS_MAX || depth > super::DEPTH_MAX {
            return Err(bad("too many members"));
        }
        let head = self.resolve(id)?;
        let types = &self.bytes[..self.sections.types_end];
        let word = |position: usize| {
            read_u32(types, head.body + position).ok_or_else(|| bad("a type is cut"))
        };
        match head.kind {
            Kind::Int | Kind::Enum | Kind::Pointer => {
                scalars.has_unaligned |= !offset.is_multiple_of(self.size(id)?.max(1));
            }
            Kind::Array => {
                let (element, count) = (word(0)?, word(8)?);
                let bytes = self.size(element)?;
                for index in 0..u64::from(count).min(IN_REGISTERS_BYTES_MAX) {
                    let offset = offset.saturating_add(bytes.saturating_mul(index));
                    self.visit_scalars(element, offset, depth + 1, scalars)?;
                }
            }
            Kind::Struct | Kind::Union if self.size(id)? > IN_REGISTERS_BYTES_MAX => {}
            Kind::Struct | Kind::Union => {
                for index in 0..head.count {
                    let entry = index * MEMBER_BYTES;
                    let (member, offset_word) = (word(entry + 4)?, word(entry + 8)?);
                    let is_bit_field = head.has_bit_sizes && offset_word >> 24 != 0;
                    // The alignment of a bit field does not matter.
                    if !is_bit_field {
                        let bits =
                            if head.has_bit_sizes { offset_word & 0xff_ffff } else { offset_word };
                        let offset = offset.saturating_add(u64::from(bits) / 8);
                        self.visit_scalars(member, offset, depth + 1, scalars)?;
                    }
                }
            }
            // Functions and `void` are no values.
            Kind::Typedef | Kind::Wrapper | Kind::Function | Kind::Prototype | Kind::Other => {
                scalars.has_floating_point = true;
            }
        }
        Ok(())
    }
}

/// Returns where the next parameter is. `used`: the number of registers that earlier parameters have, or `None` if it is
/// unknown.
fn locate(class: Class, used: &mut Option<usize>) -> Location {
    let Some(used_count) = *used else { return Location::Unknown };
    match class {
        Class::FloatingPoint => {
            *used = None;
            Location::Unknown
        }
        // A value that does not fit into the rest of the registers leaves them to the parameters after it.
        Class::Registers(count) if count > 0 && used_count + count <= REGISTERS_MAX => {
            *used = Some(used_count + count);
            if count == 1 { Location::Register(used_count as u8) } else { Location::TwoRegisters }
        }
        Class::Registers(_) | Class::Memory => Location::Memory,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FLOAT, INT, Maker, POINTER, STRUCT};
    use super::*;

    const U64: u32 = 1;
    const INTEGER: u32 = 2;
    const POINTER_TO_INTEGER: u32 = 3;
    const PAIR: u32 = 4;
    const TRIPLE: u32 = 5;
    const PACKED: u32 = 6;
    const WITH_FLOAT: u32 = 8;
    const SMALL: u32 = 9;
    const FIRST_PROTOTYPE: u32 = 10;

    /// The locations of the parameters of a function with these types.
    fn locations(result: u32, parameters: &[u32]) -> Vec<Location> {
        let mut maker = Maker::new();
        maker.add(INT, "unsigned long", 8, &[64]);
        maker.add(INT, "int", 4, &[1 << 24 | 32]);
        maker.add(POINTER, "", INTEGER, &[]);
        maker.aggregate(STRUCT, "timespec64", 16, &[("tv_sec", U64, 0), ("tv_nsec", U64, 64)]);
        let members = [("a", U64, 0), ("b", U64, 64), ("c", U64, 128)];
        maker.aggregate(STRUCT, "triple", 24, &members);
        maker.aggregate(STRUCT, "packed", 12, &[("a", INTEGER, 0), ("b", U64, 32)]);
        maker.add(FLOAT, "double", 8, &[]);
        maker.aggregate(STRUCT, "with_float", 16, &[("a", U64, 0), ("b", 7, 64)]);
        maker.aggregate(STRUCT, "kuid_t", 4, &[("val", INTEGER, 0)]);
        let named: Vec<(&str, u32)> = parameters.iter().map(|type_id| ("p", *type_id)).collect();
        maker.function_with_result("f", FIRST_PROTOTYPE, result, &named);
        let btf = Btf::parse(maker.finish()).unwrap();
        let parameters = btf.parameters("f").unwrap();
        parameters.into_iter().map(|parameter| parameter.location).collect()
    }

    #[test]
    fn a_structure_takes_as_many_registers_as_it_needs() {
        use Location::{Memory, Register, TwoRegisters};
        let after_pair = locations(0, &[PAIR, POINTER_TO_INTEGER, INTEGER]);
        assert_eq!(after_pair, [TwoRegisters, Register(2), Register(3)]);
        assert_eq!(locations(0, &[TRIPLE, POINTER_TO_INTEGER]), [Memory, Register(0)]);
        assert_eq!(locations(0, &[PACKED, INTEGER]), [Memory, Register(0)]);
        assert_eq!(locations(0, &[SMALL, INTEGER]), [Register(0), Register(1)]);
        // One register is left: the pair is in memory, and the next parameter has the register.
        let many = locations(0, &[U64, U64, U64, U64, U64, PAIR, INTEGER, INTEGER]);
        assert_eq!(many[5..], [Memory, Register(5), Memory]);
    }

    #[test]
    fn the_address_of_a_large_result_takes_the_first_register() {
        use Location::Register;
        assert_eq!(locations(TRIPLE, &[POINTER_TO_INTEGER]), [Register(1)]);
        assert_eq!(locations(PAIR, &[POINTER_TO_INTEGER]), [Register(0)]);
    }

    #[test]
    fn after_a_floating_point_number_no_register_is_known() {
        use Location::{Register, Unknown};
        assert_eq!(locations(0, &[INTEGER, WITH_FLOAT, INTEGER]), [Register(0), Unknown, Unknown]);
    }

    #[test]
    fn variable_arguments_are_no_parameter() {
        assert_eq!(locations(0, &[POINTER_TO_INTEGER, 0]), [Location::Register(0)]);
    }
}
