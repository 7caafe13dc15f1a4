//! Finds the Debian mirror for [`super::apt`]: the mirror that the user names, or this machine's own if it runs
//! Debian.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::{Result, SimError};

/// The environment variable that names a mirror, such as `http://deb.debian.org/debian`.
pub(crate) const VARIABLE: &str = "IRQLAB_DEBIAN_MIRROR";
/// Maximum size of a sources file, bytes.
const SOURCES_BYTES_MAX: u64 = 1 << 20;

/// Returns the mirror that the user names, else the mirror of this machine; `None` if there is none.
///
/// Fails with [`SimError::Invalid`] if the user names something else than a mirror of Debian.
pub(crate) fn debian_mirror() -> Result<Option<String>> {
    let named_mirror = named(std::env::var_os(VARIABLE))?;
    Ok(named_mirror.or_else(|| configured(Path::new("/"))))
}

/// Returns the mirror in the value of [`VARIABLE`]; `None` if the variable is not set, or empty.
///
/// Fails if the value is not accepted. Another mirror in its place would have other packages than the user expects.
fn named(value: Option<OsString>) -> Result<Option<String>> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let uri = value.to_string_lossy();
    let mirror = accept(&uri, "", "main").ok_or_else(|| {
        SimError::Invalid(format!(
            "{VARIABLE}={uri:?} is no mirror of Debian (allowed: http:// or https://, and a path that ends in /debian or \
             has /archive/debian/ in it, as in http://deb.debian.org/debian)"
        ))
    })?;
    Ok(Some(mirror))
}

/// Returns the Debian mirror of the machine whose root directory is `root`.
fn configured(root: &Path) -> Option<String> {
    let system = fs::read_to_string(root.join("etc/os-release")).ok()?;
    system.lines().find(|line| line.trim_end().replace('"', "") == "ID=debian")?;
    let directory = root.join("etc/apt/sources.list.d");
    let mut files: Vec<_> = fs::read_dir(directory)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.insert(0, root.join("etc/apt/sources.list"));
    files.iter().find_map(|file| {
        let bytes = crate::regular_file::read_bounded(file, SOURCES_BYTES_MAX).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => text.lines().find_map(of_line),
            Some("sources") => text.split("\n\n").find_map(of_paragraph),
            _ => None,
        }
    })
}

/// Returns the mirror in a line `deb [options] URI SUITE COMPONENT...`.
fn of_line(line: &str) -> Option<String> {
    let remainder = line.trim().strip_prefix("deb ")?.trim_start();
    let remainder = match remainder.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => remainder,
    };
    let mut fields = remainder.split_whitespace();
    let uri = fields.next()?;
    let suite = fields.next()?;
    accept(uri, suite, fields.collect::<Vec<_>>().join(" ").as_str())
}

/// Returns the mirror in a paragraph of the deb822 format.
fn of_paragraph(paragraph: &str) -> Option<String> {
    let field = |name: &str| {
        paragraph.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    if field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no")) {
        return None;
    }
    field("Types")?.split_whitespace().find(|kind| *kind == "deb")?;
    let suite = field("Suites")?.split_whitespace().next()?;
    accept(field("URIs")?.split_whitespace().next()?, suite, field("Components")?)
}

/// Accepts a URI of Debian's main archive. `None` for the security archive and archives of other projects.
fn accept(uri: &str, suite: &str, components: &str) -> Option<String> {
    let uri = uri.trim_end_matches('/');
    let is_debian = uri.ends_with("/debian") || uri.contains("/archive/debian/");
    let is_main = components.split_whitespace().any(|component| component == "main");
    let is_plain = uri.starts_with("http://") || uri.starts_with("https://");
    let is_clean = uri.chars().all(|sign| sign.is_ascii_graphic());
    (is_debian && is_main && is_plain && is_clean && !suite.contains("security"))
        .then(|| uri.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(id: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/apt/sources.list.d")).unwrap();
        fs::write(root.path().join("etc/os-release"), format!("NAME=x\nID={id}\n")).unwrap();
        for (name, text) in files {
            fs::write(root.path().join("etc/apt").join(name), text).unwrap();
        }
        root
    }

    fn check(id: &str, files: &[(&str, &str)], mirror: Option<&str>) {
        let found = configured(machine(id, files).path());
        assert_eq!(found.as_deref(), mirror, "{files:?}");
    }

    #[test]
    fn the_configured_mirror_of_a_debian() {
        let security = "Types: deb\nURIs: http://a.example/debian-security\nSuites: \
                        bookworm-security\nComponents: main\n";
        let main = "Types: deb\n# note\nURIs: http://b.example/debian/\nSuites: bookworm \
                    bookworm-updates\nComponents: main\n";
        let both = format!("{security}\n{main}");
        check(
            "debian",
            &[("sources.list.d/debian.sources", &both)],
            Some("http://b.example/debian"),
        );
        let line = "# deb http://no.example/debian x main\n\
                    deb [arch=amd64 signed-by=/k] https://c.example/debian trixie main\n";
        check("debian", &[("sources.list", line)], Some("https://c.example/debian"));
        check("debian", &[("sources.list.d/x.sources", &format!("Enabled: no\n{main}"))], None);
    }

    #[test]
    fn a_named_mirror_is_used_or_refused() {
        let named = |value: &str| named(Some(value.into()));
        let mirror = named("http://m.example/debian/").unwrap();
        assert_eq!(mirror.as_deref(), Some("http://m.example/debian"));
        let snapshot = "https://snapshot.debian.org/archive/debian/20260101T000000Z";
        assert_eq!(named(snapshot).unwrap().as_deref(), Some(snapshot));
        for wrong in ["ftp://m.example/debian", "http://m.example/mirror", "m.example/debian", "x"]
        {
            let error = named(wrong).unwrap_err().to_string();
            assert!(error.contains(VARIABLE) && error.contains(wrong), "{error}");
        }
        assert_eq!(super::named(None).unwrap(), None);
        assert_eq!(named("").unwrap(), None);
    }

    #[test]
    fn others_have_none() {
        let line = "deb http://archive.example/ubuntu noble main\n";
        check("ubuntu", &[("sources.list", line)], None);
        check("debian", &[("sources.list", "deb http://x.example/other stable main")], None);
        check("debian", &[], None);
        assert_eq!(configured(Path::new("/nowhere/at-all")), None);
    }
}
