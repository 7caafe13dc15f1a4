//! Withholds irqlab's capabilities from the programs that it starts: the measured command, QEMU, a shell. A user or a
//! systemd unit that gives irqlab ambient capabilities gives them to irqlab only.
//!
//! `main` calls [`keep_from_programs`] before anything else. Code that starts a helper process, which is irqlab itself,
//! gives the helper the capabilities back ([`give_to_helper`]).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set,
    clear_ambient_capability_set, configure_capability_in_ambient_set, set_capabilities,
};

/// The capability sets with which this process was started. Empty until [`keep_from_programs`].
static INHERITED: OnceLock<Inherited> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inherited {
    inheritable: CapabilitySet,
    ambient: CapabilitySet,
}

/// Empties the ambient and the inheritable set. Programs that start from now on inherit no capability, and this process
/// keeps its rights. Programs of root still have all capabilities, because they run as root.
///
/// Call this before the first thread starts: each thread has separate sets, and inherits them when it starts.
///
/// Fails if the kernel refuses. Sets that are empty already are not changed.
pub fn keep_from_programs() -> io::Result<()> {
    let sets = capabilities(None)?;
    let is_ambient = |set: &CapabilitySet| capability_is_in_ambient_set(*set).unwrap_or(false);
    let ambient: CapabilitySet = sets.inheritable.iter().filter(is_ambient).collect();
    let inherited = Inherited { inheritable: sets.inheritable, ambient };
    let _ = INHERITED.set(inherited); // a second call finds the sets empty
    if !ambient.is_empty() {
        clear_ambient_capability_set()?;
    }
    if !sets.inheritable.is_empty() {
        set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..sets })?;
    }
    Ok(())
}

/// Gives a helper, which is irqlab itself, the capability sets with which this process was started.
pub fn give_to_helper(command: &mut Command) {
    let Some(inherited) = INHERITED.get().copied() else { return };
    if inherited.inheritable.is_empty() {
        return;
    }
    // SAFETY: between fork and exec the closure calls only capget(2), capset(2) and prctl(2), which
    // neither allocate nor take locks.
    unsafe { command.pre_exec(move || inherited.restore()) };
}

impl Inherited {
    /// Gives the calling thread these sets. The inheritable set comes first: the kernel refuses an ambient capability
    /// that is not inheritable.
    fn restore(self) -> io::Result<()> {
        let sets = capabilities(None)?;
        set_capabilities(None, CapabilitySets { inheritable: self.inheritable, ..sets })?;
        for capability in self.ambient.iter() {
            configure_capability_in_ambient_set(capability, true)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines with both sets in /proc/self/status of a program that `command` starts.
    fn sets_of(mut command: Command) -> Vec<String> {
        let output = command.args(["-E", "^Cap(Inh|Amb)", "/proc/self/status"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.split_whitespace().last().unwrap().to_owned()).collect()
    }

    #[test]
    fn programs_get_no_capability_and_helpers_get_what_irqlab_was_started_with() {
        let sets = capabilities(None).unwrap();
        if !sets.permitted.contains(CapabilitySet::BPF) {
            return needs::not_run(needs::Need::Root, "CAP_BPF, to inherit it");
        }
        // Changes the sets of this thread alone, which ends with the test.
        let inherited = Inherited { inheritable: CapabilitySet::BPF, ambient: CapabilitySet::BPF };
        inherited.restore().unwrap();
        let bpf = "0000008000000000";
        let none = "0000000000000000";
        assert_eq!(sets_of(Command::new("grep")), [bpf, bpf], "as without this module");
        keep_from_programs().unwrap();
        assert_eq!(sets_of(Command::new("grep")), [none, none]);
        assert_eq!(capabilities(None).unwrap().permitted, sets.permitted, "irqlab keeps its own");
        let mut helper = Command::new("grep");
        give_to_helper(&mut helper);
        assert_eq!(sets_of(helper), [bpf, bpf]);
    }
}
