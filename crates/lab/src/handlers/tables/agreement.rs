//! Table `agreement`: irqlab's counts compared with the kernel's own.

use record::{Column, Keep, Kind, RowFilter, Table, TableDisplay, Value};

use super::super::sample::Agreement;
use super::super::samples::ConditionSamples;
use super::condition_column;

/// One row per counter line and CPU of the timing pass.
pub fn agreement(measured: &[ConditionSamples]) -> Table {
    let columns = vec![
        condition_column().priority(90),
        Column::new("cpu", Kind::Uint, "CPU.").priority(80),
        Column::new(
            "line",
            Kind::Text,
            "Line of /proc/interrupts or /proc/softirqs; `devices` stands for all IRQ lines.",
        )
        .priority(100),
        Column::new("name", Kind::Text, "Name of the line's interrupt or softirq.").priority(30),
        Column::new("irqlab_count", Kind::Uint, "Entries that irqlab's probes counted in the window.")
            .title("irqlab")
            .priority(95),
        Column::new(
            "kernel_count",
            Kind::Uint,
            "The kernel's own counter, read on that CPU with interrupts disabled when the window \
             opened and closed.",
        )
        .title("kernel")
        .priority(94),
        Column::new(
            "kernel_min_count",
            Kind::Uint,
            "Lower bound by the files in /proc: the difference of readings just inside the window.",
        )
        .title("kernel min")
        .priority(45),
        Column::new(
            "kernel_max_count",
            Kind::Uint,
            "Upper bound by the files in /proc: the difference of readings just outside the window.",
        )
        .title("kernel max")
        .priority(44),
        Column::new(
            "difference_count",
            Kind::Int,
            "irqlab_count minus kernel_count or, where that is absent, minus the nearer of \
             kernel_min_count and kernel_max_count; 0 between the two.",
        )
        .title("difference")
        .priority(93),
        Column::new(
            "edge_tolerance_count",
            Kind::Uint,
            "Difference that is allowed because an interrupt may fall on an edge of the window, and \
             for all IRQ lines together, because the kernel counts nested threaded interrupts, of \
             which have no tracepoint.",
        )
        .title("tolerance")
        .priority(40),
        Column::new(
            "agrees",
            Kind::Bool,
            "Whether irqlab_count equals the kernel's counter, within edge_tolerance_count or \
             within the bounds of the files.",
        )
        .priority(85),
    ];
    let doc = "irqlab's counts compared with the kernel's own, for every line that either counted.";
    let filter = RowFilter {
        column: "agrees".to_owned(),
        keep: Keep::Bool(false),
        others: "that agree or have no probe".to_owned(),
    };
    let display = TableDisplay {
        title: in_words(measured),
        filter: Some(filter),
        rows_max: Some(10),
        ..TableDisplay::default()
    };
    let mut table = Table::new("agreement", doc, columns).displayed(display);
    for one in measured {
        for line in one.timing.agreement.iter().filter(|line| moved(line)) {
            let row: Vec<Value> = vec![
                one.condition.label().into(),
                u64::from(line.cpu).into(),
                line.line.clone().into(),
                line.name.clone().into(),
                line.counted.into(),
                line.kernel_exact.into(),
                line.kernel_min.into(),
                line.kernel_max.into(),
                difference(line).map_or(Value::Absent, Value::Int),
                line.edge_max.into(),
                agrees(line).into(),
            ];
            table.push(row);
        }
    }
    table
}

fn moved(line: &Agreement) -> bool {
    [line.counted, line.kernel_exact, line.kernel_max].into_iter().flatten().any(|count| count > 0)
}

/// `None` where there is nothing to compare.
fn agrees(line: &Agreement) -> Option<bool> {
    let counted = line.counted?;
    if let Some(exact) = line.kernel_exact {
        return Some(counted.abs_diff(exact) <= line.edge_max);
    }
    Some(line.kernel_min? <= counted && counted <= line.kernel_max?)
}

/// How far irqlab's count is off the kernel's, or off the nearer of the kernel's bounds.
fn difference(line: &Agreement) -> Option<i64> {
    let signed = |count: u64| i64::try_from(count).ok();
    let counted = signed(line.counted?)?;
    let min = signed(line.kernel_exact.or(line.kernel_min)?)?;
    let max = signed(line.kernel_exact.or(line.kernel_max)?)?;
    Some(counted - counted.clamp(min, max.max(min)))
}

/// How many counters agree, and how well.
#[derive(Default)]
struct Tally {
    /// Equal to the kernel's counter.
    equal: u64,
    /// Within what the window's edges, or the files read around them, leave open.
    within: u64,
    differing: u64,
    /// Sum of the kernel's exact counters that were compared.
    kernel: u64,
    /// Sum of the differences from these.
    apart: u64,
}

/// The result of the comparison as a sentence: the title of the table.
fn in_words(measured: &[ConditionSamples]) -> String {
    let mut tally = Tally::default();
    let lines = measured.iter().flat_map(|one| &one.timing.agreement);
    for line in lines.filter(|line| moved(line)) {
        let exact = line.counted.zip(line.kernel_exact);
        if let Some((counted, kernel)) = exact {
            tally.kernel = tally.kernel.saturating_add(kernel);
            tally.apart = tally.apart.saturating_add(counted.abs_diff(kernel));
        }
        match agrees(line) {
            Some(true) if exact.is_some_and(|(counted, kernel)| counted == kernel) => {
                tally.equal += 1;
            }
            Some(true) => tally.within += 1,
            Some(false) => tally.differing += 1,
            None => {}
        }
    }
    let Tally { equal, within, differing, kernel, apart } = tally;
    let compared = equal + within + differing;
    let which = match (compared, differing) {
        (0, _) => return "none of the kernel's counters could be compared".to_owned(),
        (1, 0) => "the one counter that moved agrees".to_owned(),
        (_, 0) => format!("all {compared} counters agree"),
        _ => format!("{} of {compared} counters agree", equal + within),
    };
    let within = match within {
        0 => String::new(),
        _ => format!(", {within} within the tolerance of the window's edges"),
    };
    let differing = match differing {
        0 => String::new(),
        _ => {
            let verb = if differing == 1 { "differs" } else { "differ" };
            let share = 100.0 * apart as f64 / kernel as f64;
            let share = (kernel > 0).then(|| format!(" (by {share:.3} % of all counts)"));
            format!("; {differing} {verb}{}", share.unwrap_or_default())
        }
    };
    format!("{which} with the kernel's own: {equal} exactly{within}{differing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted by irqlab, exactly by the kernel, at least and at most by the files.
    fn line(counted: u64, exact: Option<u64>, bounds: Option<(u64, u64)>) -> Agreement {
        Agreement {
            cpu: 0,
            line: "LOC".to_owned(),
            name: String::new(),
            counted: Some(counted),
            kernel_exact: exact,
            kernel_min: bounds.map(|(min, _)| min),
            kernel_max: bounds.map(|(_, max)| max),
            edge_max: 1,
        }
    }

    #[test]
    fn differences_are_from_the_counter_or_the_nearer_bound() {
        for (line, expected) in [
            (line(100, Some(100), None), Some(0)),
            (line(99, Some(103), None), Some(-4)),
            (line(8, None, Some((7, 9))), Some(0)),
            (line(12, None, Some((7, 9))), Some(3)),
            (line(5, None, Some((7, 9))), Some(-2)),
            (line(5, None, None), None),
        ] {
            assert_eq!(difference(&line), expected);
        }
    }
}
