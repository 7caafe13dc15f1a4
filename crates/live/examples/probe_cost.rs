//! Prints the cost of a command's BPF programs. Run by hand,
//! `cargo run -p live --example probe_cost -- irqlab wakeup -c 1 -H 0 -d 3s --no-comparison` executes the command and then
//! prints calls and mean time of each BPF program that was loaded meanwhile, by the kernel's statistics
//! (`BPF_ENABLE_STATS`). It needs `CAP_SYS_ADMIN`. The statistics take time in each call, too, so compare their figures
//! only with one another.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::time::Duration;

use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::ProgInfoIter;

/// Time between two readings. The last reading before the command unloads its programs counts.
const INTERVAL: Duration = Duration::from_millis(20);

/// The statistics of a BPF program.
struct ProgramCost {
    name: String,
    calls: u64,
    total_ns: u64,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [program, args @ ..] = &args[..] else {
        eprintln!("usage: probe_cost COMMAND [ARGUMENT...]");
        return ExitCode::from(2);
    };
    match costs_during(Command::new(program).args(args)) {
        Ok(costs) => {
            println!("calls,mean_ns,program");
            for cost in costs.values().filter(|cost| cost.calls > 0) {
                let mean_ns = cost.total_ns as f64 / cost.calls as f64;
                println!("{},{mean_ns:.0},{}", cost.calls, cost.name);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. Returns the statistics of the BPF programs that were loaded meanwhile, by program number.
fn costs_during(command: &mut Command) -> std::io::Result<BTreeMap<u32, ProgramCost>> {
    let _statistics = enable_statistics()?;
    let loaded_before: BTreeSet<u32> = ProgInfoIter::default().map(|program| program.id).collect();
    let mut costs = BTreeMap::new();
    let mut command = command.spawn()?;
    loop {
        let has_ended = command.try_wait()?.is_some();
        for program in ProgInfoIter::default().filter(|info| !loaded_before.contains(&info.id)) {
            let name = program.name.to_string_lossy().into_owned();
            let (calls, total_ns) = (program.run_cnt, program.run_time_ns);
            costs.insert(program.id, ProgramCost { name, calls, total_ns });
        }
        if has_ended {
            return Ok(costs);
        }
        std::thread::sleep(INTERVAL);
    }
}

/// The kernel keeps statistics while the result is open.
fn enable_statistics() -> std::io::Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    let file = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
    if file < 0 {
        return Err(std::io::Error::from_raw_os_error(-file));
    }
    // SAFETY: a new file descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
