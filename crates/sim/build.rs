//! Builds the guest's first process (`crates/guest`) and hands it to `include_bytes!`.
//!
//! It is embedded, so that `irqlab` stays one file and its guest never is of another version. A
//! build script starts cargo for it, since a dependency cannot be linked otherwise than what uses
//! it: the guest is static and aborts on panic. It has its own target directory, so that the two
//! cargos do not wait for each other.
//!
//! Where it can't be built (another processor, no static libc), irqlab is built without it:
//! only `irqlab sim` then has a reason to complain, and names this one.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let manifest = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../guest/Cargo.toml");
    println!("cargo:rerun-if-changed=../guest");
    println!("cargo:rerun-if-changed=build.rs");
    let (program, reason) = match build(&manifest, &out.join("guest-target")) {
        Ok(program) => (program, String::new()),
        Err(reason) => {
            println!("cargo:warning=irqlab sim will not boot: {reason}");
            (Vec::new(), reason)
        }
    };
    fs::write(out.join("guest"), program)?;
    fs::write(out.join("guest-missing"), reason)?;
    Ok(())
}

fn build(manifest: &Path, target_dir: &Path) -> Result<Vec<u8>, String> {
    if env::var("TARGET").as_deref() != Ok(TARGET) {
        return Err(format!("the guest's first process is built on {TARGET} only"));
    }
    let cargo = env::var_os("CARGO").ok_or("no CARGO")?;
    let output = Command::new(cargo)
        .args(["build", "--release", "--frozen", "--quiet", "--target", TARGET])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target_dir)
        // At a fixed address, so that its own symbols need no relocation either.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\x1f-Crelocation-model=static")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // Clippy's and the like are for the workspace, not for this build.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rfind(|line| line.contains("error"));
        return Err(format!(
            "crates/guest cannot be linked statically ({}); it needs a static libc (Debian: \
             libc6-dev, Fedora: glibc-static)",
            last.unwrap_or("no reason given")
        ));
    }
    let program = target_dir.join(TARGET).join("release/guest");
    fs::read(&program).map_err(|error| format!("{}: {error}", program.display()))
}
