//! `perf`, as the distribution packages it, in the guest.

use std::fs;
use std::io::Write;
use std::process::Command;

use crate::marker;

/// Runs the `perf` commands of the test; their output goes to the second serial port.
pub fn run() {
    let mut port = fs::OpenOptions::new().write(true).open("/dev/ttyS1").unwrap();
    let mut say = |title: &str, output: &[u8]| {
        let output = String::from_utf8_lossy(output);
        let _ = writeln!(port, "== {title}");
        for line in output.lines() {
            let _ = writeln!(port, "{line}");
        }
    };
    for iterations in ["1000000", "4000000"] {
        let stat = perf(&["stat", "-x,", "-e", "instructions:u,cycles:u", "/init", "loop", iterations]);
        say(&format!("stat {iterations}"), &stat.stderr);
    }
    let default = perf(&["stat", "-x,", "/init", "loop", "1000000"]);
    say("stat", &default.stderr);
    let counted = "instructions:u";
    let output = "/tmp/samples";
    let record =
        perf(&["record", "-e", counted, "-c", "100000", "-o", output, "/init", "loop", "10000000"]);
    say("record", &record.stderr);
    let all = ["record", "-a", "-e", "cycles", "-c", "50000", "-o", "/tmp/all"];
    say("record -a", &perf(&[&all[..], &["/init", "loop", "1000000"]].concat()).stderr);
    let script = perf(&["script", "-i", output, "-F", "ip,event"]);
    say("script", &script.stdout);
    say("script errors", &script.stderr);
    say("interrupts", &fs::read("/proc/interrupts").unwrap());
    say("end", b"");
    marker::mark(marker::END, 0);
}

fn perf(arguments: &[&str]) -> std::process::Output {
    Command::new("/usr/bin/perf").env("HOME", "/tmp").args(arguments).output().unwrap()
}
