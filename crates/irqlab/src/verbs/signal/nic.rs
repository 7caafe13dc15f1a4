//! The lines that make a network interface of Linux use a scheme, and those that undo it.
//!
//! Present values are read from sysfs and procfs, so that a line that undoes has them; nothing is set.

use live::host::Root;
use record::{Absence, Attachment, Column, Kind, Table, TableDisplay, Value};
use signalling::Scheme;

use super::titled;
use crate::options::Usage;

/// Largest value of `napi_defer_hard_irqs` (S32_MAX, net/core/net-sysfs.c): the interrupt stays off.
const DEFER_ALWAYS: u64 = 2_147_483_647;
/// `irq-suspend-timeout` for a hybrid, ns: as long as events keep coming, interrupts stay off. The
/// example of Documentation/networking/napi.rst.
const SUSPEND_NS: u64 = 20_000_000;
/// Longest time that a socket polls, us: net.core.busy_poll has no limit of its own.
const BUSY_POLL_US: std::ops::RangeInclusive<u64> = 50..=10_000;
/// Longest name of an interface, without the byte 0 (IFNAMSIZ).
const NAME_BYTES_MAX: usize = 15;

/// A line that sets something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it sets.
    what: &'static str,
    /// Its value now; absent where it cannot be read without rights or tools.
    now: Option<String>,
    set: String,
    undo: Option<String>,
}

/// What an interface must be told.
#[derive(Debug, Default)]
pub struct Lines {
    /// In the order in which they are to be typed.
    pub lines: Vec<Line>,
    /// What has no line, and why.
    pub absent: Vec<Absence>,
    /// What to know of them.
    pub warnings: Vec<String>,
}

/// The interface of that name, checked.
///
/// # Errors
/// When there is none.
pub fn interface(root: &Root, name: &str) -> Result<u64, Usage> {
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(|sign: char| sign == '/' || sign.is_whitespace() || sign.is_control());
    let index = is_name.then(|| read(root, &format!("sys/class/net/{name}/ifindex"))).flatten();
    index.and_then(|index| index.parse().ok()).ok_or_else(|| {
        let names = root.names("sys/class/net").unwrap_or_default();
        Usage(format!(
            "--nic {}: there is no such network interface (there are: {})",
            report::escape::plain(name),
            names.join(", ")
        ))
    })
}

/// A short value of one word.
fn read(root: &Root, path: &str) -> Option<String> {
    root.word(path).filter(|word| word.len() <= 64)
}

/// The lines for a scheme. `threaded`: the handler is to be a thread, so that others have their part of
/// the CPU.
pub fn lines(
    root: &Root,
    name: &str,
    index: u64,
    scheme: Scheme,
    low_hz: u64,
    threaded: bool,
) -> Lines {
    let mut told = Lines::default();
    let quoted = shlex::try_quote(name).unwrap_or_default();
    let sysfs = |what: &'static str, value: u64, told: &mut Lines| {
        let path = format!("sys/class/net/{name}/{what}");
        let Some(now) = read(root, &path) else {
            told.absent.push(absence(what, "the kernel does not have it for this interface", None));
            return;
        };
        let line = |value: &str| format!("echo {value} > /sys/class/net/{quoted}/{what}");
        let undo = now.bytes().all(|byte| byte.is_ascii_digit()).then(|| line(&now));
        told.lines.push(Line { what, set: line(&value.to_string()), undo, now: Some(now) });
    };
    let defer = |times: u64, delay_ns: u64, told: &mut Lines| {
        // The timeout first: without one, deferring does nothing.
        sysfs("gro_flush_timeout", delay_ns, told);
        sysfs("napi_defer_hard_irqs", times, told);
    };
    let coalesce = |us: u64, frames: u64, told: &mut Lines| {
        told.lines.push(Line {
            what: "coalescing",
            now: None,
            set: format!("ethtool -C {quoted} adaptive-rx off rx-usecs {us} rx-frames {frames}"),
            undo: None,
        });
        let remedy = Some(format!("ethtool -c {quoted}"));
        let reason =
            "sysfs does not have it; note adaptive-rx, rx-usecs and rx-frames before setting them";
        told.absent.push(absence("the present coalescing", reason, remedy));
    };
    match scheme {
        Scheme::Interrupt | Scheme::Drain { .. } => {
            defer(0, 0, &mut told);
            // Not 0 and 0, with which no interrupt would come (struct ethtool_coalesce, ethtool.h).
            coalesce(0, 1, &mut told);
            if scheme == Scheme::Interrupt {
                told.warnings.push(
                    "Linux handles events until there are none after each interrupt, as drain does"
                        .to_owned(),
                );
            }
        }
        Scheme::Clocked { period_ns } => {
            defer(DEFER_ALWAYS, period_ns, &mut told);
            told.warnings.push(format!(
                "Linux starts the timer anew after each handling: it does as deferred:{}",
                signalling::TimeText(period_ns)
            ));
        }
        Scheme::Deferred { delay_ns } => defer(DEFER_ALWAYS, delay_ns, &mut told),
        Scheme::Coalesced { count, delay_ns } => {
            defer(0, 0, &mut told);
            coalesce(delay_ns.div_ceil(1_000), count.into(), &mut told);
        }
        Scheme::Spin => {
            // Long enough for two gaps at the lowest rate.
            let us = (2_000_000 / low_hz.max(1)).clamp(*BUSY_POLL_US.start(), *BUSY_POLL_US.end());
            for (what, path) in [
                ("net.core.busy_read", "proc/sys/net/core/busy_read"),
                ("net.core.busy_poll", "proc/sys/net/core/busy_poll"),
            ] {
                let now = read(root, path);
                let undo = now.as_ref().map(|now| format!("sysctl -w {what}={now}"));
                told.lines.push(Line { what, now, set: format!("sysctl -w {what}={us}"), undo });
            }
            told.warnings.push(
                "busy polling polls in the system calls of the program that reads: it polls all the time \
                 only if the program always reads, and the setting is for sockets opened afterwards"
                    .to_owned(),
            );
        }
        Scheme::SpinYield => {
            let reason =
                "no setting of the kernel yields after each poll; a program that polls must";
            told.absent.push(absence("lines", reason, None));
        }
        Scheme::Hybrid { suspend_ns, .. } => {
            defer(1, suspend_ns, &mut told);
            let each = |value: u64| {
                let ids = format!(
                    "ynl --family netdev --dump napi-get --json '{{\"ifindex\": {index}}}' --output-json"
                );
                let set = format!(
                    "ynl --family netdev --do napi-set --json \"{{\\\"id\\\": $id, \
                     \\\"irq-suspend-timeout\\\": {value}}}\""
                );
                format!("for id in $({ids} | jq .[].id); do {set}; done")
            };
            told.lines.push(Line {
                what: "irq-suspend-timeout",
                now: None,
                set: each(SUSPEND_NS),
                undo: Some(each(0)),
            });
            told.warnings.push(
                "irq-suspend-timeout needs Linux 6.13 and a program that polls by epoll with \
                 prefer_busy_poll (EPIOCSPARAMS); the line that undoes it sets the kernel's default of 0"
                    .to_owned(),
            );
        }
    }
    if threaded {
        sysfs("threaded", 1, &mut told);
    }
    told
}

fn absence(what: &str, reason: &str, remedy: Option<String>) -> Absence {
    Absence { table: "lines".to_owned(), what: what.to_owned(), reason: reason.to_owned(), remedy }
}

/// The lines that set, and those that undo, in the order in which they are to be typed.
fn in_order(lines: &[Line]) -> (Vec<&str>, Vec<&str>) {
    let set = lines.iter().map(|line| line.set.as_str()).collect();
    (set, lines.iter().rev().filter_map(|line| line.undo.as_deref()).collect())
}

/// The lines as people copy them.
pub fn text(name: &str, lines: &[Line]) -> String {
    let (set, undo) = in_order(lines);
    let indented =
        |lines: Vec<&str>| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    format!("\nto set it on {name}, as root:\n{}to undo it:\n{}", indented(set), indented(undo))
}

/// The lines as two scripts of the run: `set.sh` and `undo.sh`.
pub fn scripts(lines: &[Line]) -> Vec<Attachment> {
    let (set, undo) = in_order(lines);
    let script = |name: &str, lines: Vec<&str>| Attachment {
        name: name.to_owned(),
        contents: format!("#!/bin/sh -e\n{}\n", lines.join("\n")).into_bytes(),
    };
    vec![script("set.sh", set), script("undo.sh", undo)]
}

/// Table `lines`.
pub fn table(lines: &[Line]) -> Table {
    let column = Column::new;
    let columns = vec![
        column("setting", Kind::Text, "What the line sets.").priority(60),
        column("now", Kind::Text, "Its present value; absent where it was not read.").priority(70),
        column("set_line", Kind::Text, "The line to type as root, in this order.")
            .title("to set it")
            .priority(100),
        column(
            "undo_line",
            Kind::Text,
            "The line that restores the present value, in reverse order.",
        )
        .title("to undo it")
        .priority(99),
    ];
    let doc = "The lines that make the interface use the recommended scheme, and undo that.";
    // Too long for a terminal's table: they are printed below it.
    let display = TableDisplay { rows_max: Some(0), ..titled("lines to type, as root") };
    let mut table = Table::new("lines", doc, columns).displayed(display);
    for line in lines {
        table.push(vec![
            line.what.into(),
            line.now.clone().map_or(Value::Absent, Value::from),
            line.set.clone().into(),
            line.undo.clone().map_or(Value::Absent, Value::from),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface as sysfs has it.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::new(dir.path());
        (dir, root)
    }

    const NIC: [(&str, &str); 6] = [
        ("sys/class/net/eth0/ifindex", "7\n"),
        ("sys/class/net/eth0/napi_defer_hard_irqs", "2\n"),
        ("sys/class/net/eth0/gro_flush_timeout", "20000\n"),
        ("sys/class/net/eth0/threaded", "0\n"),
        ("proc/sys/net/core/busy_read", "0\n"),
        ("proc/sys/net/core/busy_poll", "25\n"),
    ];

    fn told(scheme: &str, threaded: bool) -> Lines {
        let (_dir, root) = machine(&NIC);
        let index = interface(&root, "eth0").unwrap();
        lines(&root, "eth0", index, scheme.parse().unwrap(), 1_000, threaded)
    }

    #[test]
    fn lines_that_undo_have_the_present_values() {
        let told = told("deferred:50us", true);
        let lines: Vec<(&str, &str)> =
            told.lines.iter().map(|line| (&*line.set, line.undo.as_deref().unwrap())).collect();
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
        assert!(told.absent.is_empty() && told.warnings.is_empty());
    }

    #[test]
    fn what_sysfs_does_not_have_is_absent_with_its_reason() {
        let told = told("coalesced:64,50us", false);
        let line = told.lines.last().unwrap();
        assert_eq!(line.set, "ethtool -C eth0 adaptive-rx off rx-usecs 50 rx-frames 64");
        assert_eq!((&line.undo, &line.now), (&None, &None));
        assert_eq!(told.absent[0].remedy.as_deref(), Some("ethtool -c eth0"));
        let (_dir, root) = machine(&NIC[..1]);
        let old = lines(&root, "eth0", 7, "deferred:50us".parse().unwrap(), 1_000, false);
        assert!(old.lines.is_empty());
        assert_eq!(old.absent.len(), 2);
    }

    #[test]
    fn each_scheme_has_lines_or_a_reason_why_not() {
        let spin = told("spin", false);
        assert_eq!(spin.lines[1].set, "sysctl -w net.core.busy_poll=2000");
        assert_eq!(spin.lines[1].undo.as_deref(), Some("sysctl -w net.core.busy_poll=25"));
        let none = told("yield", false);
        assert!(none.lines.is_empty() && none.absent.len() == 1);
        assert!(told("clocked:1ms", false).warnings[0].contains("deferred:1ms"));
        let hybrid = told("hybrid:1,20us", false);
        assert!(hybrid.lines[2].set.contains("{\"ifindex\": 7}"), "{hybrid:?}");
        assert!(told("interrupt", false).lines[2].set.ends_with("rx-usecs 0 rx-frames 1"));
    }

    #[test]
    fn an_interface_that_is_none_is_refused_with_those_there_are() {
        let (_dir, root) = machine(&NIC);
        for name in ["eth1", "", "..", "a/b", "eth0 ", "eth0\n", "longer-than-fifteen"] {
            let error = interface(&root, name).unwrap_err().to_string();
            assert!(error.contains("no such network interface (there are: eth0)"), "{error}");
        }
    }
}
