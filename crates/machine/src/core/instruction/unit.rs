//! Kinds of execution units.

/// A kind of execution unit. The first `UNITS` kinds are in the order of [`UnitsModel`](crate::core::UnitsModel); their
/// numbers index tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Integer arithmetic, logic, shifts and moves.
    Integer,
    /// Integer multiplication.
    Multiply,
    Divide,
    /// Floating point: additions, comparisons, conversions.
    FloatAdd,
    /// Floating point: multiplications.
    FloatMultiply,
    /// Floating point: divisions and roots.
    FloatDivide,
    /// Vector registers: all other operations.
    Vector,
    Branch,
    Load,
    Store,
    /// Vector registers: shuffles, AES, SHA, and moves from and to other registers.
    Shuffle,
    /// Integer units that also execute shifts, rotates, bit tests and three-operand `lea`. Some cores have fewer of
    /// them than integer units.
    Shift,
    /// Integer units that also execute `cmov` and `setcc`. Some cores have fewer of them than integer units.
    Select,
}

/// The number of kinds of units that a model describes: all before [`Unit::Shift`].
pub(in crate::core) const UNITS: usize = 11;
/// The number of all kinds of units.
pub(in crate::core) const UNIT_KINDS: usize = 13;

impl Unit {
    /// The kind of unit in a model that describes this kind.
    pub(in crate::core) fn kind_in_model(self) -> Unit {
        match self {
            Unit::Shift | Unit::Select => Unit::Integer,
            other => other,
        }
    }

    /// Whether the unit operates on vector registers.
    #[inline(always)]
    pub(crate) fn is_vector(self) -> bool {
        const VECTOR: u32 = 1 << Unit::FloatAdd as u32
            | 1 << Unit::FloatMultiply as u32
            | 1 << Unit::FloatDivide as u32
            | 1 << Unit::Vector as u32
            | 1 << Unit::Shuffle as u32;
        VECTOR >> self as u32 & 1 == 1
    }
}
