//! Services on three machines: Table 4.8.

use record::{Column, Table, TableDisplay, Value};

use super::super::super::counters::{CYCLES, DATA_STALL, FETCH_STALL};
use super::super::published::{Here, ServiceRow};
use super::super::runs::{Joined, ratio};
use super::{Sides, factor, of_percent, real, text, workload_column};

/// The class of misses of lines that no cache has had.
const COLD: &[&str] = &["cold"];
/// Years of the machines, as in names of columns.
const YEARS: [&str; 3] = ["1994", "1996", "1998"];

fn columns() -> Vec<Column> {
    let mut columns = vec![
        workload_column(),
        text("service", "The service, as the paper names it.").priority(100).key(),
        text("here", "The services of this kernel that stand for it; absent where there is none.")
            .priority(70),
    ];
    for (at, year) in (0_u8..).zip(YEARS) {
        let doc = format!("Share of the kernel's time on the machine of {year}.");
        let one = real(&format!("kernel_{year}_ratio"), &doc);
        columns.push(one.title(&format!("% kernel {year}")).priority(97 - at));
        columns.push(
            real(&format!("published_kernel_{year}_ratio"), "The paper's.")
                .title("paper")
                .priority(60),
        );
    }
    let time = |name: &str, doc: &str| real(name, doc).format(record::Format::Microseconds);
    columns.extend([
        time("computation_1994_ns", "Mean time of the service itself on the machine of 1994.")
            .title("computation")
            .priority(93),
        time("published_computation_1994_ns", "The paper's.").title("paper").priority(59),
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
                time("published_latency_1994_ns", "The paper's.").title("paper").priority(56),
            ]);
        }
        for (at, year) in (0_u8..).zip(&YEARS[1..]) {
            let doc = format!("{what} of 1994 over that of {year}.");
            let one = factor(&format!("{name}_{year}_ratio"), &doc);
            columns.push(one.title(&format!("{title} {year}")).priority(92 - at));
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
            let one = factor(&format!("{name}_{year}_ratio"), &format!("{doc}, {year}."));
            columns.push(one.title(&format!("{title} {year}")).priority(80));
            let one = factor(&format!("published_{name}_{year}_ratio"), "The paper's.");
            columns.push(one.title("paper").priority(50));
        }
    }
    columns.extend([
        real("rate_1994_hz", "Requests per second on the machine of 1994.")
            .title("rate")
            .priority(55),
        real("published_rate_1994_hz", "The paper's.").title("paper").priority(49),
        real(
            "cold_miss_ratio",
            "Share of the kernel's cold misses of L2 on the machine of 1994 with the smallest of the chosen sizes \
             of caches; absent where those were not measured.",
        )
        .title("% of cold misses")
        .priority(54),
        real("published_cold_miss_ratio", "The paper's.").title("paper").priority(48),
        text("reason", "Why there are no figures.").priority(40),
    ]);
    columns
}

/// A row for each service of the paper.
pub(super) fn uniprocessor_services(sides: &Sides<'_>) -> Table {
    let doc = "Services of the kernel on the machines of 1994, 1996 and 1998, simulated and published (Table 4.8).";
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

/// The services that stand for one of the paper on each machine, or why there are none.
pub(in super::super) fn on_machines<'a>(
    sides: &Sides<'a>,
    workload: &str,
    here: Option<Here<'_>>,
) -> Result<[Option<Joined<'a>>; 3], String> {
    let here = here.ok_or_else(|| NO_SERVICE.to_owned())?;
    let found = [0, 1, 2].map(|number| sides.machine(workload, number)?.joined(&here));
    match found.iter().any(Option::is_some) {
        true => Ok(found),
        false => Err(NOT_REQUESTED.to_owned()),
    }
}

/// Why a service of the paper has no figures.
pub(super) const NO_SERVICE: &str =
    "this kernel has no such service: hardware walks the page tables, or other names";
pub(super) const NOT_REQUESTED: &str = "no request of it";

/// The part of the kernel's cold misses of L2 that a service has. Larger caches have as many.
fn cold_misses(sides: &Sides<'_>, workload: &str, here: Option<Here<'_>>) -> Option<f64> {
    let run = *sides.cache_sizes(workload, false).first()?;
    let of_service = run.joined(&here?)?.misses("L2", COLD)?;
    let of_kernel = run.misses_by_service("L2", COLD, |row| row.service.class.is_kernel())?;
    ratio(of_service as f64, of_kernel as f64)
}

fn row(sides: &Sides<'_>, workload: &str, published: &ServiceRow) -> Vec<Value> {
    let here = published.here();
    let mut row: Vec<Value> = vec![
        workload.into(),
        published.service.as_str().into(),
        here.map(|here| here.words()).into(),
    ];
    let found = on_machines(sides, workload, here);
    let reason = found.as_ref().err().cloned();
    let machines = found.unwrap_or_default();
    let of = |number: usize, ask: &dyn Fn(&Joined<'_>) -> Option<f64>| {
        machines[number].as_ref().and_then(ask)
    };
    for (number, percent) in published.kernel_percent.into_iter().enumerate() {
        row.extend([
            of(number, &|joined: &Joined<'_>| joined.kernel_ratio()).into(),
            of_percent(percent).into(),
        ]);
    }
    let speed_ups = |ask: &dyn Fn(&Joined<'_>) -> Option<f64>, published: [f64; 2]| -> Vec<Value> {
        let faster =
            |number| of(0, ask).zip(of(number, ask)).and_then(|(first, one)| ratio(first, one));
        let each = [(faster(1), published[0]), (faster(2), published[1])];
        each.into_iter().flat_map(|(one, published)| [Value::from(one), published.into()]).collect()
    };
    row.extend([
        of(0, &|joined: &Joined<'_>| joined.computation_ns()).into(),
        (published.computation_us * 1e3).into(),
    ]);
    row.extend(speed_ups(&|joined: &Joined<'_>| joined.computation_ns(), published.speed_up));
    row.extend([
        of(0, &|joined: &Joined<'_>| joined.latency_ns()).into(),
        (published.latency_us * 1e3).into(),
    ]);
    row.extend(speed_ups(&|joined: &Joined<'_>| joined.latency_ns(), published.latency_speed_up));
    for (at, number) in [0, 2].into_iter().enumerate() {
        for (name, published) in [
            (CYCLES, published.cpi[at]),
            (FETCH_STALL, published.fetch_mcpi[at]),
            (DATA_STALL, published.data_mcpi[at]),
        ] {
            let found = of(number, &|joined: &Joined<'_>| joined.per_instruction(name));
            row.extend([found.into(), published.into()]);
        }
    }
    row.extend([
        of(0, &|joined: &Joined<'_>| joined.rate_hz()).into(),
        published.rate_hz.into(),
        cold_misses(sides, workload, here).into(),
        of_percent(published.cold_percent).into(),
        reason.into(),
    ]);
    row
}
