//! Verbs that write or change something, and what their outputs may be after a fault.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::place::FaultPlace;
use crate::support::names;

/// A run that is part of the repository.
pub const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/golden/run-2");

/// The specification of a sweep, and the sweep with its results.
const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sweep/tests/golden/spec.toml");
const SWEEP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sweep/tests/golden/sweep-1");

/// The output of a verb, by its name in the working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A file, or files in a directory: absent, or what the run without a fault wrote.
    Files(&'static str),
    /// A file that replaces one: the old one, or the new one.
    Replaced(&'static str),
    /// A run: absent, or one that is read.
    Run(&'static str),
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub enum Needs {
    Nothing,
    /// To measure with BPF.
    Bpf,
    /// A card: `Net`.
    Card,
    /// Something else to measure, which the verb names where it is absent.
    Machine,
    /// A simulated machine.
    Simulator,
}

/// A verb with its words. `GOLDEN` stands for a run, `SPEC` and `SWEEP` for a specification and its sweep.
pub struct Verb {
    pub words: &'static str,
    pub output: Output,
    pub needs: Needs,
}

const fn verb(words: &'static str, output: Output, needs: Needs) -> Verb {
    Verb { words, output, needs }
}

pub const VERBS: [Verb; 24] = [
    verb("export GOLDEN --format openmetrics -o out", Output::Files("out"), Needs::Nothing),
    verb(
        "export GOLDEN --format openmetrics --force -o out",
        Output::Replaced("out"),
        Needs::Nothing,
    ),
    verb("export GOLDEN --format csv -o tables", Output::Files("tables"), Needs::Nothing),
    verb("report GOLDEN -o page", Output::Files("page"), Needs::Nothing),
    verb("report GOLDEN --force -o page", Output::Replaced("page"), Needs::Nothing),
    verb("sweep plan SPEC -o sweep", Output::Files("sweep"), Needs::Nothing),
    verb("sweep merge SWEEP -o data", Output::Files("data"), Needs::Nothing),
    verb("man pages", Output::Nothing, Needs::Nothing),
    verb(
        "signal model --schemes interrupt,spin --rates 10k --out run",
        Output::Run("run"),
        Needs::Nothing,
    ),
    verb(
        "signal model --schemes interrupt --rates 10k --pictures --out a/b/run",
        Output::Run("a/b/run"),
        Needs::Nothing,
    ),
    verb("sim cache limit 5G", Output::Nothing, Needs::Nothing),
    verb("sim cache prune", Output::Nothing, Needs::Nothing),
    verb("handlers -d 20ms --events none --out run", Output::Run("run"), Needs::Bpf),
    verb("affinity -d 20ms --out run", Output::Run("run"), Needs::Bpf),
    verb("noise -d 20ms --loop detour --out run", Output::Run("run"), Needs::Bpf),
    verb("wakeup -d 20ms --no-comparison --out run", Output::Run("run"), Needs::Bpf),
    verb("services --out run -- true", Output::Run("run"), Needs::Bpf),
    verb("watch --once -i 100ms --json --out run", Output::Run("run"), Needs::Bpf),
    verb(
        "handlers -d 20ms --events none --stimulus timer --load busy --out run",
        Output::Run("run"),
        Needs::Bpf,
    ),
    verb(
        "footprint --stimulus timer --level l1d --method basic --repetitions 16 --rounds 1 --out run",
        Output::Run("run"),
        Needs::Machine,
    ),
    verb("bench overhead --rounds 1 --calls 100 --out run", Output::Run("run"), Needs::Bpf),
    verb(
        "signal advise --rate 10k --nic v0 --schemes deferred:50us --apply",
        Output::Nothing,
        Needs::Card,
    ),
    verb(
        "signal run --nic v0 --peer 192.0.2.2:7007 --loads idle -c 1 -d 20ms --repetitions 1 --rates 500 \
         --schemes drain --parts rates --out run",
        Output::Run("run"),
        Needs::Card,
    ),
    verb("sim boot --detail count --out run -- true", Output::Run("run"), Needs::Simulator),
];

/// The contents of files, by their path.
pub type Contents = BTreeMap<String, Vec<u8>>;

impl Verb {
    pub fn words(&self) -> Vec<&str> {
        let words = self.words.split_whitespace();
        let named = |word| match word {
            "GOLDEN" => GOLDEN,
            "SPEC" => SPEC,
            "SWEEP" => SWEEP,
            word => word,
        };
        words.map(named).collect()
    }

    /// A place for it. `None`, with the reason printed, where the machine has none.
    pub fn place(&self) -> Option<FaultPlace> {
        match self.needs {
            Needs::Bpf if !crate::support::can_measure() => None,
            Needs::Card => Some(FaultPlace::new(Some(crate::signal_apply::net()?))),
            Needs::Simulator if !crate::support::can_simulate(&crate::support::Place::new()) => {
                None
            }
            Needs::Simulator => Some(FaultPlace::with_simulator()),
            Needs::Bpf | Needs::Machine | Needs::Nothing => Some(FaultPlace::new(None)),
        }
    }

    /// The name in the working directory that the output has.
    pub fn output_name(&self) -> Option<&'static str> {
        match self.output {
            Output::Files(name) | Output::Replaced(name) | Output::Run(name) => Some(name),
            Output::Nothing if self.words.starts_with("man ") => Some("pages"),
            Output::Nothing => None,
        }
    }

    /// Brings the place to the state before a run.
    pub fn prepare(&self, place: &FaultPlace) {
        if let Some(name) = self.output_name() {
            place.remove(name.split('/').next().unwrap_or(name));
        }
        if let Output::Replaced(name) = self.output {
            fs::write(place.work(name), "old").expect("a file");
        }
    }

    /// Returns the faults of the output. `whole` is the output of a run without a fault.
    pub fn wrong_output(&self, place: &FaultPlace, whole: &Contents, code: i32) -> Option<String> {
        let name = self.output_name()?;
        let path = place.work(name);
        let is_there = path.symlink_metadata().is_ok();
        let found = contents(&path);
        let is_whole = match self.output {
            Output::Run(_) => is_there && record::read_run(&path).is_ok(),
            _ => is_there && found == *whole,
        };
        let is_as_before = match self.output {
            Output::Replaced(_) => found.values().all(|bytes| bytes == b"old") && is_there,
            _ => !is_there,
        };
        // Each page of the manual is a file of its own.
        let is_part_of_pages = self.output == Output::Nothing
            && found.iter().all(|(name, bytes)| whole.get(name) == Some(bytes));
        if !is_whole && !is_as_before && !is_part_of_pages {
            return Some(format!("{name} is neither whole nor as it was before"));
        }
        (code == 0 && !is_whole).then(|| format!("success without {name}"))
    }
}

/// All files at or below a path.
pub fn contents(path: &Path) -> Contents {
    if !path.is_dir() {
        return fs::read(path).map(|bytes| (String::new(), bytes)).into_iter().collect();
    }
    let below = names(path).into_iter().flat_map(|name| {
        let files = contents(&path.join(&name));
        files.into_iter().map(move |(path, bytes)| (format!("{name}/{path}"), bytes))
    });
    below.collect()
}
