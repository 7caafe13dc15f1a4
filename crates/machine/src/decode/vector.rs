//! Which unit executes an operation on vector, mask or x87 registers, and which latency it has.
//!
//! There are about a thousand such instructions, so the start of the mnemonic decides. The first class of the list that
//! fits counts.

use iced_x86::{Instruction as X86, OpKind, Register as X86Register};

use crate::core::{Operation, Unit};

/// The unit of an instruction, and its operation if the latency may differ from the latency of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VectorClass {
    pub(super) unit: Unit,
    pub(super) operation: Option<Operation>,
}

/// The operands that an instruction of a class has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    Any,
    /// A general register and a vector register.
    BothKinds,
    /// A register of 256 bits or more.
    Wide,
    /// A register of 256 bits or more, and no memory.
    WideRegisters,
    /// An immediate operand.
    Constant,
    /// Four operands, as blends with VEX codes have: the mask is one of them.
    Four,
}

/// The start of mnemonics in lower case, without the V of vector extensions, and the class of such instructions.
type ClassRow = (&'static [&'static str], Operands, Unit, Option<Operation>);

/// All classes but the last, which has all other vector operations.
const CLASSES: &[ClassRow] = &[
    (&["sqrt", "fsqrt"], Operands::Any, Unit::FloatDivide, Some(Operation::FloatRoot)),
    (&["div", "fdiv", "fidiv", "fprem"], Operands::Any, Unit::FloatDivide, None),
    (&["rsqrt", "rcp"], Operands::Any, Unit::FloatMultiply, Some(Operation::Reciprocal)),
    (&["mul"], Operands::Any, Unit::FloatMultiply, Some(Operation::FloatMultiplyOnly)),
    (&["pmulld"], Operands::Any, Unit::FloatMultiply, Some(Operation::VectorMultiply32)),
    (&["pmul", "pmadd"], Operands::Any, Unit::FloatMultiply, Some(Operation::VectorMultiply)),
    (
        &["fmul", "fimul", "fmadd", "fmsub", "fnmadd", "fnmsub"],
        Operands::Any,
        Unit::FloatMultiply,
        None,
    ),
    (&["dpps"], Operands::Any, Unit::FloatMultiply, Some(Operation::DotProduct)),
    (&["dppd"], Operands::Any, Unit::FloatMultiply, Some(Operation::DotProductDouble)),
    (&["hadd", "hsub"], Operands::Any, Unit::FloatAdd, Some(Operation::HorizontalAdd)),
    (
        &["comi", "ucomi", "fcomi", "fucomi"],
        Operands::Any,
        Unit::FloatAdd,
        Some(Operation::FloatFlags),
    ),
    // To a general register, also from memory.
    (
        &["cvtsd2si", "cvttsd2si", "cvtss2si", "cvttss2si"],
        Operands::Any,
        Unit::FloatAdd,
        Some(Operation::Convert),
    ),
    (&["cvt"], Operands::BothKinds, Unit::FloatAdd, Some(Operation::Convert)),
    (&["cvt"], Operands::Any, Unit::FloatAdd, Some(Operation::VectorConvert)),
    (&["min", "max", "cmpp", "cmps"], Operands::Any, Unit::FloatAdd, Some(Operation::FloatCompare)),
    (&["round"], Operands::Any, Unit::FloatAdd, Some(Operation::Round)),
    (
        &["add", "sub", "fadd", "fsub", "fiadd", "fisub", "fcom", "fucom", "fild", "fist"],
        Operands::Any,
        Unit::FloatAdd,
        None,
    ),
    (&["aesimc", "aeskey"], Operands::Any, Unit::Shuffle, Some(Operation::AesKey)),
    // No model states a latency of `pclmulqdq`. It is near that of AES: 3 cycles on Intel's cores, 4 on AMD's.
    (&["aes", "pclmul"], Operands::Any, Unit::Shuffle, Some(Operation::Aes)),
    (
        &["sha1nexte", "sha1msg", "sha256msg"],
        Operands::Any,
        Unit::Shuffle,
        Some(Operation::ShaMessage),
    ),
    (&["sha"], Operands::Any, Unit::Shuffle, Some(Operation::Sha)),
    (&["pcmpistr", "pcmpestr"], Operands::Any, Unit::Shuffle, Some(Operation::StringCompare)),
    (&[""], Operands::BothKinds, Unit::Shuffle, Some(Operation::Cross)),
    (
        &["perm2", "extractf128", "extracti128"],
        Operands::Wide,
        Unit::Shuffle,
        Some(Operation::LaneMove),
    ),
    (
        &["permd", "permq", "permps", "permpd"],
        Operands::Wide,
        Unit::Shuffle,
        Some(Operation::LanePermute),
    ),
    (
        &["insertf128", "inserti128"],
        Operands::WideRegisters,
        Unit::Shuffle,
        Some(Operation::LaneWiden),
    ),
    // From memory: a load of both halves, and a blend.
    (&["insertf128", "inserti128"], Operands::Wide, Unit::Vector, None),
    (
        &["broadcast", "pbroadcast", "pmovsx", "pmovzx"],
        Operands::Wide,
        Unit::Shuffle,
        Some(Operation::LaneWiden),
    ),
    (&["blendv", "pblendv"], Operands::Four, Unit::Vector, Some(Operation::VariableBlend)),
    (
        &["pshufd", "pshufl", "pshufh", "shufp", "punpck", "unpck"],
        Operands::Any,
        Unit::Shuffle,
        Some(Operation::SimpleShuffle),
    ),
    (&["permil"], Operands::Constant, Unit::Shuffle, Some(Operation::SimpleShuffle)),
    (
        &[
            "pshuf",
            "shuf",
            "perm",
            "punpck",
            "unpck",
            "pack",
            "palign",
            "insert",
            "extract",
            "broadcast",
            "pbroadcast",
            "pmovsx",
            "pmovzx",
            "psrldq",
            "pslldq",
        ],
        Operands::Any,
        Unit::Shuffle,
        None,
    ),
    (&["psadbw", "mpsadbw", "phminpos"], Operands::Any, Unit::Vector, Some(Operation::ByteSum)),
    (&["pcmpgtq"], Operands::Any, Unit::Vector, Some(Operation::VectorCompare64)),
    (&["ptest", "testp"], Operands::Any, Unit::Vector, Some(Operation::VectorTest)),
];

/// The class of an operation on vector, mask or x87 registers.
pub(super) fn vector_class(decoded: &X86) -> VectorClass {
    let name = mnemonic_text(decoded);
    let fits = |(starts, operands, _, _): &&ClassRow| {
        starts.iter().any(|start| name.starts_with(start)) && has_operands(decoded, *operands)
    };
    let found = CLASSES.iter().find(fits);
    let (unit, operation) =
        found.map_or((Unit::Vector, None), |(_, _, unit, operation)| (*unit, *operation));
    VectorClass { unit, operation }
}

fn has_operands(decoded: &X86, operands: Operands) -> bool {
    match operands {
        Operands::Any => true,
        Operands::BothKinds => crosses_register_kinds(decoded),
        Operands::Wide => has_wide_register(decoded),
        Operands::WideRegisters => {
            has_wide_register(decoded) && !has_operand_of(decoded, OpKind::Memory)
        }
        Operands::Constant => has_operand_of(decoded, OpKind::Immediate8),
        Operands::Four => decoded.op_count() == 4,
    }
}

fn has_wide_register(decoded: &X86) -> bool {
    (0..decoded.op_count()).any(|operand| {
        let register = decoded.op_register(operand);
        register != X86Register::None && register.is_vector_register() && register.size() > 16
    })
}

fn has_operand_of(decoded: &X86, kind: OpKind) -> bool {
    (0..decoded.op_count()).any(|operand| decoded.op_kind(operand) == kind)
}

/// The mnemonic in lower case, without the V of vector extensions.
fn mnemonic_text(decoded: &X86) -> String {
    let name = format!("{:?}", decoded.mnemonic());
    name.strip_prefix('V').unwrap_or(&name).to_ascii_lowercase()
}

/// Whether the instruction has both a general register and a vector register as operands.
fn crosses_register_kinds(decoded: &X86) -> bool {
    let has = |is_kind: fn(X86Register) -> bool| {
        (0..decoded.op_count()).any(|operand| {
            decoded.op_kind(operand) == OpKind::Register && is_kind(decoded.op_register(operand))
        })
    };
    has(X86Register::is_gpr) && has(X86Register::is_vector_register)
}
