//! A program of kernel paths: what the part `services` of `irqlab bench kernel` executes on both benches.

use std::io;

use kernels::{Group, Kernel, Rounds};

use crate::threads::pin;

/// Kernels that the program leaves out: they measure interrupts, which the part `handlers` has, and the setting of the
/// local timer, which exits to a hypervisor.
const LEFT_OUT: [&str; 4] = ["ipi", "timer_interrupt", "timer_first", "timer_later"];

/// Executes each kernel of group `system` that is a service of the kernel: `windows` of its windows, on `cpu`. The
/// number of calls depends on nothing else.
///
/// Fails if the thread cannot be pinned. A kernel that cannot run here is left out.
pub fn execute_mix(cpu: u32, windows: u32) -> io::Result<()> {
    pin(cpu)?;
    let is_service =
        |kernel: &Kernel| kernel.group == Group::System && !LEFT_OUT.contains(&kernel.name);
    for kernel in kernels::all().into_iter().filter(is_service) {
        let Ok(mut body) = kernel.make() else { continue };
        let Rounds::Fixed(rounds) = body.rounds() else { continue };
        for _ in 0..windows {
            body.prepare();
            body.run(rounds);
        }
    }
    Ok(())
}
