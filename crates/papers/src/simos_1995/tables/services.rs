//! Table `uniprocessor_services`: services on three machines (Table 4.8). Users' programs read the
//! columns: names and order must not change.

use lab::services::counters::{CYCLES, DATA_STALL, FETCH_STALL};
use record::{Columns, Table, column};

use super::super::published::{MatchingServices, OtherServices, ServiceRow};
use super::super::runs::{Joined, MachineRun, ratio};
use super::{
    ServiceName, Sides, display_by_workload, factor, percent_to_ratio, service_columns, time,
    with_published,
};

/// The class of misses on the first use of a line.
const COLD: &[&str] = &["cold"];
/// Years of the machines. They are parts of columns' names.
const YEARS: [&str; 3] = ["1994", "1996", "1998"];

/// A row of the paper's table.
#[derive(Clone, Copy)]
enum Published<'s> {
    Service(&'s ServiceRow),
    /// All services without a row of their own. The paper has only their shares.
    Others(&'s OtherServices),
}

impl<'s> Published<'s> {
    /// The row of a single service. `None` for the other services.
    fn service(self) -> Option<&'s ServiceRow> {
        match self {
            Published::Service(row) => Some(row),
            Published::Others(_) => None,
        }
    }

    fn kernel_percent(self) -> [f64; 3] {
        match self {
            Published::Service(row) => row.kernel_percent,
            Published::Others(row) => row.kernel_percent,
        }
    }

    /// Shares of waits for instructions in all stalls of the kernel, on the first and the third machine.
    fn fetch_stall_percent(self) -> [f64; 2] {
        match self {
            Published::Service(row) => row.fetch_stall_percent,
            Published::Others(row) => row.fetch_stall_percent,
        }
    }

    /// Shares of waits for data in all stalls of the kernel, on the first and the third machine.
    fn data_stall_percent(self) -> [f64; 2] {
        match self {
            Published::Service(row) => row.data_stall_percent,
            Published::Others(row) => row.data_stall_percent,
        }
    }

    fn cold_percent(self) -> f64 {
        match self {
            Published::Service(row) => row.cold_percent,
            Published::Others(row) => row.cold_percent,
        }
    }
}

/// A row of the paper, and the corresponding services of each machine.
struct Row<'s> {
    name: ServiceName,
    published: Published<'s>,
    /// The services on each machine, in the paper's order.
    machines: [Option<Joined<'s>>; 3],
    /// Share of the kernel's cold misses of L2.
    cold_miss_ratio: Option<f64>,
    /// Why there are no figures. `None` if there are figures.
    reason: Option<String>,
}

/// A figure of a service.
pub(super) type Figure<'s> = fn(&Joined<'s>) -> Option<f64>;

impl<'s> Row<'s> {
    /// A share on the machine at this position in the paper's order. `None` if the machine's services are not known.
    fn share_on(&self, position: usize, share: impl Fn(&Joined<'s>) -> Option<f64>) -> Option<f64> {
        self.machines[position].as_ref().and_then(share)
    }

    /// A figure of a single service on the machine at this position. `None` for the other services.
    fn figure_on(
        &self,
        position: usize,
        figure: impl Fn(&Joined<'s>) -> Option<f64>,
    ) -> Option<f64> {
        self.published.service()?;
        self.share_on(position, figure)
    }

    /// The paper's figure of a single service. `None` for the other services.
    fn published_figure(&self, figure: impl Fn(&ServiceRow) -> f64) -> Option<f64> {
        self.published.service().map(figure)
    }

    /// A time on the first machine over the time on the machine at this position. `None` if either is unknown.
    fn speed_up(&self, position: usize, time: Figure<'s>) -> Option<f64> {
        ratio(self.figure_on(0, time)?, self.figure_on(position, time)?)
    }
}

/// Counters per instruction: name of the column, title, documentation, counter, and the paper's
/// figures on the first and the third machine.
type PerInstruction =
    (&'static str, &'static str, &'static str, &'static str, fn(&ServiceRow) -> [f64; 2]);
const PER_INSTRUCTION: [PerInstruction; 3] = [
    ("cpi", "CPI", "Cycles per instruction", CYCLES, |row| row.cpi),
    (
        "fetch_mcpi",
        "i-MCPI",
        "Cycles of waiting for instructions per instruction",
        FETCH_STALL,
        |row| row.fetch_mcpi,
    ),
    ("data_mcpi", "d-MCPI", "Cycles of waiting for data per instruction", DATA_STALL, |row| {
        row.data_mcpi
    }),
];

/// The columns of the speed-ups of a time on the second and the third machine, simulated and published.
fn speed_ups<'s>(
    title: &str,
    time: &str,
    figure: Figure<'s>,
    published: fn(&ServiceRow) -> [f64; 2],
) -> Columns<'s, Row<'s>> {
    Columns::all([1, 2].map(|position: usize| {
        let year = YEARS[position];
        let doc = format!("{time} of 1994 over {time} of {year}.");
        let name = format!("{time}_speed_up_{year}_ratio");
        let paper =
            factor(&format!("published_{name}"), &format!("The paper's speed-up of {time}."));
        Columns::all([
            factor(&name, &doc)
                .title(&format!("{title} {year}"))
                .priority(93 - position as u8)
                .real(move |row: &Row<'s>| row.speed_up(position, figure)),
            paper.title("paper").priority(58).real(move |row: &Row<'s>| {
                row.published_figure(|row| published(row)[position - 1])
            }),
        ])
    }))
}

fn columns<'s>() -> Columns<'s, Row<'s>> {
    let percent = |percent: f64| Some(percent_to_ratio(percent));
    let kernel = (0..3).zip(YEARS).map(|(position, year)| {
        let doc = format!("Share of the kernel's time on the machine of {year}.");
        let column = column(&format!("kernel_{year}_ratio"), &doc);
        let (title, priority) = (format!("% kernel {year}"), 97 - position as u8);
        with_published(column, &title, [priority, 60], move |row: &Row<'_>| {
            let published = percent(row.published.kernel_percent()[position]);
            (row.share_on(position, Joined::kernel_ratio), published)
        })
    });
    let per_instruction = [0, 2].into_iter().enumerate().flat_map(|(pair, position)| {
        PER_INSTRUCTION.map(|(name, title, doc, counter, published)| {
            let year = YEARS[position];
            let column = factor(&format!("{name}_{year}_ratio"), &format!("{doc}, {year}."));
            with_published(column, &format!("{title} {year}"), [80, 50], move |row: &Row<'_>| {
                let simulated = row.figure_on(position, |joined| joined.per_instruction(counter));
                (simulated, row.published_figure(|row| published(row)[pair]))
            })
        })
    });
    let computation = "Mean time of the service itself on the machine of 1994.";
    let computation = time("computation_1994_ns", computation);
    let latency = "Mean time from start to end on the machine of 1994.";
    let latency = time("latency_1994_ns", latency);
    let rate = column("rate_1994_hz", "Requests per second on the machine of 1994.");
    let cold_misses = column(
        "cold_miss_ratio",
        "Share of the kernel's cold misses of L2 on the machine of 1994 with the smallest of \
         the chosen sizes of caches; absent if these sizes were not measured.",
    );
    service_columns()
        .of_ref(|row: &Row<'_>| &row.name)
        .and(kernel)
        .and([
            with_published(computation, "computation", [93, 59], |row: &Row<'_>| {
                let published = row.published_figure(|row| row.computation_us * 1e3);
                (row.figure_on(0, Joined::computation_ns), published)
            }),
            speed_ups("speed-up", "computation", Joined::computation_ns, |row| row.speed_up),
            with_published(latency, "latency", [85, 56], |row: &Row<'_>| {
                let published = row.published_figure(|row| row.latency_us * 1e3);
                (row.figure_on(0, Joined::latency_ns), published)
            }),
            speed_ups("latency's", "latency", Joined::latency_ns, |row| row.latency_speed_up),
        ])
        .and(per_instruction)
        .and([
            with_published(rate, "rate", [55, 49], |row: &Row<'_>| {
                (row.figure_on(0, Joined::rate_hz), row.published_figure(|row| row.rate_hz))
            }),
            with_published(cold_misses, "% of cold misses", [54, 48], move |row: &Row<'_>| {
                (row.cold_miss_ratio, percent(row.published.cold_percent()))
            }),
            column("reason", "Why there are no figures.")
                .priority(40)
                .text(|row: &Row<'_>| row.reason.clone()),
        ])
        .and(stall_shares())
}

/// The columns of the shares of waits for instructions and for data in all memory stalls of the kernel, on the first and
/// the third machine.
fn stall_shares<'s>() -> impl Iterator<Item = Columns<'s, Row<'s>>> {
    type Shares = (&'static str, &'static str, &'static str, fn(Published<'_>) -> [f64; 2]);
    let shares: [Shares; 2] = [
        ("fetch_stall", "(I)", FETCH_STALL, |row| row.fetch_stall_percent()),
        ("data_stall", "(D)", DATA_STALL, |row| row.data_stall_percent()),
    ];
    [0, 2].into_iter().enumerate().flat_map(move |(pair, position)| {
        shares.map(|(name, title, counter, published)| {
            let year = YEARS[position];
            let kind = if counter == FETCH_STALL { "instructions" } else { "data" };
            let doc = format!(
                "Share of the service's waits for {kind} in all memory stalls of the kernel, {year}."
            );
            let column = column(&format!("{name}_{year}_ratio"), &doc);
            let title = format!("% stall {title} {year}");
            with_published(column, &title, [53, 47], move |row: &Row<'_>| {
                let simulated = row.share_on(position, |joined| joined.stall_ratio(counter));
                (simulated, Some(percent_to_ratio(published(row.published)[pair])))
            })
        })
    })
}

/// A row for each service of the paper, and one for all other services, in each workload that at least one machine ran.
pub(super) fn uniprocessor_services(sides: &Sides<'_>) -> Table {
    let doc = "Services of the kernel on the machines of 1994, 1996 and 1998, simulated and \
               published (Table 4.8).";
    let is_measured = |workload: &&str| {
        (0..YEARS.len()).any(|position| sides.machine(workload, position).is_some())
    };
    let measured_workloads = sides.workloads().into_iter().filter(is_measured);
    let rows = measured_workloads.flat_map(|workload| {
        let service_rows = sides.paper.services(workload).map(move |published| {
            let matching = published.matching_services();
            let services_by_machine = on_machines(sides, workload, matching);
            Row {
                name: ServiceName::new(workload, &published.service, matching),
                published: Published::Service(published),
                reason: services_by_machine.as_ref().err().cloned(),
                machines: services_by_machine.unwrap_or_default(),
                cold_miss_ratio: cold_misses(sides, workload, |run| run.join_services(&matching?)),
            }
        });
        let others = sides.paper.other_services(workload);
        service_rows.chain(others.map(|published| others_row(sides, workload, published)))
    });
    columns()
        .table("uniprocessor_services", doc, rows)
        .displayed(display_by_workload("Services on three machines (Table 4.8)"))
}

/// The row that sums the services without a row of their own.
fn others_row<'s>(sides: &Sides<'s>, workload: &str, published: &'s OtherServices) -> Row<'s> {
    let listed: Vec<MatchingServices<'_>> =
        sides.paper.services(workload).filter_map(ServiceRow::matching_services).collect();
    let machines =
        [0, 1, 2].map(|position| sides.machine(workload, position)?.joined_others(&listed));
    Row {
        name: ServiceName::of_other_services(workload),
        published: Published::Others(published),
        reason: machines.iter().all(Option::is_none).then(|| NOT_REQUESTED.to_owned()),
        machines,
        cold_miss_ratio: cold_misses(sides, workload, |run| run.joined_others(&listed)),
    }
}

/// The services on each machine that correspond to one service of the paper, or the reason why there are none.
fn on_machines<'a>(
    sides: &Sides<'a>,
    workload: &str,
    matching: Option<MatchingServices<'_>>,
) -> Result<[Option<Joined<'a>>; 3], String> {
    let matching = matching.ok_or_else(|| NO_SERVICE.to_owned())?;
    let services =
        [0, 1, 2].map(|position| sides.machine(workload, position)?.join_services(&matching));
    if services.iter().all(Option::is_none) {
        return Err(NOT_REQUESTED.to_owned());
    }
    Ok(services)
}

// Reasons why a service of the paper has no figures, as cells of the column `reason`.
pub(super) const NO_SERVICE: &str =
    "this kernel has no such service: hardware walks the page tables, or the names differ";
pub(super) const NOT_REQUESTED: &str = "no requests in the window";

/// A service's share of the kernel's cold misses of L2. Cold misses do not depend on the size of the cache, so the run
/// with the smallest caches gives them. `None` without such a run or service, or if the kernel has no cold misses.
fn cold_misses<'a>(
    sides: &Sides<'a>,
    workload: &str,
    services: impl Fn(&'a MachineRun) -> Option<Joined<'a>>,
) -> Option<f64> {
    let run = *sides.cache_sizes(workload, false).first()?;
    let service_misses = services(run)?.misses("L2", COLD)?;
    let kernel_misses = run.misses_by_service("L2", COLD, |row| row.service.class.is_kernel())?;
    ratio(service_misses as f64, kernel_misses as f64)
}
