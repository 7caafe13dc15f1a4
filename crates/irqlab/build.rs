//! Gives the program its version: that of the crate, and in release builds the commit. Runs record the version, so a
//! number can be traced to the code that made it.
//!
//! Development builds do not state a commit: each commit would compile the program again.

use std::path::Path;
use std::process::Command;

/// Paths of the sources, from the root of the repository.
const SOURCES: [&str; 6] =
    ["crates", "machines", "papers", "workloads", "Cargo.toml", "Cargo.lock"];

/// The commit's first digits in the version.
const COMMIT_DIGITS: usize = 12;

fn main() {
    let crate_version = env!("CARGO_PKG_VERSION");
    println!("cargo::rerun-if-changed=build.rs");
    let commit = if std::env::var("PROFILE").as_deref() == Ok("release") { commit() } else { None };
    let version = match commit {
        // Build metadata, as semver.org writes them.
        Some(commit) => format!("{crate_version}+{commit}"),
        None => crate_version.to_owned(),
    };
    println!("cargo::rustc-env=IRQLAB_VERSION={version}");
}

/// The commit of the sources, with `.changed` if one of them differs from it. `None` outside of a Git work tree of irqlab.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // A source archive may lie in the work tree of another project.
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?) != root {
        return None;
    }
    // Each commit and each checkout appends a line to logs/HEAD. The branch's own file is no help: a packed branch has
    // none.
    for name in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        println!("cargo::rerun-if-changed={}", path.display());
    }
    for sources in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(sources).display());
    }
    let commit = git(&root, &["rev-parse", "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(SOURCES);
    let changes = git(&root, &status)?;
    let changed = if changes.is_empty() { "" } else { ".changed" };
    Some(format!("{}{changed}", commit.get(..COMMIT_DIGITS)?))
}

/// The output of a git command. `None` if it fails, or if there is no git.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    // Without optional locks, reading the state writes nothing.
    let mut command = Command::new("git");
    let output =
        command.arg("--no-optional-locks").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
