//! Random numbers that depend only on the seed, on any machine. A run that names its seed can therefore be repeated.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). For samples, orders and
/// incompressible data, but not for secrets. The constants are the published ones: other constants change every sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The sequence of numbers that belongs to the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number of the sequence, uniform over all `u64`.
    #[allow(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, uniform except for a bias of at most `limit` in 2^64. 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number above 0 and up to 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Shuffles items: each order has the same probability (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Fills memory with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_paper() {
        // The published reference's first values for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_shuffle_keeps_what_it_shuffles_and_has_no_favourite() {
        let mut random = Random::new(1);
        let mut first = [0_u32; 6];
        for _ in 0..6000 {
            let mut items = [0, 1, 2, 3, 4, 5];
            random.shuffle(&mut items);
            first[items[0]] += 1;
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3, 4, 5]);
        }
        assert!(first.iter().all(|count| (850..1150).contains(count)), "{first:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn the_exponential_has_its_moments() {
        let mut random = Random::new(3);
        let draws: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let squares = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02 && (squares - 2.0).abs() < 0.1, "{mean} {squares}");
    }
}
