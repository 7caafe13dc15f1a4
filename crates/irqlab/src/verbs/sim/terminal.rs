//! The terminal as the console of the guest.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::Context;
use live::spawn::spawn_thread;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use sim::Vm;

use crate::console;

/// Ctrl-]: leaves the guest's console, as in telnet.
const ESCAPE: u8 = 0x1d;

/// This terminal as the guest's console; restored when dropped.
pub struct Terminal {
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
        // Ends with the process: a read from a terminal cannot be given up.
        let read = move || {
            let mut bytes = [0; 256];
            while let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) {
                let typed = &bytes[..count];
                if is_terminal && typed.contains(&ESCAPE) {
                    end(pid);
                    return;
                }
                if console.write_all(typed).is_err() {
                    return;
                }
            }
        };
        let terminal = Terminal { before };
        spawn_thread("console", read).context("starting a thread failed")?;
        Ok(terminal)
    }
}

/// Ends QEMU, which is a child that has not been waited for while its console is connected.
fn end(pid: u32) {
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
