//! The list of hosts: one for each line, as `ssh` takes it. A name becomes an argument of a program and the name of a
//! directory, so only plain characters are allowed.

use std::collections::HashMap;

use crate::directory::RESERVED_NAMES;
use crate::error::FleetError;

/// Maximum number of hosts.
pub const HOSTS_MAX: usize = 100_000;
/// Maximum size of a list, bytes.
pub const HOST_LIST_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of a host's name, bytes.
const NAME_BYTES_MAX: usize = 200;
/// Characters that a name may contain besides ASCII letters and digits.
const SIGNS: &[u8] = b".-_:@%";
/// Maximum number of characters of a refused name in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// Parses a list of hosts: a name on each line, with empty lines and comments after `#`. Errors name the list
/// as `source`.
///
/// Fails if a name is not allowed or occurs twice, if the list is empty, or if it has more than [`HOSTS_MAX`] hosts.
pub fn parse_hosts(text: &[u8], source: &str) -> Result<Vec<String>, FleetError> {
    let invalid = |what: String| FleetError::Invalid(format!("{source}: {what}"));
    let names = || {
        let lines = text.split(|byte| *byte == b'\n').zip(1_usize..);
        lines.filter_map(|(line, number)| {
            let name = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let name = name.trim_ascii();
            (!name.is_empty()).then_some((name, number))
        })
    };
    let count = names().count();
    if count > HOSTS_MAX {
        return Err(invalid(format!("{count} hosts, and at most {HOSTS_MAX} are allowed")));
    }
    if count == 0 {
        return Err(invalid("no host is listed".to_owned()));
    }
    let mut hosts = Vec::with_capacity(count);
    let mut lines = HashMap::with_capacity(count);
    for (name, number) in names() {
        let name = String::from_utf8_lossy(name);
        check_host(&name).map_err(|reason| invalid(format!("line {number}: {reason}")))?;
        // Names of hosts do not depend on case.
        if let Some(first) = lines.insert(name.to_ascii_lowercase(), number) {
            return Err(invalid(format!(
                "line {number}: {name} is listed already in line {first} (two measurements of one host disturb each \
                 other)"
            )));
        }
        hosts.push(name.into_owned());
    }
    Ok(hosts)
}

/// Checks the name of a host, perhaps with a user: `node7`, `root@node7`, `192.0.2.7`, `fe80::1%eth0`.
///
/// Fails with the reason if a program could take the name for an option, or if it is no name for a directory.
pub fn check_host(name: &str) -> Result<(), String> {
    let shown: String = name.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("\"{shown}…\" is longer than {NAME_BYTES_MAX} bytes"));
    }
    if name.starts_with('-') {
        return Err(format!("\"{shown}\" starts with -, so ssh would take it for an option"));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || SIGNS.contains(&byte);
    if let Some(sign) = name.chars().find(|sign| !u8::try_from(*sign).is_ok_and(is_allowed)) {
        return Err(format!(
            "\"{shown}\" contains {sign:?}; a host's name has letters, digits and . - _ : @ %"
        ));
    }
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == ':') {
        return Err(format!("\"{shown}\" does not start with a letter or a digit"));
    }
    // The part after the user is what a program resolves.
    if name.rsplit('@').next().is_some_and(|host| host.is_empty() || host.starts_with('-')) {
        return Err(format!("\"{shown}\" names no host"));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(format!("{name} is the name of a file in the directory of a fleet"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &[u8]) -> String {
        parse_hosts(text, "hosts.txt").unwrap_err().to_string()
    }

    #[test]
    fn a_list_has_a_host_on_each_line() {
        let text =
            b"# rack 7\nnode1\n\n  root@node2.example  # spare\r\n192.0.2.7\nfe80::1%eth0\n::1\n";
        let hosts = parse_hosts(text, "hosts.txt").unwrap();
        assert_eq!(hosts, ["node1", "root@node2.example", "192.0.2.7", "fe80::1%eth0", "::1"]);
    }

    #[test]
    fn names_that_are_no_hosts_are_refused() {
        assert!(error_of(b"a\n-oProxyCommand=x\n").contains("line 2"));
        assert!(error_of(b"-oProxyCommand=x\n").contains("for an option"));
        assert!(error_of(b"root@-x\n").contains("names no host"));
        assert!(error_of(b"a\x1b[2Jb\n").contains("\\u{1b}"));
        assert!(
            error_of(b"../x\n").contains("contains '/'") || error_of(b"../x\n").contains("start")
        );
        assert!(error_of(b"..\n").contains("does not start"));
        assert!(error_of(b"a b\n").contains("' '"));
        assert!(error_of("kn\u{f6}te\n".as_bytes()).contains("\u{f6}"));
        assert!(error_of(&[b'x'; 300]).contains("longer than 200"));
        assert!(error_of(b"hosts.json\n").contains("is the name of a file"));
        assert!(error_of(b"$(id)\n").contains("'$'"));
    }

    #[test]
    fn duplicates_and_empty_lists_are_refused() {
        assert!(error_of(b"a\nb\nA\n").contains("line 3: A is listed already in line 1"));
        assert!(error_of(b"# nobody\n\n").contains("no host is listed"));
    }

    #[test]
    fn a_million_hosts_are_refused_with_their_number() {
        let text: String = (0..1_000_000).map(|number| format!("n{number}\n")).collect();
        assert!(error_of(text.as_bytes()).contains("1000000 hosts, and at most 100000"));
    }
}
