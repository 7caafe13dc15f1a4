//! Executes the actions of an annotation when the guest reaches it.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use attribution::KernelContext;
use attribution::stack::DEPTH_MAX;
use machine::VirtualAddress;

use super::counters::on_hit;
use crate::cpu::{self, BlockPosition};
use crate::devices::held;
use crate::guest::tracker::{Moment, Tracker, is_kernel};
use crate::models::physical;
use crate::qemu::ffi::NO_REGISTERS;
use crate::qemu::{Qemu, Registers, TranslatedInstruction};
use crate::session::{self, Session};
use plugin_interface::annotations::{Action, VALUES_MAX};
use plugin_interface::annotations::{Guest, Program};
use simrecord::counters::TIME;
use simrecord::record::{Value, Values, ValuesKind};

/// Spans are not opened at a greater depth: the rest of the stack is reserved for contexts.
const DEPTH_FOR_SPANS: usize = DEPTH_MAX - 6;
/// Physical addresses below 4 GiB that are not memory, on QEMU's q35: the legacy hole, and the two
/// possible sizes of low memory.
const DEVICE_HOLE: std::ops::Range<u64> = 0xa_0000..0x10_0000;
const LOW_MEMORY_BYTES: [u64; 2] = [0x8000_0000, 0xb000_0000];
const HIGH_MEMORY: u64 = 1 << 32;

/// An annotation at an instruction of a block.
#[derive(Debug)]
struct AnnotationPoint {
    annotation: u32,
    /// How many instructions of the block, with this one, are still to execute.
    remaining: u32,
}

/// Registers the annotations at an instruction, to be executed before it. `remaining` counts the
/// instructions of its block from this one to the end.
pub(crate) fn watch(
    session: &mut Session,
    instruction: TranslatedInstruction,
    address: u64,
    remaining: u32,
) {
    let numbers: Vec<u32> = session.annotations.numbers_at(address).collect();
    for number in numbers {
        let annotation = &session.annotations.list[number as usize];
        if !session.level.counts() && !annotation.is_for_all_levels() {
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
    let vcpu = cpu::running();
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    // SAFETY: the arena keeps the point while there is code that passes it.
    let AnnotationPoint { annotation, remaining } =
        *unsafe { &*point.cast_const().cast::<AnnotationPoint>() };
    hit(session, vcpu, annotation, remaining);
}

/// A vCPU has taken an interrupt or exception; `vector` where it is known.
pub(crate) fn hit_event(session: &mut Session, vcpu: u32, exception: bool, vector: Option<u8>) {
    for number in session.annotations.at_event(exception, vector) {
        hit(session, vcpu, number, 0);
    }
}

/// A vCPU executes a marker.
pub(crate) fn hit_marker(session: &mut Session, vcpu: u32, marker: u32, remaining: u32) {
    for number in session.annotations.at_marker(marker) {
        hit(session, vcpu, number, remaining);
    }
}

/// A vCPU reaches an annotation, with `remaining` instructions of its block still to execute.
fn hit(session: &mut Session, vcpu: u32, number: u32, remaining: u32) {
    let list = Arc::clone(&session.annotations.list);
    if session.writer.has_ended() {
        return;
    }
    let Some(annotation) = list.get(number as usize) else { return };
    let counts = session.level.counts();
    if counts {
        session.annotations.count(number, vcpu);
    }
    let block_position = BlockPosition { vcpu, remaining };
    for (position, action) in annotation.actions.iter().enumerate() {
        match action {
            Action::Record(programs) if counts && session.regions.is_open() => {
                record_values(session, vcpu, (number, position), programs, remaining);
            }
            Action::Span(span) if counts => {
                change_span(session, block_position, number, |tracker, moment| {
                    open_call_span(tracker, *span, moment)
                });
            }
            Action::Open(span) if counts => {
                change_span(session, block_position, number, |tracker, moment| {
                    open_span(tracker, *span, &moment)
                });
            }
            Action::Close(span) if counts => {
                change_span(session, block_position, number, |tracker, moment| {
                    let stack = &mut tracker.cpus[vcpu as usize].stack;
                    stack.leave_section_of(KernelContext::Function(*span), moment.now)
                });
            }
            Action::Detail { full } => session.set_level(*full),
            Action::Checkpoint(number) => {
                held::want(*number, counts && session.clock.has_slices());
            }
            Action::Stop if held::stops_too() => {}
            Action::Stop => return session.stop(vcpu, remaining),
            Action::Record(_) | Action::Span(_) | Action::Open(_) | Action::Close(_) => {}
        }
    }
}

fn record_values(
    session: &mut Session,
    vcpu: u32,
    (annotation, position): (u32, usize),
    programs: &[Program],
    remaining: u32,
) {
    let Some(registers) = session.registers else { return };
    let Session { annotations, qemu, regions, writer, .. } = session;
    let mut guest = Now { qemu, registers, memory_bytes: annotations.memory_bytes };
    let mut values = [Value::Absent; VALUES_MAX];
    for (value, program) in values.iter_mut().zip(programs) {
        *value = program.run(&mut guest);
    }
    let head = || {
        let number = cpu::with(vcpu, |cpu| cpu.counts_before(remaining))[TIME];
        let (region, action, kind) = (regions.number(), position as u32, ValuesKind::Hit);
        Values { cpu: vcpu, region, annotation, action, kind, number }
    };
    annotations.record((annotation, position), values, head, writer);
}

/// Opens or closes a span of an annotation, and counts it if `change` cannot.
fn change_span(
    session: &mut Session,
    block_position: BlockPosition,
    annotation: u32,
    change: impl FnOnce(&mut Tracker, Moment<'_>) -> bool,
) {
    let changed = session
        .moment(block_position.vcpu, block_position.remaining)
        .is_some_and(|(tracker, moment)| change(tracker, moment));
    if !changed {
        session.annotations.refuse(annotation);
    }
    session.tracked(block_position.vcpu);
}

/// Opens a span that the function's return closes. Returns whether the span was opened.
fn open_call_span(tracker: &mut Tracker, span: u32, mut at: Moment<'_>) -> bool {
    let stack_pointer = at.rsp();
    let return_to = at.word(stack_pointer).filter(|address| is_kernel(*address));
    let Some(return_to) = return_to else { return false };
    let stack = &mut tracker.cpus[at.vcpu as usize].stack;
    let has_room = stack.depth() < DEPTH_FOR_SPANS;
    if has_room {
        stack.enter_call(KernelContext::Function(span), return_to, stack_pointer, at.now);
    }
    has_room
}

/// Opens a span that another annotation closes. Returns whether the span was opened.
fn open_span(tracker: &mut Tracker, span: u32, at: &Moment<'_>) -> bool {
    let stack = &mut tracker.cpus[at.vcpu as usize].stack;
    let context = KernelContext::Function(span);
    let opens = stack.depth() < DEPTH_FOR_SPANS && !stack.is_inside(context);
    if opens {
        stack.enter_section(context, at.now);
    }
    opens
}

/// The state of the guest at the annotation.
struct Now<'a> {
    qemu: &'a mut Qemu,
    registers: Registers,
    memory_bytes: u64,
}

impl Now<'_> {
    /// Returns whether a physical address is memory, and not a device, where a read may have
    /// effects.
    fn is_memory(&self, physical: u64) -> bool {
        let [low_bytes, low_bytes_max] = LOW_MEMORY_BYTES;
        let low = if self.memory_bytes < low_bytes_max { self.memory_bytes } else { low_bytes };
        let high = HIGH_MEMORY..HIGH_MEMORY + (self.memory_bytes - low);
        (physical < low && !DEVICE_HOLE.contains(&physical)) || high.contains(&physical)
    }
}

impl Guest for Now<'_> {
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

    fn read(&mut self, address: u64, to: &mut [u8]) -> bool {
        let Some(last) = address.checked_add(to.len().saturating_sub(1) as u64) else {
            return false;
        };
        let is_memory = |address: u64| {
            physical::of_address(VirtualAddress(address))
                .is_some_and(|physical| self.is_memory(physical.0))
        };
        is_memory(address) && is_memory(last) && self.qemu.read(address, to)
    }
}
