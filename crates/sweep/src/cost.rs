//! Sums up CPU time and size of a sweep's results. `irqlab sweep status` estimates further tasks by their mean.

use crate::directory::SweepDirectory;
use crate::result::ResultManifest;

/// Number of results that are read at most. Reading all results of a large sweep would take minutes on a shared file system.
const READ_MAX: usize = 1_000;

/// Sums over results of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredCosts {
    /// Number of results that were read.
    pub result_count: u64,
    /// Size of the files of all results that were read.
    pub bytes: u64,
    /// Number of results that state their CPU time.
    pub timed_count: u64,
    /// CPU time of the tasks that `timed_count` counts.
    pub cpu_time_ns: u128,
}

impl MeasuredCosts {
    /// Reads the results of the tasks at these positions of the plan: all of them, or up to 1,000 that are spread evenly.
    /// Leaves out results that cannot be read, which `merge` refuses.
    #[must_use]
    pub fn read(sweep: &SweepDirectory, done: &[usize]) -> MeasuredCosts {
        let mut costs = MeasuredCosts::default();
        for index in done.iter().step_by(done.len().div_ceil(READ_MAX).max(1)) {
            let Some(task) = sweep.plan().tasks.get(*index) else { continue };
            let Ok(manifest) = ResultManifest::read(&sweep.task_path(&task.id)) else { continue };
            costs.result_count += 1;
            costs.bytes += manifest.files.iter().map(|file| file.bytes).sum::<u64>();
            if let Some(cpu_time_ns) = manifest.cost.and_then(|cost| cost.cpu_time_ns) {
                costs.timed_count += 1;
                costs.cpu_time_ns += u128::from(cpu_time_ns);
            }
        }
        costs
    }

    /// Mean CPU time of the tasks whose results state it, seconds. `None` if no result does.
    #[must_use]
    pub fn mean_cpu_time_s(&self) -> Option<f64> {
        (self.timed_count > 0).then(|| self.cpu_time_ns as f64 / 1e9 / self.timed_count as f64)
    }

    /// Mean size of the files of a result, bytes, rounded down. `None` without a result.
    #[must_use]
    pub fn mean_bytes(&self) -> Option<u64> {
        self.bytes.checked_div(self.result_count)
    }
}
