//! Finds the next fault that leaves something half done. Each verb that writes or changes something runs with a
//! fault at its system calls, and several processes share a machine and are killed; after each, what must hold is
//! checked. `./check` runs a sample; `IRQLAB_FAULTS=all` runs everything (docs/validation.md).

mod calls;
mod place;
mod processes;
mod verbs;

use std::collections::BTreeMap;

use calls::{Call, Fault, Seeded, parse, points};
use place::FaultPlace;
use verbs::{Contents, VERBS, Verb, contents};

use crate::support::{IRQLAB, alone};

/// `all` for everything; a number for so many faults of each verb.
const VARIABLE: &str = "IRQLAB_FAULTS";
/// Seed of what is chosen.
const SEED_VARIABLE: &str = "IRQLAB_FAULTS_SEED";
/// Only verbs that have this in their words.
const ONLY_VARIABLE: &str = "IRQLAB_FAULTS_ONLY";
/// Faults of each verb in the short form: of those that take milliseconds, and of those that measure.
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

    fn faults_of(self, verb: &Verb) -> Option<usize> {
        let is_quick = matches!(verb.needs, verbs::Needs::Nothing);
        if self.is_short { Some(if is_quick { SHORT.0 } else { SHORT.1 }) } else { self.faults }
    }

    /// Rounds of several processes.
    pub fn rounds(self) -> usize {
        if self.is_short { 2 } else { self.faults.unwrap_or(200) }
    }
}

fn has_strace() -> bool {
    let found = std::process::Command::new("strace").arg("-V").output().is_ok();
    if !found {
        needs::not_run(needs::Need::Strace, "strace does not start");
    }
    found
}

/// A verb that ran without a fault: its calls, and what it leaves.
fn without_fault(verb: &Verb, place: &FaultPlace, has_stacks: bool) -> (Vec<Call>, Contents) {
    verb.prepare(place);
    let trace = place.err_file(1);
    let trace_name = trace.display().to_string();
    let stacks = if has_stacks { &["-k"][..] } else { &[] };
    let options = [&["-qq", "-i", "-y", "-o", &trace_name], stacks, &[IRQLAB]].concat();
    let ended = place.trace(&[&options[..], &verb.words()].concat());
    assert_eq!(ended.code, 0, "{}: {}", verb.words, ended.err);
    let whole = verb.output_name().map(|name| contents(&place.work(name))).unwrap_or_default();
    assert_eq!(place.next_start(), None, "{}", verb.words);
    let left = verb.output_name().and_then(|name| name.split('/').next());
    assert_eq!(place.wrong_state(&left.into_iter().collect::<Vec<_>>()), None, "{}", verb.words);
    (parse(&std::fs::read_to_string(trace).expect("a trace")), whole)
}

/// Runs the verb with a fault. Returns what is wrong then.
fn with_fault(
    verb: &Verb,
    place: &FaultPlace,
    (call, fault): (&Call, Fault),
    whole: &Contents,
) -> Option<String> {
    verb.prepare(place);
    let inject = format!("inject={}:{}:when={}", call.name, fault.inject(), call.number);
    let only = format!("trace={}", call.name);
    let options = ["-qq", "-o", "/dev/null", "-e", &only, "-e", &inject, IRQLAB];
    let ended = place.run("strace", &[&options[..], &verb.words()].concat());
    let wrong = FaultPlace::wrong_end(&ended).or(place.next_start());
    let left = verb.output_name().and_then(|name| name.split('/').next());
    let wrong = wrong
        .or_else(|| verb.wrong_output(place, whole, ended.code))
        .or_else(|| place.wrong_state(&left.into_iter().collect::<Vec<_>>()));
    wrong.map(|wrong| {
        format!(
            "{}: {fault:?} at {} {} ({}): {wrong}",
            verb.words, call.name, call.number, call.site
        )
    })
}

#[test]
fn a_fault_at_a_system_call_leaves_all_or_nothing() {
    if !has_strace() || !rustix::process::geteuid().is_root() {
        return needs::not_run(needs::Need::Root, "the harness binds a directory to /run/irqlab");
    }
    let _alone = alone();
    let extent = Extent::of_environment();
    let only = std::env::var(ONLY_VARIABLE).unwrap_or_default();
    let mut random = Seeded::new(extent.seed);
    let (mut runs, mut fallen) = (BTreeMap::<Fault, usize>::new(), Vec::new());
    for verb in VERBS.iter().filter(|verb| verb.words.contains(&only)) {
        let Some(mut place) = verb.place() else { continue };
        let mut echo = processes::echo(&place);
        // strace takes 20 ms or more for a stack; verbs that measure make thousands of calls.
        let is_quick = matches!(verb.needs, verbs::Needs::Nothing);
        let (calls, whole) = without_fault(verb, &place, is_quick && !extent.is_short);
        let points = points(&calls);
        let mut faults: Vec<(&Call, Fault)> = points
            .iter()
            .flat_map(|call| Fault::of(&call.name).map(|fault| (*call, fault)))
            .collect();
        let all = faults.len();
        while extent.faults_of(verb).is_some_and(|most| faults.len() > most) {
            faults.swap_remove(random.below(faults.len()));
        }
        let before = fallen.len();
        for (call, fault) in &faults {
            *runs.entry(*fault).or_default() += 1;
            if let Some(wrong) = with_fault(verb, &place, (call, *fault), &whole) {
                fallen.push(wrong);
                // What is left changed is no fault of the next run.
                let Some(new) = verb.place() else { return };
                drop(echo);
                (echo, place) = (processes::echo(&new), new);
            }
        }
        println!(
            "{}: {} calls at {} points, {} of {all} faults, {} fell",
            verb.words,
            calls.len(),
            points.len(),
            faults.len(),
            fallen.len() - before
        );
        drop(echo);
    }
    println!("faults: {runs:?}; {} fell", fallen.len());
    assert!(runs.values().sum::<usize>() > 0 || !only.is_empty());
    assert!(fallen.is_empty(), "{} fell:\n{}", fallen.len(), fallen.join("\n"));
}
