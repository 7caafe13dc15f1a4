//! The first process of irqlab's simulated machine: `/init` of its initramfs. The crate `sim` carries this program,
//! puts it into the guest's image, and gives it a request.
//!
//! The program mounts file systems, loads modules, reports facts of the kernel to the host, executes the request, and
//! powers the machine off. Messages to the host go to the second serial port, one line `irqlab {JSON}` each: see
//! [`agent`]. A command's output goes to the third and the fourth: see [`output`].
//!
//! Design constraints:
//! - Only the kernel exists when the program starts: no libraries, no shell, and no device nodes until it mounts them.
//!   The program is linked statically, and libc is its only library.
//! - The program never hangs. Each exit powers the machine off. After a panic the kernel panics and resets the machine,
//!   which ends the simulation. An alarm in guest time ends a run that takes too long.
//! - The same instruction must read the same bytes in every run. So requests come from the kernel's command line or the
//!   firmware configuration ports. Other input from the host comes at an arbitrary time. It is read only where no
//!   result depends on the time: for the kernel's facts, and to end a run early.

mod agent;
mod devices;
mod execute;
mod facts;
mod faults;
mod firmware;
mod irqlab;
mod mark;
mod modules;
mod mounts;
mod output;
mod ports;
mod program;
mod request;
mod root;
mod share;
mod shell;
mod sys;
mod work;

use request::CommandLine;

fn main() {
    if std::env::args_os().next().is_some_and(|name| mark::is_named_by(&name)) {
        std::process::exit(mark::main());
    }
    if std::process::id() != 1 {
        eprintln!(
            "guest: this is the first process of a simulated machine; start `irqlab sim boot`"
        );
        std::process::exit(2);
    }
    mounts::mount_all();
    let command_line = CommandLine::read();
    let mut agent = agent::Agent::open();
    agent.limit_time(command_line.limit_s);
    let modules_failed = mounts::load_modules();
    modules::report(&mut agent);
    let devices = devices::settled(command_line.devices);
    // Nothing may happen between a restore and the region of interest: annotations could be hit.
    let output = output::Output::open();
    facts::report(&mut agent, &modules_failed, &devices);
    let status = match root::Root::mount(command_line.root.as_deref()) {
        Ok(root) => execute::execute(command_line.request, &root, &output, &mut agent),
        Err(reason) => {
            eprintln!("guest: {reason}");
            agent.step("root", program::CANNOT_START)
        }
    };
    agent.power_off(status)
}
