//! Interrupt threads, in a machine whose kernel threads all IRQ lines (`threadirqs`). Without QEMU
//! the tests say so and pass.

use crate::support::{Place, can_simulate, csv_fields};

/// The number of spans over all CPUs in the CSV of table `handlers`, in the row of this kind
/// whose name starts with `name`.
fn spans(console: &str, kind: &str, name: &str) -> u64 {
    let mut rows = console
        .lines()
        .map(csv_fields)
        .skip_while(|row| row.first().is_none_or(|name| name != "condition"));
    let header = rows.next().unwrap_or_else(|| panic!("no table"));
    let position = |column: &str| header.iter().position(|name| name == column).expect("a column");
    let (cpu_column, kind_column, name_column) =
        (position("cpu"), position("kind"), position("name"));
    let is_wanted = |row: &Vec<String>| {
        row.len() == header.len()
            && row[cpu_column] == "all"
            && row[kind_column] == kind
            && row[name_column].starts_with(name)
    };
    let row = rows.find(is_wanted).unwrap_or_else(|| panic!("no {kind} {name}"));
    row[position("count")].parse().expect("a count")
}

/// The simulator's table also has the row of the thread.
#[test]
fn the_simulator_sees_a_run_of_the_thread_for_each_interrupt() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "handlers --on sim -q --load idle --rate high --stimulus disk -d 100ms --append threadirqs \
                --disk virtio-blk,latency=100us --format csv --table handlers";
    let run = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    run.assert_code(0);
    let interrupts = spans(&run.out, "irq", "virtio0-req");
    let runs = spans(&run.out, "irq_thread", "virtio0");
    assert!(interrupts > 50, "{interrupts}");
    assert!(interrupts.abs_diff(runs) <= 1, "{interrupts} interrupts, {runs} runs of their thread");
}

/// Moves the guest's shell into a control group of version 2 with a quota of one CPU. The group's
/// parent has a memory limit.
const INTO_A_GROUP: &str = "mkdir -p /cg && mount -t cgroup2 none /cg && \
    echo '+memory +cpu +pids' > /cg/cgroup.subtree_control && mkdir -p /cg/a/b && \
    echo '+memory +cpu +pids' > /cg/a/cgroup.subtree_control && echo 400M > /cg/a/memory.max && \
    echo '100000 100000' > /cg/a/b/cpu.max && echo $$ > /cg/a/b/cgroup.procs";

/// This machine also tests that irqlab finds limits of control groups of version 2.
#[test]
fn the_thread_of_a_line_has_a_row_and_runs_for_each_of_its_interrupts() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let machine = ["sim", "boot", "-q", "--append", "threadirqs", "--with-irqlab"];
    let disk = ["--disk", "virtio-blk,latency=100us", "--"];
    let inside = "irqlab handlers -q --load idle --rate high --stimulus disk --disk-file /dev/vda -d 100ms \
                  --format csv --table handlers && irqlab doctor";
    let inside = format!("{INTO_A_GROUP} && {inside}");
    let ended = workspace.run(&[&machine[..], &disk[..], &[&inside]].concat());
    ended.assert_code(0);
    for limit in ["400 MiB, ", "(/cg/a/memory.max)", "1.00 CPUs", "(/cg/a/b/cpu.max)"] {
        assert!(ended.out.contains(limit), "{limit}: {}", ended.out);
    }
    let interrupts = spans(&ended.out, "irq", "virtio0-req");
    let runs = spans(&ended.out, "irq_thread", "virtio0");
    // There is one request at a time. Each interrupt wakes the thread, and the thread sleeps before the next
    // interrupt.
    assert!(interrupts > 50, "{interrupts}");
    assert!(interrupts.abs_diff(runs) <= 1, "{interrupts} interrupts, {runs} runs of their thread");
}
