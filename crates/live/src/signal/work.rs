//! Work of a known length: the handling of an event, and the background job's iterations. `events` and `background`
//! execute it.

use crate::clock::dependent_additions;

/// Executes this number of additions. Each depends on the previous one, so each takes about one core cycle.
pub fn work(additions: u64) {
    if !dependent_additions(additions) {
        let mut sum = 1_u64;
        for _ in 0..additions {
            sum = std::hint::black_box(sum).wrapping_add(sum);
        }
    }
}
