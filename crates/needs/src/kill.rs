//! Kills a test's process at each of its steps.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::{Need, not_run};

/// Names its directory to the process that is killed.
const DIRECTORY: &str = "IRQLAB_TEST_KILLED_IN";

/// System calls that create, write, make durable, rename or remove. A question mark: not every
/// architecture has the call.
const CALLS: [&str; 14] = [
    "openat",
    "write",
    "ftruncate",
    "fsync",
    "mkdirat",
    "?mkdir",
    "?rename",
    "?renameat",
    "?renameat2",
    "linkat",
    "?link",
    "?unlink",
    "unlinkat",
    "?rmdir",
];

/// Calls that the test program's first thread makes, too, before the test's thread starts. strace counts the
/// calls of each thread separately. The test's thread first makes [`AHEAD`] more calls, and the first thread makes
/// fewer than [`AHEAD`].
const OF_BOTH_THREADS: [&str; 2] = ["openat", "write"];
const AHEAD: u32 = 32;

/// More calls of a kind than any such test makes.
const STEPS_MAX: u32 = 1_000;

/// The number of SIGKILL, equal on every Linux (signal(7)). strace ends itself by the signal that ended its program.
const SIGKILL: i32 = 9;

/// A start of the process, after its end.
#[derive(Clone, Copy, Debug)]
pub struct Killed<'a> {
    /// The process was killed as it entered this system call.
    pub call: &'a str,
    /// How often it had entered it then, this time included.
    pub step: u32,
    /// Its directory, which was empty before.
    pub directory: &'a Path,
    /// Whether the process finished: it makes fewer than `step` of these calls.
    pub finished: bool,
}

/// In the process that is killed: its directory. `None` in the test program as the user starts it, where
/// such a test does nothing.
///
/// # Panics
/// Where /dev/null cannot be written.
#[must_use]
pub fn directory_of_the_killed() -> Option<PathBuf> {
    let directory = std::env::var_os(DIRECTORY)?;
    for _ in 0..AHEAD {
        let null = OpenOptions::new().write(true).open("/dev/null");
        let written = null.and_then(|mut null: File| null.write_all(b"ahead"));
        written.expect("/dev/null can be written");
    }
    Some(directory.into())
}

/// Starts the test of this name of this test program again and again, each time in a new directory, and
/// kills it one system call later each time, for each kind of call, until it comes to its end. `check` sees
/// what each start left. Returns the number of starts; `None`, with the reason printed, where there is no
/// strace.
///
/// # Panics
/// Where the test fails, [`crate::VARIABLE`] requires strace, or no directory can be made.
#[track_caller]
pub fn at_each_step(test: &str, mut check: impl FnMut(Killed)) -> Option<u32> {
    if !Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        not_run(Need::Strace, "strace does not start");
        return None;
    }
    let mut starts = 0;
    for call in CALLS {
        let first = if OF_BOTH_THREADS.contains(&call) { AHEAD } else { 0 };
        for step in 1.. {
            assert!(step < STEPS_MAX, "{test} makes more than {STEPS_MAX} calls of {call}");
            let directory = tempfile::tempdir().expect("a directory");
            let status = killed_at(call, first + step, test, directory.path());
            let finished = status.success();
            check(Killed { call, step, directory: directory.path(), finished });
            starts += 1;
            if finished {
                break;
            }
            assert_eq!(status.signal(), Some(SIGKILL), "{test}, {call} {step}: {status}");
        }
    }
    Some(starts)
}

fn killed_at(call: &str, step: u32, test: &str, directory: &Path) -> ExitStatus {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=SIGKILL:when={step}")]);
    strace.arg(std::env::current_exe().expect("this program's path"));
    strace.args([test, "--exact", "--test-threads=1"]).env(DIRECTORY, directory);
    // cargo's, in whose directories the loader would look first: calls of the first thread.
    strace.env_remove("LD_LIBRARY_PATH");
    strace.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("strace starts")
}
