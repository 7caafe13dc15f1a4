//! Messages of the guest's first process: lines `irqlab {JSON}` on the second serial port.
//!
//! `crates/guest` writes the messages, with the names of the variants and fields here: both sides change together.
//! [`super::vm`] reads the messages as events of the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::found::FoundDevice;
use crate::guest::loaded::LoadedModule;
use crate::text::LineSplitter;

/// Start of a line with a message.
const PREFIX: &[u8] = b"irqlab ";
/// Maximum length of a line; the longest one quotes a line of [`lab::guest_protocol::LINE_BYTES_MAX`].
const LINE_BYTES_MAX: usize = 256 * 1024;

/// Facts of the running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReport {
    /// Release of the kernel.
    pub release: String,
    /// Ticks per second; absent if the kernel does not report them.
    pub hz: Option<u32>,
    /// CPUs that are online.
    pub cpus: u32,
    /// Whether it has symbols (`/proc/kallsyms`).
    pub kallsyms: bool,
    /// Whether it has type information (BTF).
    pub btf: bool,
    /// Whether it contains its configuration.
    pub config: bool,
    /// Modules of the image that it refused.
    pub modules_failed: Vec<String>,
    /// Its disks and network cards.
    pub devices: Vec<FoundDevice>,
    /// The modules that it has loaded. They come from the earlier `Message::Modules`.
    #[serde(default)]
    pub modules: Vec<LoadedModule>,
    /// The kernel's statement about each bug of processors, by the name of the bug.
    #[serde(default)]
    pub mitigations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Message {
    /// The modules that the kernel has loaded; once, before the facts.
    Modules { modules: Vec<LoadedModule> },
    /// Facts of the kernel; once, after the boot.
    Facts(GuestReport),
    /// The guest waits for a request.
    Ready,
    /// The memory through which the guest transfers files: physical address and length of each piece, bytes.
    Window { runs: Vec<(u64, u64)> },
    /// A piece of the file `name` is in the window. The guest waits until the host has copied it.
    Chunk { name: String, bytes: u64, fnv1a: String, last: bool },
    /// All files were transferred.
    Shared,
    /// Page faults in the region of interest of a workload.
    Faults { all: u64, major: u64 },
    /// A step of the request failed.
    Step { name: String, status: u8 },
    /// A line of output of the guest's irqlab.
    Output { line: String },
    /// The guest's irqlab has reached its limit of guest time, and was asked to stop.
    Limit,
    /// The request has ended; the guest powers off.
    Exit { status: u8 },
}

/// Splits the stream of the second serial port into messages.
#[derive(Debug)]
pub(crate) struct Messages {
    lines: LineSplitter,
}

impl Messages {
    pub(crate) fn new() -> Messages {
        Messages { lines: LineSplitter::new(LINE_BYTES_MAX) }
    }

    /// Takes bytes; returns the messages that they complete. Other lines of the guest are ignored.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Message> {
        let lines = self.lines.push(bytes).into_iter().flatten();
        lines.filter_map(|line| serde_json::from_slice(line.strip_prefix(PREFIX)?).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_in_pieces_between_other_lines() {
        let mut messages = Messages::new();
        assert!(messages.push(b"noise\r\nirqlab {\"event\":\"re").is_empty());
        assert_eq!(messages.push(b"ady\"}\nirqlab {\"event\":\"x\"}\n"), [Message::Ready]);
        let facts = br#"irqlab {"event":"facts","release":"6.1","hz":250,"cpus":1,"kallsyms":true,"btf":false,"config":false,"modules_failed":[],"devices":[{"name":"vda","pci":"1af4:1001","driver":"virtio_blk"}]}"#;
        messages.push(facts);
        let got = messages.push(b"\r\n");
        assert!(matches!(&got[..], [Message::Facts(facts)] if facts.hz == Some(250)), "{got:?}");
        let window = messages.push(b"irqlab {\"event\":\"window\",\"runs\":[[4096,8192]]}\n");
        assert_eq!(window, [Message::Window { runs: vec![(4096, 8192)] }]);
    }

    #[test]
    fn a_line_without_end_is_dropped_in_bounded_memory() {
        let mut messages = Messages::new();
        for _ in 0..LINE_BYTES_MAX / 1000 + 2 {
            messages.push(&[b'x'; 1000]);
        }
        assert_eq!(messages.push(b"\nirqlab {\"event\":\"shared\"}\n"), [Message::Shared]);
    }
}
