//! The guest's progress, for a display: a file of [`BYTES`] bytes that the plugin overwrites at intervals of guest
//! time, and that `sim` reads while the machine runs. No result depends on it.

/// Length of the encoding in bytes.
pub const BYTES: usize = 32;

/// The guest's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestProgress {
    /// The number of regions of interest that were opened so far.
    pub regions: u32,
    /// Whether a region is open.
    pub is_open: bool,
    /// Whether the plugin has closed the last region because it had measured enough.
    pub had_enough: bool,
    /// When the last region was opened, in cycles of guest time.
    pub opened_at: u64,
    /// Guest time, in cycles.
    pub now: u64,
    /// Instructions of all vCPUs since the last region was opened.
    pub instructions: u64,
}

impl GuestProgress {
    /// Little-endian encoding.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&self.regions.to_le_bytes());
        let flags = u32::from(self.is_open) | u32::from(self.had_enough) << 1;
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.opened_at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.now.to_le_bytes());
        bytes[24..].copy_from_slice(&self.instructions.to_le_bytes());
        bytes
    }

    /// Decodes any bytes: every value is valid.
    #[must_use]
    pub fn decode(bytes: &[u8; BYTES]) -> GuestProgress {
        let word = |start: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[start..start + 8]);
            u64::from_le_bytes(word)
        };
        let first = word(0);
        GuestProgress {
            regions: first as u32,
            is_open: first >> 32 & 1 != 0,
            had_enough: first >> 33 & 1 != 0,
            opened_at: word(8),
            now: word(16),
            instructions: word(24),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_round_trips() {
        let (opened_at, now, instructions) = (1 << 40, u64::MAX, 1 << 50);
        for (is_open, had_enough) in [(true, false), (false, true), (false, false)] {
            let progress =
                GuestProgress { regions: 3, is_open, had_enough, opened_at, now, instructions };
            assert_eq!(GuestProgress::decode(&progress.encode()), progress);
        }
        assert_eq!(GuestProgress::decode(&[0; BYTES]), GuestProgress::default());
    }
}
