//! Executes the request of the host, and marks its regions of interest for the plugin. `main` calls [`execute`] once,
//! when the root file system is mounted.

use crate::agent::Agent;
use crate::faults::{FaultReading, Faults, lock_pages};
use crate::output::Output;
use crate::program::CANNOT_START;
use crate::request::{KNOWN, Request, Work};
use crate::root::Root;
use crate::{firmware, irqlab, share, shell, work};
use simrecord::marker::{self, mark};

/// Executes a request and returns its exit status. Commands run in the root file system `root`. `output`: the ports of a
/// command's output, or why they cannot be opened.
pub fn execute(
    request: Request,
    root: &Root,
    output: &Result<Output, String>,
    agent: &mut Agent,
) -> u8 {
    match request {
        Request::PowerOff => 0,
        Request::Probe => share::share_all(agent),
        Request::Shell => shell::interactive(root),
        Request::Idle { seconds } => work::idle(seconds),
        Request::Run(command) => run(&command, root, output, agent),
        Request::Work(work) => execute_work(&work, root, agent),
        Request::Prepare(command) => match work::run(&command, root) {
            0 => {
                mark(marker::PREPARED, 0);
                execute_from_firmware(&format!("prepare:{command}"), root, output, agent)
            }
            status => agent.step("set-up", status),
        },
        Request::Irqlab { stop_after_s, request } => {
            let status = irqlab::execute(&request, stop_after_s, agent);
            mark(marker::END, 0);
            status
        }
        Request::Ready => {
            work::wait_for_boot_work();
            agent.send(r#"{"event":"ready"}"#);
            mark(marker::READY, 0);
            execute_from_firmware(firmware::NO_REQUEST, root, output, agent)
        }
        Request::Unknown(text) => {
            eprintln!("guest: unknown request {text:?} (known: {KNOWN})");
            2
        }
    }
}

/// Runs a command, which is the region of interest, and returns its exit status. Its output goes to ports of its own.
fn run(command: &str, root: &Root, output: &Result<Output, String>, agent: &mut Agent) -> u8 {
    let output = match output {
        Ok(output) => output,
        Err(reason) => {
            eprintln!("guest: cannot open the ports of a command's output: {reason}");
            return agent.step("output", CANNOT_START);
        }
    };
    mark(marker::OPEN, 0);
    let status = work::run_to(command, root, output);
    mark(marker::CLOSE, 0);
    mark(marker::END, 0);
    output.drain();
    status
}

/// Runs a workload: the region of interest between its markers, and then the check, which is not recorded. Returns the
/// exit status.
///
/// The order matters: markers and readings of the kernel's counters are as close together as possible, so that both
/// count the same page faults.
fn execute_work(work: &Work, root: &Root, agent: &mut Agent) -> u8 {
    // A command that marks itself is longer than its region, so its faults cannot be compared.
    let mut readings =
        if work.marks_itself { None } else { FaultReading::open().zip(FaultReading::open()) };
    // This process must not fault between a reading and its marker.
    lock_pages();
    if let Some((before, _)) = &mut readings {
        // The plugin counts faults from now on. Other CPUs may fault between the reading and the start of the region.
        mark(marker::FULL, 0);
        mark(marker::READING, 0);
        before.take();
    }
    if work.marks_itself {
        // Nothing is recorded until the command executes its own marker.
        mark(marker::FAST, 0);
    } else {
        mark(marker::OPEN, 0);
    }
    let status = work::run(&work.region, root);
    if let Some((_, after)) = &mut readings {
        after.touch();
    }
    if !work.marks_itself {
        mark(marker::CLOSE, 0);
    }
    if let Some((_, after)) = &mut readings {
        after.take();
        mark(marker::READING, 0);
    }
    mark(marker::FAST, 0);
    let faults = readings.and_then(|(before, after)| {
        let (before, after) = (before.faults()?, after.faults()?);
        Some(after.since(before))
    });
    if let Some(Faults { all, major }) = faults {
        agent.send(&format!(r#"{{"event":"faults","all":{all},"major":{major}}}"#));
    }
    if status != 0 {
        mark(marker::END, 0);
        return agent.step("region", status);
    }
    let status = if work.check.is_empty() { 0 } else { work::run(&work.check, root) };
    mark(marker::END, 0);
    if status == 0 { 0 } else { agent.step("check", status) }
}

/// Waits until the firmware has another request than `old_request`, and executes it. Returns its exit status. The host
/// provides the request when it restores a checkpoint.
fn execute_from_firmware(
    old_request: &str,
    root: &Root,
    output: &Result<Output, String>,
    agent: &mut Agent,
) -> u8 {
    match firmware::wait_for_request(old_request) {
        // This request would make the guest read the same request again, forever.
        Ok(Request::Ready) => 2,
        Ok(request) => execute(request, root, output, agent),
        Err(reason) => {
            eprintln!("guest: cannot read a request from the firmware: {reason}");
            2
        }
    }
}
