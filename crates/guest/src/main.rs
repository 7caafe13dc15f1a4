//! The first process of irqlab's simulated machine: `/init` of its initramfs.
//!
//! Design constraints:
//! - Nothing but the kernel is there: no libraries, no shell, no device nodes until this program
//!   mounts them. It is linked statically and uses libc alone.
//! - It must never hang: each way out powers the machine off, a panic aborts (the kernel then
//!   panics and resets the machine, which ends the simulation), and an alarm in guest time ends a
//!   run that takes too long.
//! - It reads what it is to do where the same instruction finds the same bytes in every run: on
//!   the kernel's command line, or through the firmware configuration ports. Never from a channel
//!   into which the host writes at a moment of its own.
//!
//! What the host must know goes to the second serial port, a JSON object a line behind `irqlab `:
//! see [`agent`].

mod agent;
mod facts;
mod firmware;
mod mounts;
mod order;
mod ports;
mod share;
mod shell;
mod sys;
mod work;

use order::{CommandLine, Order};

fn main() {
    if std::process::id() != 1 {
        eprintln!(
            "guest: this is the first process of a simulated machine; start `irqlab sim boot`"
        );
        std::process::exit(2);
    }
    mounts::mount_all();
    let command_line = CommandLine::read();
    let mut agent = agent::Agent::open();
    agent.watch_over(command_line.limit_s);
    let modules_failed = mounts::load_modules();
    facts::report(&mut agent, &modules_failed);
    let status = obey(command_line.order, &mut agent);
    agent.power_off(status)
}

/// Carries out one order; its exit status.
fn obey(order: Order, agent: &mut agent::Agent) -> u8 {
    match order {
        Order::PowerOff => 0,
        Order::Probe => share::share_all(agent),
        Order::Shell => shell::interactive(),
        Order::Idle { seconds } => work::idle(seconds),
        Order::Run(command) => work::run(&command),
        Order::Ready => {
            agent.send(r#"{"event":"ready"}"#);
            obey_firmware(agent)
        }
        Order::Unknown(text) => {
            eprintln!("guest: unknown order {text:?}; known: {}", order::KNOWN);
            2
        }
    }
}

/// Waits for the order that the host puts in place when it restores a checkpoint.
fn obey_firmware(agent: &mut agent::Agent) -> u8 {
    match firmware::wait_for_order() {
        // An order to be ready again would be obeyed forever.
        Ok(order) if order != Order::Ready => obey(order, agent),
        Ok(_) => 2,
        Err(reason) => {
            eprintln!("guest: no orders from the firmware: {reason}");
            2
        }
    }
}
