//! Reports the addresses of the sections of loaded kernel modules. The host needs them to name the modules' functions.
//!
//! The message `modules` has the field `modules`: a list of objects with `name` and `sections`. `sections` maps each
//! section's name to its address in hexadecimal.

use std::fs;
use std::path::Path;

use crate::agent::Agent;
use crate::facts::quoted;

/// Prefixes of the names of sections with code or variables. Other sections, for example notes, have no symbols.
const SECTIONS_WITH_SYMBOLS: [&str; 6] =
    [".text", ".noinstr", ".exit.text", ".data", ".bss", ".rodata"];
/// Maximum length of the message in bytes. The host drops longer messages.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Sends the sections of all modules, or nothing if the message would be too long.
pub fn report(agent: &mut Agent) {
    let modules = list(Path::new("/sys/module"));
    if modules.len() <= MESSAGE_BYTES_MAX {
        agent.send(&format!(r#"{{"event":"modules","modules":[{modules}]}}"#));
    }
}

/// Returns a JSON object for each loaded module, separated by commas and sorted by name.
fn list(directory: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    let module = |name: &String| {
        let sections = sections(&directory.join(name).join("sections"));
        let to_json =
            || format!(r#"{{"name":{},"sections":{{{}}}}}"#, quoted(name), sections.join(","));
        (!sections.is_empty()).then(to_json)
    };
    names.iter().filter_map(module).collect::<Vec<_>>().join(",")
}

/// Returns `"NAME":"ADDRESS"` for each section with symbols. Empty for a built-in module, which has no sections.
fn sections(directory: &Path) -> Vec<String> {
    let mut sections = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if SECTIONS_WITH_SYMBOLS.iter().any(|start| name.starts_with(start)) {
            let address = fs::read_to_string(entry.path()).unwrap_or_default();
            let address = address.trim().trim_start_matches("0x").to_owned();
            sections.push(format!("{}:{}", quoted(&name), quoted(&address)));
        }
    }
    sections.sort();
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_with_code_and_variables() {
        let directory = std::env::temp_dir().join(format!("irqlab-modules-{}", std::process::id()));
        let sections = directory.join("nic/sections");
        fs::create_dir_all(&sections).unwrap();
        fs::create_dir_all(directory.join("built_in/parameters")).unwrap();
        for (name, text) in
            [(".text", "0xffffffffc0001000\n"), (".note.Linux", "0x1\n"), (".data", "0x2\n")]
        {
            fs::write(sections.join(name), text).unwrap();
        }
        let list = list(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(list, r#"{"name":"nic","sections":{".data":"2",".text":"ffffffffc0001000"}}"#);
    }
}
