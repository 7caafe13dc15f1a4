//! The readers of untrusted data, each as a function that takes any bytes and must return.
//!
//! `fuzz/` has a libFuzzer target for each of [`TARGETS`], and the test `corpus` of this crate runs each
//! over its kept inputs and changed copies of them, so that neither can rot. A function panics when a
//! reader does, or when a result breaks a promise: printed text from an untrusted run has no control
//! characters. Errors that readers return are expected.

mod guest_kernel;
mod host;
mod mutation;
mod run;
mod seeds;
mod simulated;
mod words;

pub use mutation::Mutator;
pub use seeds::seeds;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its program in `fuzz/`, and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Gives the bytes to a reader.
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

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// A directory of this thread, in memory where there is such a place: a target runs thousands of
/// times a second.
fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a scratch directory")
}
