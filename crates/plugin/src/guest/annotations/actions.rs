//! Executes the actions of an annotation when the guest reaches it: at an address, an interrupt, an exception or a
//! marker. `translate.rs` calls [`watch`] for each instruction; callbacks of events and markers call the `hit_...`
//! functions.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use attribution::KernelContext;
use attribution::stack::DEPTH_MAX;
use machine::{PhysicalAddress, VirtualAddress};

use super::counters::on_hit;
use crate::cpu::level::RequestedLevel;
use crate::cpu::{self, BlockPosition};
use crate::devices::held;
use crate::guest::tracker::{Moment, Tracker, is_kernel};
use crate::models::physical;
use crate::qemu::ffi::NO_REGISTERS;
use crate::qemu::{Qemu, Registers, TranslatedInstruction};
use crate::session::{self, Session};
use plugin_interface::annotations::{Action, Guest, MachineMemory, Program, VALUES_MAX};
use simrecord::record::{Value, Values, ValuesKind};

/// From this depth of the stack of contexts on, no spans are opened. The rest of the stack is reserved for contexts.
const SPAN_DEPTH_MAX: usize = DEPTH_MAX - 6;
/// An annotation at an instruction of a block.
#[derive(Debug)]
struct AnnotationPoint {
    /// The number of the annotation.
    annotation: u32,
    /// How many instructions of the block are still to execute, this one included.
    remaining: u32,
}

/// Registers callbacks for the annotations at an instruction, which act before it executes. `remaining`: how many
/// instructions of its block are still to execute then, this one included.
pub(crate) fn watch(
    session: &mut Session,
    instruction: TranslatedInstruction,
    address: VirtualAddress,
    remaining: u32,
) {
    let numbers: Vec<u32> = session.annotations.numbers_at(address.0).collect();
    for number in numbers {
        let annotation = &session.annotations.list[number as usize];
        if !session.level.is_counting() && !annotation.is_for_all_levels() {
            continue;
        }
        if annotation.actions.is_empty() {
            if let Some(hits) = session.annotations.hits(number) {
                let data = hits.as_data();
                session.qemu.on_instruction_with(instruction, on_hit, NO_REGISTERS, data);
            }
        } else {
            let point = AnnotationPoint { annotation: number, remaining };
            let point = session.arena.keep_instruction(point);
            session.qemu.on_instruction(instruction, on_annotation, point.cast_mut().cast());
        }
    }
}

/// Called before an instruction whose annotation does more than count.
extern "C" fn on_annotation(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running_vcpu();
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    // SAFETY: the arena keeps the point while there is code that passes it.
    let AnnotationPoint { annotation, remaining } =
        *unsafe { &*point.cast_const().cast::<AnnotationPoint>() };
    hit(session, vcpu, annotation, remaining);
}

/// Executes the annotations at an interrupt or exception that a vCPU has taken. `vector`: `None` if it is not known.
pub(crate) fn hit_event(session: &mut Session, vcpu: u32, is_exception: bool, vector: Option<u8>) {
    for number in session.annotations.at_event(is_exception, vector) {
        hit(session, vcpu, number, 0);
    }
}

/// Executes the annotations at a marker that a vCPU has reached.
pub(crate) fn hit_marker(session: &mut Session, vcpu: u32, marker: u32, remaining: u32) {
    for number in session.annotations.at_marker(marker) {
        hit(session, vcpu, number, remaining);
    }
}

/// Executes the actions of annotation `number`, which a vCPU has reached.
fn hit(session: &mut Session, vcpu: u32, number: u32, remaining: u32) {
    let list = Arc::clone(&session.annotations.list);
    if session.writer.has_ended() {
        return;
    }
    let Some(annotation) = list.get(number as usize) else { return };
    let is_counting = session.level.is_counting();
    if is_counting {
        session.annotations.count(number, vcpu);
    }
    let block_position = BlockPosition { vcpu, remaining };
    let is_in_region = session.regions.contains_now(vcpu as usize);
    for (position, action) in annotation.actions.iter().enumerate() {
        match action {
            Action::Record(programs) if is_counting && is_in_region => {
                record_values(session, vcpu, (number, position), programs, remaining);
            }
            Action::Span(span) if is_counting => {
                change_span(session, block_position, number, |tracker, moment| {
                    open_call_span(tracker, *span, moment)
                });
            }
            Action::Open(span) if is_counting => {
                change_span(session, block_position, number, |tracker, moment| {
                    open_span(tracker, *span, &moment)
                });
            }
            Action::Close(span) if is_counting => {
                change_span(session, block_position, number, |tracker, moment| {
                    let stack = &mut tracker.cpus[vcpu as usize].stack;
                    stack.leave_section_of(KernelContext::Function(*span), moment.now)
                });
            }
            Action::Detail { full } => session.set_level(if *full {
                RequestedLevel::Full
            } else {
                RequestedLevel::MarkersOnly
            }),
            Action::Checkpoint(number) => {
                held::request_checkpoint(*number, is_counting && session.clock.has_slices());
            }
            Action::Stop if held::end_record_after_checkpoint() => {}
            Action::Stop => return session.stop(vcpu, remaining),
            Action::Record(_) | Action::Span(_) | Action::Open(_) | Action::Close(_) => {}
        }
    }
}

/// Computes the values of an action of an annotation, and records them. `position`: the action's position.
fn record_values(
    session: &mut Session,
    vcpu: u32,
    (annotation, position): (u32, usize),
    programs: &[Program],
    remaining: u32,
) {
    let Some(registers) = session.registers else { return };
    let Session { annotations, clock, qemu, regions, writer, .. } = session;
    let mut guest = GuestReader { qemu, registers, memory: annotations.memory };
    let mut values = [Value::Absent; VALUES_MAX];
    for (value, program) in values.iter_mut().zip(programs) {
        *value = program.run(&mut guest);
    }
    let head = || {
        let counts = cpu::with_vcpu(vcpu, |cpu| cpu.counts_before(remaining));
        let number = clock.tsc_at(vcpu, &counts);
        let (region, action, kind) = (regions.number(), position as u32, ValuesKind::Hit);
        Values { cpu: vcpu, region, annotation, action, kind, number }
    };
    annotations.record((annotation, position), values, head, writer);
}

/// Opens or closes a span of an annotation by `change`. If `change` returns false, counts the span as refused.
fn change_span(
    session: &mut Session,
    block_position: BlockPosition,
    annotation: u32,
    change: impl FnOnce(&mut Tracker, Moment<'_>) -> bool,
) {
    let changed = session
        .moment(block_position.vcpu, block_position.remaining)
        .is_some_and(|(tracker, moment)| change(tracker, moment));
    if !changed && session.regions.contains_now(block_position.vcpu as usize) {
        session.annotations.refuse(annotation);
    }
    session.pass_on_tracked_event(block_position.vcpu);
}

/// Opens a span at the first instruction of a function. The function's return closes it. Returns whether it was opened.
fn open_call_span(tracker: &mut Tracker, span: u32, mut moment: Moment<'_>) -> bool {
    let stack_pointer = moment.rsp();
    let return_to = moment.word(stack_pointer).filter(|address| is_kernel(*address));
    let Some(return_to) = return_to else { return false };
    let stack = &mut tracker.cpus[moment.vcpu as usize].stack;
    let has_room = stack.depth() < SPAN_DEPTH_MAX;
    if has_room {
        stack.enter_call(KernelContext::Function(span), return_to, stack_pointer, moment.now);
    }
    has_room
}

/// Opens a span that another annotation closes. Returns whether it was opened: a span is not opened twice.
fn open_span(tracker: &mut Tracker, span: u32, moment: &Moment<'_>) -> bool {
    let stack = &mut tracker.cpus[moment.vcpu as usize].stack;
    let context = KernelContext::Function(span);
    let can_open = stack.depth() < SPAN_DEPTH_MAX && !stack.is_inside(context);
    if can_open {
        stack.enter_section(context, moment.now);
    }
    can_open
}

/// Gives the programs of an annotation access to the guest's registers and memory.
struct GuestReader<'a> {
    qemu: &'a mut Qemu,
    registers: Registers,
    memory: MachineMemory,
}

impl Guest for GuestReader<'_> {
    fn register(&mut self, position: usize) -> Option<u64> {
        let register = self.registers.named.get(position).copied().flatten()?;
        Some(self.qemu.register_value(register))
    }

    fn per_cpu(&mut self) -> Option<u64> {
        // In the kernel `gs_base` is the CPU's area. Before `swapgs`, `k_gs_base` is.
        let gs_base = self.qemu.register_value(self.registers.gs_base);
        let k_gs_base = self.registers.k_gs_base.map(|register| self.qemu.register_value(register));
        [Some(gs_base), k_gs_base].into_iter().flatten().find(|base| is_kernel(*base))
    }

    fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(last) = address.checked_add(buffer.len().saturating_sub(1) as u64) else {
            return false;
        };
        let is_memory = |address: u64| {
            physical::translate(VirtualAddress(address))
                .is_some_and(|PhysicalAddress(physical)| self.memory.contains(physical))
        };
        is_memory(address) && is_memory(last) && self.qemu.read(address, buffer)
    }
}
