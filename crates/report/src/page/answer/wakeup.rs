//! Wake-ups of a thread: the latest one, and what delayed it.

use record::{Run, keys};

use super::noise::remedy;
use super::{Answer, largest, rows};
use crate::human;
use crate::late_cause::{Class, LargestPart, time_ns};

/// The worst wake-up with its largest part, the p99 of its CPU, and what would shorten the
/// part. `None` without a latest wake-up.
pub(super) fn wakeup(run: &Run) -> Option<Answer> {
    let candidates = [("worst", "late_ns"), ("wakeup", "late_max_ns")];
    let (table, row, late_ns) = candidates.into_iter().find_map(|(table, column)| {
        let row = largest(rows(run.table(table)?), column)?;
        Some((table, row, time_ns(&row, column)?))
    })?;
    let part = LargestPart::from_row(run, &row);
    let because = part.as_ref().map_or(String::new(), |part| {
        format!(": {} of it {}", human::ns(part.length_ns), part.circumstance())
    });
    let cpu = row.value_text("cpu");
    let mut cpu_rows = run.table("wakeup").into_iter().flat_map(rows);
    let cpu_row = cpu_rows.find(|cpu_row| cpu_row.get("cpu") == row.get("cpu"));
    let p99_ns = cpu_row.and_then(|row| time_ns(&row, "late_p99_ns"));
    let p99_sentence = p99_ns.map_or(String::new(), |p99_ns| {
        format!(" 99 % of the wake-ups on this CPU were at most {} late.", human::ns(p99_ns))
    });
    // Nothing is known to help against an unknown cause.
    let lever = part.filter(|part| part.kind != "unknown").map(|part| {
        format!(
            "Without this part, the wake-up would have been {} late.{}",
            human::ns((late_ns - part.length_ns).max(0.0)),
            wakeup_remedy(run, &part)
        )
    });
    Some(Answer {
        fact: format!(
            "The worst wake-up was {} late, on CPU {cpu}{because}.{p99_sentence}",
            human::ns(late_ns)
        ),
        lever,
        table: Some(table.to_owned()),
    })
}

/// Ways to shorten a part of a wake-up, as sentences with a leading space. Empty if none is known.
fn wakeup_remedy(run: &Run, part: &LargestPart) -> String {
    let setting = |name: &str| run.settings.get(name);
    let host_fact = |name: &str| run.host.get(name).and_then(serde_json::Value::as_str);
    let is_virtual =
        run.host.get(keys::VIRTUALIZED).and_then(serde_json::Value::as_bool) == Some(true);
    let may_sleep = setting("idle_exit_max_ns").and_then(serde_json::Value::as_u64) != Some(0);
    let mut sentences = String::new();
    match part.class {
        Class::LateTimer | Class::Switch => {
            if part.is_idle() && may_sleep {
                sentences +=
                    " The CPU leaves a shallow idle state sooner: try --idle-exit-max 0us.";
            }
            if part.class == Class::LateTimer && is_virtual {
                sentences += " If the host had the CPU then, only the host can change that.";
            }
        }
        Class::Tasks => {
            let scheduler = setting(keys::SCHEDULER).and_then(serde_json::Value::as_str);
            let is_preemption_limited = host_fact("preemption_built") == Some("PREEMPT_DYNAMIC")
                && matches!(host_fact("preemption"), Some("none" | "voluntary"));
            if scheduler == Some("SCHED_OTHER") {
                sentences +=
                    " A thread of a real-time class (--policy fifo:95) runs before such tasks.";
            } else if is_preemption_limited {
                sentences += " With the boot option preempt=full, a thread need not wait until a task leaves the \
                              kernel.";
            }
            sentences += remedy("task", &part.name);
        }
        // The timer's own interrupt is the usual vector here, and nothing takes it away.
        Class::Interrupts if part.kind != "vector" => sentences += remedy(&part.kind, &part.name),
        Class::Waking if part.kind == "task" => sentences += remedy("task", &part.name),
        Class::Waking | Class::Interrupts | Class::Return | Class::Other => {}
    }
    // In a simulated machine, such a pause does not exist.
    if is_virtual && run.bench == "live" && part.class == Class::Interrupts {
        sentences += " This machine is a guest: if its host pauses it, the pause counts as part of what it interrupts.";
    }
    sentences
}
