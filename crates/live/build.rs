//! Compiles the BPF programs: once for kernels with BTF, once for kernels without.

use std::error::Error;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    for (object, extra) in [("handlers.btf.o", ""), ("handlers.raw.o", "-DIRQLAB_NO_BTF")] {
        SkeletonBuilder::new()
            .source("bpf/handlers.bpf.c")
            .obj(out.join(object))
            .clang_args(["-mcpu=v3", "-Ibpf", "-Wall", "-Werror", "-Wno-unused-function", extra])
            .build()?;
    }
    // The marks of the noise experiment need type information: there is one object of them.
    SkeletonBuilder::new()
        .source("bpf/noise.bpf.c")
        .obj(out.join("noise.o"))
        .clang_args(["-mcpu=v3", "-Ibpf", "-Wall", "-Werror", "-Wno-unused-function"])
        .build()?;
    println!("cargo:rerun-if-changed=bpf");
    Ok(())
}
