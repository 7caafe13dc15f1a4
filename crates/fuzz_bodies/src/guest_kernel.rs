//! Fuzz targets for what describes a guest's kernel: its image, its symbols, its types (BTF), and annotations that
//! the user gives for it.

use std::cell::RefCell;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::LazyLock;

use sim::annotate::Annotations;
use sim::btf::Btf;
use sim::{GuestFacts, Symbols, kernel};

use crate::scratch;
use crate::seeds::{KALLSYMS, sample_btf};

/// A kernel with few symbols and types. Annotations in the seeds refer to these.
static FACTS: LazyLock<GuestFacts> = LazyLock::new(|| GuestFacts {
    release: "6.1".to_owned(),
    symbols: Some(Symbols::parse(KALLSYMS.as_bytes()).expect("symbols")),
    btf: Some(Btf::parse(sample_btf()).expect("types")),
    hz: Some(250),
    config: None,
});

/// A file in a temporary directory. Each thread has its own, and each input replaces the contents.
struct InputFile {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl InputFile {
    fn new(name: &str) -> InputFile {
        let directory = scratch();
        let path = directory.path().join(name);
        InputFile { _directory: directory, path }
    }
}

thread_local! {
    static TOML: RefCell<InputFile> = RefCell::new(InputFile::new("annotations.toml"));
    static IMAGE: RefCell<InputFile> = RefCell::new(InputFile::new("bzImage"));
}

/// Reads any lines as values of `--annotate`.
pub(crate) fn annotation(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A line that ends in .toml would name a file, which `annotation_file` tests.
    let annotations = text.lines().filter(|line| !line.ends_with(".toml"));
    let annotations: Vec<String> = annotations.map(str::to_owned).collect();
    black_box(Annotations::read(&annotations, true, &FACTS).ok());
}

/// Reads any bytes as the file of `--annotate FILE.toml`.
pub(crate) fn annotation_file(bytes: &[u8]) {
    TOML.with_borrow(|file| {
        fs::write(&file.path, bytes).expect("memory for a file");
        let annotations = [file.path.display().to_string()];
        black_box(Annotations::read(&annotations, false, &FACTS).ok());
    });
}

/// Reads any bytes as the types of a kernel, and looks up some types, members and parameters.
pub(crate) fn btf(bytes: &[u8]) {
    let Ok(types) = Btf::parse(bytes.to_vec()) else { return };
    black_box((types.len(), types.is_empty()));
    for (name, path) in [("task_struct", "se.runtime"), ("entity", "slots"), ("flags", "x")] {
        black_box(types.offset_of(name, path).ok());
        black_box(types.member(name, path).ok());
        let Ok(id) = types.type_named(name) else { continue };
        black_box((types.shape(id).ok(), types.bytes_of(id).ok(), types.name_of(id)));
        black_box(types.field(id, path).ok());
    }
    for parameter in types.parameters("do_open").unwrap_or_default() {
        black_box((types.shape(parameter.type_id).ok(), types.name_of(parameter.type_id)));
        black_box(parameter);
    }
}

/// Reads any bytes as the content of `/proc/kallsyms`. A guest returns its kernel's symbols in this form.
pub(crate) fn kallsyms(bytes: &[u8]) {
    let Ok(symbols) = Symbols::parse(bytes) else { return };
    for address in [0, 1, 0xffff_ffff_8100_0000, u64::MAX] {
        black_box((
            symbols.symbol_at(address),
            symbols.next_symbol(address),
            symbols.code_name(address),
        ));
    }
    for name in ["do_open", "current_task", ""] {
        black_box((symbols.symbol_named(name), symbols.address(name).ok(), symbols.nearest(name)));
        black_box((symbols.per_cpu_offset(name).ok(), symbols.functions(name, 0).len()));
    }
}

/// Reads any bytes as the file of `--kernel`.
pub(crate) fn kernel_image(bytes: &[u8]) {
    IMAGE.with_borrow(|file| {
        fs::write(&file.path, bytes).expect("memory for a file");
        black_box(kernel::of_file(&file.path, None).ok());
    });
}
