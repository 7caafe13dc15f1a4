//! Files that the user names. irqlab writes them completely. It replaces only a regular file, and only with
//! --force.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use crate::support::Place;

/// A run that is part of the repository.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/golden/run-2");

/// Verbs that write a file. `FILE` stands for the file. Each verb refuses an invalid file before it works.
const WRITERS: [&str; 10] = [
    "export RUN --format folded -o FILE",
    "export RUN --format openmetrics -o FILE",
    "export RUN --format csv --table handlers -o FILE",
    "report RUN -o FILE",
    "noise -d 10ms --loop fwq --picture FILE",
    "bench model --on live --save FILE",
    "machines fit -o FILE",
    "sim boot --detail count --record FILE -- true",
    "sim workload progdev --record FILE",
    "sim workload progdev --force --record FILE",
];

/// The arguments of a writer, with `--force` if `is_forced`.
fn writer_arguments<'a>(
    writer: &'a str,
    file: &'a str,
    run: &'a str,
    is_forced: bool,
) -> Vec<&'a str> {
    let named = |word: &'a str| match word {
        "FILE" => file,
        "RUN" => run,
        unchanged => unchanged,
    };
    let mut arguments: Vec<&str> = writer.split_whitespace().map(named).collect();
    if is_forced && !arguments.contains(&"--force") {
        arguments.insert(
            if arguments[0] == "export" || arguments[0] == "report" { 1 } else { 2 },
            "--force",
        );
        if arguments[0] == "noise" {
            arguments.swap(1, 2);
        }
    }
    arguments
}

/// A directory with a regular file and a file of each other kind.
fn trapped() -> Place {
    let workspace = Place::new();
    let path = |name: &str| workspace.path().join(name);
    fs::write(path("victim"), "mine").unwrap();
    symlink("victim", path("link")).unwrap();
    fs::create_dir(path("directory")).unwrap();
    let (fifo, mode) =
        (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), fifo, mode, 0).unwrap();
    workspace
}

/// Asserts that nothing has changed in [`trapped`].
fn assert_untouched(workspace: &Place, what: &str) {
    let path = |name: &str| workspace.path().join(name);
    assert_eq!(fs::read_to_string(path("victim")).unwrap(), "mine", "{what}");
    assert!(path("link").is_symlink(), "{what}");
    assert!(fs::metadata(path("fifo")).unwrap().file_type().is_fifo(), "{what}");
    assert_eq!(fs::read_dir(path("directory")).unwrap().count(), 0, "{what}");
    let mut names = workspace.names();
    names.retain(|name| name != "cache" && name != "irqlab-runs");
    assert_eq!(names, ["directory", "fifo", "link", "victim"], "{what}");
    let device = fs::metadata("/dev/full").unwrap().file_type();
    assert!(device.is_char_device(), "{what}");
}

#[test]
fn each_writer_refuses_what_is_no_regular_file_with_and_without_force() {
    let workspace = trapped();
    for writer in WRITERS {
        for (file, is_forced, says) in [
            ("victim", false, "it exists already (--force replaces it)"),
            ("link", true, "it is a symbolic link; only a regular file is replaced"),
            ("fifo", true, "it is a FIFO; only a regular file is replaced"),
            ("directory", true, "it is a directory; only a regular file is replaced"),
            ("/dev/full", true, "it is a device; only a regular file is replaced"),
            ("none/file", true, "No such file or directory"),
        ] {
            if file == "victim" && writer.contains("--force") {
                continue;
            }
            // `machines fit` makes the directory of its file.
            if file == "none/file" && writer.starts_with("machines fit") {
                continue;
            }
            let arguments = writer_arguments(writer, file, GOLDEN, is_forced);
            let mut command = workspace.irqlab(&arguments);
            command.env("IRQLAB_CACHE", workspace.path().join("cache"));
            let ended = crate::support::CommandOutput::of(&mut command);
            ended.assert_code(2).assert_says(says);
            assert_untouched(&workspace, &format!("{arguments:?}"));
        }
    }
}

#[test]
fn a_run_is_changed_by_no_writer() {
    let workspace = Place::new();
    let model_arguments = "signal model --schemes interrupt --rates 10k -q --out run";
    workspace.run(&model_arguments.split(' ').collect::<Vec<_>>()).assert_code(0);
    let manifest = fs::read(workspace.path().join("run/manifest.json")).unwrap();
    for file in ["run/manifest.json", "run/tables/x.csv", "run/new"] {
        for writer in &WRITERS[..4] {
            let arguments = writer_arguments(writer, file, GOLDEN, true);
            workspace.run(&arguments).assert_code(2).assert_says("in the run");
        }
    }
    assert_eq!(fs::read(workspace.path().join("run/manifest.json")).unwrap(), manifest);
    assert!(!workspace.path().join("run/new").exists());
    workspace.run(&["show", "run"]).assert_code(0);
}

#[test]
fn force_replaces_a_regular_file_and_a_dash_is_standard_output() {
    let workspace = Place::new();
    let export = ["export", GOLDEN, "--format", "openmetrics", "-o"];
    let run = |file: &str, force: bool| {
        let force = if force { &["--force"][..] } else { &[] };
        workspace.run(&[&export[..], &[file], force].concat())
    };
    let text = run("-", false).assert_code(0).out.clone();
    assert!(!text.is_empty());
    run("out", false).assert_code(0);
    fs::write(workspace.path().join("out"), "old").unwrap();
    run("out", true).assert_code(0);
    assert_eq!(fs::read_to_string(workspace.path().join("out")).unwrap(), text);
    assert_eq!(workspace.names(), ["out"]);
    // `-` is the only name for standard output.
    run("/dev/stdout", true).assert_code(2).assert_says("- is standard output");
    for arguments in
        ["machines fit -o -", "bench model --on live --save -", "noise --loop fwq --picture -"]
    {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        workspace
            .run(&arguments)
            .assert_code(2)
            .assert_says("- is standard output, where the results go");
    }
    assert_eq!(workspace.names(), ["out"]);
}

#[test]
fn manual_pages_replace_none_without_force() {
    let workspace = Place::new();
    workspace.run(&["man", "pages"]).assert_code(0);
    let pages = workspace.path().join("pages");
    let count = |pages: &Path| fs::read_dir(pages).unwrap().count();
    let page_count = count(&pages);
    assert!(page_count > 20 && pages.join("irqlab-handlers.1").is_file(), "{page_count}");
    fs::remove_file(pages.join("irqlab.1")).unwrap();
    symlink("irqlab-handlers.1", pages.join("irqlab-show.1.link")).unwrap();
    workspace.run(&["man", "pages"]).assert_code(2).assert_says("(--force replaces it)");
    assert!(!pages.join("irqlab.1").exists(), "no page is written");
    workspace.run(&["man", "pages", "--force"]).assert_code(0);
    assert_eq!(count(&pages), page_count + 1);
}
