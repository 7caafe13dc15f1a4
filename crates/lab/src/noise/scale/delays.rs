//! Computes the distribution of a compute phase's delay from the detours of a CPU. `job.rs` computes the largest delay
//! of many nodes from this distribution.

use stats::barrier::Piece;

use super::trace::Trace;

/// Maximum number of blocks of all traces together. The bootstrap for intervals resamples blocks.
const BLOCKS_MAX: usize = 64;
/// Number of blocks that a trace may have even if all traces together then exceed [`BLOCKS_MAX`].
const TRACE_BLOCKS_MAX: usize = 8;
/// Minimum length of a block, in compute phases. Blocks of this length hardly depend on each other, unless the
/// noise changes more slowly.
const PHASES_PER_BLOCK: u64 = 10;

/// Computes the delay of a compute phase for each time at which the phase can start in the trace, ns. The phase needs
/// `granularity_ns` of work. A piece has start times with equal or, in a detour, linearly falling delays; its weight is
/// the length of these start times, ns. `trace_count`: the number of traces, with this one.
///
/// All detours that start before the work is done delay the phase. A phase that starts in a detour also waits for the
/// rest of this detour: its node was in the detour when the barrier opened.
///
/// # Panics
/// Panics if `granularity_ns` is not below the trace's own time.
#[must_use]
pub fn delays(trace: &Trace, granularity_ns: u64, trace_count: usize) -> Vec<Piece> {
    let own_ns = trace.own_ns;
    assert!(granularity_ns < own_ns, "a phase of {granularity_ns} ns in {own_ns} ns");
    let blocks_max = (BLOCKS_MAX / trace_count.max(1)).max(TRACE_BLOCKS_MAX) as u64;
    let blocks = (own_ns / (granularity_ns.max(1) * PHASES_PER_BLOCK)).clamp(1, blocks_max);
    // The start times at which the set of detours in the phase changes, or the block. All times are the loop's own time,
    // without detours.
    let mut changes: Vec<(u64, Change)> = Vec::with_capacity(2 * trace.detours.len() + 64);
    for &(detour_ns, length_ns) in &trace.detours {
        // The trace is a ring: a phase near its end continues at its start.
        let enters_ns = if detour_ns >= granularity_ns {
            detour_ns - granularity_ns
        } else {
            detour_ns + own_ns - granularity_ns
        };
        changes.push((enters_ns, Change::Enters(length_ns)));
        changes.push((detour_ns, Change::Leaves(length_ns)));
    }
    for block in 1..blocks {
        let start_ns = u128::from(own_ns) * u128::from(block) / u128::from(blocks);
        changes.push((start_ns as u64, Change::NextBlock));
    }
    changes.sort_unstable_by_key(|(change_ns, _)| *change_ns);
    // A phase that starts at time 0 has these detours.
    let is_in_first_phase = |(detour_ns, _): &&(u64, u64)| *detour_ns < granularity_ns;
    let mut sweep = Sweep {
        pieces: Vec::with_capacity(3 * trace.detours.len() + 64),
        delay_ns: trace.detours.iter().filter(is_in_first_phase).map(|(_, length)| length).sum(),
        now_ns: 0,
        block: 0,
    };
    for simultaneous in changes.chunk_by(|(first_ns, _), (second_ns, _)| first_ns == second_ns) {
        sweep.apply_changes(simultaneous);
    }
    sweep.run_to(own_ns);
    sweep.pieces
}

/// A change while the start time of the phase moves on.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A detour of this length, ns, is in the phase from now on.
    Enters(u64),
    /// A detour of this length, ns, is no longer in the phase.
    Leaves(u64),
    /// The next block starts.
    NextBlock,
}

/// Moves the start time of the phase through the trace, and collects the pieces.
struct Sweep {
    pieces: Vec<Piece>,
    /// Delay of a phase that starts at `now_ns`, between detours.
    delay_ns: u64,
    /// The start time of the phase.
    now_ns: u64,
    block: u32,
}

impl Sweep {
    /// Adds the starts from `now_ns` to `end_ns`. All of them are between detours, and have equal delays.
    fn run_to(&mut self, end_ns: u64) {
        let weight = end_ns - self.now_ns;
        if weight > 0 {
            let (low, block) = (self.delay_ns, self.block);
            self.pieces.push(Piece { low, weight, is_in_detour: false, block });
        }
        self.now_ns = end_ns;
    }

    /// Moves the start time of the phase to the time of `changes`, and applies them. `changes`: all changes at one time, at
    /// least one. The time is not before that of the last call.
    ///
    /// A detour takes none of the loop's own time, so all starts in it have one own time. These starts become one piece,
    /// whose weight is the detour's length, and whose `low` is the delay of a phase that starts after the detour.
    fn apply_changes(&mut self, changes: &[(u64, Change)]) {
        let (time_ns, _) = changes[0];
        self.run_to(time_ns);
        // A start in a detour waits for the rest of this detour, and for all detours that start before the work is
        // done, including other detours at the same time. A detour that starts exactly when the work is done does not
        // delay the phase. Therefore detours enter only after these pieces were added.
        for (_, change) in changes {
            if let Change::Leaves(length_ns) = *change {
                self.delay_ns -= length_ns;
                let (low, block) = (self.delay_ns, self.block);
                self.pieces.push(Piece { low, weight: length_ns, is_in_detour: true, block });
            }
        }
        for (_, change) in changes {
            match change {
                Change::Enters(length_ns) => self.delay_ns += length_ns,
                Change::NextBlock => self.block += 1,
                Change::Leaves(_) => {}
            }
        }
    }
}
