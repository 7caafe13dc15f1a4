//! Reports facts of the running kernel: the message `facts` to the host, and a line on the console.
//! `main` calls it before the request is executed.

use std::fs;
use std::path::Path;

use crate::agent::Agent;
use crate::devices::Device;
use crate::{share, sys};

const SECOND_NS: u64 = 1_000_000_000;

/// Sends the message `facts` to the host, and prints it on the console. `modules_failed`: the modules that failed to
/// load.
pub fn report(agent: &mut Agent, modules_failed: &[String], devices: &[Device]) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The kernel's coarse clocks advance with the tick, so clock_getres returns TICK_NSEC.
    let hz = sys::coarse_resolution_ns().map(|tick_ns| (SECOND_NS + tick_ns / 2) / tick_ns);
    let hz = hz.map_or("null".to_owned(), |hz| hz.to_string());
    let has = |name: &str| {
        let path = share::FILES.iter().find(|(file, _)| *file == name).map(|(_, path)| *path);
        path.is_some_and(|path| Path::new(path).exists())
    };
    let failed: Vec<String> = modules_failed.iter().map(|name| quoted(name)).collect();
    let devices: Vec<String> = devices.iter().map(Device::to_json).collect();
    let facts = format!(
        r#"{{"event":"facts","release":{},"hz":{hz},"cpus":{},"kallsyms":{},"btf":{},"config":{},"modules_failed":[{}],"devices":[{}],"mitigations":{{{}}}}}"#,
        quoted(release.trim()),
        sys::cpus_online(),
        has("kallsyms"),
        has("btf"),
        has("config"),
        failed.join(","),
        devices.join(","),
        mitigations().join(","),
    );
    agent.send(&facts);
    println!("irqlab {facts}");
}

/// The kernel's mitigation of each bug of processors, as pairs of a JSON object. Empty if the kernel states none.
fn mitigations() -> Vec<String> {
    let files = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten();
    let stated = files.flatten().filter_map(|file| {
        let statement = fs::read_to_string(file.path()).ok()?;
        Some(format!("{}:{}", quoted(file.file_name().to_str()?), quoted(statement.trim())))
    });
    let mut stated: Vec<String> = stated.collect();
    stated.sort();
    stated
}

/// Returns text as a JSON string, with its quotation marks.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => out += &format!("\\u{:04x}", u32::from(control)),
            plain => out.push(plain),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(super::quoted("6.1\n\"a\\"), r#""6.1\u000a\"a\\""#);
    }
}
