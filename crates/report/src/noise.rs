//! What stands around the tables of experiment `noise`, in words.

use record::Run;
use serde_json::Value as Json;

use crate::escape::plain;
use crate::human;
use crate::words::unbroken;

/// The clock and what is judged by it; empty for a run that does not say.
pub(crate) fn method(run: &Run) -> String {
    let number = |key: &str| run.settings.get(key).and_then(Json::as_f64);
    let ns = |key: &str| number(key).map(|time| unbroken(&human::ns(time)));
    let text = |key: &str| run.settings.get(key).and_then(Json::as_str).map(plain);
    let parts = [
        ns("clock_step_ns").map(|step| format!("clock in steps of {step}")),
        ns("iteration_ns").map(|turn| format!("one reading in {turn}")),
        ns("threshold_ns").map(|threshold| format!("detours are gaps above {threshold}")),
        ns("way_ns").map(|way| format!("way into the kernel at most {way}")),
        text("scheduler"),
        text("own_cpus").map(|cpus| match cpus.as_str() {
            "" => "irqlab's own thread on a measured CPU".to_owned(),
            cpus => format!("irqlab's own thread on CPUs {cpus}"),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("method: {} bench; {}", plain(&run.bench), parts.join("; "))
}

/// What watching added, by the same loop bare and watched.
pub(crate) fn observer(run: &Run) -> Vec<String> {
    let number = |key: &str| run.observer.get(key).and_then(Json::as_f64);
    let pair = |what: &str, show: fn(f64) -> String| {
        let bare = number(&format!("bare_{what}"))?;
        let traced = number(&format!("traced_{what}"))?;
        Some((unbroken(&show(bare)), unbroken(&show(traced))))
    };
    let lost = pair("lost_ratio", human::percent)
        .map(|(bare, traced)| format!("lost {bare} bare and {traced} watched"));
    let median = pair("detour_p50_ns", human::ns)
        .map(|(bare, traced)| format!("median detour {bare} bare and {traced} watched"));
    let memory = number("peak_memory_bytes")
        .map(|bytes| format!("at most {} of memory in use", unbroken(&human::bytes(bytes))));
    let outside = number("added_to_guest_ns").map(|added| {
        format!("{} added to the guest, seen from outside", unbroken(&human::ns(added)))
    });
    lost.into_iter().chain(median).chain(memory).chain(outside).collect()
}
