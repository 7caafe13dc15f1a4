//! `irqlab noise collective` as a user runs it: ranks by TCP and by MPI, on loopback. No assertion is on a time.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value as Json;

use crate::support::{CommandOutput, IRQLAB, Place, alone, check_refused, only_run, rows};

const TOKEN: &str = "0123456789abcdef";
/// Time after which a test ends a job that should have ended.
const GIVE_UP: Duration = Duration::from_secs(120);

#[test]
fn invalid_options_are_named() {
    let refused = |options: &[&str], says: &str| {
        check_refused(&[&["noise", "collective"], options].concat(), says);
    };
    refused(&["--operation", "gather"], "allowed: barrier, allreduce");
    refused(&["--transport", "smoke"], "allowed: tcp, mpi");
    refused(&["--granularity", "1us"], "allowed: 10us to 1s");
    refused(&["--steps", "1"], "10..=999999");
    refused(&["--ranks", "1"], "2..=4096");
    refused(&["--rank", "1"], "--root");
    refused(&["-c", "0"], "a job needs at least two");
    refused(&["--transport", "mpi"], "--transport mpi needs a launcher");
    refused(&["--root", "127.0.0.1:1"], "--root needs --rank and --ranks");
    refused(
        &["--root", "127.0.0.1:1", "--rank", "0", "--ranks", "2"],
        "export IRQLAB_TOKEN=$(openssl rand -hex 16)",
    );
}

/// The document of the run, after a job that succeeded.
#[track_caller]
fn json(workspace: &Place, options: &[&str]) -> Json {
    let arguments = [&["noise", "collective", "--json"], options].concat();
    let ended = workspace.run(&arguments);
    // Code 5: kernel events were lost, on a machine that does much else.
    assert!(matches!(ended.code, Some(0 | 5)), "{:?}: {}", ended.code, ended.err);
    ended.json()
}

fn has_two_cpus() -> bool {
    let count = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if count < 2 {
        needs::not_run(needs::Need::Cpus, "two ranks need two CPUs");
    }
    count >= 2
}

/// A thread that takes the CPU for short bursts, until it is dropped. The kernel knows it by `NAME`.
struct Hog {
    ends: Arc<AtomicBool>,
    handle: Option<thread::JoinHandle<()>>,
}

impl Hog {
    const NAME: &str = "collective-hog";

    fn start(cpu: usize) -> Hog {
        let ends = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&ends);
        let body = move || {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set).expect("the CPU");
            while !shared.load(Ordering::Relaxed) {
                let end = Instant::now() + Duration::from_millis(4);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                thread::sleep(Duration::from_millis(10));
            }
        };
        let handle =
            thread::Builder::new().name(Hog::NAME.to_owned()).spawn(body).expect("a thread");
        Hog { ends, handle: Some(handle) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.handle.take().map(thread::JoinHandle::join);
    }
}

#[test]
fn what_disturbs_one_rank_is_named_with_rank_and_cpu() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let hog = Hog::start(1);
    let options = ["--ranks", "2", "-c", "0,1", "--steps", "600", "--longest", "600"];
    let run = json(&workspace, &options);
    drop(hog);
    let absences = run["absent"].as_array().expect("a list");
    let has_no_causes = |absence: &Json| {
        absence["what"].as_str().is_some_and(|what| what.starts_with("causes of the detours"))
    };
    if absences.iter().any(has_no_causes) {
        needs::not_run(needs::Need::Bpf, format!("{absences:?}"));
        return;
    }
    let names_hog = |row: &&Json, column: &str| row[column] == Hog::NAME;
    let causes = rows(&run, "collective_causes");
    let of_hog: Vec<&Json> = causes.iter().filter(|row| names_hog(row, "name")).collect();
    assert!(
        of_hog.iter().any(|row| row["rank"] == 1 && row["cpu"] == 1 && row["kind"] == "task"),
        "{causes:?}"
    );
    assert!(of_hog.iter().all(|row| row["rank"] != 0), "{of_hog:?}");
    // On a busy machine other tasks may take more of a step, so each cause of a step counts, not only the largest.
    let parts = rows(&run, "collective_longest_parts");
    let disturbed: Vec<&Json> =
        parts.iter().filter(|row| names_hog(row, "name")).map(|row| &row["position"]).collect();
    let longest = rows(&run, "collective_longest");
    let steps: Vec<&Json> =
        longest.iter().filter(|row| disturbed.contains(&&row["position"])).collect();
    assert!(!steps.is_empty() && steps.len() == disturbed.len(), "{disturbed:?}");
    assert!(steps.iter().all(|row| row["rank"] == 1 && row["cpu"] == 1), "{steps:?}");
}

#[test]
fn sixteen_ranks_on_two_cpus_meet_and_are_warned_about() {
    let _alone = alone();
    let workspace = Place::new();
    let options = [
        "--ranks",
        "16",
        "--steps",
        "30",
        "--granularity",
        "100us",
        "--operation",
        "allreduce",
        "--no-trace",
        "--limit",
        "100s",
    ];
    let run = json(&workspace, &options);
    let ranks = rows(&run, "collective_ranks");
    let numbers: Vec<u64> =
        ranks.iter().map(|row| row["rank"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<u64>>());
    let job = &rows(&run, "collectives")[0];
    assert_eq!((&job["operation"], &job["step_count"]), (&"allreduce".into(), &30.into()));
    assert!(run["warnings"].to_string().contains("share CPUs with other ranks"));
    assert!(run["absent"].to_string().contains("--no-trace"));
    only_run(&workspace);
}

/// A rank by TCP as a launcher would start it.
fn rank(workspace: &Place, root: &str, rank: &str, options: &[&str]) -> Command {
    let arguments = [
        &["noise", "collective", "--root", root, "--ranks", "2", "--rank", rank, "--no-trace"],
        options,
    ]
    .concat();
    let mut command = workspace.irqlab(&arguments);
    command
        .env("IRQLAB_TOKEN", TOKEN)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// A free port of loopback.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("an address").to_string()
}

/// Waits until rank 0 no longer listens: all ranks have joined.
fn wait_until_all_have_joined(root: &str) {
    let start = Instant::now();
    while TcpStream::connect(root).is_ok() {
        assert!(start.elapsed() < GIVE_UP, "the ranks did not join");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until rank 0 listens.
fn wait_until_listening(root: &str) {
    let start = Instant::now();
    while TcpStream::connect(root).is_err() {
        assert!(start.elapsed() < GIVE_UP, "rank 0 does not listen");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The output of a process that must end by itself.
fn output(mut child: Child) -> CommandOutput {
    let start = Instant::now();
    while child.try_wait().expect("a status").is_none() {
        if start.elapsed() > GIVE_UP {
            child.kill().expect("a process");
            panic!("the rank did not end by itself");
        }
        thread::sleep(Duration::from_millis(20));
    }
    CommandOutput::of_output(&child.wait_with_output().expect("the output"))
}

/// Starts two ranks of a long job, kills one, and returns what the other says.
fn survivor_of_a_kill(killed: usize) -> CommandOutput {
    let (workspace, root) = (Place::new(), free_address());
    let options = ["--steps", "999999", "--limit", "60s"];
    let zero = rank(&workspace, &root, "0", &options).spawn().expect("rank 0");
    wait_until_listening(&root);
    let one = rank(&workspace, &root, "1", &options).spawn().expect("rank 1");
    wait_until_all_have_joined(&root);
    let mut ranks = [zero, one];
    ranks[killed].kill().expect("a process");
    ranks[killed].wait().expect("a status");
    let [zero, one] = ranks;
    let survivor = output(if killed == 0 { one } else { zero });
    assert_eq!(survivor.out, "");
    // A rank 0 that is killed leaves the empty directory of runs.
    let runs =
        std::fs::read_dir(workspace.path().join("irqlab-runs")).into_iter().flatten().flatten();
    let finished: Vec<_> = runs
        .map(|run| run.file_name())
        .filter(|name| !name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(finished.is_empty(), "an unfinished job leaves no run: {finished:?}");
    survivor
}

#[test]
fn a_rank_that_is_killed_ends_the_others_with_the_reason() {
    let _alone = alone();
    survivor_of_a_kill(1).assert_code(1).assert_says("rank 1 is gone");
    survivor_of_a_kill(0).assert_code(1).assert_says("rank 0 is gone");
}

#[test]
fn ranks_that_do_not_come_are_named_after_the_limit() {
    let (workspace, root) = (Place::new(), free_address());
    let zero = rank(&workspace, &root, "0", &["--limit", "1s"]).spawn().expect("rank 0");
    output(zero).assert_code(1).assert_says("ranks 1 of 2 did not join within 1 s");
    let one = rank(&workspace, &free_address(), "1", &["--limit", "1s"]).spawn().expect("rank 1");
    output(one).assert_code(1).assert_says("could not connect to rank 0");
}

/// `mpirun -n 2` of Debian's Open MPI, unpacked in the cache. `None` if it is missing there, which is reported. `variables`
/// replace those of the launcher, as in `NAME=VALUE`.
fn mpirun(workspace: &Place, variables: &[&str], options: &[&str]) -> Option<Command> {
    let Some(program) = needs::cached_tool("openmpi-1/usr/bin/orterun") else {
        needs::not_run(needs::Need::OpenMpi, "tools/setup.sh has not unpacked Debian's Open MPI");
        return None;
    };
    let packages = program.ancestors().nth(3).expect("the directory of the packages");
    let entries = std::fs::read_dir(packages.join("usr/lib")).expect("libraries");
    let libraries = entries
        .map(|entry| entry.expect("an entry").path())
        .find(|directory| directory.join("libmpi.so.40").exists())
        .expect("Open MPI's library");
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", "120"])
        // The name decides what the program is.
        .arg(packages.join("usr/bin/mpirun.openmpi"))
        .args(["--allow-run-as-root", "--oversubscribe", "-n", "2", "env"])
        .args(variables)
        .args([IRQLAB, "noise", "collective"])
        .args(options)
        .current_dir(workspace.path())
        .env("LD_LIBRARY_PATH", format!("{0}:{0}/openmpi/lib", libraries.display()))
        .env("OPAL_PREFIX", packages.join("usr"))
        .env("OPAL_PKGDATADIR", packages.join("usr/share/openmpi"))
        .env("OPAL_SYSCONFDIR", packages.join("etc/openmpi"))
        .env("OPAL_LIBDIR", &libraries)
        .env("OPAL_PKGLIBDIR", libraries.join("openmpi/lib/openmpi3"));
    Some(command)
}

#[test]
fn ranks_of_mpirun_meet_by_the_systems_mpi() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    for operation in ["barrier", "allreduce"] {
        let workspace = Place::new();
        let options = ["--operation", operation, "--steps", "200", "--no-trace", "--json"];
        let Some(mut command) = mpirun(&workspace, &[], &options) else { return };
        let ended = CommandOutput::of(&mut command);
        assert!(matches!(ended.code, Some(0 | 5)), "{:?}: {}", ended.code, ended.err);
        let run = ended.json();
        let transport = run["settings"]["transport"].as_str().expect("a text");
        assert!(transport.starts_with("Open MPI v4."), "{transport}");
        let job = &rows(&run, "collectives")[0];
        assert_eq!((&job["operation"], &job["step_count"]), (&operation.into(), &200.into()));
        assert_eq!(rows(&run, "collective_ranks").len(), 2);
        only_run(&workspace);
    }
}

#[test]
fn an_mpi_that_is_not_the_launchers_measures_nothing() {
    if !has_two_cpus() {
        return;
    }
    let workspace = Place::new();
    let variables = ["OMPI_COMM_WORLD_SIZE=64"];
    let Some(mut command) = mpirun(&workspace, &variables, &["--no-trace"]) else { return };
    let ended = CommandOutput::of(&mut command);
    ended.assert_says("of 2, and its launcher calls it rank").assert_says("of 64");
    assert_ne!(ended.code, Some(0));
    assert_eq!(ended.out, "");
}

/// An MPI library with the version text of MPICH. Its other functions abort the process.
const FOREIGN_MPI: &str = "#include <stdlib.h>\n#include <string.h>\n\
    int MPI_Get_library_version(char *text, int *length) {\n\
    strcpy(text, \"MPICH Version:\\t4.0.2\\nMPICH Release date:\\tunknown\\n\"); *length = (int)strlen(text); return 0; }\n\
    int MPI_Init_thread(int *c, char ***v, int r, int *p) { abort(); }\n";

#[test]
fn another_mpi_is_refused_before_it_is_started() {
    let workspace = Place::new();
    let library = workspace.path().join("libmpi.so");
    std::fs::write(workspace.path().join("mpi.c"), FOREIGN_MPI).expect("a file");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg("mpi.c")
        .current_dir(workspace.path())
        .status()
        .expect("the C compiler that irqlab is built with");
    assert!(status.success());
    let library = library.to_string_lossy();
    let ended = CommandOutput::of(
        workspace
            .irqlab(&["noise", "collective", "--transport", "mpi", "--mpi-library", &library])
            .env("OMPI_COMM_WORLD_RANK", "1")
            .env("OMPI_COMM_WORLD_SIZE", "2"),
    );
    ended.assert_code(4).assert_says("\"MPICH Version:4.0.2\"").assert_says("Open MPI 4");
    ended.assert_says("--transport tcp");
}
