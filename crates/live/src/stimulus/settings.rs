//! Configuration of a stimulus or a load. The measuring process builds it, and passes it to the stimulus process as
//! JSON (`wire.rs`).

use std::path::PathBuf;
use std::time::Duration;

use lab::handlers::{Rate, Stimulus};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::error::StimulusError;
use super::peer::split_peer;
use crate::host::process_cpus;

/// One stimulus, its rate and its CPUs. Build it with [`StimulusSettings::new`], and change the
/// fields that need other values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StimulusSettings {
    /// The kind of stimulus, which raises the interrupts.
    pub stimulus: Stimulus,
    pub rate: Rate,
    /// Time between two operations at [`Rate::Low`]; 50 ms by default, 100 µs to 60 s allowed.
    pub low_interval: Duration,
    /// Time between two expirations of the timer stimulus at [`Rate::High`]; 50 µs by default,
    /// 10 µs (the kernel's own limit) to 100 ms allowed.
    pub timer_period: Duration,
    /// CPUs under measurement; `docs/stimuli.md` says which threads are pinned to them.
    pub cpus: Vec<u32>,
    /// CPUs for auxiliary threads; may be empty.
    pub housekeeping: Vec<u32>,
    /// All CPUs that the measuring process may use. The stimulus process cannot ask the kernel: it inherits the
    /// affinity of the thread that starts it, which may be pinned.
    pub usable: Vec<u32>,
    /// `HOST` or `HOST:PORT` of a peer that a real NIC reaches, instead of the veth pair.
    pub peer: Option<String>,
    /// Whether two cards of a simulated machine replace the veth pair. They are `eth0` and `eth1`,
    /// connected back to back.
    pub cards: bool,
    /// An existing file or block device to read, instead of a scratch file. Never written.
    pub disk_file: Option<PathBuf>,
    /// Directory of the disk stimulus's scratch file; see
    /// [`default_scratch_dir`](super::default_scratch_dir).
    pub scratch_dir: PathBuf,
    /// Size in bytes of the scratch file; by default 16 MiB (low) or 256 MiB (high).
    pub scratch_bytes: Option<u64>,
}

impl StimulusSettings {
    /// The default settings of a stimulus: interval 50 ms, timer period 50 µs, veth pair, scratch
    /// file in [`default_scratch_dir`](super::default_scratch_dir), no housekeeping CPU.
    #[must_use]
    pub fn new(stimulus: Stimulus, rate: Rate, cpus: Vec<u32>) -> Self {
        StimulusSettings {
            stimulus,
            rate,
            low_interval: Duration::from_millis(50),
            timer_period: Duration::from_micros(50),
            cpus,
            housekeeping: Vec::new(),
            usable: process_cpus().started_with.clone(),
            peer: None,
            cards: false,
            disk_file: None,
            scratch_dir: super::default_scratch_dir(),
            scratch_bytes: None,
        }
    }

    /// Refuses invalid settings before a process is started.
    ///
    /// Fails with [`StimulusError::Invalid`], which says which values are allowed.
    pub fn validate(&self) -> Result<(), StimulusError> {
        check_cpus(&self.cpus)?;
        check_cpus_in_range(&self.housekeeping)?;
        if let Some(peer) = &self.peer {
            split_peer(peer).map_err(StimulusError::Invalid)?;
        }
        let low = Duration::from_micros(100)..=Duration::from_secs(60);
        check_interval("low interval", self.low_interval, low)?;
        let period = Duration::from_micros(10)..=Duration::from_millis(100);
        check_interval("timer period", self.timer_period, period)
    }
}

/// Settings of the busy load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadSettings {
    /// CPUs under measurement. A thread is pinned to each.
    pub cpus: Vec<u32>,
    /// Size of the compressed region in bytes; by default twice the last-level cache, at least
    /// 32 MiB, at most an eighth of the available memory, and 64 MiB if the cache is unknown.
    pub region_bytes: Option<u64>,
    /// Size of the last-level cache in bytes, if known.
    pub last_level_cache_bytes: Option<u64>,
}

impl LoadSettings {
    /// Refuses invalid settings before a process is started.
    pub(super) fn validate(&self) -> Result<(), StimulusError> {
        check_cpus(&self.cpus)
    }
}

fn check_cpus(cpus: &[u32]) -> Result<(), StimulusError> {
    if cpus.is_empty() {
        return Err(StimulusError::Invalid("no CPU to raise interrupts on was given".to_owned()));
    }
    check_cpus_in_range(cpus)
}

fn check_cpus_in_range(cpus: &[u32]) -> Result<(), StimulusError> {
    match cpus.iter().find(|&&cpu| cpu as usize >= CpuSet::MAX_CPU) {
        Some(cpu) => Err(StimulusError::Invalid(format!(
            "CPU {cpu} is out of range (0 to {})",
            CpuSet::MAX_CPU - 1
        ))),
        None => Ok(()),
    }
}

fn check_interval(
    setting_name: &str,
    interval: Duration,
    allowed: std::ops::RangeInclusive<Duration>,
) -> Result<(), StimulusError> {
    if allowed.contains(&interval) {
        return Ok(());
    }
    let (from, to) = (allowed.start(), allowed.end());
    Err(StimulusError::Invalid(format!(
        "{setting_name} {interval:?} is not within {from:?} to {to:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_before_anything_starts() {
        let good = StimulusSettings::new(Stimulus::Timer, Rate::Low, vec![0]);
        assert!(good.validate().is_ok());
        for bad in [
            StimulusSettings { cpus: Vec::new(), ..good.clone() },
            StimulusSettings { cpus: vec![u32::MAX], ..good.clone() },
            StimulusSettings { housekeeping: vec![1 << 20], ..good.clone() },
            StimulusSettings { low_interval: Duration::ZERO, ..good.clone() },
            StimulusSettings { peer: Some("host:".to_owned()), ..good.clone() },
            StimulusSettings { timer_period: Duration::from_secs(1), ..good.clone() },
        ] {
            assert!(matches!(bad.validate(), Err(StimulusError::Invalid(_))), "{bad:?}");
        }
    }
}
