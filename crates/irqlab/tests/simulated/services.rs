//! `irqlab services` on a simulated machine, by the command. Where there is no QEMU, says so and passes.

use std::path::Path;

use crate::support::{Place, can_simulate, names, rows};
use crate::user_functions::write_program;
use serde_json::Value as Json;

/// Reads and writes one byte each by dd.
const BYTES: u64 = 300;

fn measured(workspace: &Place, out: &str, arguments: &[&str]) -> Json {
    let line = format!(
        "dd if=/dev/zero of=/tmp/x bs=1 count={BYTES}; sleep 0.02; echo a | cat; kill -SEGV $$"
    );
    let all = ["services", "-q", "--json", "--out", out];
    let all = [&all[..], arguments, &["--", &line]].concat();
    // The command ends by a signal, which is its own business: 128 + 11.
    workspace.run(&all).assert_code(139).json()
}

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

fn real(row: &Json, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"))
}

fn service<'a>(run: &'a Json, class: &str, name: &str) -> &'a Json {
    let is_it = |row: &&Json| row["class"] == class && row["service"] == name;
    let found = rows(run, "services").iter().find(is_it);
    found.unwrap_or_else(|| panic!("{class} {name}: {}", run["tables"]["services"]))
}

/// Every cycle belongs to a service, to user mode or to idle, and latencies are the sum of their parts.
fn closes(run: &Json) {
    let sum: u64 = rows(run, "services").iter().map(|row| uint(row, "self_total_cycles")).sum();
    let modes: u64 = rows(run, "modes").iter().map(|row| uint(row, "self_total_cycles")).sum();
    assert_eq!(sum, modes);
    let shares: f64 = rows(run, "services").iter().map(|row| real(row, "time_ratio")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    for row in rows(run, "services").iter().filter(|row| row["completed_count"].as_u64() > Some(0))
    {
        let parts = ["computation", "nested", "blocked", "descheduled"];
        let parts: f64 = parts.iter().map(|name| real(row, &format!("{name}_mean_ns"))).sum();
        let latency = real(row, "latency_mean_ns");
        assert!((parts - latency).abs() <= 1e-6 * latency, "{row}");
    }
}

/// The guest has counted the same: page faults, and each system call.
fn agrees(run: &Json, least: usize) {
    let counts = rows(run, "agreement");
    assert!(counts.len() >= least, "{counts:?}");
    for row in counts {
        assert_eq!(row["agrees"], true, "{row}");
    }
    assert!(counts.iter().any(|row| uint(row, "counted_count") > 100), "{counts:?}");
}

fn same_bytes(workspace: &Path, one: &str, other: &str) {
    let tables = names(&workspace.join(one).join("tables"));
    assert!(tables.len() >= 4, "{tables:?}");
    for table in tables {
        let bytes_of =
            |run: &str| std::fs::read(workspace.join(run).join("tables").join(&table)).unwrap();
        assert!(bytes_of(one) == bytes_of(other), "{table}");
    }
}

/// When the window opens, several CPUs are halted. They have no event until they wake up.
#[test]
fn the_context_of_each_cpu_is_known_when_the_window_opens() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let machine = ["--on", "sim:r4400-smp8", "--vcpus", "8"];
    let arguments = [&["services", "-q", "--json"][..], &machine, &["--", "sleep 0.02"]].concat();
    let run = workspace.run(&arguments).assert_code(0).json();
    let is_unknown = |row: &&Json| row["class"] == "unknown" || row["service"] == "unknown";
    let unknown: Vec<&Json> = rows(&run, "services").iter().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(rows(&run, "profile").iter().all(|row| row["mode"] != "unknown"));
    assert!(real(service(&run, "idle", "idle"), "self_total_ns") > 0.0);
}

#[test]
fn counts_are_those_of_the_guest_and_every_cycle_has_its_service() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = ["--on", "sim:r4400-1994", "--vcpus", "2", "--verify"];
    let run = measured(&workspace, "first", &arguments);
    closes(&run);
    agrees(&run, 20);
    // dd reads and writes each byte by itself; what else reads and writes is little.
    for name in ["read", "write"] {
        let count = uint(service(&run, "syscall", name), "request_count");
        assert!((BYTES..BYTES + 100).contains(&count), "{name}: {count}");
    }
    for kind in ["demand-zero", "copy-on-write", "minor"] {
        assert!(uint(service(&run, "fault", kind), "request_count") > 0, "{kind}");
    }
    let sleep = service(&run, "syscall", "clock_nanosleep");
    assert_eq!(uint(sleep, "completed_count"), 1);
    let blocked = real(sleep, "blocked_mean_ns");
    // It leaves the CPU a little after its timer was set.
    assert!((19e6..25e6).contains(&blocked), "asleep for {blocked} ns");
    assert!(real(sleep, "latency_mean_ns") >= 20e6, "{sleep}");
    let waits = rows(&run, "waits");
    let slept = waits.iter().find(|row| row["service"] == "clock_nanosleep");
    assert_eq!(slept.map(|row| &row["wait"]), Some(&Json::from("sleep")), "{waits:?}");
    // The time of a CPU that is halted is idle: at least one of the two while the command sleeps.
    let idle = real(service(&run, "idle", "idle"), "self_total_ns");
    assert!(idle > 2.0 * blocked, "idle for {idle} ns");
    assert!(real(service(&run, "syscall", "execve"), "cpi_ratio") > 1.0);

    measured(&workspace, "second", &arguments);
    same_bytes(workspace.path(), "first", "second");
}

#[test]
fn without_a_model_there_are_counts_and_no_stalls() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = measured(&workspace, "plain", &["--on", "sim"]);
    closes(&run);
    agrees(&run, 2);
    assert!(rows(&run, "services").iter().all(|row| row["data_mcpi_ratio"].is_null()));
    let absent = run["absent"].as_array().unwrap();
    assert!(absent.iter().any(|absence| absence["what"] == "memory stalls"), "{absent:?}");
}

/// A workload whose programs lie on a disk and are not in memory, so that some of its faults wait for it.
const FAULTING: &str = r#"
about = "Eight pipes of programs that a disk holds"
packages = []
marks_itself = MARKS

[[forms]]
cpus = CPUS
memory_mib = 256
set_up = "sync; echo 3 >/proc/sys/vm/drop_caches"
region = '''
ls >/dev/null
OPEN
for turn in 1 2 3 4 5 6 7 8; do ls -l /usr/bin | sort | md5sum >/tmp/$turn & done
wait
CLOSE
'''
check = '[ -s /tmp/1 ] && [ "$(cat /tmp/1)" = "$(cat /tmp/8)" ]'
"#;

/// Runs [`FAULTING`] by `irqlab services --workload`.
fn faulting(workspace: &Place, on: &str, cpus: u32, marks_itself: bool) -> Json {
    let mark = |word: &str| {
        if marks_itself { format!("/irqlab/mark {word}") } else { String::new() }
    };
    let text = FAULTING.replace("CPUS", &cpus.to_string());
    let text = text.replace("MARKS", &marks_itself.to_string());
    let text = text.replace("OPEN", &mark("open")).replace("CLOSE", &mark("close"));
    std::fs::write(workspace.path().join("faulting.toml"), text).unwrap();
    let cpus = cpus.to_string();
    let arguments = ["services", "-q", "--json", "--on", on, "--vcpus", &cpus];
    workspace
        .run(&[&arguments[..], &["--workload", "./faulting.toml"]].concat())
        .assert_code(0)
        .json()
}

/// Whether there can be workloads: packages are downloaded once.
fn can_have_packages() -> bool {
    let cache = sim::Cache::from_environment().unwrap();
    match sim::rootfs::image(&cache, &sim::rootfs::RootSpec::default(), false, &|_| {}) {
        Ok(_) => true,
        Err(error @ (sim::SimError::Missing { .. } | sim::SimError::Program { .. })) => {
            needs::not_run(needs::Need::Qemu, error);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A workload has another way through the guest than a command: its first process reads what the kernel
/// counts. No fault of its own may lie between a reading and its marker.
#[test]
fn page_faults_of_a_workload_are_those_that_the_guest_counts() {
    let workspace = Place::new();
    if !can_simulate(&workspace) || !can_have_packages() {
        return;
    }
    for (on, cpus) in [("sim", 1), ("sim:r4400-1994", 2)] {
        let run = faulting(&workspace, on, cpus, false);
        let counts = rows(&run, "agreement");
        let expected = [("page faults handled", 1000), ("page faults with a read", 1)];
        assert_eq!(counts.len(), expected.len(), "{counts:?}");
        for (row, (what, least)) in counts.iter().zip(expected) {
            assert_eq!((&row["what"], &row["agrees"]), (&what.into(), &true.into()), "{on}: {row}");
            assert!(uint(row, "counted_count") >= least, "{on}: {row}");
            assert_eq!(uint(row, "counted_count"), uint(row, "kernel_count"), "{on}: {row}");
        }
    }
}

/// The first part of a workload is measured exactly, and the run says that it is a part. A workload that ends before has the
/// results of a whole measurement.
#[test]
fn the_first_part_of_a_workload_is_the_same_again_and_says_so() {
    const INSTRUCTIONS: u64 = 5_000_000;
    let workspace = Place::new();
    if !can_simulate(&workspace) || !can_have_packages() {
        return;
    }
    let complete = faulting(&workspace, "sim:r4400-1994", 1, false);
    let measured = |until: &str, out: &str| {
        let arguments = ["services", "-q", "--json", "--on", "sim:r4400-1994"];
        let options = ["--workload", "./faulting.toml", "--until", until, "--out", out];
        workspace.run(&[&arguments[..], &options].concat()).assert_code(0).json()
    };
    let executed = |run: &Json| -> u64 {
        rows(run, "services").iter().map(|row| uint(row, "self_instructions")).sum()
    };
    let [part, again] = ["part", "again"].map(|out| measured("5M-instructions", out));
    same_bytes(workspace.path(), "part", "again");
    let shares: f64 =
        rows(&part, "services").iter().filter_map(|row| row["time_ratio"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    assert_eq!((executed(&part), &part["complete"]), (executed(&again), &true.into()));
    // A slice of 1,000 cycles has fewer instructions than this, and no window ends inside an interrupt.
    assert!(
        (INSTRUCTIONS..INSTRUCTIONS + 500_000).contains(&executed(&part)),
        "{}",
        executed(&part)
    );
    assert_eq!(part["settings"]["conditions"]["command"]["ended_by"], "enough");
    let warnings = part["warnings"].to_string();
    for words in
        ["first 5.0 million instructions", "were not checked", "machine ended with its window"]
    {
        assert!(warnings.contains(words), "{words}: {warnings}");
    }
    let long = measured("900G-instructions", "long");
    assert!(executed(&long) > 2 * INSTRUCTIONS);
    assert_eq!(long["tables"], complete["tables"]);
    assert!(long["settings"]["conditions"]["command"]["ended_by"].is_null());
}

/// A process that goes on when the region ends has faults on another CPU while the first process reads the
/// kernel's counters. They are in that count alone, and the table says how many there were.
#[test]
fn faults_of_others_between_the_region_and_the_reading_are_named() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "for cpu in 1 2 3 4 5 6 7; do while :; do (:); done & done; sleep 0.1";
    let arguments = ["services", "-q", "--json", "--on", "sim", "--vcpus", "8", "--", line];
    let run = workspace.run(&arguments).assert_code(0).json();
    let row = &rows(&run, "agreement")[0];
    let (counted, kernel) = (uint(row, "counted_count"), uint(row, "kernel_count"));
    // All `edge_max_count` events may have come before the first reading, or after the second reading.
    assert!(counted > 1000 && uint(row, "edge_max_count") > 0, "{row}");
    assert!((counted..=counted + uint(row, "edge_max_count")).contains(&kernel), "{row}");
    assert_eq!(row["agrees"], true, "{row}");
}

/// The signal finds the loop in user mode, so that an interrupt delivers it and executes the exit.
#[test]
fn the_exit_of_a_killed_task_is_no_time_of_the_interrupt() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "while :; do :; done & sleep 0.05; kill $!; wait";
    let arguments = ["services", "-q", "--json", "--on", "sim", "--vcpus", "2", "--", line];
    let run = workspace.run(&arguments).assert_code(0).json();
    let exit_ns = real(service(&run, "other", "exit of a killed task"), "self_total_ns");
    let interrupts_ns = ["reschedule", "local_timer"].map(|name| {
        let row = service(&run, "interrupt", name);
        real(row, "self_total_ns") / uint(row, "completed_count") as f64
    });
    for mean_ns in interrupts_ns {
        assert!(exit_ns > 10.0 * mean_ns, "{exit_ns} {interrupts_ns:?}");
    }
}

/// The kernel's count is then that of more than the region, and absent.
#[test]
fn a_workload_that_marks_its_own_region_has_no_count_to_compare() {
    let workspace = Place::new();
    if !can_simulate(&workspace) || !can_have_packages() {
        return;
    }
    let run = faulting(&workspace, "sim", 1, true);
    for row in rows(&run, "agreement") {
        assert!(uint(row, "counted_count") > 0, "{row}");
        assert!(row["kernel_count"].is_null() && row["agrees"].is_null(), "{row}");
    }
}

/// Two processes write to one file: each write takes the file's semaphore. The place and the service that
/// waits for it are found by name, and the service waits for nothing else.
#[test]
fn a_contended_lock_is_found_by_name() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let writes = "dd if=/dev/zero of=/tmp/x bs=4k count=100 conv=notrunc";
    let line = format!("{writes} & {writes}; wait");
    let arguments =
        ["services", "-q", "--json", "--on", "sim", "--vcpus", "2", "--locks", "--", &line];
    let run = workspace.run(&arguments).assert_code(0).json();
    assert_eq!(run["settings"]["locks"], true);
    closes(&run);
    let contended = |row: &&Json| uint(row, "contended_count") > 10;
    let found: Vec<&Json> = rows(&run, "locks").iter().filter(contended).collect();
    let by_name = |row: &&&Json| {
        let caller = row["place"].as_str().unwrap_or_default();
        row["kind"] == "rwsem write" && caller.starts_with("generic_file_write_iter+")
    };
    let file = found.iter().find(by_name).unwrap_or_else(|| panic!("{found:?}"));
    let lock = file["lock"].as_str().unwrap_or_default();
    assert!(lock.ends_with("inode.i_rwsem"), "{file}");
    assert!(uint(file, "acquire_count") >= 200, "{file}");
    assert!(real(file, "waited_total_ns") > 0.0 && real(file, "held_total_ns") > 0.0, "{file}");
    assert!(uint(service(&run, "lock", "rwsem write (wait)"), "request_count") > 10);
    for row in rows(&run, "locks") {
        assert!(uint(row, "contended_count") <= uint(row, "acquire_count"), "{row}");
    }
    // The two take it for write(2), and wait for it nowhere else.
    let by_service = rows(&run, "service_locks");
    let is_file = |row: &&Json| row["kind"] == "rwsem write" && row["lock"] == file["lock"];
    let of_write = by_service.iter().filter(is_file).find(|row| row["service"] == "write");
    let of_write = of_write.unwrap_or_else(|| panic!("{by_service:?}"));
    assert_eq!(of_write["class"], "syscall");
    let waits = |row: &Json| (uint(row, "contended_count"), real(row, "waited_total_ns") as u64);
    assert_eq!(waits(of_write), waits(file), "{file}");
    assert!(real(of_write, "acquires_per_request") > 0.9, "{of_write}");
    // Faults take locks, too, under the name that they have at their end.
    let is_fault = |row: &&Json| row["class"] == "fault" && row["service"] == "demand-zero";
    assert!(by_service.iter().any(|row| is_fault(&row)), "{by_service:?}");
    // Both tables have all of them.
    for column in ["acquire_count", "contended_count"] {
        let sum = |table: &str| rows(&run, table).iter().map(|row| uint(row, column)).sum::<u64>();
        assert_eq!(sum("locks"), sum("service_locks"), "{column}");
    }
}

/// Two planted causes of misses, each found by name. Two threads add to two numbers in one line of memory:
/// the line is in their task's memory, is lost to false sharing, and the numbers have two addresses. A file
/// that no cache holds is read: read(2) waits for memory, because of first uses of the file's pages.
#[test]
fn false_sharing_and_a_cold_cache_are_found_by_name() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let source = "false_sharing.s";
    let program = write_program(workspace.path(), source, &[], "/tmp/sharing");
    // The file is written on CPU 0 and read on CPU 1. The last write is larger than L2, and evicts the file from CPU 0's.
    let zeros = "busybox taskset 1 dd if=/dev/zero bs=64k";
    let files = format!("{zeros} of=/tmp/file count=4; {zeros} of=/tmp/other count=32");
    let warm_up = format!("{program}; {files}");
    let command = "/tmp/sharing; busybox taskset 2 dd if=/tmp/file of=/dev/null bs=64k";
    let arguments =
        ["services", "-q", "--json", "--on", "sim:r4400-smp8", "--vcpus", "2", "--misses"];
    let more = ["--warm-up-command", &warm_up, "--", command];
    let run = workspace.run(&[&arguments[..], &more[..]].concat()).assert_code(0).json();
    closes(&run);

    let of_line: Vec<&Json> =
        rows(&run, "shared_lines").iter().filter(|row| row["line"] == 1).collect();
    for row in &of_line {
        assert_eq!((&row["class"], &row["kind"]), (&"user".into(), &"anonymous memory".into()));
        assert_eq!(row["structure"], "sharing", "{row}");
        assert_eq!(row["function"], "count_up [sharing]", "{row}");
        assert!(uint(row, "false_sharing_count") > 10 * uint(row, "true_sharing_count"), "{row}");
    }
    let sum: u64 = of_line.iter().map(|row| uint(row, "false_sharing_count")).sum();
    assert!(sum > 100, "{of_line:?}");
    let mut addresses: Vec<&str> =
        of_line.iter().filter_map(|row| row["address"].as_str()).collect();
    addresses.dedup();
    assert_eq!(addresses.len(), 2, "{of_line:?}");

    // 256 KiB in lines of L2 of 128 bytes.
    let lines = 256 * 1024 / 128;
    let read =
        |row: &&Json| row["service"] == "read" && row["class"] == "syscall" && row["cache"] == "L2";
    let of_read = rows(&run, "misses").iter().find(read).unwrap();
    assert!(uint(of_read, "cold_count") >= lines * 8 / 10, "{of_read}");
    assert!(2 * uint(of_read, "cold_count") > uint(of_read, "miss_count"), "{of_read}");
    let mut data = rows(&run, "miss_data").iter().filter(read);
    let file = data.find(|row| row["kind"] == "file").unwrap_or_else(|| panic!("{run}"));
    assert!(uint(file, "cold_count") >= lines * 8 / 10, "{file}");
    // Some of the lines come from the other CPU's cache, which takes as long.
    let is_far = |row: &&Json| {
        let level = row["level"].as_str();
        row["service"] == "read"
            && row["access"] == "data"
            && matches!(level, Some("memory" | "other core"))
    };
    let far: Vec<&Json> = rows(&run, "miss_stalls").iter().filter(is_far).collect();
    let count: u64 = far.iter().map(|row| uint(row, "miss_count")).sum();
    let share: f64 = far.iter().map(|row| real(row, "stall_ratio")).sum();
    assert!(count >= lines * 8 / 10 && share > 0.2, "{far:?}");
    // Each miss has one class and one place.
    for cache in ["L1D", "L2"] {
        let sum = |table: &str| -> u64 {
            let of_cache = rows(&run, table).iter().filter(|row| row["cache"] == cache);
            of_cache.map(|row| uint(row, "miss_count")).sum()
        };
        assert_eq!(sum("misses"), sum("miss_functions"), "{cache}");
        assert!(sum("miss_data") <= sum("misses"), "{cache}");
    }
}

/// A root file system has other programs than the guest's image, and the command runs in it.
#[test]
fn a_command_in_a_root_file_system_has_its_services() {
    let workspace = Place::new();
    let refused = workspace.run(&["services", "--rootfs", "none", "--", "true"]);
    refused.assert_code(2).assert_says("--rootfs is for a simulated machine");
    if !can_simulate(&workspace) || !can_have_packages() {
        return;
    }
    let name = format!("test-services-{}", std::process::id());
    workspace.run(&["sim", "rootfs", &name, "-q"]).assert_code(0);
    let services = ["services", "-q", "--json", "--on", "sim", "--rootfs", &name];
    let run = |command: &str, out: &str| {
        workspace.run(&[&services[..], &["--out", out, "--", command]].concat())
    };
    // The guest's image has an /init.
    let successful = run("test ! -e /init && uname > /dev/null", "whole");
    let missing = run("exit 3", "missing");
    let cache = sim::Cache::from_environment().unwrap();
    for made in [format!("root-{name}.latest"), format!("root-{name}.latest.lock")] {
        let _ = std::fs::remove_file(cache.path(&made));
    }
    let measured = successful.assert_code(0).json();
    assert_eq!(measured["complete"], true);
    assert_eq!(measured["settings"]["rootfs"], name);
    let names: Vec<&str> =
        rows(&measured, "services").iter().filter_map(|row| row["service"].as_str()).collect();
    assert!(names.contains(&"execve") && names.contains(&"uname"), "{names:?}");
    missing.assert_code(1).assert_says("the region of interest failed in the guest with status 3");
}

/// One process holds the mutex of an open file's position while its read waits for an event, and another one waits for
/// the mutex. The event comes when the kernel's state of the second one is D.
const WAIT_FOR_A_MUTEX: &str = "\
t=/sys/kernel/tracing; mount -t tracefs none $t 2> /dev/null
exec 3< $t/trace_pipe
read_one() { exec dd bs=1 count=1 of=/dev/null 2> /dev/null <&3; }
in_state() { awk -v s=$2 '{ sub(/.*[)] /, \"\"); exit substr($0, 1, 1) != s }' /proc/$1/stat 2> /dev/null; }
until_in() { tries=0; until in_state $1 $2 || [ $tries = 3000 ]; do tries=$((tries+1)); busybox sleep 0.01; done; }
read_one & first=$!; until_in $first S
read_one & second=$!; until_in $second D
echo x > $t/trace_marker; wait $first; echo x > $t/trace_marker; wait $second
";

/// Waits of `read` for the mutex of a file's position, which ended: the sum of their count, and their rows.
fn waits_for_positions(run: &Json) -> (u64, Vec<&Json>) {
    let is_position = |row: &&Json| {
        row["kind"] == "mutex"
            && row["place"].as_str().is_some_and(|place| place.contains("fdget_pos+"))
    };
    let found: Vec<&Json> = rows(run, "locks").iter().filter(is_position).collect();
    (found.iter().map(|row| uint(row, "contended_count")).sum(), found)
}

#[test]
fn the_live_bench_of_a_guest_finds_the_waits_that_the_simulator_finds() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let simulated = [
        "services",
        "-q",
        "--json",
        "--on",
        "sim",
        "--vcpus",
        "2",
        "--locks",
        "--",
        WAIT_FOR_A_MUTEX,
    ];
    let simulated = workspace.run(&simulated).assert_code(0).json();
    let inside = format!(
        "cat > /tmp/wait << 'end'\n{WAIT_FOR_A_MUTEX}end\n\
         irqlab services -q --out of --locks -- /bin/busybox sh /tmp/wait > /dev/null; irqlab show of --json"
    );
    let boot = ["sim", "boot", "-q", "--with-irqlab", "--vcpus", "2", "--", &inside];
    let ended = workspace.run(&boot);
    ended.assert_code(0);
    let console = ended.out;
    let start = console.find("{").unwrap_or_else(|| panic!("{console}"));
    let live: Json = serde_json::Deserializer::from_str(&console[start..])
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("{console}"))
        .unwrap_or_else(|error| panic!("{error}: {console}"));
    let (in_simulation, _) = waits_for_positions(&simulated);
    let (measured, found) = waits_for_positions(&live);
    assert_eq!((in_simulation, measured), (1, 1), "{live}");
    let wait = found[0];
    assert!(real(wait, "waited_total_ns") > 0.0, "{wait}");
    assert_eq!(wait["waited_max_ns"], wait["waited_total_ns"], "{wait}");
    assert_eq!((uint(wait, "interrupted_count"), uint(wait, "unfinished_count")), (0, 0));
    for unseen in ["acquire_count", "contended_ratio", "held_total_ns", "release_count"] {
        assert!(wait[unseen].is_null(), "{unseen}: {wait}");
    }
    // The service that waits is known.
    let is_position = |row: &&Json| row["place"] == wait["place"];
    let of_read: Vec<&Json> = rows(&live, "service_locks").iter().filter(is_position).collect();
    assert_eq!(of_read.len(), 1, "{of_read:?}");
    assert_eq!((&of_read[0]["class"], &of_read[0]["service"]), (&"syscall".into(), &"read".into()));
    let sum = |table: &str| -> u64 {
        rows(&live, table).iter().map(|row| uint(row, "contended_count")).sum()
    };
    assert_eq!(sum("service_locks"), sum("locks"));
    assert_eq!(live["observer"]["events_lost"], 0, "{}", live["observer"]);
    assert!(live["absent"].to_string().contains("tracepoints mark only waits"), "{live}");
}
