//! Measures CPU time and memory of the commands that read a run, for the figures of docs/report.md.
//!
//!     cargo run --release -p report --example measure -- show|report RUN
//!
//! Prints CPU time in ms, which depends less on other load than wall time does, and the maximum memory in MB.

use std::path::Path;

use record::{Part, read_run_parts};
use report::{Entry, TerminalOptions, needed, page, terminal};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, directory] = &arguments[..] else {
        return Err("usage: measure show|report RUN".into());
    };
    let bytes = match what.as_str() {
        "show" => {
            let run = read_run_parts(Path::new(directory), |table| {
                if table.display.rows_max == Some(0) { Part::Outline } else { Part::All }
            })?;
            terminal(&run, TerminalOptions::default()).len()
        }
        _ => {
            let run = read_run_parts(Path::new(directory), needed)?;
            page(&[Entry { run: &run, directory }], &[])?.len()
        }
    };
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // utime and stime, in ticks of 10 ms: fields 14 and 15 of proc_pid_stat(5).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("?");
    println!(
        "{what} {directory}: {bytes} bytes, {} ms of CPU time, peak {}",
        ticks * 10,
        peak.trim()
    );
    Ok(())
}
