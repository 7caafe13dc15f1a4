//! How the program is linked when it is for a bare machine: at a fixed place, with nothing but itself.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    if env::var_os("CARGO_FEATURE_FREESTANDING").is_none() {
        return;
    }
    let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = format!("-T{directory}/link.ld");
    let flags =
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", &script];
    for flag in flags {
        println!("cargo:rustc-link-arg-bins={flag}");
    }
}
