//! Finds out which of the tracepoints that irqlab uses exist in the kernel, for `irqlab doctor`. Reads the kernel's
//! type information (BTF), which needs no rights, or tracefs.

use std::collections::BTreeSet;

use serde::Serialize;

use super::root::Root;

/// Largest BTF that is read. A distribution kernel's has 5 to 10 MiB.
const BTF_BYTES_MAX: usize = 64 << 20;

/// Largest list of trace events that is read. It has about 100 KiB.
const EVENTS_BYTES_MAX: usize = 16 << 20;

const BTF_MAGIC: u16 = 0xeb9f;

/// Prefix of the typedef that BTF contains for every tracepoint (include/trace/bpf_probe.h).
const BTF_PREFIX: &[u8] = b"btf_trace_";

/// Interrupts of the x86 interrupt controller. Each has an `_entry` and an `_exit` tracepoint.
pub use attribution::context::VECTORS as X86_VECTORS;

/// The tracepoints that exist on all architectures.
const COMMON: [&str; 11] = [
    "irq_handler_entry",
    "irq_handler_exit",
    "softirq_entry",
    "softirq_exit",
    "napi_poll",
    "nmi_handler",
    "page_fault_user",
    "page_fault_kernel",
    "sched_switch",
    "sys_enter",
    "sys_exit",
];

/// The kernel's type information. The loader adapts the BPF programs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BtfFacts {
    /// Whether /sys/kernel/btf/vmlinux exists; `None` without /sys.
    pub present: Option<bool>,
    /// Size of the file; `None` if it could not be read.
    pub size_bytes: Option<u64>,
}

/// One tracepoint that irqlab uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tracepoint {
    /// Name of the tracepoint without the subsystem: `irq_handler_entry`.
    pub name: String,
    /// Whether this kernel has the tracepoint; `None` if neither BTF nor tracefs could be read.
    pub exists: Option<bool>,
}

/// The tracepoints that irqlab uses on this architecture (`uname -m`), whether they exist or not.
#[must_use]
pub fn needed_tracepoints(arch: &str) -> Vec<String> {
    let mut names: Vec<String> = COMMON.iter().map(|&name| name.to_owned()).collect();
    if ["x86_64", "i686"].contains(&arch) {
        let pairs = X86_VECTORS
            .iter()
            .flat_map(|vector| [format!("{vector}_entry"), format!("{vector}_exit")]);
        names.extend(pairs);
    } else {
        names.extend(["ipi_entry", "ipi_exit"].map(str::to_owned));
    }
    names
}

/// Reads BTF, or tracefs if there is no BTF, and says which tracepoints exist.
#[must_use]
pub fn tracepoint_facts(root: &Root, arch: &str) -> (BtfFacts, Vec<Tracepoint>) {
    let path = "sys/kernel/btf/vmlinux";
    let content = root.bytes(path, BTF_BYTES_MAX);
    let btf = BtfFacts {
        present: root.exists("sys/kernel").then(|| root.exists(path)),
        size_bytes: content.as_ref().and_then(|content| u64::try_from(content.len()).ok()),
    };
    let kernels = content.as_deref().and_then(btf_tracepoints).or_else(|| available_events(root));
    let exists = |name: &str| kernels.as_ref().map(|kernels| kernels.contains(name));
    let tracepoints = needed_tracepoints(arch)
        .into_iter()
        .map(|name| Tracepoint { exists: exists(&name), name })
        .collect();
    (btf, tracepoints)
}

/// The names of all tracepoints in the string section of a BTF blob. `None` if the blob is not BTF, or contains no
/// tracepoint at all: then it does not describe the kernel's tracepoints.
#[must_use]
pub fn btf_tracepoints(blob: &[u8]) -> Option<BTreeSet<String>> {
    // struct btf_header: magic u16, version u8, flags u8; then hdr_len, type_off, type_len, str_off,
    // str_len, each u32. The byte order is that of the machine that wrote the blob.
    let magic = blob.get(..2)?.try_into().ok()?;
    let decode: fn([u8; 4]) -> u32 = match (u16::from_le_bytes(magic), u16::from_be_bytes(magic)) {
        (BTF_MAGIC, _) => u32::from_le_bytes,
        (_, BTF_MAGIC) => u32::from_be_bytes,
        _ => return None,
    };
    let word = |offset: usize| {
        let bytes = blob.get(offset..offset.checked_add(4)?)?;
        usize::try_from(decode(bytes.try_into().ok()?)).ok()
    };
    let start = word(4)?.checked_add(word(16)?)?;
    let strings = blob.get(start..start.checked_add(word(20)?)?)?;
    let names: BTreeSet<String> = strings
        .split(|byte| *byte == 0)
        .filter_map(|string| {
            let name = std::str::from_utf8(string.strip_prefix(BTF_PREFIX)?).ok()?;
            Some(name.to_owned())
        })
        .collect();
    (!names.is_empty()).then_some(names)
}

/// The names of all tracepoints that tracefs lists, which only root can read. `None` if the list cannot be read or is
/// empty.
fn available_events(root: &Root) -> Option<BTreeSet<String>> {
    let text = ["sys/kernel/tracing", "sys/kernel/debug/tracing"]
        .into_iter()
        .find_map(|base| root.text_up_to(format!("{base}/available_events"), EVENTS_BYTES_MAX))?;
    let mut names: BTreeSet<String> =
        text.lines().filter_map(|line| Some(line.split_once(':')?.1.trim().to_owned())).collect();
    // Instead of these two tracepoints, tracefs lists an event for each system call. All such events
    // use these tracepoints.
    for name in ["sys_enter", "sys_exit"] {
        if names.iter().any(|event| event.starts_with(name)) {
            names.insert(name.to_owned());
        }
    }
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;
    use proptest::prelude::*;

    fn blob(strings: &[u8], little: bool) -> Vec<u8> {
        let header = [24u32, 0, 4, 4, u32::try_from(strings.len()).unwrap()];
        let mut blob = if little { vec![0x9f, 0xeb, 1, 0] } else { vec![0xeb, 0x9f, 1, 0] };
        for word in header {
            blob.extend(if little { word.to_le_bytes() } else { word.to_be_bytes() });
        }
        blob.extend([0; 4]); // the types
        blob.extend(strings);
        blob
    }

    #[test]
    fn strings_are_found_in_both_byte_orders() {
        for little in [true, false] {
            let names =
                btf_tracepoints(&blob(b"\0int\0btf_trace_napi_poll\0xbtf_trace_no\0", little));
            assert_eq!(names, Some(BTreeSet::from(["napi_poll".to_owned()])));
        }
        assert_eq!(btf_tracepoints(&blob(b"\0int\0", true)), None);
        assert_eq!(btf_tracepoints(b"\x7fELF"), None);
    }

    #[test]
    fn btf_first_then_tracefs_then_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let exists = |name: &str| {
            let (_, all) = tracepoint_facts(&root, "x86_64");
            all.iter().find(|tracepoint| tracepoint.name == name).unwrap().exists
        };
        assert_eq!(exists("napi_poll"), None);
        assert_eq!(tracepoint_facts(&root, "x86_64").0.present, None);
        let events = "irq:irq_handler_entry\nsyscalls:sys_enter_read\n";
        plant(directory.path(), "sys/kernel/tracing/available_events", events);
        assert_eq!(exists("irq_handler_entry"), Some(true));
        assert_eq!(exists("sys_enter"), Some(true));
        assert_eq!(exists("napi_poll"), Some(false));
        assert_eq!(tracepoint_facts(&root, "x86_64").0.present, Some(false));
        let content = blob(b"\0btf_trace_local_timer_exit\0", true);
        plant(directory.path(), "sys/kernel/btf/vmlinux", &content);
        assert_eq!(exists("local_timer_exit"), Some(true));
        assert_eq!(exists("irq_handler_entry"), Some(false));
        let (btf, all) = tracepoint_facts(&root, "aarch64");
        assert_eq!(btf.size_bytes, u64::try_from(content.len()).ok());
        assert!(all.iter().all(|tracepoint| tracepoint.name != "local_timer_exit"));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(
            tail in prop::collection::vec(any::<u8>(), 0..200),
            little in any::<bool>(),
        ) {
            let mut blob = if little { vec![0x9f, 0xeb] } else { vec![0xeb, 0x9f] };
            let _ = btf_tracepoints(&tail);
            blob.extend(tail);
            let _ = btf_tracepoints(&blob);
        }
    }
}
