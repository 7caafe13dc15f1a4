//! Tables `overhead` and `targets` of `irqlab bench overhead`: the overhead of a pair of probes, compared with other
//! tools and with irqlab's targets.

use lab::targets::{Target, target_columns};
use live::bpf::Flavour;
use live::selfbench::overhead::{Attached, Cost, Overhead};
use live::syscall_loop::median;
use record::{Columns, Table, column};

use crate::spread::{Spread, spread_columns};

// The limits that docs/bench.md promises.
/// Largest overhead of irqlab's probes over that of an empty pair of probes.
const EMPTY_PAIR_RATIO_MAX: f64 = 1.3;
/// Largest overhead of irqlab's probes over that of two readings of the clock.
const CLOCK_READINGS_RATIO_MAX: f64 = 1.15;
/// Largest overhead of irqlab's probes over that of bpftrace.
const BPFTRACE_RATIO_MAX: f64 = 1.0 / 3.0;

/// The tables of an overhead that was measured on `cpu`.
#[must_use]
pub fn tables(cpu: u32, overhead: &Overhead) -> Vec<Table> {
    vec![costs(cpu, overhead), targets(overhead)]
}

/// Table `overhead`: the costs of each tool.
fn costs(cpu: u32, overhead: &Overhead) -> Table {
    let columns = Columns::all([
        column("probe", "Probes that were attached to the entry and exit of a system call.")
            .text(|cost: &Cost| cost.attached.label()),
        spread_columns(
            "probe_overhead",
            "ns",
            "Time that the probes add to a call: median of the rounds.",
        )
        .of(|cost: &Cost| Spread::from_values(cost.added_ns.clone())),
        column(
            "over_empty_ratio",
            "Overhead over the overhead of the empty tp_btf pair: median of the rounds' ratios.",
        )
        .real(|cost: &Cost| median(cost.ratio.clone())),
        column("call_ns", "Duration of a call with the probes: median of the rounds.")
            .real(|cost: &Cost| median(cost.call_ns.clone())),
        column("round_count", "Number of measured rounds.").uint(|cost: &Cost| cost.call_ns.len()),
        column("span_count", "Spans that the tool itself counted in these rounds.")
            .uint(|cost: &Cost| cost.counted.map(|(spans, _)| spans)),
        column(
            "call_count",
            "Calls that irqlab's loops made in these rounds, for bpftrace with the check that it is active; other \
             programs on the CPU add to span_count.",
        )
        .uint(|cost: &Cost| cost.counted.map(|(_, calls)| calls)),
        column("method", "How the probes were attached.")
            .text(move |cost: &Cost| cost.attached.method(cpu)),
    ]);
    columns.table("overhead", "Overhead of each tool per system call.", &overhead.costs)
}

/// Table `targets`: the limits on irqlab's overhead, and whether it meets them. A target is not judged if one of its two
/// tools was not measured.
fn targets(overhead: &Overhead) -> Table {
    let irqlab = overhead.cost(Attached::Irqlab(Flavour::Btf));
    let target = |name, other: Attached, limit: f64| {
        let costs = irqlab.zip(overhead.cost(other));
        let value = costs.and_then(|(irqlab, other)| median_ratio(irqlab, other));
        Target::at_most(name, value, limit)
    };
    let rows = [
        target("irqlab / empty pair", Attached::Empty(Flavour::Btf), EMPTY_PAIR_RATIO_MAX),
        target(
            "irqlab / two clock readings",
            Attached::Clocks(Flavour::Btf),
            CLOCK_READINGS_RATIO_MAX,
        ),
        target("irqlab / bpftrace", Attached::Bpftrace, BPFTRACE_RATIO_MAX),
    ];
    let columns = target_columns(
        column("target", "The two overheads that the target compares."),
        column("measured_ratio", "Measured: median of the rounds' ratios."),
        column("limit_ratio", "The largest ratio that meets the target."),
    );
    columns.table("targets", "Targets for the overhead of irqlab's probes.", rows)
}

/// The overhead of `cost` divided by that of `other`: median of the rounds' ratios. `None` without rounds.
fn median_ratio(cost: &Cost, other: &Cost) -> Option<f64> {
    let rounds = cost.added_ns.iter().zip(&other.added_ns);
    median(rounds.map(|(added, other)| added / other).collect())
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    #[test]
    fn a_target_is_judged_by_the_median_of_the_rounds_ratios() {
        let cost = |attached, added_ns: [f64; 3]| Cost {
            attached,
            call_ns: vec![100.0; 3],
            added_ns: added_ns.to_vec(),
            ratio: Vec::new(),
            counted: None,
        };
        let costs = vec![
            cost(Attached::Irqlab(Flavour::Btf), [60.0, 50.0, 90.0]),
            cost(Attached::Empty(Flavour::Btf), [40.0, 50.0, 60.0]),
            cost(Attached::Bpftrace, [300.0; 3]),
        ];
        let tables = tables(0, &Overhead { costs, ..Overhead::default() });
        let cells = |table: usize, name: &str| -> Vec<Value> {
            let table = &tables[table];
            table.rows().iter().filter_map(|row| table.get(row, name).cloned()).collect()
        };
        assert_eq!(cells(0, "probe_overhead_ns"), [60.0, 50.0, 300.0].map(Value::Real));
        assert_eq!(cells(0, "probe_overhead_max_ns")[0], Value::Real(90.0));
        // The probes that read the clock twice were not measured.
        assert_eq!(cells(1, "measured_ratio"), [1.5.into(), Value::Absent, 0.2.into()]);
        assert_eq!(cells(1, "met"), [false.into(), Value::Absent, true.into()]);
    }
}
