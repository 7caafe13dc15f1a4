//! Compiles the expressions of recorded values to programs for the plugin. The kernel's type information gives the types.
//!
//! A program is a list of steps that work on one 64-bit number: load a register, add an offset, load from memory. The
//! plugin executes it at each hit, and cannot look anything up.

use plugin_interface::annotations::{Program, REGISTERS, Step};
use simrecord::record::TEXT_BYTES_MAX;

use super::expression::Expression;
use crate::guest::btf::{Btf, Field, Location, Parameter, Shape, TypeId};
use crate::text::hint;
use crate::{GuestFacts, Result, SimError};

/// The registers of the first six parameters, by the kernel's calling convention.
const PARAMETER_REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
/// The names of the lower halves of registers, each with the name of the register.
const LOWER_HALF_REGISTERS: [(&str, &str); 16] = [
    ("eax", "rax"),
    ("ebx", "rbx"),
    ("ecx", "rcx"),
    ("edx", "rdx"),
    ("esi", "rsi"),
    ("edi", "rdi"),
    ("ebp", "rbp"),
    ("esp", "rsp"),
    ("r8d", "r8"),
    ("r9d", "r9"),
    ("r10d", "r10"),
    ("r11d", "r11"),
    ("r12d", "r12"),
    ("r13d", "r13"),
    ("r14d", "r14"),
    ("r15d", "r15"),
];
/// Integer types that a cast may name without the kernel's types: name, size in bytes, and whether it is
/// signed.
const INTEGERS: [(&str, u8, bool); 10] = [
    ("u8", 1, false),
    ("u16", 2, false),
    ("u32", 4, false),
    ("u64", 8, false),
    ("s8", 1, true),
    ("s16", 2, true),
    ("s32", 4, true),
    ("s64", 8, true),
    ("int", 4, true),
    ("long", 8, true),
];
/// Why types and parameters are unknown.
const NO_TYPE_INFORMATION: &str = "this kernel has no type information (CONFIG_DEBUG_INFO_BTF)";
/// Maximum length of a recorded text, bytes.
const TEXT_BYTES: u8 = TEXT_BYTES_MAX as u8;

/// The printed format of a recorded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintFormat {
    /// A register or a pointer, in hexadecimal.
    Hex,
    Unsigned,
    Signed,
    Text,
}

/// The names that expressions may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) facts: &'a GuestFacts,
    /// The function at whose first instruction the values are recorded.
    pub(crate) function: Option<&'a str>,
    /// How many functions have this name. The kernel describes the parameters of one of them.
    pub(crate) functions_of_name: usize,
}

/// The type of the value that a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pointee {
    Type(TypeId),
    Integer { bytes: u8, is_signed: bool },
}

/// The meaning of the last computed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Number(PrintFormat),
    PointerTo(Pointee),
    /// The address of a value, which is not loaded yet.
    ValueAt(Pointee),
    /// The address of a bit field: its first bit, its number of bits, and whether it is signed.
    BitsAt(u8, u8, bool),
    Text,
}

/// Compiles an expression; returns its program, and how its value is printed.
///
/// Fails with [`SimError::Invalid`], which names the part that does not exist, and similar names.
pub(crate) fn compile(expression: &Expression, scope: Scope<'_>) -> Result<(Program, PrintFormat)> {
    let mut compiler = Compiler { scope, steps: Vec::new() };
    let meaning = compiler.compile_expression(expression)?;
    let show = match compiler.load_value(meaning)? {
        Meaning::Number(show) => show,
        Meaning::Text => PrintFormat::Text,
        Meaning::PointerTo(_) | Meaning::ValueAt(_) | Meaning::BitsAt(..) => PrintFormat::Hex,
    };
    let step_count = compiler.steps.len();
    let program = Program::new(compiler.steps).ok_or_else(|| {
        invalid(format!("the expression is too long for a value ({step_count} steps)"))
    })?;
    Ok((program, show))
}

/// The error of an expression that cannot be compiled.
fn invalid(reason: String) -> SimError {
    SimError::Invalid(reason)
}

struct Compiler<'a> {
    scope: Scope<'a>,
    steps: Vec<Step>,
}

impl<'a> Compiler<'a> {
    /// The kernel's types. Fails if the kernel has none.
    fn btf(&self) -> Result<&'a Btf> {
        self.scope.facts.btf.as_ref().ok_or_else(|| {
            invalid(format!(
                "{NO_TYPE_INFORMATION}: registers, numbers and casts to u8 ... s64 can be recorded"
            ))
        })
    }

    /// Compiles an expression. The result may be the address of a value: [`Compiler::load_value`] then loads the value.
    fn compile_expression(&mut self, expression: &Expression) -> Result<Meaning> {
        match expression {
            Expression::Name(name) => self.compile_name(name),
            Expression::Number(number) => {
                self.steps.push(Step::Constant(*number));
                Ok(Meaning::Number(PrintFormat::Unsigned))
            }
            Expression::AddressOf(name) => self.compile_address_of(name),
            Expression::Arrow(pointer, member) => {
                let pointee = self.compile_pointer(pointer, &format!("->{member}"))?;
                self.add_member_offset(pointee, member)
            }
            Expression::Dot(aggregate, member) => match self.compile_expression(aggregate)? {
                Meaning::ValueAt(pointee) => self.add_member_offset(pointee, member),
                Meaning::PointerTo(_) => {
                    Err(invalid(format!(".{member}: this is a pointer (write ->{member})")))
                }
                _ => Err(invalid(format!(".{member}: this is not a struct"))),
            },
            Expression::Index(base, index) => self.compile_element(base, *index),
            Expression::Cast(name, operand) => {
                let meaning = self.compile_expression(operand)?;
                self.load_value(meaning)?;
                self.pointee_named(name).map(Meaning::PointerTo)
            }
            Expression::Text(operand) => {
                let meaning = self.compile_expression(operand)?;
                // An array of characters is the text; any other operand is a pointer to the text.
                if !self.is_text(meaning)? {
                    self.load_value(meaning)?;
                }
                self.steps.push(Step::Text(TEXT_BYTES));
                Ok(Meaning::Text)
            }
        }
    }

    /// Compiles a name: a register, `current` (the running task's `task_struct`), or a parameter of the function, looked up
    /// in this order.
    ///
    /// The error for an unknown name lists the known names, and says why parameters are missing.
    fn compile_name(&mut self, name: &str) -> Result<Meaning> {
        let half_register = LOWER_HALF_REGISTERS.iter().find(|(half, _)| *half == name);
        let register = half_register.map_or(name, |(_, full)| full);
        if let Some(position) = REGISTERS.iter().position(|candidate| *candidate == register) {
            self.steps.push(Step::Register(position as u8));
            self.steps.extend(half_register.map(|_| Step::Bits(0, 32)));
            return Ok(Meaning::Number(PrintFormat::Hex));
        }
        if name == "current" {
            return self.compile_current();
        }
        let parameters = self.parameters();
        let known = parameters.as_deref().unwrap_or_default();
        if let Some(parameter) = known.iter().find(|parameter| parameter.name == name) {
            return self.compile_parameter(parameter);
        }
        let parameter_names = known.iter().map(|parameter| parameter.name.as_str());
        let names: Vec<&str> = parameter_names.chain(["current"]).chain(REGISTERS).collect();
        let reason = parameters.as_ref().err();
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        Err(invalid(format!(
            "{name}: no register or parameter has this name{reason}; known: {}, and the lower halves eax to r15d",
            names.join(", ")
        )))
    }

    /// The parameters of the function at whose first instruction the values are recorded. The error says why they are not
    /// known.
    fn parameters(&self) -> std::result::Result<Vec<Parameter>, String> {
        let function = self.scope.function.ok_or(
            "parameters can be recorded only at the first instruction of a function that has a name",
        )?;
        let btf = self.scope.facts.btf.as_ref().ok_or_else(|| {
            format!("the parameters of {function} are unknown: {NO_TYPE_INFORMATION}")
        })?;
        btf.parameters(function)
            .ok_or_else(|| format!("the kernel's type information does not describe {function}"))
    }

    /// Emits the steps that load a parameter of the function at its first instruction, and returns the value's meaning.
    ///
    /// Fails if several functions share the function's name, and if the parameter is not in exactly one register.
    fn compile_parameter(&mut self, parameter: &Parameter) -> Result<Meaning> {
        let Parameter { name, type_id, location } = parameter;
        let count = self.scope.functions_of_name;
        if count > 1 {
            let function = self.scope.function.unwrap_or("the function");
            return Err(invalid(format!(
                "{name}: {count} functions are named {function}, and the kernel describes the parameters of only one \
                 of them: use registers"
            )));
        }
        let problem = match location {
            Location::Register(number) => {
                let register = PARAMETER_REGISTERS[usize::from(*number)];
                let position = REGISTERS.iter().position(|candidate| *candidate == register);
                let position = position.expect("REGISTERS has the registers of parameters");
                self.steps.push(Step::Register(position as u8));
                return self.interpret_parameter_register(*type_id);
            }
            Location::TwoRegisters => {
                "this parameter is in two registers: record each register by its name"
            }
            Location::Memory => "this parameter is on the stack: use ((u64*)rsp)[N]",
            Location::Unknown => {
                "its register is unknown, because the function has floating-point parameters"
            }
        };
        Err(invalid(format!("{name}: {problem}")))
    }

    /// Returns the meaning of a parameter whose register has been loaded. Emits steps that clear the bits above a small
    /// parameter, because they are undefined.
    fn interpret_parameter_register(&mut self, type_id: TypeId) -> Result<Meaning> {
        let btf = self.btf()?;
        Ok(match btf.shape(type_id)? {
            Shape::Pointer(to) => Meaning::PointerTo(Pointee::Type(to)),
            Shape::Number { bytes, is_signed, .. } => {
                self.extend_number(bytes * 8, is_signed, bytes < 8)
            }
            _ => {
                let bytes = btf.bytes_of(type_id)?;
                if bytes < 8 {
                    self.steps.push(Step::Bits(0, bytes as u8 * 8));
                }
                Meaning::Number(PrintFormat::Hex)
            }
        })
    }

    /// Emits the steps that extend the loaded number of `bits` bits to 64 bits, and returns its meaning.
    /// `needs_clearing`: the bits above may be other than 0.
    fn extend_number(&mut self, bits: u8, is_signed: bool, needs_clearing: bool) -> Meaning {
        if needs_clearing {
            self.steps.push(Step::Bits(0, bits));
        }
        if !is_signed {
            return Meaning::Number(PrintFormat::Unsigned);
        }
        if bits < 64 {
            self.steps.push(Step::Sign(bits));
        }
        Meaning::Number(PrintFormat::Signed)
    }

    /// Compiles `current`: the pointer to the task of the CPU, as a `struct task_struct *`.
    fn compile_current(&mut self) -> Result<Meaning> {
        let symbols = self.scope.facts.symbols.as_ref();
        let symbols = symbols.ok_or_else(|| invalid("current: no symbols".to_owned()))?;
        let offset = symbols.per_cpu_offset("current_task");
        // Kernels from 6.2 on may have it as the first member of `pcpu_hot`.
        let offset = offset.or_else(|_| symbols.per_cpu_offset("pcpu_hot"))?;
        self.steps.extend([Step::PerCpu(offset), Step::Load(8)]);
        Ok(Meaning::PointerTo(Pointee::Type(self.btf()?.type_named("task_struct")?)))
    }

    /// Compiles the address of a variable: for a per-CPU variable, of the copy of the CPU.
    fn compile_address_of(&mut self, name: &str) -> Result<Meaning> {
        let symbols = self.scope.facts.symbols.as_ref();
        let symbols = symbols.ok_or_else(|| invalid(format!("&{name}: no symbols")))?;
        self.steps.push(match symbols.per_cpu_offset(name) {
            Ok(offset) => Step::PerCpu(offset),
            Err(_) => Step::Constant(symbols.address(name)?),
        });
        Ok(Meaning::Number(PrintFormat::Hex))
    }

    /// Returns the type that a cast names: an integer of [`INTEGERS`], else a type of the kernel.
    fn pointee_named(&self, name: &str) -> Result<Pointee> {
        if let Some((_, bytes, is_signed)) = INTEGERS.iter().find(|(integer, ..)| *integer == name)
        {
            return Ok(Pointee::Integer { bytes: *bytes, is_signed: *is_signed });
        }
        let type_id = self.btf()?.type_named(name);
        type_id.map(Pointee::Type)
    }

    /// Compiles an expression that must be a pointer, and returns what it points to. `suffix`: what follows it in the source,
    /// for the error message.
    fn compile_pointer(&mut self, expression: &Expression, suffix: &str) -> Result<Pointee> {
        let meaning = self.compile_expression(expression)?;
        match self.load_value(meaning)? {
            Meaning::PointerTo(to) => Ok(to),
            _ => Err(invalid(format!(
                "{suffix}: this is no pointer (write ((struct NAME*)...){suffix})"
            ))),
        }
    }

    /// Adds the offset of a member to the address of a struct.
    fn add_member_offset(&mut self, pointee: Pointee, member: &str) -> Result<Meaning> {
        let Pointee::Type(aggregate) = pointee else {
            return Err(invalid(format!("{member}: an integer has no members")));
        };
        let btf = self.btf()?;
        if btf.shape(aggregate)? != Shape::Aggregate {
            let name = btf.name_of(aggregate);
            return Err(invalid(format!("{member}: {name} has no members")));
        }
        let Field { offset_bytes, member_type: type_id, bit_field } =
            btf.field(aggregate, member)?;
        self.add_offset(offset_bytes);
        let Some((first_bit, bits)) = bit_field else {
            return Ok(Meaning::ValueAt(Pointee::Type(type_id)));
        };
        let is_signed = matches!(btf.shape(type_id)?, Shape::Number { is_signed: true, .. });
        Ok(Meaning::BitsAt(first_bit, bits, is_signed))
    }

    /// Compiles an element of an array, or of the values that a pointer points to.
    fn compile_element(&mut self, base: &Expression, index: u64) -> Result<Meaning> {
        let meaning = self.compile_expression(base)?;
        if let Meaning::ValueAt(Pointee::Type(array)) = meaning
            && let Shape::Array(element, count) = self.btf()?.shape(array)?
        {
            if index >= u64::from(count) {
                return Err(invalid(format!("[{index}]: the array has {count} elements")));
            }
            return self.element_at(Pointee::Type(element), index);
        }
        match self.load_value(meaning)? {
            Meaning::PointerTo(to) => self.element_at(to, index),
            _ => Err(invalid(format!("[{index}]: this is neither an array nor a pointer"))),
        }
    }

    /// Adds the offset of element `index` to the address of the first element.
    fn element_at(&mut self, pointee: Pointee, index: u64) -> Result<Meaning> {
        let bytes = match pointee {
            Pointee::Type(type_id) => self.btf()?.bytes_of(type_id)?,
            Pointee::Integer { bytes, .. } => bytes.into(),
        };
        self.add_offset(bytes.wrapping_mul(index));
        Ok(Meaning::ValueAt(pointee))
    }

    /// Adds a number of bytes to the computed address. Joins two additions in a row to one step.
    fn add_offset(&mut self, bytes: u64) {
        match self.steps.last_mut() {
            _ if bytes == 0 => {}
            Some(Step::Add(offset)) => *offset = offset.wrapping_add(bytes),
            _ => self.steps.push(Step::Add(bytes)),
        }
    }

    /// Returns whether the result is the address of an array of characters.
    fn is_text(&self, meaning: Meaning) -> Result<bool> {
        let Meaning::ValueAt(Pointee::Type(type_id)) = meaning else { return Ok(false) };
        let btf = self.btf()?;
        let Shape::Array(element, _) = btf.shape(type_id)? else { return Ok(false) };
        Ok(matches!(btf.shape(element)?, Shape::Number { is_char: true, .. }))
    }

    /// Loads the value if `meaning` is an address. Returns the meaning of the value.
    fn load_value(&mut self, meaning: Meaning) -> Result<Meaning> {
        match meaning {
            Meaning::Number(_) | Meaning::PointerTo(_) | Meaning::Text => Ok(meaning),
            Meaning::ValueAt(Pointee::Integer { bytes, is_signed }) => {
                self.steps.push(Step::Load(bytes));
                Ok(self.extend_number(bytes * 8, is_signed, false))
            }
            Meaning::BitsAt(first_bit, bits, is_signed) => {
                let bytes = (u32::from(first_bit) + u32::from(bits)).div_ceil(8);
                if bytes > 8 {
                    return Err(invalid("a bit field over more than 8 bytes".to_owned()));
                }
                self.steps.push(Step::Load(bytes.next_power_of_two() as u8));
                self.steps.push(Step::Bits(first_bit, bits));
                Ok(self.extend_number(bits, is_signed, false))
            }
            Meaning::ValueAt(Pointee::Type(type_id)) => self.load(type_id),
        }
    }

    /// Loads a value of a type from the computed address. Fails for arrays that are no text, and
    /// for structs: they have no value.
    fn load(&mut self, type_id: TypeId) -> Result<Meaning> {
        let btf = self.btf()?;
        match btf.shape(type_id)? {
            Shape::Number { bytes, is_signed, .. } => {
                self.steps.push(Step::Load(bytes));
                Ok(self.extend_number(bytes * 8, is_signed, false))
            }
            Shape::Pointer(to) => {
                self.steps.push(Step::Load(8));
                Ok(Meaning::PointerTo(Pointee::Type(to)))
            }
            Shape::Array(_, count) if self.is_text(Meaning::ValueAt(Pointee::Type(type_id)))? => {
                self.steps.push(Step::Text(count.min(TEXT_BYTES.into()) as u8));
                Ok(Meaning::Text)
            }
            Shape::Array(_, count) => {
                Err(invalid(format!("this is an array of {count} (name an element, as in [0])")))
            }
            Shape::Aggregate => {
                let name = btf.name_of(type_id);
                Err(invalid(format!("{name} has no value (name a member)")))
            }
            Shape::Other => Err(invalid(format!("{} has no value", btf.name_of(type_id)))),
        }
    }
}

/// Returns a suggestion of similar words for an error message.
pub(crate) fn similar_words(word: &str, known: &[&str]) -> String {
    hint(word, known.iter().copied())
}
