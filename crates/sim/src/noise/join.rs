//! Joins the records of a loop in the guest with the contexts that the CPU executed, to the last nanosecond.
//!
//! Invariant: the parts of a detour add up to it. What does not add up goes into [`Join::broken`], and the numbers of
//! the CPU are marked; it never stops the join, because all numbers of the loop come from the guest.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::in_guest::GuestLoop;
use lab::noise::{
    AttributionParameters, ContextName, Fixed, Gap, GapLedger, KeepDetours, Part, Quantum,
    QuantumCycles, Slots,
};

use super::names::Names;
use super::timeline::{Piece, Timeline};
use crate::accounting::Accounting;
use crate::sent_interrupts::SentOnCpu;

const PAGE_FAULT: KernelContext = KernelContext::Exception(14);

/// A loop on a CPU, and the contexts that the CPU executed.
pub(super) struct Join<'a, 'names> {
    pub(super) guest_loop: &'a GuestLoop,
    /// Whether the loop's counts of iterations include some that came after the window: see
    /// [`super::early_close::CutLoop`].
    pub(super) ran_on: bool,
    pub(super) timeline: Timeline<'a>,
    pub(super) account: &'a Accounting,
    pub(super) names: &'a mut Names<'names>,
    /// The interrupts of the CPU from other CPUs. Empty unless causes name senders.
    pub(super) interrupts: SentOnCpu<'a>,
    /// Why the ledger cannot be trusted.
    pub(super) broken: Vec<String>,
}

/// A detour as the loop recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The loop's last reading of the clock before the detour.
    pub(super) last_ns: u64,
    /// The detour, without the loop's iteration in it.
    pub(super) gap: Gap,
    /// Time of the loop itself in the detour, ns.
    pub(super) loop_ns: u64,
}

/// All detours of a CPU.
pub(super) struct Detours {
    pub(super) ledger: GapLedger,
    pub(super) found: Vec<Found>,
    /// Time of an undisturbed iteration of the loop, ns: the mean in the window, or the shortest mean of a trial before
    /// the window if the loop ran on after it.
    pub(super) iteration_ns: u64,
    /// Time of other contexts in the window; `seen_ns` is the part in detours.
    pub(super) taken_ns: u64,
    pub(super) seen_ns: u64,
    /// How often other contexts executed outside all detours.
    pub(super) unseen: u64,
}

impl Join<'_, '_> {
    fn thread(&self) -> u32 {
        self.guest_loop.run.thread
    }

    /// Returns the contexts from one reading of the clock to another. Notes an error in `broken`, and returns nothing
    /// then.
    fn pieces(&mut self, from_ns: u64, to_ns: u64) -> Vec<Piece> {
        let pieces = self.timeline.pieces(from_ns, to_ns);
        pieces.unwrap_or_else(|error| {
            self.broken.push(error);
            Vec::new()
        })
    }

    /// Returns the contexts of the CPU in the window.
    pub(super) fn window(&mut self) -> Vec<Piece> {
        let loop_run = self.guest_loop.run;
        self.pieces(loop_run.start, loop_run.end)
    }

    /// Counts the interrupts of the local timer that interrupted the loop itself in the window. `None` if its contexts are
    /// not known.
    pub(super) fn timer_count(&mut self) -> Option<u64> {
        let window = self.window();
        if window.is_empty() {
            return None;
        }
        let task = KernelContext::User(self.thread());
        let mut is_timer = |piece: &Piece| {
            if piece.task != task {
                return false;
            }
            let part = self.names.part(piece, self.guest_loop.run.thread, self.account);
            let Part::Context(number) = part else { return false };
            self.names.list.get(number as usize).is_some_and(ContextName::is_local_timer)
        };
        Some(entries(&window).into_iter().filter(|piece| is_timer(piece)).count() as u64)
    }

    /// Makes the ledger of the detour loop: divides each gap between the loop and other contexts, and keeps single detours by
    /// `keep`. `taken_off_ns`: the time that the loop subtracts from each gap as its own iteration.
    pub(super) fn detours(&mut self, taken_off_ns: u64, keep: KeepDetours) -> Detours {
        let guest_loop = self.guest_loop;
        let gaps: Vec<Raw> = guest_loop.records.iter().map(Raw::from_record).collect();
        let follows_iteration = |gap: &&Raw| gap.taken_off_ns <= taken_off_ns;
        let plain_count = gaps.iter().filter(follows_iteration).count() as u64;
        let iteration_ns =
            if self.ran_on { taken_off_ns } else { iteration_ns(guest_loop, &gaps, plain_count) };
        let mut detours = Detours {
            ledger: GapLedger::new(AttributionParameters::default(), keep),
            found: Vec::new(),
            iteration_ns,
            taken_ns: 0,
            seen_ns: 0,
            unseen: 0,
        };
        let thread = self.thread();
        let time_of_others = |pieces: &[Piece]| -> u64 {
            pieces.iter().filter(|piece| !piece.is_of(thread)).map(Piece::length_ns).sum()
        };
        let window = self.window();
        detours.taken_ns = time_of_others(&window);
        for raw in gaps {
            let pieces = self.pieces(raw.last_ns, raw.seen_ns);
            if pieces.is_empty() {
                continue; // reported in `broken`
            }
            let others_ns = time_of_others(&pieces);
            detours.seen_ns = detours.seen_ns.saturating_add(others_ns);
            let loop_ns = raw.length_ns().saturating_sub(others_ns);
            // A gap contains one iteration of the loop, or the recording of the previous gap: this is not part of the
            // detour.
            let usual_ns = if follows_iteration(&&raw) { iteration_ns } else { raw.taken_off_ns };
            let (usual_ns, last_ns) = (usual_ns.min(loop_ns), raw.last_ns);
            let loop_ns_in_detour = loop_ns - usual_ns;
            let gap = Gap { start_ns: last_ns + usual_ns, end_ns: raw.seen_ns };
            let mut parts = self.parts(&pieces);
            if parts.iter().all(|(part, _)| *part == Part::Own) {
                detours.ledger.own_gaps.record(gap.length_ns(), gap.start_ns);
                continue;
            }
            keep_own_ns(&mut parts, loop_ns_in_detour);
            detours.ledger.add_split(gap, &mut parts);
            detours.found.push(Found { last_ns, gap, loop_ns: loop_ns_in_detour });
        }
        let is_in_detour = |piece: &Piece| {
            let first_later =
                detours.found.partition_point(|found| found.gap.end_ns <= piece.from_ns);
            detours.found.get(first_later).is_some_and(|found| found.last_ns < piece.to_ns)
        };
        let is_unseen = |piece: &&Piece| !piece.is_of(thread) && !is_in_detour(piece);
        detours.unseen = window.iter().filter(is_unseen).count() as u64;
        detours
    }

    /// Attributes the pieces to parts of a detour, in order. The lengths of the parts add up to the pieces.
    fn parts(&mut self, pieces: &[Piece]) -> Vec<(Part, u64)> {
        let thread = self.thread();
        let mut parts = Vec::new();
        for piece in pieces {
            let first = parts.len();
            parts.extend(self.names.parts(piece, thread, self.interrupts, self.account));
            let lost_ns = piece.unaccounted_ns.min(piece.length_ns());
            shorten(&mut parts[first..], lost_ns);
            parts.push((Part::Unknown, lost_ns));
        }
        parts.retain(|part| part.1 > 0);
        parts
    }

    /// Converts the quanta of the loop of fixed work.
    pub(super) fn quanta(&mut self) -> Fixed {
        let guest_loop = self.guest_loop;
        let quanta_per_block = Fixed::quanta_per_block(guest_loop.records.len() as u64);
        let mut fixed = Fixed::default();
        let mut before_ns = guest_loop.run.start;
        for record in &guest_loop.records {
            let [start_ns, end_ns, _] = *record;
            let pieces = self.pieces(start_ns, end_ns);
            let before = self.pieces(before_ns, start_ns);
            before_ns = end_ns;
            let mut quantum = Quantum::untraced(start_ns, end_ns.saturating_sub(start_ns));
            fixed.cycles.push(self.attribute_quantum(&mut quantum, &pieces, &before));
            fixed.add(quantum, quanta_per_block);
        }
        fixed
    }

    /// Fills in who took time from a quantum (`attributed_ns`, `main`, `entered`, `faulted`), and returns its cycles. Unaccounted
    /// time has a part of its own, so it counts as named. `pieces`: those of the quantum; `before`: those between the previous
    /// quantum and this one.
    fn attribute_quantum(
        &mut self,
        quantum: &mut Quantum,
        pieces: &[Piece],
        before: &[Piece],
    ) -> QuantumCycles {
        let thread = self.thread();
        let task = KernelContext::User(thread);
        let mut parts = self.parts(pieces);
        parts.retain(|(part, _)| *part != Part::Own);
        let first_part = parts.first().map(|(part, _)| *part);
        let is_switched = pieces.iter().any(|piece| piece.task != task);
        let mut entered_contexts = Vec::new();
        for piece in entries(pieces) {
            let parts = self.names.parts(piece, thread, self.interrupts, self.account);
            if let Some((Part::Context(number), _)) = parts.first() {
                entered_contexts.push(*number);
            }
        }
        quantum.attribute(&mut parts, (!is_switched).then_some(entered_contexts.into_iter()));
        let faults = |piece: &Piece| piece.context == PAGE_FAULT && piece.task == task;
        quantum.faulted = Some(pieces.iter().any(faults));
        let cycles = |pieces_of_loop: bool| -> u64 {
            let selected = pieces.iter().filter(|piece| piece.is_of(thread) == pieces_of_loop);
            selected.map(|piece| piece.cycles).sum()
        };
        QuantumCycles {
            own: cycles(true),
            taken: cycles(false),
            departures: departures(pieces, thread),
            departures_before: departures(before, thread),
            first: first_part,
            switched: is_switched,
        }
    }
}

/// Shortens the parts by `lost_ns` together, from the last one backwards.
fn shorten(parts: &mut [(Part, u64)], lost_ns: u64) {
    let mut left_ns = lost_ns;
    for part in parts.iter_mut().rev() {
        let taken_ns = part.1.min(left_ns);
        part.1 -= taken_ns;
        left_ns -= taken_ns;
    }
}

/// Shortens the loop's own parts to `own_ns` together, from the last one backwards. The earlier time was the loop's
/// iteration, which is not part of the detour. If the parts have less than `own_ns`, a last part has the difference.
fn keep_own_ns(parts: &mut Vec<(Part, u64)>, own_ns: u64) {
    let mut kept_ns = 0;
    for part in parts.iter_mut().rev().filter(|part| part.0 == Part::Own) {
        part.1 = part.1.min(own_ns - kept_ns);
        kept_ns += part.1;
    }
    parts.push((Part::Own, own_ns - kept_ns));
    parts.retain(|part| part.1 > 0);
}

/// Returns the pieces with which an interrupt, an exception or a softirq starts. The pieces after something within it are
/// not its start. A tick that interrupts its own softirqs is taken for the return to the first one.
///
/// Each task has a stack of open contexts: a tick at whose end the kernel switches to another task goes on when the
/// interrupted task runs again, and does not start a second time.
fn entries(pieces: &[Piece]) -> Vec<&Piece> {
    let mut open_contexts_by_task: BTreeMap<u64, Vec<KernelContext>> = BTreeMap::new();
    let mut entry_pieces = Vec::new();
    for piece in pieces {
        let open_contexts = open_contexts_by_task.entry(piece.task.code()).or_default();
        if !piece.context.is_interrupt_or_exception() {
            open_contexts.clear();
        } else if let Some(position) =
            open_contexts.iter().rposition(|context| *context == piece.context)
        {
            open_contexts.truncate(position + 1);
        } else {
            open_contexts.push(piece.context);
            entry_pieces.push(piece);
        }
    }
    entry_pieces
}

/// Counts the transitions from the loop to other contexts.
fn departures(pieces: &[Piece], thread: u32) -> u64 {
    let runs = pieces.chunk_by(|piece, next| piece.is_of(thread) == next.is_of(thread));
    runs.filter(|run| !run[0].is_of(thread)).count() as u64
}

/// Returns the mean time of an iteration of the detour loop without a gap, ns. `plain`: the number of gaps that
/// follow an ordinary iteration, not the recording of a gap.
fn iteration_ns(guest_loop: &GuestLoop, gaps: &[Raw], plain: u64) -> u64 {
    let loop_run = &guest_loop.run;
    // The subtracted times come from the guest: gaps may overlap.
    let in_gaps = gaps.iter().map(Raw::length_ns).fold(0, u64::saturating_add);
    let loop_ns = loop_run.end.saturating_sub(loop_run.start).saturating_sub(in_gaps);
    let loop_ns = loop_ns.saturating_sub(loop_run.recording_cycles);
    let iterations = loop_run.iterations.saturating_sub(plain).max(1);
    loop_ns.saturating_add(iterations / 2) / iterations
}

/// A gap between two readings of the clock.
struct Raw {
    last_ns: u64,
    seen_ns: u64,
    /// Time that the loop subtracted as its own: the third number of a detour's record.
    taken_off_ns: u64,
}

impl Raw {
    fn from_record(record: &[u64; 3]) -> Raw {
        let taken_off_ns = record[2].min(record[0]);
        Raw { last_ns: record[0] - taken_off_ns, seen_ns: record[1], taken_off_ns }
    }

    fn length_ns(&self) -> u64 {
        self.seen_ns.saturating_sub(self.last_ns)
    }
}

/// Collects the slots of the loop of fixed time. They have counts of work, not times, so no context is attributed.
pub(super) fn slots(guest_loop: &GuestLoop, slot_ns: u64) -> Slots {
    let mut slots = Slots::default();
    guest_loop.records.iter().for_each(|record| slots.add(record[0], record[1]));
    let window_ns = guest_loop.run.end.saturating_sub(guest_loop.run.start);
    slots.finish(window_ns.checked_div(slot_ns).unwrap_or(0), slot_ns as f64);
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_starts_once_whatever_runs_within_it() {
        let piece = |context| Piece {
            context,
            task: KernelContext::User(7),
            from_ns: 0,
            to_ns: 1,
            cycles: 1,
            unaccounted_ns: 0,
        };
        let [user, tick] = [KernelContext::User(7), KernelContext::Interrupt(0xec)];
        let [timer, sched] = [KernelContext::Softirq(1), KernelContext::Softirq(7)];
        let order =
            [user, tick, timer, tick, sched, tick, user, tick, PAGE_FAULT, tick, user, tick];
        let pieces: Vec<Piece> = order.into_iter().map(piece).collect();
        let starts: Vec<KernelContext> =
            entries(&pieces).iter().map(|entry| entry.context).collect();
        assert_eq!(starts, [tick, timer, sched, tick, PAGE_FAULT, tick]);
    }

    #[test]
    fn an_interrupt_whose_task_is_switched_out_at_its_end_starts_once() {
        let piece = |(context, task): (KernelContext, u32)| Piece {
            context,
            task: KernelContext::User(task),
            from_ns: 0,
            to_ns: 1,
            cycles: 1,
            unaccounted_ns: 0,
        };
        let [tick, user] = [KernelContext::Interrupt(0xec), KernelContext::User(7)];
        let count = |order: &[(KernelContext, u32)]| {
            let pieces: Vec<Piece> = order.iter().copied().map(piece).collect();
            entries(&pieces).len()
        };
        let other = KernelContext::User(9);
        // Task 9 runs before the tick of task 7 returns, and has a tick of its own in the second sequence.
        assert_eq!(count(&[(tick, 7), (other, 9), (tick, 7), (user, 7)]), 1);
        assert_eq!(count(&[(tick, 7), (other, 9), (tick, 9), (other, 9), (tick, 7), (user, 7)]), 2);
        assert_eq!(count(&[(user, 7), (tick, 7), (user, 7), (tick, 7)]), 2);
        // The tick's return path calls the scheduler.
        let scheduler = KernelContext::Scheduler;
        let gives_way = [(tick, 7), (scheduler, 7), (other, 9), (scheduler, 7), (user, 7)];
        assert_eq!(count(&gives_way), 1);
        // Task 9 was interrupted before the window, and its tick ends in it.
        assert_eq!(count(&[(user, 7), (tick, 9), (other, 9), (user, 7), (tick, 7)]), 2);
    }

    #[test]
    fn of_the_loops_own_time_the_last_stays() {
        let others = |length_ns| (Part::Context(1), length_ns);
        let own = |length_ns| (Part::Own, length_ns);
        let kept = |parts: &[(Part, u64)], own_ns| {
            let mut parts = parts.to_vec();
            keep_own_ns(&mut parts, own_ns);
            parts
        };
        let parts = [own(7), others(100), own(20)];
        assert_eq!(kept(&parts, 27), parts);
        assert_eq!(kept(&parts, 20), [others(100), own(20)]);
        assert_eq!(kept(&parts, 22), [own(2), others(100), own(20)]);
        assert_eq!(kept(&parts, 0), [others(100)]);
        assert_eq!(kept(&[others(100)], 5), [others(100), own(5)]);
    }
}
