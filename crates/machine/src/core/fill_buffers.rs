//! Line fill buffers: they limit how many misses of a core can be under way at the same time. Used by the cores that
//! execute one thread. The memory system below has no limit of its own (`without_mshr_limit`).

use super::{Access, WaitParts};
use crate::cycle::Cycle;

/// A line that is under way from `start` to before `end`.
#[derive(Clone, Copy, Debug)]
struct Miss {
    /// The number of the line, by its virtual address.
    line: u64,
    start: Cycle,
    end: Cycle,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// When the line is ready, without the latency of a hit.
    pub(super) cycle: Cycle,
    /// Whether the access waited for its line.
    pub(super) missed: bool,
    /// When the access got a fill buffer, if it waited for one. [`Cycle::START`] for every other access.
    pub(super) buffer_free: Cycle,
}

impl Served {
    /// The result of an access that waits for no fill buffer.
    #[inline(always)]
    pub(super) fn without_wait_for_buffer(cycle: Cycle, missed: bool) -> Served {
        Served { cycle, missed, buffer_free: Cycle::START }
    }
}

/// The lines that are under way. Accesses come in program order, but start in any order. So each line is kept with its
/// interval until no access can start before the interval's end.
#[derive(Clone, Debug)]
pub(super) struct LineFillBuffers {
    buffers_max: usize,
    line_shift: u32,
    under_way: Vec<Miss>,
    /// When all lines are filled.
    all_filled: Cycle,
}

impl LineFillBuffers {
    pub(super) fn new(buffers_max: u32, line_bytes: u64) -> LineFillBuffers {
        LineFillBuffers {
            buffers_max: buffers_max as usize,
            line_shift: line_bytes.ilog2(),
            under_way: Vec::new(),
            all_filled: Cycle::START,
        }
    }

    /// Whether no line is under way at `start`.
    #[inline(always)]
    pub(super) fn are_filled(&self, start: Cycle) -> bool {
        start >= self.all_filled
    }

    /// Serves an access that starts at `start`. The memory delays it by `wait` cycles, whose reasons are `parts`. No
    /// later access starts before `present`. A miss without a free buffer starts later. A line that was already under
    /// way for another access does not arrive later for lack of a buffer. A device has no line and takes no buffer.
    #[inline]
    pub(super) fn serve(
        &mut self,
        access: &Access,
        start: Cycle,
        (wait, parts): (u64, WaitParts),
        present: Cycle,
    ) -> Served {
        if wait == 0 && start >= self.all_filled {
            return Served::without_wait_for_buffer(start, false);
        }
        if access.is_of_device() {
            return Served::without_wait_for_buffer(start + wait, wait > 0);
        }
        let line = access.virtual_address.block_number(self.line_shift);
        if parts.translation_cycles == 0 {
            return self.serve_late(line, start, (wait, parts.under_way), present);
        }
        // The access requests the line once it is translated.
        let (start, wait) =
            (start + parts.translation_cycles, wait.saturating_sub(parts.translation_cycles));
        Served { missed: true, ..self.serve_late(line, start, (wait, parts.under_way), present) }
    }

    /// [`LineFillBuffers::serve`] for a load that asks for its line at `asked`, but starts only at `start`, `asked` or
    /// later, because it waits for stores. `wait` begins at `asked`: meanwhile the line is on its way.
    pub(super) fn serve_delayed(
        &mut self,
        load: &Access,
        (asked, start): (Cycle, Cycle),
        wait: (u64, WaitParts),
        present: Cycle,
    ) -> Served {
        let served = self.serve(load, asked, wait, present);
        Served {
            cycle: served.cycle.max(start),
            missed: served.missed && served.cycle > start,
            ..served
        }
    }

    /// [`LineFillBuffers::serve`] for an access that is translated at `start`.
    #[inline(never)]
    fn serve_late(
        &mut self,
        line: u64,
        start: Cycle,
        (wait, under_way): (u64, bool),
        present: Cycle,
    ) -> Served {
        let end_of_fill = |fill_start: Cycle| {
            if under_way { (start + wait).max(fill_start.next()) } else { fill_start + wait }
        };
        // If the line is under way, the memory may report a hit, or a part of the wait. It reports a longer wait if the
        // access needs more than the line: the right to write, or a second line.
        let is_same_line = |miss: &&Miss| miss.line == line && miss.end > start;
        let arrives = self.under_way.iter().filter(is_same_line).map(|miss| miss.end).min();
        if let Some(cycle) = arrives {
            return Served::without_wait_for_buffer(cycle.max(start + wait), true);
        }
        if wait == 0 {
            return Served::without_wait_for_buffer(start, false);
        }
        self.under_way.retain(|miss| miss.end > present);
        let mut fill_start = start;
        while !self.has_room(fill_start, end_of_fill(fill_start)) {
            // The next buffer is free when one of the lines is filled. There is one, because there is no room.
            let ends = self.under_way.iter().map(|miss| miss.end).filter(|end| *end > fill_start);
            let Some(free) = ends.min() else { break };
            fill_start = free;
        }
        let end = end_of_fill(fill_start);
        self.under_way.push(Miss { line, start: fill_start, end });
        self.all_filled = self.all_filled.max(end);
        let buffer_free = if fill_start > start { fill_start } else { Cycle::START };
        Served { cycle: end, missed: true, buffer_free }
    }

    /// Whether a buffer is free from `start` to before `end`. It suffices to check `start` and the starts of misses,
    /// because the number of lines under way grows only there.
    fn has_room(&self, start: Cycle, end: Cycle) -> bool {
        let has_room_at = |time: Cycle| {
            let under_way =
                self.under_way.iter().filter(|miss| miss.start <= time && time < miss.end);
            under_way.count() < self.buffers_max
        };
        let starts = self.under_way.iter().map(|miss| miss.start);
        has_room_at(start) && starts.filter(|time| (start..end).contains(time)).all(has_room_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{PhysicalAddress, VirtualAddress};
    use proptest::prelude::*;

    const NEW: WaitParts = WaitParts { translation_cycles: 0, under_way: false };
    const LATE: WaitParts = WaitParts { translation_cycles: 0, under_way: true };

    /// Serves an access, and returns when its line is there, and whether it waited.
    fn serve(
        misses: &mut LineFillBuffers,
        address: u64,
        start: u64,
        wait: (u64, WaitParts),
        present: u64,
    ) -> (u64, bool) {
        let access = load(address, Some(PhysicalAddress(address)));
        let served = misses.serve(&access, Cycle(start), wait, Cycle(present));
        (served.cycle.0, served.missed)
    }

    /// A load of 8 bytes. `physical`: `None` for a device.
    fn load(address: u64, physical: Option<PhysicalAddress>) -> Access {
        let virtual_address = VirtualAddress(address);
        Access { virtual_address, physical, instruction: 0, bytes: 8, write: false }
    }

    #[test]
    fn a_page_walk_takes_no_fill_buffer() {
        let mut misses = LineFillBuffers::new(1, 64);
        let walk = |cycles| WaitParts { translation_cycles: cycles, under_way: false };
        // Three hits of L1 that are translated at the same time.
        for line in 0..3 {
            let served = serve(&mut misses, line << 6, 10, (200, walk(200)), 0);
            assert_eq!(served, (210, true));
        }
        // A miss takes the buffer once it is translated; until then another one has it.
        assert_eq!(serve(&mut misses, 0x1000, 10, (250, walk(200)), 0).0, 260);
        assert_eq!(serve(&mut misses, 0x2000, 10, (100, NEW), 0).0, 110);
    }

    #[test]
    fn an_access_to_a_line_under_way_waits_for_it() {
        let mut misses = LineFillBuffers::new(4, 64);
        assert_eq!(serve(&mut misses, 0x1000, 10, (100, NEW), 0), (110, true));
        assert_eq!(serve(&mut misses, 0x1008, 20, (0, NEW), 0), (110, true));
        assert_eq!(serve(&mut misses, 0x1010, 20, (90, NEW), 0), (110, true));
        assert_eq!(serve(&mut misses, 0x1040, 20, (0, NEW), 0), (20, false));
        assert_eq!(serve(&mut misses, 0x1008, 110, (0, NEW), 0), (110, false));
    }

    #[test]
    fn an_access_to_a_line_under_way_waits_as_long_as_memory_says() {
        let mut misses = LineFillBuffers::new(4, 64);
        assert_eq!(serve(&mut misses, 0x1000, 10, (100, NEW), 0), (110, true));
        // The right to write the line, or a second line, comes after the line.
        assert_eq!(serve(&mut misses, 0x1008, 20, (140, NEW), 0), (160, true));
        assert_eq!(serve(&mut misses, 0x1008, 20, (140, LATE), 0), (160, true));
    }

    #[test]
    fn a_load_that_waits_for_stores_asks_for_its_line_before() {
        let mut misses = LineFillBuffers::new(4, 64);
        let mut served = |address, start, wait| {
            let load = load(address, Some(PhysicalAddress(address)));
            let served = misses.serve_delayed(&load, (Cycle(10), Cycle(start)), wait, Cycle(0));
            (served.cycle.0, served.missed)
        };
        assert_eq!(served(0x1000, 30, (100, NEW)), (110, true));
        assert_eq!(served(0x2000, 110, (100, NEW)), (110, false));
        assert_eq!(served(0x3000, 500, (100, NEW)), (500, false));
        // The translation is part of the wait.
        let walk = WaitParts { translation_cycles: 60, under_way: false };
        assert_eq!(served(0x4000, 30, (160, walk)), (170, true));
    }

    #[test]
    fn an_access_to_a_device_takes_no_buffer() {
        let mut misses = LineFillBuffers::new(1, 64);
        for wait in [100, 200] {
            let served = misses.serve(&load(0x1000, None), Cycle(10), (wait, NEW), Cycle(0));
            assert_eq!(served, Served::without_wait_for_buffer(Cycle(10 + wait), true));
        }
        assert_eq!(serve(&mut misses, 0x2000, 10, (100, NEW), 0).0, 110);
    }

    #[test]
    fn an_early_miss_is_not_kept_by_later_ones_that_came_first() {
        let mut misses = LineFillBuffers::new(2, 64);
        // A chain: each starts where the one before ends.
        for link in 0..4 {
            assert_eq!(
                serve(&mut misses, link << 6, link * 100, (100, NEW), 0).0,
                (link + 1) * 100
            );
        }
        assert_eq!(serve(&mut misses, 0x9000, 5, (100, NEW), 0).0, 105);
        // Now both buffers are in use until 105, and from then on by the chain and this access.
        assert_eq!(serve(&mut misses, 0xa000, 5, (100, NEW), 0).0, 205);
    }

    #[test]
    fn a_line_that_was_under_way_arrives_when_it_does() {
        let mut misses = LineFillBuffers::new(1, 64);
        assert_eq!(serve(&mut misses, 0x1000, 10, (100, NEW), 0).0, 110);
        // It waits for the buffer, and by then the line is almost there, or is.
        assert_eq!(serve(&mut misses, 0x2000, 10, (120, LATE), 0).0, 130);
        assert_eq!(serve(&mut misses, 0x3000, 10, (50, LATE), 0).0, 131);
        assert_eq!(serve(&mut misses, 0x4000, 10, (50, NEW), 0).0, 181);
    }

    proptest! {
        #[test]
        fn no_more_fills_than_buffers_are_under_way(
            buffers_max in 1u32..5,
            asked in prop::collection::vec((0u64..50, 0u64..200, 1u64..100), 1..60),
        ) {
            let mut misses = LineFillBuffers::new(buffers_max, 64);
            let (mut present, mut spans) = (0, Vec::new());
            for (line, (passes, ahead, wait)) in asked.into_iter().enumerate() {
                present += passes;
                let end = serve(&mut misses, (line as u64) << 6, present + ahead, (wait, NEW), present).0;
                prop_assert!(end >= present + ahead + wait);
                spans.push((end - wait, end));
            }
            for (time, _) in &spans {
                let there = spans.iter().filter(|(from, to)| from <= time && time < to);
                prop_assert!(there.count() <= buffers_max as usize);
            }
        }
    }
}
