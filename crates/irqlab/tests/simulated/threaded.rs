//! Threads of IRQ lines, in a machine whose kernel has them for all lines (`threadirqs`). Where there is no
//! QEMU, says so and passes.

use crate::support::{Place, can_simulate};

/// The number of spans of a kind in the CSV of table `handlers`, all CPUs, of the line whose name starts so.
fn spans(console: &str, kind: &str, name: &str) -> u64 {
    let fields = |line: &str| line.trim().split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut rows = console.lines().map(fields).skip_while(|row| row[0] != "condition");
    let header = rows.next().unwrap_or_else(|| panic!("no table"));
    let at = |column: &str| header.iter().position(|name| name == column).expect("a column");
    let (cpu, of_kind, of_name) = (at("cpu"), at("kind"), at("name"));
    let is_it = |row: &Vec<String>| {
        row.len() == header.len()
            && row[cpu] == "all"
            && row[of_kind] == kind
            && row[of_name].starts_with(name)
    };
    let row = rows.find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"));
    row[at("count")].parse().expect("a count")
}

/// The simulator's own table has the row, too.
#[test]
fn the_simulator_sees_a_run_of_the_thread_for_each_interrupt() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let what = "handlers --on sim -q --load idle --rate high --stimulus disk -d 100ms --append threadirqs \
                --disk virtio-blk,latency=100us --format csv --table handlers";
    let what: Vec<&str> = what.split_whitespace().collect();
    let run = place.run(&what);
    run.assert_code(0);
    let interrupts = spans(&run.out, "irq", "virtio0-req");
    let runs = spans(&run.out, "irq_thread", "virtio0");
    assert!(interrupts > 50, "{interrupts}");
    assert!(interrupts.abs_diff(runs) <= 1, "{interrupts} interrupts, {runs} runs of their thread");
}

/// Moves the guest's shell into a control group of version 2 that has a CPU quota of one CPU, below one with a memory
/// limit.
const INTO_A_GROUP: &str = "mkdir -p /cg && mount -t cgroup2 none /cg && \
    echo '+memory +cpu +pids' > /cg/cgroup.subtree_control && mkdir -p /cg/a/b && \
    echo '+memory +cpu +pids' > /cg/a/cgroup.subtree_control && echo 400M > /cg/a/memory.max && \
    echo '100000 100000' > /cg/a/b/cpu.max && echo $$ > /cg/a/b/cgroup.procs";

/// The machine serves a second question: whether limits of control groups of version 2 are found.
#[test]
fn the_thread_of_a_line_has_a_row_and_runs_for_each_of_its_interrupts() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let machine = ["sim", "boot", "-q", "--append", "threadirqs", "--with-irqlab"];
    let disk = ["--disk", "virtio-blk,latency=100us", "--"];
    let inside = "irqlab handlers -q --load idle --rate high --stimulus disk --disk-file /dev/vda -d 100ms \
                  --format csv --table handlers && irqlab doctor";
    let inside = format!("{INTO_A_GROUP} && {inside}");
    let ended = place.run(&[&machine[..], &disk[..], &[&inside]].concat());
    ended.assert_code(0);
    for limit in ["400 MiB, ", "(/cg/a/memory.max)", "1.00 CPUs", "(/cg/a/b/cpu.max)"] {
        assert!(ended.out.contains(limit), "{limit}: {}", ended.out);
    }
    let interrupts = spans(&ended.out, "irq", "virtio0-req");
    let runs = spans(&ended.out, "irq_thread", "virtio0");
    // One request at a time: an interrupt wakes the thread, which sleeps again before the next.
    assert!(interrupts > 50, "{interrupts}");
    assert!(interrupts.abs_diff(runs) <= 1, "{interrupts} interrupts, {runs} runs of their thread");
}
