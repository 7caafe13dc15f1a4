//! Model files: the files that irqlab ships are accepted, wrong files are refused with a helpful message.

use machine::schema::{draw, set};
use machine::{BlockingModel, SystemModel};
use proptest::prelude::*;

#[allow(clippy::disallowed_methods, reason = "the models that irqlab ships are files")]
fn models() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // `measured` is a directory of data.
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        models.push((name, std::fs::read_to_string(path).unwrap()));
    }
    models.sort();
    models
}

fn text(name: &str) -> String {
    models().into_iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn each_model_that_irqlab_brings_is_accepted_and_drawn() {
    assert_eq!(models().len(), 19);
    for (name, text) in models() {
        let model = SystemModel::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(model.name, name);
        let drawn = draw(&model);
        assert!(drawn.starts_with(&format!("{name}: ")) && drawn.contains("memory"), "{drawn}");
        for line in drawn.lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
        for line in text.lines() {
            assert!(line.chars().count() <= 140, "{name}: {line}");
        }
    }
}

/// A figure has a source, or says that it is an estimate: in a comment on its line, or in one at the head of the
/// table or the paragraph that it stands in.
#[test]
fn each_figure_of_a_model_has_a_comment() {
    for (name, text) in models() {
        let (mut table, mut paragraph) = (false, false);
        let mut above = false;
        for (number, line) in text.lines().enumerate() {
            let has_comment = line.contains('#');
            match line.trim_start().chars().next() {
                None => paragraph = false,
                Some('#') => paragraph = true,
                Some('[') => (table, paragraph) = (has_comment || above, false),
                Some(_) => {
                    let is_figure = line.contains(|sign: char| sign.is_ascii_digit())
                        && !line.starts_with("name")
                        && !line.starts_with("about");
                    assert!(
                        !is_figure || has_comment || table || paragraph,
                        "{name}:{}: {line}: no source",
                        number + 1
                    );
                }
            }
            above = line.starts_with('#');
        }
    }
}

#[test]
fn each_model_has_a_core_that_waits_for_what_its_cache_can_have_under_way() {
    for (name, text) in models() {
        let model = SystemModel::parse(&text).unwrap();
        let core = model.core.expect("each has one");
        assert_eq!(core.data.mshrs * model.threads_per_core, model.l1d.mshrs, "{name}");
    }
}

#[test]
fn the_timed_level_says_what_it_does_not_run() {
    assert!(BlockingModel::parse(&text("r4400-1994")).is_ok());
    let error = BlockingModel::parse(&text("zen3")).unwrap_err().to_string();
    for part in ["has cpus", "l3", "stlb", "mshrs", "timed level does not run"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = BlockingModel::parse(&text("ultra-1")).unwrap_err().to_string();
    assert!(error.contains("sub_block") && error.contains("write = \"through\""), "{error}");
}

/// The error of a model with one line changed.
#[track_caller]
fn refused(name: &str, from: &str, to: &str) -> String {
    let text = text(name);
    assert!(text.contains(from), "{name} has no {from}");
    SystemModel::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_named_with_line_field_and_range() {
    let cases = [
        ("size = \"32 KiB\"", "size = \"33 KiB\"", "l1i.size: 33792 is not ways times line"),
        ("size = \"32 KiB\"", "size = \"32\"", "l1i.size: \"32\" has no unit; units: B, KiB"),
        ("size = \"32 KiB\"", "size = \"32 KB\"", "l1i.size: \"32 KB\" has an unknown unit"),
        (
            "size = \"32 KiB\"",
            "size = 32768",
            "l1i.size: integer `32768` is given; allowed: a text with",
        ),
        ("size = \"32 KiB\"", "", "l1i.size: is missing; allowed: a text with its unit, as"),
        ("size = \"32 KiB\"", "size = \"32 KiB\"\nsize_bytes = 1", "allowed: one of them"),
        ("ways = 8", "ways = 0", "l1i.ways: 0 is not in 1..=64"),
        ("ways = 8", "ways = -1", "l1i.ways: -1 is not in 1..=64"),
        (
            "ways = 8",
            "ways = \"8\"",
            "l1i.ways: string \"8\" is given; allowed: whole numbers in 1..=",
        ),
        ("line = \"64 B\"", "line = \"48 B\"", "l1i.line: 48 is no power of two in 4..=4096"),
        ("line = \"64 B\"", "line = \"8 KiB\"", "l1i.line: \"8 KiB\" is not in 4..=4096 B"),
        ("ways = 8", "", "l1i.ways: is missing; allowed: whole numbers in 1..=64"),
        ("ways = 8", "weighs = 8", "l1i.weighs: unknown field `weighs`, expected one of `size`"),
        ("mshrs = 24", "mshr = 24", "l1d.mshr: unknown field `mshr`, expected one of `size`"),
        ("mshrs = 24", "mshrs = 65", "l1d.mshrs: 65 is not in 1..=64"),
        (
            "\"stride\"",
            "\"strides\"",
            "l1d.prefetch: unknown variant `strides`, expected one of `none`, `next-line`",
        ),
        (
            "size = \"512 KiB\"",
            "size = \"16 KiB\"",
            "l2.size: 16384, and l1i that it includes has 32768",
        ),
        ("pages = [\"4 KiB\"", "pages = [\"8 KiB\"", "itlb.pages: allowed: some of \"4 KiB\""),
        ("size = \"32 KiB\"", "size_bytes = -1", "l1i.size_bytes: -1 is not in 4..="),
        ("cpus = 8", "cpus = 8\nnested = []", "nested: an array is given; allowed: a table"),
        ("cpus = 8", "cpus = 65", "cpus: 65 is not in 1..=64"),
        ("cpus = 8", "cpus = 8\nthreads_per_core = 3", "threads_per_core: does not divide cpus, 8"),
        (
            "protocol = \"mesi\"",
            "protocol = \"moesi\"",
            "protocol: unknown variant `moesi`, expected `msi` or",
        ),
        ("clock = \"4.7 GHz\"", "clock = \"4.7 GB\"", "clock: \"4.7 GB\" has an unknown unit"),
        ("clock = \"4.7 GHz\"", "", "clock: is missing"),
        ("l3_hit_cycles = 42", "", "l3_hit_cycles: is missing; allowed: 0..=1000000"),
        ("walk_entries = 64", "walk_entries = 9999", "walk_entries: 9999 is not in 0..=4096"),
        ("[l3]", "[l4]", "l4: unknown field `l4`, expected one of `name`"),
        ("protocol = \"mesi\"", "protocol = 5", "protocol: a text is wanted; allowed: `msi` or"),
        ("mshrs = 24", "mshrs = 24\ntrace = true", "l1d.trace: is only for l1i"),
        (
            "shared = true",
            "shared = \"yes\"",
            "l3.shared: string \"yes\" is given; allowed: true, false",
        ),
        ("[l3]", "[l3", "line "),
        ("width = 6 ", "width = 16 ", "core.width: 16 is not in 1..=15"),
        ("mshrs = 24  ", "mshr = 24  ", "core.data.mshr: unknown field `mshr`, expected one of"),
        ("mshrs = 24  ", "mshrs = -1  ", "core.data.mshrs: invalid value: integer `-1`"),
        (
            "reorder_entries = 256",
            "reorder_entries = 0",
            "core.window.reorder_entries: 0 is not in",
        ),
        (
            "load = { count = 3, latency_cycles = 4 }",
            "load = { count = 3, latency_cycles = 5 }",
            "l1_hit_cycles: 4 differs from core.units.load.latency_cycles, 5",
        ),
    ];
    for (from, to, says) in cases {
        let error = refused("zen3", from, to);
        assert!(error.starts_with("line ") && error.contains(says), "{to}: {error}");
    }
    let text = text("zen3").replacen("ways = 8", "ways = 0", 1);
    let line = text.lines().position(|line| line == "ways = 0").unwrap() + 1;
    let error = SystemModel::parse(&text).unwrap_err();
    assert_eq!((error.line, error.field.as_str()), (Some(line), "l1i.ways"));
}

#[test]
fn parts_must_fit_each_other() {
    let error = refused(
        "cortex-a55",
        "size = \"128 KiB\"\nways = 4\nline = \"64 B\"",
        "size = \"128 KiB\"\nways = 4\nline = \"128 B\"",
    );
    assert!(error.contains("l2.line: 128 under lines of l1i; allowed: 64"), "{error}");
    let error = refused("golden-cove", "[dtlb_large]", "[dtlb_larger]");
    assert!(error.contains("dtlb_larger: unknown field"), "{error}");
    let error = refused("t1", "l2_hit_cycles = 20", "l2_hit_cycles = 20\nl3_hit_cycles = 40");
    assert!(error.contains("l3_hit_cycles: is only for machines with l3"), "{error}");
    let error = refused("r4400-smp8", "dma = \"invalidate\"", "walk_entries = 4");
    assert!(error.contains("walk_entries: has no effect"), "{error}");
}

/// The text of a model without its lines with `field = ...`, and without its tables of these names.
fn without(text: &str, tables: &[&str], fields: &[&str]) -> String {
    let mut is_kept = true;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            is_kept = !tables.iter().any(|table| line.starts_with(&format!("[{table}]")));
        }
        if is_kept && !fields.iter().any(|field| line.starts_with(&format!("{field} ="))) {
            kept += &format!("{line}\n");
        }
    }
    kept
}

#[test]
fn a_machine_may_have_no_second_level() {
    let r4400 = text("r4400-1994");
    let alone = without(&r4400, &["l2"], &["l2_hit_cycles"]);
    let model = SystemModel::parse(&alone).unwrap();
    assert_eq!((&model.l2, model.l2_hit_cycles, model.outer().count()), (&None, None, 0));
    let drawn = draw(&model);
    assert!(!drawn.contains("L2") && drawn.contains("\n└ memory"), "{drawn}");
    let refused = model.blocking().unwrap_err().to_string();
    assert!(refused.contains("has no l2, which the timed level does not run"), "{refused}");
    let changed = SystemModel::parse(&set(&alone, &["l1d.size=32KiB"]).unwrap()).unwrap();
    assert_eq!(changed.l1d.size_bytes, 32 << 10);

    let error = |text: &str| SystemModel::parse(text).unwrap_err().to_string();
    let no_latency = error(&without(&r4400, &[], &["l2_hit_cycles"]));
    assert!(no_latency.contains("l2_hit_cycles: is missing"), "{no_latency}");
    let no_level = error(&without(&r4400, &["l2"], &[]));
    assert!(no_level.contains("l2_hit_cycles: is only for machines with l2"), "{no_level}");
    let only_third = error(&without(&text("zen3"), &["l2"], &["l2_hit_cycles"]));
    assert!(only_third.contains("l3: is only for machines with l2"), "{only_third}");
    let devices = alone.replacen("dma = \"invalidate\"", "dma = \"allocate\"", 1);
    assert!(devices != alone && error(&devices).contains("dma: \"allocate\" without a level"));
}

#[test]
fn fields_are_set_from_outside() {
    let changed = |name: &str, change: &str| {
        SystemModel::parse(&set(&text(name), &[change]).unwrap()).unwrap()
    };
    // The last level may have any odd number of slices, each of a power of two of sets.
    for (size, ways) in [("300MiB", 15), ("480MiB", 16), ("36MiB", 12), ("105MiB", 15)] {
        let assignments = [format!("l3.size={size}"), format!("l3.ways={ways}")];
        let text = set(&text("zen3"), &assignments.each_ref().map(String::as_str)).unwrap();
        assert_eq!(SystemModel::parse(&text).unwrap().l3.unwrap().ways, ways);
    }
    let exits = |assignments: &[&str]| {
        let assignments: Vec<String> =
            assignments.iter().map(|assignment| format!("host_exits.{assignment}")).collect();
        let assignments: Vec<&str> = assignments.iter().map(String::as_str).collect();
        let text = set(&text("zen3"), &assignments).map_err(|error| error.to_string())?;
        Ok::<_, String>(SystemModel::parse(&text).unwrap().applied_exits())
    };
    assert_eq!(exits(&["timer_cycles=20000"]).unwrap(), None, "they are only stated");
    let costs = ["cpuid_cycles=0", "timer_cycles=20000", "ipi_cycles=7", "interrupt_cycles=8"];
    let applied = exits(&[&costs[..], &["applied=true"]].concat()).unwrap().unwrap();
    assert_eq!((applied.timer_cycles, applied.cpuid_cycles), (20_000, 0));
    let error = exits(&[&costs[1..], &["applied=true"]].concat()).unwrap_err();
    assert!(error.contains("needs all costs"), "a cost that is not stated is not 0: {error}");
    assert!(exits(&["applied=true"]).unwrap_err().contains("needs all costs"));
    // 4.7 million cycles are a millisecond of zen3.
    let long =
        ["cpuid_cycles=0", "timer_cycles=1000000", "ipi_cycles=0", "interrupt_cycles=1000000"];
    exits(&[&long[..], &["applied=true"]].concat()).unwrap();
    let slow = long.map(|field| format!("host_exits.{field}"));
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    let slow = [&slow[..], &["host_exits.applied=true", "clock=100MHz"]].concat();
    let error = set(&text("zen3"), &slow).unwrap_err().to_string();
    assert!(error.contains("a tick takes more than 1 ms by exits alone"), "{error}");
    assert_eq!(changed("zen3", "l3.size=64MiB").l3.unwrap().size_bytes, 64 << 20);
    assert_eq!(changed("r4400-1994", "l2.size=4MiB").l2.unwrap().size_bytes, 4 << 20);
    assert_eq!(changed("r4400-1994", "l1i.size_bytes=8192").l1i.size_bytes, 8192);
    assert_eq!(changed("r4400-1994", "memory_cycles = 200").memory_cycles, 200);
    assert_eq!(changed("r4400-1994", "clock=1GHz").clock_hz, 1_000_000_000);
    assert!(changed("zen3", "l2.replacement=random") != changed("zen3", "l2.ways=8"));
    assert_eq!(changed("zen3", "dtlb.pages=[\"4 KiB\"]").dtlb.pages_bytes, [4096]);
    assert_eq!(changed("zen3", "cpus=4").cpus, 4);
    let core = |change: &str| changed("zen3", change).core.unwrap();
    assert_eq!(core("core.width=4").width, 4);
    assert_eq!(
        core("core.window.unresolved_branches=8").window.unwrap().unresolved_branches,
        Some(8)
    );
    assert_eq!(core("core.units.load.count=1").units.load.count, 1);
    assert_eq!(core("core.units.load.interval_cycles=2").units.load.interval_cycles, 2);
    // Neither of the two changes alone makes a valid cache; both do, in either order.
    for both in [["l1d.size=48KiB", "l1d.ways=12"], ["l1d.ways=12", "l1d.size=48KiB"]] {
        let l1d = SystemModel::parse(&set(&text("zen3"), &both).unwrap()).unwrap().l1d;
        assert_eq!((l1d.size_bytes, l1d.ways), (48 << 10, 12));
        let error = set(&text("zen3"), &both[..1]).unwrap_err().to_string();
        assert!(error.contains("is not ways times"), "{error}");
    }
    let two = set(&text("zen3"), &["l3.ways=8", "l2.ways=0"]).unwrap_err().to_string();
    assert!(two.starts_with("--set l3.ways=8 --set l2.ways=0: l2.ways"), "{two}");
    for (change, says) in [
        ("l2.size", "is not FIELD=VALUE"),
        ("l2.size=5", "l2.size: integer `5` is given"),
        ("l2.size=5MiB", "l2.size: 5242880 is not ways times"),
        ("l2.weighs=5", "l2.weighs: unknown field `weighs`, expected one of `size`"),
        ("l9.size=4MiB", "l9: unknown field"),
        ("a.b.c=1", "=1: a: unknown field"),
        ("core.x.y=1", "core.x: unknown field `x`"),
        ("a.b.c.d.e.f=1", "no valid field name"),
        ("=1", "no valid field name"),
        ("name.x=1", "is no table"),
        ("l2.size=\"4 MiB\"\nx", "l2.size"),
    ] {
        let error = set(&text("zen3"), &[change]).unwrap_err().to_string();
        assert!(error.starts_with("--set ") && error.contains(says), "{change}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = SystemModel::parse(&text);
    }

    /// Real models with a piece removed, repeated or overwritten.
    #[test]
    fn no_broken_model_makes_it_panic(
        which in 0usize..18,
        at in any::<prop::sample::Index>(),
        bytes in 0usize..40,
        new in prop_oneof!["[0-9]{1,25}", "\\PC{0,10}", "[-.=\"\\[\\]{}\n#]{0,6}"],
        change in "[a-z0-9_.]{1,12}=[a-zA-Z0-9 \"\\[\\]]{0,8}",
    ) {
        let text = &models()[which].1;
        let mut start = at.index(text.len());
        while !text.is_char_boundary(start) { start -= 1; }
        let mut end = (start + bytes).min(text.len());
        while !text.is_char_boundary(end) { end += 1; }
        let broken = format!("{}{new}{}", &text[..start], &text[end..]);
        if let Ok(model) = SystemModel::parse(&broken) {
            let _ = draw(&model);
            let _ = model.blocking();
            prop_assert!(model.l1d.cache().sets().is_power_of_two());
        }
        let _ = set(&broken, &[&change]);
        if let Ok(changed) = set(text, &[&change]) {
            prop_assert!(SystemModel::parse(&changed).is_ok());
        }
    }
}
