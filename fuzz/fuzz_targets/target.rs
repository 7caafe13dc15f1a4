//! The target that the program is named after: its body is in `crates/fuzz_bodies`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static BODY: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env!("CARGO_BIN_NAME");
    fuzz_bodies::target(name).unwrap_or_else(|| panic!("no target {name}")).body
});

fuzz_target!(|data: &[u8]| BODY(data));
