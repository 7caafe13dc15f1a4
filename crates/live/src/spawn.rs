//! Starts threads. If the kernel refuses a thread or a process, the error names the
//! limit that is reached.

use std::io;
use std::path::Path;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use lab::experiment::BenchError;
use rustix::process::{Resource, geteuid, getrlimit};

use crate::host::Root;

/// Starts a thread with this name.
///
/// # Errors
/// If the kernel refuses the thread. The error names the limit.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(with_reached_limit)
}

/// Starts a thread that ends before the scope does.
///
/// # Errors
/// Any error of [`spawn_thread`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, body).map_err(with_reached_limit)
}

/// The error of a bench that cannot start a thread.
#[must_use]
pub fn no_thread(error: io::Error) -> BenchError {
    BenchError::Failed(format!("starting a thread failed: {error}"))
}

/// Adds to an error of starting a thread or a process the limit that is reached.
#[must_use]
pub fn with_reached_limit(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EAGAIN) {
        return error;
    }
    // RLIMIT_NPROC does not apply to root.
    let own_limit = if geteuid().is_root() { None } else { getrlimit(Resource::Nproc).current };
    // A thread with a separate sysfs, for its network, does not see the control groups. The
    // process's first thread sees them.
    let root = Root::new(format!("/proc/{}/root", std::process::id()));
    let reason = reached_limit(&root, own_limit);
    io::Error::new(error.kind(), format!("no more threads and processes: {reason}"))
}

/// Names the limit that is reached. `own_limit`: the limit of this user's processes
/// (RLIMIT_NPROC), if it applies.
fn reached_limit(root: &Root, own_limit: Option<u64>) -> String {
    match (pid_limit(root), own_limit) {
        (Some(group), _) if group.is_reached => format!(
            "the control group allows {} ({} = {}; write a larger number into it)",
            group.limit, group.file, group.limit
        ),
        (_, Some(limit)) => {
            format!("this user may have {limit} (RLIMIT_NPROC; raise it with ulimit -u)")
        }
        _ => "the kernel has none left (kernel.threads-max, kernel.pid_max, or memory)".to_owned(),
    }
}

/// The limit of a control group's processes and threads.
struct PidLimit {
    limit: u64,
    /// Whether the limit is reached now, or the kernel has refused a thread because of it. Threads
    /// that existed at that refusal may have ended since.
    is_reached: bool,
    file: String,
}

/// The lowest limit of this process's control group and the groups above it, in version 1 or 2.
fn pid_limit(root: &Root) -> Option<PidLimit> {
    let groups = root.text("proc/self/cgroup")?;
    let path_of = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mount = match controllers {
            "" => "sys/fs/cgroup",
            list if list.split(',').any(|name| name == "pids") => "sys/fs/cgroup/pids",
            _ => return None,
        };
        Some((mount, path.to_owned()))
    };
    let levels = groups.lines().filter_map(path_of).flat_map(|(mount, path)| {
        let above: Vec<_> = Path::new(&path).ancestors().map(Path::to_owned).collect();
        above.into_iter().map(move |path| format!("{mount}{}", path.display()))
    });
    let limits = levels.filter_map(|level| {
        let file = |name: &str| format!("{}/pids.{name}", level.trim_end_matches('/'));
        let limit: u64 = root.number(file("max"))?;
        let is_full = root.number::<u64>(file("current")).is_some_and(|current| current >= limit);
        let events = root.text(file("events")).unwrap_or_default();
        let mut refused = events.lines().filter_map(|line| line.strip_prefix("max "));
        let is_reached = is_full || refused.any(|times| times.trim() != "0");
        Some(PidLimit { limit, is_reached, file: format!("/{}", file("max")) })
    });
    limits.min_by_key(|group| group.limit)
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
        assert!(reached_limit(&root, None).contains("kernel.threads-max"));
        assert!(reached_limit(&root, Some(64)).contains("64 (RLIMIT_NPROC"));
        write_file("proc/self/cgroup", "9:pids:/small\n");
        write_file("sys/fs/cgroup/pids/small/pids.max", "4\n");
        write_file("sys/fs/cgroup/pids/small/pids.current", "4\n");
        let reason = reached_limit(&root, Some(64));
        assert!(reason.contains("allows 4 (") && reason.contains("small/pids.max = 4"), "{reason}");
        write_file("sys/fs/cgroup/pids/small/pids.current", "3\n");
        assert!(reached_limit(&root, Some(64)).contains("RLIMIT_NPROC"), "there is room");
        write_file("sys/fs/cgroup/pids/small/pids.events", "max 0\n");
        assert!(reached_limit(&root, Some(64)).contains("RLIMIT_NPROC"), "none was refused");
        write_file("sys/fs/cgroup/pids/small/pids.events", "max 1\n");
        assert!(reached_limit(&root, Some(64)).contains("small/pids.max = 4"), "one was refused");
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
