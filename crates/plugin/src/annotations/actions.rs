//! Executes the actions of an annotation when the guest reaches it.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use attribution::KernelContext;
use attribution::stack::DEPTH_MAX;

use super::counters::{on_hit, size, write_values};
use super::list::{Action, Place, VALUES_MAX};
use super::program::{Guest, Program};
use crate::cpu;
use crate::ffi::NO_REGISTERS;
use crate::held;
use crate::physical;
use crate::qemu::{Qemu, Registers, TranslatedInstruction};
use crate::session::{self, Session};
use crate::tracker::is_kernel;
use crate::writer::Ending;
use simrecord::counters::{Counts, TIME};
use simrecord::record::{Value, Values, ValuesKind};

/// Spans are not opened at a greater depth: the rest of the stack is reserved for contexts.
const DEPTH_FOR_SPANS: usize = DEPTH_MAX - 6;
/// Physical addresses below 4 GiB that are not memory, on QEMU's q35: the legacy hole, and the two
/// possible sizes of low memory.
const DEVICE_HOLE: std::ops::Range<u64> = 0xa_0000..0x10_0000;
const LOW_MEMORY_BYTES: (u64, u64) = (0x8000_0000, 0xb000_0000);
const HIGH_MEMORY: u64 = 1 << 32;

/// An annotation at an instruction of a block.
#[derive(Debug)]
pub(crate) struct AnnotationPoint {
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
    let numbers: Vec<u32> = session.annotations.at(address).collect();
    for number in numbers {
        let annotation = &session.annotations.list[number as usize];
        if !session.counts() && !annotation.is_for_all_levels() {
            continue;
        }
        if annotation.actions.is_empty() {
            if let Some(hits) = session.annotations.hits(number) {
                let data = hits.as_data();
                session.qemu.on_instruction_with(instruction, on_hit, NO_REGISTERS, data);
            }
        } else {
            let point = session
                .arena
                .keep_annotation_point(AnnotationPoint { annotation: number, remaining });
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
    session.hit(vcpu, annotation, remaining);
}

impl Session {
    /// A vCPU has taken an interrupt or exception; `vector` where it is known.
    pub(crate) fn hit_event(&mut self, vcpu: u32, exception: bool, vector: Option<u8>) {
        let list = Arc::clone(&self.annotations.list);
        for (annotation, number) in list.iter().zip(0..) {
            let hit = match annotation.place {
                Place::Interrupt(wanted) => !exception && (wanted.is_none() || wanted == vector),
                Place::Exception(wanted) => exception && (wanted.is_none() || wanted == vector),
                Place::Address(_) | Place::Marker(_) => false,
            };
            if hit {
                self.hit(vcpu, number, 0);
            }
        }
    }

    /// A vCPU executes a marker.
    pub(crate) fn hit_marker(&mut self, vcpu: u32, marker: u32, remaining: u32) {
        let list = Arc::clone(&self.annotations.list);
        for (annotation, number) in list.iter().zip(0..) {
            if annotation.place == Place::Marker(marker) {
                self.hit(vcpu, number, remaining);
            }
        }
    }

    /// A vCPU reaches an annotation, with `remaining` instructions of its block still to execute.
    fn hit(&mut self, vcpu: u32, number: u32, remaining: u32) {
        let list = Arc::clone(&self.annotations.list);
        let Some(annotation) = list.get(number as usize).filter(|_| !self.ended) else { return };
        let counts = self.counts();
        if counts {
            self.annotations.count(number, vcpu);
        }
        for (at, action) in annotation.actions.iter().enumerate() {
            match action {
                Action::Record(programs) if counts && self.open => {
                    self.record_values(vcpu, (number, at), programs, remaining);
                }
                Action::Span(span) if counts => self.open_call_span(vcpu, number, *span, remaining),
                Action::Open(span) if counts => self.open_span(vcpu, number, *span, remaining),
                Action::Close(span) if counts => self.close_span(vcpu, number, *span, remaining),
                Action::Detail { full } => self.set_level(*full),
                Action::Checkpoint(number) => held::want(*number, self.runs_in_slices()),
                Action::Stop if held::stops_too() => {}
                Action::Stop => return self.stop(vcpu, remaining),
                Action::Record(_) | Action::Span(_) | Action::Open(_) | Action::Close(_) => {}
            }
        }
    }

    fn record_values(
        &mut self,
        vcpu: u32,
        (annotation, at): (u32, usize),
        programs: &[Program],
        remaining: u32,
    ) {
        let Some(registers) = self.registers else { return };
        let memory_bytes = self.annotations.memory_bytes;
        let mut guest = Now { qemu: &mut self.qemu, registers, memory_bytes };
        let mut values = [Value::Absent; VALUES_MAX];
        for (value, program) in values.iter_mut().zip(programs) {
            *value = program.run(&mut guest);
        }
        self.annotations.add(annotation, at, values);
        if self.annotations.takes_log() {
            let number = cpu::with(vcpu, |cpu| cpu.counts_before(remaining))[TIME];
            let (region, action, kind) = (self.region, at as u32, ValuesKind::Hit);
            let head = Values { cpu: vcpu, region, annotation, action, kind, number };
            let size = size(&self.annotations.list[annotation as usize].actions[at]);
            write_values(&mut self.writer, head, &values[..size]);
        }
    }

    fn open_call_span(&mut self, vcpu: u32, annotation: u32, span: u32, remaining: u32) {
        let entered = self.moment(vcpu, remaining).and_then(|(tracker, mut at)| {
            let stack_pointer = at.rsp();
            let return_to = at.word(stack_pointer).filter(|address| is_kernel(*address))?;
            let stack = &mut tracker.cpus[vcpu as usize].stack;
            let has_room = stack.depth() < DEPTH_FOR_SPANS;
            let context = KernelContext::Function(span);
            has_room.then(|| stack.enter_call(context, return_to, stack_pointer, at.now))
        });
        self.span_changed(vcpu, annotation, entered.is_some());
    }

    fn open_span(&mut self, vcpu: u32, annotation: u32, span: u32, remaining: u32) {
        let opened = self.moment(vcpu, remaining).is_some_and(|(tracker, at)| {
            let stack = &mut tracker.cpus[vcpu as usize].stack;
            let context = KernelContext::Function(span);
            let opens = stack.depth() < DEPTH_FOR_SPANS && !stack.is_inside(context);
            if opens {
                stack.enter_section(context, at.now);
            }
            opens
        });
        self.span_changed(vcpu, annotation, opened);
    }

    fn close_span(&mut self, vcpu: u32, annotation: u32, span: u32, remaining: u32) {
        let closed = self.moment(vcpu, remaining).is_some_and(|(tracker, at)| {
            let stack = &mut tracker.cpus[vcpu as usize].stack;
            stack.leave_section_of(KernelContext::Function(span), at.now)
        });
        self.span_changed(vcpu, annotation, closed);
    }

    fn span_changed(&mut self, vcpu: u32, annotation: u32, done: bool) {
        if !done {
            self.annotations.refuse(annotation);
        }
        self.tracked(vcpu);
    }

    /// Ends the record between two blocks.
    pub(crate) fn stop_between_blocks(&mut self) {
        if !self.ended {
            self.stop(0, 0);
        }
    }

    /// Ends the record at this instruction.
    fn stop(&mut self, vcpu: u32, remaining: u32) {
        let counted: Vec<Counts> = self.counted(vcpu, remaining);
        if self.open {
            self.write_kernel_counts(true);
            self.close_region(&counted);
        }
        self.end(Ending::Annotation, &counted);
    }
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
        let low = if self.memory_bytes < LOW_MEMORY_BYTES.1 {
            self.memory_bytes
        } else {
            LOW_MEMORY_BYTES.0
        };
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
        let own = self.qemu.register_value(self.registers.gs_base);
        let other = self.registers.k_gs_base.map(|other| self.qemu.register_value(other));
        [Some(own), other].into_iter().flatten().find(|base| is_kernel(*base))
    }

    fn read(&mut self, address: u64, to: &mut [u8]) -> bool {
        let Some(last) = address.checked_add(to.len().saturating_sub(1) as u64) else {
            return false;
        };
        let is_memory =
            |at: u64| physical::of_address(at).is_some_and(|physical| self.is_memory(physical));
        is_memory(address) && is_memory(last) && self.qemu.read(address, to)
    }
}
