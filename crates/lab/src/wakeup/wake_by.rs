//! What wakes the measured threads.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What wakes the measured threads. The words are those of the command line, of the settings, and
/// of the request to a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeBy {
    /// The timer of the thread's own sleep.
    #[default]
    Timer,
    /// Another thread, with FUTEX_WAKE on a private futex(2).
    Futex,
    /// Another thread, with a write to an eventfd(2).
    Eventfd,
    /// Another thread, with a UDP packet over the loopback interface.
    Packet,
    /// A disk, by its interrupt at the end of a read of the thread's own.
    Disk,
}

impl WakeBy {
    const ALL: [WakeBy; 5] =
        [WakeBy::Timer, WakeBy::Futex, WakeBy::Eventfd, WakeBy::Packet, WakeBy::Disk];

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            WakeBy::Timer => "timer",
            WakeBy::Futex => "futex",
            WakeBy::Eventfd => "eventfd",
            WakeBy::Packet => "packet",
            WakeBy::Disk => "disk",
        }
    }

    /// Whether another thread wakes the measured thread.
    #[must_use]
    pub fn has_waker(self) -> bool {
        matches!(self, WakeBy::Futex | WakeBy::Eventfd | WakeBy::Packet)
    }
}

impl FromStr for WakeBy {
    type Err = String;

    fn from_str(text: &str) -> Result<WakeBy, String> {
        WakeBy::ALL
            .into_iter()
            .find(|wake_by| wake_by.word() == text)
            .ok_or_else(|| "allowed: timer, futex, eventfd, packet, disk".to_owned())
    }
}

/// A warning if the wakers share the CPU of a measured thread. `scheduler`: their scheduling class.
#[must_use]
pub fn shared_waker_warning(measured: &[u32], cpu: u32, scheduler: &str) -> Option<String> {
    measured.contains(&cpu).then(|| {
        format!(
            "the wakers share CPU {cpu} with a measured thread, at {scheduler}: their time until it takes the CPU from \
             them is part of its lateness (another CPU: --waker-cpu)"
        )
    })
}
