//! Services on three machines: Table 4.8.

use lab::services::counters::{CYCLES, DATA_STALL, FETCH_STALL};
use record::{Column, Table, TableDisplay, Value};

use super::super::published::{MatchingServices, ServiceRow};
use super::super::runs::{Joined, ratio};
use super::{Sides, factor, percent_to_ratio, real, text, workload_column};

/// The class of misses on the first use of a line.
const COLD: &[&str] = &["cold"];
/// Years of the machines; names of columns contain them.
const YEARS: [&str; 3] = ["1994", "1996", "1998"];

fn columns() -> Vec<Column> {
    let mut columns = vec![
        workload_column(),
        text("service", "The service, as the paper names it.").priority(100).key(),
        text("here", "The corresponding services of this kernel; absent if there is none.")
            .priority(70),
    ];
    for (position, year) in (0_u8..).zip(YEARS) {
        let doc = format!("Share of the kernel's time on the machine of {year}.");
        let column = real(&format!("kernel_{year}_ratio"), &doc);
        columns.push(column.title(&format!("% kernel {year}")).priority(97 - position));
        columns.push(
            real(&format!("published_kernel_{year}_ratio"), "The paper's figure.")
                .title("paper")
                .priority(60),
        );
    }
    let time = |name: &str, doc: &str| real(name, doc).format(record::Format::Microseconds);
    columns.extend([
        time("computation_1994_ns", "Mean time of the service itself on the machine of 1994.")
            .title("computation")
            .priority(93),
        time("published_computation_1994_ns", "The paper's figure.").title("paper").priority(59),
    ]);
    for (name, title, what) in [
        ("computation_speed_up", "speed-up", "computation"),
        ("latency_speed_up", "latency's", "latency"),
    ] {
        if name == "latency_speed_up" {
            columns.extend([
                time("latency_1994_ns", "Mean time from start to end on the machine of 1994.")
                    .title("latency")
                    .priority(85),
                time("published_latency_1994_ns", "The paper's figure.")
                    .title("paper")
                    .priority(56),
            ]);
        }
        for (position, year) in (0_u8..).zip(&YEARS[1..]) {
            let doc = format!("{what} of 1994 over {what} of {year}.");
            let column = factor(&format!("{name}_{year}_ratio"), &doc);
            columns.push(column.title(&format!("{title} {year}")).priority(92 - position));
            let doc = format!("The paper's speed-up of {what}.");
            columns.push(
                factor(&format!("published_{name}_{year}_ratio"), &doc).title("paper").priority(58),
            );
        }
    }
    for year in [YEARS[0], YEARS[2]] {
        for (name, title, doc) in [
            ("cpi", "CPI", "Cycles per instruction"),
            ("fetch_mcpi", "i-MCPI", "Cycles of waiting for instructions per instruction"),
            ("data_mcpi", "d-MCPI", "Cycles of waiting for data per instruction"),
        ] {
            let column = factor(&format!("{name}_{year}_ratio"), &format!("{doc}, {year}."));
            columns.push(column.title(&format!("{title} {year}")).priority(80));
            let column = factor(&format!("published_{name}_{year}_ratio"), "The paper's figure.");
            columns.push(column.title("paper").priority(50));
        }
    }
    columns.extend([
        real("rate_1994_hz", "Requests per second on the machine of 1994.")
            .title("rate")
            .priority(55),
        real("published_rate_1994_hz", "The paper's figure.").title("paper").priority(49),
        real(
            "cold_miss_ratio",
            "Share of the kernel's cold misses of L2 on the machine of 1994 with the smallest of \
             the chosen sizes of caches; absent if these sizes were not measured.",
        )
        .title("% of cold misses")
        .priority(54),
        real("published_cold_miss_ratio", "The paper's figure.").title("paper").priority(48),
        text("reason", "Why there are no figures.").priority(40),
    ]);
    columns
}

/// A row for each service of the paper.
pub(super) fn uniprocessor_services(sides: &Sides<'_>) -> Table {
    let doc = "Services of the kernel on the machines of 1994, 1996 and 1998, simulated and \
               published (Table 4.8).";
    let display = TableDisplay {
        title: "Services on three machines (Table 4.8)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("uniprocessor_services", doc, columns()).displayed(display);
    for workload in sides.workloads() {
        if (0..YEARS.len()).all(|number| sides.machine(workload, number).is_none()) {
            continue;
        }
        for published in sides.paper.services(workload) {
            table.push(row(sides, workload, published));
        }
    }
    table
}

/// The services on each machine that correspond to one service of the paper, or the reason why there are none.
pub(in super::super) fn on_machines<'a>(
    sides: &Sides<'a>,
    workload: &str,
    matching: Option<MatchingServices<'_>>,
) -> Result<[Option<Joined<'a>>; 3], String> {
    let matching = matching.ok_or_else(|| NO_SERVICE.to_owned())?;
    let found = [0, 1, 2].map(|number| sides.machine(workload, number)?.joined(&matching));
    if found.iter().all(Option::is_none) {
        return Err(NOT_REQUESTED.to_owned());
    }
    Ok(found)
}

// Reasons why a service of the paper has no figures.
pub(super) const NO_SERVICE: &str =
    "this kernel has no such service: hardware walks the page tables, or the names differ";
pub(super) const NOT_REQUESTED: &str = "no requests in the window";

/// A service's share of the kernel's cold misses of L2. Larger caches have equally many cold misses.
fn cold_misses(
    sides: &Sides<'_>,
    workload: &str,
    matching: Option<MatchingServices<'_>>,
) -> Option<f64> {
    let run = *sides.cache_sizes(workload, false).first()?;
    let service_misses = run.joined(&matching?)?.misses("L2", COLD)?;
    let kernel_misses = run.misses_by_service("L2", COLD, |row| row.service.class.is_kernel())?;
    ratio(service_misses as f64, kernel_misses as f64)
}

fn row(sides: &Sides<'_>, workload: &str, published: &ServiceRow) -> Vec<Value> {
    let matching = published.matching_services();
    let mut row: Vec<Value> = vec![
        workload.into(),
        published.service.as_str().into(),
        matching.map(|matching| matching.label()).into(),
    ];
    let found = on_machines(sides, workload, matching);
    let reason = found.as_ref().err().cloned();
    let machines = found.unwrap_or_default();
    let on_machine = |number: usize, figure: &dyn Fn(&Joined<'_>) -> Option<f64>| {
        machines[number].as_ref().and_then(figure)
    };
    for (number, percent) in published.kernel_percent.into_iter().enumerate() {
        row.extend([
            on_machine(number, &|joined: &Joined<'_>| joined.kernel_ratio()).into(),
            percent_to_ratio(percent).into(),
        ]);
    }
    let speed_ups =
        |figure: &dyn Fn(&Joined<'_>) -> Option<f64>, published: [f64; 2]| -> Vec<Value> {
            let speed_up = |number| ratio(on_machine(0, figure)?, on_machine(number, figure)?);
            let pairs = [(speed_up(1), published[0]), (speed_up(2), published[1])];
            pairs
                .into_iter()
                .flat_map(|(simulated, paper)| [Value::from(simulated), paper.into()])
                .collect()
        };
    row.extend([
        on_machine(0, &|joined: &Joined<'_>| joined.computation_ns()).into(),
        (published.computation_us * 1e3).into(),
    ]);
    row.extend(speed_ups(&|joined: &Joined<'_>| joined.computation_ns(), published.speed_up));
    row.extend([
        on_machine(0, &|joined: &Joined<'_>| joined.latency_ns()).into(),
        (published.latency_us * 1e3).into(),
    ]);
    row.extend(speed_ups(&|joined: &Joined<'_>| joined.latency_ns(), published.latency_speed_up));
    for (position, number) in [0, 2].into_iter().enumerate() {
        for (name, published) in [
            (CYCLES, published.cpi[position]),
            (FETCH_STALL, published.fetch_mcpi[position]),
            (DATA_STALL, published.data_mcpi[position]),
        ] {
            let found = on_machine(number, &|joined: &Joined<'_>| joined.per_instruction(name));
            row.extend([found.into(), published.into()]);
        }
    }
    row.extend([
        on_machine(0, &|joined: &Joined<'_>| joined.rate_hz()).into(),
        published.rate_hz.into(),
        cold_misses(sides, workload, matching).into(),
        percent_to_ratio(published.cold_percent).into(),
        reason.into(),
    ]);
    row
}
