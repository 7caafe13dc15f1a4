//! Results that some operations have later than others: what depends on the pair of operations, and not on one
//! of them.

use super::instruction::{Instruction, Operation, REGISTERS, Register, Unit, register_index};
use super::model::CoreModel;
use crate::cycle::Cycle;

/// For each register, its ready time when a certain kind of operation wrote it last. That kind wrote the current
/// value if this time equals the register's ready time.
type ReadyAt = [Cycle; REGISTERS];

/// See [`OperationLatencies::float_add_to_others_cycles`](super::OperationLatencies),
/// [`OperationLatencies::select_after_logic_cycles`](super::OperationLatencies) and
/// [`FrontModel::constant_cycles`](super::FrontModel).
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// How much earlier an addition of floating point has the result of another one than other operations have it.
    addition_cycles: u64,
    added: ReadyAt,
    /// The wait of operations that need the whole register, where renaming has added a constant to it.
    constant_cycles: u64,
    constants: ReadyAt,
    /// How much longer an operation takes that chooses by flags of a logical one.
    logic_cycles: u64,
    /// When flags of a logical operation were ready.
    logic_flags: Cycle,
}

fn adds_floats(instruction: &Instruction) -> bool {
    usize::from(instruction.latency) == Unit::FloatAdd as usize
}

/// Whether it needs all of its operand at once, which renaming has not added to yet.
fn needs_whole_operand(instruction: &Instruction) -> bool {
    let is_lea = instruction.is(Operation::LeaThree) || instruction.is(Operation::LeaScaled);
    instruction.unit == Some(Unit::Shift) && !is_lea
        || instruction.is(Operation::ByteSwap)
        || instruction.is(Operation::Cross)
}

impl Forwarding {
    /// `None` if the core has no such forwarding delays.
    pub(super) fn new(model: &CoreModel) -> Option<Box<Forwarding>> {
        let (of, add) = (&model.units.of, model.units.float_add.latency_cycles);
        let forwarding = Forwarding {
            addition_cycles: of
                .float_add_to_others_cycles
                .map_or(0, |cycles| cycles.saturating_sub(add))
                .into(),
            added: [Cycle::START; REGISTERS],
            constant_cycles: model.front.constant_cycles.into(),
            constants: [Cycle::START; REGISTERS],
            logic_cycles: of.select_after_logic_cycles.unwrap_or(0).into(),
            logic_flags: Cycle::START,
        };
        let is_any =
            forwarding.addition_cycles + forwarding.constant_cycles + forwarding.logic_cycles > 0
                || model.front.eliminates_constants;
        is_any.then(|| Box::new(forwarding))
    }

    /// When the operands of an instruction are ready, which has entered at `entered` and whose registers are all
    /// ready at `operands`.
    #[inline(never)]
    pub(super) fn operands(
        &self,
        instruction: &Instruction,
        ready: &ReadyAt,
        entered: Cycle,
        operands: Cycle,
    ) -> Cycle {
        if self.addition_cycles > 0 && adds_floats(instruction) {
            let sooner = |register: &u8| {
                let (ready, added) =
                    (ready[register_index(*register)], self.added[register_index(*register)]);
                if ready == added { ready.earlier_by(self.addition_cycles) } else { ready }
            };
            return instruction.reads.iter().map(sooner).fold(entered, Cycle::max);
        }
        if self.constant_cycles > 0 && needs_whole_operand(instruction) {
            let renamed = |register: &&u8| {
                let constant = self.constants[register_index(**register)];
                constant > Cycle::START && constant == ready[register_index(**register)]
            };
            let renamed = instruction.reads.iter().filter(renamed);
            let renamed_times =
                renamed.map(|register| ready[register_index(*register)] + self.constant_cycles);
            return renamed_times.fold(operands, Cycle::max);
        }
        operands
    }

    /// When an instruction's result is ready. Its unit is done at `executed`.
    #[inline(never)]
    pub(super) fn result(
        &mut self,
        instruction: &Instruction,
        ready: &ReadyAt,
        executed: Cycle,
    ) -> Cycle {
        if self.addition_cycles > 0 && adds_floats(instruction) {
            let executed = executed + self.addition_cycles;
            instruction
                .writes
                .iter()
                .for_each(|register| self.added[register_index(*register)] = executed);
            return executed;
        }
        if self.logic_cycles > 0 {
            let flags = ready[register_index(Register::FLAGS.number())];
            if instruction.unit == Some(Unit::Select)
                && self.logic_flags == flags
                && flags > Cycle::START
            {
                return executed + self.logic_cycles;
            }
            if instruction.is(Operation::Logic) {
                self.logic_flags = executed;
            }
        }
        executed
    }

    /// Renaming adds a constant to a register, whose value others have at `executed`.
    #[inline(never)]
    pub(super) fn constant_added(
        &mut self,
        instruction: &Instruction,
        ready: &mut ReadyAt,
        executed: Cycle,
    ) {
        for register in instruction.writes {
            if register == Register::FLAGS.number() {
                ready[register_index(register)] = executed + 1;
            } else {
                self.constants[register_index(register)] = executed;
            }
        }
    }
}
