//! The directory of a fleet: `fleet.json` with the command, `HOST/host.json` and `HOST/run` for each host that is done,
//! `failed/HOST.json` for each host that is not, and `hosts.json`, a list of all hosts.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use outputs::{Existing, MakeDirectoryError, NewDirectory, Reservation};
use serde::{Deserialize, Serialize};

use crate::clock::{self, ClockOffset};
use crate::error::{FleetError, making};
use crate::hosts::check_host;

/// Name of the file with the plan.
const PLAN_FILE: &str = "fleet.json";
/// Name of the list of all hosts.
const HOSTS_FILE: &str = "hosts.json";
/// Name of the directory with the records of hosts without a run.
const FAILED_DIRECTORY: &str = "failed";
/// Name of the record in the directory of a host.
const HOST_FILE: &str = "host.json";
/// Name of the run in the directory of a host.
const RUN_DIRECTORY: &str = "run";
/// Name under which [`FleetDirectory::reserve`] reserves the directory. No file has this name.
const COLLECT_LOCK: &str = ".collect";
/// Names in the directory that are no hosts.
pub(crate) const RESERVED_NAMES: [&str; 3] = [PLAN_FILE, HOSTS_FILE, FAILED_DIRECTORY];
/// Version of the format.
const SCHEMA: &str = "irqlab.fleet/1";
/// Maximum size of a plan or of a host's record, bytes.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of names that are read in the directory.
const NAMES_MAX: usize = 1_000_000;

/// The command that each host executes, and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub schema: String,
    /// Version of irqlab, here and on each host.
    pub version: String,
    /// The arguments that irqlab has on each host.
    pub command: Vec<String>,
}

/// How the collection from a host ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// The host's run was gathered.
    Done,
    /// The host cannot be connected, or does not answer.
    Unreachable,
    /// The host has another version of irqlab.
    RefusedVersion,
    /// The measurement failed, or the host's run did not arrive.
    Failed,
}

impl HostState {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            HostState::Done => "done",
            HostState::Unreachable => "unreachable",
            HostState::RefusedVersion => "refused-version",
            HostState::Failed => "failed",
        }
    }
}

/// The record of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    pub host: String,
    pub state: HostState,
    /// Why the host is not done.
    pub reason: Option<String>,
    /// Exit code of irqlab on the host.
    pub exit_code: Option<i32>,
    /// Version of irqlab on the host, if it said one.
    pub version: Option<String>,
    /// The host's end of the connection, as the host reports it.
    pub address: Option<std::net::IpAddr>,
    /// The offset of the host's clock. `None` if the connection ended before it was measured.
    pub clock: Option<ClockOffset>,
    /// How the offset of the clock was determined.
    pub clock_method: Option<String>,
    /// When the connection was started, by this machine's clock: UTC, RFC 3339.
    pub started_utc: String,
    /// The end of irqlab's messages on the host, or of the messages of ssh. Empty if the host is done.
    pub log_end: String,
}

impl HostRecord {
    /// A record before anything is known.
    #[must_use]
    pub fn new(host: &str, started_utc: &str) -> HostRecord {
        HostRecord {
            host: host.to_owned(),
            state: HostState::Failed,
            reason: None,
            exit_code: None,
            version: None,
            address: None,
            clock: None,
            clock_method: None,
            started_utc: started_utc.to_owned(),
            log_end: String::new(),
        }
    }

    pub fn set_clock(&mut self, clock: Option<ClockOffset>) {
        self.clock = clock;
        self.clock_method = clock.map(|_| clock::METHOD.to_owned());
    }
}

/// The directory of a fleet.
#[derive(Debug)]
pub struct FleetDirectory {
    path: PathBuf,
    plan: Plan,
}

/// The directory of a host that is being filled. Dropping it removes everything.
#[derive(Debug)]
pub struct NewHost {
    directory: NewDirectory,
    path: PathBuf,
}

impl Plan {
    #[must_use]
    pub fn new(version: &str, command: &[String]) -> Plan {
        let (schema, version) = (SCHEMA.to_owned(), version.to_owned());
        Plan { schema, version, command: command.to_vec() }
    }
}

impl FleetDirectory {
    /// Opens the directory, or makes it if it does not exist.
    ///
    /// Fails if the directory belongs to another plan, is no fleet, or cannot be made.
    pub fn open_or_create(path: &Path, plan: &Plan) -> Result<FleetDirectory, FleetError> {
        if fs::symlink_metadata(path).is_err() {
            match FleetDirectory::create(path, plan) {
                Ok(fleet) => return Ok(fleet),
                // Another irqlab has made it meanwhile.
                Err(MakeDirectoryError::Exists) => {}
                Err(error) => return Err(making(path)(error)),
            }
        }
        let fleet = FleetDirectory::open(path)?;
        let shown = path.display();
        if fleet.plan.command != plan.command {
            return Err(FleetError::Invalid(format!(
                "{shown} holds runs of `irqlab {}`, and not of `irqlab {}` (name another directory with -o)",
                fleet.plan.command.join(" "),
                plan.command.join(" ")
            )));
        }
        if fleet.plan.version != plan.version {
            return Err(FleetError::Invalid(format!(
                "{shown} holds runs of irqlab {}, and this is {} (use that version, or name another directory with -o)",
                fleet.plan.version, plan.version
            )));
        }
        Ok(fleet)
    }

    fn create(path: &Path, plan: &Plan) -> Result<FleetDirectory, MakeDirectoryError> {
        let failed = |source| MakeDirectoryError::Io { path: path.to_owned(), source };
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let text = serde_json::to_vec_pretty(plan).map_err(|error| failed(error.into()))?;
        let directory = NewDirectory::create(path)?;
        directory.create_directory(FAILED_DIRECTORY)?;
        directory.write(PLAN_FILE, &text)?;
        directory.finish()?;
        Ok(FleetDirectory { path: path.to_owned(), plan: plan.clone() })
    }

    /// Opens the directory of a fleet.
    ///
    /// Fails if the directory is no fleet.
    pub fn open(path: &Path) -> Result<FleetDirectory, FleetError> {
        let file = path.join(PLAN_FILE);
        if !file.is_file() {
            return Err(FleetError::Invalid(format!(
                "{} is not the directory of a fleet: it has no {PLAN_FILE} (irqlab fleet collect makes one)",
                path.display()
            )));
        }
        let plan: Plan = read_json(&file)?;
        if plan.schema != SCHEMA {
            let reason = format!("schema {:?}; this version reads {SCHEMA}", plan.schema);
            return Err(FleetError::damaged(&file, reason));
        }
        Ok(FleetDirectory { path: path.to_owned(), plan })
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run directory of a host.
    #[must_use]
    pub fn run_path(&self, host: &str) -> PathBuf {
        self.path.join(host).join(RUN_DIRECTORY)
    }

    /// Keeps other processes of this machine from collecting into the directory until the returned reservation is
    /// dropped. Removes the unfinished directories that a killed process left.
    ///
    /// Fails if another process collects.
    pub fn reserve(&self) -> Result<Reservation, FleetError> {
        let lock = Reservation::new(&self.path.join(COLLECT_LOCK)).map_err(making(&self.path))?;
        let lock = lock.ok_or_else(|| {
            FleetError::Invalid(format!(
                "another irqlab collects into {} now (wait for its end)",
                self.path.display()
            ))
        })?;
        outputs::remove_leftovers(&self.path);
        Ok(lock)
    }

    #[must_use]
    pub fn is_done(&self, host: &str) -> bool {
        self.path.join(host).join(HOST_FILE).is_file()
    }

    /// Starts to fill the directory of a host. `None` if the directory exists: another process has gathered the run.
    ///
    /// Fails if the directory cannot be made.
    pub fn start_host(&self, host: &str) -> Result<Option<NewHost>, FleetError> {
        let path = self.path.join(host);
        match NewDirectory::create(&path) {
            Ok(directory) => Ok(Some(NewHost { directory, path })),
            Err(MakeDirectoryError::Exists) => Ok(None),
            Err(error) => Err(making(&path)(error)),
        }
    }

    /// Records why a host has no run. Replaces the record of an earlier attempt.
    ///
    /// Fails if the record cannot be written.
    pub fn record_failure(&self, record: &HostRecord) -> Result<(), FleetError> {
        let directory = self.path.join(FAILED_DIRECTORY);
        // git and some copies leave out empty directories.
        fs::create_dir_all(&directory).map_err(FleetError::writing(&directory))?;
        write_json(&directory.join(failure_name(&record.host)), record)
    }

    /// The records of all hosts with a run or a failure, sorted by host. A host that is done has no failure.
    ///
    /// Fails if a record is damaged.
    pub fn records(&self) -> Result<Vec<HostRecord>, FleetError> {
        let mut records = Vec::new();
        for name in names_in(&self.path)? {
            if check_host(&name).is_ok() && self.is_done(&name) {
                records.push(read_record(&self.path.join(&name).join(HOST_FILE), &name)?);
            }
        }
        let failed = self.path.join(FAILED_DIRECTORY);
        for name in names_in(&failed)? {
            let Some(host) = name.strip_suffix(".json") else { continue };
            if check_host(host).is_ok() && !self.is_done(host) {
                records.push(read_record(&failed.join(&name), host)?);
            }
        }
        records.sort_by(|first, second| first.host.cmp(&second.host));
        Ok(records)
    }

    /// Replaces `hosts.json` with `records`, in their order.
    ///
    /// Fails if the file cannot be written.
    pub fn write_host_list(&self, records: &[HostRecord]) -> Result<(), FleetError> {
        write_json(&self.path.join(HOSTS_FILE), &records)
    }
}

impl NewHost {
    /// The directory into which a conversation writes the run, and the run's name in it.
    #[must_use]
    pub fn directory(&self) -> (&NewDirectory, &'static str) {
        (&self.directory, RUN_DIRECTORY)
    }

    /// The run directory until the host is done.
    #[must_use]
    pub fn run_path(&self) -> PathBuf {
        self.directory.hidden_path().join(RUN_DIRECTORY)
    }

    /// Records that the host is done, and removes the record of an earlier failure. If another process has gathered the
    /// host's run in the meantime, the run of that process stays.
    ///
    /// Fails if the record cannot be written, the directory not renamed, or the earlier record not removed.
    pub fn finish(self, fleet: &FleetDirectory, record: &HostRecord) -> Result<(), FleetError> {
        let text = json_text(&self.path, record)?;
        self.directory.write(HOST_FILE, &text).map_err(making(&self.path))?;
        match self.directory.finish() {
            Ok(()) | Err(MakeDirectoryError::Exists) => {}
            Err(error) => return Err(making(&self.path)(error)),
        }
        let failure = fleet.path.join(FAILED_DIRECTORY).join(failure_name(&record.host));
        match fs::remove_file(&failure) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(FleetError::writing(&failure)(error))
            }
            _ => Ok(()),
        }
    }
}

fn failure_name(host: &str) -> String {
    format!("{host}.json")
}

/// Reads the record of `host`.
///
/// Fails if the record names another host, or is longer than [`RECORD_BYTES_MAX`].
fn read_record(path: &Path, host: &str) -> Result<HostRecord, FleetError> {
    let record: HostRecord = read_json(path)?;
    if record.host != host {
        return Err(FleetError::damaged(path, format!("it is the record of {:?}", record.host)));
    }
    Ok(record)
}

fn json_text(path: &Path, content: &impl Serialize) -> Result<Vec<u8>, FleetError> {
    serde_json::to_vec_pretty(content).map_err(|error| FleetError::damaged(path, error.to_string()))
}

fn write_json(path: &Path, content: &impl Serialize) -> Result<(), FleetError> {
    let text = json_text(path, content)?;
    outputs::write(path, &text, Existing::Replaced).map_err(FleetError::writing(path))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, FleetError> {
    let metadata = fs::symlink_metadata(path).map_err(FleetError::reading(path))?;
    if !metadata.is_file() {
        let error = io::Error::other("it is not a regular file");
        return Err(FleetError::reading(path)(error));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(FleetError::reading(path))?;
    file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(FleetError::reading(path))?;
    if bytes.len() as u64 > RECORD_BYTES_MAX {
        return Err(FleetError::damaged(path, format!("more than {RECORD_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|error| FleetError::damaged(path, error.to_string()))
}

/// The names in a directory that are text. Empty if the directory does not exist.
fn names_in(directory: &Path) -> Result<Vec<String>, FleetError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(FleetError::reading(directory))?,
    };
    let mut names = Vec::new();
    for entry in entries.take(NAMES_MAX) {
        if let Ok(name) = entry.map_err(FleetError::reading(directory))?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(command: &str) -> Plan {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        Plan::new("1.0", &command)
    }

    fn record(host: &str, state: HostState) -> HostRecord {
        HostRecord { state, ..HostRecord::new(host, "2026-11-30T00:00:00Z") }
    }

    #[test]
    fn a_directory_belongs_to_one_plan() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/fleet");
        FleetDirectory::open_or_create(&path, &plan("noise -d 1s")).unwrap();
        FleetDirectory::open_or_create(&path, &plan("noise -d 1s")).unwrap();
        let error = FleetDirectory::open_or_create(&path, &plan("noise -d 2s")).unwrap_err();
        assert!(error.to_string().contains("holds runs of `irqlab noise -d 1s`"), "{error}");
        let newer = Plan::new("1.1", &plan("noise -d 1s").command);
        let error = FleetDirectory::open_or_create(&path, &newer).unwrap_err().to_string();
        assert!(error.contains("holds runs of irqlab 1.0, and this is 1.1"), "{error}");
        let error = FleetDirectory::open(parent.path()).unwrap_err().to_string();
        assert!(error.contains("is not the directory of a fleet"), "{error}");
        let error = FleetDirectory::open_or_create(parent.path(), &plan("noise")).unwrap_err();
        assert!(error.to_string().contains("is not the directory of a fleet"), "{error}");
    }

    #[test]
    fn one_irqlab_at_a_time_collects() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("fleet");
        let fleet = FleetDirectory::open_or_create(&path, &plan("noise")).unwrap();
        let first = fleet.reserve().unwrap();
        let error = fleet.reserve().unwrap_err().to_string();
        assert!(error.contains("another irqlab collects"), "{error}");
        drop(first);
        fleet.reserve().unwrap();
    }

    #[test]
    fn a_host_is_done_as_a_whole_and_its_failure_is_forgotten_then() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("fleet");
        let fleet = FleetDirectory::open_or_create(&path, &plan("noise")).unwrap();
        fleet.record_failure(&record("a", HostState::Unreachable)).unwrap();
        fleet.record_failure(&record("a", HostState::Failed)).unwrap();
        fleet.record_failure(&record("b", HostState::RefusedVersion)).unwrap();
        let states = || -> Vec<(String, HostState)> {
            let records = fleet.records().unwrap();
            records.into_iter().map(|record| (record.host, record.state)).collect()
        };
        let b = ("b".to_owned(), HostState::RefusedVersion);
        assert_eq!(states(), [("a".to_owned(), HostState::Failed), b.clone()]);
        drop(fleet.start_host("a").unwrap().unwrap());
        assert!(!fleet.is_done("a"));
        let host = fleet.start_host("a").unwrap().unwrap();
        host.finish(&fleet, &record("a", HostState::Done)).unwrap();
        assert!(fleet.is_done("a") && fleet.start_host("a").unwrap().is_none());
        assert_eq!(states(), [("a".to_owned(), HostState::Done), b]);
        assert_eq!(fs::read_dir(path.join("failed")).unwrap().count(), 1);
        fleet.write_host_list(&fleet.records().unwrap()).unwrap();
        let list = fs::read_to_string(path.join("hosts.json")).unwrap();
        assert!(list.contains("\"refused-version\""), "{list}");
    }

    #[test]
    fn a_record_of_another_host_is_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("fleet");
        let fleet = FleetDirectory::open_or_create(&path, &plan("noise")).unwrap();
        fleet.record_failure(&record("a", HostState::Failed)).unwrap();
        fs::rename(path.join("failed/a.json"), path.join("failed/b.json")).unwrap();
        let error = fleet.records().unwrap_err().to_string();
        assert!(error.contains("the record of \"a\""), "{error}");
    }
}
