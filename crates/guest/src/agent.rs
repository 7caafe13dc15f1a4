//! What this program tells the host: lines `irqlab {JSON}` on the second serial port, where the
//! kernel prints nothing, or on the console when there is no second port.
//!
//! | event | fields |
//! |---|---|
//! | `facts` | see [`crate::facts`] |
//! | `ready` | none: the machine is up and waits for an order from the firmware |
//! | `window`, `chunk`, `shared` | see [`crate::share`] |
//! | `said` | `line`: what irqlab in the guest has to say
//! | `limit` | none: the guest time limit was reached |
//! | `exit` | `status`: the last thing that is said |

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// Longest line taken from the host.
const LINE_BYTES_MAX: usize = 256;

/// Where the alarm says that it went off.
static ALARM_FD: AtomicI32 = AtomicI32::new(2);

/// The line to the host.
pub struct Agent {
    port: File,
}

impl Agent {
    /// Opens the second serial port.
    pub fn open() -> Agent {
        let open = |path| OpenOptions::new().read(true).write(true).open(path);
        let port = open("/dev/ttyS1").and_then(|port| {
            // Without this the port would send back what it gets. A port without a chip behind
            // it refuses.
            sys::make_raw(&port)?;
            Ok(port)
        });
        let port = port.or_else(|_| open("/dev/console")).unwrap_or_else(|error| {
            eprintln!("guest: neither a second serial port nor a console: {error}");
            sys::power_off()
        });
        ALARM_FD.store(port.as_raw_fd(), Ordering::Relaxed);
        Agent { port }
    }

    /// Sends one JSON object.
    pub fn send(&mut self, object: &str) {
        // The host that does not listen will end this machine by itself.
        let _ = self.port.write_all(format!("irqlab {object}\n").as_bytes());
    }

    /// Waits for a line from the host; `false` when it does not come.
    ///
    /// For probes only: when the host answers is not the same in two runs.
    pub fn wait_for_line(&mut self) -> bool {
        let mut byte = [0];
        for _ in 0..LINE_BYTES_MAX {
            match self.port.read(&mut byte) {
                Ok(1) if byte[0] == b'\n' => return true,
                Ok(1) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
        false
    }

    /// Powers the machine off after `limit_s` guest seconds, whatever else goes on.
    pub fn watch_over(&self, limit_s: u32) {
        if let Err(error) = sys::on_alarm(limit_s, alarm) {
            eprintln!("guest: no alarm: {error}");
        }
    }

    /// Says how it ended, waits until all is said, and powers the machine off.
    pub fn power_off(mut self, status: u8) -> ! {
        self.send(&format!(r#"{{"event":"exit","status":{status}}}"#));
        let _ = io::stdout().flush();
        sys::drain(&self.port);
        sys::drain(&io::stdout());
        sys::power_off()
    }
}

/// Runs as a signal handler: nothing here allocates or takes a lock.
extern "C" fn alarm(_signal: i32) {
    let said = b"irqlab {\"event\":\"limit\"}\nirqlab {\"event\":\"exit\",\"status\":124}\n";
    sys::write_raw(ALARM_FD.load(Ordering::Relaxed), said);
    sys::power_off()
}
