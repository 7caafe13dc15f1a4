//! The terminal as the console of the guest, for `irqlab sim shell`. A thread passes typed bytes to the machine;
//! `boot` prints what the machine writes.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::Context;
use live::spawn::spawn_thread;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use sim::Vm;

use crate::console;

/// Ctrl-]: leaves the guest's console, as in telnet.
const ESCAPE: u8 = 0x1d;

/// This terminal as the guest's console, in raw mode. Dropping it restores the terminal.
pub struct Terminal {
    /// The terminal's settings before the raw mode. `None` if standard input is no terminal.
    before: Option<Termios>,
}

impl Terminal {
    /// Passes typed bytes to the machine's console until the process ends.
    pub fn connect(vm: &Vm) -> anyhow::Result<Terminal> {
        let mut console = vm.console_input()?;
        let stdin = io::stdin();
        let before = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
        if let Some(before) = &before {
            console::say("Ctrl-] leaves");
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        }
        let is_terminal = before.is_some();
        let pid = vm.pid();
        // The thread ends only with the process, because nothing can interrupt its read from the terminal.
        let pass_typed_bytes = move || {
            let mut bytes = [0; 256];
            while let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) {
                let typed = &bytes[..count];
                if is_terminal && typed.contains(&ESCAPE) {
                    terminate(pid);
                    return;
                }
                if console.write_all(typed).is_err() {
                    return;
                }
            }
        };
        let terminal = Terminal { before };
        spawn_thread("console", pass_typed_bytes).context("starting a thread failed")?;
        Ok(terminal)
    }
}

/// Sends SIGTERM to QEMU. The number is still QEMU's: irqlab does not wait for its child while the console is
/// connected.
fn terminate(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
