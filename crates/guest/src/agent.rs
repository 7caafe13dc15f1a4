//! Messages to the host: lines `irqlab {JSON}` on the second serial port, where the kernel prints nothing. Without a
//! second port they go to the console. `sim` parses them, so their form must not change alone.
//!
//! | event | fields |
//! |---|---|
//! | `modules` | see [`crate::modules`] |
//! | `facts` | see [`crate::facts`] |
//! | `ready` | no fields: the machine is up and waits for a request from the firmware |
//! | `window`, `chunk`, `shared` | see [`crate::share`] |
//! | `faults` | `all`, `major`: page faults of the region of interest of a workload |
//! | `step` | `name`, `status`: a step failed: `root`, `output`, or of a workload `set-up`, `region` or `check` |
//! | `output` | `line`: a line of output of the guest's irqlab |
//! | `limit` | no fields: the machine reached its limit of guest time, or its irqlab was asked to stop there |
//! | `exit` | `status`: the last message |

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// Maximum length of a line from the host.
const LINE_BYTES_MAX: usize = 256;

/// File descriptor of the port. The handler of the alarm writes its message there. Standard error output until then.
static ALARM_FD: AtomicI32 = AtomicI32::new(2);

/// The connection to the host.
pub struct Agent {
    port: File,
}

impl Agent {
    /// Opens the second serial port.
    pub fn open() -> Agent {
        let open = |path| OpenOptions::new().read(true).write(true).open(path);
        let port = open("/dev/ttyS1").and_then(|port| {
            // In its default mode the port would echo its input. The call fails for a port without hardware.
            sys::make_raw(&port)?;
            Ok(port)
        });
        let port = port.or_else(|_| open("/dev/console")).unwrap_or_else(|error| {
            eprintln!("guest: cannot open a second serial port or the console: {error}");
            sys::power_off()
        });
        ALARM_FD.store(port.as_raw_fd(), Ordering::Relaxed);
        Agent { port }
    }

    /// Sends one JSON object.
    pub fn send(&mut self, object: &str) {
        // If the host cannot read, it ends this machine.
        let _ = self.port.write_all(format!("irqlab {object}\n").as_bytes());
    }

    /// Reports that a step failed. Returns the step's status.
    pub fn step(&mut self, name: &str, status: u8) -> u8 {
        self.send(&format!(r#"{{"event":"step","name":"{name}","status":{status}}}"#));
        status
    }

    /// Waits for a line from the host, whose content is ignored. Returns false if reading fails or the line is too
    /// long.
    ///
    /// The line comes at another time in each run. So only the request `probe`, and the end of a run that the host
    /// stops, may use this function.
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

    /// The file descriptor of the port, to wait for the host's line that ends a run early.
    pub fn descriptor(&self) -> i32 {
        self.port.as_raw_fd()
    }

    /// Powers the machine off after `limit_s` guest seconds, even in the middle of a request.
    pub fn limit_time(&self, limit_s: u32) {
        if let Err(error) = sys::on_alarm(limit_s, alarm) {
            eprintln!("guest: cannot set the alarm of the time limit: {error}");
        }
    }

    /// Reports the exit status, waits until all output is sent, and powers the machine off.
    pub fn power_off(mut self, status: u8) -> ! {
        self.send(&format!(r#"{{"event":"exit","status":{status}}}"#));
        let _ = io::stdout().flush();
        sys::drain(&self.port);
        sys::drain(&io::stdout());
        sys::power_off()
    }
}

/// The signal handler of the alarm. It must not allocate or take a lock.
extern "C" fn alarm(_signal: i32) {
    let messages = b"irqlab {\"event\":\"limit\"}\nirqlab {\"event\":\"exit\",\"status\":124}\n";
    sys::write_raw(ALARM_FD.load(Ordering::Relaxed), messages);
    sys::power_off()
}
