//! Helper programs, and child processes that end with this one.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::text::Tail;
use crate::{Result, SimError};

/// Maximum length of a failed program's output that an error quotes, bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Adds the limit that was reached, such as the number of processes, to the error of a process that could not start.
type NameLimit = fn(io::Error) -> io::Error;

static NAME_LIMIT: OnceLock<NameLimit> = OnceLock::new();

/// Sets the function that completes the errors of processes that could not start. Only the first call has an effect.
pub fn name_process_limits_by(name: NameLimit) {
    let _ = NAME_LIMIT.set(name);
}

/// Completes the error of a process or thread that could not start by the limit that was reached.
pub(crate) fn with_reached_limit(error: io::Error) -> io::Error {
    match NAME_LIMIT.get() {
        Some(name) => name(error),
        None => error,
    }
}

/// Makes the kernel kill the program when the *thread* that started it ends, for whatever reason.
pub(crate) fn dies_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only two system calls are made, which neither allocate nor
    // take locks.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the call.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Returns the CPU time, user and system together, of all child processes that have ended, ns. The scheduler's clock
/// measures this sum, with a resolution of 1 µs. Most kernels only estimate the two parts, by the mode at each tick.
#[must_use]
pub fn children_cpu_ns() -> u64 {
    // SAFETY: all-zero is a valid rusage to be overwritten.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let ns = |time: libc::timeval| {
        let parts = [(time.tv_sec, 1_000_000_000), (time.tv_usec, 1_000)];
        parts.iter().map(|(part, ns)| u64::try_from(*part).unwrap_or(0) * ns).sum::<u64>()
    };
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Runs a helper program to its end. Returns its standard output.
///
/// Fails with [`SimError::Program`] if it cannot be started, or ends with an error.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    output_of(command, Stdio::piped())
}

/// See [`output`]. `stdout`: where the standard output goes; the result is empty unless it is a pipe.
fn output_of(command: &mut Command, stdout: Stdio) -> Result<Vec<u8>> {
    let arguments = command.get_args().take(2).map(|argument| argument.to_string_lossy());
    let program = command.get_program().to_string_lossy();
    let program: Vec<_> = std::iter::once(program).chain(arguments).collect();
    let program = program.join(" ");
    let fail = |detail: String| SimError::Program { program: program.clone(), detail };
    dies_with_parent(command.stdin(Stdio::null()).env("LC_ALL", "C"));
    let output = outputs::output_of_program(command.stdout(stdout).stderr(Stdio::piped()));
    let output = output.map_err(|error| fail(with_reached_limit(error).to_string()))?;
    if !output.status.success() {
        let mut tail = Tail::new(MESSAGE_BYTES_MAX);
        tail.push(&output.stdout);
        tail.push(&output.stderr);
        return Err(fail(format!("{}\n{}", output.status, tail.lines())));
    }
    Ok(output.stdout)
}

/// Like [`output`], for a program whose standard output goes to a file.
pub(crate) fn output_to(command: &mut Command, stdout: Stdio) -> Result<()> {
    output_of(command, stdout).map(drop)
}

/// Returns the path of a program in the directories of `PATH`.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_what_the_program_said() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("sh -c") && error.contains("3") && error.ends_with("why"));
        assert_eq!(output(Command::new("echo").arg("x")).unwrap(), b"x\n");
        assert!(output(&mut Command::new("/nowhere/at-all")).is_err());
    }
}
