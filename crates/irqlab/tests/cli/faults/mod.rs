//! Finds the next fault that leaves something half done. Each verb that writes or changes something runs with a
//! fault at its system calls, and several processes share a machine and are killed; after each, what must hold is
//! checked. `./check` runs a sample; `IRQLAB_FAULTS=all` runs everything (docs/validation.md).

mod calls;
mod place;
mod processes;
mod tracer;
mod verbs;

use std::collections::BTreeMap;

use calls::{Coverage, Fault, Seeded, faulty_calls};
use place::FaultPlace;
use tracer::{FaultyCall, Site};
use verbs::{Contents, VERBS, Verb, contents};

use crate::support::{alone, can_mount_in_namespaces};

/// `all` for all faults, or the number of faults of each verb.
const VARIABLE: &str = "IRQLAB_FAULTS";
/// Seed that chooses the faults.
const SEED_VARIABLE: &str = "IRQLAB_FAULTS_SEED";
/// Parts of command lines, separated by commas: only verbs that contain one of them run.
const ONLY_VARIABLE: &str = "IRQLAB_FAULTS_ONLY";
/// Faults of each verb in the short form: for a verb of milliseconds, and for a verb that measures.
const SHORT: (usize, usize) = (10, 2);

/// How much is run.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Faults of each verb; `None`: all.
    faults: Option<usize>,
    is_short: bool,
    pub seed: u64,
}

impl Extent {
    pub fn of_environment() -> Extent {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let seed = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.parse().ok());
        Extent { faults: text.parse().ok(), is_short: text.is_empty(), seed: seed.unwrap_or(1) }
    }

    fn coverage_of(self, verb: &Verb) -> Coverage {
        let is_quick = matches!(verb.needs, verbs::Needs::Nothing);
        match self.faults {
            _ if self.is_short => Coverage::Sample(if is_quick { SHORT.0 } else { SHORT.1 }),
            Some(most) => Coverage::Sample(most),
            None if is_quick => Coverage::All,
            None => Coverage::EachFault,
        }
    }

    /// Rounds of several processes.
    pub fn rounds(self) -> usize {
        if self.is_short { 2 } else { self.faults.unwrap_or(200) }
    }
}

/// Runs a verb without a fault. Returns how often each of its sites calls, and what it leaves; `None`, with the
/// reason printed, where it cannot measure here.
fn without_fault(verb: &Verb, place: &FaultPlace) -> Option<(BTreeMap<Site, u32>, Contents)> {
    if matches!(verb.needs, verbs::Needs::Simulator) {
        // The first one fills the cache.
        place.traced(&verb.words(), None);
    }
    verb.prepare(place);
    let (ended, traced) = place.traced(&verb.words(), None);
    if ended.code == 4 {
        needs::not_run(needs::Need::Other, format!("{}: {}", verb.words, ended.err));
        return None;
    }
    assert_eq!(ended.code, 0, "{}: {}", verb.words, ended.err);
    let complete = verb.output_name().map(|name| contents(&place.work(name))).unwrap_or_default();
    assert_eq!(place.next_start(), None, "{}", verb.words);
    let output = verb.output_name().and_then(|name| name.split('/').next());
    assert_eq!(place.wrong_state(&output.into_iter().collect::<Vec<_>>()), None, "{}", verb.words);
    Some((traced.calls, complete))
}

/// Runs the verb with a fault. Returns whether the run reached the call, and what went wrong.
fn with_fault(
    verb: &Verb,
    place: &FaultPlace,
    faulty: FaultyCall,
    whole: &Contents,
) -> (bool, Option<String>) {
    verb.prepare(place);
    let (ended, traced) = place.traced(&verb.words(), Some(faulty));
    let wrong = FaultPlace::wrong_end(&ended).or(place.next_start());
    let output = verb.output_name().and_then(|name| name.split('/').next());
    let wrong = wrong
        .or_else(|| verb.wrong_output(place, whole, ended.code))
        .or_else(|| place.wrong_state(&output.into_iter().collect::<Vec<_>>()));
    let FaultyCall { site, number, fault } = faulty;
    let wrong =
        wrong.map(|wrong| format!("{}: {fault:?} at call {number} of {site}: {wrong}", verb.words));
    (traced.has_failed_a_call, wrong)
}

#[test]
fn a_fault_at_a_system_call_leaves_all_or_nothing() {
    if !rustix::process::geteuid().is_root() {
        return needs::not_run(needs::Need::Root, "the harness binds a directory to /run/irqlab");
    }
    if !can_mount_in_namespaces(&[]) {
        return;
    }
    let _alone = alone();
    let extent = Extent::of_environment();
    let only = std::env::var(ONLY_VARIABLE).unwrap_or_default();
    let mut random = Seeded::new(extent.seed);
    let (mut runs, mut fallen) = (BTreeMap::<Fault, usize>::new(), Vec::new());
    // The first start of a simulated machine takes half a minute.
    let is_in_extent =
        |verb: &Verb| !extent.is_short || !matches!(verb.needs, verbs::Needs::Simulator);
    let is_named = |verb: &Verb| only.split(',').any(|text| verb.words.contains(text));
    let is_chosen = |verb: &&Verb| is_in_extent(verb) && is_named(verb);
    for verb in VERBS.iter().filter(is_chosen) {
        let Some(mut place) = verb.place() else { continue };
        let mut echo = processes::echo(&place);
        let Some((calls, whole)) = without_fault(verb, &place) else { continue };
        let all = faulty_calls(&calls, Coverage::All, &mut random).len();
        let chosen = faulty_calls(&calls, extent.coverage_of(verb), &mut random);
        let before = fallen.len();
        let mut reached = 0;
        for faulty in &chosen {
            let (is_reached, wrong) = with_fault(verb, &place, *faulty, &whole);
            if is_reached {
                reached += 1;
                *runs.entry(faulty.fault).or_default() += 1;
            }
            if let Some(wrong) = wrong {
                println!("{wrong}");
                fallen.push(wrong);
                // A change that this run left must not count as a fault of the next run.
                let Some(new) = verb.place() else { return };
                drop(echo);
                (echo, place) = (processes::echo(&new), new);
            }
        }
        println!(
            "{}: {} calls at {} sites, {} of {all} faults tried, {reached} reached, {} fell",
            verb.words,
            calls.values().sum::<u32>(),
            calls.len(),
            chosen.len(),
            fallen.len() - before
        );
        drop(echo);
    }
    println!("faults: {runs:?}; {} fell", fallen.len());
    assert!(runs.values().sum::<usize>() > 0 || !only.is_empty());
    assert!(fallen.is_empty(), "{} fell:\n{}", fallen.len(), fallen.join("\n"));
}
