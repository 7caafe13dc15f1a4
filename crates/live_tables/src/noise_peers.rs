//! Tables `noise_peers` and `windows` of `irqlab bench noise-peers`: irqlab's detour loop
//! compared with oslat and cyclictest.

use live::selfbench::noise_peers::{Seen, Tool};
use record::{Columns, Table, column};

use crate::spread::{Spread, spread_columns};

/// The tables of the tools' windows. Each window in `seen` has counts above the
/// thresholds `thresholds_us`, in this order.
#[must_use]
pub fn tables(thresholds_us: &[u64], seen: &[Seen]) -> Vec<Table> {
    vec![peers(thresholds_us, seen), windows(seen)]
}

/// A row of table `noise_peers`: how many gaps above a threshold a tool found.
struct PeerRates {
    threshold_ns: u64,
    tool: Tool,
    /// Gaps per second by this tool; `None` without windows.
    rates: Option<Spread>,
    /// Gaps per second by irqlab above the same threshold.
    irqlab: Option<Spread>,
}

impl PeerRates {
    /// The tool's median divided by irqlab's median. `None` for irqlab itself, and if irqlab's median is 0.
    fn over_irqlab(&self) -> Option<f64> {
        let (rates, irqlab) = self.rates.zip(self.irqlab)?;
        let is_comparable = self.tool != Tool::Irqlab && irqlab.median > 0.0;
        is_comparable.then(|| rates.median / irqlab.median)
    }

    /// Whether the range of the rounds overlaps irqlab's range. `None` for other tools than oslat: only oslat counts
    /// the same gaps as irqlab.
    fn overlaps_irqlab(&self) -> Option<bool> {
        let (rates, irqlab) = self.rates.zip(self.irqlab)?;
        let overlaps = rates.min <= irqlab.max && rates.max >= irqlab.min;
        (self.tool == Tool::Oslat).then_some(overlaps)
    }
}

/// Gaps per second of a tool over its rounds, above the threshold with this index. `None` if no window opened.
fn rates(seen: &[Seen], tool: Tool, index: usize) -> Option<Spread> {
    let windows = seen.iter().filter(|seen| seen.tool == tool && seen.window_ns > 0);
    let rate = |seen: &Seen| seen.above[index] as f64 * 1e9 / seen.window_ns as f64;
    Spread::from_values(windows.map(rate).collect())
}

/// Table `noise_peers`: gaps per second that each tool found above each threshold, over the rounds.
fn peers(thresholds_us: &[u64], seen: &[Seen]) -> Table {
    let rows = thresholds_us.iter().enumerate().flat_map(|(index, us)| {
        let irqlab = rates(seen, Tool::Irqlab, index);
        [Tool::Irqlab, Tool::Oslat, Tool::Cyclictest].map(|tool| PeerRates {
            threshold_ns: us * 1000,
            tool,
            rates: rates(seen, tool, index),
            irqlab,
        })
    });
    let columns = Columns::all([
        column("threshold_ns", "Gaps (or wake-up latencies) longer than this are counted.")
            .uint(|row: &PeerRates| row.threshold_ns),
        column("tool", "Tool that counted.").text(|row: &PeerRates| row.tool.word()),
        spread_columns("rate", "hz", "Gaps per second; median of the rounds.")
            .of_ref(|row: &PeerRates| &row.rates),
        column("over_irqlab_ratio", "Median over irqlab's median.").real(PeerRates::over_irqlab),
        column(
            "overlaps",
            "Whether the range of the tool's rounds, minimum to maximum, overlaps irqlab's range.",
        )
        .bool(PeerRates::overlaps_irqlab),
    ]);
    let doc = "Gaps above a common threshold. cyclictest counts late wake-ups, which are not gaps.";
    columns.table("noise_peers", doc, rows.filter(|row| row.rates.is_some()))
}

/// Table `windows`: each window of each tool.
fn windows(seen: &[Seen]) -> Table {
    let columns = Columns::all([
        column("round", "Round, from 1.").uint(|window: &Seen| window.round + 1),
        column("tool", "Tool that measured.").text(|window: &Seen| window.tool.word()),
        column("window_ns", "Length of the tool's window.").uint(|window: &Seen| window.window_ns),
        column("sample_count", "Readings of the clock, or wake-ups.")
            .uint(|window: &Seen| window.looks),
        column("max_ns", "The longest gap, or the longest wake-up latency.")
            .uint(|window: &Seen| window.max_ns),
    ]);
    columns.table("windows", "The tools' windows, in order of time.", seen)
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    #[test]
    fn tools_are_compared_above_each_threshold() {
        let seen = |tool, above: [u64; 2]| Seen {
            tool,
            round: 0,
            window_ns: 500_000_000,
            above: above.to_vec(),
            looks: None,
            max_ns: 0,
        };
        let windows = [
            seen(Tool::Irqlab, [10, 0]),
            seen(Tool::Irqlab, [20, 0]),
            seen(Tool::Oslat, [15, 1]),
            // A window that did not open is not counted.
            Seen { window_ns: 0, ..seen(Tool::Cyclictest, [9, 9]) },
        ];
        let tables = tables(&[2, 50], &windows);
        let table = &tables[0];
        let cells = |name: &str| -> Vec<Value> {
            table.rows().iter().filter_map(|row| table.get(row, name).cloned()).collect()
        };
        assert_eq!(cells("tool"), ["irqlab", "oslat", "irqlab", "oslat"].map(Value::from));
        assert_eq!(cells("rate_hz"), [30.0, 30.0, 0.0, 2.0].map(Value::Real));
        assert_eq!(cells("rate_min_hz")[0], Value::Real(20.0));
        let ratios = [Value::Absent, Value::Real(1.0), Value::Absent, Value::Absent];
        assert_eq!(cells("over_irqlab_ratio"), ratios);
        let overlaps = [Value::Absent, true.into(), Value::Absent, false.into()];
        assert_eq!(cells("overlaps"), overlaps);
        assert_eq!(tables[1].rows().len(), windows.len());
    }
}
