//! Reads how many page faults the kernel has counted since the boot. `execute.rs` reads them before and after a region
//! of interest, and the host compares the difference with the plugin's count.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Numbers of page faults of all processes, on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    pub all: u64,
    /// Faults that waited for a disk.
    pub major: u64,
}

/// Length of the buffer for /proc/vmstat. The file is shorter.
const VMSTAT_BYTES_MAX: usize = 32 << 10;

/// A reading of the kernel's counters. [`FaultReading::take`] must cause no page fault: the buffer is present before,
/// and the text is parsed later.
pub struct FaultReading {
    file: File,
    buffer: Vec<u8>,
    filled: usize,
}

impl FaultReading {
    /// Prepares a reading. `None` if the kernel does not have the counters.
    pub fn open() -> Option<FaultReading> {
        let file = File::open("/proc/vmstat").ok()?;
        Some(FaultReading { file, buffer: vec![1; VMSTAT_BYTES_MAX], filled: 0 })
    }

    /// Writes to this reading and to the stack, so that [`FaultReading::take`] does not fault there. After a `fork` the
    /// child may share these pages, and the first write to a shared page is a fault.
    #[inline(never)]
    pub fn touch(&mut self) {
        self.filled = std::hint::black_box(0);
    }

    /// Reads the counters.
    #[inline(never)]
    pub fn take(&mut self) {
        self.filled = 0;
        while let Ok(bytes @ 1..) =
            self.file.read_at(&mut self.buffer[self.filled..], self.filled as u64)
        {
            self.filled += bytes;
        }
    }

    /// The numbers that were read. `None` if the reading is incomplete.
    pub fn faults(&self) -> Option<Faults> {
        Faults::parse(&String::from_utf8_lossy(&self.buffer[..self.filled]))
    }
}

/// Makes all pages of this process present, so that the first call of a function causes no page fault.
pub fn lock_pages() {
    // SAFETY: locking changes neither contents nor addresses. If it fails, a fault may be counted.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
}

impl Faults {
    /// Parses the content of /proc/vmstat. `None` if it lacks one of the two numbers.
    fn parse(text: &str) -> Option<Faults> {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        Some(Faults { all: value("pgfault")?, major: value("pgmajfault")? })
    }

    /// Returns the faults since an earlier reading.
    pub fn since(self, earlier: Faults) -> Faults {
        let all = self.all.saturating_sub(earlier.all);
        Faults { all, major: self.major.saturating_sub(earlier.major) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "pgfault_x 1\npgfault 20\npgmajfault 3\n";
        let faults = Faults::parse(text).unwrap();
        assert_eq!(faults, Faults { all: 20, major: 3 });
        assert_eq!(faults.since(Faults { all: 15, major: 3 }), Faults { all: 5, major: 0 });
        assert_eq!(Faults::parse("pgfault 20\n"), None);
    }
}
