//! The distribution's `perf` and its libraries, from this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The paths at which distributions install it.
const PERF: &str = "/usr/bin/perf";
const ELF: &[u8] = b"\x7fELF";

/// `perf` and its libraries, each with its path below the root. The error names the missing part.
pub fn perf() -> Result<Vec<(String, Vec<u8>)>, String> {
    let program = fs::read(PERF).map_err(|error| format!("{PERF}: {error}"))?;
    if !program.starts_with(ELF) {
        return Err(format!("{PERF} is not the program itself"));
    }
    let output = Command::new("ldd").arg(PERF).output().map_err(|error| format!("ldd: {error}"))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut files = vec![(below_root(PERF), program)];
    for line in listed.lines() {
        // "NAME => PATH (ADDRESS)", or "PATH (ADDRESS)" of the loader.
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        if let Some(path) = path.filter(|path| Path::new(path).is_file()) {
            let content = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
            files.push((below_root(path), content));
        }
    }
    if files.len() < 2 {
        return Err(format!("ldd names no library of {PERF}"));
    }
    Ok(files)
}

fn below_root(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}
