//! Table `spectrum`: how much of the work of slots is missing at which frequency.

use record::{Kind, Table};

use super::super::sample::{NoiseSample, Work};
use super::{column, cpu_column};

/// One row a CPU and frequency.
pub fn spectrum(samples: &[NoiseSample]) -> Table {
    let columns = vec![
        cpu_column(),
        column("frequency_hz", Kind::Real, "Frequency, up to half of that of the slots."),
        column(
            "amplitude_ratio",
            Kind::Real,
            "Amplitude of the sine of that frequency in the missing work, over a slot's most work.",
        ),
    ];
    let doc = "Spectrum of the work missing in the first slots of fixed time (Welch's method).";
    let mut table = Table::new("spectrum", doc, columns);
    for sample in samples {
        for cpu in &sample.cpus {
            let Work::Slots(slots) = &cpu.work else { continue };
            if slots.slot_ns == 0 || slots.work_max == 0 {
                continue;
            }
            let most = slots.work_max as f64;
            let missing: Vec<f64> =
                slots.first.iter().map(|work| 1.0 - *work as f64 / most).collect();
            for (frequency, amplitude) in stats::spectrum::spectrum(&missing) {
                let hz = frequency * 1e9 / slots.slot_ns as f64;
                table.push(vec![u64::from(cpu.cpu).into(), hz.into(), amplitude.into()]);
            }
        }
    }
    table
}
