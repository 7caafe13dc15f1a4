//! Forwarding delays: latencies that depend on both the operation that writes a register and the operation that reads
//! it. The rest of the out-of-order core knows one ready time per register, so this file corrects that time for the
//! pairs that a model names. Cores without such pairs have no [`Forwarding`].

use super::instruction::{Instruction, Operation, REGISTERS, Register, Unit, register_index};
use super::model::CoreModel;
use crate::cycle::Cycle;

/// For each register, a ready time. In the fields of [`Forwarding`]: the ready time when one kind of operation last
/// wrote the register. That kind wrote the current value if the time equals the register's current ready time.
type ReadyAt = [Cycle; REGISTERS];

/// The forwarding delays of a core: see [`OperationLatencies::float_add_to_others_cycles`](super::OperationLatencies),
/// [`OperationLatencies::select_after_logic_cycles`](super::OperationLatencies) and
/// [`FrontModel::constant_cycles`](super::FrontModel).
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// How many cycles earlier a floating-point addition has the result of another addition than other operations do.
    addition_cycles: u64,
    /// Registers that floating-point additions wrote.
    added: ReadyAt,
    /// Extra cycles of operations that need the whole register, after renaming has added a constant to it.
    constant_cycles: u64,
    /// Registers that renaming added constants to.
    constants: ReadyAt,
    /// Extra cycles of `cmov` and `setcc` that read the flags of a logic operation.
    logic_cycles: u64,
    /// When the flags of the last logic operation were ready.
    logic_flags: Cycle,
}

fn adds_floats(instruction: &Instruction) -> bool {
    usize::from(instruction.latency) == Unit::FloatAdd as usize
}

/// Whether an operation waits for a constant that renaming has added to its operand: see
/// [`FrontModel::constant_cycles`](super::FrontModel).
fn needs_whole_operand(instruction: &Instruction) -> bool {
    let is_lea = instruction.is_operation(Operation::LeaThree)
        || instruction.is_operation(Operation::LeaScaled);
    instruction.unit == Some(Unit::Shift) && !is_lea
        || instruction.is_operation(Operation::ByteSwap)
        || instruction.is_operation(Operation::Cross)
}

impl Forwarding {
    /// `None` if the core has no such delays and renaming adds no constants.
    pub(super) fn new(model: &CoreModel) -> Option<Box<Forwarding>> {
        let (latencies, add) = (&model.units.of, model.units.float_add.latency_cycles);
        let forwarding = Forwarding {
            addition_cycles: latencies
                .float_add_to_others_cycles
                .map_or(0, |cycles| cycles.saturating_sub(add))
                .into(),
            added: [Cycle::START; REGISTERS],
            constant_cycles: model.front.constant_cycles.into(),
            constants: [Cycle::START; REGISTERS],
            logic_cycles: latencies.select_after_logic_cycles.unwrap_or(0).into(),
            logic_flags: Cycle::START,
        };
        let has_delays =
            forwarding.addition_cycles + forwarding.constant_cycles + forwarding.logic_cycles > 0
                || model.front.eliminates_constants;
        has_delays.then(|| Box::new(forwarding))
    }

    /// When the operands of an instruction are ready. It has entered at `entered`, and its registers are ready at
    /// `operands` without regard to pairs. Additions may have their operands earlier, other operations later.
    #[inline(never)]
    pub(super) fn operands(
        &self,
        instruction: &Instruction,
        ready: &ReadyAt,
        entered: Cycle,
        operands: Cycle,
    ) -> Cycle {
        if self.addition_cycles > 0 && adds_floats(instruction) {
            let ready_for_addition = |register: &u8| {
                let (ready, added) =
                    (ready[register_index(*register)], self.added[register_index(*register)]);
                if ready == added { ready.earlier_by(self.addition_cycles) } else { ready }
            };
            return instruction.reads.iter().map(ready_for_addition).fold(entered, Cycle::max);
        }
        if self.constant_cycles > 0 && needs_whole_operand(instruction) {
            let is_renamed = |register: &&u8| {
                let constant = self.constants[register_index(**register)];
                constant > Cycle::START && constant == ready[register_index(**register)]
            };
            let renamed = instruction.reads.iter().filter(is_renamed);
            let renamed_times =
                renamed.map(|register| ready[register_index(*register)] + self.constant_cycles);
            return renamed_times.fold(operands, Cycle::max);
        }
        operands
    }

    /// When the result of an instruction is ready for other kinds of operations. Its unit is done at `executed`.
    /// Records the result for later [`Forwarding::operands`].
    #[inline(never)]
    pub(super) fn result(
        &mut self,
        instruction: &Instruction,
        ready: &ReadyAt,
        executed: Cycle,
    ) -> Cycle {
        let logic_flags = self.logic_flags;
        self.overwritten(instruction);
        if self.addition_cycles > 0 && adds_floats(instruction) {
            let executed = executed + self.addition_cycles;
            instruction
                .writes
                .iter()
                .for_each(|register| self.added[register_index(*register)] = executed);
            return executed;
        }
        if self.logic_cycles > 0 {
            let reads_logic_flags = |flags: Register| {
                instruction.reads.contains(&flags.number())
                    && ready[register_index(flags.number())] == logic_flags
            };
            if instruction.unit == Some(Unit::Select)
                && logic_flags > Cycle::START
                && [Register::FLAGS, Register::EARLIER_FLAGS].into_iter().any(reads_logic_flags)
            {
                return executed + self.logic_cycles;
            }
            if instruction.is_operation(Operation::Logic) {
                self.logic_flags = executed;
            }
        }
        executed
    }

    /// Forgets what wrote the registers that an instruction overwrites. Ready times alone do not tell: another
    /// instruction may write the register in the same cycle.
    #[inline]
    pub(super) fn overwritten(&mut self, instruction: &Instruction) {
        if self.constant_cycles > 0 {
            let written = instruction.writes.iter();
            written.for_each(|register| self.constants[register_index(*register)] = Cycle::START);
        }
        if self.addition_cycles > 0 {
            let written = instruction.writes.iter();
            written.for_each(|register| self.added[register_index(*register)] = Cycle::START);
        }
        let writes_flags = || {
            instruction.writes_register(Register::FLAGS)
                || instruction.writes_register(Register::FLAGS_BUT_CARRY)
        };
        if self.logic_cycles > 0 && writes_flags() {
            self.logic_flags = Cycle::START;
        }
    }

    /// Records that renaming added a constant to a register. The value is ready at `executed`, the flags a cycle later.
    #[inline(never)]
    pub(super) fn constant_added(
        &mut self,
        instruction: &Instruction,
        ready: &mut ReadyAt,
        executed: Cycle,
    ) {
        for register in instruction.writes {
            let is_flags = [Register::FLAGS, Register::FLAGS_BUT_CARRY]
                .iter()
                .any(|flags| flags.number() == register);
            if is_flags {
                ready[register_index(register)] = executed + 1;
            } else {
                self.constants[register_index(register)] = executed;
            }
        }
    }
}
