//! Reports the guest's progress to the host. Neither the guest nor the record depends on it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use simrecord::progress::GuestProgress;

/// Cycles of the guest's time between two updates, at least.
const CYCLES_BETWEEN: u64 = 1 << 20;

/// The file that the host reads.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    file: File,
    last: GuestProgress,
}

impl ProgressFile {
    pub(crate) fn open(path: &Path) -> Result<ProgressFile, String> {
        let file = OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| format!("progress={}: {error}", path.display()))?;
        Ok(ProgressFile { file, last: GuestProgress::default() })
    }

    /// A region was opened or closed at this time.
    pub(crate) fn region(&mut self, is_open: bool, now: u64) {
        let GuestProgress { mut regions, mut opened_at, .. } = self.last;
        if is_open {
            (regions, opened_at) = (regions.wrapping_add(1), now);
        }
        self.write(GuestProgress { regions, is_open, opened_at, now });
    }

    /// The guest's time advances.
    #[inline]
    pub(crate) fn advance(&mut self, now: u64) {
        if now.wrapping_sub(self.last.now) >= CYCLES_BETWEEN {
            self.write(GuestProgress { now, ..self.last });
        }
    }

    #[cold]
    fn write(&mut self, progress: GuestProgress) {
        self.last = progress;
        // A display that is not updated is no reason to end the machine.
        let _ = self.file.write_all_at(&progress.encode(), 0);
    }
}
