//! A request to a guest: the phase, and numbers in the form NAME=VALUE.

use std::collections::BTreeMap;
use std::io::Write;

/// The request `measure delay=2` has the phase `measure` and one number, `delay`.
pub struct Request {
    pub phase: String,
    numbers: BTreeMap<String, u64>,
}

impl Request {
    /// The phase on the kernel's command line. If that is `wait`, the machine says that it is up, and is
    /// saved; its request then comes from the machine that goes on with its state.
    pub fn receive() -> Request {
        let phase = std::env::var("phase").expect("a phase");
        if phase != crate::firmware::NO_REQUEST {
            return Request::parse(&phase);
        }
        // vCPU 0 is halted then, while another one runs: a new machine would start the other way round.
        crate::init::run_on_the_last_cpu();
        crate::init::wait_for_boot_work();
        let mut port = std::fs::OpenOptions::new().write(true).open("/dev/ttyS1").unwrap();
        port.write_all(b"ready\n").unwrap();
        let request = crate::firmware::wait_for_request("").unwrap();
        crate::init::run_on_all_cpus();
        request
    }

    /// The interface of `firmware`, which the agent's own requests have, too.
    pub fn parse(text: &str) -> Request {
        let mut parts = text.split(' ');
        let phase = parts.next().unwrap_or_default().to_owned();
        let pairs = parts.map(|pair| pair.split_once('=').expect("NAME=VALUE"));
        let numbers = pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect();
        Request { phase, numbers }
    }

    /// The number of this name, if the request has it.
    #[allow(dead_code)]
    pub fn word(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }
}
