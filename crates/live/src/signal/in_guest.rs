//! Measures one window inside a simulated machine, with the code of the live bench. The simulator
//! observes the receiving CPU from outside.

use std::time::Duration;

use lab::experiment::BenchError;
use lab::signal::in_guest::{GuestWindow, MeasuredWindow, SignalRequest};
use lab::signal::{SignalBench, Window};

use super::{LiveSignal, Observer, SignalSettings, VethPolling};
use crate::window::Stop;

/// Measures the window of a request. `observer` tells the simulator about the window.
///
/// Fails if the rig or the scheme is not available, something fails, or `stop` is requested before the window ends:
/// a part of a window is no sample.
pub fn execute(
    request: &SignalRequest,
    observer: Observer,
    stop: &Stop,
) -> Result<Vec<GuestWindow>, BenchError> {
    let mut bench = LiveSignal::new(SignalSettings {
        rig: request.rig,
        polling: VethPolling::default(),
        card: None,
        sender_cpu: request.sender_cpu,
        receiver_cpu: request.receiver_cpu,
        length: Duration::from_nanos(request.length_ns),
        work_additions: request.work_additions,
        stop: stop.clone(),
        observer: Some(observer),
    })?;
    let seed = request.seed;
    let measured = match request.window {
        Window::Rate(point) => MeasuredWindow::Rate(bench.rate_window(&point, seed)?),
        Window::Transfer(point) => MeasuredWindow::Transfer(bench.transfer_window(&point, seed)?),
        Window::RoundTrip(point) => {
            MeasuredWindow::RoundTrip(bench.round_trip_window(&point, seed)?)
        }
    };
    if stop.is_requested() {
        return Err(BenchError::Failed("stopped before the end of the window".to_owned()));
    }
    Ok(vec![GuestWindow { measured, facts: bench.interface_facts() }])
}
