//! `irqlab bench model` and `irqlab machines fit`: their refusals and their files, without a simulated machine.

use std::fs;

use crate::support::{Place, alone, check_refused, rows};

#[test]
fn unknown_names_are_refused_with_the_known_names() {
    check_refused(&["bench", "model", "--only", "add"], "names no kernel and no group; groups: ");
    check_refused(&["bench", "model", "--measured", "z80"], "no data set \"z80\"; there are: ");
    check_refused(&["bench", "model", "--on", "sim:z80"], "no model \"z80\"; there are: ");
    check_refused(&["bench", "model", "--windows", "1"], "6..=1000");
    check_refused(&["bench", "model", "--processes", "0"], "1..=100");
    let both = ["bench", "model", "--on", "live", "--measured", "zen3"];
    check_refused(&both, "add --on sim:MODEL");
}

#[test]
fn kept_data_with_a_mistake_are_refused_by_line() {
    let workspace = Place::new();
    fs::write(workspace.path().join("mine.tsv"), "# irqlab-measured: 1\n# cpuid: x\n").unwrap();
    let ended = workspace.run(&["bench", "model", "--on", "sim:zen3", "--measured", "./mine.tsv"]);
    ended.assert_code(2).assert_says("./mine.tsv: line 2: cpuid \"x\" is not VENDOR FAMILY MODEL");
}

#[test]
fn a_model_of_another_processor_is_refused_with_what_helps() {
    let workspace = Place::new();
    // The model t1 names no processor, because nobody has a T1 to measure.
    let ended = workspace.run(&["bench", "model", "--on", "sim:t1"]);
    ended.assert_code(4).assert_says("the model t1 does not name the processors that it describes");
    ended.assert_says("irqlab machines fit");
    let ended = workspace.run(&["bench", "model", "--on", "sim:t1", "--measured", "zen3"]);
    ended.assert_code(4).assert_says("AuthenticAMD 25 1");
    assert_eq!(workspace.names(), [""; 0], "nothing is left");
}

#[test]
fn without_a_fitted_model_sim_host_says_what_makes_one() {
    let workspace = Place::new();
    let mut command = workspace.irqlab(&["bench", "model", "--on", "sim:host"]);
    let ended = crate::support::CommandOutput::of(command.env("XDG_CONFIG_HOME", workspace.path()));
    ended
        .assert_code(4)
        .assert_says("there is no model of this machine")
        .assert_says("irqlab machines fit");
}

#[test]
fn a_model_that_lacks_a_field_is_refused_by_the_name_of_the_field() {
    let workspace = Place::new();
    let complete = include_str!("../../../../machines/zen3.toml");
    let without = |start: &str| -> String {
        let lines = complete.lines().filter(|line| !line.starts_with(start));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let core_start = complete.find("[core]").unwrap_or_default();
    for (text, says) in [
        (without("l2_hit_cycles"), "mine.toml: line 1: l2_hit_cycles: is missing"),
        (without("width"), "core.width: is missing"),
        (complete[..core_start].to_owned(), "has no [core]"),
    ] {
        fs::write(workspace.path().join("mine.toml"), text).unwrap();
        let arguments = ["bench", "model", "--on", "sim:./mine.toml", "--measured", "zen3"];
        workspace.run(&arguments).assert_code(2).assert_says(says);
    }
}

/// A fit needs the simulator. irqlab checks this before it measures for minutes.
#[test]
fn without_qemu_a_model_is_neither_compared_nor_fitted() {
    let workspace = Place::new();
    let compare = ["bench", "model", "--on", "sim:zen3", "--measured", "zen3"];
    let fit = ["machines", "fit", "-o", "mine.toml"];
    for arguments in [&compare[..], &fit] {
        let mut command = workspace.irqlab(arguments);
        command.env_remove("IRQLAB_QEMU");
        command.env("XDG_CACHE_HOME", workspace.path()).env("PATH", workspace.path());
        let ended = crate::support::CommandOutput::of(&mut command);
        ended.assert_code(4).assert_says("no QEMU").assert_says("irqlab sim setup");
    }
    assert!(!workspace.path().join("mine.toml").exists());
}

#[test]
fn a_fit_replaces_no_file_unless_told_to() {
    let workspace = Place::new();
    fs::write(workspace.path().join("mine.toml"), "").unwrap();
    let ended = workspace.run(&["machines", "fit", "-o", "mine.toml"]);
    ended
        .assert_code(2)
        .assert_says("cannot write mine.toml: it exists already (--force replaces it)");
}

#[test]
fn the_list_has_all_kernels_and_a_selection_some() {
    let workspace = Place::new();
    let all = workspace.run(&["bench", "model", "--list"]);
    let some =
        workspace.run(&["bench", "model", "--list", "--only", "strings,arithmetic/add_chain"]);
    let [all, some] = [all, some].map(|ended| ended.assert_code(0).out.lines().count());
    assert!(all >= 150 && some > 5 && some < all, "{all}, {some}");
}

/// The windows of both processes count. On a busy machine one process may have no undisturbed window, but not in
/// each of five runs. If both have too few, irqlab says so.
#[cfg(target_arch = "x86_64")]
#[test]
fn kernels_are_measured_in_several_processes() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["bench", "model", "--on", "live", "--only", "add_chain", "--windows", "6"];
    let has_windows_of_both = |_| {
        let ended =
            workspace.run(&[&arguments[..], &["--processes", "2", "--json", "-q"]].concat());
        if ended.code == Some(4) {
            return ended.assert_says("were undisturbed").code == Some(4);
        }
        let run = ended.assert_code(0).json();
        assert_eq!(run["settings"]["processes"], 2);
        rows(&run, "kernels")[0]["windows"].as_u64().unwrap() > 6
    };
    assert!((0..5).any(has_windows_of_both), "no run has more windows than one process gives");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn measured_data_can_be_saved() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments =
        ["bench", "model", "--on", "live", "--only", "add_chain,load_chain", "--windows", "6"];
    let ended = workspace
        .run(&[&arguments[..], &["--save", "mine.tsv", "--json", "-q", "--out", "run"]].concat());
    if ended.code == Some(4) {
        // On a busy machine too few windows may have been undisturbed.
        ended.assert_says("were undisturbed");
        return;
    }
    let run = ended.assert_code(0).json();
    assert!(!rows(&run, "kernels").is_empty(), "{run}");
    let kept = fs::read_to_string(workspace.path().join("mine.tsv")).unwrap();
    assert!(kept.starts_with("# irqlab-measured: 1\n"), "{kept}");
    for row in rows(&run, "kernels") {
        let name = row["kernel"].as_str().unwrap();
        assert!(kept.lines().any(|line| line.starts_with(&format!("{name}\t"))), "{name}: {kept}");
    }
}

#[test]
fn a_fit_to_kept_data_needs_a_file_and_data_that_exist() {
    let workspace = Place::new();
    let fit = ["machines", "fit", "--measured"];
    for (options, says) in [
        (&["zen3"][..], "--output <FILE>"),
        (&["zen3", "-o", "m.toml", "-c", "0"], "cannot be used with"),
        (&["zen3", "-o", "m.toml", "--windows", "9"], "cannot be used with"),
        (&["zen9", "-o", "m.toml"], "no data set \"zen9\""),
        (&["./absent.tsv", "-o", "m.toml"], "absent.tsv"),
    ] {
        let arguments = [&fit[..], options].concat();
        workspace.run(&arguments).assert_code(2).assert_says(says);
    }
    let zen3 = workspace.run(&["machines", "zen3", "--toml"]).assert_code(0).out.clone();
    let exits = format!("{zen3}\n[host_exits]\ntimer_cycles = 5\n");
    fs::write(workspace.path().join("exits.toml"), exits).unwrap();
    let arguments = [&fit[..], &["zen3", "-o", "m.toml", "--preset", "./exits.toml"]].concat();
    workspace.run(&arguments).assert_code(2).assert_says("remove its table [host_exits]");
    fs::write(workspace.path().join("broken.tsv"), "# irqlab-measured: 1\nkernel\n").unwrap();
    let arguments = [&fit[..], &["./broken.tsv", "-o", "m.toml"]].concat();
    workspace.run(&arguments).assert_code(2).assert_says("broken.tsv: line 2");
    assert!(!workspace.path().join("m.toml").exists());
}
