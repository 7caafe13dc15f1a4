//! Table `spectrum`: the lost work by frequency.

use record::{Kind, Table};

use super::super::sample::{LoopResult, NoiseSample};
use super::{column, cpu_column, no_rows};

/// One row per CPU and frequency.
pub fn spectrum(samples: &[NoiseSample]) -> Table {
    let columns = vec![
        cpu_column(),
        column("frequency_hz", Kind::Real, "Frequency, up to half of the frequency of quanta."),
        column(
            "amplitude_ratio",
            Kind::Real,
            "Amplitude of the sine of the frequency in the lost work, over the maximum work in a \
             quantum.",
        ),
    ];
    let doc = "Spectrum of the work lost in the first quanta of fixed time (Welch's method).";
    let mut table = Table::new("spectrum", doc, columns).displayed(no_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Slots(slots) = &cpu.result else { continue };
            if slots.slot_ns == 0 || slots.work_max == 0 {
                continue;
            }
            let work_max = slots.work_max as f64;
            let missing: Vec<f64> =
                slots.first.iter().map(|work| 1.0 - *work as f64 / work_max).collect();
            for (frequency, amplitude) in stats::spectrum::spectrum(&missing) {
                let hz = frequency * 1e9 / slots.slot_ns as f64;
                table.push(vec![u64::from(cpu.cpu).into(), hz.into(), amplitude.into()]);
            }
        }
    }
    table
}
