//! Runs machines again and again, and compares their outcomes: a repeatable machine has only one.
//!
//! `irqlab bench sim-repeat` and `xtask` use it to test that a simulated run does not depend on the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use outputs::Existing;

use crate::boot::{self, Limits};
use crate::checkpoint::{self, Start};
use crate::hostile::HostileHost;
use crate::machine::vm::{GuestText, Stream};
use crate::parallel::{Jobs, for_each};
use crate::qemu::Qemu;
use crate::watch::{KernelFiles, Recording, Watch};
use crate::{Cache, Machine, Result, SimError};

/// A machine with its request, and the outcomes of its runs.
#[derive(Debug)]
pub struct RepeatedMachine {
    pub name: String,
    pub machine: Machine,
    pub kernel_files: KernelFiles,
    pub request: String,
    pub start: Start,
    /// Whether a failed command is an error. A workload that does nothing would prove nothing.
    pub must_succeed: bool,
    outcomes: BTreeMap<Outcome, EqualRuns>,
}

/// The outcome of a run: the SHA-256 of its record, and the output of the guest's programs.
type Outcome = (String, String);

/// The runs with one outcome: their number, and data of the first.
#[derive(Debug)]
struct EqualRuns {
    runs: u64,
    first_run: u64,
    instructions: Option<u64>,
}

/// An outcome, and the runs that had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRuns<'a> {
    /// SHA-256 of the record, in hexadecimal.
    pub record_sha256: &'a str,
    pub runs: u64,
    /// Number of the first run with this outcome, from 1.
    pub first_run: u64,
    /// Instructions of a run on all CPUs.
    pub instructions: Option<u64>,
}

impl RepeatedMachine {
    /// Describes a machine that has not run yet.
    #[must_use]
    pub fn new(
        name: String,
        machine: Machine,
        kernel_files: KernelFiles,
        request: String,
        start: Start,
    ) -> RepeatedMachine {
        let (must_succeed, outcomes) = (false, BTreeMap::new());
        RepeatedMachine { name, machine, kernel_files, request, start, must_succeed, outcomes }
    }

    /// Returns the different outcomes, in the order of their first runs.
    #[must_use]
    pub fn outcomes(&self) -> Vec<OutcomeRuns<'_>> {
        let outcomes = self.outcomes.iter().map(|((record_sha256, _), equal_runs)| OutcomeRuns {
            record_sha256,
            runs: equal_runs.runs,
            first_run: equal_runs.first_run,
            instructions: equal_runs.instructions,
        });
        let mut outcomes: Vec<OutcomeRuns> = outcomes.collect();
        outcomes.sort_by_key(|outcome| outcome.first_run);
        outcomes
    }

    /// Adds the outcome of the run `number`. Removes its record if an earlier run had the same outcome.
    fn add(&mut self, number: u64, run: CompletedRun) -> Result<()> {
        let new_entry = EqualRuns { runs: 0, first_run: number, instructions: run.instructions };
        let equal_runs = self.outcomes.entry(run.outcome).or_insert(new_entry);
        equal_runs.runs += 1;
        match run.record_file {
            Some(record_file) if equal_runs.runs > 1 => {
                fs::remove_file(&record_file).map_err(SimError::file(&record_file))
            }
            _ => Ok(()),
        }
    }
}

/// A run that was not stopped.
struct CompletedRun {
    outcome: Outcome,
    instructions: Option<u64>,
    /// The file with the record of the run, if records are kept.
    record_file: Option<PathBuf>,
}

/// The error of a run that failed.
#[derive(Debug, thiserror::Error)]
#[error("{machine}: {source}")]
pub struct FailedRun {
    /// Name of the machine.
    pub machine: String,
    pub source: SimError,
}

/// How machines are run and observed.
#[derive(Clone, Copy)]
pub struct Repetition<'a> {
    pub cache: &'a Cache,
    pub qemu: &'a Qemu,
    pub watch: &'a Watch,
    pub limits: Limits,
    /// Whether a [`HostileHost`] disturbs each machine.
    pub is_hostile: bool,
    /// Directory for one record of each outcome; `None` keeps no records.
    pub keep: Option<&'a Path>,
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Takes the number of each run that starts, the number of all runs, and the machine's name.
    pub progress: &'a (dyn Fn(usize, usize, &str) + Sync),
}

impl Repetition<'_> {
    /// Runs each machine `times` times, `jobs` machines at the same time. Returns whether all runs ended: a stop
    /// leaves some out. Every machine runs once before any runs a second time.
    ///
    /// Fails when a machine fails, or its record is broken or incomplete.
    pub fn run(
        &self,
        machines: &mut [RepeatedMachine],
        times: u64,
        jobs: Jobs,
    ) -> std::result::Result<bool, FailedRun> {
        let indexes = 0..machines.len();
        let runs: Vec<(u64, usize)> = (1..=times)
            .flat_map(|number| indexes.clone().map(move |index| (number, index)))
            .collect();
        let started_count = AtomicUsize::new(0);
        let results = for_each(jobs, &runs, |_, (number, index)| {
            if (self.stop)() {
                return Ok(None);
            }
            let step = started_count.fetch_add(1, Ordering::Relaxed) + 1;
            (self.progress)(step, runs.len(), &machines[*index].name);
            self.run_once(&machines[*index], *number)
        });
        let mut is_complete = true;
        for ((number, index), result) in runs.into_iter().zip(results) {
            let machine = &mut machines[index];
            let is_added = result.and_then(|run| match run {
                Some(run) => machine.add(number, run).map(|()| true),
                None => Ok(false),
            });
            let error_of_machine = |source| FailedRun { machine: machine.name.clone(), source };
            is_complete &= is_added.map_err(error_of_machine)?;
        }
        Ok(is_complete)
    }

    /// Runs a machine once, the run with this number. Returns `None` if it was stopped.
    ///
    /// Fails if the machine fails or reaches its limit, or if its record is broken or ends early.
    fn run_once(&self, repeated: &RepeatedMachine, number: u64) -> Result<Option<CompletedRun>> {
        let RepeatedMachine { name, machine, .. } = repeated;
        let file_name = format!("{}-{number}.record", name.replace([',', ' '], ""));
        let record_file = self.keep.map(|directory| directory.join(file_name));
        let recording = Recording::new(
            self.cache,
            self.qemu,
            machine,
            &repeated.kernel_files,
            self.watch,
            record_file.as_deref().map(|file| (file, Existing::Stays)),
        )?;
        let (start, request) = (&repeated.start, &repeated.request);
        let instrumentation = recording.instrumentation();
        let mut vm = checkpoint::start(
            self.cache,
            self.qemu,
            machine,
            start,
            request,
            self.limits,
            instrumentation,
        )?;
        let hostile_host = self.is_hostile.then(|| HostileHost::start(vm.pid(), number));
        let hostile_host =
            hostile_host.transpose().map_err(SimError::system("starting a hostile thread"))?;
        let (mut console, mut stdout, mut stderr) = (Vec::new(), Vec::new(), Vec::new());
        let mut keep_text = |text: GuestText<'_>| {
            let bytes = match text.stream {
                Stream::Console => &mut console,
                Stream::Stdout => &mut stdout,
                Stream::Stderr => &mut stderr,
            };
            bytes.extend_from_slice(text.bytes);
        };
        let exit = boot::follow_unless(&mut vm, self.limits, &mut keep_text, self.stop);
        drop(hostile_host);
        drop(vm);
        let Some(exit) = exit? else { return Ok(None) };
        let output = programs_output(&console, &stdout, &stderr);
        if exit.reached_limit {
            let what = format!("{name}: the guest reached its time limit (--guest-limit)");
            return Err(SimError::TimeLimit { what, console: output, qemu: String::new() });
        }
        if repeated.must_succeed && exit.status != 0 {
            let reason = format!("failed with status {}:\n{output}", exit.status);
            return Err(SimError::data("the workload", reason));
        }
        let record_sha256 = recording.sha256()?;
        let accounting = recording.accounting()?;
        if let Some(broken) = accounting.broken.first() {
            return Err(SimError::data("the record", format!("is broken: {broken}")));
        }
        if !accounting.ended_by_guest {
            return Err(SimError::data("the record", "ends before the command does"));
        }
        let outcome = (record_sha256, output);
        Ok(Some(CompletedRun { outcome, instructions: accounting.instructions, record_file }))
    }
}

/// Returns the output of the guest's programs: of the command, and on the console without the kernel's messages, which
/// start with `[`. The messages after the record's end, while the machine powers off, depend on the host.
fn programs_output(console: &[u8], stdout: &[u8], stderr: &[u8]) -> String {
    let console = String::from_utf8_lossy(console);
    let console = console.lines().filter(|line| !line.starts_with('['));
    let (stdout, stderr) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    console.chain(stdout.lines()).chain(stderr.lines()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_messages_are_left_out() {
        let console = b"[    1.0] up\r\none\r\ntwo\n[    2.0] Power down\n";
        assert_eq!(programs_output(console, b"[three]", b"four\n"), "one\ntwo\n[three]\nfour");
    }
}
