//! [`Transport`]: how ranks exchange messages and take part in collectives.

use lab::experiment::BenchError;
use lab::noise::collective::Operation;

/// The connection of a rank to all other ranks. Only the rank's own thread uses it.
///
/// Every function fails with the reason if the time limit passes, or if another rank is gone.
pub trait Transport {
    /// Number of this rank.
    fn rank(&self) -> u32;

    fn rank_count(&self) -> u32;

    /// How the ranks are connected, in words.
    fn describe(&self) -> String;

    /// Whether to wait busily. If not, waits sleep, because ranks share CPUs.
    fn set_busy_waits(&mut self, waits_busily: bool);

    /// Sends a message. Only rank 0 and another rank exchange messages.
    fn send(&mut self, to: u32, message: &[u8]) -> Result<(), BenchError>;

    /// Receives the next message of a rank.
    ///
    /// Fails also if the message has more than `bytes_max` bytes.
    fn receive(&mut self, from: u32, bytes_max: usize) -> Result<Vec<u8>, BenchError>;

    /// Takes part in a collective. `number` is its number, which is the same on all ranks.
    fn collective(&mut self, operation: Operation, number: u64) -> Result<(), BenchError>;

    /// Tells the other ranks, if possible, that the job has failed.
    fn abort(&mut self, reason: &str);

    /// Ends the connection after the job.
    fn finish(&mut self) -> Result<(), BenchError>;
}

/// Connects a rank. Called once, on the rank's own thread.
pub type Connect = Box<dyn FnOnce() -> Result<Box<dyn Transport>, BenchError> + Send>;

/// The sum of an allreduce of `number + rank` over all ranks, which each rank checks.
pub(super) fn expected_sum(number: u64, rank_count: u32) -> u64 {
    let count = u64::from(rank_count);
    number.wrapping_mul(count).wrapping_add(count * count.saturating_sub(1) / 2)
}

/// The error of a collective whose result is not the expected one.
pub(super) fn out_of_step(number: u64) -> BenchError {
    BenchError::Failed(format!(
        "collective {number} has the wrong result: another rank is at another collective, or is no irqlab"
    ))
}
