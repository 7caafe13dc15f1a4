//! Kills a test's process at each of its steps: [`at_each_step`].
//!
//! A test calls [`at_each_step`] with the name of a second test of the same program, the victim. strace(1) starts the
//! test program with the victim alone. For each N, strace kills it when it enters its N-th system call of a kind. After
//! each start, the caller checks the files and settings that the victim left. The victim calls
//! [`directory_of_the_killed`] first, and does nothing if it was not started in this way.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::{Need, not_run};

/// Environment variable with the victim's directory.
const DIRECTORY: &str = "IRQLAB_TEST_KILLED_IN";

/// System calls at which the victim is killed. They create, write, make durable, rename or remove files. strace ignores
/// a call with a question mark on architectures that lack the call.
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

/// Calls that the test program's main thread also makes, before it starts the thread of the victim. A kill should hit
/// the victim's thread, and strace counts the calls of each thread separately. Therefore the victim's thread first
/// makes [`AHEAD`] additional calls, and kills start after these. The main thread makes fewer than [`AHEAD`].
const CALLS_OF_BOTH_THREADS: [&str; 2] = ["openat", "write"];
/// Number of additional calls for each entry of [`CALLS_OF_BOTH_THREADS`].
const AHEAD: u32 = 32;

/// Upper bound on a victim's calls of a kind.
const STEPS_MAX: u32 = 1_000;

/// The number of SIGKILL, which is the same on every Linux (signal(7)). strace ends by
/// the signal that ended its program.
const SIGKILL: i32 = 9;

/// One start of the victim, after it has ended.
#[derive(Clone, Copy, Debug)]
pub struct Killed<'a> {
    /// The system call at whose entry the victim was to be killed.
    pub call: &'a str,
    /// The number of this call, from 1: the victim was to be killed when it entered the call for the `step`-th time.
    pub step: u32,
    /// The victim's directory, which was empty before.
    pub directory: &'a Path,
    /// Whether the victim finished: it makes fewer than `step` calls of this kind.
    pub finished: bool,
}

/// For a victim: its working directory. `None` if [`at_each_step`] did not start the test; then the victim must return.
/// Also makes the additional calls that [`at_each_step`] relies on, so call this first.
///
/// Panics if /dev/null cannot be written.
#[must_use]
pub fn directory_of_the_killed() -> Option<PathBuf> {
    let directory = std::env::var_os(DIRECTORY)?;
    // Each round makes one call for each entry of CALLS_OF_BOTH_THREADS.
    for _ in 0..AHEAD {
        let null = OpenOptions::new().write(true).open("/dev/null");
        let written = null.and_then(|mut null: File| null.write_all(b"ahead"));
        written.expect("/dev/null can be written");
    }
    Some(directory.into())
}

/// Starts the victim (the test of this name in this test program) repeatedly, each time in a new directory.
/// For each kind of system call, kills it at its first such call, then at its second, and so on until it
/// finishes. Calls `check` after each start. Returns the number of starts; `None` without strace, after
/// printing that the test did not run.
///
/// Panics if the victim fails, [`crate::VARIABLE`] requires strace, or no directory can be created.
#[track_caller]
pub fn at_each_step(test: &str, mut check: impl FnMut(Killed)) -> Option<u32> {
    if !Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        not_run(Need::Strace, "strace does not start");
        return None;
    }
    let mut starts = 0;
    for call in CALLS {
        let additional_calls = if CALLS_OF_BOTH_THREADS.contains(&call) { AHEAD } else { 0 };
        for step in 1.. {
            assert!(step < STEPS_MAX, "{test} makes more than {STEPS_MAX} calls of {call}");
            let directory = tempfile::tempdir().expect("a directory");
            let status = run_until_kill(call, additional_calls + step, test, directory.path());
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

/// Runs the victim under strace, which kills it when a thread enters `call` for the `step`-th time.
fn run_until_kill(call: &str, step: u32, test: &str, directory: &Path) -> ExitStatus {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=SIGKILL:when={step}")]);
    strace.arg(std::env::current_exe().expect("this program's path"));
    strace.args([test, "--exact", "--test-threads=1"]).env(DIRECTORY, directory);
    // cargo sets this variable. The loader would open files in its directories, and so add calls of
    // the main thread.
    strace.env_remove("LD_LIBRARY_PATH");
    strace.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("strace starts")
}
