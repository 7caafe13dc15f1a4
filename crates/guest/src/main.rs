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
mod irqlab;
mod marker;
mod mounts;
mod obey;
mod order;
mod ports;
mod share;
mod shell;
mod sys;
mod work;

use order::CommandLine;

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
    let status = obey::obey(command_line.order, &mut agent);
    agent.power_off(status)
}
