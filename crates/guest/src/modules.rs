//! Where the kernel has the sections of its modules, for the names of their functions: a message `modules` with
//! the field `modules`, a list of `name` and `sections` (addresses in hexadecimal by the names of the sections).

use std::fs;
use std::path::Path;

use crate::agent::Agent;
use crate::facts::quoted;

/// How the names of sections with code and variables start. Others, such as notes, have nothing that is named.
const NAMED: [&str; 6] = [".text", ".noinstr", ".exit.text", ".data", ".bss", ".rodata"];
/// Maximum length of the message, bytes: the host drops longer ones.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Sends the sections of all modules.
pub fn report(agent: &mut Agent) {
    let modules = list(Path::new("/sys/module"));
    if modules.len() <= MESSAGE_BYTES_MAX {
        agent.send(&format!(r#"{{"event":"modules","modules":[{modules}]}}"#));
    }
}

/// Returns JSON objects, with commas between them.
fn list(directory: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map(|all| {
            all.flatten().map(|one| one.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    names.sort();
    let module = |name: &String| {
        let sections = sections(&directory.join(name).join("sections"));
        let named =
            || format!(r#"{{"name":{},"sections":{{{}}}}}"#, quoted(name), sections.join(","));
        (!sections.is_empty()).then(named)
    };
    names.iter().filter_map(module).collect::<Vec<_>>().join(",")
}

/// Returns the members of a JSON object; none for what is built in.
fn sections(directory: &Path) -> Vec<String> {
    let mut sections = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if NAMED.iter().any(|start| name.starts_with(start)) {
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
        let place = std::env::temp_dir().join(format!("irqlab-modules-{}", std::process::id()));
        let sections = place.join("nic/sections");
        fs::create_dir_all(&sections).unwrap();
        fs::create_dir_all(place.join("built_in/parameters")).unwrap();
        for (name, text) in
            [(".text", "0xffffffffc0001000\n"), (".note.Linux", "0x1\n"), (".data", "0x2\n")]
        {
            fs::write(sections.join(name), text).unwrap();
        }
        let list = list(&place);
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(list, r#"{"name":"nic","sections":{".data":"2",".text":"ffffffffc0001000"}}"#);
    }
}
