//! Builds the guest's first process (`crates/guest`), the program for a machine without a kernel
//! (`crates/bare`) and the QEMU plugin (`crates/plugin`), and hands all to `include_bytes!`.
//!
//! Embedding keeps `irqlab` one file whose parts always have the same version. The build script starts cargo for
//! each part, because cargo links a dependency like its user: the guest is static, the bare program links
//! nothing else, the plugin is a shared object, and all abort on panic. Each part has its own target directory,
//! so the cargo processes do not wait for each other.
//!
//! Models of machines (`machines/*.toml`) and measurements of real processors (`machines/measured/*.tsv`) are
//! embedded, too. Lists of their names and texts are in `models.rs` and `measured.rs`.
//!
//! Workloads (`workloads/*.toml`) are embedded with the files in the directory of the same name.
//!
//! `IRQLAB_EMBED=none` leaves out the guest, the bare program and the plugin, which are release builds, for a
//! fast check of the rest. irqlab is also built without a part that cannot be built (another processor, no
//! static libc). Only `irqlab sim` then fails, and names the missing part.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A crate that is built and embedded.
struct Product {
    /// The name of the crate, and of the file that is embedded.
    name: &'static str,
    /// Where cargo puts it, below the directory of the profile.
    file: &'static str,
    /// Flags of the compiler, separated as cargo wants them.
    flags: &'static str,
    /// Features of the crate.
    features: &'static str,
    /// Crates whose changes require a new build.
    crates: &'static [&'static str],
    /// Other files below `crates` whose changes require a new build.
    files: &'static [&'static str],
    /// Requirement of the build, for the message of a failure.
    needs: &'static str,
}

const PRODUCTS: [Product; 3] = [
    Product {
        name: "guest",
        file: "guest",
        // At a fixed address, so that its own symbols need no relocation either.
        flags: "-Ctarget-feature=+crt-static\x1f-Crelocation-model=static",
        features: "",
        crates: &["guest", "simrecord"],
        files: &[],
        needs: "it needs a static libc (Debian: libc6-dev, Fedora: glibc-static)",
    },
    Product {
        name: "bare",
        file: "bare",
        // An interrupt's frame lies right below the stack pointer.
        flags: "-Crelocation-model=static\x1f-Ccode-model=kernel\x1f-Cno-redzone",
        features: "freestanding",
        crates: &["bare", "loop_bodies", "simrecord"],
        files: &["bare/build.rs", "bare/link.ld"],
        needs: "it is linked by its own script",
    },
    Product {
        name: "plugin",
        file: "libplugin.so",
        flags: "",
        features: "",
        crates: &["plugin", "attribution", "machine", "plugin_interface", "simrecord"],
        files: &[],
        needs: "it is a shared object for QEMU",
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=IRQLAB_EMBED");
    println!("cargo:rerun-if-changed=../../Cargo.toml");
    for product in &PRODUCTS {
        for name in product.crates {
            println!("cargo:rerun-if-changed=../{name}/src");
            println!("cargo:rerun-if-changed=../{name}/Cargo.toml");
        }
        for file in product.files {
            println!("cargo:rerun-if-changed=../{file}");
        }
        let (bytes, reason) = match build(product, &crates, &out) {
            Ok(bytes) => (bytes, String::new()),
            Err(reason) => {
                println!("cargo:warning=irqlab sim will not run: {reason}");
                (Vec::new(), reason)
            }
        };
        fs::write(out.join(product.name), bytes)?;
        fs::write(out.join(format!("{}-missing", product.name)), reason)?;
    }
    println!("cargo:rerun-if-changed=../../machines");
    let machines = crates.join("../machines");
    fs::write(out.join("models.rs"), texts(&machines, "toml")?)?;
    fs::write(out.join("measured.rs"), texts(&machines.join("measured"), "tsv")?)?;
    println!("cargo:rerun-if-changed=../../workloads");
    fs::write(out.join("workloads.rs"), workloads(&crates.join("../workloads"))?)?;
    Ok(())
}

/// An array of the workloads in a directory, by name: text, and the files in the directory of that name.
fn workloads(directory: &Path) -> Result<String, Box<dyn Error>> {
    let directory = fs::canonicalize(directory)?;
    let mut list = String::from("&[\n");
    for path in entries(&directory)? {
        if path.extension().is_some_and(|extension| extension == "toml") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            list += &format!("({name:?}, include_str!({path:?}), &[\n");
            let files_directory = path.with_extension("");
            add_files(&files_directory, &files_directory, &mut list)?;
            list += "]),\n";
        }
    }
    Ok(list + "]")
}

fn add_files(root: &Path, directory: &Path, list: &mut String) -> Result<(), Box<dyn Error>> {
    use std::os::unix::fs::PermissionsExt;
    if !directory.is_dir() {
        return Ok(());
    }
    for path in entries(directory)? {
        if path.is_dir() {
            add_files(root, &path, list)?;
            continue;
        }
        let inside = path.strip_prefix(root)?;
        let is_program = fs::metadata(&path)?.permissions().mode() & 0o111 != 0;
        *list += &format!("({inside:?}, {is_program}, include_bytes!({path:?})),\n");
    }
    Ok(())
}

/// The entries of a directory, sorted.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut entries = entries.collect::<Result<Vec<_>, std::io::Error>>()?;
    entries.sort();
    Ok(entries)
}

/// An array of the files in a directory that have this extension, by name.
fn texts(directory: &Path, kind: &str) -> Result<String, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == kind) {
            files.push(path);
        }
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        list += &format!("({name:?}, {:?}),\n", fs::read_to_string(&file)?);
    }
    Ok(list + "]")
}

/// The compiler's flags for a product. Panics name source files without the directories of this machine. Where the code
/// lies in the guest, and the simulated times with it, then does not depend on them.
fn flags(product: &Product, crates: &Path) -> Result<String, String> {
    let root = fs::canonicalize(crates.join("..")).map_err(|error| format!("no root: {error}"))?;
    let cargo_home = match env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"),
    };
    let mut flags = product.flags.to_owned();
    for (directory, name) in [(root, "/irqlab"), (cargo_home, "/cargo")] {
        if !flags.is_empty() {
            flags.push('\x1f');
        }
        flags += &format!("--remap-path-prefix={}={name}", directory.display());
    }
    Ok(flags)
}

fn build(product: &Product, crates: &Path, out: &Path) -> Result<Vec<u8>, String> {
    let name = product.name;
    if env::var("IRQLAB_EMBED").as_deref() == Ok("none") {
        return Err(format!("IRQLAB_EMBED=none leaves crates/{name} out"));
    }
    if env::var("TARGET").as_deref() != Ok(TARGET) {
        return Err(format!("crates/{name} is built on {TARGET} only"));
    }
    let cargo = env::var_os("CARGO").ok_or("no CARGO")?;
    let target_dir = out.join(format!("{name}-target"));
    let output = Command::new(cargo)
        .args(["build", "--release", "--frozen", "--quiet", "--target", TARGET])
        .args(["--features", product.features])
        .arg("--manifest-path")
        .arg(crates.join(name).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(product, crates)?)
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        // One unit: where functions and statics lie then depends on the program alone.
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", if name == "bare" { "1" } else { "16" })
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // An incremental build divides the code in another way.
        .env("CARGO_INCREMENTAL", "0")
        // Clippy's and the like are for the workspace, not for this build.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rfind(|line| line.contains("error"));
        let last = last.unwrap_or("no reason given");
        return Err(format!("crates/{name} cannot be built ({last}); {}", product.needs));
    }
    let file = target_dir.join(TARGET).join("release").join(product.file);
    fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))
}
