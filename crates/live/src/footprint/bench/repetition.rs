//! One repetition, from the counts before it to those behind it.

use std::io;
use std::time::Duration;

use lab::footprint::trace::TraceTimes;
use lab::footprint::{Method, Repetition, Verdict};
use lab::handlers::BenchError;

use super::{Current, LiveFootprint, failed};
use crate::footprint::counters::{Counters, Misses};
use crate::footprint::loops::Loop;
use crate::footprint::seen::{Added, Seen, Wanted, verdict, with_ticks};
use crate::footprint::sources::Raise;
use crate::footprint::window::{Watch, Window, wait_for_interrupt};
use crate::window::WindowEdge;
use crate::clock::now;

/// Passes of a window before the interrupt is to come.
const PASSES_BEFORE: u64 = 3;
/// Of which so many are not timed: what starting the window displaced comes back.
const WARM_PASSES: u64 = 1;
/// The interrupt comes no earlier: asking for it takes a while.
const DELAY_NS_MIN: u64 = 400_000;
/// Longest time from asking to the window, in passes, that is allowed for.
const ASKING_PASSES_MAX: u64 = 10;
/// What is no turn of a loop that reads the clock, but an interrupt.
const TICK_GAP_NS: u64 = 1000;
const TICK_GAP_TURNS: u64 = 40;
/// Longest period of a tick (HZ=100), and some more.
const TICK_NS_MAX: u64 = 12_000_000;
/// A tick comes earlier by such a part of its period at most: asking for an interrupt begins some time behind the
/// one before.
const TICK_EARLY_PARTS: u64 = 16;
/// How late a timer may be and still be the one that was set.
const LATE_NS_MAX: u64 = 20_000;

impl LiveFootprint {
    fn watch(&self, looping: &Loop, delay: u64, method: Method, counted: bool) -> Watch {
        let pass = looping.pass_cycles;
        let asked = self.grain.cycles(self.settings.window.as_nanos() as u64);
        Watch {
            scale: looping.in_window,
            window_cycles: match method {
                // A pass behind an interrupt that comes late, too.
                Method::Refined => asked.max(delay) + 2 * pass,
                Method::Basic => asked.max(delay + pass),
            },
            pretend_cycles: None,
            warm_passes: WARM_PASSES,
            rest_passes: if self.settings.ticks { None } else { Some(u64::from(counted)) },
        }
    }

    /// One repetition, and when what happened. It begins directly behind a tick.
    pub(in crate::footprint) fn once(
        &mut self,
        method: Method,
        raised: bool,
    ) -> Result<(Repetition, TraceTimes), BenchError> {
        let Some((mut current, mut raise)) = self.current.take().zip(self.raise.take()) else {
            return Err(BenchError::Failed("nothing was made ready".to_owned()));
        };
        let done = self.repetition(&mut current, raise.as_mut(), method, raised);
        (self.current, self.raise) = (Some(current), Some(raise));
        done.map_err(failed)
    }

    fn repetition(
        &mut self,
        current: &mut Current,
        raise: &mut dyn Raise,
        method: Method,
        raised: bool,
    ) -> io::Result<(Repetition, TraceTimes)> {
        let delay = self.delay(current.looping.pass_cycles.max(1));
        let mut watch = self.watch(&current.looping, delay, method, current.counters.is_some());
        watch.pretend_cycles = (!raised).then(|| self.pretended().unwrap_or(delay));
        let mut before = Seen::now(&self.root);
        current.looping.renew();
        current.looping.warm_up();
        if !self.tickless && !self.settings.ticks {
            self.wait_for_tick();
        }
        let asked_at = now();
        if raised {
            raise.schedule(Duration::from_nanos(self.ns(delay)))?;
        }
        // Some disks have a kernel thread of this CPU send the request (kblockd): that is now.
        before.iter_mut().for_each(Seen::task_anew);
        let looping = &mut current.looping;
        // What asking displaced comes back before anything is counted.
        looping.fill();
        if self.settings.ticks {
            // Asking takes a while: windows of both sorts have as many ticks when they begin behind one.
            self.wait_for_tick();
        }
        if let Some(counters) = &mut current.counters {
            counters.start()?;
        }
        self.mark(WindowEdge::Open);
        let opened = now();
        let window = looping.window(method, watch);
        let ended = now();
        self.mark(WindowEdge::Close);
        let misses = current.counters.as_mut().map(Counters::stop).transpose()?;
        let after = Seen::now(&self.root);
        if raised {
            raise.settle()?;
        }
        let asking = opened.wrapping_sub(asked_at);
        self.note(asking, &window, raised.then_some(opened));
        let kind = raised.then(|| raise.counted());
        let added = before.zip(after).map(|(b, a)| b.until(&a, self.settings.cpu, kind));
        let late = window.gap_at.wrapping_sub(asked_at.wrapping_add(delay)) as i64;
        let most_late = (self.grain.cycles(LATE_NS_MAX) + asking + window.gap_cycles) as i64;
        let on_time = match raise.is_timed() {
            true => (0..most_late).contains(&late),
            false => added.is_none_or(|added| added.ticks == 0) || !self.is_tick(asked_at, &window),
        };
        let wanted = kind.map(|kind| Wanted { kind, on_time });
        let excess = window.excess_cycles(looping.chunks(), raised, looping.in_window);
        let times =
            TraceTimes { opened, ended, resumed: window.gap_at, stopped_cycles: window.gap_cycles };
        let mut done = repetition(added, &window, wanted, excess, misses);
        done.window = self.settings.mark.map(|_| self.windows);
        self.windows += 1;
        if self.settings.ticks {
            done.verdict = added.map_or(Verdict::OthersToo, |added| with_ticks(added, wanted));
            // Which of the gaps is the interrupt's is not known.
            (done.excess_cycles, done.stopped_cycles) = (None, None);
        }
        Ok((done, times))
    }

    /// When the interrupt is to come after it is asked for, cycles: in the middle of any chunk with the same
    /// chance.
    fn delay(&mut self, pass: u64) -> u64 {
        let least = self.grain.cycles(DELAY_NS_MIN);
        let asking = self.asking_cycles.min(pass * ASKING_PASSES_MAX + least);
        let ticks_ns = if self.settings.ticks { TICK_NS_MAX } else { 0 };
        let delay = (asking + pass * PASSES_BEFORE).max(least) + self.grain.cycles(ticks_ns);
        delay + self.random.below(pass)
    }

    /// When one came, of those with it, cycles from its window's begin.
    fn pretended(&mut self) -> Option<u64> {
        let next = self.came_after.first().copied()?;
        self.came_after.rotate_left(1);
        Some(next)
    }

    /// What the next repetitions need to know. `opened`: when the window of an interrupt began.
    fn note(&mut self, asking: u64, window: &Window, opened: Option<u64>) {
        if !self.settings.ticks {
            self.asking_cycles = asking;
        }
        if let Some(opened) = opened.filter(|_| window.after.chunks > 0) {
            // Without it, there is as much touching before an interrupt is pretended.
            let came_at = window.gap_at.wrapping_sub(window.gap_cycles);
            self.came_after.push(came_at.saturating_sub(opened));
        }
    }

    /// Whether the first gap began when the tick behind the one before `asked_at` was due. What was asked for may
    /// have come before the window, and a tick in it.
    fn is_tick(&self, asked_at: u64, window: &Window) -> bool {
        let came_after = window.gap_at.wrapping_sub(window.gap_cycles).wrapping_sub(asked_at);
        self.tick_cycles.is_some_and(|period| came_after >= period - period / TICK_EARLY_PARTS)
    }

    fn wait_for_tick(&self) {
        let gap = self.grain.cycles(TICK_GAP_NS).max(TICK_GAP_TURNS * self.grain.turn_cycles);
        wait_for_interrupt(gap, self.grain.cycles(TICK_NS_MAX));
    }

    pub(super) fn ns(&self, cycles: u64) -> u64 {
        (cycles as f64 * 1e9 / self.grain.hz) as u64
    }

    #[inline(always)]
    fn mark(&self, edge: WindowEdge) {
        if let Some(mark) = self.settings.mark {
            mark(edge);
        }
    }
}

fn repetition(
    added: Option<Added>,
    window: &Window,
    wanted: Option<Wanted>,
    excess_cycles: Option<i64>,
    misses: Option<Misses>,
) -> Repetition {
    let verdict = added.map_or(Verdict::OthersToo, |added| verdict(added, window, wanted));
    // Too late for a whole pass behind it: as good as not at all.
    let is_late = verdict == Verdict::Kept && excess_cycles.is_none();
    Repetition {
        verdict: if is_late { Verdict::NotInterrupted } else { verdict },
        excess_cycles,
        stopped_cycles: wanted.map(|_| window.gap_cycles),
        user_misses: misses.map(|misses| misses.user),
        kernel_misses: misses.map(|misses| misses.kernel),
        window: None,
    }
}
