//! Table `event_rates`: Tables 4.2 and 5.2 of the paper. Users' programs read the columns:
//! names and order must not change.

use lab::services::Class;
use lab::services::counters::INSTRUCTIONS;
use record::{Columns, Table, column};

use super::super::published::name_matches;
use super::super::runs::{MachineRun, ratio};
use super::{Sides, display_by_workload, run_columns};

/// The source of an event's count.
enum Source {
    Seconds,
    /// Requests of the class's services with these names, in which `*` stands for any text. No names: all services of
    /// the class.
    Requests(Class, &'static [&'static str]),
    /// The sum of the named counters, on all CPUs.
    Counters(&'static [&'static str]),
}

/// The events: name in the paper's data, name in the table, and source of the count.
const EVENTS: [(&str, &str, Source); 13] = [
    ("duration_s", "duration, s", Source::Seconds),
    (
        "process_creations",
        "process creations",
        Source::Requests(Class::Syscall, &["fork", "vfork", "clone", "clone3"]),
    ),
    ("context_switches", "passes through the scheduler", Source::Requests(Class::Scheduler, &[])),
    ("interrupts", "interrupts", Source::Requests(Class::Interrupt, &[])),
    ("system_calls", "system calls", Source::Requests(Class::Syscall, &[])),
    ("tlb_refills", "TLB misses", Source::Counters(&["itlb_misses", "dtlb_misses"])),
    ("vm_faults", "page faults", Source::Requests(Class::Fault, &[])),
    ("other_exceptions", "other exceptions", Source::Requests(Class::Exception, &[])),
    ("instructions", "instructions", Source::Counters(&[INSTRUCTIONS])),
    ("l1i_misses", "L1I misses", Source::Counters(&["l1i_misses"])),
    ("l1d_misses", "L1D misses", Source::Counters(&["l1d_load_misses", "l1d_store_misses"])),
    ("l2_misses", "L2 misses", Source::Counters(&["l2_fetch_misses", "l2_data_misses"])),
    ("disk_ios", "disk interrupts", Source::Requests(Class::Irq, &["virtio*-req.*"])),
];

impl Source {
    /// The events in the window of a run. `None` if the model does not count them.
    fn count(&self, run: &MachineRun) -> Option<f64> {
        match self {
            Source::Seconds => Some(run.seconds()),
            Source::Counters(names) => {
                let sums = names.iter().map(|name| run.sum(name, |_| true));
                sums.sum::<Option<u64>>().map(|sum| sum as f64)
            }
            Source::Requests(class, names) => {
                let is_named = |name: &str| {
                    names.is_empty() || names.iter().any(|pattern| name_matches(pattern, name))
                };
                let services = run.sample.services.iter();
                let named = services.filter(|stats| stats.class == *class && is_named(&stats.name));
                let requests = named.filter_map(|service| service.requests);
                Some(requests.sum::<u64>() as f64)
            }
        }
    }
}

/// An event of a workload on a machine.
struct Event<'s> {
    run: &'s MachineRun,
    label: &'static str,
    /// Whether the row is the duration of the window, in seconds, instead of an event.
    is_time: bool,
    /// Events in the window.
    count: Option<f64>,
    /// The paper's events per second.
    published: Option<f64>,
    /// The paper's instructions per second.
    published_instructions: Option<f64>,
}

impl Event<'_> {
    /// Events per 1,000 instructions. `None` for the duration.
    fn per_kinstruction(&self, count: Option<f64>, instructions: Option<f64>) -> Option<f64> {
        if self.is_time {
            return None;
        }
        ratio(count? * 1000.0, instructions?)
    }
}

fn columns<'s>() -> Columns<'s, Event<'s>> {
    run_columns().of_ref(|event: &Event<'_>| event.run).and([
        column("event", "The event.").priority(99).key().text(|event: &Event<'_>| event.label),
        column("count", "Events in the window; in the row of the duration: seconds.")
            .priority(60)
            .real(|event: &Event<'_>| event.count),
        column("simulated_per_second", "Events per second; in the row of the duration: seconds.")
            .title("simulated")
            .priority(98)
            .real(|event: &Event<'_>| {
                if event.is_time { event.count } else { ratio(event.count?, event.run.seconds()) }
            }),
        column("published_per_second", "The paper's figure; absent if it has none.")
            .title("paper")
            .priority(97)
            .real(|event: &Event<'_>| event.published),
        column(
            "simulated_per_kinstruction",
            "Events per 1,000 instructions, comparable between the two machines.",
        )
        .title("per 1,000 instr.")
        .priority(90)
        .real(|event: &Event<'_>| {
            let instructions = event.run.sum(INSTRUCTIONS, |_| true).map(|sum| sum as f64);
            event.per_kinstruction(event.count, instructions)
        }),
        column("published_per_kinstruction", "The paper's events per 1,000 of its instructions.")
            .title("paper's")
            .priority(89)
            .real(|event: &Event<'_>| {
                event.per_kinstruction(event.published, event.published_instructions)
            }),
    ])
}

/// A row for each event of a workload on the first machine and on the multiprocessor.
pub(super) fn event_rates(sides: &Sides<'_>) -> Table {
    let doc = "Events of the operating system and the hardware, per second and per 1,000 \
               instructions: Table 4.2 (one CPU) and Table 5.2 (eight, all together).";
    let mut rows = Vec::new();
    for workload in sides.workloads() {
        let first = sides.machine(workload, 0).map(|run| (run, false));
        let multi = sides.multiprocessor(workload).map(|run| (run, true));
        for (run, is_multi) in first.into_iter().chain(multi) {
            let published = |event: &str| sides.paper.event_rate(event, workload, is_multi);
            rows.extend(EVENTS.iter().map(|(event, label, source)| Event {
                run,
                label,
                is_time: matches!(source, Source::Seconds),
                count: source.count(run),
                published: published(event),
                published_instructions: published("instructions"),
            }));
        }
    }
    columns()
        .table("event_rates", doc, rows)
        .displayed(display_by_workload("Event rates (Tables 4.2 and 5.2)"))
}
