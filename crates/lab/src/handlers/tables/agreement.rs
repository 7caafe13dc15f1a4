//! Table `agreement`: irqlab's counts compared with the kernel's counters. Users' programs read the
//! columns: names and order must not change.

use record::{Columns, Keep, RowFilter, Table, TableDisplay, column};

use super::super::sample::Agreement;
use super::super::samples::ConditionSamples;
use super::condition_column;

/// Table `agreement`: one row per counter line and CPU of the timing pass.
pub fn agreement(measured: &[ConditionSamples]) -> Table {
    /// The label of a condition, and a counter of its window.
    type Row<'a> = (String, &'a Agreement);
    let columns = Columns::all([
        condition_column(90).of_ref(|(condition, _): &Row<'_>| condition),
        column("cpu", "CPU.").priority(80).uint(|(_, line): &Row<'_>| line.cpu),
        column(
            "line",
            "Line of /proc/interrupts or /proc/softirqs; `devices` stands for all IRQ lines.",
        )
        .priority(100)
        .text(|(_, line): &Row<'_>| line.line.clone()),
        column("name", "Name of the line's interrupt or softirq.")
            .priority(30)
            .text(|(_, line): &Row<'_>| line.name.clone()),
        column("irqlab_count", "Entries that irqlab's probes counted in the window.")
            .shown_as("irqlab", 95)
            .uint(|(_, line): &Row<'_>| line.counted),
        column(
            "kernel_count",
            "The kernel's own counter, read on that CPU with interrupts disabled when the \
             window opened and closed.",
        )
        .shown_as("kernel", 94)
        .uint(|(_, line): &Row<'_>| line.kernel_exact),
        column(
            "kernel_min_count",
            "Lower bound by the files in /proc: the difference of readings just inside the \
             window.",
        )
        .shown_as("kernel min", 45)
        .uint(|(_, line): &Row<'_>| line.kernel_min),
        column(
            "kernel_max_count",
            "Upper bound by the files in /proc: the difference of readings just outside the \
             window. Absent if the kernel freed the IRQ line meanwhile, as in the reset of a device: \
             its counts are lost then.",
        )
        .shown_as("kernel max", 44)
        .uint(|(_, line): &Row<'_>| line.kernel_max),
        column(
            "difference_count",
            "irqlab_count minus kernel_count or, where that is absent, minus the nearer of \
             kernel_min_count and kernel_max_count; 0 between the two.",
        )
        .shown_as("difference", 93)
        .int(|(_, line): &Row<'_>| difference(line)),
        column(
            "edge_tolerance_count",
            "Maximum difference that is allowed, because an interrupt may fall on an edge of \
             the window. For all IRQ lines together, also because the kernel counts nested \
             threaded interrupts, which have no tracepoint.",
        )
        .shown_as("tolerance", 40)
        .uint(|(_, line): &Row<'_>| line.edge_max),
        column(
            "agrees",
            "Whether irqlab_count equals the kernel's counter, within edge_tolerance_count or \
             within the bounds of the files.",
        )
        .priority(85)
        .bool(|(_, line): &Row<'_>| agrees(line)),
    ]);
    let doc = "irqlab's counts compared with the kernel's own, for every line that either \
             counted.";
    let filter = RowFilter {
        column: "agrees".to_owned(),
        keep: Keep::Bool(false),
        others: "that agree or have no probe".to_owned(),
    };
    let display = TableDisplay {
        title: title(measured),
        filter: Some(filter),
        rows_max: Some(10),
        ..TableDisplay::default()
    };
    let rows = measured.iter().flat_map(|condition| {
        let lines = condition.timing.agreement.iter().filter(|line| has_events(line));
        lines.map(|line| (condition.condition.label(), line))
    });
    columns.table("agreement", doc, rows).displayed(display)
}

/// Whether irqlab or the kernel counted an event.
fn has_events(line: &Agreement) -> bool {
    [line.counted, line.kernel_exact, line.kernel_max].into_iter().flatten().any(|count| count > 0)
}

/// Whether the counts agree within the tolerance, or within the bounds by the files. `None` if a count is missing.
fn agrees(line: &Agreement) -> Option<bool> {
    let counted = line.counted?;
    if let Some(exact) = line.kernel_exact {
        return Some(counted.abs_diff(exact) <= line.edge_max);
    }
    Some(line.kernel_min? <= counted && counted <= line.kernel_max?)
}

/// irqlab's count minus the kernel's exact count, or minus the nearer bound by the files; 0 between the bounds. `None`
/// if either count is not known.
fn difference(line: &Agreement) -> Option<i64> {
    let signed = |count: u64| i64::try_from(count).ok();
    let counted = signed(line.counted?)?;
    let min = signed(line.kernel_exact.or(line.kernel_min)?)?;
    let max = signed(line.kernel_exact.or(line.kernel_max)?)?;
    Some(counted - counted.clamp(min, max.max(min)))
}

/// Numbers of counters that agree or differ, and the sum of their differences.
#[derive(Default)]
struct Tally {
    /// Counters equal to the kernel's exact count.
    equal: u64,
    /// Counters within the edge tolerance, or within the bounds by the files.
    within: u64,
    differing: u64,
    /// Sum of the kernel's exact counts, over the counters that irqlab counts, too.
    kernel: u64,
    /// Sum of the absolute differences between irqlab's counts and the counts in `kernel`.
    difference: u64,
}

/// The title of the table: the result of the comparison as a sentence.
fn title(measured: &[ConditionSamples]) -> String {
    let mut tally = Tally::default();
    let lines = measured.iter().flat_map(|condition| &condition.timing.agreement);
    for line in lines.filter(|line| has_events(line)) {
        let exact = line.counted.zip(line.kernel_exact);
        if let Some((counted, kernel)) = exact {
            tally.kernel = tally.kernel.saturating_add(kernel);
            tally.difference = tally.difference.saturating_add(counted.abs_diff(kernel));
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
    let Tally { equal, within, differing, kernel, difference } = tally;
    let compared = equal + within + differing;
    let agreement = match (compared, differing) {
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
            let share = 100.0 * difference as f64 / kernel as f64;
            let share = (kernel > 0).then(|| format!(" (by {share:.3} % of all counts)"));
            format!("; {differing} {verb}{}", share.unwrap_or_default())
        }
    };
    format!("{agreement} with the kernel's own: {equal} exactly{within}{differing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter line: irqlab's count, the kernel's exact count, and the lower and upper bound by the files.
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
    fn the_difference_is_from_the_exact_count_or_the_nearer_bound() {
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
