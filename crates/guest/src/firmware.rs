//! Orders through QEMU's firmware configuration device (fw_cfg), read by port I/O.
//!
//! A checkpoint holds the guest in [`wait_for_order`]. The process that restores it offers the
//! file `opt/irqlab/order` with other content, and the guest finds it by the same instruction in
//! every run: port reads are answered within the instruction. No driver is needed.
//! Interface: QEMU's docs/specs/fw_cfg.rst.

use crate::order::Order;
use crate::ports;

const SELECTOR_PORT: u16 = 0x510;
const DATA_PORT: u16 = 0x511;
const SIGNATURE_KEY: u16 = 0x00;
const DIRECTORY_KEY: u16 = 0x19;
const SIGNATURE: &[u8] = b"QEMU";
/// Bytes of a directory entry: size (4), key (2), reserved (2), name (56).
const ENTRY_BYTES: usize = 64;
/// Most files that are looked through; QEMU has some twenty.
const FILES_MAX: u32 = 256;
/// Longest order.
const ORDER_BYTES_MAX: u32 = 4096;
/// The file.
const ORDER_NAME: &[u8] = b"opt/irqlab/order\0";
/// Its content as long as there is no order.
const NO_ORDER: &[u8] = b"wait";

/// Reads until there is an order. The machine is to be stopped and saved in this loop.
pub fn wait_for_order() -> Result<Order, String> {
    ports::allow().map_err(|error| format!("no access to ports: {error}"))?;
    select(SIGNATURE_KEY);
    if read(SIGNATURE.len() as u32) != SIGNATURE {
        return Err("no firmware configuration device".to_owned());
    }
    loop {
        let file = file().ok_or("no file opt/irqlab/order")?;
        let order = contents(file);
        // The machine may have been saved in the middle of this: then the file is another's by now, of
        // which only the length of the old one was read.
        let whole = || self::file() == Some(file) && contents(file) == order;
        if order.trim_ascii() != NO_ORDER && whole() {
            return Ok(Order::parse(&String::from_utf8_lossy(&order)));
        }
    }
}

/// Key and size of the order's file. Looked for twice, as the machine may have been saved in the middle
/// of the first search.
fn file() -> Option<(u16, u32)> {
    find(ORDER_NAME).or_else(|| find(ORDER_NAME))
}

fn contents((key, size): (u16, u32)) -> Vec<u8> {
    select(key);
    read(size.min(ORDER_BYTES_MAX))
}

/// Key and size of a file.
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

fn select(key: u16) {
    ports::write_u16(SELECTOR_PORT, key);
}

fn read(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|_| ports::read_u8(DATA_PORT)).collect()
}
