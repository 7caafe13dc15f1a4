//! Starts threads, and explains why the kernel refuses a thread or a process: the error names the limit that is
//! reached and how to raise it. All parts of irqlab that start threads, helpers or QEMU use these functions.
//! [`end_with_this_thread`] ties an irqlab to the irqlab that starts it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use lab::experiment::BenchError;
use rustix::process::{
    Pid, Resource, Signal, geteuid, getppid, getrlimit, set_parent_process_death_signal,
};

use crate::host::Root;
use crate::host::cgroup::pid_limit;

/// Starts a thread with this name.
///
/// Fails if the kernel refuses the thread. The error names the limit.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(with_reached_limit)
}

/// Starts a thread that ends before the scope does.
///
/// Fails as [`spawn_thread`] does.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, body).map_err(with_reached_limit)
}

/// Variable with the process id of the irqlab that started this one by [`end_with_this_thread`].
const PARENT: &str = "IRQLAB_PARENT";

/// Makes the kernel send SIGTERM to a child, which is irqlab itself, when the *thread* that starts the child ends, for
/// whatever reason. The child then ends in its usual way, even if this process is killed.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    command.env(PARENT, parent.as_raw_nonzero().to_string());
    // SAFETY: between fork and exec the closure makes only two system calls, which neither allocate nor take locks.
    unsafe { command.pre_exec(move || end_with(parent)) };
}

/// Repeats the request of [`end_with_this_thread`] in the child: the kernel forgets the request when it executes a file
/// with capabilities. Without such a request, does nothing.
///
/// Fails if the parent has died.
pub fn end_with_parent() -> io::Result<()> {
    let parent = std::env::var(PARENT).ok().and_then(|text| text.parse().ok());
    let parent = parent.and_then(Pid::from_raw);
    // The children of this process inherit the variable. Their parent is another process.
    match parent.filter(|parent| getppid() == Some(*parent)) {
        Some(parent) => end_with(parent),
        None => Ok(()),
    }
}

fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have died before the call.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// The error of a bench that cannot start a thread.
#[must_use]
pub fn no_thread(error: io::Error) -> BenchError {
    BenchError::Failed(format!("starting a thread failed: {error}"))
}

/// Adds the reached limit to the error of starting a thread or a process. Other errors stay as they are.
#[must_use]
pub fn with_reached_limit(error: io::Error) -> io::Error {
    match describe_reached_limit(&error) {
        Some(limit) => {
            io::Error::new(error.kind(), format!("no more threads and processes: {limit}"))
        }
        None => error,
    }
}

/// Describes the limit because of which the kernel refused a thread or a process (EAGAIN), and how to raise it. `None` for
/// other errors.
#[must_use]
pub fn describe_reached_limit(error: &io::Error) -> Option<String> {
    if error.raw_os_error() != Some(libc::EAGAIN) {
        return None;
    }
    // RLIMIT_NPROC does not apply to root.
    let user_limit = if geteuid().is_root() { None } else { getrlimit(Resource::Nproc).current };
    // `/proc/PID/root` is the file tree of the process's first thread, which sees the control groups even if this thread
    // has mounted another sysfs (`network::PrivateSysfs`).
    let root = Root::new(format!("/proc/{}/root", std::process::id()));
    Some(likely_limit(&root, user_limit))
}

/// Describes the limit that is most likely reached: the control group's, if its count or its refusals show it; else the
/// user's; else the kernel's. `user_limit`: the limit of this user's processes (RLIMIT_NPROC), if it applies.
fn likely_limit(root: &Root, user_limit: Option<u64>) -> String {
    match (pid_limit(root), user_limit) {
        // `is_reached` also uses the count of refusals, because processes may have ended since the refusal.
        (Some(group), _) if group.is_reached() => {
            let refused =
                group.refused_count.filter(|times| *times > 0).map_or_else(String::new, |times| {
                    format!(", which refused {times} by pids.events")
                });
            format!(
                "the control group allows {} ({} = {}{refused}; write a larger number into it)",
                group.limit, group.file, group.limit
            )
        }
        (_, Some(limit)) => {
            format!("this user may have {limit} (RLIMIT_NPROC; raise it with ulimit -u)")
        }
        _ => "the kernel has none left (kernel.threads-max, kernel.pid_max, or memory)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::plant;

    #[test]
    fn the_limit_that_is_reached_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        let root = Root::new(directory.path());
        assert!(likely_limit(&root, None).contains("kernel.threads-max"));
        assert!(likely_limit(&root, Some(64)).contains("64 (RLIMIT_NPROC"));
        write_file("proc/self/cgroup", "9:pids:/small\n");
        let mount = "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        write_file("proc/self/mountinfo", mount);
        write_file("sys/fs/cgroup/pids/small/pids.max", "4\n");
        write_file("sys/fs/cgroup/pids/small/pids.current", "4\n");
        let reason = likely_limit(&root, Some(64));
        assert!(reason.contains("allows 4 (") && reason.contains("small/pids.max = 4"), "{reason}");
        write_file("sys/fs/cgroup/pids/small/pids.current", "3\n");
        assert!(likely_limit(&root, Some(64)).contains("RLIMIT_NPROC"), "there is room");
        write_file("sys/fs/cgroup/pids/small/pids.events", "max 0\n");
        assert!(likely_limit(&root, Some(64)).contains("RLIMIT_NPROC"), "none was refused");
        write_file("sys/fs/cgroup/pids/small/pids.events", "max 1\n");
        let reason = likely_limit(&root, Some(64));
        assert!(reason.contains("small/pids.max = 4, which refused 1 by pids.events;"), "{reason}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let error = with_reached_limit(io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        let error = with_reached_limit(io::Error::from_raw_os_error(libc::EAGAIN));
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().starts_with("no more threads and processes: "), "{error}");
    }
}
