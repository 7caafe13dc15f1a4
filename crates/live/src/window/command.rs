//! The command that a window of `handlers`, `noise` or `services` measures.
//!
//! [`HeldCommand::new`] forks the command's process, which then waits. The bench opens the window,
//! and [`HeldCommand::release`] lets the process execute the program. So the window contains the
//! program from its first instruction on.
//!
//! Two pipes join both processes. A byte in the first one releases the command; its end without a byte makes the
//! process exit. The second one ends when exec(2) succeeds, or transfers the error number of a failed exec(2).
//!
//! Between fork and exec the child may only call async-signal-safe functions, and may not allocate, because irqlab has
//! several threads. Therefore [`ExecPlan`] contains everything that the child needs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use lab::experiment::BenchError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};

use super::outcome::WaitOutcome;
use crate::spawn::with_reached_limit;

/// The program that executes a script without an interpreter line. execvp(3) uses the same one.
const SHELL: &str = "/bin/sh";
/// Signals with which a user stops irqlab. Their handlers in irqlab request the stop of the measurement.
const STOP_SIGNALS: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Time that a dropped command gets to end. A command is dropped only after another error.
const DROP_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A command in a separate process, which waits before the program's first instruction. Dropping
/// this ends the process.
pub struct HeldCommand {
    /// Write end of the first pipe. A byte makes the process execute the program; closing it makes the process exit.
    start: OwnedFd,
    command: RunningCommand,
}

/// A command that has been started. Dropping it terminates the process.
pub struct RunningCommand {
    program: String,
    pid: Pid,
    pidfd: OwnedFd,
    /// Read end of the second pipe: an error number if the program could not be executed.
    exec_error: OwnedFd,
    /// The exit status; `None` until the command has ended and its status was read.
    ended: Option<ExitStatus>,
}

impl HeldCommand {
    /// Starts the process of the command `words`, which then waits. With `to_stderr`, its output goes to stderr,
    /// because irqlab's results go to stdout.
    ///
    /// Fails if the program is not found, or no process can be started.
    pub fn new(words: &[String], to_stderr: bool) -> Result<HeldCommand, BenchError> {
        let program = words.first().ok_or_else(|| BenchError::Failed("no command".to_owned()))?;
        let plan = ExecPlan::new(words, to_stderr).map_err(|error| cannot_run(program, &error))?;
        start_held(program, &plan).map_err(|error| cannot_run(program, &error))
    }

    /// Returns a function that terminates the process, for another thread. The function
    /// returns whether the process still ran.
    ///
    /// Fails if the process has no free descriptors.
    pub fn ender(&self) -> io::Result<impl FnOnce() -> bool + Send + use<>> {
        let pidfd = self.command.pidfd.try_clone()?;
        Ok(move || {
            let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
            let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
            // Asks first, because a signal to an ended process succeeds until its status was read.
            let has_ended = poll(&mut polled, Some(&no_wait)).is_ok_and(|ready| ready > 0);
            !has_ended && pidfd_send_signal(&pidfd, Signal::TERM).is_ok()
        })
    }

    /// Lets the process execute the program. [`RunningCommand::wait_for_start`] and
    /// [`RunningCommand::finish`] report a program that cannot be executed.
    ///
    /// Fails if the waiting process has been killed.
    pub fn release(self) -> Result<RunningCommand, BenchError> {
        match rustix::io::write(&self.start, b"x") {
            Ok(_) => Ok(self.command),
            Err(error) => Err(cannot_run(&self.command.program, &error.into())),
        }
    }
}

impl RunningCommand {
    /// Waits until the process executes the program.
    ///
    /// Fails if the program cannot be executed.
    pub fn wait_for_start(&self) -> Result<(), BenchError> {
        let mut errno = [0; 4];
        // exec(2) closes the process's side, so the pipe ends without an error number.
        match retry_on_intr(|| rustix::io::read(&self.exec_error, &mut errno)) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.cannot_run(errno)),
            Err(error) => Err(cannot_run(&self.program, &error.into())),
        }
    }

    /// A descriptor that becomes readable when the process has ended.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The exit status, if the command has ended.
    ///
    /// Fails if the program could not be executed, or the kernel does not report the status.
    pub fn status(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.reap(WaitOptions::NOHANG)
    }

    /// Ends the command. Returns its status if it ended by itself, and `None` if this call terminated it.
    ///
    /// Fails as [`RunningCommand::status`] does.
    pub fn end(mut self) -> Result<Option<ExitStatus>, BenchError> {
        if let Some(status) = self.status()? {
            return Ok(Some(status));
        }
        self.finish(WaitOutcome::Stopped).map(|_| None)
    }

    /// Waits for the command's end and returns its exit status. If the window was
    /// stopped, terminates the command first.
    ///
    /// Fails as [`RunningCommand::status`] does.
    pub fn finish(mut self, outcome: WaitOutcome) -> Result<ExitStatus, BenchError> {
        if outcome == WaitOutcome::Stopped {
            self.signal(Signal::TERM);
        }
        let status = self.reap(WaitOptions::empty())?;
        status.ok_or_else(|| BenchError::Failed(format!("{:?} has no exit status", self.program)))
    }

    /// Reads the exit status with waitpid(2), and checks that the program was executed. `None` if the command still
    /// runs (with `WaitOptions::NOHANG`).
    fn reap(&mut self, options: WaitOptions) -> Result<Option<ExitStatus>, BenchError> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let waited = retry_on_intr(|| waitpid(Some(self.pid), options));
        let waited = waited.map_err(|error| {
            BenchError::Failed(format!("waiting for {:?} failed: {error}", self.program))
        })?;
        let Some((_, status)) = waited else { return Ok(None) };
        self.ended = Some(ExitStatus::from_raw(status.as_raw()));
        let mut errno = [0; 4];
        // The process has ended, so this read does not block: the pipe has an error number, or ends.
        if rustix::io::read(&self.exec_error, &mut errno) == Ok(errno.len()) {
            return Err(self.cannot_run(errno));
        }
        Ok(self.ended)
    }

    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal); // it may have ended meanwhile
    }

    fn cannot_run(&self, errno: [u8; 4]) -> BenchError {
        cannot_run(&self.program, &io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.signal(Signal::TERM);
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut polled, Some(&DROP_TIMEOUT));
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
    }
}

/// The exit status as a shell reports it: the exit code, or 128 plus the number of the signal that ended the command.
#[must_use]
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

fn cannot_run(program: &str, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("cannot run {program:?}: {error}"))
}

/// Whether there is such a program, as a path or in PATH, that this process may execute.
#[must_use]
pub fn is_program(program: &str) -> bool {
    file_of(program).is_ok()
}

/// Finds the program's file. A name without a slash is looked up in PATH, as execvp(3) does. A directory that forbids
/// access makes the error EACCES, unless a later directory has the program.
fn file_of(program: &str) -> io::Result<PathBuf> {
    let path = Path::new(program);
    if program.contains('/') {
        access(path, Access::EXEC_OK)?;
        return Ok(path.to_owned());
    }
    let directories = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut last_error = Errno::NOENT;
    for directory in std::env::split_paths(&directories) {
        let file = directory.join(program);
        match access(&file, Access::EXEC_OK) {
            Ok(()) if file.is_file() => return Ok(file),
            Err(Errno::ACCESS) => last_error = Errno::ACCESS,
            Ok(()) | Err(_) => {}
        }
    }
    Err(last_error.into())
}

/// The data that the child needs between fork(2) and exec(2). The parent builds it before the fork, because the child
/// must not allocate memory.
struct ExecPlan {
    file: CString,
    /// [`SHELL`], and the command's words. The pointers below lead to these strings and to `file`.
    _strings: Vec<CString>,
    /// The command's words, and a null pointer, as execv(3) takes them.
    arguments: Vec<*const libc::c_char>,
    /// [`SHELL`], the file, the command's arguments without its first word, and a null pointer.
    shell_arguments: Vec<*const libc::c_char>,
    to_stderr: bool,
}

impl ExecPlan {
    fn new(words: &[String], to_stderr: bool) -> io::Result<ExecPlan> {
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
        let file = words.first().map(|program| file_of(program)).transpose()?.unwrap_or_default();
        let file = c_string(file.as_os_str().as_bytes())?;
        let mut strings = vec![c_string(SHELL.as_bytes())?];
        for word in words {
            strings.push(c_string(word.as_bytes())?);
        }
        let pointers: Vec<*const libc::c_char> = strings.iter().map(|word| word.as_ptr()).collect();
        let end = [ptr::null()];
        let arguments = [&pointers[1..], &end].concat();
        let shell_and_file = [pointers[0], file.as_ptr()];
        let shell_arguments =
            [&shell_and_file, pointers.get(2..).unwrap_or_default(), &end].concat();
        Ok(ExecPlan { file, _strings: strings, arguments, shell_arguments, to_stderr })
    }
}

/// Forks the process, which then waits for its release.
fn start_held(program: &str, plan: &ExecPlan) -> io::Result<HeldCommand> {
    static FORK_LOCK: Mutex<()> = Mutex::new(());
    // Forks one process at a time. Otherwise a process that another thread forks meanwhile would
    // inherit the write end of this error pipe, and `wait_for_start` would wait for that process, too.
    let _fork_guard = FORK_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let (may_start, start) = pipe_with(PipeFlags::CLOEXEC)?;
    let (exec_error, error_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let in_child = ChildEnds {
        start: start.as_raw_fd(),
        may_start: may_start.as_raw_fd(),
        error: error_end.as_raw_fd(),
    };
    // SAFETY: the child calls `wait_and_exec` only, which is async-signal-safe, and never returns.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(with_reached_limit(io::Error::last_os_error())),
        // SAFETY: this is the child of a fork, and the descriptors of both pipes are open in it.
        0 => unsafe { wait_and_exec(plan, in_child) },
        pid => pid,
    };
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    // If this fails, the process reads the end of the pipe and exits.
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let program = program.to_owned();
    let command = RunningCommand { program, pid, pidfd, exec_error, ended: None };
    Ok(HeldCommand { start, command })
}

/// Ends of the two pipes in the child.
#[derive(Clone, Copy)]
struct ChildEnds {
    /// The parent's end of the first pipe. The child closes it; otherwise the pipe would never end.
    start: RawFd,
    /// The child reads here whether it may execute the program.
    may_start: RawFd,
    /// The child writes the error number of a failed exec(2) here.
    error: RawFd,
}

/// The code of the child after fork(2): waits for the byte, then executes the program. Exits
/// silently if the pipe ends before.
///
/// # Safety
/// Call only in the child of a fork, with open descriptors. Every function that it calls is
/// async-signal-safe, and it neither allocates nor locks.
unsafe fn wait_and_exec(plan: &ExecPlan, ends: ChildEnds) -> ! {
    // SAFETY: system calls on this process's own descriptors and signals, and strings that end with
    // NUL. The parent built the strings before the fork.
    unsafe {
        libc::close(ends.start);
        // Removes irqlab's signal handlers, which would request irqlab's stop. An ignored signal stays
        // ignored, as exec(2) would leave it.
        for signal in STOP_SIGNALS {
            if libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        // The command ends with irqlab, also after a SIGKILL.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        // Rust programs start with SIGPIPE ignored; std::process::Command restores it, too.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut no_signals = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut no_signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const no_signals, ptr::null_mut());
        if plan.to_stderr {
            libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO);
        }
        let mut byte = 0_u8;
        loop {
            match libc::read(ends.may_start, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(0),
            }
        }
        libc::execv(plan.file.as_ptr(), plan.arguments.as_ptr());
        if *libc::__errno_location() == libc::ENOEXEC {
            libc::execv(plan.shell_arguments[0], plan.shell_arguments.as_ptr());
        }
        let errno = *libc::__errno_location();
        libc::write(ends.error, (&raw const errno).cast(), size_of_val(&errno));
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(line: &[&str]) -> Vec<String> {
        line.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The file that the process executes.
    fn executed_file(command: &RunningCommand) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/exe", command.pid.as_raw_nonzero())).unwrap()
    }

    #[test]
    fn a_command_executes_nothing_before_it_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("made");
        let line = command_line(&["touch", file.to_str().unwrap()]);
        let held = HeldCommand::new(&line, true).unwrap();
        assert_eq!(executed_file(&held.command), std::env::current_exe().unwrap());
        assert!(!file.exists());
        let mut running = held.release().unwrap();
        running.wait_for_start().unwrap();
        assert!(running.reap(WaitOptions::empty()).unwrap().unwrap().success());
        assert!(file.exists());
        assert!(running.status().unwrap().is_some(), "a status stays");
    }

    #[test]
    fn a_command_that_is_dropped_before_never_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("made");
        let held =
            HeldCommand::new(&command_line(&["touch", file.to_str().unwrap()]), true).unwrap();
        let pid = held.command.pid;
        drop(held);
        assert_eq!(
            waitpid(Some(pid), WaitOptions::NOHANG).unwrap_err(),
            Errno::CHILD,
            "it is gone"
        );
        assert!(!file.exists());
    }

    #[test]
    fn statuses_are_those_of_the_command() {
        let status = |script: &str| {
            let held = HeldCommand::new(&command_line(&["sh", "-c", script]), true).unwrap();
            shell_status(held.release().unwrap().finish(WaitOutcome::Completed).unwrap())
        };
        assert_eq!([status("exit 0"), status("exit 9"), status("kill -9 $$")], [0, 9, 137]);
        // A stopped window terminates the command.
        let held = HeldCommand::new(&command_line(&["sleep", "1000"]), true).unwrap();
        let ended = held.release().unwrap().finish(WaitOutcome::Stopped).unwrap();
        assert_eq!(shell_status(ended), 128 + libc::SIGTERM);
        let held = HeldCommand::new(&command_line(&["sleep", "1000"]), true).unwrap();
        assert_eq!(held.release().unwrap().end().unwrap(), None);
    }

    #[test]
    fn what_cannot_be_executed_is_an_error_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let refused =
            |program: &str| HeldCommand::new(&command_line(&[program]), true).err().unwrap();
        for (program, reason) in [
            (directory.path().join("absent").to_str().unwrap().to_owned(), "No such file"),
            ("no-such-program-anywhere".to_owned(), "No such file"),
            (file("data", "data", 0o644), "Permission denied"),
        ] {
            let error = refused(&program).to_string();
            assert!(error.starts_with("cannot run ") && error.contains(reason), "{error}");
        }
        let with_nul = HeldCommand::new(&command_line(&["true", "a\0b"]), true).err().unwrap();
        assert!(with_nul.to_string().contains("nul byte"), "{with_nul}");
        // Only exec(2) finds out that a script's interpreter does not exist.
        let lost = file("lost", "#!/no/such/interpreter\n", 0o755);
        let run = || HeldCommand::new(&command_line(&[&lost]), true).unwrap().release().unwrap();
        let error = run().wait_for_start().unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
        let error = run().finish(WaitOutcome::Completed).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
        // The shell executes a script without an interpreter line.
        let script = file("script", "exit $1\n", 0o755);
        let held = HeldCommand::new(&command_line(&[&script, "7"]), true).unwrap();
        let status = held.release().unwrap().finish(WaitOutcome::Completed).unwrap();
        assert_eq!(shell_status(status), 7);
    }

    #[test]
    fn commands_that_other_threads_hold_keep_none_waiting() {
        let held = HeldCommand::new(&command_line(&["true"]), true).unwrap();
        let running = HeldCommand::new(&command_line(&["true"]), true).unwrap().release().unwrap();
        running.wait_for_start().unwrap();
        assert!(running.finish(WaitOutcome::Completed).unwrap().success());
        drop(held);
    }
}
