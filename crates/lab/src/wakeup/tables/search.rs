//! The search for the worst case: table `seeds` with a row for each machine, and why the worst wake-up of all was late.

use record::{Columns, Format, Table, TableDisplay, column};

use super::{Class, SHOWN, cpu_column, us_column};
use crate::wakeup::sample::{
    FunctionTime, NOT_RECORDED, OTHER_FUNCTIONS, SeedOutcome, WakeupSample,
};

/// Table `seeds`: the worst wake-up of each machine of `--seeds`.
pub(in crate::wakeup) fn seeds(sample: &WakeupSample) -> Table {
    let largest = |row: &SeedOutcome| row.largest.as_ref().and_then(|(name, _)| name.clone());
    let columns = Columns::all([
        column("seed", "Seed of the machine's phases; --seed gives the same machine again.")
            .priority(100)
            .key()
            .uint(|row: &SeedOutcome| row.seed),
        column("wakeup_count", "Number of wake-ups of all threads.")
            .shown_as("wake-ups", 80)
            .uint(|row: &SeedOutcome| row.wakeups),
        us_column("late_max_ns", "How late a thread ran at worst.")
            .shown_as("latest", 99)
            .uint(|row: &SeedOutcome| row.late_ns),
        column("cpu", "CPU that this thread ran on.")
            .priority(90)
            .uint(|row: &SeedOutcome| row.cpu),
        column("due_ns", "When this thread was due, from the opening of the window.")
            .format(Format::Milliseconds)
            .shown_as("due", 70)
            .uint(|row: &SeedOutcome| row.due_ns),
        column("largest_kind", "Kind of what ran in the largest part of this lateness.")
            .shown_as("kind", 75)
            .text(move |row: &SeedOutcome| largest(row).map(|(kind, _)| kind)),
        column("largest_name", "Name of what ran in the largest part of this lateness.")
            .shown_as("largest cause", 97)
            .text(move |row: &SeedOutcome| largest(row).map(|(_, name)| name)),
        us_column("largest_ns", "Time of the largest part.")
            .shown_as("largest part", 96)
            .uint(|row: &SeedOutcome| row.largest.as_ref().map(|(_, ns)| *ns)),
    ]);
    let display = TableDisplay {
        title: "machines with different seeds".to_owned(),
        headline: worst_case(sample).unwrap_or_default().replace(['{', '}'], ""),
        sort_by: Some("late_max_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The worst wake-up of each machine of --seeds. The other tables are of the machine with the latest of all, \
               which runs a second time and must give the same (worst_seed_runs in the settings says whether it did).";
    columns.table("seeds", doc, &sample.seeds).displayed(display)
}

/// How many causes the sentence about the worst case names.
const CAUSES_IN_SENTENCE: usize = 3;

/// A time in microseconds with three digits, as in the tables.
fn microseconds(ns: u64) -> String {
    let us = ns as f64 / 1_000.0;
    match ns {
        0..1_000 => format!("{us:.3} µs"),
        1_000..10_000 => format!("{us:.2} µs"),
        10_000..100_000 => format!("{us:.1} µs"),
        _ => format!("{us:.0} µs"),
    }
}

/// Why the worst wake-up of all seeds was late, in a sentence. `None` without seeds.
pub(in crate::wakeup) fn worst_case(sample: &WakeupSample) -> Option<String> {
    let worst = sample
        .seeds
        .iter()
        .min_by_key(|outcome| (std::cmp::Reverse(outcome.late_ns), outcome.seed))?;
    let mut causes: Vec<(&(String, String), u64)> = Vec::new();
    for (name, ns) in &worst.parts {
        let Some(name) = name else { continue };
        match causes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum_ns)) => *sum_ns += ns,
            None => causes.push((name, *ns)),
        }
    }
    causes.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let causes: Vec<String> = causes
        .iter()
        .take(CAUSES_IN_SENTENCE)
        .map(|((kind, name), ns)| {
            let function = largest_function(sample, (kind.as_str(), name.as_str()), *ns);
            let function = function.map_or_else(String::new, |(function, function_ns)| {
                format!(" ({} in {function})", microseconds(function_ns))
            });
            // The name of the measured thread has its kind.
            let kind = if kind == "thread" { String::new() } else { format!("{kind} ") };
            format!("{} {kind}{name}{function}", microseconds(*ns))
        })
        .collect();
    Some(format!(
        "worst of {} machines: seed {}, {} late on CPU {}: {}",
        sample.seeds.len(),
        worst.seed,
        microseconds(worst.late_ns),
        worst.cpu,
        causes.join(", ")
    ))
}

/// The innermost function that, with its callees, took at least half of the time `cause_ns` of this context or task;
/// else the function with the most time of its own. The time is in ns. `None` if no functions were recorded for it.
fn largest_function<'a>(
    sample: &'a WakeupSample,
    (kind, name): (&str, &str),
    cause_ns: u64,
) -> Option<(&'a str, u64)> {
    let mut self_times: Vec<(&str, u64)> = Vec::new();
    let mut total_times: Vec<(&str, u64)> = Vec::new();
    let add = |times: &mut Vec<(&'a str, u64)>, function: &'a str, ns: u64| match times
        .iter_mut()
        .find(|(known, _)| *known == function)
    {
        Some((_, sum_ns)) => *sum_ns += ns,
        None => times.push((function, ns)),
    };
    let functions = sample.worst_functions.as_ref()?.functions.iter();
    for row in functions.filter(|row| is_function(row)) {
        let runs = sample.kind_and_name(row.part.running);
        if runs.is_some_and(|(row_kind, row_name)| (row_kind, row_name.as_str()) == (kind, name)) {
            add(&mut self_times, &row.function, row.self_ns);
            add(&mut total_times, &row.function, row.total_ns.unwrap_or(row.self_ns));
        }
    }
    let is_half = |(_, ns): &(&str, u64)| *ns >= cause_ns.div_ceil(2);
    let innermost = total_times.into_iter().filter(is_half).min_by_key(|(_, ns)| *ns);
    innermost.or_else(|| self_times.into_iter().max_by_key(|(_, ns)| *ns))
}

/// Whether the row has the time of one function: not of all other functions, and not of what was not recorded.
fn is_function(row: &FunctionTime) -> bool {
    ![OTHER_FUNCTIONS, NOT_RECORDED].contains(&row.function.as_str())
}

/// Table `worst_functions`: the functions of the kernel in the worst wake-up.
pub(in crate::wakeup) fn worst_functions(sample: &WakeupSample) -> Table {
    struct Row<'a> {
        cpu: u32,
        sample: &'a WakeupSample,
        time: &'a FunctionTime,
    }
    impl Row<'_> {
        fn kind_and_name(&self) -> Option<(&str, String)> {
            self.sample.kind_and_name(self.time.part.running)
        }
    }
    let columns = Columns::all([
        cpu_column().of(|row: &Row<'_>| row.cpu),
        us_column(
            "first_ns",
            "When the function first ran, or a function that it called: time from the due time.",
        )
        .shown_as("from", 85)
        .uint(|row: &Row<'_>| row.time.first_ns),
        column("class", "Class of the time, as in table causes.")
            .shown_as("class", 60)
            .key()
            .text(|row: &Row<'_>| Class::of_part(row.time.part, &row.sample.names).label()),
        column("stage", "Stage of the wake-up, as in table causes.")
            .priority(70)
            .key()
            .text(|row: &Row<'_>| row.time.part.stage.label()),
        column("kind", "Kind of what ran, as in table causes.")
            .priority(65)
            .key()
            .text(|row: &Row<'_>| row.kind_and_name().map(|(kind, _)| kind.to_owned())),
        column("name", "Name of the context or task in which the function ran, as in table causes.")
            .shown_as("in", 90)
            .key()
            .text(|row: &Row<'_>| row.kind_and_name().map(|(_, name)| name)),
        column(
            "function",
            "Function of the kernel. `user mode`: code of a program. `others`: functions of this stage and context with less \
             time than the 100 in the table. `not recorded`: the record of blocks was full. A function that takes less than \
             1 ns has no row.",
        )
        .priority(100)
        .key()
        .text(|row: &Row<'_>| row.time.function.clone()),
        us_column(
            "self_ns",
            "Time of the function itself, from the start of each of its blocks to the start of the next block. Time of a \
             halt belongs to the function that halts, and the processor's entry into an interrupt to the handler's first \
             function. The rows add up to the lateness exactly.",
        )
        .shown_as("self", 99)
        .uint(|row: &Row<'_>| row.time.self_ns),
        us_column(
            "total_ns",
            "Time of the function and of the functions that it called in this stage and context, without interrupts. \
             Callers are those whose first instruction, or a return into them, was seen since the due time.",
        )
        .shown_as("with callees", 95)
        .uint(|row: &Row<'_>| row.time.total_ns),
        column("call_count", "How often the function's first instruction executed, after other code.")
            .shown_as("calls", 80)
            .uint(|row: &Row<'_>| row.time.calls),
        column("instruction_count", "Instructions of the function itself.")
            .shown_as("instructions", 55)
            .uint(|row: &Row<'_>| row.time.instructions),
        column(
            "l1_miss_count",
            "Misses of the function itself in L1I and L1D of the model. Absent without a model.",
        )
        .shown_as("L1 misses", 58)
        .uint(|row: &Row<'_>| row.time.l1_misses),
        column("l2_miss_count", "Misses of the function itself in L2 of the model. Absent without a model that has an L2.")
            .shown_as("L2 misses", 57)
            .uint(|row: &Row<'_>| row.time.l2_misses),
    ]);
    let functions = sample.worst_functions.iter().flat_map(|worst| &worst.functions);
    let largest = functions.filter(|row| is_function(row)).max_by_key(|row| row.self_ns);
    let headline = largest.map(|row| {
        let name = row.function.replace(['{', '}'], "");
        format!("most time of its own: {name}, {}", microseconds(row.self_ns))
    });
    let rows = sample
        .worst_functions
        .iter()
        .flat_map(|worst| worst.functions.iter().map(|time| Row { cpu: worst.cpu, sample, time }));
    let display = TableDisplay {
        title: "functions of the kernel in the worst wake-up".to_owned(),
        headline: headline.unwrap_or_default(),
        sort_by: Some("self_ns".to_owned()),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The functions of the kernel that ran in the worst wake-up of all seeds, on its CPU, from the due time until \
               the thread read the clock. Recorded when the worst machine ran again.";
    columns.table("worst_functions", doc, rows).displayed(display)
}
