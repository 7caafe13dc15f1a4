//! Table `multiprocessor_services`: services on eight CPUs compared with one CPU (Table 5.4). Users' programs read the
//! columns: names and order must not change.

use lab::services::counters::{CYCLES, DATA_STALL, FETCH_STALL, PIPELINE_STALL};
use record::{Columns, Table, column};

use super::super::published::{MatchingServices, OtherSlowdowns, SlowdownRow};
use super::super::runs::{Joined, MachineRun, ratio};
use super::services::{Figure, NO_SERVICE, NOT_REQUESTED};
use super::{
    ServiceName, Sides, display_by_workload, factor, percent_to_ratio, service_columns, time,
    with_published,
};

/// Parts of the time of a service: prefix of the column, title, and the end of the column's description.
const PARTS: [(&str, &str, &str); 6] = [
    ("execution", "execution", "executes"),
    (
        "spin_lock",
        "spin lock",
        "spins in the kernel's slow path for a lock that another CPU holds. The service's time \
         does not include these waits, because they are services of their own",
    ),
    ("coherence", "coherence", "waits for a line that another CPU's cache supplies"),
    ("upgrade", "upgrade", "waits for other caches to give up a line that it writes"),
    ("fetch_stall", "I stall", "waits for instructions"),
    (
        "data_stall",
        "D stall",
        "waits for other data, and of first stores to lines that no other cache holds",
    ),
];

/// A service of the paper, and the corresponding services on eight CPUs and on one CPU.
struct Row<'s> {
    name: ServiceName,
    /// The paper's share of the kernel's time.
    published_kernel_percent: f64,
    /// The row of a single service. `None` for all services without a row of their own.
    published: Option<&'s SlowdownRow>,
    /// The services on eight CPUs.
    multi: Option<Joined<'s>>,
    /// The services on one CPU: the paper's first machine.
    uni: Option<Joined<'s>>,
    /// Shares of the service's time, in the order of [`PARTS`].
    parts: [Option<f64>; 6],
    /// Coherence misses per request.
    coherence_misses: Option<f64>,
}

impl<'s> Row<'s> {
    fn new(sides: &Sides<'s>, multi: &'s MachineRun, published: &'s SlowdownRow) -> Row<'s> {
        let workload = multi.workload.as_str();
        let matching = published.matching_services();
        let services = matching.and_then(|matching| multi.join_services(&matching));
        let time_parts = services.as_ref().and_then(|services| parts(services, multi));
        Row {
            name: ServiceName::new(workload, &published.service, matching),
            published_kernel_percent: published.kernel_percent[0],
            published: Some(published),
            parts: time_parts.unwrap_or_default(),
            multi: services,
            uni: matching.and_then(|matching| sides.machine(workload, 0)?.join_services(&matching)),
            coherence_misses: coherence_misses(sides, workload, published),
        }
    }

    /// The row of the services without a row of their own. The paper has only their share of the kernel's time.
    fn of_other_services(
        sides: &Sides<'s>,
        multi: &'s MachineRun,
        published: &'s OtherSlowdowns,
    ) -> Row<'s> {
        let workload = multi.workload.as_str();
        let listed: Vec<MatchingServices<'_>> =
            sides.paper.slowdowns(workload).filter_map(SlowdownRow::matching_services).collect();
        Row {
            name: ServiceName::of_other_services(workload),
            published_kernel_percent: published.kernel_percent[0],
            published: None,
            parts: [None; 6],
            multi: multi.joined_others(&listed),
            uni: None,
            coherence_misses: None,
        }
    }

    /// The paper's figure of a single service. `None` for the other services, and if the paper has no such figure.
    fn published_figure(&self, figure: impl Fn(&SlowdownRow) -> Option<f64>) -> Option<f64> {
        self.published.and_then(figure)
    }

    /// A figure of a single service on eight CPUs. `None` for the other services.
    fn multi_figure(&self, figure: impl Fn(&Joined<'s>) -> Option<f64>) -> Option<f64> {
        self.published?;
        self.multi_share(figure)
    }

    /// A share of the services on eight CPUs. `None` if the services were not measured there.
    fn multi_share(&self, figure: impl Fn(&Joined<'s>) -> Option<f64>) -> Option<f64> {
        self.multi.as_ref().and_then(figure)
    }

    /// A figure on eight CPUs over the figure on one CPU. `None` if either is unknown.
    fn slowdown(&self, figure: Figure<'s>) -> Option<f64> {
        ratio(self.multi_figure(figure)?, self.uni.as_ref().and_then(figure)?)
    }

    /// A count per request, on eight CPUs. `None` if either count is unknown.
    fn per_request(&self, count: impl Fn(&Joined<'s>) -> Option<u64>) -> Option<f64> {
        self.multi_figure(|joined| ratio(count(joined)? as f64, joined.requests()? as f64))
    }

    /// Why the service has no figures; `None` if it has.
    fn reason(&self) -> Option<&'static str> {
        match (&self.name.counterpart, &self.multi) {
            (None, _) => Some(NO_SERVICE),
            (Some(_), None) => Some(NOT_REQUESTED),
            _ => None,
        }
    }
}

fn columns<'s>() -> Columns<'s, Row<'s>> {
    let percent = |percent: f64| Some(percent_to_ratio(percent));
    let slower = |percent: Option<f64>| Some(1.0 + percent? / 100.0);
    let ns = |us: Option<f64>| us.map(|us| us * 1e3);
    let parts = PARTS.into_iter().enumerate().map(|(position, (name, title, doc))| {
        let doc = format!("Share of the service's time that it {doc}.");
        let column = column(&format!("{name}_ratio"), &doc);
        with_published(column, title, [90, 50], move |row: &Row<'_>| {
            let published = row.published_figure(|row| percent(row.parts_percent[position]));
            (row.parts[position], published)
        })
    });
    let kernel = column("kernel_ratio", "Share of the kernel's time.");
    let computation = time("computation_ns", "Mean time of the service itself.");
    let slowdown = factor("slowdown_ratio", "Computation over computation on one CPU.");
    let latency = time("latency_ns", "Mean time from start to end.");
    let latency_slowdown = factor("latency_slowdown_ratio", "Latency over latency on one CPU.");
    let blocked = time("blocked_ns", "Mean time that the task is blocked.");
    let descheduled =
        time("descheduled_ns", "Mean time that the task is runnable but does not run.");
    let rate = column("rate_hz", "Requests per second, of all CPUs.");
    service_columns()
        .of_ref(|row: &Row<'_>| &row.name)
        .and([
            with_published(kernel, "% kernel", [98, 60], move |row: &Row<'_>| {
                (row.multi_share(Joined::kernel_ratio), percent(row.published_kernel_percent))
            }),
            with_published(computation, "computation", [97, 59], move |row: &Row<'_>| {
                let published = row.published_figure(|row| ns(Some(row.computation_us)));
                (row.multi_figure(Joined::computation_ns), published)
            }),
            with_published(slowdown, "slowdown", [96, 95], move |row: &Row<'_>| {
                let published = row.published_figure(|row| slower(row.slowdown_percent));
                (row.slowdown(Joined::computation_ns), published)
            }),
        ])
        .and(parts)
        .and([
            with_published(latency, "latency", [85, 48], move |row: &Row<'_>| {
                let published = row.published_figure(|row| ns(Some(row.latency_us)));
                (row.multi_figure(Joined::latency_ns), published)
            }),
            with_published(
                latency_slowdown,
                "latency's slowdown",
                [84, 47],
                move |row: &Row<'_>| {
                    let published =
                        row.published_figure(|row| slower(row.latency_slowdown_percent));
                    (row.slowdown(Joined::latency_ns), published)
                },
            ),
            with_published(blocked, "blocked", [80, 46], move |row: &Row<'_>| {
                let published = row.published_figure(|row| ns(row.blocked_us));
                (row.multi_figure(Joined::blocked_ns), published)
            }),
            with_published(descheduled, "descheduled", [79, 45], move |row: &Row<'_>| {
                let published = row.published_figure(|row| ns(row.descheduled_us));
                (row.multi_figure(Joined::descheduled_ns), published)
            }),
            with_published(rate, "rate", [55, 44], |row: &Row<'_>| {
                (row.multi_figure(Joined::rate_hz), row.published_figure(|row| Some(row.rate_hz)))
            }),
            factor(
                "transfers_per_request",
                "Lines that another CPU's cache supplied, per request.",
            )
            .title("transfers")
            .priority(54)
            .real(|row: &Row<'_>| row.per_request(|joined| joined.count("cache_to_cache"))),
            factor(
                "coherence_misses_per_request",
                "Misses of L2 of lines that another CPU had written, per request, with the \
                 smallest of the chosen sizes of caches; absent if these sizes were not measured.",
            )
            .title("coherence misses")
            .priority(53)
            .real(|row: &Row<'_>| row.coherence_misses),
            factor("published_coherence_misses", "The paper's coherence misses per call.")
                .title("paper")
                .priority(43)
                .real(|row: &Row<'_>| row.published_figure(|row| Some(row.coherence_misses))),
            factor("lock_acquires_per_request", "Locks that the kernel takes per request.")
                .title("locks")
                .priority(52)
                .real(|row: &Row<'_>| row.per_request(Joined::lock_acquires)),
            factor("published_lock_acquires", "The paper's acquisitions of locks per call.")
                .title("paper")
                .priority(42)
                .real(|row: &Row<'_>| row.published_figure(|row| Some(row.lock_acquires))),
            column("reason", "Why there are no figures.")
                .priority(40)
                .text(|row: &Row<'_>| row.reason()),
        ])
}

/// A row for each service of the paper.
pub(super) fn multiprocessor_services(sides: &Sides<'_>) -> Table {
    let doc = "Services of the kernel on eight CPUs: how much slower than on one, and where the \
               time goes (Table 5.4).";
    let runs = sides.workloads().into_iter().filter_map(|workload| sides.multiprocessor(workload));
    let rows = runs.flat_map(|run| {
        let services = sides.paper.slowdowns(&run.workload);
        let others = sides.paper.other_slowdowns(&run.workload);
        services
            .map(move |published| Row::new(sides, run, published))
            .chain(others.map(|published| Row::of_other_services(sides, run, published)))
    });
    columns()
        .table("multiprocessor_services", doc, rows)
        .displayed(display_by_workload("Services on eight CPUs (Table 5.4)"))
}

/// Shares of a service's time, in the order of [`PARTS`]. The time in memory is split by counts of coherence events and
/// their costs, so a share is limited to 0. `None` if the time or its stalls are not counted.
fn parts(service: &Joined<'_>, run: &MachineRun) -> Option<[Option<f64>; 6]> {
    let ticks = service.ticks()? as f64;
    let share = |name: &str| ratio(service.count(name)? as f64, ticks);
    let coherence = service.time_ratio("cache_to_cache", run.costs.transfer_cycles);
    let upgrade = service.time_ratio("upgrades", run.costs.upgrade_cycles);
    let data = share(DATA_STALL)?;
    let fetch = share(FETCH_STALL)?;
    let pipeline = share(PIPELINE_STALL).unwrap_or(0.0);
    let execution = share(CYCLES).map(|cycles| (cycles - fetch - data - pipeline).max(0.0));
    let other_data =
        coherence.zip(upgrade).map(|(coherence, upgrade)| (data - coherence - upgrade).max(0.0));
    let spin = service.spin_ticks().and_then(|spin_ticks| ratio(spin_ticks as f64, ticks));
    Some([execution, spin, coherence, upgrade, Some(fetch), other_data])
}

/// Coherence misses of L2 per request of a service. They do not depend on the size of the cache, so the run with the
/// smallest caches gives them. `None` without such a run, service or request.
fn coherence_misses(sides: &Sides<'_>, workload: &str, published: &SlowdownRow) -> Option<f64> {
    let run = *sides.cache_sizes(workload, true).first()?;
    let services = run.join_services(&published.matching_services()?)?;
    let misses = services.misses("L2", &["true_sharing", "false_sharing"])?;
    ratio(misses as f64, services.requests()? as f64)
}
