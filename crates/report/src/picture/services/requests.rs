//! The picture `requests` of `services`: the mean latency of each service's requests, a bar divided
//! into computation and waits.

use plotters::style::RGBColor;
use record::{Run, Table};

use super::{legend, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::palette::{BLUE, ORANGE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn};
use crate::row::Row;

/// Maximum number of services of a picture.
const SERVICES_MAX: usize = 16;
/// Classes that the picture leaves out. User mode and idle are no services, and each pass through the scheduler is
/// off the CPU by definition.
const LEFT_OUT: [&str; 3] = ["user", "idle", "scheduler"];
/// The parts of a request's latency: column, name and colour.
const PARTS: [(&str, &str, RGBColor); 4] = [
    ("computation_mean_ns", "computation", BLUE),
    ("nested_mean_ns", "nested", SKY),
    ("blocked_mean_ns", "blocked", ORANGE),
    ("descheduled_mean_ns", "descheduled", VERMILION),
];

/// The name of a service, such as `write syscall`: the service first, as in other pictures.
fn name(row: &Row<'_>) -> String {
    format!("{} {}", text(row, "service"), text(row, "class"))
}

/// The bar of a service: the parts of its mean latency as shares of this latency. `None` if they are not known.
fn latency_bar(row: &Row<'_>) -> Option<Bar> {
    let latency = row.number("latency_mean_ns").filter(|latency| *latency > 0.0)?;
    row.number(PARTS[0].0)?;
    let share = |column: &str| row.number(column).unwrap_or(0.0).max(0.0) / latency;
    let parts = PARTS.map(|(column, _, colour)| (share(column), colour)).to_vec();
    let detail = row
        .number("completed_count")
        .map_or(String::new(), |count| format!(" × {}", human::count(count as u64)));
    Some(Bar { name: name(row), parts, interval: None, label: human::ns(latency), detail })
}

/// The picture of table `services`. `None` if no latencies are known, or if the table has several machines.
pub fn requests(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let has_one_machine = |table: &&Table| table.column("model").is_none();
    let Some(table) = run.table("services").filter(has_one_machine) else { return Ok(None) };
    let size = |row: &Row<'_>| row.number("self_total_ns").unwrap_or(0.0);
    let is_service = |row: &Row<'_>| !LEFT_OUT.contains(&text(row, "class").as_str());
    let mut services: Vec<(Row<'_>, Bar)> =
        rows(table).filter(is_service).filter_map(|row| Some((row, latency_bar(&row)?))).collect();
    services.sort_by(|(a, _), (b, _)| size(b).total_cmp(&size(a)));
    let off_cpu_ns = |row: &Row<'_>| {
        let number = |column: &str| row.number(column).unwrap_or(0.0);
        let [_, _, (blocked, ..), (descheduled, ..)] = PARTS;
        // The means are over the completed requests.
        (number(blocked) + number(descheduled)) * number("completed_count")
    };
    // A service that takes little CPU time may wait longest, so the search includes services that are not drawn.
    let all_rows = services.iter().map(|(row, _)| *row);
    let Some(waits_longest) = all_rows.max_by(|a, b| off_cpu_ns(a).total_cmp(&off_cpu_ns(b)))
    else {
        return Ok(None);
    };
    let undrawn_count = services.len().saturating_sub(SERVICES_MAX);
    services.truncate(SERVICES_MAX);
    let title = if off_cpu_ns(&waits_longest) > 0.0 {
        format!("Where a request's time goes: most is lost off the CPU in {}", name(&waits_longest))
    } else {
        "Where a request's time goes: no request leaves the CPU".to_owned()
    };
    let mut notes = vec![
        "Shares of the mean latency, which is written after each bar with the number of completed requests. Nested: \
         interrupts, faults and other services meanwhile. The services are those that take most time."
            .to_owned(),
    ];
    notes.extend((undrawn_count > 0).then(|| {
        format!("Not drawn: {undrawn_count} services that take less time; see table services.")
    }));
    let panels = [(String::new(), services.into_iter().map(|(_, bar)| bar).collect())];
    let heading = Heading {
        title,
        notes,
        legend: legend(&PARTS.map(|(_, name, colour)| (name, colour)), &panels),
        description: "A bar for each service: how the mean latency of its requests divides into computation, \
                      nested, blocked and descheduled. The numbers are in table services of the run."
            .to_owned(),
    };
    let axis = |longest| Axis::linear("share of the mean latency", Quantity::Share, 0.0, longest);
    draw_panels(&heading, width, &panels, axis).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::WIDTH;
    use crate::picture::tests::{golden, run_of, table};
    use record::{Kind, Value};

    /// `read` is blocked for half of its latency, `fork` never; user mode is no service.
    fn run() -> Run {
        let columns = [
            ("class", Kind::Text),
            ("service", Kind::Text),
            ("time_ratio", Kind::Real),
            ("self_total_ns", Kind::Real),
            ("request_count", Kind::Uint),
            ("completed_count", Kind::Uint),
            ("computation_mean_ns", Kind::Real),
            ("latency_mean_ns", Kind::Real),
            ("nested_mean_ns", Kind::Real),
            ("blocked_mean_ns", Kind::Real),
            ("descheduled_mean_ns", Kind::Real),
        ];
        let row = |class: &str, name: &str, share: f64, blocked: f64| -> Vec<Value> {
            vec![
                class.into(),
                name.into(),
                share.into(),
                (share * 1e9).into(),
                120_u64.into(),
                100_u64.into(),
                400.0.into(),
                (400.0 + blocked).into(),
                0.0.into(),
                blocked.into(),
                0.0.into(),
            ]
        };
        let rows = vec![
            row("syscall", "fork", 0.05, 0.0),
            row("user", "user", 0.6, 0.0),
            row("syscall", "read", 0.2, 400.0),
        ];
        run_of(vec![table("services", &columns, rows)])
    }

    #[test]
    fn a_request_is_divided_by_where_it_waits() {
        golden("requests", requests(&run(), WIDTH));
    }

    #[test]
    fn the_longest_wait_is_that_of_all_services() {
        let few = run();
        let services = few.table("services").unwrap();
        let column = |name: &str| services.column(name).unwrap();
        let mut rows = vec![services.rows()[0].clone(); SERVICES_MAX];
        // Most requests of `poll` wait until the window closes, and the mean describes the completed one.
        let mut poll = services.rows()[2].clone();
        poll[column("service")] = "poll".into();
        poll[column("request_count")] = 110_u64.into();
        poll[column("completed_count")] = 1_u64.into();
        rows.push(poll);
        // `futex` takes the least CPU time.
        let mut futex = services.rows()[2].clone();
        futex[column("request_count")] = 100_u64.into();
        futex[column("service")] = "futex".into();
        futex[column("self_total_ns")] = 1.0.into();
        rows.push(futex);
        let mut many = Table::new("services", "", services.columns.clone());
        rows.into_iter().for_each(|row| many.push(row));
        let heading = requests(&run_of(vec![many]), WIDTH).unwrap().unwrap().heading;
        assert!(heading.title.ends_with("off the CPU in futex syscall"), "{}", heading.title);
        assert!(heading.notes[1].starts_with("Not drawn: 2 services"), "{:?}", heading.notes);
    }

    #[test]
    fn other_runs_have_none() {
        assert_eq!(requests(&run_of(vec![]), WIDTH).unwrap(), None);
    }
}
