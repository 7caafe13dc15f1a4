//! Reads requests from QEMU's firmware configuration device (fw_cfg) by port I/O. No driver is needed. QEMU's
//! docs/specs/fw_cfg.rst describes the device.
//!
//! The host saves a checkpoint while the guest is in [`wait_for_request`]. When the host restores the checkpoint, it
//! provides the file `opt/irqlab/order` with a request. The guest reads the file at the same instruction in every run,
//! because QEMU completes a port read within the instruction.
//!
//! The checkpoint may be saved at any instruction of the loop, so each reading can be a mixture of the old and the new
//! files.

use crate::ports;
use crate::request::Request;

const SELECTOR_PORT: u16 = 0x510;
const DATA_PORT: u16 = 0x511;
const SIGNATURE_KEY: u16 = 0x00;
const DIRECTORY_KEY: u16 = 0x19;
const SIGNATURE: &[u8] = b"QEMU";
/// Bytes of a directory entry: size (4), key (2), reserved (2), name (56).
const ENTRY_BYTES: usize = 64;
/// Maximum number of files to search. QEMU has about twenty.
const FILES_MAX: u32 = 256;
/// Maximum length of a request. The rest is cut off.
const REQUEST_BYTES_MAX: u32 = 4096;
const FILE_NAME: &[u8] = b"opt/irqlab/order\0";
/// The content of the request's file while there is no request.
pub const NO_REQUEST: &str = "wait";

/// Reads the request's file until it holds another request than `old_request`, and returns that request. The host saves
/// checkpoints in this loop.
///
/// Fails if the ports, the device or the file are missing.
pub fn wait_for_request(old_request: &str) -> Result<Request, String> {
    ports::allow().map_err(|error| format!("no access to ports: {error}"))?;
    select(SIGNATURE_KEY);
    if read(SIGNATURE.len() as u32) != SIGNATURE {
        return Err("no firmware configuration device".to_owned());
    }
    let old_request = old_request.as_bytes().trim_ascii();
    loop {
        let file = file().ok_or("no file opt/irqlab/order")?;
        let request = contents(file);
        // The checkpoint may have been saved between the readings of directory and file. Then `request` is the new
        // file, cut to the length of the old file.
        let is_complete = || self::file() == Some(file) && contents(file) == request;
        let is_new = ![old_request, NO_REQUEST.as_bytes()].contains(&request.trim_ascii());
        if is_new && is_complete() {
            return Ok(Request::parse(&String::from_utf8_lossy(&request)));
        }
    }
}

/// Returns the key and the size of the request's file. Searches twice, because a checkpoint may have been saved during
/// the first search. `None` if the firmware has no such file.
fn file() -> Option<(u16, u32)> {
    find(FILE_NAME).or_else(|| find(FILE_NAME))
}

/// Returns the content of a file, cut to [`REQUEST_BYTES_MAX`].
fn contents((key, size): (u16, u32)) -> Vec<u8> {
    select(key);
    read(size.min(REQUEST_BYTES_MAX))
}

/// Returns the key and the size of a file. `None` if the directory has no file of this name.
fn find(name: &[u8]) -> Option<(u16, u32)> {
    select(DIRECTORY_KEY);
    let count = read(4);
    let count = u32::from_be_bytes(count.try_into().ok()?);
    for _ in 0..count.min(FILES_MAX) {
        let entry = read(ENTRY_BYTES as u32);
        if entry[8..].starts_with(name) {
            let size = u32::from_be_bytes(entry[..4].try_into().ok()?);
            return Some((u16::from_be_bytes(entry[4..6].try_into().ok()?), size));
        }
    }
    None
}

/// Selects the item that [`read`] reads next, from its start.
fn select(key: u16) {
    ports::write_u16(SELECTOR_PORT, key);
}

/// Reads the next bytes of the selected item.
fn read(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|_| ports::read_u8(DATA_PORT)).collect()
}
