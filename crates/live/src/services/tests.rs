//! Tests that load the programs on this machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::probes::ServiceProbes;
use super::sums::{CpuTime, Reading};
use super::time_parts::closure;
use crate::bpf::layout::{SERVICE_FAULT_USER, SERVICE_SYSCALL_32, SERVICE_UNKNOWN, SERVICE_USER};
use crate::host::Root;
use crate::spawn::spawn_scoped;
use crate::syscall_loop::ns_per_call;
use crate::threads::{CpuClock, pin};
use crate::window::{WindowEdge, leave_cpu};

/// CPUs on which this test may run. The test measures no others.
fn cpus() -> Vec<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..64).filter(|cpu| allowed.is_set(*cpu as usize)).collect()
}

fn loaded() -> Option<ServiceProbes> {
    match ServiceProbes::load(&cpus(), false) {
        Ok(probes) => Some(probes),
        Err(error) => {
            needs::not_run(needs::Need::Bpf, error.to_string());
            None
        }
    }
}

fn close(probes: &ServiceProbes) -> Reading {
    assert!(probes.set_all_windows(WindowEdge::Close).is_empty());
    probes.read().unwrap()
}

fn assert_closes(reading: &Reading) {
    assert_eq!(reading.cpus.len(), cpus().len());
    for time in &reading.cpus {
        assert_eq!(time.sum_ns(), time.window_ns, "{time:?}");
        assert!(time.window_ns > 0 && time.probes_ns > 0, "{time:?}");
    }
    let closure = closure(&reading.cpus);
    assert_eq!(Some(closure.counted), closure.kernel);
}

#[test]
fn system_calls_are_counted_while_the_window_is_open() {
    const CALLS: u32 = 10_000;
    let Some(probes) = loaded() else { return };
    ns_per_call(cpus()[0], CALLS).unwrap();
    assert!(probes.read().unwrap().services.is_empty(), "the window is closed");
    probes.open().unwrap();
    ns_per_call(cpus()[0], CALLS).unwrap();
    let reading = close(&probes);
    let number = libc::SYS_getppid as usize;
    let found = reading.services.iter().find(|(service, _)| *service == number);
    let getppid = &found.unwrap().1;
    assert!(getppid.completed >= u64::from(CALLS) && getppid.started >= getppid.completed);
    assert_eq!(getppid.latencies.iter().sum::<u64>(), getppid.completed);
    assert!(getppid.self_ns > 0 && getppid.self_ns < reading.cpus[0].window_ns);
    // An interrupt that comes while the kernel changes a map makes another change of it fail, and irqlab counts that.
    assert!(reading.lost < 10, "{}", reading.lost);
    assert_closes(&reading);
    probes.clear().unwrap();
    let cleared = probes.read().unwrap();
    assert!(cleared.services.is_empty() && cleared.cpus.is_empty());
}

#[test]
fn the_computation_of_requests_is_no_longer_than_their_cpu_time() {
    const ROUNDS: usize = 5_000;
    let Some(probes) = loaded() else { return };
    let (request_end, request_start) = rustix::pipe::pipe().unwrap();
    let (answer_end, answer_start) = rustix::pipe::pipe().unwrap();
    probes.open().unwrap();
    // Two threads wait for each other, so that nearly each request is blocked.
    std::thread::scope(|scope| {
        let answer = || {
            let mut byte = [0; 1];
            while rustix::io::read(&request_end, &mut byte).unwrap() > 0 {
                rustix::io::write(&answer_start, &byte).unwrap();
            }
        };
        spawn_scoped(scope, "answers", answer).unwrap();
        let mut byte = [0; 1];
        for _ in 0..ROUNDS {
            rustix::io::write(&request_start, &byte).unwrap();
            rustix::io::read(&answer_end, &mut byte).unwrap();
        }
        drop(request_start);
    });
    let reading = close(&probes);
    let number = libc::SYS_read as usize;
    let (_, read) = reading.services.iter().find(|(service, _)| *service == number).unwrap();
    assert!(read.completed + read.unseen >= 2 * ROUNDS as u64, "{read:?}");
    // A switch that the kernel does not hand over makes the time off the CPU unknown; the request then has no times. Calls of
    // other processes may have an invalid address: the time of such a fault is not the call's.
    let is_of_test = |service: usize| [libc::SYS_read, libc::SYS_write].contains(&(service as i64));
    for (service, sums) in reading.services.iter().filter(|(service, _)| is_of_test(*service)) {
        let off_cpu_ns = sums.blocked_ns + sums.descheduled_ns;
        let computation_ns = sums.latency_ns - off_cpu_ns - sums.nested_ns;
        let ends_ns = 1_000 * sums.completed;
        assert!(computation_ns <= sums.self_ns + ends_ns, "{service}: {computation_ns}, {sums:?}");
    }
}

// Operations and results of the program `drive` (bpf/service_drive.h).
const INTERRUPT_PROGRAM: u64 = 1;
const INTERRUPT_TASK: u64 = 2;
const FAULT: u64 = 3;
const FIND_SERVICE: u64 = 4;
const NESTED: u64 = 0;
const SELF: u64 = 1;
const EXCESS: u64 = 2;

/// While threads of process 1 run, some kernels call no BPF program, so their system calls have no end.
#[test]
fn a_thread_of_process_1_is_in_no_system_call() {
    let Some(probes) = loaded() else { return };
    let services = |process| driven(&probes, FIND_SERVICE, process);
    let own = u64::from(std::process::id());
    assert!(services(own).iter().all(|service| i64::from(*service) == libc::SYS_bpf));
    assert!(services(1).iter().all(|service| *service == SERVICE_UNKNOWN as i32));
}

/// The results of many runs of `drive` in the system call of this thread. Interrupts of the machine may disturb single runs.
fn driven(probes: &ServiceProbes, operation: u64, result: u64) -> Vec<i32> {
    let cpu = cpus()[0];
    pin(cpu).unwrap();
    probes.open().unwrap();
    pin(cpu).unwrap();
    let results = (0..200).map(|_| probes.drive(cpu, [operation, result]).unwrap()).collect();
    close(probes);
    results
}

/// An interrupt during the program at the start or end of a request is outside of the request's latency.
#[test]
fn an_interrupt_of_a_program_is_no_part_of_the_request() {
    let Some(probes) = loaded() else { return };
    for result in [NESTED, SELF] {
        let in_program = driven(&probes, INTERRUPT_PROGRAM, result);
        assert!(in_program.iter().all(|ns| *ns == 0), "{in_program:?}");
    }
    let in_task = driven(&probes, INTERRUPT_TASK, NESTED);
    assert!(in_task.iter().all(|ns| *ns > 0), "{in_task:?}");
    let excess = driven(&probes, INTERRUPT_TASK, EXCESS);
    assert!(excess.contains(&0), "{excess:?}");
}

/// The programs at the start and end of a page fault are no computation of the system call in which it comes.
#[test]
fn the_programs_at_a_fault_are_no_computation_of_the_call() {
    let Some(probes) = loaded() else { return };
    if let Some(reason) = probes.fault_ends_missing_reason() {
        return needs::not_run(needs::Need::Other, reason);
    }
    let nested = driven(&probes, FAULT, NESTED);
    assert!(nested.iter().all(|ns| *ns > 0), "{nested:?}");
    let excess = driven(&probes, FAULT, EXCESS);
    assert!(excess.contains(&0), "{excess:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_32_bit_code_are_not_the_64_bit_calls_with_their_numbers() {
    const CALLS: u64 = 1_000;
    // getpid in the table of 32-bit calls, writev in the one of 64-bit calls.
    const IA32_GETPID: u64 = 20;
    // The kernel has this file where it executes 32-bit system calls.
    if !std::path::Path::new("/proc/sys/abi/vsyscall32").exists() {
        return needs::not_run(needs::Need::Other, "this kernel has no 32-bit system calls");
    }
    let Some(probes) = loaded() else { return };
    let call = || {
        let mut result = IA32_GETPID;
        // SAFETY: getpid changes no memory. `int 0x80` keeps all registers but rax; old kernels clear r8 to r11.
        unsafe {
            std::arch::asm!(
                "int 0x80", inout("rax") result,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        result
    };
    let completed = |reading: &Reading, number: usize| {
        let found = reading.services.iter().find(|(service, _)| *service == number);
        found.map_or(0, |(_, sums)| sums.completed)
    };
    probes.open().unwrap();
    for _ in 0..CALLS {
        assert_eq!(call(), u64::from(std::process::id()));
    }
    let reading = close(&probes);
    assert!(completed(&reading, SERVICE_SYSCALL_32) >= CALLS);
    let writev_count = completed(&reading, libc::SYS_writev as usize);
    assert!(writev_count < CALLS, "{writev_count} calls of writev");
}

/// The time of a service in a reading, ns.
fn self_ns(reading: &Reading, number: usize) -> u64 {
    let found = reading.services.iter().find(|(service, _)| *service == number);
    found.map_or(0, |(_, sums)| sums.self_ns)
}

fn spin(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// The windows of CPUs open one after the other. A task that returns from a call on a CPU whose window opens only then is in
/// user mode, although its call was seen to start on another CPU.
#[test]
fn a_call_that_ended_before_its_cpu_was_measured_takes_no_time_there() {
    const SPIN: Duration = Duration::from_millis(40);
    let (first, second) = match cpus()[..] {
        [first, second, ..] => (first, second),
        _ => return needs::not_run(needs::Need::Cpus, "two CPUs"),
    };
    let Some(probes) = loaded() else { return };
    let (may_move, has_moved) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let moves = || {
            pin(first).unwrap();
            wait_for(&may_move);
            pin(second).unwrap();
            has_moved.store(true, Ordering::Release);
            spin(SPIN);
        };
        spawn_scoped(scope, "moves", moves).unwrap();
        assert!(probes.set_windows(&[first], WindowEdge::Open).is_empty());
        may_move.store(true, Ordering::Release);
        wait_for(&has_moved);
        assert!(probes.set_windows(&[second], WindowEdge::Open).is_empty());
    });
    assert!(probes.set_windows(&[first, second], WindowEdge::Close).is_empty());
    let reading = probes.read().unwrap();
    let calls_ns = self_ns(&reading, libc::SYS_sched_setaffinity as usize);
    assert!(u128::from(calls_ns) < SPIN.as_nanos() / 4, "{calls_ns} ns in sched_setaffinity");
    assert!(u128::from(self_ns(&reading, SERVICE_USER)) > SPIN.as_nanos() / 4);
}

/// The kernel executes an old system call (vsyscall) within a page fault that has no end.
#[test]
#[cfg(target_arch = "x86_64")]
fn an_old_system_call_is_no_page_fault_without_an_end() {
    const SPIN: Duration = Duration::from_millis(20);
    const TIME: usize = 0xffff_ffff_ff60_0400;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    if !maps.contains("[vsyscall]") {
        return needs::not_run(needs::Need::Other, "this kernel has no page of old system calls");
    }
    let Some(probes) = loaded() else { return };
    // SAFETY: the page is mapped, and has the function time(2) of this type at this address.
    let time: extern "C" fn(*mut libc::time_t) -> libc::time_t =
        unsafe { std::mem::transmute(TIME) };
    pin(cpus()[0]).unwrap();
    probes.open().unwrap();
    assert!(time(std::ptr::null_mut()) > 0);
    spin(SPIN);
    let reading = close(&probes);
    let faults_ns = self_ns(&reading, SERVICE_FAULT_USER);
    assert!(u128::from(faults_ns) < SPIN.as_nanos() / 4, "{faults_ns} ns in page faults");
}

/// Makes system calls, faults, new processes and sleep, on all CPUs.
#[test]
fn the_times_of_each_cpu_add_up_to_its_window() {
    const PAGES: usize = 2_000;
    let Some(probes) = loaded() else { return };
    probes.open().unwrap();
    std::thread::scope(|scope| {
        for cpu in cpus() {
            let work = move || {
                pin(cpu).unwrap();
                touch_fresh_pages(PAGES);
                for _ in 0..5 {
                    std::process::Command::new("true").status().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            };
            spawn_scoped(scope, "work", work).unwrap();
        }
    });
    let reading = close(&probes);
    assert_closes(&reading);
    let sums = |service: usize| {
        reading.services.iter().find(|(position, _)| *position == service).map(|(_, sums)| sums)
    };
    assert!(sums(SERVICE_USER).unwrap().self_ns > 0);
    if let Some(reason) = probes.fault_ends_missing_reason() {
        return needs::not_run(needs::Need::Other, reason);
    }
    let faults = sums(SERVICE_FAULT_USER).unwrap();
    let touched = (PAGES * cpus().len()) as u64;
    assert!(faults.completed >= touched && faults.completed <= faults.started, "{faults:?}");
    assert!(faults.self_ns > 0 && faults.latency_ns >= faults.nested_ns + faults.blocked_ns);
}

fn touch_fresh_pages(pages: usize) {
    let length = pages * 4096;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of this function's own, used within its bounds and unmapped at the end.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::madvise(start, length, libc::MADV_NOHUGEPAGE), 0);
        for page in 0..pages {
            start.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        libc::munmap(start, length);
    }
}

/// Progress of the thread in step with the tick, and of the thread that measures it. The first is
/// in step from `is_open` to `is_done`.
#[derive(Default)]
struct Steps {
    is_started: AtomicBool,
    is_open: AtomicBool,
    is_done: AtomicBool,
    may_end: AtomicBool,
}

/// Times of the thread in step with the tick.
struct InStep {
    /// CPU time in user mode, from the thread's own clock.
    user_ns: u64,
    /// Time from before the window to after it.
    length_ns: u64,
    /// CPU time between the same moments as `length_ns`.
    cpu_ns: u64,
}

/// Share of a tick's period that the thread spends in user mode, per cent.
const USER_PERCENT: u32 = 65;
const PERIODS: u32 = 60;
/// Bytes of a read. A read takes about 0.1 ms, so kernel entry and exit, which count as user mode,
/// are short compared with it.
const CALL_BYTES: usize = 1 << 20;

/// Spends 65 % of each tick's period in user mode and the rest in the kernel, where the tick always
/// finds the thread. Ticks come at multiples of their period (tick_sched_timer). SCHED_FIFO keeps
/// other tasks off the CPU.
fn in_step(cpu: u32, steps: &Steps) -> InStep {
    pin(cpu).unwrap();
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure outlives the call; 0 is this thread.
    let is_fifo =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } == 0;
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![1_u8; CALL_BYTES];
    let mut stay_in_kernel_until = |end: &dyn Fn() -> bool| {
        while !end() {
            std::io::Read::read_exact(&mut zeros, &mut buffer).unwrap();
        }
    };
    let clock = CpuClock::of_this_thread().unwrap();
    let (start, start_cpu) = (Instant::now(), clock.now_ns());
    steps.is_started.store(true, Ordering::Release);
    stay_in_kernel_until(&|| steps.is_open.load(Ordering::Acquire));
    let period = Duration::from_nanos(tick_ns());
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since_tick = Duration::from_nanos(now.tv_nsec as u64 % tick_ns());
    let mut user_ns = 0;
    let first = Instant::now() + (period - since_tick) + period / 10;
    for step in 0..PERIODS {
        let begin = first + period * step;
        stay_in_kernel_until(&|| Instant::now() >= begin);
        let end = begin + period * USER_PERCENT / 100;
        let before = clock.now_ns();
        while Instant::now() < end {}
        user_ns += clock.now_ns() - before;
    }
    steps.is_done.store(true, Ordering::Release);
    stay_in_kernel_until(&|| steps.may_end.load(Ordering::Acquire));
    let (length_ns, cpu_ns) = (start.elapsed().as_nanos() as u64, clock.now_ns() - start_cpu);
    InStep { user_ns: if is_fifo { user_ns } else { 0 }, length_ns, cpu_ns }
}

/// The period of the tick, which is the resolution of the coarse clock.
fn tick_ns() -> u64 {
    let resolution = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    resolution.tv_nsec as u64
}

#[test]
fn a_program_in_step_with_the_tick_has_its_own_times() {
    const TRIES: usize = 8;
    let Some(probes) = loaded() else { return };
    let [.., _, cpu] = cpus()[..] else {
        return needs::not_run(needs::Need::Cpus, "one CPU");
    };
    for _ in 0..TRIES {
        let (thread, time) = measure_in_step(&probes, cpu);
        if thread.user_ns == 0 {
            return needs::not_run(needs::Need::Fifo, "sched_setscheduler failed");
        }
        // Something else had the CPU: the scheduler's limit for real-time tasks, or the host.
        if thread.length_ns.saturating_sub(thread.cpu_ns) > thread.user_ns * 3 / 100 {
            continue;
        }
        let user = time.services.iter().find(|(service, _)| *service == SERVICE_USER).unwrap().1;
        let (low, high) = (thread.user_ns * 90 / 100, thread.user_ns * 110 / 100);
        println!("{user} ns in user mode, {} ns by the thread's clock", thread.user_ns);
        assert!((low..=high).contains(&user), "{user} ns in user mode, and not {}", thread.user_ns);
        return;
    }
    needs::not_run(needs::Need::Other, "a CPU that other tasks leave alone for 0.3 s");
}

fn measure_in_step(probes: &ServiceProbes, cpu: u32) -> (InStep, CpuTime) {
    let steps = Steps::default();
    let wait_for = |step: &AtomicBool| {
        while !step.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    probes.clear().unwrap();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let thread = std::thread::scope(|scope| {
        leave_cpu(&allowed, cpu);
        let thread = spawn_scoped(scope, "in-step", || in_step(cpu, &steps)).unwrap();
        wait_for(&steps.is_started);
        probes.open().unwrap();
        steps.is_open.store(true, Ordering::Release);
        wait_for(&steps.is_done);
        assert!(probes.set_all_windows(WindowEdge::Close).is_empty());
        steps.may_end.store(true, Ordering::Release);
        thread.join().unwrap()
    });
    rustix::thread::sched_setaffinity(None, &allowed).unwrap();
    let reading = probes.read().unwrap();
    assert_closes(&reading);
    (thread, reading.cpus.into_iter().find(|time| time.cpu == cpu).unwrap())
}

/// A tracefs instance of this test. Threads that read its `trace_pipe` by one descriptor wait for each other: the kernel
/// holds the mutex of the file's position while a read waits for events.
struct Instance {
    directory: std::path::PathBuf,
}

impl Instance {
    fn new() -> Option<Instance> {
        let name = format!("irqlab_test_{}", std::process::id());
        let directory = std::path::Path::new("/sys/kernel/tracing/instances").join(name);
        match std::fs::create_dir(&directory) {
            Ok(()) => Some(Instance { directory }),
            Err(error) => {
                needs::not_run(needs::Need::Other, format!("no tracefs instance: {error}"));
                None
            }
        }
    }

    /// Ends the wait of one reader.
    fn write_marker(&self) {
        let marker = self.directory.join("trace_marker");
        let marker = std::fs::OpenOptions::new().append(true).open(marker);
        let _ = marker.map(|marker| rustix::io::write(&marker, b"x"));
    }
}

/// Ends the waits of all three readers, also if the test panics.
struct EndOfReaders<'a>(&'a Instance);

impl Drop for EndOfReaders<'_> {
    fn drop(&mut self) {
        (0..3).for_each(|_| self.0.write_marker());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Waits until threads of this process are in these states of /proc/PID/stat, in any order.
fn wait_for_states(threads: &[i32], expected: &str) {
    let state = |thread: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next()).unwrap_or('X')
    };
    let start = Instant::now();
    let mut in_a_row = 0;
    loop {
        let mut states: Vec<char> = threads.iter().map(state).collect();
        states.sort_unstable();
        // A thread may be in a state for a moment, such as D in a page fault.
        in_a_row = if states.iter().copied().eq(expected.chars()) { in_a_row + 1 } else { 0 };
        if in_a_row == 5 {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{states:?}, not {expected}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One thread reads, and two wait for the mutex. In the window, the mutex is released once: one waiter gets it.
#[test]
fn waits_for_a_mutex_have_their_service_place_and_end() {
    let Some(instance) = Instance::new() else { return };
    let probes = match ServiceProbes::load(&cpus(), true) {
        Ok(probes) => probes,
        Err(error) => return needs::not_run(needs::Need::Bpf, error.to_string()),
    };
    let Some(settings) = probes.locks.settings() else {
        return needs::not_run(needs::Need::Other, "this kernel has no tracepoints of contention");
    };
    let pipe = std::fs::File::open(instance.directory.join("trace_pipe")).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let waits = std::thread::scope(|scope| {
        let _end = EndOfReaders(&instance);
        let start_reader = || {
            let (pipe, sender) = (&pipe, sender.clone());
            let read = move || {
                sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                rustix::io::read(pipe, &mut [0; 4_096]).unwrap();
            };
            spawn_scoped(scope, "reads", read).unwrap();
            receiver.recv().unwrap()
        };
        let holder = start_reader();
        wait_for_states(&[holder], "S");
        probes.open().unwrap();
        let waiters = [start_reader(), start_reader()];
        wait_for_states(&waiters, "DD");
        instance.write_marker();
        wait_for_states(&waiters, "DS");
        close(&probes);
        let waits = probes.read_locks().unwrap().unwrap();
        instance.write_marker();
        wait_for_states(&waiters, "SX");
        instance.write_marker();
        waits
    });
    let stats = waits.stats(settings, &Root::default(), |service| {
        Some((lab::services::Class::Syscall, service.to_string()))
    });
    let is_position = |lock: &&lab::services::LockStats| {
        lock.service == "0" && lock.kind == "mutex" && lock.place.contains("fdget_pos")
    };
    let of_read: Vec<_> = stats.iter().filter(is_position).collect();
    let ended: u64 = of_read.iter().map(|lock| lock.contended).sum();
    let unfinished: u64 = of_read.iter().filter_map(|lock| lock.unfinished).sum();
    assert!(ended >= 1 && unfinished >= 1, "{stats:?}");
    let waited_ns: u64 = of_read.iter().map(|lock| lock.waited_ticks).sum();
    let waited_max_ns = of_read.iter().filter_map(|lock| lock.waited_max_ticks).max();
    assert!(waited_max_ns > Some(0) && waited_max_ns <= Some(waited_ns), "{of_read:?}");
    probes.clear().unwrap();
    assert!(probes.read_locks().unwrap().unwrap().waits.is_empty());
}
