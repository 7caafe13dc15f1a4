//! `--detail sampled`. Without QEMU the test says so and passes.

use serde_json::Value as Json;

use crate::machine::Checkpoint;
use crate::support::{Place, can_simulate, rows};

const COMMAND: &str = "seq 1 2000 | sort -r | md5sum; ls -lR /proc/sys/net >/dev/null";

/// Numbers of instructions and cycles.
type Executed = (f64, f64);

fn executed(row: &Json) -> Executed {
    (row["self_instructions"].as_f64().unwrap(), row["self_cycles"].as_f64().unwrap())
}

/// Instructions and cycles of a run without sampling: the sum over all contexts, and a function for each context.
fn contexts(run: &Json) -> (Executed, impl Fn(&str) -> Option<Executed> + use<>) {
    let all_cpus = rows(run, "contexts").iter().filter(|row| row["cpu"] == "all");
    let known = |row: &Json| (row["context"].as_str().unwrap().to_owned(), executed(row));
    let each: Vec<(String, Executed)> = all_cpus.map(known).collect();
    let sum =
        each.iter().fold((0.0, 0.0), |sum, (_, context)| (sum.0 + context.0, sum.1 + context.1));
    (sum, move |name| each.iter().find(|(known, _)| known == name).map(|(_, executed)| *executed))
}

/// The probability that at most `inside` of `stated` intervals hold the true value, if each interval holds it with
/// probability `each` (binomial distribution).
fn at_most(inside: u32, stated: u32, each: f64) -> f64 {
    let term = |number: u32| {
        let ways: f64 = (0..number)
            .map(|taken| f64::from(stated - taken) / f64::from(number - taken))
            .product();
        ways * each.powi(number.cast_signed()) * (1.0 - each).powi((stated - number).cast_signed())
    };
    (0..=inside).map(term).sum()
}

/// The seed, and addresses in the guest's program, decide which rows are outside their interval. Addresses differ
/// from build to build. So the test counts rows of several seeds. It fails if the number inside is as low as in one
/// of 10,000 samples.
///
/// Guest time differs a little from `ooo`, and decides when the reader of a pipe runs. So the test skips contexts
/// that executed other instructions than with `ooo`.
#[test]
fn a_sample_gives_the_cycles_of_the_whole_and_its_interval() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let checkpoint = Checkpoint { name: format!("test-sampled-{}", std::process::id()) };
    workspace.run(&["sim", "checkpoint", &checkpoint.name]).assert_code(0);
    let arguments = ["sim", "boot", "-q", "--from", &checkpoint.name, "--json", "--on"];
    let run =
        |options: &[&str]| workspace.run(&[&arguments[..], options, &["--", COMMAND]].concat());
    let unsampled = run(&["sim:zen3", "--detail", "ooo"]).assert_code(0).json();
    let sampled_with = |seed: &str| {
        let sampled = ["sim:zen3", "--detail", "sampled", "--sample-period", "10000"];
        let seed = ["--target", "50%", "--sample-seed", seed];
        run(&[&sampled[..], &seed].concat()).assert_code(0).json()
    };
    let first = sampled_with("1");
    assert_eq!(first["tables"], sampled_with("1")["tables"], "the same seed gives the same sample");

    let (sum, executed_unsampled) = contexts(&unsampled);
    let (mut inside, mut stated) = (0, 0);
    for sample in [&first, &sampled_with("2"), &sampled_with("3"), &sampled_with("4")] {
        let found = rows(sample, "sampled_cycles");
        let all = found.iter().find(|row| row["context"] == "all").expect("a row of all");
        // The cycles per instruction are compared. Twice a 95 % interval is four standard errors.
        let (instructions, cycles) = executed(all);
        let error = cycles / instructions / (sum.1 / sum.0) - 1.0;
        let interval = all["interval_ratio"].as_f64().unwrap();
        assert!(interval < 0.03 && error.abs() < 2.0 * interval, "{error}: {all}");
        for row in found {
            let bounds = [&row["self_cycles_low"], &row["self_cycles_high"]].map(Json::as_f64);
            if let ([Some(low), Some(high)], Some((instructions, cycles))) =
                (bounds, executed_unsampled(row["context"].as_str().unwrap()))
            {
                let is_same = (executed(row).0 / instructions - 1.0).abs() <= 0.002;
                stated += u32::from(is_same);
                inside += u32::from(is_same && (low..=high).contains(&cycles));
            } else if row["interval_ratio"].is_null() {
                assert!(row["self_cycles"].as_f64() > Some(0.0), "{row}");
            }
        }
    }
    let chance = at_most(inside, stated, 0.95);
    assert!(stated >= 20 && chance > 1e-4, "{inside} of {stated}: by a chance of {chance}");
    // Only the table of the sample has cycles of contexts.
    assert!(rows(&first, "contexts")[0].get("self_cycles").is_none());
    // Functional warming gives accesses no times.
    let partial =
        ["data_stall", "pipeline_stall", "fetch_wait", "data_wait", "fetch_walk", "data_walk"];
    for counter in partial {
        let column = format!("self_{counter}_cycles");
        assert!(rows(&unsampled, "contexts")[0].get(&column).is_some(), "{column}");
        assert!(rows(&first, "contexts")[0].get(&column).is_none(), "{column}");
        let absent = first["absent"].as_array().expect("absences");
        assert!(absent.iter().any(|absence| absence["what"] == column.as_str()), "{absent:?}");
    }

    // A sample that is too coarse is taken again.
    let finer = ["sim:zen3", "--detail", "sampled", "--sample-period", "100000", "--target", "2%"];
    let again = run(&finer).assert_code(0).json();
    let period = again["settings"]["sampling"]["period_instructions"].as_u64();
    assert!(period < Some(100_000), "{}", again["settings"]);
    let all = rows(&again, "sampled_cycles").iter().find(|row| row["context"] == "all");
    assert!(all.expect("a row of all")["interval_ratio"].as_f64() <= Some(0.02), "{all:?}");
    run(&["sim:t1", "--detail", "sampled"]).assert_code(2).assert_says("no out-of-order core");
}
