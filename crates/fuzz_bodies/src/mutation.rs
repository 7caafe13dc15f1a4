//! Changed copies of inputs, the same for the same seed.

use stats::random::Random;

/// Words that readers treat in a special way.
const WORDS: [&[u8]; 14] = [
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

/// Changes of one input.
const CHANGES_MAX: u64 = 4;

/// Makes changed copies of inputs.
#[derive(Debug)]
pub struct Mutator {
    random: Random,
}

impl Mutator {
    /// A mutator that makes the same copies for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Mutator {
        Mutator { random: Random::new(seed) }
    }

    /// A copy of `input` with 1 to 4 changes; `other` is a source of parts.
    #[must_use]
    pub fn changed(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut copy = input.to_vec();
        for _ in 0..=self.random.below(CHANGES_MAX) {
            self.change(&mut copy, other);
        }
        copy
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.place(bytes.len() + 1);
        let end = at + self.place((bytes.len() - at).min(64) + 1);
        match self.random.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            3 => {
                let from = self.place(other.len() + 1);
                let to = from + self.place((other.len() - from).min(64) + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            4 => {
                let word = WORDS[self.place(WORDS.len())];
                bytes.splice(at..end.min(at + word.len()), word.iter().copied());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    let other = self.random.below(256) as u8;
                    *byte = if other & 1 == 0 { *byte ^ (1 << (other >> 5)) } else { other };
                }
            }
        }
    }

    /// A number below `limit`.
    fn place(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }
}
