//! Every target runs over its corpus, and over changed copies of its inputs. Each run makes the same copies.
//!
//! The fuzzers in `fuzz/` search for longer; this test keeps their inputs and bodies from rotting, and
//! what they found from coming back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fuzz_bodies::{Mutator, TARGETS, seeds};

/// Changed copies of the seeds of a target.
const COPIES: usize = 400;

/// Runs a body; a failure names the input in a form that becomes a file of the corpus.
fn run(name: &str, body: fn(&[u8]), input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| body(input))).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("target {name} fails; as fuzz/corpus/{name}/NAME.hex:\n{hex}");
    }
}

#[test]
fn every_target_survives_its_corpus_and_changed_copies_of_it() {
    for target in TARGETS {
        let seeds = seeds(target.name);
        assert!(!seeds.is_empty(), "target {}: no seeds", target.name);
        for seed in &seeds {
            run(target.name, target.body, seed);
        }
        let mut mutator = Mutator::new(1);
        for index in 0..COPIES {
            let (seed, other) = (&seeds[index % seeds.len()], &seeds[(index + 1) % seeds.len()]);
            run(target.name, target.body, &mutator.changed(seed, other));
        }
    }
}

#[test]
fn every_target_has_a_program_and_every_program_a_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    for directory in std::fs::read_dir(fuzz.join("corpus")).unwrap().flatten() {
        let name = directory.file_name().into_string().unwrap();
        assert!(fuzz_bodies::target(&name).is_some(), "fuzz/corpus/{name} is of no target");
    }
}

#[test]
fn copies_are_the_same_for_the_same_seed_and_differ_from_their_input() {
    let copies = |seed| {
        let mut mutator = Mutator::new(seed);
        (0..100).map(|_| mutator.changed(b"0123456789abcdef", b"[other]")).collect::<Vec<_>>()
    };
    assert_eq!(copies(7), copies(7));
    assert_ne!(copies(7), copies(8));
    assert!(copies(7).iter().filter(|copy| *copy != b"0123456789abcdef").count() > 80);
}
