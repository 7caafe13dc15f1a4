//! `irqlab handlers --by`: who pays for interrupts, on the simulated bench and by the live bench in a guest. Without QEMU
//! the tests say so and pass.

use std::collections::BTreeMap;

use crate::delays::{number, rows_with};
use crate::support::{Place, can_simulate};

/// The guest does the same with the option: table `handlers` stays as it is, and the times of the victims add up to it.
#[test]
fn times_of_victims_add_up_and_nothing_else_changes() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |options: &[&str], table: &str| {
        let line = "handlers --on sim -q --load busy --rate high --stimulus disk -d 50ms \
                    --disk virtio-blk,latency=100us --format csv --table";
        let words = line.split_whitespace().chain([table]).chain(options.iter().copied());
        let run = workspace.run(&words.collect::<Vec<_>>());
        run.assert_code(0);
        run.out
    };
    let by_task = ["--by", "task"];
    let (with, without) = (run(&by_task, "handlers"), run(&[], "handlers"));
    let handlers = rows_with(&with, "self_mean_ns");
    assert_eq!(handlers, rows_with(&without, "self_mean_ns"));
    let victims = rows_with(&run(&by_task, "victims"), "victim");
    let mut times: BTreeMap<[&str; 2], u64> = BTreeMap::new();
    for row in &victims {
        *times.entry(["kind", "number"].map(|name| &*row[name])).or_default() +=
            number(row, "self_total_ns");
    }
    let sums = handlers.iter().filter(|row| row["cpu"] == "all");
    let sums = sums.filter(|row| ["irq", "vector", "softirq"].contains(&&*row["kind"]));
    let expected: BTreeMap<[&str; 2], u64> = sums
        .map(|row| (["kind", "number"].map(|name| &*row[name]), number(row, "self_total_ns")))
        .collect();
    assert!(expected.len() > 2, "{handlers:?}");
    assert_eq!(times, expected);
    assert!(victims.iter().any(|row| row["victim_kind"] == "task"), "{victims:?}");
    // The simulator knows the senders of these interrupts, but not for whom a device or a softirq works.
    let has_sender = |name: &str| name == "reschedule" || name.starts_with("call_function");
    let unknown = |row: &BTreeMap<String, String>| row["cause"] == "(unknown)";
    assert!(victims.iter().all(|row| has_sender(&row["name"]) || unknown(row)), "{victims:?}");
}

/// The simulator does not know groups, and says so before it starts a machine.
#[test]
fn groups_are_refused_on_the_simulated_bench() {
    let workspace = Place::new();
    workspace.run(&["handlers", "--on", "sim", "--by", "cgroup"]).assert_code(2).assert_says(
        "--by cgroup: the simulator knows tasks, but not their control groups (--by task)",
    );
}

/// The live bench in a guest whose kernel has groups of version 2 only, and no events of senders: victims have their
/// groups, no cause is guessed, and the reason is stated. Control characters in the name of a group are escaped.
#[test]
fn a_kernel_without_events_of_senders_has_victims_without_causes() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let inside = "mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && \
                  group=$(printf '/sys/fs/cgroup/a\\033b') && mkdir \"$group\" && echo $$ > \"$group/cgroup.procs\" && \
                  irqlab handlers --by cgroup --load busy --rate low --stimulus timer -d 200ms --events none && \
                  echo THE METHODS && irqlab handlers --by cgroup --load busy --rate low --stimulus timer -d 100ms \
                  --events none --format csv --table victims";
    let machine = ["sim", "boot", "-q", "--with-irqlab", "--", inside];
    let ended = workspace.run(&machine);
    ended.assert_code(0);
    let row = ended.out.lines().find(|line| line.starts_with("/a\\u{1b}b"));
    let row = row.unwrap_or_else(|| panic!("no row of the group: {}", ended.out));
    assert!(row.contains("(unknown)") && row.contains("local_timer"), "{row}");
    let reason = "causes: senders of function calls: this kernel has no tracepoint";
    assert!(ended.out.contains(reason), "{}", ended.out);
    let methods = ended.out.rsplit_once("THE METHODS").expect("the second run").1;
    let mut of_vectors = methods.lines().filter(|line| line.contains(",vector,")).peekable();
    assert!(of_vectors.peek().is_some(), "{methods}");
    assert!(!of_vectors.any(|row| row.contains("csd_queue_cpu") || row.contains("ipi_send_cpu")));
}
