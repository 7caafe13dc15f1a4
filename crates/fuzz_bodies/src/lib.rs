//! The fuzz targets: each reader of untrusted data, as a function that takes any bytes and must return.
//!
//! `fuzz/` has a libFuzzer program for each of [`TARGETS`]. The test `corpus` of this crate runs each target with its
//! kept inputs and with changed copies of them, so every build checks the targets.
//!
//! A target panics if a reader panics, or if a result breaks a promise. An example of a promise: text that is printed
//! from an untrusted run has no control characters. Errors that readers return are expected.

mod guest_kernel;
mod host;
mod mutation;
mod run;
mod seeds;
mod simulated;
mod words;

pub use mutation::Mutator;
pub use seeds::seeds;

/// A reader of untrusted bytes, to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target, of its program in `fuzz/`, and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Passes the bytes to a reader.
    pub body: fn(&[u8]),
}

pub const TARGETS: [Target; 15] = [
    Target { name: "manifest", body: run::manifest },
    Target { name: "parquet", body: run::parquet },
    Target { name: "compare", body: run::compare },
    Target { name: "machine_model", body: words::machine_model },
    Target { name: "machine_set", body: words::machine_set },
    Target { name: "signal_csv", body: words::signal_csv },
    Target { name: "option_words", body: words::option_words },
    Target { name: "annotation", body: guest_kernel::annotation },
    Target { name: "annotation_file", body: guest_kernel::annotation_file },
    Target { name: "btf", body: guest_kernel::btf },
    Target { name: "kallsyms", body: guest_kernel::kallsyms },
    Target { name: "kernel_image", body: guest_kernel::kernel_image },
    Target { name: "plugin_record", body: simulated::plugin_record },
    Target { name: "guest_response", body: simulated::guest_response },
    Target { name: "host_files", body: host::host_files },
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Makes a temporary directory, in memory (/dev/shm) if possible: a target writes files thousands of times per second.
fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let directory =
        if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    directory.expect("a scratch directory")
}
