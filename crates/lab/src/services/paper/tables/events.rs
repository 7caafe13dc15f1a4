//! Event rates: Tables 4.2 and 5.2.

use record::{Column, Kind, Table, TableDisplay, Value};

use super::super::super::class::Class;
use super::super::super::counters::INSTRUCTIONS;
use super::super::runs::{MachineRun, ratio};
use super::{Sides, model_column, real, text, workload_column};

/// What is counted.
enum Source {
    Seconds,
    /// Requests of services of a class, all or those of these names; a name may end in `*`.
    Requests(Class, &'static [&'static str]),
    /// Counters, on all CPUs.
    Counters(&'static [&'static str]),
}

/// The events: name in the paper's data, in words, and what counts them.
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
    ("disk_ios", "disk interrupts", Source::Requests(Class::Irq, &["virtio*"])),
];

impl Source {
    fn count(&self, run: &MachineRun) -> Option<f64> {
        match self {
            Source::Seconds => Some(run.seconds()),
            Source::Counters(names) => {
                let sums = names.iter().map(|name| run.sum(name, |_| true));
                sums.sum::<Option<u64>>().map(|sum| sum as f64)
            }
            Source::Requests(class, names) => {
                let is_named = |name: &str| {
                    names.is_empty()
                        || names.iter().any(|one| match one.strip_suffix('*') {
                            Some(start) => name.starts_with(start),
                            None => name == *one,
                        })
                };
                let services = run.sample.services.iter();
                let found = services.filter(|one| one.class == *class && is_named(&one.name));
                let requests = found.filter_map(|service| service.requests);
                Some(requests.sum::<u64>() as f64)
            }
        }
    }
}

fn columns() -> Vec<Column> {
    vec![
        workload_column(),
        model_column(),
        text("event", "The event.").priority(99).key(),
        Column::new("count", Kind::Real, "How often, in the window; the duration in seconds.")
            .priority(60),
        real("simulated_per_second", "Events per second; of the duration, seconds.")
            .title("simulated")
            .priority(98),
        real("published_per_second", "The paper's figure; absent where it has none.")
            .title("paper")
            .priority(97),
        real(
            "simulated_per_kinstruction",
            "Events per 1,000 instructions, in which the two machines may be compared.",
        )
        .title("per 1,000 instr.")
        .priority(90),
        real("published_per_kinstruction", "The same of the paper's figures.")
            .title("paper's")
            .priority(89),
    ]
}

/// A row for each event of a workload on the first machine and on the multiprocessor.
pub(super) fn event_rates(sides: &Sides<'_>) -> Table {
    let doc = "Events of the operating system and the hardware, per second and per 1,000 instructions: \
               Table 4.2 (one CPU) and Table 5.2 (eight, all together).";
    let display = TableDisplay {
        title: "Event rates (Tables 4.2 and 5.2)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("event_rates", doc, columns()).displayed(display);
    for workload in sides.workloads() {
        let first = sides.machine(workload, 0).map(|run| (run, false));
        let multi = sides.multiprocessor(workload).map(|run| (run, true));
        for (run, is_multi) in first.into_iter().chain(multi) {
            let published = |event: &str| sides.paper.event_rate(event, workload, is_multi);
            let instructions = run.sum(INSTRUCTIONS, |_| true).map(|sum| sum as f64);
            for (event, words, source) in &EVENTS {
                let count = source.count(run);
                let is_time = matches!(source, Source::Seconds);
                let rate = match is_time {
                    true => count,
                    false => count.and_then(|count| ratio(count, run.seconds())),
                };
                let per = |count: Option<f64>, of: Option<f64>| -> Value {
                    let both = count.zip(of).filter(|_| !is_time);
                    both.and_then(|(count, of)| ratio(count * 1000.0, of)).into()
                };
                table.push(vec![
                    workload.into(),
                    run.model.as_str().into(),
                    (*words).into(),
                    count.into(),
                    rate.into(),
                    published(event).into(),
                    per(count, instructions),
                    per(published(event), published("instructions")),
                ]);
            }
        }
    }
    table
}
