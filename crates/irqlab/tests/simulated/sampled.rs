//! `--detail sampled`, by the command. Where there is no QEMU, says so and passes.

use serde_json::Value as Json;

use crate::machine::Checkpoint;
use crate::support::{Place, can_simulate, rows};

const COMMAND: &str = "seq 1 2000 | sort -r | md5sum; ls -lR /proc/sys/net >/dev/null";

/// Instructions and cycles.
type Executed = (f64, f64);

fn executed(row: &Json) -> Executed {
    (row["self_instructions"].as_f64().unwrap(), row["self_cycles"].as_f64().unwrap())
}

/// What all contexts executed, and each, of a run in which the core executed everything.
fn contexts(run: &Json) -> (Executed, impl Fn(&str) -> Option<Executed> + use<>) {
    let of_all = rows(run, "contexts").iter().filter(|row| row["cpu"] == "all");
    let known = |row: &Json| (row["context"].as_str().unwrap().to_owned(), executed(row));
    let each: Vec<(String, Executed)> = of_all.map(known).collect();
    let sum = each.iter().fold((0.0, 0.0), |sum, (_, one)| (sum.0 + one.0, sum.1 + one.1));
    (sum, move |name| each.iter().find(|one| one.0 == name).map(|one| one.1))
}

/// The probability that at most `inside` of `stated` intervals hold what each holds with probability `each`
/// (binomial distribution).
fn at_most(inside: u32, stated: u32, each: f64) -> f64 {
    let term = |number: u32| {
        let ways: f64 =
            (0..number).map(|at| f64::from(stated - at) / f64::from(number - at)).product();
        ways * each.powi(number.cast_signed()) * (1.0 - each).powi((stated - number).cast_signed())
    };
    (0..=inside).map(term).sum()
}

/// Which rows are outside depends on addresses in the guest's program, which differ from build to build, as
/// on the seed. So rows of several seeds are counted, and fewer inside than one sample in 10,000 has are wrong.
/// Guest time is not quite that of `ooo`, and decides when a pipe's reader runs: a context that executed other
/// instructions than at `ooo` has other cycles to state.
#[test]
fn a_sample_gives_the_cycles_of_the_whole_and_its_interval() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let checkpoint = Checkpoint { name: format!("test-sampled-{}", std::process::id()) };
    place.run(&["sim", "checkpoint", &checkpoint.name]).assert_code(0);
    let words = ["sim", "boot", "-q", "--from", &checkpoint.name, "--json", "--model"];
    let run = |more: &[&str]| place.run(&[&words[..], more, &["--", COMMAND]].concat());
    let whole = run(&["zen3", "--detail", "ooo"]).assert_code(0).json();
    let of_seed = |seed: &str| {
        let sampled = ["zen3", "--detail", "sampled", "--sample-period", "10000"];
        let seed = ["--target", "50%", "--sample-seed", seed];
        run(&[&sampled[..], &seed].concat()).assert_code(0).json()
    };
    let first = of_seed("1");
    assert_eq!(first["tables"], of_seed("1")["tables"], "the same seed gives the same sample");

    let (sum, of) = contexts(&whole);
    let (mut inside, mut stated) = (0, 0);
    for sample in [&first, &of_seed("2"), &of_seed("3"), &of_seed("4")] {
        let found = rows(sample, "sampled_cycles");
        let all = found.iter().find(|row| row["context"] == "all").expect("a row of all");
        // Per instruction, as above. Twice a 95 % interval is four standard errors.
        let (instructions, cycles) = executed(all);
        let error = cycles / instructions / (sum.1 / sum.0) - 1.0;
        let interval = all["interval_ratio"].as_f64().unwrap();
        assert!(interval < 0.03 && error.abs() < 2.0 * interval, "{error}: {all}");
        for row in found {
            let bounds = [&row["self_cycles_low"], &row["self_cycles_high"]].map(Json::as_f64);
            if let ([Some(low), Some(high)], Some((instructions, cycles))) =
                (bounds, of(row["context"].as_str().unwrap()))
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
    // All cycles of contexts are in the table of the sample.
    assert!(rows(&first, "contexts")[0].get("self_cycles").is_none());

    // A sample that is too coarse is taken again.
    let finer = ["zen3", "--detail", "sampled", "--sample-period", "100000", "--target", "2%"];
    let again = run(&finer).assert_code(0).json();
    let period = again["settings"]["sampling"]["period_instructions"].as_u64();
    assert!(period < Some(100_000), "{}", again["settings"]);
    let all = rows(&again, "sampled_cycles").iter().find(|row| row["context"] == "all");
    assert!(all.expect("a row of all")["interval_ratio"].as_f64() <= Some(0.02), "{all:?}");
    run(&["t1", "--detail", "sampled"]).assert_code(2).assert_says("no out-of-order core");
}
