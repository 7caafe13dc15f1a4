//! Noise of the operating system: what takes time from a program, on one CPU and on many nodes.

use record::{Run, Value, keys};

use super::{Answer, largest, rows};
use crate::human::{self, Quantity};
use crate::row::Row;

/// The CPU whose loop lost most time, the largest cause there, and the loss without this cause.
/// `None` if no loop has a loss.
pub(super) fn noise(run: &Run) -> Option<Answer> {
    let table = run.table("noise")?;
    let row = largest(rows(table), "lost_ratio")?;
    let (cpu, lost_ratio) = (row.value_text("cpu"), row.number("lost_ratio")?);
    let longest_detour = row.number("detour_max_ns").map(human::ns);
    let longest_detour =
        longest_detour.map_or(String::new(), |time| format!("; the longest detour was {time}"));
    let causes_on_cpu = run
        .table("causes")
        .map(|causes| rows(causes).filter(|row| row.value_text("cpu") == cpu).collect::<Vec<_>>());
    let cause = largest(causes_on_cpu.into_iter().flatten(), "total_ns");
    let named_cause = cause.as_ref().and_then(|cause| {
        // With senders, column `cause` also has their processes and CPUs.
        let column = if matches!(cause.get("cause"), Value::Text(_)) { "cause" } else { "name" };
        let name = format!("{} {}", cause.value_text("kind"), cause.value_text(column));
        Some((name, cause.number("lost_ratio")?, cause.number("rate_hz")?))
    });
    let because = named_cause.as_ref().map_or(String::new(), |(name, cause_ratio, rate)| {
        format!(
            ", {} of that to {name} ({} times a second)",
            human::percent(*cause_ratio),
            human::number(*rate)
        )
    });
    let lever = named_cause.map(|(name, cause_ratio, rate)| {
        let kind = cause.map(|row| row.value_text("kind")).unwrap_or_default();
        format!(
            "Without {name}, {} would be left.{}",
            human::percent(lost_ratio * (1.0 - cause_ratio).max(0.0)),
            if has_other_timers(run, &kind, &name, rate) {
                " Some of these interrupts expire timers of programs: the boot option nohz_full stops only the tick."
            } else {
                remedy(&kind, &name)
            }
        )
    });
    Some(Answer {
        fact: format!(
            "CPU {cpu} lost {} of its time{because}{longest_detour}.",
            human::percent(lost_ratio)
        ),
        lever,
        table: Some("noise".to_owned()),
    })
}

/// Whether a cause at `rate` per second is the interrupt of the local timer, and comes more often than the tick.
fn has_other_timers(run: &Run, kind: &str, name: &str, rate: f64) -> bool {
    let tick_hz = run.host.get(keys::HZ).and_then(serde_json::Value::as_f64);
    kind == "vector" && name.contains("local_timer") && tick_hz.is_some_and(|hz| rate > 1.1 * hz)
}

/// The kernel setting that keeps a cause of this kind from the CPU, as a sentence with a leading
/// space. Empty if none is known.
pub(super) fn remedy(kind: &str, name: &str) -> &'static str {
    match kind {
        "vector" if name.contains("timer") && !name.contains(" from ") => {
            " The boot option nohz_full stops the tick of a CPU with one task."
        }
        "irq" => " /proc/irq/NUMBER/smp_affinity moves a device's interrupts to another CPU.",
        "softirq" if has_no_device(name) => "",
        "softirq" => " A softirq runs where its interrupt came: move that interrupt's affinity.",
        "task" => " A cpuset or isolcpus keeps other tasks from the CPU.",
        "hypervisor" | "steal" => " Only the host can change that.",
        _ => "",
    }
}

/// Whether the kernel raises a softirq on the CPU itself, without an interrupt that could move.
fn has_no_device(softirq: &str) -> bool {
    ["TIMER", "HRTIMER", "SCHED", "RCU"].iter().any(|name| softirq.ends_with(name))
}

/// The slowdown of the largest job with the shortest work between barriers, and the slowdown without a context, or the
/// work that suffers least. `None` if the table has no slowdown of independent detours.
pub(super) fn scale(run: &Run) -> Option<Answer> {
    let table = run.table("scale")?;
    let all_independent = || rows(table).filter(|row| row.has_text("detour_times", "independent"));
    let independent = || all_independent().filter(|row| *row.get("without") == Value::Absent);
    let node_count = independent().filter_map(|row| row.number("node_count")).fold(0.0, f64::max);
    let largest_jobs: Vec<Row<'_>> =
        independent().filter(|row| row.number("node_count") == Some(node_count)).collect();
    let granularity = |row: &&Row<'_>| row.number("granularity_ns").unwrap_or(0.0);
    let by_granularity = |a: &&Row<'_>, b: &&Row<'_>| granularity(a).total_cmp(&granularity(b));
    let [shortest, longest] =
        [largest_jobs.iter().min_by(by_granularity)?, largest_jobs.iter().max_by(by_granularity)?];
    let slowdown = |row: &Row<'_>| {
        let ratio = row.number("slowdown_ratio")?;
        let bound = if *row.get("is_lower_bound") == Value::Bool(true) { "at least " } else { "" };
        Some(format!("{bound}{}", human::percent(ratio)))
    };
    let length_texts = [shortest, longest].map(|row| granularity(&row));
    let length_texts = Quantity::Time.distinct_texts(&length_texts);
    let fact = format!(
        "With {} {} and a barrier after each {} of work, these detours slow a job down by {}.",
        human::count(node_count as u64),
        if node_count == 1.0 { "node" } else { "nodes" },
        length_texts[0],
        slowdown(shortest)?
    );
    let sentences_without_context: Vec<String> = all_independent()
        .filter(|row| {
            *row.get("without") != Value::Absent
                && row.get("node_count") == shortest.get("node_count")
        })
        .filter(|row| row.get("granularity_ns") == shortest.get("granularity_ns"))
        .filter_map(|row| {
            Some(format!(
                "Without detours that begin with {}: {}.",
                row.value_text("without"),
                slowdown(&row)?
            ))
        })
        .collect();
    let lever = if sentences_without_context.is_empty() {
        let longest_slowdown =
            slowdown(longest).filter(|_| granularity(&longest) > granularity(&shortest));
        longest_slowdown.map(|slowdown| {
            format!("With {} of work between barriers: {slowdown}.", length_texts[1])
        })
    } else {
        Some(sentences_without_context.join(" "))
    };
    Some(Answer { fact, lever, table: Some("scale".to_owned()) })
}
