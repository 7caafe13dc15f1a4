//! `irqlab reproduce` as a user types it. Its measurements take minutes, so they are not tested here. Unit tests
//! cover its tables, and the tests of `footprint` cover its guests.

use crate::support::check_refused;

#[test]
fn papers_and_models_are_named() {
    check_refused(&["reproduce"], "<PAPER>");
    check_refused(&["reproduce", "moby-dick"], "possible values: footprint-1999");
    let paper = ["reproduce", "footprint-1999"];
    let refused = |options: &[&str], says: &str| check_refused(&[&paper, options].concat(), says);
    refused(&["--models", "pdp-11"], "no model \"pdp-11\"; there are: ");
    refused(&["--repetitions", "16"], "allowed for this paper: 24 to 100000");
    refused(&["--pictures"], "--pictures does not apply to this paper");
    refused(&["--limit", "0"], "allowed: 1us to 168h");
    for paper in ["handlers-ia32", "noise-t1"] {
        let refused = |options: &[&str], says: &str| {
            check_refused(&[&["reproduce", paper], options].concat(), says);
        };
        refused(&["--models", "pdp-11"], "no model \"pdp-11\"; there are: ");
        refused(&["--repetitions", "16"], "--repetitions does not apply to this paper");
        refused(&["--on", "live"], "--on does not apply to this paper");
    }
    check_refused(
        &["reproduce", "noise-t1", "--models", "t1,zen3"],
        "exactly one model for this paper",
    );
    check_refused(&["reproduce", "noise-t1", "--models", "zen3"], "the paper's machine has 4 (t1)");
    check_refused(&["reproduce", "noise-t1", "--short"], "--short does not apply to this paper");
    check_refused(
        &["reproduce", "simos-1995", "-d", "1s"],
        "--duration does not apply to this paper",
    );
    let names = "its machines: r4400-1994, r10000-1996, next-1998, r4400-smp8";
    check_refused(&["reproduce", "simos-1995", "--models", "zen3"], names);
    check_refused(&["reproduce", "simos-1995", "--workload", "nosuch"], "no workload");
    check_refused(
        &["reproduce", "noise-t1", "-d", "1s"],
        "--duration does not apply to this paper",
    );
}
