//! The request and the response of a guest that runs a command in a window. The simulated bench (`sim/src/services`)
//! sends the request, and the simulator measures the services outside.
//!
//! Names of fields are keys in JSON. Any change needs a new [`crate::guest_protocol::VERSION`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::guest_protocol::response::Response;

/// Maximum number of different system calls in a response.
const SYSCALLS_MAX: usize = 4_096;

/// A command to run. All CPUs of the guest are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServicesRequest {
    /// A line that the guest's shell runs before the window opens.
    pub warm_up: Option<String>,
    /// A line that the guest's shell runs in the window.
    pub command: String,
    /// Whether the guest's kernel counts system calls with its tracepoint in the window. Counting slows the guest.
    pub verify: bool,
}

/// The response has exactly one item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesItem {
    /// How long the window was open by the guest's clock, ns.
    pub length_ns: u64,
    /// How the command ended, in words.
    pub command_ended: String,
    /// The command's exit status, as a shell reports it.
    pub command_status: i32,
    /// Increases of the guest's counters in /proc/vmstat during the window, by name.
    pub vmstat: BTreeMap<String, u64>,
    /// System calls that the guest's kernel counted, by number. `None` unless [`ServicesRequest::verify`] is set.
    pub syscalls: Option<BTreeMap<u32, u64>>,
    pub warnings: Vec<String>,
    /// Whether a request to stop ended the command, or came before the window
    /// opened. In the second case, the length is 0.
    pub interrupted: bool,
}

/// The guest's response: one window.
#[derive(Debug, Default)]
pub struct ServicesResponse {
    /// `None` before the window's item.
    pub window: Option<ServicesItem>,
}

impl Response for ServicesResponse {
    type Item = ServicesItem;

    fn add(&mut self, item: ServicesItem) -> Result<(), String> {
        if self.window.is_some() {
            return Err("it has two windows".to_owned());
        }
        if item.syscalls.as_ref().is_some_and(|counts| counts.len() > SYSCALLS_MAX) {
            return Err(format!("it has more than {SYSCALLS_MAX} system calls"));
        }
        self.window = Some(item);
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.window.is_some() { Ok(()) } else { Err("it has no window".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BenchError;
    use crate::guest_protocol::{decode, encode};

    fn read(items: Vec<ServicesItem>) -> Result<ServicesItem, BenchError> {
        let lines = encode(Ok(items));
        let response = decode::<ServicesResponse>(lines.iter().map(String::as_str))?;
        Ok(response.window.unwrap())
    }

    #[test]
    fn a_window_reads_back() {
        let item = ServicesItem {
            length_ns: 5,
            command_status: 3,
            syscalls: Some(BTreeMap::from([(0, 7), (1, 2)])),
            vmstat: BTreeMap::from([("pgfault".to_owned(), 9)]),
            ..ServicesItem::default()
        };
        assert_eq!(read(vec![item.clone()]).unwrap(), item);
    }

    #[test]
    fn a_response_is_one_window_with_bounded_counts() {
        let many = (0..=SYSCALLS_MAX as u32).map(|number| (number, 1)).collect();
        let many = ServicesItem { syscalls: Some(many), ..ServicesItem::default() };
        let item = ServicesItem::default();
        for (items, words) in [
            (vec![], "no window"),
            (vec![item.clone(), item], "two windows"),
            (vec![many], "more than 4096 system calls"),
        ] {
            let error = read(items).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
