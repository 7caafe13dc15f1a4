//! `irqlab handlers --by`: who pays for interrupts, on the simulated bench and by the live bench in a guest. Without QEMU
//! the tests say so and pass.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::delays::{number, rows_with};
use crate::support::{Place, can_simulate, rows, uint};
use crate::user_functions::write_program;

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
    // The simulator knows the senders of interrupts from other CPUs, and who submits the requests of the disk, but not whose
    // timers expire.
    let is_of_disk = |row: &&BTreeMap<String, String>| {
        row["name"] == "BLOCK" || row["name"].starts_with("virtio0-req")
    };
    let of_disk = || victims.iter().filter(is_of_disk);
    let by_stimulus = of_disk().filter(|row| row["cause"] == "irqlab-disk");
    assert!(by_stimulus.count() > 0, "{victims:?}");
    let is_stated = |row: &BTreeMap<String, String>| row["cause_method"].contains("block requests");
    assert!(of_disk().all(is_stated), "{victims:?}");
    let unknown = |row: &BTreeMap<String, String>| row["cause"] == "(unknown)";
    let mut timers = victims.iter().filter(|row| row["name"].contains("timer"));
    assert!(timers.all(|row| unknown(row) && row["cause_method"].is_empty()), "{victims:?}");
}

/// Two groups read a disk. Each interrupt of the disk and each softirq that completes their requests has the groups as
/// causes, by the number of the requests, and the times add up to table `handlers`.
#[test]
fn the_groups_that_read_a_disk_cause_its_interrupts() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let command = "lab=/sys/fs/cgroup/lab; mkdir -p /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
         mkdir -p $lab/once $lab/twice
         (echo 0 > $lab/once/cgroup.procs; exec dd if=/dev/vda of=/dev/null bs=4k count=1024) &
         (echo 0 > $lab/twice/cgroup.procs; exec dd if=/dev/vda of=/dev/null bs=4k skip=4096 count=2048) &
         wait";
    for disk in ["virtio-blk", "nvme"] {
        let device = if disk == "nvme" { "/dev/nvme0n1" } else { "/dev/vda" };
        let command = command.replace("/dev/vda", device);
        let disk = format!("{disk},size=32M,latency=100us");
        let line = "handlers -q --json --on sim --by cgroup --disk";
        let arguments = line.split_whitespace().chain([&*disk, "--", &command]);
        let run = workspace.run(&arguments.collect::<Vec<_>>()).assert_code(0).json();
        let victims = rows(&run, "victims");
        let is_of_request =
            |row: &&Json| row["cause_method"].to_string().contains("block requests");
        let mut contexts: BTreeMap<[String; 2], BTreeMap<String, u64>> = BTreeMap::new();
        for row in victims.iter().filter(is_of_request) {
            let context = ["kind", "number"].map(|column| row[column].to_string());
            let cause = row["cause"].as_str().unwrap_or_default().to_owned();
            let causes = contexts.entry(context).or_default();
            *causes.entry(cause).or_default() += uint(row, "self_total_ns");
        }
        assert!(contexts.keys().any(|[kind, _]| kind == "\"irq\""), "{victims:#?}");
        for (context, causes) in &contexts {
            let all_ns: u64 = causes.values().sum();
            let [once, twice] = ["/lab/once", "/lab/twice"].map(|group| causes[group]);
            assert!(once < twice && twice < 3 * once, "{context:?}: {causes:?}");
            assert!(once + twice > all_ns / 10 * 9, "{context:?}: {causes:?}");
            let is_sum = |row: &&Json| {
                let same = ["kind", "number"].map(|column| row[column].to_string()) == *context;
                same && row["cpu"] == "all"
            };
            let of_context = rows(&run, "handlers").iter().filter(is_sum);
            let sum: u64 = of_context.map(|row| uint(row, "self_total_ns")).sum();
            assert_eq!(all_ns, sum, "{context:?}");
        }
    }
}

/// How often the planted program calls membarrier(2).
const CALLS: u64 = 2_000;

/// A command for the guest with two groups: a program in `/lab/computes` computes on CPU 1, and one in `/lab/bar\rier` on
/// CPU 0 interrupts it [`CALLS`] times. Then the groups are removed.
fn two_groups(workspace: &Place) -> String {
    let programs = [("-Wa,--defsym,COMPUTES=1".to_owned(), "/tmp/computes")];
    let sender = (format!("-Wa,--defsym,CALLS={CALLS}"), "/tmp/barrier");
    let written: Vec<String> = programs
        .into_iter()
        .chain([sender])
        .map(|(option, path)| write_program(workspace.path(), "barrier.S", &[&option], path))
        .collect();
    format!(
        "{}; {}
         lab=/sys/fs/cgroup/lab; mkdir -p /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
         barrier=$lab/bar$(printf '\\r')ier; mkdir -p $lab/computes \"$barrier\"
         sh -c 'echo $$ > /sys/fs/cgroup/lab/computes/cgroup.procs; exec /tmp/computes' &
         computes=$!; sleep 0.05
         (echo 0 > \"$barrier/cgroup.procs\"; exec /tmp/barrier)
         kill $computes; wait $computes; rmdir $lab/computes \"$barrier\"",
        written[0], written[1]
    )
}

/// One line names the group that sends, and what it costs the other group. Table `handlers` is as without the option, and
/// the times add up to it. The groups are removed in the window, and still have paths.
#[test]
fn one_line_names_the_group_that_interrupts_another_one() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let command = two_groups(&workspace);
    let run = |bench: &str, options: &[&str]| {
        let line = format!("handlers -q --json --vcpus 2 --on {bench}");
        let arguments: Vec<&str> = line
            .split_whitespace()
            .chain(options.iter().copied())
            .chain(["--", &command])
            .collect();
        workspace.run(&arguments).assert_code(0).json()
    };
    let [with, plain] = [&["--by", "cgroup"][..], &[]].map(|options| run("sim", options));
    assert_eq!(rows(&with, "handlers"), rows(&plain, "handlers"));
    let victims = rows(&with, "victims");
    let total_ns = |row: &&Json| uint(row, "self_total_ns");
    let culprit = victims.iter().max_by_key(total_ns).expect("victims");
    let text = |column: &str| culprit[column].as_str().unwrap_or_default();
    let found = ["victim", "cause", "name", "victim_cgroup", "by"].map(text);
    let groups = ["/lab/computes", "/lab/bar?ier", "call_function_single", "/lab/computes"];
    assert_eq!((&found[..4], found[4]), (&groups[..], "control group: version 2"), "{culprit}");
    assert!(uint(culprit, "count") > CALLS / 10 * 9, "{culprit}");
    assert!(uint(culprit, "victim_cgroup_id") > 1, "{culprit}");
    // All other tasks are in the root group.
    let root = victims.iter().find(|row| row["victim"] == "/").expect("the root group");
    assert_eq!(root["victim_cgroup_id"], 1, "{root}");
    let sum = |name: &str| -> u64 {
        let of_name = victims.iter().filter(|row| row["name"] == name);
        of_name.map(|row| uint(row, "self_total_ns")).sum()
    };
    for name in ["call_function_single", "local_timer", "TIMER"] {
        let is_sum = |row: &&Json| row["name"] == name && row["cpu"] == "all";
        let row = rows(&with, "handlers").iter().find(is_sum).expect("a row");
        assert_eq!(sum(name), uint(row, "self_total_ns"), "{name}");
    }
    // Tasks are divided as their groups are.
    let by_task = run("sim", &["--by", "task"]);
    let is_planted = |row: &&Json| row["victim"] == "computes" && row["cause"] == "barrier";
    let planted = rows(&by_task, "victims").iter().find(is_planted).expect("the programs");
    assert_eq!(
        ["count", "self_total_ns"].map(|column| uint(planted, column)),
        ["count", "self_total_ns"].map(|column| uint(culprit, column))
    );
}

/// A guest without cgroup v2 has one group, and the run says so.
#[test]
fn a_guest_without_groups_has_a_warning() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "handlers --on sim -q --by cgroup --load busy --rate low --stimulus timer -d 20ms";
    let ended = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    ended.assert_code(0);
    assert!(ended.out.contains("all tasks are in the root group"), "{}", ended.out);
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
