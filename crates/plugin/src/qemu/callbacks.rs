//! QEMU's callbacks. A panic in an `extern "C"` function aborts the process, so no panic crosses into C.

use std::ffi::{c_int, c_uint, c_void};

use crate::cpu;
use crate::devices::disk_events;
use crate::devices::drain;
use crate::devices::held;
use crate::guest::annotations;
use crate::guest::markers;
use crate::guest::tracker::Discontinuity;
use crate::qemu::block::Point;
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
        discontinuity: session.level.counts().then_some(on_discontinuity),
    }
}

extern "C" fn on_vcpu(vcpu: c_uint, _: *mut c_void) {
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    let thread = std::thread::current().id();
    if *session.thread.get_or_insert(thread) != thread {
        session.writer.notice(Notice::SecondThread, vcpu, 0);
        session.writer.flush();
        // Counts would be wrong, and the state of vCPUs is not shared between threads.
        std::process::abort();
    }
    if session.registers.is_none() {
        match session.qemu.find_registers() {
            Ok(registers) => session.registers = Some(registers),
            Err(error) => {
                eprintln!("irqlab plugin: {error}");
                session.writer.notice(Notice::NoRegisters, vcpu, 0);
            }
        }
    }
    session.models.give(vcpu, session.level.now());
    if session.clock.has_slices() {
        begin_slices(session, vcpu);
    }
    disk_events::start(&session.options.disks, &mut session.writer);
    if session.options.time != Time::Host {
        idle::begin(&mut session.writer);
    }
    limit::begin();
}

/// A vCPU is made, on a machine that is not recorded.
pub(crate) extern "C" fn on_vcpu_unwatched(_: c_uint, _: *mut c_void) {
    limit::begin();
}

/// Sets up the time slices of a vCPU. With several vCPUs, also finds out how to tell which one runs.
fn begin_slices(session: &mut Session, vcpu: c_uint) {
    let slices = Slices::of_vcpu(vcpu);
    if let Some(slices) = slices {
        session.clock.begin_slices(vcpu, slices);
    }
    if session.cpus == 1 && slices.is_some() {
        return;
    }
    let all = (0..session.cpus).filter_map(Slices::of_vcpu);
    let handles: Vec<*mut c_void> = all.map(Slices::handle).collect();
    match CurrentCpu::of_this_thread(&handles) {
        Some(current) if slices.is_some() => {
            cpu::watch(current);
            if vcpu == 0 && !ignore_reclamation() {
                session.writer.notice(Notice::DevicesNotDrained, vcpu, 1);
            }
        }
        _ => {
            session.writer.notice(Notice::NoSlices, vcpu, 0);
            session.writer.flush();
            // Without knowing which vCPU runs, counts could not be assigned to any.
            std::process::abort();
        }
    }
}

/// A block is translated.
extern "C" fn on_translation(block: *mut c_void, _: *mut c_void) {
    let mut guard = session::lock();
    if let Some(session) = guard.as_mut() {
        session.start();
        translate::prepare(session, TranslatedBlock::new(block), on_point);
    }
}

/// An annotated instruction is about to execute.
extern "C" fn on_point(_: c_uint, point: *mut c_void) {
    let vcpu = cpu::running();
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    // SAFETY: the arena keeps the point while there is code that passes it.
    let point = unsafe { &*point.cast_const().cast::<Point>() };
    if point.action == Action::Halt {
        // The halt itself counts as executed. Later instructions execute when the vCPU has woken.
        cpu::with(vcpu, |cpu| cpu.retire_pending(point.remaining - 1));
        drain::does_not_ring();
        return halt(session, vcpu);
    }
    cpu::with(vcpu, |cpu| cpu.retire_pending(point.remaining));
    match point.action {
        Action::ReadClock => return TscReadings::start(vcpu, &session.clock),
        Action::WriteLocalApic => return session.clock.set_before_timer(vcpu),
        Action::Pause => return session.clock.pause(vcpu),
        _ => {}
    }
    if session.writer.has_ended() {
        return;
    }
    if point.action == Action::Marker {
        markers::execute(session, vcpu, point.remaining);
    } else if let Some((tracker, moment)) = session.moment(vcpu, point.remaining_after()) {
        let now = moment.now;
        tracker.point(vcpu as usize, point.action, point.address, moment);
        session.tracked(vcpu);
        match point.action {
            Action::CpuDead => session.go_offline(vcpu, &now),
            Action::IdleLoop => session.come_online(vcpu, &now),
            _ => {}
        }
    }
}

/// A vCPU is about to halt.
fn halt(session: &mut Session, vcpu: u32) {
    held::ask();
    idle::before_halt(session.cpus);
    let Session { qemu, registers, clock, .. } = session;
    let takes_interrupts = registers.is_some_and(|registers| qemu.takes_interrupts(registers));
    clock.set_takes_interrupts(vcpu, takes_interrupts);
    if session.level.counts() {
        clock.halt(vcpu);
    } else {
        clock.halt_uncounted(vcpu);
    }
}

/// A vCPU raises an exception (`kind` 2), or jumps to the handler of an exception or interrupt (1).
///
/// On x86, QEMU calls this function twice for an exception. The first call comes in the middle of the block, where
/// registers and the program counter do not have the values that the guest sees. The second call comes between two
/// blocks, as for an interrupt, and all values are right there.
extern "C" fn on_discontinuity(vcpu: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    if kind == DISCONTINUITY_EXCEPTION {
        cpu::with(vcpu, |cpu| cpu.raise());
        drain::does_not_ring();
        return;
    }
    let exception = cpu::with(vcpu, |cpu| cpu.deliver(from));
    let mut guard = session::lock();
    let Some(session) = guard.as_mut() else { return };
    session.start();
    session.tsc.correct(vcpu, &mut session.qemu, session.registers);
    session.clock.wake(vcpu);
    if session.writer.has_ended() {
        return;
    }
    session.check.compare(&session.level, session.clock.unclocked, &mut session.writer);
    if session.cpus > 1 && cpu::running() != vcpu {
        session.tracker.note_misplaced();
    }
    if let Some((tracker, moment)) = session.moment(vcpu, 0) {
        let now = moment.now;
        let entry = Discontinuity { from, to };
        let vector = tracker.discontinuity(vcpu as usize, exception, entry, moment);
        session.tracked(vcpu);
        session.models.enter_handler(vcpu, entry, &mut session.qemu);
        annotations::hit_event(session, vcpu, exception, vector);
        if let Some(progress) = &mut session.progress {
            progress.advance(vcpu, &now);
        }
    }
}

/// The code cache is empty; no vCPU is inside a block.
extern "C" fn on_flush(_: *mut c_void) {
    let mut guard = session::lock();
    if let Some(session) = guard.as_mut() {
        session.flushed();
    }
}

/// QEMU has dropped code and callbacks, as [`crate::qemu::Qemu::reset`] requested.
pub(crate) extern "C" fn on_reset(_: Id) {
    let mut guard = session::lock();
    if let Some(session) = guard.as_mut() {
        session.level_changed();
        session.qemu.register(&needed_callbacks(session));
    }
}

/// QEMU ends, and vCPUs have stopped. If QEMU gives up inside a callback, the lock is held, and the record stays
/// without its end record.
extern "C" fn on_exit(_: *mut c_void) {
    if let Some(mut guard) = session::try_lock()
        && let Some(session) = guard.as_mut()
    {
        session.exit();
    }
}
