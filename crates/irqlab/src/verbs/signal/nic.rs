//! Shell lines that make a Linux network interface use a scheme, and lines that undo it. `signal advise --nic` prints
//! and records them.
//!
//! This file reads the present values, because the undo lines contain them. It changes no setting; `apply` does.

use lab::signal::SettingLine;
use live::nic::scheme::{Abilities, RequiredSetting};
use live::nic::{Interface, Setting};
use record::{Absence, Attachment};
use signalling::Scheme;

use crate::options::Usage;

/// The shell lines that an interface needs for a scheme, and what the lines leave out.
#[derive(Debug, Default)]
pub struct SettingLines {
    /// The lines in typing order.
    pub lines: Vec<SettingLine>,
    /// The settings that the scheme requires.
    pub required: Vec<RequiredSetting>,
    /// Settings without a line, with the reasons.
    pub absent: Vec<Absence>,
    /// Warnings for the user of the lines.
    pub warnings: Vec<String>,
}

/// Finds the interface with this name.
///
/// Fails when there is no such interface.
pub fn interface(name: &str) -> Result<Interface, Usage> {
    Interface::find(name)
        .map_err(|error| Usage(format!("--nic {}: {error}", report::escape::plain(name))))
}

/// The lines for a scheme. `low_hz`: the lowest rate of events, which some settings depend on. With `threaded`, the
/// handler runs in a thread, and other tasks get their share of the CPU. `read` returns the present value of a setting,
/// or the reason why it cannot be read.
pub fn lines(
    name: &str,
    abilities: &Abilities,
    scheme: Scheme,
    low_hz: u64,
    threaded: bool,
    read: &dyn Fn(Setting) -> Result<String, String>,
) -> SettingLines {
    let mut setting_lines = SettingLines::default();
    let mut required = match abilities.required_settings(scheme, Some(low_hz)) {
        Ok(required) => required,
        Err(impossible) => {
            let missing_lines = format!("lines for {scheme}");
            let absence = Absence::new("lines", missing_lines, impossible.reason);
            setting_lines.absent.push(absence.with_remedy(impossible.remedy));
            return setting_lines;
        }
    };
    if threaded {
        required.push(RequiredSetting { setting: Setting::Threaded, value: "1".to_owned() });
    }
    let quoted = shlex::try_quote(name).unwrap_or_default();
    for RequiredSetting { setting, value } in &required {
        let present_value = match read(*setting) {
            Ok(value) => value,
            Err(reason) => {
                setting_lines.absent.push(Absence::new("lines", setting.to_string(), reason));
                continue;
            }
        };
        setting_lines.lines.push(SettingLine {
            setting: setting.to_string(),
            set: setting.line(&quoted, value),
            undo: Some(setting.line(&quoted, &present_value)),
            now: Some(present_value),
        });
    }
    setting_lines.required = required;
    if let Some(reason) = abilities.napi_is_unknown() {
        setting_lines.warnings.push(format!(
            "cannot find out whether {name} has NAPI instances: {reason}; without an instance, its timers do \
             nothing"
        ));
    }
    match scheme {
        Scheme::Spin => setting_lines.warnings.push(
            "busy polling happens in the system calls of the reading program, so the program must read \
             all the time; the setting applies to all interfaces, and to sockets opened afterwards"
                .to_owned(),
        ),
        Scheme::Hybrid { .. } => setting_lines.warnings.push(
            "irq-suspend-timeout works only with a program that polls with epoll and sets \
             prefer_busy_poll (EPIOCSPARAMS)"
                .to_owned(),
        ),
        Scheme::Interrupt
        | Scheme::Drain { .. }
        | Scheme::SpinYield
        | Scheme::Poll
        | Scheme::Clocked { .. }
        | Scheme::Deferred { .. }
        | Scheme::Coalesced { .. } => {}
    }
    setting_lines
}

/// The set lines and the undo lines, each in typing order. The undo lines come in reverse order of the set lines.
fn set_and_undo_lines(lines: &[SettingLine]) -> (Vec<&str>, Vec<&str>) {
    let set = lines.iter().map(|line| line.set.as_str()).collect();
    (set, lines.iter().rev().filter_map(|line| line.undo.as_deref()).collect())
}

/// The lines as text for the terminal, where users copy them.
pub fn text(name: &str, lines: &[SettingLine]) -> String {
    let (set, undo) = set_and_undo_lines(lines);
    let indented =
        |lines: Vec<&str>| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    format!(
        "\nto use the scheme on {name}, as root:\n{}to undo it:\n{}",
        indented(set),
        indented(undo)
    )
}

/// The lines as two scripts in the run's directory: `set.sh` and `undo.sh`.
pub fn scripts(lines: &[SettingLine]) -> Vec<Attachment> {
    let (set, undo) = set_and_undo_lines(lines);
    let script = |name: &str, lines: Vec<&str>| Attachment {
        name: name.to_owned(),
        contents: format!("#!/bin/sh -e\n{}\n", lines.join("\n")).into_bytes(),
    };
    vec![script("set.sh", set), script("undo.sh", undo)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(scheme: &str, coalescing: &str, threaded: bool) -> SettingLines {
        let read = |setting: Setting| match setting {
            Setting::DeferHardIrqs => Ok("2".to_owned()),
            Setting::GroFlushTimeout => Ok("20000".to_owned()),
            Setting::BusyPoll => Ok("25".to_owned()),
            Setting::Coalescing => Ok(coalescing.to_owned()),
            Setting::Napi { .. } => Ok("irq-suspend-timeout 7".to_owned()),
            Setting::BusyRead => Err("there is none".to_owned()),
            _ => Ok("0".to_owned()),
        };
        let abilities = Abilities::assumed(coalescing, &[257]);
        lines("eth0", &abilities, scheme.parse().unwrap(), 1_000, threaded, &read)
    }

    #[test]
    fn lines_that_undo_have_the_present_values() {
        let all = set_up("deferred:50us", "", true);
        let lines: Vec<(&str, &str)> =
            all.lines.iter().map(|line| (&*line.set, line.undo.as_deref().unwrap())).collect();
        assert_eq!(
            lines,
            [
                (
                    "echo 50000 > /sys/class/net/eth0/gro_flush_timeout",
                    "echo 20000 > /sys/class/net/eth0/gro_flush_timeout"
                ),
                (
                    "echo 2147483647 > /sys/class/net/eth0/napi_defer_hard_irqs",
                    "echo 2 > /sys/class/net/eth0/napi_defer_hard_irqs"
                ),
                ("echo 1 > /sys/class/net/eth0/threaded", "echo 0 > /sys/class/net/eth0/threaded"),
            ]
        );
        assert!(all.absent.is_empty() && all.warnings.is_empty());
        let all = set_up("coalesced:64,50us", "adaptive-rx on rx-usecs 8 rx-frames 1", false);
        let line = all.lines.last().unwrap();
        assert_eq!(line.set, "ethtool -C eth0 adaptive-rx off rx-usecs 50 rx-frames 64");
        assert_eq!(
            line.undo.as_deref(),
            Some("ethtool -C eth0 adaptive-rx on rx-usecs 8 rx-frames 1")
        );
    }

    #[test]
    fn a_scheme_that_cannot_be_set_is_absent_with_its_reason() {
        let none = set_up("coalesced:64,50us", "", false);
        assert!(none.lines.is_empty() && none.required.is_empty());
        assert_eq!(none.absent[0].reason, "its driver does not coalesce interrupts");
        let none = set_up("yield", "", false);
        assert!(none.lines.is_empty() && none.absent.len() == 1);
        let spin = set_up("spin", "", false);
        assert_eq!(spin.absent[0].what, "net.core.busy_read");
        assert_eq!(spin.lines[0].undo.as_deref(), Some("sysctl -w net.core.busy_poll=25"));
        // Without a NAPI instance, a timer would do nothing.
        let read = |_: Setting| Ok("0".to_owned());
        let without = Abilities::assumed("", &[]);
        let scheme = "deferred:1ms".parse().unwrap();
        let none = lines("tap0", &without, scheme, 1_000, false, &read);
        assert!(none.lines.is_empty());
        assert_eq!(none.absent[0].reason, "it has no NAPI instance");
    }

    #[test]
    fn an_unknown_interface_is_refused_with_the_list_of_interfaces() {
        let error = interface("irqlab-no").unwrap_err().to_string();
        assert!(
            error.starts_with("--nic irqlab-no: there is no such network interface"),
            "{error}"
        );
    }
}
