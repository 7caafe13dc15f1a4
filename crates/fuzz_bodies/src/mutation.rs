//! Makes changed copies of inputs for the test `corpus`. Equal seeds give equal copies, so a failure can be repeated.

use stats::random::Random;

/// Bytes that readers treat in a special way.
const SPECIAL_BYTES: [&[u8]; 14] = [
    b"0",
    b"-1",
    b"18446744073709551615",
    b"1e308",
    b"NaN",
    b"null",
    b"\"\"",
    b"\x00",
    b"\x1b[31m",
    b"\xff\xfe",
    b"{}",
    b"[",
    b"\n",
    b"\xc2\xb5",
];

/// Maximum number of changes in one copy.
const CHANGES_MAX: u64 = 4;

/// Makes changed copies of inputs.
#[derive(Debug)]
pub struct Mutator {
    random: Random,
}

impl Mutator {
    /// Mutators with equal seeds make equal copies.
    #[must_use]
    pub fn new(seed: u64) -> Mutator {
        Mutator { random: Random::new(seed) }
    }

    /// A copy of `input` with 1 to 4 changes. Parts of `other` replace parts of the copy in some changes.
    #[must_use]
    pub fn changed(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut copy = input.to_vec();
        for _ in 0..=self.random.below(CHANGES_MAX) {
            self.change(&mut copy, other);
        }
        copy
    }

    /// Makes one random change: cuts the end or a part, repeats a part, inserts foreign or special bytes, or changes
    /// one.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let start = self.below(bytes.len() + 1);
        let end = start + self.below((bytes.len() - start).min(64) + 1);
        match self.random.below(8) {
            0 => bytes.truncate(start),
            1 => drop(bytes.drain(start..end)),
            2 => {
                let part = bytes[start..end].to_vec();
                bytes.splice(start..start, part);
            }
            3 => {
                let other_start = self.below(other.len() + 1);
                let other_end = other_start + self.below((other.len() - other_start).min(64) + 1);
                bytes.splice(start..end, other[other_start..other_end].iter().copied());
            }
            4 => {
                let special = SPECIAL_BYTES[self.below(SPECIAL_BYTES.len())];
                bytes.splice(start..end.min(start + special.len()), special.iter().copied());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(start) {
                    let drawn = self.random.below(256) as u8;
                    *byte = if drawn & 1 == 0 { *byte ^ (1 << (drawn >> 5)) } else { drawn };
                }
            }
        }
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }
}
