//! Reports the guest's progress to the host, in a file that `sim` reads for its display ([`simrecord::progress`]).
//! Neither the guest nor the record depends on it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::guest::regions::RegionState;
use simrecord::counters::{Counts, INSTRUCTIONS, TIME};
use simrecord::progress::GuestProgress;
use simrecord::record::CPUS_MAX;

/// The least cycles of guest time between two updates by events of one vCPU.
const CYCLES_BETWEEN: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct ProgressFile {
    file: File,
    last: GuestProgress,
    /// The time of each vCPU at the last update that an event of this vCPU caused. vCPUs do not have the same time.
    updated_at: [u64; CPUS_MAX],
    /// Instructions of each vCPU since the start of the machine.
    executed: Vec<u64>,
    /// The sum of `executed` when the last region was opened.
    executed_before: u64,
}

impl ProgressFile {
    /// Opens the file, which must exist.
    pub(crate) fn open(path: &Path) -> Result<ProgressFile, String> {
        let file = OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| format!("progress={}: {error}", path.display()))?;
        let (executed, executed_before) = (Vec::new(), 0);
        let (last, updated_at) = (GuestProgress::default(), [0; CPUS_MAX]);
        Ok(ProgressFile { file, last, updated_at, executed, executed_before })
    }

    /// Notes that the open region is about to close because it has measured enough.
    pub(crate) fn note_enough(&mut self) {
        self.last.had_enough = true;
    }

    /// Writes that a region was opened or closed on a vCPU. `counted`: the current counts of all vCPUs.
    pub(crate) fn write_region(&mut self, state: RegionState, vcpu: u32, counted: &[Counts]) {
        let GuestProgress { mut regions, mut opened_at, .. } = self.last;
        let now = counted.get(vcpu as usize).map_or(0, |counts| counts[TIME]);
        self.executed.clear();
        self.executed.extend(counted.iter().map(|counts| counts[INSTRUCTIONS]));
        let is_open = state == RegionState::Open;
        if is_open {
            (regions, opened_at) = (regions.wrapping_add(1), now);
            self.executed_before = self.executed.iter().sum();
        }
        let instructions = self.instructions();
        let had_enough = self.last.had_enough && !is_open;
        self.write(GuestProgress { regions, is_open, had_enough, opened_at, now, instructions });
    }

    /// Writes the progress if a vCPU's time has advanced enough since its last update. `counts`: its current counts.
    #[inline]
    pub(crate) fn advance(&mut self, vcpu: u32, counts: &Counts) {
        if let Some(executed) = self.executed.get_mut(vcpu as usize) {
            *executed = counts[INSTRUCTIONS];
        }
        let updated_at = &mut self.updated_at[vcpu as usize % CPUS_MAX];
        if counts[TIME].saturating_sub(*updated_at) >= CYCLES_BETWEEN {
            *updated_at = counts[TIME];
            let now = self.last.now.max(counts[TIME]);
            self.write(GuestProgress { now, instructions: self.instructions(), ..self.last });
        }
    }

    /// Instructions of all vCPUs since the last region was opened.
    fn instructions(&self) -> u64 {
        self.executed.iter().sum::<u64>().saturating_sub(self.executed_before)
    }

    #[cold]
    fn write(&mut self, progress: GuestProgress) {
        self.last = progress;
        // An error only leaves the display out of date.
        let _ = self.file.write_all_at(&progress.encode(), 0);
    }
}

#[cfg(test)]
mod tests {
    use simrecord::counters::COUNTERS;
    use simrecord::progress::BYTES;

    use super::*;

    fn counts(time: u64, instructions: u64) -> Counts {
        let mut counts = [0; COUNTERS];
        (counts[TIME], counts[INSTRUCTIONS]) = (time, instructions);
        counts
    }

    #[test]
    fn instructions_of_all_vcpus_count_from_the_opening_of_the_region() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut progress = ProgressFile::open(file.path()).unwrap();
        let read = || {
            let bytes = std::fs::read(file.path()).unwrap();
            GuestProgress::decode(bytes[..BYTES].try_into().unwrap())
        };
        progress.advance(0, &counts(CYCLES_BETWEEN, 50));
        assert_eq!((read().now, read().instructions), (CYCLES_BETWEEN, 0), "no region is open");
        progress.write_region(RegionState::Open, 1, &[counts(8, 100), counts(9, 200)]);
        assert_eq!((read().opened_at, read().instructions), (9, 0));
        progress.advance(0, &counts(10, 130));
        progress.advance(1, &counts(10 + CYCLES_BETWEEN, 202));
        assert_eq!(read().instructions, 32);
        progress.write_region(RegionState::Closed, 0, &[counts(11, 140), counts(12, 210)]);
        assert_eq!((read().regions, read().is_open, read().instructions), (1, false, 50));
    }

    #[test]
    fn a_vcpu_that_lags_writes_at_intervals_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut progress = ProgressFile::open(file.path()).unwrap();
        let read = || {
            let bytes = std::fs::read(file.path()).unwrap();
            GuestProgress::decode(bytes[..BYTES].try_into().unwrap())
        };
        progress.write_region(RegionState::Open, 0, &[counts(0, 0), counts(0, 0)]);
        let ahead = 10 * CYCLES_BETWEEN;
        progress.advance(0, &counts(ahead, 50));
        assert_eq!((read().now, read().instructions), (ahead, 50));
        // No event of the vCPU that lags is an update, until its own time has advanced enough.
        progress.advance(1, &counts(CYCLES_BETWEEN - 1, 3));
        assert_eq!(read().instructions, 50);
        progress.advance(1, &counts(CYCLES_BETWEEN, 4));
        assert_eq!((read().now, read().instructions), (ahead, 54), "time does not go back");
        progress.advance(1, &counts(CYCLES_BETWEEN + 1, 5));
        assert_eq!(read().instructions, 54);
    }
}
