//! Executes the guest's markers ([`simrecord::marker`]): they open and close regions, request snapshots, set the level
//! of detail, or end the record. `qemu/callbacks.rs` calls [`execute`] before the marker's instruction.

use crate::cpu::BlockPosition;
use crate::cpu::level::RequestedLevel;
use crate::guest::annotations;
use crate::guest::regions::{RegionEdge, RegionState};
use crate::models::sampling::Scope;
use crate::pmu::machine::VcpuCounts;
use crate::session::{MarkerHit, Session};
use crate::writer::Ending;
use simrecord::counters::Counts;
use simrecord::marker;

/// Executes the marker that `vcpu` has reached. Its number is in `eax`, its argument in `rdx`. `remaining`: how many
/// instructions of the block are still to execute, the marker included. Does nothing before the registers are known.
///
/// The order: annotations of a closing marker, the marker's row, the level of detail, the region, the file of progress, the
/// end of the record, annotations of another marker. All rows have the counts from before the marker.
pub(crate) fn execute(session: &mut Session, vcpu: u32, remaining: u32) {
    let Some(registers) = session.registers else { return };
    let number = session.qemu.register_value(registers.rax) as u32;
    let argument = session.qemu.register_value(registers.rdx);
    if session.level.is_counting() {
        session.clock.count_halts(vcpu);
    }
    let is_end = number == marker::END;
    let is_closing = number == marker::CLOSE || is_end;
    if is_closing {
        // Annotations at a closing marker belong to the region, so they act before the close. They may end the record.
        annotations::hit_marker(session, vcpu, number, remaining);
        if session.writer.has_ended() {
            return;
        }
    }
    let vcpu_counts = session.level.counts_of_all_vcpus(vcpu, remaining);
    let was_open = session.regions.is_open();
    let state_after = match number {
        marker::OPEN => RegionState::Open,
        marker::CLOSE | marker::END => RegionState::Closed,
        _ => session.regions.state(),
    };
    session.write_marker(&MarkerHit { vcpu, number, argument }, state_after, &vcpu_counts);
    let Session { tracker, qemu, level, clock, pmus, .. } = session;
    tracker.name_current(vcpu as usize, qemu);
    if let Some(pmus) = pmus {
        pmus.synchronise(&VcpuCounts::of_all(
            BlockPosition { vcpu, remaining },
            level,
            clock,
            &tracker.cpus,
        ));
    }
    set_level_and_scope(session, number, was_open);
    change_region(session, number, was_open, &vcpu_counts);
    let is_open = session.regions.is_open();
    if is_open != was_open
        && let Some(progress) = &mut session.progress
    {
        progress.write_region(session.regions.state(), vcpu, &vcpu_counts);
    }
    if is_end {
        session.end(Ending::Marker, &vcpu_counts);
    } else if !is_closing {
        annotations::hit_marker(session, vcpu, number, remaining);
    }
    session.check.request();
}

/// Sets the level of detail, and the scope of the models, that a marker requests. `was_open`: whether a
/// region was open before the marker.
fn set_level_and_scope(session: &mut Session, number: u32, was_open: bool) {
    match number {
        marker::OPEN => {
            session.set_scope(session.scope_of_regions());
            session.set_level(RequestedLevel::Full);
        }
        marker::FULL => {
            session.set_scope(Scope::Everything);
            session.set_level(RequestedLevel::Full);
        }
        marker::WARM if !was_open => {
            session.set_scope(Scope::Units);
            session.set_level(RequestedLevel::Full);
        }
        marker::FAST => session.set_level(RequestedLevel::MarkersOnly),
        _ => {}
    }
}

/// Opens or closes the region, or writes a snapshot of it, as a marker requests. `was_open`: whether it was open before the
/// marker. A region that is open is not opened again.
fn change_region(session: &mut Session, number: u32, was_open: bool, vcpu_counts: &[Counts]) {
    match number {
        marker::OPEN if !was_open => {
            session.open_region(vcpu_counts);
            session.write_kernel_counts(RegionEdge::Open);
        }
        marker::CLOSE | marker::END if was_open => {
            session.write_kernel_counts(RegionEdge::Close);
            session.close_region(vcpu_counts);
        }
        marker::SNAPSHOT => session.write_region(vcpu_counts),
        _ => {}
    }
}
