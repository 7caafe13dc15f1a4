//! Services of the kernel: which takes most time.

use record::Run;

use super::{Answer, largest, rows};
use crate::human;
use crate::row::Row;

/// The service that takes most time, and its time without the larger part of its memory waits. `None`
/// if no service has a time.
pub(super) fn services(run: &Run) -> Option<Answer> {
    let table = run.table("services")?;
    let is_service = |row: &Row<'_>| {
        !["user", "probes", "idle"].iter().any(|class| row.has_text("class", class))
    };
    let row = largest(rows(table).filter(is_service), "self_total_ns")?;
    let name = format!("{} {}", row.value_text("class"), row.value_text("service"));
    let share = row.number("time_ratio")?;
    let kernel_share = row
        .number("kernel_ratio")
        .map_or(String::new(), |ratio| format!(", {} of the kernel's", human::percent(ratio)));
    // The mean is over the completed requests.
    let requests = row.number("completed_count").zip(row.number("computation_mean_ns"));
    let requests = requests.map_or(String::new(), |(count, mean)| {
        format!(": {} completed requests of {} each", human::count(count as u64), human::ns(mean))
    });
    let cpi = row.number("cpi_ratio").filter(|cpi| *cpi > 0.0);
    let stalls = row.number("fetch_mcpi_ratio").zip(row.number("data_mcpi_ratio"));
    let lever = cpi.zip(stalls).map(|(cpi, (fetch, data))| {
        let (awaited, longer_stall) =
            if fetch > data { ("instructions", fetch) } else { ("data", data) };
        // Without the waits the same work takes less time, so the share refers to a shorter total.
        let shorter = share * (1.0 - longer_stall / cpi).max(0.0);
        let shorter_total = 1.0 - share + shorter;
        let share_of_rest = if shorter_total > 0.0 { shorter / shorter_total } else { 0.0 };
        format!(
            "Without its waits for {awaited} it would take {} of the time.",
            human::percent(share_of_rest)
        )
    });
    let fact = format!(
        "{name} takes most: {} of the time{kernel_share}{requests}.",
        human::percent(share)
    );
    Some(Answer { fact, lever, table: Some("services".to_owned()) })
}
