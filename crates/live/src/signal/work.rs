//! Work with a known number of steps.

use crate::clock::dependent_additions;

/// Executes `additions` additions. Each depends on the one before it.
pub fn work(additions: u64) {
    if !dependent_additions(additions) {
        let mut sum = 1_u64;
        for _ in 0..additions {
            sum = std::hint::black_box(sum).wrapping_add(sum);
        }
    }
}
