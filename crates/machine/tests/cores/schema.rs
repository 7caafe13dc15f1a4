//! Cores as data: what is refused, and by which name.

use machine::core::CoreModel;
use machine::{ModelError, SystemModel};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::support::MXS;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    core: CoreModel,
}

/// Why the text is refused, with one piece of it replaced.
fn refused(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    match toml::from_str::<File>(&text.replacen(from, to, 1)) {
        Err(syntax) => syntax.to_string(),
        Ok(file) => match file.core.check("core") {
            Err(ModelError { field, problem, .. }) => format!("{field}: {problem}"),
            other => panic!("{from} as {to}: {other:?}"),
        },
    }
}

#[test]
fn each_file_is_good_and_reads_back_as_it_was() {
    for (name, text) in ALL {
        let file: File = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.core.check("core"), Ok(()), "{name}");
    }
}

#[test]
fn what_cannot_be_built_is_refused_by_field_and_range() {
    let mxs = |from, to| refused(MXS, from, to);
    assert_eq!(mxs("width = 4 ", "width = 16 "), "core.width: 16 is not in 1..=15");
    assert_eq!(mxs("issue_width = 4", "issue_width = 0"), "core.issue_width: 0 is not in 1..=15");
    assert_eq!(
        mxs("queue_entries = 4", "queue_entries = 3"),
        "core.front.queue_entries: 3 is not in 4..=4096"
    );
    assert_eq!(
        mxs("reorder_entries = 64", "reorder_entries = 2"),
        "core.window.reorder_entries: 2 is not in 4..=4096"
    );
    assert_eq!(
        mxs("scheduler_entries = 64", "scheduler_entries = 65"),
        "core.window.scheduler_entries: 65 is not in 1..=64"
    );
    assert_eq!(
        mxs("unresolved_branches = 4", "unresolved_branches = 0"),
        "core.window.unresolved_branches: 0 is not in 1..=64"
    );
    assert_eq!(
        mxs(
            "integer = { count = 4, latency_cycles = 1 }",
            "integer = { count = 4, latency_cycles = 0 }"
        ),
        "core.units.integer.latency_cycles: 0 is not in 1..=1000"
    );
    assert_eq!(mxs("misses = 4", "misses = 0"), "core.data.misses: 0 is not in 1..=256");
    assert!(
        mxs("forward_cycles = 2", "forward_cycles = 2\nblocking = true")
            .contains("core.data.blocking")
    );
    assert_eq!(
        mxs("pause_cycles = 1", "pause_cycles = 1000001"),
        "core.events.pause_cycles: 1000001 is not in 0..=1000000"
    );
    assert!(
        mxs("entries = 1024", "entries = 1000").starts_with("core.predictor.direction.bimodal")
    );
    let threads = mxs("issue_width = 4", "issue_width = 4\nthreads = 2");
    assert_eq!(threads, "core.threads: is for cores without a window");
    let (_, t1) = ALL.iter().find(|(name, _)| *name == "t1").expect("it is there");
    assert_eq!(refused(t1, "width = 1 ", "width = 2 "), "core.width: 2 is not in 1..=1");
    let (_, p4) = ALL.iter().find(|(name, _)| *name == "p4").expect("it is there");
    assert!(refused(p4, "lines = 2048", "lines = 2000").starts_with("core.front.decoded.lines"));
    assert!(refused(p4, "ways = 8", "ways = 0").starts_with("core.front.decoded.ways"));
}

#[test]
fn what_is_unknown_or_missing_is_refused_with_its_line() {
    let unknown = refused(MXS, "misses = 4", "mises = 4");
    assert!(unknown.contains("line 38") && unknown.contains("mises"), "{unknown}");
    let missing = refused(MXS, "load = { count = 2, latency_cycles = 2 }", "");
    assert!(missing.contains("load"), "{missing}");
    let sort = refused(MXS, "direction.bimodal.entries", "direction.bimodel.entries");
    assert!(sort.contains("bimodel"), "{sort}");
    let negative = refused(MXS, "misses = 4", "misses = -4");
    assert!(negative.contains("misses = -4"), "{negative}");
}

#[test]
fn a_machine_has_its_core_in_its_file() {
    let file = include_str!("../../../../machines/zen3.toml");
    let machine = &file[..file.find("[core]").expect("its core is its last part")];
    assert_eq!(CoreModel::of_machine(machine), Ok(None));
    let (_, core) = ALL.iter().find(|(name, _)| *name == "zen3").expect("it is there");
    let both = format!("{machine}\n{core}");
    let read = CoreModel::of_machine(&both).expect("a good machine").expect("a core");
    assert_eq!(read, crate::support::model(core));
    SystemModel::parse(&both).expect("a good machine");
    // Lines are those of the file.
    let wrong = both.replace("follows_stack", "follow_stack");
    let line = wrong.lines().position(|line| line.contains("follow_stack")).map(|at| at + 1);
    for error in
        [CoreModel::of_machine(&wrong).unwrap_err(), SystemModel::parse(&wrong).unwrap_err()]
    {
        assert_eq!(error.line, line);
        assert!(error.problem.contains("follow_stack"), "{error}");
    }
    let wide = both.replace("width = 6 ", "width = 66 ");
    let error = SystemModel::parse(&wide).unwrap_err().to_string();
    let line = wide.lines().position(|line| line.starts_with("width = 66")).map_or(0, |at| at + 1);
    assert_eq!(error, format!("line {line}: core.width: 66 is not in 1..=15"));
}

proptest! {
    /// Any number anywhere is accepted or refused, and what is accepted can be built.
    #[test]
    fn no_number_makes_it_panic(
        which in 0..ALL.len(), at in any::<prop::sample::Index>(), number in prop_oneof![
            Just(0u64), 1u64..100, Just(u64::from(u32::MAX)), Just(1 << 40)
        ],
    ) {
        let text = ALL[which].1;
        let places: Vec<usize> =
            text.match_indices("= ").map(|(at, _)| at + 2).filter(|at| {
                text[*at..].starts_with(|first: char| first.is_ascii_digit())
            }).collect();
        let at = *at.get(&places);
        let rest = text[at..].trim_start_matches(|digit: char| digit.is_ascii_digit());
        let changed = format!("{}{number}{rest}", &text[..at]);
        if let Ok(file) = toml::from_str::<File>(&changed)
            && file.core.check("core").is_ok()
        {
            let built = [
                machine::core::OutOfOrder::new(&file.core, 64).is_some(),
                machine::core::InOrderCore::new(&file.core, 64).is_some(),
                machine::core::Threads::new(&file.core).is_some(),
            ];
            prop_assert_eq!(built.iter().filter(|built| **built).count(), 1);
        }
    }
}
