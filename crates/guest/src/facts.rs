//! Facts of the running kernel, for the host and, as one line, on the console.

use std::fs;
use std::path::Path;

use crate::agent::Agent;
use crate::devices::Device;
use crate::{share, sys};

const SECOND_NS: u64 = 1_000_000_000;

/// Sends `facts` to the host and prints the same on the console.
pub fn report(agent: &mut Agent, modules_failed: &[String], devices: &[Device]) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The kernel's coarse clocks advance with the tick, so clock_getres returns TICK_NSEC.
    let hz = sys::coarse_resolution_ns().map(|tick_ns| (SECOND_NS + tick_ns / 2) / tick_ns);
    let hz = hz.map_or("null".to_owned(), |hz| hz.to_string());
    let has = |name: &str| {
        let path = share::FILES.iter().find(|(of, _)| *of == name).map(|(_, path)| *path);
        path.is_some_and(|path| Path::new(path).exists())
    };
    let failed: Vec<String> = modules_failed.iter().map(|name| quoted(name)).collect();
    let devices: Vec<String> = devices.iter().map(Device::to_json).collect();
    let facts = format!(
        r#"{{"event":"facts","release":{},"hz":{hz},"cpus":{},"kallsyms":{},"btf":{},"config":{},"modules_failed":[{}],"devices":[{}]}}"#,
        quoted(release.trim()),
        sys::cpus_online(),
        has("kallsyms"),
        has("btf"),
        has("config"),
        failed.join(","),
        devices.join(","),
    );
    agent.send(&facts);
    println!("irqlab {facts}");
}

/// Returns text as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for sign in text.chars() {
        match sign {
            '"' | '\\' => out.extend(['\\', sign]),
            sign if sign.is_control() => out += &format!("\\u{:04x}", u32::from(sign)),
            sign => out.push(sign),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_of_json() {
        assert_eq!(super::quoted("6.1\n\"a\\"), r#""6.1\u000a\"a\\""#);
    }
}
