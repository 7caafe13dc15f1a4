//! Transfers files from the guest to the host through the guest's memory, for the request `probe`. `sim` gets the
//! kernel's symbols, types and configuration this way.
//!
//! This works with every kernel: it needs no shared file system and no device. The program reports the physical
//! addresses of a buffer, the window, once. For each part of a file it fills the window, and reports the content. The
//! host copies the window by a command of QEMU's monitor, and replies with an empty line.
//!
//! - `window`: `runs` is a list of `[physical address, bytes]` in the order of the buffer.
//! - `chunk`: `name` is the file. `bytes` is the length of the content, from the start of the window. `fnv1a` is a
//!   64-bit hash of the content in hex. `last` tells whether the file ends here.
//! - `shared`: all files are transferred.

use std::fs::File;
use std::io::{self, Read};

use crate::agent::Agent;
use crate::sys::Window;

/// Names in messages, and paths, of the files to transfer.
pub const FILES: [(&str, &str); 3] = [
    ("kallsyms", "/proc/kallsyms"),
    ("btf", "/sys/kernel/btf/vmlinux"),
    ("config", "/proc/config.gz"),
];

/// Size of the window in bytes: two huge pages, so that it has few contiguous runs of physical memory.
const WINDOW_BYTES: usize = 4 << 20;

/// Transfers all files that exist, and returns the exit status of the request.
pub fn share_all(agent: &mut Agent) -> u8 {
    match try_share_all(agent) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("guest: cannot transfer files to the host: {error}");
            1
        }
    }
}

/// See [`share_all`].
fn try_share_all(agent: &mut Agent) -> io::Result<()> {
    let mut window = Window::new(WINDOW_BYTES)?;
    let runs = window.physical_runs()?;
    let runs: Vec<String> =
        runs.iter().map(|(address, bytes)| format!("[{address},{bytes}]")).collect();
    agent.send(&format!(r#"{{"event":"window","runs":[{}]}}"#, runs.join(",")));
    for (name, path) in FILES {
        let Ok(file) = File::open(path) else { continue };
        share(agent, &mut window, name, file)?;
    }
    agent.send(r#"{"event":"shared"}"#);
    Ok(())
}

/// Transfers a file in chunks of the window's size.
fn share(agent: &mut Agent, window: &mut Window, name: &str, mut file: File) -> io::Result<()> {
    loop {
        let bytes = fill(&mut file, window.bytes())?;
        let last = bytes < WINDOW_BYTES;
        let hash = fnv1a(&window.bytes()[..bytes]);
        agent.send(&format!(
            r#"{{"event":"chunk","name":"{name}","bytes":{bytes},"fnv1a":"{hash:016x}","last":{last}}}"#
        ));
        if !agent.wait_for_line() {
            return Err(io::Error::other("the host does not reply"));
        }
        if last {
            return Ok(());
        }
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes read.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The FNV-1a hash with 64 bits. The host compares it to detect a damaged copy.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_matches_the_reference() {
        // Vectors of draft-eastlake-fnv: "" and "a".
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn filling_stops_at_the_end_of_the_buffer_or_of_the_file() {
        let mut buffer = [0; 4];
        let mut file: &[u8] = b"abcdef";
        assert_eq!(fill(&mut file, &mut buffer).unwrap(), 4);
        assert_eq!(fill(&mut file, &mut buffer).unwrap(), 2);
        assert_eq!(&buffer[..2], b"ef");
    }
}
