//! Compiles the BPF programs, and generates what they share with this crate: `keys.h` from
//! `attribution::key`, `constants.h` from `src/bpf/constants.rs`, and `layout.rs` from the type
//! information (BTF) of the compiled objects.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::btf::types::{Array, Int, IntEncoding, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};

#[path = "src/bpf/constants.rs"]
mod constants;

/// Structures of `handlers.bpf.c` that this crate reads or writes.
const HANDLER_STRUCTS: [&str; 13] = [
    "config",
    "frame",
    "cpu_state",
    "batch",
    "row",
    "nested_times",
    "pmu_frame",
    "pmu_frames",
    "sender_key",
    "sender_row",
    "party",
    "victim_key",
    "victim_cell",
];
/// Structures of `handlers.bpf.c` with single events that this crate reads or writes.
const TRACE_STRUCTS: [&str; 2] = ["trace_cpu", "trace_event"];
/// Structures of `noise.bpf.c` that this crate reads or writes.
const NOISE_STRUCTS: [&str; 7] = [
    "noise_mark",
    "noise_switch",
    "noise_config",
    "waker",
    "noise_waker",
    "noise_sender",
    "noise_sender_record",
];
/// Structures of `services.bpf.c` that this crate reads or writes.
const SERVICE_STRUCTS: [&str; 10] = [
    "service_config",
    "service_row",
    "service_rows",
    "service_span",
    "service_cpu",
    "lock_key",
    "lock_row",
    "lock_wait",
    "lock_waits",
    "lock_cpu",
];
/// Structures of `caller.bpf.c` that this crate reads or writes.
const CALLER_STRUCTS: [&str; 1] = ["caller"];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("keys.h"), attribution::key::c_header())?;
    std::fs::write(out.join("constants.h"), header()?)?;
    let include = format!("-I{}", out.display());
    // The objects name their source files. Without the directory they are the same in each checkout.
    let prefix = format!("-ffile-prefix-map={}=.", std::env::var("CARGO_MANIFEST_DIR")?);
    let out_prefix = format!("-ffile-prefix-map={}=.", out.display());
    let compile = |source: &str, object: &str, extra: &[&str]| {
        let warnings = ["-Wall", "-Werror", "-Wno-unused-function"];
        let paths = ["-Ibpf", &include, &prefix, &out_prefix];
        let arguments = ["-mcpu=v3"].into_iter().chain(paths).chain(warnings);
        SkeletonBuilder::new()
            .source(source)
            .obj(out.join(object))
            .clang_args(arguments.chain(extra.iter().copied()))
            .build()
    };
    // Three times for kernels with BTF, also with sums by victim (bpf/victims.h) or with single events (bpf/trace.h), and
    // once for kernels without.
    compile("bpf/handlers.bpf.c", "handlers.btf.o", &[])?;
    compile("bpf/handlers.bpf.c", "handlers.victims.o", &["-DIRQLAB_VICTIMS"])?;
    compile("bpf/handlers.bpf.c", "handlers.trace.o", &["-DIRQLAB_TRACE"])?;
    compile("bpf/handlers.bpf.c", "handlers.raw.o", &["-DIRQLAB_NO_BTF"])?;
    // The probes of the other experiments need BTF, so each source has only one object.
    compile("bpf/noise.bpf.c", "noise.o", &[])?;
    compile("bpf/services.bpf.c", "services.o", &[])?;
    compile("bpf/caller.bpf.c", "caller.o", &[])?;
    let mut layout = String::new();
    write_structs(&out.join("handlers.victims.o"), &HANDLER_STRUCTS, &mut layout)?;
    write_structs(&out.join("handlers.trace.o"), &TRACE_STRUCTS, &mut layout)?;
    write_structs(&out.join("noise.o"), &NOISE_STRUCTS, &mut layout)?;
    write_structs(&out.join("services.o"), &SERVICE_STRUCTS, &mut layout)?;
    write_structs(&out.join("caller.o"), &CALLER_STRUCTS, &mut layout)?;
    std::fs::write(out.join("layout.rs"), layout)?;
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=src/bpf/constants.rs");
    Ok(())
}

/// The constants for C, with the keys of contexts.
fn header() -> Result<String> {
    let mut text = "/* Generated from src/bpf/constants.rs. */\n#include \"keys.h\"\n".to_owned();
    for (name, value) in constants::ALL {
        let suffix = if *value > i32::MAX as u64 { "ULL" } else { "" };
        writeln!(text, "#define {name} {value}{suffix}")?;
    }
    Ok(text)
}

/// Appends a `#[repr(C)]` structure for each of `names`, as the object's BTF lays it out, with
/// compile-time checks of its size and of the offset of each field.
fn write_structs(object: &Path, names: &[&str], text: &mut String) -> Result<()> {
    let btf = Btf::from_path(object)?;
    for c_name in names {
        let found = btf.type_by_name::<Struct<'_>>(c_name);
        let found = found.ok_or_else(|| format!("{}: no struct {c_name}", object.display()))?;
        let name = camel_case(c_name);
        let (mut fields, mut checks) = (String::new(), String::new());
        for member in found.iter() {
            let field = member.name.and_then(|name| name.to_str());
            let field = field.ok_or_else(|| format!("struct {c_name}: a field without a name"))?;
            let MemberAttr::Normal { offset } = member.attr else {
                return Err(format!("struct {c_name}: {field} is a bit field").into());
            };
            let field_type = btf.type_by_id::<BtfType<'_>>(member.ty);
            let field_type =
                field_type.ok_or_else(|| format!("struct {c_name}: {field} has no type"))?;
            writeln!(fields, "    pub {field}: {},", rust_type(field_type)?)?;
            let offset = offset / 8;
            writeln!(checks, "    assert!(core::mem::offset_of!({name}, {field}) == {offset});")?;
        }
        // The loader sets the fields of the configuration that differ from 0.
        let default = if *c_name == "config" { "Default, " } else { "" };
        write!(
            text,
            "/// `struct {c_name}` of the BPF programs, whose headers document the fields.\n\
             #[derive(Clone, Copy, Debug, {default}FromBytes, IntoBytes, Immutable, KnownLayout)]\n\
             #[repr(C)]\npub struct {name} {{\n{fields}}}\n\
             const _: () = {{\n{checks}    assert!(size_of::<{name}>() == {});\n}};\n\n",
            found.size()
        )?;
    }
    Ok(())
}

fn rust_type(btf_type: BtfType<'_>) -> Result<String> {
    let btf_type = btf_type.skip_mods_and_typedefs();
    if let Ok(array) = Array::try_from(btf_type) {
        return Ok(format!("[{}; {}]", rust_type(array.contained_type())?, array.capacity()));
    }
    if let Ok(number) = Int::try_from(btf_type) {
        // Bytes of a name are `char` in C, which is signed.
        let is_signed = matches!(number.encoding, IntEncoding::Signed) && number.bits > 8;
        return Ok(format!("{}{}", if is_signed { 'i' } else { 'u' }, number.bits));
    }
    let name = btf_type.name().and_then(|name| name.to_str()).unwrap_or_default();
    Struct::try_from(btf_type).map(|_| camel_case(name)).map_err(|_| format!("type {name}").into())
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}
