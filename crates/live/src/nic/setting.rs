//! [`Setting`]: one setting of an interface, with its value as one line of text. Reads and writes it through sysfs,
//! sysctl, ethtool or netlink (`network`).
//!
//! The journal stores settings and values on disk, and tables and messages show them. Therefore neither the names of
//! the variants nor the text of values may change.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::Interface;
use crate::network::coalescing::{self, Coalescing};
use crate::network::ethtool::{Ethtool, GRO};
use crate::network::napi;

/// Largest value that is read, in bytes.
const VALUE_BYTES_MAX: usize = 1024;

/// A setting. Its value is one line of text. A value of several numbers has the form `NAME VALUE ...`, such as
/// `adaptive-rx off rx-usecs 50 rx-frames 64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// `gro_flush_timeout` in sysfs: the time in ns after which NAPI polls again. Writing
    /// it sets all instances.
    GroFlushTimeout,
    /// `napi_defer_hard_irqs` in sysfs: the number of polls without a packet before interrupts are
    /// used again. Writing it sets all instances.
    DeferHardIrqs,
    /// `threaded` in sysfs: whether threads poll.
    Threaded,
    /// `rps_cpus` of a receive queue: a mask of the CPUs that get the queue's packets.
    Steering { queue: u32 },
    /// Merging of received packets (GRO), `on` or `off`. On a veth it also switches NAPI on.
    Gro,
    /// `adaptive-rx`, `rx-usecs` and `rx-frames` of ethtool, if the driver has them.
    Coalescing,
    /// `defer-hard-irqs`, `gro-flush-timeout` and `irq-suspend-timeout` of a NAPI instance.
    Napi {
        /// Number of the instance.
        id: u32,
    },
    /// `net.core.busy_read`, us: how long reads poll. Applies to all interfaces.
    BusyRead,
    /// `net.core.busy_poll`, us: how long poll(2) polls. Applies to all interfaces.
    BusyPoll,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::GroFlushTimeout => f.write_str("gro_flush_timeout"),
            Setting::DeferHardIrqs => f.write_str("napi_defer_hard_irqs"),
            Setting::Threaded => f.write_str("threaded"),
            Setting::Steering { queue } => write!(f, "queues/rx-{queue}/rps_cpus"),
            Setting::Gro => f.write_str("gro"),
            Setting::Coalescing => f.write_str("coalescing"),
            Setting::Napi { id } => write!(f, "napi {id}"),
            Setting::BusyRead => f.write_str("net.core.busy_read"),
            Setting::BusyPoll => f.write_str("net.core.busy_poll"),
        }
    }
}

impl Setting {
    /// The file of a setting that applies to all interfaces; `None` for a setting of one interface.
    pub(super) fn global_path(self) -> Option<&'static str> {
        match self {
            Setting::BusyRead => Some("/proc/sys/net/core/busy_read"),
            Setting::BusyPoll => Some("/proc/sys/net/core/busy_poll"),
            _ => None,
        }
    }

    /// The file of the setting; `None` for a setting that is no file.
    fn path(self, interface: &str) -> Option<String> {
        match self {
            Setting::Gro | Setting::Coalescing | Setting::Napi { .. } => None,
            Setting::BusyRead | Setting::BusyPoll => self.global_path().map(str::to_owned),
            _ => Some(format!("/sys/class/net/{interface}/{self}")),
        }
    }

    /// The shell command with which a user sets the value.
    #[must_use]
    pub fn line(self, interface: &str, value: &str) -> String {
        match self {
            Setting::BusyRead | Setting::BusyPoll => format!("sysctl -w {self}={value}"),
            Setting::Gro => format!("ethtool -K {interface} gro {value}"),
            Setting::Coalescing => format!("ethtool -C {interface} {value}"),
            Setting::Napi { id } => {
                let member = |(name, value): (&str, &str)| format!(", \"{name}\": {value}");
                let members: String = pairs(value).into_iter().map(member).collect();
                format!("ynl --family netdev --do napi-set --json '{{\"id\": {id}{members}}}'")
            }
            _ => format!("echo {value} > /sys/class/net/{interface}/{self}"),
        }
    }

    /// Reads the present value.
    ///
    /// Fails if the kernel or the driver does not have the setting (`Unsupported`, `NotFound`).
    pub fn read(self, interface: &Interface) -> io::Result<String> {
        match self {
            Setting::Gro => {
                let is_on = Ethtool::open()?.get(interface.name(), GRO)?;
                Ok(if is_on { "on" } else { "off" }.to_owned())
            }
            Setting::Coalescing => match coalescing_text(&coalescing::read(interface.index())?) {
                text if text.is_empty() => Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "its driver does not coalesce interrupts",
                )),
                text => Ok(text),
            },
            Setting::Napi { id } => {
                let instances = napi::instances(interface.index())?;
                let found = instances.iter().find(|instance| instance.id == id);
                Ok(napi_text(&found.ok_or(io::ErrorKind::NotFound)?.settings))
            }
            _ => {
                let path = self.path(interface.name()).unwrap_or_default();
                let text = crate::host::Root::default().text_up_to(&path, VALUE_BYTES_MAX);
                match text {
                    Some(text) => Ok(text.trim().to_owned()),
                    // Reads the file again for the error, which `None` does not contain.
                    None => std::fs::read_to_string(path).map(|text| text.trim().to_owned()),
                }
            }
        }
    }

    /// Sets the value. The device may take another value than the requested one, so read it back afterwards.
    ///
    /// Fails without CAP_NET_ADMIN, or if kernel or driver refuse the value.
    pub fn write(self, interface: &Interface, value: &str) -> io::Result<()> {
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("{self} is not {value:?}"));
        match self {
            Setting::Gro => match value {
                "on" | "off" => Ethtool::open()?.set(interface.name(), GRO, value == "on"),
                _ => Err(invalid()),
            },
            Setting::Coalescing => {
                coalescing::write(interface.index(), &coalescing_of(value).ok_or_else(invalid)?)
            }
            Setting::Napi { id } => napi::write(id, &napi_of(value).ok_or_else(invalid)?),
            _ => std::fs::write(self.path(interface.name()).unwrap_or_default(), value),
        }
    }
}

/// Splits `NAME VALUE ...` into pairs of name and value. Leaves out a last name without a value.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The text of coalescing settings. Leaves out settings that the driver lacks.
pub(super) fn coalescing_text(values: &Coalescing) -> String {
    let Coalescing { adaptive, delay_us, frames } = *values;
    let parts = [
        adaptive.map(|on| format!("adaptive-rx {}", if on { "on" } else { "off" })),
        delay_us.map(|us| format!("rx-usecs {us}")),
        frames.map(|frames| format!("rx-frames {frames}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Parses the text that [`coalescing_text`] makes; `None` for any other text.
pub(super) fn coalescing_of(text: &str) -> Option<Coalescing> {
    let mut values = Coalescing::default();
    for (name, value) in pairs(text) {
        match name {
            "adaptive-rx" => {
                values.adaptive = match value {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => return None,
                }
            }
            "rx-usecs" => values.delay_us = Some(value.parse().ok()?),
            "rx-frames" => values.frames = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    (coalescing_text(&values) == text).then_some(values)
}

/// The text of an instance's settings. Leaves out settings that the kernel lacks.
pub(super) fn napi_text(values: &napi::Settings) -> String {
    let parts = [
        ("defer-hard-irqs", values.defer_hard_irqs),
        ("gro-flush-timeout", values.gro_flush_timeout_ns),
        ("irq-suspend-timeout", values.irq_suspend_timeout_ns),
    ];
    let known = parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    known.collect::<Vec<_>>().join(" ")
}

/// The part of the value `text` with the names in the value `selection`, in the order of `selection`, whose own numbers
/// do not matter. Leaves out names that `text` lacks. Both values have the form `NAME VALUE ...`.
pub(super) fn part_of(text: &str, selection: &str) -> String {
    let pairs_of_text = pairs(text);
    let pair_with = |name: &str| pairs_of_text.iter().find(|(found, _)| *found == name);
    let names = pairs(selection).into_iter().map(|(name, _)| name);
    let selected = names.filter_map(pair_with);
    selected.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(" ")
}

/// Parses the text that [`napi_text`] makes; `None` for any other text.
fn napi_of(text: &str) -> Option<napi::Settings> {
    let mut values = napi::Settings::default();
    for (name, value) in pairs(text) {
        let value = Some(value.parse().ok()?);
        match name {
            "defer-hard-irqs" => values.defer_hard_irqs = value,
            "gro-flush-timeout" => values.gro_flush_timeout_ns = value,
            "irq-suspend-timeout" => values.irq_suspend_timeout_ns = value,
            _ => return None,
        }
    }
    (napi_text(&values) == text).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_numbers_are_text_and_back() {
        for text in ["adaptive-rx off rx-usecs 50 rx-frames 64", "rx-frames 1", ""] {
            assert_eq!(coalescing_text(&coalescing_of(text).unwrap()), text);
        }
        for text in ["defer-hard-irqs 2 gro-flush-timeout 0 irq-suspend-timeout 20000000", ""] {
            assert_eq!(napi_text(&napi_of(text).unwrap()), text);
        }
        for nonsense in ["rx-usecs", "rx-usecs -1", "rx-usecs 1 tx-usecs 1", "adaptive-rx 1", "x"] {
            assert_eq!(coalescing_of(nonsense), None, "{nonsense}");
        }
        for nonsense in ["defer-hard-irqs x", "defer-hard-irqs 1 id 7", "threaded 1"] {
            assert_eq!(napi_of(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn each_setting_has_its_line() {
        let line = |setting: Setting, value: &str| setting.line("eth0", value);
        assert_eq!(
            line(Setting::GroFlushTimeout, "50000"),
            "echo 50000 > /sys/class/net/eth0/gro_flush_timeout"
        );
        assert_eq!(line(Setting::BusyPoll, "25"), "sysctl -w net.core.busy_poll=25");
        assert_eq!(line(Setting::Coalescing, "rx-usecs 50"), "ethtool -C eth0 rx-usecs 50");
        assert_eq!(
            line(Setting::Napi { id: 257 }, "irq-suspend-timeout 0"),
            "ynl --family netdev --do napi-set --json '{\"id\": 257, \"irq-suspend-timeout\": 0}'"
        );
    }
}
