//! The machine itself: booted, saved, restored, broken, killed.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::parts::{Bench, LIMITS, bench, keep_stdout};
use sim::boot::{self, Limits};
use sim::image::Tools;
use sim::watch::{self, Detail, Recording, Watch};
use sim::{
    Cache, GuestText, Instrumentation, Machine, SimError, Stream, VmEvent, checkpoint, image,
};

/// Returns the status of a restored machine, and what its command wrote.
fn restored(bench: &Bench, name: &str, machine: &Machine, request: &str) -> (u8, String) {
    let more = Instrumentation::default();
    let mut vm =
        checkpoint::restore(&bench.cache, &bench.qemu, machine, name, request, more).unwrap();
    let mut output = Vec::new();
    let exit = boot::follow(&mut vm, LIMITS, &mut keep_stdout(&mut output)).unwrap();
    (exit.status, String::from_utf8_lossy(&output).into_owned())
}

/// Whether a process is there and not a zombie.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|state| !state.is_empty() && !state.starts_with(" Z"))
}

fn wait_until_gone(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while runs(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn from_boot_to_power_off() {
    let Some(bench) = bench() else { return };
    let mut output = Vec::new();
    let mut machine = bench.machine();
    machine.timing = sim::Timing::HostClock;
    machine.cpus = 2;
    let request = "run:echo out of the guest; exit 3";
    let exit = boot::run(&bench.qemu, &machine, request, LIMITS, &mut keep_stdout(&mut output));
    let exit = exit.unwrap();
    assert_eq!(String::from_utf8_lossy(&output), "out of the guest\n");
    assert_eq!(exit.status, 3);
    let report = exit.report.unwrap();
    assert_eq!((report.hz, report.cpus), (Some(250), 2));
    assert_eq!(report.modules_failed, Vec::<String>::new());
}

#[test]
fn the_image_is_the_same_byte_for_byte() {
    let Some(bench) = bench() else { return };
    let first = image::build(&bench.cache, &bench.kernel, Tools::None).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path()).unwrap();
    let tools = first.path.with_file_name("guest-tools-1");
    std::os::unix::fs::symlink(tools, directory.path().join("guest-tools-1")).unwrap();
    let second = image::build(&cache, &bench.kernel, Tools::None).unwrap();
    assert_ne!(first.path, second.path);
    assert_eq!(first.sha256, second.sha256);
    assert_eq!(fs::read(first.path).unwrap(), fs::read(second.path).unwrap());
    let position = |name: &str| first.modules.iter().position(|module| module == name).unwrap();
    assert!(
        position("virtio_ring") < position("virtio_pci")
            && position("virtio_pci") < position("virtio_blk")
    );
}

#[test]
fn a_checkpoint_restored_twice_goes_on_the_same() {
    let Some(bench) = bench() else { return };
    let machine = bench.machine();
    let name = format!("test-{}", std::process::id());
    checkpoint::create(&bench.cache, &bench.qemu, &machine, &name, LIMITS, &|_| {}).unwrap();
    // Guest time, interrupts so far, and what the kernel draws by lot.
    let request = "run:cat /proc/uptime /proc/interrupts; head -c 32 /dev/urandom | od -x";
    let first = restored(bench, &name, &machine, request);
    assert_eq!(first, restored(bench, &name, &machine, request));
    assert!(first.1.contains("LOC:") && first.1.contains("0000020"), "{}", first.1);

    let start = Instant::now();
    assert_eq!(restored(bench, &name, &machine, "poweroff").0, 0);
    eprintln!("restored and powered off in {:?}", start.elapsed());

    let mut two_cpus = machine.clone();
    two_cpus.cpus = 2;
    let refused = checkpoint::restore(
        &bench.cache,
        &bench.qemu,
        &two_cpus,
        &name,
        "poweroff",
        Instrumentation::default(),
    );
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("--vcpus: made with 1, this is 2"), "{refused}");
    fs::remove_dir_all(bench.cache.path(&format!("checkpoint-{name}"))).unwrap();
    fs::remove_file(bench.cache.path(&format!("checkpoint-{name}.lock"))).unwrap();
}

#[test]
fn a_kernel_that_does_not_come_up_is_an_error_with_its_last_words() {
    let Some(bench) = bench() else { return };
    let failure = |machine: &Machine, limits| {
        let mut quiet = |_: GuestText<'_>| {};
        boot::run(&bench.qemu, machine, "poweroff", limits, &mut quiet).unwrap_err()
    };
    // Its first process is not there: the kernel panics, and the machine ends by itself.
    let mut machine = bench.machine();
    machine.timing = sim::Timing::HostClock;
    machine.append = vec!["rdinit=/nothing".to_owned(), "root=/dev/none".to_owned()];
    let error = failure(&machine, LIMITS).to_string();
    assert!(error.contains("the guest's kernel panicked") && error.contains("  | "), "{error}");

    // Kernels that start as they should. One stumbles and resets the machine, one loops on its
    // first instruction (`jmp .`) until the limit.
    let scratch = tempfile::tempdir().unwrap();
    let kernel = fs::read(&bench.kernel.image).unwrap();
    // Real-mode sectors at 0x1f1, after which the kernel proper starts (boot.rst).
    let start = (usize::from(kernel[0x1f1]) + 1) * 512;
    let limits = Limits { wall: Duration::from_secs(4), ..LIMITS };
    for (code, words, is_limit) in [
        ([0x0f, 0x0b], "the guest reset the machine before its first process", false),
        ([0xeb, 0xfe], "killed after 4s (--limit); its first process has sent nothing", true),
    ] {
        let mut bytes = kernel.clone();
        for pair in bytes[start..].chunks_exact_mut(2) {
            pair.copy_from_slice(&code);
        }
        machine.kernel = scratch.path().join("bzImage");
        fs::write(&machine.kernel, bytes).unwrap();
        let error = failure(&machine, limits);
        assert_eq!(matches!(error, SimError::TimeLimit { .. }), is_limit, "{error:?}");
        let error = error.to_string();
        assert!(error.contains(words) && error.contains("console"), "{error}");
    }
}

#[test]
fn the_guest_ends_itself_at_its_limit() {
    let Some(bench) = bench() else { return };
    // Guest time of an idle machine passes at once.
    let limits = Limits { guest_s: 5, ..LIMITS };
    let exit = boot::run(&bench.qemu, &bench.machine(), "idle", limits, &mut |_| {}).unwrap();
    assert_eq!(exit.status, boot::STATUS_LIMIT);
}

#[test]
fn qemu_killed_in_the_middle_is_an_error() {
    let Some(bench) = bench() else { return };
    let mut vm = boot::start(&bench.qemu, &bench.machine(), "idle", LIMITS).unwrap();
    let pid = vm.pid();
    let first = vm.next_event(Instant::now() + LIMITS.wall).unwrap();
    assert!(matches!(first, Some(VmEvent::Text(Stream::Console, _))), "{first:?}");
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let error = boot::follow(&mut vm, LIMITS, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("was killed by signal 9"), "{error}");
    assert!(!runs(pid));

    let vm = boot::start(&bench.qemu, &bench.machine(), "idle", LIMITS).unwrap();
    let pid = vm.pid();
    assert!(runs(pid));
    drop(vm);
    assert!(!runs(pid));
}

/// Started by the test below as a process of its own, which is then killed.
#[test]
#[ignore = "started by qemu_dies_with_its_starter"]
fn starter() {
    let Some(bench) = bench() else { return };
    let vm = boot::start(&bench.qemu, &bench.machine(), "idle", LIMITS).unwrap();
    println!("started {}", vm.pid());
    std::thread::sleep(LIMITS.wall);
}

#[test]
fn qemu_dies_with_its_starter() {
    use std::io::BufRead;
    let Some(_bench) = bench() else { return };
    let mut starter = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "machine::starter", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(starter.stdout.take().unwrap()).lines();
    let mut started = lines.map_while(Result::ok).filter_map(|line| {
        line.split_once("started ").map(|(_, pid)| pid.trim().parse::<u32>().unwrap())
    });
    let pid = started.next().unwrap();
    assert!(runs(pid));
    starter.kill().unwrap();
    starter.wait().unwrap();
    wait_until_gone(pid);
}

/// Ticks that a thread has used, in user space and the kernel.
fn processor_ticks(pid: u32, thread: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime and stime of proc(5).
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn the_main_loop_sleeps_while_the_vcpu_executes() {
    let Some(bench) = bench() else { return };
    let machine = bench.machine();
    let kernel_files =
        watch::kernel_files(&bench.cache, &bench.qemu, &bench.kernel, &|_| {}).unwrap();
    let watch = Watch { detail: Detail::Fast, ..Watch::default() };
    let recording =
        Recording::new(&bench.cache, &bench.qemu, &machine, &kernel_files, &watch, None).unwrap();
    let more = recording.instrumentation();
    let mut vm = boot::start_with(&bench.qemu, &machine, "idle", LIMITS, more).unwrap();
    let deadline = Instant::now() + LIMITS.wall;
    // A full boot: interrupts, disks, the console.
    while !matches!(vm.next_event(deadline).unwrap().expect("an event"), VmEvent::Guest(_)) {}
    let pid = vm.pid();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let ticks = threads.map(|thread| processor_ticks(pid, thread.file_name().to_str().unwrap()));
    let (main_loop, all) = (processor_ticks(pid, &pid.to_string()), ticks.sum::<u64>());
    assert!(main_loop * 3 < all, "the main loop used {main_loop} of {all} ticks");
}

#[test]
fn facts_of_the_kernel() {
    let Some(bench) = bench() else { return };
    let facts = sim::guest_facts(&bench.cache, &bench.qemu, &bench.kernel, &|_| {}).unwrap();
    assert_eq!(facts.hz, Some(250));
    assert!(facts.config.unwrap().contains("CONFIG_HZ=250"));
    let symbols = facts.symbols.unwrap();
    assert!(symbols.len() > 50_000);
    let address = symbols.address("__do_softirq").unwrap();
    assert_eq!(symbols.symbol_at(address + 1).unwrap().1, 1);
    assert!(symbols.per_cpu_offset("current_task").unwrap() > 0);
    let btf = facts.btf.unwrap();
    assert_eq!(btf.member("task_struct", "comm").unwrap().size_bytes, 16);
    let outer = btf.offset_of("irq_desc", "irq_data").unwrap();
    let inner = btf.offset_of("irq_data", "irq").unwrap();
    assert_eq!(btf.offset_of("irq_desc", "irq_data.irq").unwrap(), outer + inner);
}
