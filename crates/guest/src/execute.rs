//! Executes requests.

use crate::agent::Agent;
use crate::request::{KNOWN, Request};
use crate::{firmware, irqlab, share, shell, work};
use simrecord::marker::{self, mark};

/// Executes a request; returns its exit status.
pub fn execute(request: Request, agent: &mut Agent) -> u8 {
    match request {
        Request::PowerOff => 0,
        Request::Probe => share::share_all(agent),
        Request::Shell => shell::interactive(),
        Request::Idle { seconds } => work::idle(seconds),
        Request::Run(command) => {
            mark(marker::OPEN, 0);
            let status = work::run(&command);
            mark(marker::CLOSE, 0);
            mark(marker::END, 0);
            status
        }
        Request::Irqlab(request) => {
            let status = irqlab::execute(&request, agent);
            mark(marker::END, 0);
            status
        }
        Request::Ready => {
            work::wait_for_boot_work();
            agent.send(r#"{"event":"ready"}"#);
            mark(marker::READY, 0);
            execute_from_firmware(agent)
        }
        Request::Unknown(text) => {
            eprintln!("guest: unknown request {text:?} (known: {KNOWN})");
            2
        }
    }
}

/// Waits for the request that the host provides when it restores a checkpoint, and executes it.
fn execute_from_firmware(agent: &mut Agent) -> u8 {
    match firmware::wait_for_request() {
        // A request to be ready again would be executed forever.
        Ok(request) if request != Request::Ready => execute(request, agent),
        Ok(_) => 2,
        Err(reason) => {
            eprintln!("guest: no request from the firmware: {reason}");
            2
        }
    }
}
