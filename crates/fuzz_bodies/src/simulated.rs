//! Fuzz targets for the readers of a simulated machine's output: the record of QEMU's plugin, and the response of the
//! irqlab in the guest.

use std::hint::black_box;

use lab::footprint::in_guest::FootprintResponse;
use lab::guest_protocol::{Request, decode};
use lab::handlers::in_guest::HandlersResponse;
use lab::kernels::in_guest::KernelsResponse;
use lab::noise::in_guest::NoiseResponse;
use lab::services::in_guest::ServicesResponse;
use lab::signal::in_guest::SignalResponse;
use lab::wakeup::in_guest::WakeupResponse;
use simrecord::record::{BYTES, Record};
use simrecord::{parsed, reader};

/// Reads any bytes as the record that the plugin writes.
pub(crate) fn plugin_record(bytes: &[u8]) {
    // A decoded record stays equal when it is encoded and decoded again.
    for record in bytes.as_chunks::<BYTES>().0 {
        if let Ok(decoded) = Record::decode(record) {
            assert_eq!(Record::decode(&decoded.encode()).ok(), Some(decoded));
        }
    }
    let Ok(stream) = reader::read(bytes) else { return };
    black_box(parsed::parse(&stream).ok());
}

/// Reads any lines as the guest's response to a request of an experiment, and the first line as a request.
pub(crate) fn guest_response(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    black_box(decode::<HandlersResponse>(text.lines()).ok());
    black_box(decode::<NoiseResponse>(text.lines()).ok());
    black_box(decode::<WakeupResponse>(text.lines()).ok());
    black_box(decode::<FootprintResponse>(text.lines()).ok());
    black_box(decode::<SignalResponse>(text.lines()).ok());
    black_box(decode::<ServicesResponse>(text.lines()).ok());
    black_box(decode::<KernelsResponse>(text.lines()).ok());
    if let Some(line) = text.lines().next() {
        black_box(Request::decode(line).ok());
    }
}
