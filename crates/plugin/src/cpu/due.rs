//! What is due before a vCPU's next block, for its PMU and its clock.

use std::ptr;

use super::Cpu;

impl Cpu {
    /// The guest's PMU is to be looked at from this count of cycles on.
    pub(crate) fn set_pmu_deadline(&mut self, cycles: u64) {
        self.pmu_deadline = cycles;
        if !self.has_read_clock() {
            self.due_at = self.slice_end.min(cycles);
        }
    }

    /// Whether the guest's PMU is to be looked at.
    pub(crate) fn pmu_is_due(&mut self) -> bool {
        self.cycles() >= self.pmu_deadline
    }

    /// The guest reads the clock, to whose time so much is to be added before the next block.
    pub(crate) fn read_clock(&mut self, ahead_ns: i64) {
        self.clock_ahead = Some(ahead_ns);
        self.due_at = 0;
    }

    /// Whether the guest has just read the clock.
    pub(crate) fn has_read_clock(&self) -> bool {
        self.clock_ahead.is_some()
    }

    /// What is to be added to the time that the guest has just read.
    pub(crate) fn take_clock_ahead(&mut self) -> Option<i64> {
        let ahead_ns = self.clock_ahead.take()?;
        self.due_at = self.slice_end.min(self.pmu_deadline);
        Some(ahead_ns)
    }

    /// The block that was started last is left before its last `count` instructions.
    pub(crate) fn leave_block(&mut self, count: u32) {
        // SAFETY: null, or kept by the arena until a flush, which clears it.
        if let Some(block) = unsafe { self.block.as_ref() } {
            self.take_back(block, count);
            self.settle(0);
            self.block = ptr::null();
        }
    }
}
