//! Services on eight CPUs, compared with one: Table 5.4.

use lab::services::counters::{CYCLES, DATA_STALL, FETCH_STALL, PIPELINE_STALL};
use record::{Column, Format, Table, TableDisplay, Value};

use super::super::published::SlowdownRow;
use super::super::runs::{Joined, MachineRun, ratio};
use super::services::{NO_SERVICE, NOT_REQUESTED};
use super::{Sides, factor, percent_to_ratio, real, text, workload_column};

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
    ("data_stall", "D stall", "waits for other data"),
];

fn columns() -> Vec<Column> {
    let time = |name: &str, doc: &str| real(name, doc).format(Format::Microseconds);
    let mut columns = vec![
        workload_column(),
        text("service", "The service, as the paper names it.").priority(100).key(),
        text("here", "The corresponding services of this kernel; absent if there is none.")
            .priority(70),
        real("kernel_ratio", "Share of the kernel's time.").title("% kernel").priority(98),
        real("published_kernel_ratio", "The paper's figure.").title("paper").priority(60),
        time("computation_ns", "Mean time of the service itself.")
            .title("computation")
            .priority(97),
        time("published_computation_ns", "The paper's figure.").title("paper").priority(59),
        factor("slowdown_ratio", "Computation over computation on one CPU.")
            .title("slowdown")
            .priority(96),
        factor("published_slowdown_ratio", "The paper's figure.").title("paper").priority(95),
    ];
    for (name, title, doc) in PARTS {
        let doc = format!("Share of the service's time that it {doc}.");
        columns.push(real(&format!("{name}_ratio"), &doc).title(title).priority(90));
        columns.push(
            real(&format!("published_{name}_ratio"), "The paper's figure.")
                .title("paper")
                .priority(50),
        );
    }
    columns.extend([
        time("latency_ns", "Mean time from start to end.").title("latency").priority(85),
        time("published_latency_ns", "The paper's figure.").title("paper").priority(48),
        factor("latency_slowdown_ratio", "Latency over latency on one CPU.")
            .title("latency's slowdown")
            .priority(84),
        factor("published_latency_slowdown_ratio", "The paper's figure.")
            .title("paper")
            .priority(47),
        time("blocked_ns", "Mean time that the task is blocked.").title("blocked").priority(80),
        time("published_blocked_ns", "The paper's figure.").title("paper").priority(46),
        time("descheduled_ns", "Mean time that the task is runnable but does not run.")
            .title("descheduled")
            .priority(79),
        time("published_descheduled_ns", "The paper's figure.").title("paper").priority(45),
        real("rate_hz", "Requests per second, of all CPUs.").title("rate").priority(55),
        real("published_rate_hz", "The paper's figure.").title("paper").priority(44),
        factor("transfers_per_request", "Lines that another CPU's cache supplied, per request.")
            .title("transfers")
            .priority(54),
        factor(
            "coherence_misses_per_request",
            "Misses of L2 of lines that another CPU had written, per request, with the smallest \
             of the chosen sizes of caches; absent if these sizes were not measured.",
        )
        .title("coherence misses")
        .priority(53),
        factor("published_coherence_misses", "The paper's coherence misses per call.")
            .title("paper")
            .priority(43),
        factor("lock_acquires_per_request", "Locks that the kernel takes per request.")
            .title("locks")
            .priority(52),
        factor("published_lock_acquires", "The paper's acquisitions of locks per call.")
            .title("paper")
            .priority(42),
        text("reason", "Why there are no figures.").priority(40),
    ]);
    columns
}

/// A row for each service of the paper.
pub(super) fn multiprocessor_services(sides: &Sides<'_>) -> Table {
    let doc = "Services of the kernel on eight CPUs: how much slower than on one, and where the \
               time goes (Table 5.4).";
    let display = TableDisplay {
        title: "Services on eight CPUs (Table 5.4)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("multiprocessor_services", doc, columns()).displayed(display);
    for workload in sides.workloads() {
        let Some(multi) = sides.multiprocessor(workload) else { continue };
        let uni = sides.machine(workload, 0);
        for published in sides.paper.slowdowns(workload) {
            let coherence = coherence_misses(sides, workload, published);
            table.push(row(multi, uni, published, coherence));
        }
    }
    table
}

/// Shares of a service's time, in the order of [`PARTS`].
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
    let spin = service.spin_ticks().and_then(|spin| ratio(spin as f64, ticks));
    Some([execution, spin, coherence, upgrade, Some(fetch), other_data])
}

/// Coherence misses per request of a service. They do not depend on the size of the cache.
fn coherence_misses(sides: &Sides<'_>, workload: &str, published: &SlowdownRow) -> Option<f64> {
    let run = *sides.cache_sizes(workload, true).first()?;
    let found = run.joined(&published.matching_services()?)?;
    let misses = found.misses("L2", &["true_sharing", "false_sharing"])?;
    ratio(misses as f64, found.requests()? as f64)
}

fn row(
    multi: &MachineRun,
    uni: Option<&MachineRun>,
    published: &SlowdownRow,
    coherence_misses: Option<f64>,
) -> Vec<Value> {
    let matching = published.matching_services();
    let found = matching.and_then(|matching| multi.joined(&matching));
    let found_on_uni = matching.and_then(|matching| uni?.joined(&matching));
    let reason = match (matching, &found) {
        (None, _) => Some(NO_SERVICE),
        (Some(_), None) => Some(NOT_REQUESTED),
        _ => None,
    };
    let on_multi = |figure: &dyn Fn(&Joined<'_>) -> Option<f64>| found.as_ref().and_then(figure);
    let slowdown = |figure: &dyn Fn(&Joined<'_>) -> Option<f64>| {
        let both = on_multi(figure).zip(found_on_uni.as_ref().and_then(figure));
        both.and_then(|(multi, uni)| ratio(multi, uni))
    };
    let slower = |percent: f64| 1.0 + percent / 100.0;
    let ns = |us: Option<f64>| us.map(|us| us * 1e3);
    let mut row: Vec<Value> = vec![
        multi.workload.as_str().into(),
        published.service.as_str().into(),
        matching.map(|matching| matching.label()).into(),
        on_multi(&|joined: &Joined<'_>| joined.kernel_ratio()).into(),
        percent_to_ratio(published.kernel_percent[0]).into(),
        on_multi(&|joined: &Joined<'_>| joined.computation_ns()).into(),
        ns(Some(published.computation_us)).into(),
        slowdown(&|joined: &Joined<'_>| joined.computation_ns()).into(),
        slower(published.slowdown_percent).into(),
    ];
    let parts = found.as_ref().and_then(|found| parts(found, multi)).unwrap_or_default();
    for (part, published) in parts.into_iter().zip(published.parts_percent) {
        row.extend([Value::from(part), percent_to_ratio(published).into()]);
    }
    let transfers = on_multi(&|joined: &Joined<'_>| {
        ratio(joined.count("cache_to_cache")? as f64, joined.requests()? as f64)
    });
    let locks = on_multi(&|joined: &Joined<'_>| {
        ratio(joined.lock_acquires()? as f64, joined.requests()? as f64)
    });
    row.extend([
        on_multi(&|joined: &Joined<'_>| joined.latency_ns()).into(),
        ns(Some(published.latency_us)).into(),
        slowdown(&|joined: &Joined<'_>| joined.latency_ns()).into(),
        slower(published.latency_slowdown_percent).into(),
        on_multi(&|joined: &Joined<'_>| joined.blocked_ns()).into(),
        ns(published.blocked_us).into(),
        on_multi(&|joined: &Joined<'_>| joined.descheduled_ns()).into(),
        ns(published.descheduled_us).into(),
        on_multi(&|joined: &Joined<'_>| joined.rate_hz()).into(),
        published.rate_hz.into(),
        transfers.into(),
        coherence_misses.into(),
        published.coherence_misses.into(),
        locks.into(),
        published.lock_acquires.into(),
        reason.into(),
    ]);
    row
}
