//! Tells the crate which compiler builds it: programs are what the compiler makes of them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version: Vec<String> =
        text.unwrap_or_default().split_whitespace().take(2).map(str::to_owned).collect();
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    // The profile of packages optimises across crates (Cargo.toml), which no variable tells.
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let across = if out.iter().any(|part| part == "dist") { " across crates" } else { "" };
    let version = version.join(" ");
    println!("cargo:rustc-env=KERNELS_COMPILED={version}, opt-level {level}{across}");
}
