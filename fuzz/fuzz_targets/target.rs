//! The target that the program is named after: its body is in `crates/fuzz_bodies`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static BODY: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    // libFuzzer's own hook ends the program at each panic, also at one that is caught: `record` knows that the
    // Parquet decoder gives up in that way. One that is not caught still ends the program.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let name = env!("CARGO_BIN_NAME");
    fuzz_bodies::target(name).unwrap_or_else(|| panic!("no target {name}")).body
});

fuzz_target!(|data: &[u8]| BODY(data));
