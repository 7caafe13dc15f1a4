//! The functions that QEMU calls at rare events of the machine. A vCPU is created, or takes an interrupt. A block is
//! translated, code is dropped, or QEMU ends. An instruction at which the plugin acts is about to execute. Each
//! function locks the session and passes the event on. The callbacks of each block and access are in `cpu`.
//!
//! A panic in an `extern "C"` function aborts the process, so no panic crosses into C.

use std::ffi::{c_int, c_uint, c_void};

use machine::VirtualAddress;

use crate::cpu;
use crate::devices::disk_events;
use crate::devices::drain;
use crate::devices::held;
use crate::guest::annotations;
use crate::guest::markers;
use crate::guest::tracker::Discontinuity;
use crate::qemu::block::ActionPoint;
use crate::qemu::ffi::{DISCONTINUITY_EXCEPTION, Id};
use crate::qemu::qemu_internals::{CurrentCpu, Slices, ignore_reclamation};
use crate::qemu::translate;
use crate::qemu::{Callbacks, TranslatedBlock};
use crate::session::{self, Session};
use crate::time::idle;
use crate::time::limit;
use crate::time::tsc::TscReadings;
use plugin_interface::options::Time;
use plugin_interface::symbols::Action;
use simrecord::record::Notice;

/// The callbacks that the current level of detail needs.
pub(crate) fn needed_callbacks(session: &Session) -> Callbacks {
    Callbacks {
        vcpu: on_vcpu,
        translation: on_translation,
        flush: on_flush,
        exit: on_exit,
        discontinuity: session.level.is_counting().then_some(on_discontinuity),
    }
}

/// A vCPU is created, in the thread of all vCPUs. Sets up everything that belongs to the vCPU.
extern "C" fn on_vcpu(vcpu: c_uint, _: *mut c_void) {
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    let thread = std::thread::current().id();
    if *session.thread.get_or_insert(thread) != thread {
        session.writer.notice_without_value(Notice::SecondThread, vcpu);
        session.writer.flush();
        // Counts would be wrong, and the state of vCPUs is not shared between threads.
        std::process::abort();
    }
    if session.registers.is_none() {
        match session.qemu.find_registers() {
            Ok(registers) => session.registers = Some(registers),
            Err(error) => {
                eprintln!("irqlab plugin: {error}");
                session.writer.notice_without_value(Notice::NoRegisters, vcpu);
            }
        }
    }
    session.models.give_model(vcpu, session.level.current());
    if session.clock.has_slices() {
        begin_slices(session, vcpu);
    }
    disk_events::start(&session.options.disks, &mut session.writer);
    if session.options.time != Time::Host {
        idle::find_jump_functions(&mut session.writer);
    }
    limit::create_timer();
}

/// A vCPU is created, on a machine that is not recorded.
pub(crate) extern "C" fn on_vcpu_unwatched(_: c_uint, _: *mut c_void) {
    limit::create_timer();
}

/// Sets up the time slices of a vCPU. With several vCPUs, also finds QEMU's variable that names the running vCPU.
/// Aborts if this QEMU does not allow it.
fn begin_slices(session: &mut Session, vcpu: c_uint) {
    let slices = Slices::of_vcpu(vcpu);
    if let Some(slices) = slices {
        session.clock.begin_slices(vcpu, slices);
    }
    if session.cpus == 1 && slices.is_some() {
        return;
    }
    let all_slices = (0..session.cpus).filter_map(Slices::of_vcpu);
    let handles: Vec<*mut c_void> = all_slices.map(Slices::handle).collect();
    match CurrentCpu::of_this_thread(&handles) {
        Some(current) if slices.is_some() => {
            cpu::set_current_cpu_variable(current);
            if vcpu == 0 && !ignore_reclamation() {
                session.writer.notice(Notice::DevicesNotDrained, vcpu, 1);
            }
        }
        _ => {
            session.writer.notice_without_value(Notice::NoSlices, vcpu);
            session.writer.flush();
            // Without knowing which vCPU runs, counts could not be assigned to any.
            std::process::abort();
        }
    }
}

/// QEMU is about to translate a block. The handle `block` is valid until this function returns. Starts guest
/// time if no earlier event has.
extern "C" fn on_translation(block: *mut c_void, _: *mut c_void) {
    let mut guard = session::lock();
    if let Some(session) = guard.as_mut() {
        session.start();
        translate::prepare(session, TranslatedBlock::new(block), on_point);
    }
}

/// An instruction at which the plugin acts is about to execute. The instructions before it are retired first, so that all
/// counts are those of this moment. Events of senders and requests only observe: nothing retires for them.
extern "C" fn on_point(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running_vcpu();
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    // SAFETY: the arena keeps the point while there is code that passes it.
    let point = unsafe { &*point.cast_const().cast::<ActionPoint>() };
    if point.action == Action::Halt {
        // The halt itself counts as executed. Later instructions execute after the vCPU has woken up.
        cpu::with_vcpu(vcpu, |cpu| cpu.retire_pending(point.remaining - 1));
        drain::does_not_ring();
        return halt(session, vcpu);
    }
    if point.action.only_observes() {
        return session.observe_event(vcpu, (point.action, point.address), point.remaining);
    }
    cpu::with_vcpu(vcpu, |cpu| cpu.retire_pending(point.remaining));
    match point.action {
        Action::ReadClock => return TscReadings::start(vcpu, &session.clock),
        Action::WriteLocalApic => return session.clock.set_before_timer(vcpu),
        Action::Pause => return session.clock.pause(vcpu),
        Action::Cpuid => return exit_at_cpuid(session, vcpu, point.address),
        _ => {}
    }
    if session.writer.has_ended() {
        return;
    }
    if point.action == Action::Marker {
        markers::execute(session, vcpu, point.remaining);
    } else if let Some((tracker, moment)) = session.moment(vcpu, point.remaining) {
        let counts = moment.now;
        tracker.handle_action(vcpu as usize, point.action, point.address.0, moment);
        session.pass_on_tracked_event(vcpu);
        match point.action {
            Action::CpuDead => session.go_offline(vcpu, &counts),
            Action::IdleLoop => session.come_online(vcpu, &counts),
            _ => {}
        }
    }
}

/// Handles that a vCPU is about to execute the `cpuid` at `address`, which exits to a hypervisor. A `cpuid` that the guest's
/// PMU executes again exits the first time.
fn exit_at_cpuid(session: &mut Session, vcpu: u32, address: VirtualAddress) {
    let vcpu_pmu = session.pmus.as_mut().and_then(|pmus| pmus.of_vcpu(vcpu));
    if vcpu_pmu.is_none_or(|pmu| pmu.retried_at != Some(address)) {
        cpu::with_vcpu(vcpu, |cpu| cpu.exit(|exits| exits.cpuid_cycles));
    }
}

/// Handles that a vCPU is about to halt.
fn halt(session: &mut Session, vcpu: u32) {
    held::hold_if_requested();
    idle::before_halt(session.cpus);
    let Session { qemu, registers, clock, .. } = session;
    let takes_interrupts = registers.is_some_and(|registers| qemu.takes_interrupts(registers));
    clock.set_takes_interrupts(vcpu, takes_interrupts);
    if session.level.is_counting() {
        clock.halt(vcpu);
    } else {
        clock.halt_uncounted(vcpu);
    }
}

/// Handles that a vCPU raises an exception (`kind` 2), or jumps from `interrupted_address` to the handler of an exception or
/// interrupt at `handler_address` (`kind` 1).
///
/// On x86, QEMU calls this function twice for an exception. The first call comes in the middle of the block, where
/// registers and the program counter do not have the values that the guest sees. So only the second call acts: it comes
/// between two blocks, as for an interrupt.
extern "C" fn on_discontinuity(
    vcpu: c_uint,
    kind: c_int,
    interrupted_address: u64,
    handler_address: u64,
    _: *mut c_void,
) {
    if kind == DISCONTINUITY_EXCEPTION {
        cpu::with_vcpu(vcpu, |cpu| cpu.raise());
        drain::does_not_ring();
        return;
    }
    let is_exception = cpu::with_vcpu(vcpu, |cpu| cpu.deliver(VirtualAddress(interrupted_address)));
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    session.start();
    session.tsc.correct(vcpu, &mut session.qemu, session.registers);
    session.clock.wake(vcpu);
    if session.writer.has_ended() {
        return;
    }
    session.check.compare(&session.level, session.clock.unclocked, &mut session.writer);
    if session.cpus > 1 && cpu::running_vcpu() != vcpu {
        session.tracker.count_misplaced_interrupt();
    }
    let entry =
        Discontinuity { interrupted: interrupted_address, handler: handler_address, is_exception };
    session.tracker.forget_failed_instruction(vcpu as usize, entry);
    session.complete_block_event(vcpu);
    if !is_exception {
        session.withhold(vcpu);
    }
    if let Some((tracker, moment)) = session.moment(vcpu, 0) {
        let counts = moment.now;
        let vector = tracker.enter_handler(vcpu as usize, entry, moment);
        session.pass_on_tracked_event(vcpu);
        session.models.enter_handler(vcpu, entry, &mut session.qemu);
        annotations::hit_event(session, vcpu, is_exception, vector);
        if let Some(progress) = &mut session.progress {
            progress.advance(vcpu, &counts);
        }
    }
}

/// QEMU has emptied its cache of translated code. No vCPU is inside a block.
extern "C" fn on_flush(_: *mut c_void) {
    let mut guard = session::lock();
    if let Some(session) = guard.as_mut() {
        session.flushed();
    }
}

/// QEMU has dropped translated code and callbacks, as [`crate::qemu::Qemu::reset`] requested. Changes the level of
/// detail, and registers the callbacks of the new level.
pub(crate) extern "C" fn on_reset(_: Id) {
    let mut guard = session::lock();
    if let Some(session) = guard.as_mut() {
        session.level_changed();
        session.qemu.register(&needed_callbacks(session));
    }
}

/// QEMU ends, and the vCPUs have stopped. If QEMU exits inside a callback, the session is locked, and the
/// record gets no end record.
extern "C" fn on_exit(_: *mut c_void) {
    if let Some(mut guard) = session::try_lock()
        && let Some(session) = guard.as_mut()
    {
        session.exit();
    }
}
