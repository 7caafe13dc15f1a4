//! [`CallerProgram`]: the number of the calling thread, its process, and the time, as BPF programs see them.
//!
//! User space sees thread numbers and CLOCK_MONOTONIC of its own PID and time namespaces. BPF programs see the
//! numbers and the clock of the initial namespaces. Numbers and times that user space passes to BPF programs, or
//! compares with their data, must come from here. Users: `marks` and `noise` (the thread of a loop), `clock::kernel`,
//! and an open window of `handlers`.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use zerocopy::{FromBytes, IntoBytes};

use super::BpfError;
use super::layout::Caller;
use super::object::{failure, load_failure, map_of, open_object, running_release};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/caller.o"));

/// The loaded program `see_caller`, which is attached to nothing. Threads may share it.
#[derive(Debug)]
pub struct CallerProgram {
    /// Locked from the run of the program until its map was read: the map has one entry.
    object: Mutex<Object>,
}

impl CallerProgram {
    /// Loads the program.
    ///
    /// Fails with [`BpfError::NotPermitted`] without the rights, otherwise with
    /// [`BpfError::Failed`] and libbpf's message.
    pub fn load() -> Result<Self, BpfError> {
        let open = open_object("irqlab_caller", OBJECT)?;
        let object = open.load().map_err(|error| load_failure(&error, running_release()))?;
        Ok(CallerProgram { object: Mutex::new(object) })
    }

    /// Runs the program once in the calling thread.
    ///
    /// Fails if the kernel refuses.
    pub fn see(&self) -> Result<Caller, BpfError> {
        self.see_between(|| ()).map(|(_, caller, _)| caller)
    }

    /// Like [`CallerProgram::see`], but also calls `read_clock` directly before and after the program runs. The time
    /// that the program sees lies between both readings.
    ///
    /// Fails if the kernel refuses.
    pub fn see_between<T>(&self, read_clock: impl Fn() -> T) -> Result<(T, Caller, T), BpfError> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || BpfError::Failed("the BPF object has no program see_caller".to_owned());
        let program = object.progs_mut().next().ok_or_else(missing)?;
        // The kernel demands a context even for a program that reads none.
        let mut context = [0_u64; 1];
        let input =
            ProgramInput { context_in: Some(context.as_mut_bytes()), ..ProgramInput::default() };
        let before = read_clock();
        let result = program.test_run(input);
        let after = read_clock();
        result.map_err(|error| failure("running see_caller", &error))?;
        let value = map_of(&object, "callers")?
            .lookup(0_u32.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("reading callers", &error))?;
        let caller = value.and_then(|bytes| Caller::read_from_bytes(&bytes).ok());
        let caller =
            caller.ok_or_else(|| BpfError::Failed("the BPF map callers is empty".to_owned()))?;
        Ok((before, caller, after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Root, namespaces};

    #[test]
    fn each_thread_learns_its_own_number() {
        let program = match CallerProgram::load() {
            Ok(program) => program,
            Err(error) => return needs::not_run(needs::Need::Bpf, error),
        };
        let here = program.see().unwrap();
        let there = std::thread::scope(|scope| scope.spawn(|| program.see().unwrap()).join());
        let there = there.unwrap();
        assert_eq!(here.process, there.process);
        assert_ne!(here.thread, there.thread);
        assert!(there.at_ns > here.at_ns);
        if namespaces(&Root::default()).pid_is_initial == Some(true) {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            assert_eq!(here.thread, thread);
            assert_eq!(here.process, std::process::id());
        }
    }
}
