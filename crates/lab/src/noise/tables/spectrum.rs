//! Table `spectrum`: the work lost in quanta of fixed time, by frequency. A picture uses it.

use record::{Columns, Table, column};

use super::super::sample::{LoopResult, NoiseSample};
use super::{cpu_column, no_rows};

/// Table `spectrum`: one row per CPU and frequency.
pub fn spectrum(samples: &[NoiseSample]) -> Table {
    /// A CPU, a frequency, Hz, and the amplitude of this frequency.
    type Row = (u32, f64, f64);
    let columns = Columns::all([
        cpu_column(100).of(|(cpu, ..): &Row| *cpu),
        column("frequency_hz", "Frequency, up to half of the frequency of quanta.")
            .real(|(_, hz, _): &Row| *hz),
        column(
            "amplitude_ratio",
            "Amplitude of the sine of the frequency in the lost work, over the work of a quantum \
             without interference: the maximum work in a quantum, and at least the 64 units for which the loop was \
             calibrated. Work is counted in whole units.",
        )
        .real(|(.., amplitude): &Row| *amplitude),
    ]);
    let mut rows = Vec::new();
    for cpu in samples.iter().flat_map(|sample| &sample.cpus) {
        let LoopResult::Slots(slots) = &cpu.result else { continue };
        if slots.slot_length_ns <= 0.0 || slots.work_max == 0 {
            continue;
        }
        let possible_work = slots.possible_work() as f64;
        let lost_ratios: Vec<f64> =
            slots.first.iter().map(|work| 1.0 - *work as f64 / possible_work).collect();
        let hz = |frequency: f64| frequency * 1e9 / slots.slot_length_ns;
        let spectrum = stats::spectrum::spectrum(&lost_ratios).into_iter();
        rows.extend(spectrum.map(|(frequency, amplitude)| (cpu.cpu, hz(frequency), amplitude)));
    }
    let doc = "Spectrum of the work lost in the first quanta of fixed time (Welch's method).";
    columns.table("spectrum", doc, rows).displayed(no_rows())
}
