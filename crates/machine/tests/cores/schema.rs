//! Models of cores: wrong models are refused, and the error names the field.

use crate::kernels::ZEN4;
use machine::{ModelError, SystemModel};
use proptest::prelude::*;

use crate::presets::ALL;
use crate::support::MXS;

/// The error of a model with one piece of its core replaced.
fn refusal(text: &str, from: &str, to: &str) -> ModelError {
    let (machine, core) = text.split_at(text.find("[core]").expect("each has one"));
    assert!(core.contains(from), "{from}");
    match SystemModel::parse(&format!("{machine}{}", core.replacen(from, to, 1))) {
        Err(error) => error,
        Ok(_) => panic!("{from} as {to} is accepted"),
    }
}

/// The field and the problem in the error of [`refusal`], without the line number.
fn refused(text: &str, from: &str, to: &str) -> String {
    let ModelError { field, problem, .. } = refusal(text, from, to);
    format!("{field}: {problem}")
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
    let zen4 = |from, to| refused(ZEN4, from, to);
    assert_eq!(zen4("shift = 2", "shift = 5"), "core.units.ports.shift: 5 is not in 1..=4");
    assert_eq!(
        zen4("branch = 1 }", "branch = 0 }"),
        "core.units.ports: integer plus branch-only ports exceed 5"
    );
    assert_eq!(
        zen4("long_table_entries = 2048", "long_table_entries = 16384"),
        "core.predictor.direction.tage.long_table_entries: 16384 is not in 1..=8192"
    );
    assert_eq!(
        zen4("vector_scheduler_entries = 64", "vector_scheduler_entries = 321"),
        "core.window.vector_scheduler_entries: 321 is not in 1..=255"
    );
    assert_eq!(mxs("mshrs = 4  ", "mshrs = 0  "), "core.data.mshrs: 0 is not in 1..=256");
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
    let (_, a55) = ALL.iter().find(|(name, _)| *name == "cortex-a55").expect("it is there");
    let ports = "[core.units]\nports = { shift = 1, select = 1, branch = 1 }";
    assert_eq!(
        refused(a55, "[core.units]", ports),
        "core.units.ports: are for cores with a window"
    );
    let (_, t1) = ALL.iter().find(|(name, _)| *name == "t1").expect("it is there");
    assert_eq!(refused(t1, "width = 1 ", "width = 2 "), "core.width: 2 is not in 1..=1");
    assert_eq!(
        refused(t1, "blocking = true", "blocking = false"),
        "core.threads: needs data.blocking = true"
    );
    let (_, p4) = ALL.iter().find(|(name, _)| *name == "p4-1700").expect("it is there");
    assert!(refused(p4, "lines = 2048", "lines = 2000").starts_with("core.front.decoded.lines"));
    assert!(refused(p4, "ways = 8", "ways = 0").starts_with("core.front.decoded.ways"));
}

#[test]
fn a_field_without_an_effect_on_the_kind_of_core_is_refused() {
    let named = |name: &str| ALL.iter().find(|(known, _)| *known == name).expect("it is there").1;
    let refused_in_order = |table: &str, stated: &str| {
        let with_field = format!("{table}\n{stated}");
        let (field, _) = stated.split_once(" = ").expect("a field and a value");
        let path = format!("{}.{field}", table.trim_matches(['[', ']']));
        for name in ["ultra-1", "t1"] {
            let text = if table.starts_with("[core.units.of") || table == "[core.events.of]" {
                format!("{}\n{with_field}\n", named(name))
            } else {
                assert!(named(name).contains(table));
                named(name).replacen(table, &with_field, 1)
            };
            let error = SystemModel::parse(&text).expect_err(stated);
            assert_eq!(
                (error.field, &*error.problem),
                (path.clone(), "is for cores with a window: leave it out")
            );
        }
    };
    for stated in [
        "forward_vector_cycles = 9",
        "forward_wide_cycles = 9",
        "forward_again_cycles = 9",
        "forward_fail_cycles = 9",
        "renames_memory = true",
        "renames_without_index = true",
        "access_bytes = 32",
        "scaled_index_cycles = 9",
        "vector_load_cycles = 9",
        "wide_loads = 1",
        "vector_stores = 1",
        "bank_loads = 1",
        "splits_take_two = true",
        "split_load_cycles = 9",
        "page_split_load_cycles = 9",
        "stores_one_line_per_cycle = true",
        "stores_any_of_line = true",
        "page_split_store_cycles = 9",
        "alias_cycles = 9",
    ] {
        refused_in_order("[core.data]", stated);
    }
    refused_in_order("[core.front]", "fuses_branches = true");
    for field in [
        "float_add_to_others",
        "float_root_interval",
        "float_flags_interval",
        "string_compare_interval",
        "dot_product_interval",
        "horizontal_add_interval",
        "vector_multiply32_interval",
        "sha_interval",
        "variable_blend_interval",
    ] {
        refused_in_order("[core.units.of]", &format!("{field}_cycles = 90"));
    }
    refused_in_order("[core.events.of]", "clflush_cycles = 9");
    refused_in_order("[core.events.of]", "sfence_cycles = 9");
    // These two need bound ports, which also need a window.
    assert_eq!(
        refused(MXS, "[core.front]", "[core.front]\nconstant_cycles = 1"),
        "core.front.constant_cycles: is for cores with units.ports"
    );
    let after_logic = "[core.units]\nof.select_after_logic_cycles = 1";
    assert_eq!(
        refused(MXS, "[core.units]", after_logic),
        "core.units.of.select_after_logic_cycles: is for cores with units.ports"
    );
}

#[test]
fn a_field_without_the_field_that_it_needs_is_refused() {
    let stated = |table: &str, field: &str, value: &str, problem: &str| {
        let with_field = format!("{table}\n{field} = {value}");
        let path = format!("{}.{field}: {problem}", table.trim_matches(['[', ']']));
        assert_eq!(refused(MXS, table, &with_field), path);
    };
    let front = |field: &str, problem: &str| stated("[core.front]", field, "1", problem);
    front("overruled_cycles", "needs predictor.direction.tage");
    front("btb_second_cycles", "needs predictor.btb_first");
    front("indirect_overruled_cycles", "needs predictor.indirect");
    let data = |field: &str, problem: &str| stated("[core.data]", field, "true", problem);
    data("renames_without_index", "needs data.renames_memory = true");
    data("stores_any_of_line", "needs data.stores_one_line_per_cycle = true");
    let predictor = |field: &str, problem: &str| stated("[core.predictor]", field, "true", problem);
    predictor("btb_by_lines", "needs btb");
    predictor("indirect_by_directions", "needs indirect");
    let (_, t1) = ALL.iter().find(|(name, _)| *name == "t1").expect("it is there");
    for (table, stated) in [
        ("[core]", "issue_width = 1"),
        ("[core.front]", "queue_entries = 8"),
        ("[core.front]", "taken_ends_cycle = true"),
        ("[core.front]", "return_cycles = 1"),
        ("[core.data]", "load_entries = 1"),
        ("[core.data]", "forward_cycles = 3"),
        ("[core.data]", "forward_cycles = 0"),
    ] {
        let (field, _) = stated.split_once(" = ").expect("a field and a value");
        assert_eq!(
            refused(t1, table, &format!("{table}\n{stated}")),
            format!(
                "{}.{field}: is for cores without threads: leave it out",
                table.trim_matches(['[', ']'])
            )
        );
    }
    let (_, r4400) = ALL.iter().find(|(name, _)| *name == "r4400-1994").expect("it is there");
    assert_eq!(
        refused(r4400, "[core.front]", "[core.front]\ntaken_ends_cycle = true"),
        "core.front.taken_ends_cycle: is for cores with a width of 2 or more: leave it out"
    );
    assert_eq!(
        refused(r4400, "issue_width = 1", "issue_width = 2"),
        "core.issue_width: exceeds width, which limits a core without a window: leave it out"
    );
    for (field, stated) in [
        ("core.front.queue_entries", "queue_entries = 4"),
        ("core.data.load_entries", "load_entries = 32"),
        ("core.data.forward_cycles", "forward_cycles = 2"),
    ] {
        assert_eq!(refused(MXS, stated, ""), format!("{field}: is missing"));
    }
}

#[test]
fn units_without_an_effect_are_refused_with_the_value_to_set() {
    let (_, r4400) = ALL.iter().find(|(name, _)| *name == "r4400-1994").expect("it is there");
    assert_eq!(
        refused(
            r4400,
            "store = { count = 1, latency_cycles = 1",
            "store = { count = 1, latency_cycles = 3"
        ),
        "core.units.store.latency_cycles: must be 1 on a core without a window"
    );
    assert_eq!(
        refused(r4400, "integer = { count = 1", "integer = { count = 2"),
        "core.units.integer.count: 2 has no effect: a core without a window uses at most width. Set 1"
    );
    assert_eq!(
        refused(r4400, "divide = { count = 1", "divide = { count = 16"),
        "core.units.divide.count: 16 is not in 1..=15"
    );
}

#[test]
fn what_is_unknown_or_missing_is_refused_with_its_line() {
    let line_of = |text: &str, part: &str| {
        text.lines().position(|line| line.contains(part)).map(|index| index + 1)
    };
    let unknown = refusal(MXS, "mshrs = 4  ", "mshr = 4  ");
    assert_eq!(unknown.line, line_of(MXS, "mshrs = 4  "));
    assert!(unknown.problem.contains("mshr"), "{unknown}");
    let missing = refused(MXS, "load = { count = 2, latency_cycles = 2 }", "");
    assert!(missing.contains("load"), "{missing}");
    let sort = refused(MXS, "direction.bimodal.entries", "direction.bimodel.entries");
    assert!(sort.contains("bimodel"), "{sort}");
    let negative = refusal(MXS, "mshrs = 4  ", "mshrs = -4  ");
    assert_eq!(negative.line, line_of(MXS, "mshrs = 4  "));
    let wide = refusal(MXS, "width = 4 ", "width = 66 ");
    assert_eq!(wide.line, line_of(MXS, "width = 4 "));
}

proptest! {
    /// Any number in any field is accepted or refused, and an accepted model can be built.
    #[test]
    fn no_number_makes_it_panic(
        which in 0..ALL.len(), at in any::<prop::sample::Index>(), number in prop_oneof![
            Just(0u64), 1u64..100, Just(u64::from(u32::MAX)), Just(1 << 40)
        ],
    ) {
        let text = ALL[which].1;
        let places: Vec<usize> =
            text.match_indices("= ").map(|(start, _)| start + 2).filter(|start| {
                text[*start..].starts_with(|first: char| first.is_ascii_digit())
            }).collect();
        let start = *at.get(&places);
        let after = text[start..].trim_start_matches(|digit: char| digit.is_ascii_digit());
        let changed = format!("{}{number}{after}", &text[..start]);
        if let Ok(machine) = SystemModel::parse(&changed)
            && let Some(core) = machine.core
        {
            let built = [
                machine::core::OutOfOrderCore::new(&core, 64).is_some(),
                machine::core::InOrderCore::new(&core, 64).is_some(),
                machine::core::MultithreadedCore::new(&core).is_some(),
            ];
            prop_assert_eq!(built.iter().filter(|built| **built).count(), 1);
        }
    }
}
