//! Merges the archives of packages and single files into one tar archive, sorted by path. `super::image` makes the
//! disk image from it.
//!
//! Nothing of the host may get in: entries are sorted, times are clamped to [`EPOCH_S`], owners come from the
//! packages. A change of the merged bytes needs a new [`super::RECIPE`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tar::{Builder, EntryType, Header};

use super::{Archive, EPOCH_S, OMITTED, RootSpec};
use crate::process::output_to;
use crate::{Result, SimError, hash};

/// Links in `usr/bin` that Debian's alternatives system would make, and their targets there. A link is made if
/// its target exists.
pub(super) const ALTERNATIVES: [(&str, &str); 5] =
    [("sh", "dash"), ("awk", "mawk"), ("cc", "gcc"), ("c++", "g++"), ("c99", "c99-gcc")];
/// Directories of the root that are links into `usr`, as in Debian from release 12 on.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Directories that programs expect, and their modes.
const DIRECTORIES: [(&str, u32); 17] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("irqlab", 0o755),
    ("mnt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/lib", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/lib", 0o755),
    ("var/tmp", 0o1777),
];
/// Maximum number of entries.
const ENTRIES_MAX: usize = 1 << 20;
/// Maximum length of a path, as in Linux.
const PATH_BYTES_MAX: usize = 4095;

/// Number of entries and sizes of the files in an archive.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) archive: PathBuf,
    /// Files, directories and links.
    pub(super) entries: u64,
    /// Sizes of all files, bytes.
    sizes: Vec<u64>,
}

impl Extent {
    /// Returns the number of blocks for the contents: of each file, and at most one of each directory or long link.
    pub(super) fn content_blocks(&self, block_bytes: u64) -> u64 {
        let files: u64 = self.sizes.iter().map(|bytes| bytes.div_ceil(block_bytes)).sum();
        files + self.entries
    }
}

/// An entry of the merged archive.
#[derive(Debug)]
struct Entry {
    kind: Kind,
    mode: u32,
    owner: u64,
    group: u64,
    time_s: u64,
}

#[derive(Debug)]
enum Kind {
    Directory,
    /// A symbolic link to this target, as the package has it.
    Symlink(String),
    /// Another name of the file at this path.
    Hardlink(String),
    /// Content that a package has: `bytes` bytes at an offset in the unpacked archive number `archive`.
    Packed {
        archive: usize,
        offset: u64,
        bytes: u64,
    },
    /// Content that irqlab adds: a file of the specification, or generated text.
    Added(Vec<u8>),
}

impl Entry {
    /// Returns an entry of root that irqlab makes.
    fn new(kind: Kind, mode: u32) -> Entry {
        Entry { kind, mode, owner: 0, group: 0, time_s: EPOCH_S }
    }
}

/// Checks that a path is inside a root file system: relative, without the first slash, and without `..`.
pub(super) fn check_path(path: &str) -> std::result::Result<(), String> {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let is_relative =
        !path.is_empty() && path.len() <= PATH_BYTES_MAX && path.split('/').all(is_plain);
    let is_clean = !path.chars().any(char::is_control);
    (is_relative && is_clean).then_some(()).ok_or_else(|| {
        format!("{path:?} is no path in a root file system (allowed: as in usr/bin/tool)")
    })
}

/// Merges the archives with the files of `spec` into an archive in `staging`.
pub(super) fn merge(spec: &RootSpec, archives: &[Archive], staging: &Path) -> Result<Extent> {
    let mut entries = BTreeMap::new();
    let mut contents = Vec::new();
    for (number, archive) in archives.iter().enumerate() {
        let unpacked = staging.join(format!("{number}.tar"));
        unpack(&archive.path, &unpacked)?;
        let file = File::open(&unpacked).map_err(SimError::file(&unpacked))?;
        // The open file is enough: without a name it ends with its last descriptor.
        std::fs::remove_file(&unpacked).map_err(SimError::file(&unpacked))?;
        read(&file, number, &mut entries).map_err(|error| {
            SimError::data(archive.path.display().to_string(), error.to_string())
        })?;
        contents.push(file);
    }
    complete(spec, &mut entries).map_err(SimError::Invalid)?;
    let target = staging.join("merged.tar");
    let sizes = write(&entries, &mut contents, &target).map_err(SimError::file(&target))?;
    Ok(Extent { archive: target, entries: entries.len() as u64, sizes })
}

/// Returns a hash of the files below a directory of a merged archive, without hard links: the SHA-256 of the list that
/// `sha256sum` would print for them, sorted by path.
///
/// Fails if there are no files.
pub(super) fn content_hash(merged: &Path, directory: &str) -> std::io::Result<String> {
    let mut archive = tar::Archive::new(BufReader::new(File::open(merged)?));
    let (directory, mut lines) = (Path::new(directory), String::new());
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if entry.header().entry_type() != EntryType::Regular || !path.starts_with(directory) {
            continue;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        let _ = writeln!(lines, "{}  {}", hash::of_bytes(&content), path.display());
    }
    if lines.is_empty() {
        let text = format!("the package has no files below {}", directory.display());
        return Err(std::io::Error::other(text));
    }
    Ok(hash::of_bytes(lines.as_bytes()))
}

/// Writes the tar archive that a package contains to the file `target`.
fn unpack(package: &Path, target: &Path) -> Result<()> {
    let file = File::create(target).map_err(SimError::file(target))?;
    output_to(Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package), Stdio::from(file))
}

/// Reads the entries of the archive number `number` into `entries`, by path.
fn read(file: &File, number: usize, entries: &mut BTreeMap<String, Entry>) -> std::io::Result<()> {
    let io_error = |text: String| std::io::Error::other(text);
    let mut archive = tar::Archive::new(BufReader::new(file));
    for entry in archive.entries()? {
        let entry = entry?;
        let header = entry.header();
        let path = text(&entry.path_bytes()).map_err(io_error)?;
        let Some(path) = normalised(&path).map_err(io_error)? else { continue };
        let link = || -> std::io::Result<String> {
            let name =
                entry.link_name_bytes().ok_or_else(|| io_error(format!("{path}: no target")))?;
            text(&name).map_err(io_error)
        };
        let kind = match header.entry_type() {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(link()?),
            EntryType::Link => {
                let target = normalised(&link()?).map_err(io_error)?;
                Kind::Hardlink(target.ok_or_else(|| io_error(format!("{path}: no target")))?)
            }
            EntryType::Regular | EntryType::Continuous => Kind::Packed {
                archive: number,
                offset: entry.raw_file_position(),
                bytes: header.size()?,
            },
            kind => return Err(io_error(format!("{path}: an entry of type {kind:?}"))),
        };
        let new_entry = Entry {
            kind,
            mode: header.mode()? & 0o7777,
            owner: header.uid()?,
            group: header.gid()?,
            // The guest's clock starts at this time. Make would complain about a file from the future.
            time_s: header.mtime()?.min(EPOCH_S),
        };
        if entries.len() >= ENTRIES_MAX {
            return Err(io_error(format!("over {ENTRIES_MAX} entries")));
        }
        // If packages share a path: a directory is the first package's, a file is the last package's.
        if matches!(new_entry.kind, Kind::Directory) {
            entries.entry(path).or_insert(new_entry);
        } else {
            entries.insert(path, new_entry);
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> std::result::Result<String, String> {
    let invalid = || format!("{}: a name that is not UTF-8", String::from_utf8_lossy(bytes));
    String::from_utf8(bytes.to_vec()).map_err(|_| invalid())
}

/// Returns a path without the first `./`. Puts `usr/` before a path in one of the [`MERGED`] directories. `None` for
/// the root itself.
fn normalised(path: &str) -> std::result::Result<Option<String>, String> {
    let path = path.trim_start_matches("./").trim_matches('/');
    if path.is_empty() || path == "." {
        return Ok(None);
    }
    check_path(path)?;
    Ok(Some(in_usr(path)))
}

/// Returns the path with `usr/` before it if it is in one of the [`MERGED`] directories: those are links into `usr`.
pub(super) fn in_usr(path: &str) -> String {
    let (first, _) = path.split_once('/').unwrap_or((path, ""));
    if MERGED.contains(&first) { format!("usr/{path}") } else { path.to_owned() }
}

/// Removes the omitted paths, and adds links, directories and files that no package contains.
///
/// Fails if a path of `spec` is not inside the root file system, or if an entry would be below a link or a file.
fn complete(
    spec: &RootSpec,
    entries: &mut BTreeMap<String, Entry>,
) -> std::result::Result<(), String> {
    let mut omitted: Vec<String> = OMITTED.into_iter().map(str::to_owned).collect();
    omitted.extend(spec.omit.iter().map(|path| in_usr(path)));
    let is_below = |path: &str, ancestor: &str| {
        path.strip_prefix(ancestor)
            .is_some_and(|remainder| remainder.is_empty() || remainder.starts_with('/'))
    };
    entries.retain(|path, _| !omitted.iter().any(|ancestor| is_below(path, ancestor)));
    for name in MERGED {
        let target = format!("usr/{name}");
        entries.insert(name.to_owned(), Entry::new(Kind::Symlink(target.clone()), 0o777));
        entries.entry(target).or_insert_with(|| Entry::new(Kind::Directory, 0o755));
    }
    for (name, target) in ALTERNATIVES {
        if entries.contains_key(&format!("usr/bin/{target}")) {
            let link = || Entry::new(Kind::Symlink(target.to_owned()), 0o777);
            entries.entry(format!("usr/bin/{name}")).or_insert_with(link);
        }
    }
    for (name, target) in [("var/run", "/run"), ("var/lock", "/run/lock")] {
        let link = || Entry::new(Kind::Symlink(target.to_owned()), 0o777);
        entries.entry(name.to_owned()).or_insert_with(link);
    }
    for (path, mode) in DIRECTORIES {
        entries.entry(path.to_owned()).or_insert_with(|| Entry::new(Kind::Directory, mode)).mode =
            mode;
    }
    for (path, text) in [
        ("etc/passwd", passwd(spec)),
        ("etc/group", group(spec)),
        ("etc/hosts", "127.0.0.1 localhost\n".to_owned()),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
    ] {
        add_file(path, Entry::new(Kind::Added(text.into_bytes()), 0o644), entries);
    }
    for user in &spec.users {
        let (owner, group) = (u64::from(user.id), u64::from(user.id));
        let home = Entry { owner, group, ..Entry::new(Kind::Directory, 0o755) };
        if let Some(path) = normalised(&user.home)? {
            add_file(&path, home, entries);
        }
    }
    for file in &spec.files {
        let mode = if file.is_program { 0o755 } else { 0o644 };
        let entry = Entry::new(Kind::Added(file.bytes.clone()), mode);
        add_file(&in_usr(&file.path), entry, entries);
    }
    check_parents(entries)
}

/// Checks that no entry is below a link or a file: `mke2fs` would fail without the name of the link.
fn check_parents(entries: &BTreeMap<String, Entry>) -> std::result::Result<(), String> {
    for path in entries.keys() {
        let parent = path.rsplit_once('/').and_then(|(parent, _)| entries.get_key_value(parent));
        let Some((parent, entry)) = parent else { continue };
        match &entry.kind {
            Kind::Directory => {}
            Kind::Symlink(target) => {
                return Err(format!(
                    "/{path} of the root file system is below /{parent}, which is a link to {target}; name its \
                     path without the link"
                ));
            }
            Kind::Hardlink(_) | Kind::Packed { .. } | Kind::Added(_) => {
                return Err(format!(
                    "/{path} of the root file system is below /{parent}, which is a file"
                ));
            }
        }
    }
    Ok(())
}

/// Adds an entry and the directories above it.
fn add_file(path: &str, entry: Entry, entries: &mut BTreeMap<String, Entry>) {
    for ancestor in Path::new(path).ancestors().skip(1) {
        let ancestor = ancestor.to_string_lossy().into_owned();
        if !ancestor.is_empty() {
            entries.entry(ancestor).or_insert_with(|| Entry::new(Kind::Directory, 0o755));
        }
    }
    entries.insert(path.to_owned(), entry);
}

/// Returns the content of `/etc/passwd`.
fn passwd(spec: &RootSpec) -> String {
    let users = spec.users.iter().map(|user| {
        let (name, id, home) = (&user.name, user.id, &user.home);
        format!("{name}:x:{id}:{id}::{home}:/bin/sh\n")
    });
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".to_owned()
        + &users.collect::<String>()
}

/// Returns the content of `/etc/group`.
fn group(spec: &RootSpec) -> String {
    let groups = spec.users.iter().map(|user| format!("{}:x:{}:\n", user.name, user.id));
    "root:x:0:\nnogroup:x:65534:\n".to_owned() + &groups.collect::<String>()
}

/// Writes the merged archive; returns the sizes of its files. Hard links come last: their targets must come before
/// them.
fn write(
    entries: &BTreeMap<String, Entry>,
    contents: &mut [File],
    target: &Path,
) -> std::io::Result<Vec<u64>> {
    let mut builder = Builder::new(BufWriter::new(File::create(target)?));
    let mut sizes = Vec::new();
    let is_link = |entry: &Entry| matches!(entry.kind, Kind::Hardlink(_));
    let files = entries.iter().filter(|(_, entry)| !is_link(entry));
    for (path, entry) in files.chain(entries.iter().filter(|(_, entry)| is_link(entry))) {
        let mut header = Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_uid(entry.owner);
        header.set_gid(entry.group);
        header.set_mtime(entry.time_s);
        header.set_size(0);
        match &entry.kind {
            Kind::Directory => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
            Kind::Symlink(target) => {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, path, target)?;
            }
            Kind::Hardlink(target) => {
                header.set_entry_type(EntryType::Link);
                builder.append_link(&mut header, path, target)?;
            }
            Kind::Packed { archive, offset, bytes } => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(*bytes);
                let content = &mut contents[*archive];
                content.seek(SeekFrom::Start(*offset))?;
                builder.append_data(&mut header, path, content.take(*bytes))?;
                sizes.push(*bytes);
            }
            Kind::Added(bytes) => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(bytes.len() as u64);
                builder.append_data(&mut header, path, bytes.as_slice())?;
                sizes.push(bytes.len() as u64);
            }
        }
    }
    builder.into_inner()?.flush()?;
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::super::{RootFile, RootUser};
    use super::*;

    /// The data archive of a package.
    fn data_archive(entries: &[(&str, EntryType, u32, &str, u64)]) -> File {
        let mut builder = Builder::new(tempfile::tempfile().unwrap());
        for (path, kind, mode, content, time_s) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_uid(5);
            header.set_gid(6);
            header.set_mtime(*time_s);
            header.set_size(0);
            match kind {
                EntryType::Symlink | EntryType::Link => {
                    builder.append_link(&mut header, path, content).unwrap();
                }
                _ => {
                    header.set_size(content.len() as u64);
                    builder.append_data(&mut header, path, content.as_bytes()).unwrap();
                }
            }
        }
        let mut file = builder.into_inner().unwrap();
        file.rewind().unwrap();
        file
    }

    fn merged(spec: &RootSpec, archives: &[File]) -> Vec<(String, u32, u64, u64, String)> {
        let mut entries = BTreeMap::new();
        for (number, file) in archives.iter().enumerate() {
            read(file, number, &mut entries).unwrap();
        }
        complete(spec, &mut entries).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("merged.tar");
        let mut contents: Vec<File> =
            archives.iter().map(|file| file.try_clone().unwrap()).collect();
        write(&entries, &mut contents, &target).unwrap();
        let mut archive = tar::Archive::new(File::open(&target).unwrap());
        let entry = |entry: std::io::Result<tar::Entry<'_, File>>| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            if let Some(target) = entry.link_name().unwrap() {
                content = target.display().to_string();
            }
            let header = entry.header();
            let (mode, uid) = (header.mode().unwrap(), header.uid().unwrap());
            (path, mode, uid, header.mtime().unwrap(), content)
        };
        archive.entries().unwrap().map(entry).collect()
    }

    #[test]
    fn archives_are_merged_sorted_and_clamped() {
        let future = EPOCH_S + 1000;
        let first = data_archive(&[
            ("./bin/", EntryType::Directory, 0o755, "", 7),
            ("./bin/dash", EntryType::Regular, 0o755, "shell", future),
            ("./usr/share/doc/dash", EntryType::Regular, 0o644, "words", 7),
            ("./usr/bin/zz", EntryType::Link, 0o755, "./bin/dash", 7),
        ]);
        let second = data_archive(&[("./lib/x.so", EntryType::Symlink, 0o777, "x.so.1", 7)]);
        let file = RootFile { path: "a/b".to_owned(), is_program: true, bytes: b"own".to_vec() };
        let user = RootUser { name: "u".to_owned(), id: 9, home: "/var/lib/u".to_owned() };
        let spec = RootSpec { files: vec![file], users: vec![user], ..RootSpec::default() };
        let all = merged(&spec, &[first, second]);
        let find = |path: &str| all.iter().find(|entry| entry.0 == path).cloned();
        let dash = ("usr/bin/dash".to_owned(), 0o755, 5, EPOCH_S, "shell".to_owned());
        assert_eq!(find("usr/bin/dash"), Some(dash));
        assert_eq!(find("bin").unwrap().4, "usr/bin");
        assert_eq!(find("usr/bin/sh").unwrap().4, "dash");
        assert_eq!(
            find("usr/lib/x.so").unwrap(),
            ("usr/lib/x.so".to_owned(), 0o777, 5, 7, "x.so.1".to_owned())
        );
        assert_eq!(find("usr/share/doc/dash"), None);
        assert_eq!(find("a/b").unwrap(), ("a/b".to_owned(), 0o755, 0, EPOCH_S, "own".to_owned()));
        assert_eq!((find("var/lib/u/").unwrap().2, find("tmp/").unwrap().1), (9, 0o1777));
        assert!(find("etc/passwd").unwrap().4.contains("u:x:9:9::/var/lib/u:/bin/sh\n"));
        // A hard link comes after all files, whatever its name.
        assert_eq!(all.last().unwrap().0, "usr/bin/zz");
        let others = all[..all.len() - 1].iter().map(|entry| entry.0.trim_end_matches('/'));
        assert!(others.is_sorted());
    }

    /// `/bin` and `/lib` are links into `usr`, so nothing can be below them in the archive.
    #[test]
    fn paths_of_the_specification_are_in_usr_like_those_of_packages() {
        let package = data_archive(&[
            ("./usr/lib/big/x", EntryType::Regular, 0o644, "x", 7),
            ("./usr/lib/small", EntryType::Regular, 0o644, "y", 7),
        ]);
        let files =
            vec![RootFile { path: "bin/x".to_owned(), is_program: true, bytes: vec![b'x'] }];
        let users = vec![RootUser { name: "u".to_owned(), id: 9, home: "/lib/u".to_owned() }];
        let omit = vec!["lib/big".to_owned()];
        let spec = RootSpec { files, users, omit, ..RootSpec::default() };
        let all = merged(&spec, &[package]);
        let has = |path: &str| all.iter().any(|entry| entry.0 == path);
        assert!(has("usr/bin/x") && has("usr/lib/u/") && has("usr/lib/small"));
        assert!(!has("bin/x") && !has("usr/lib/big/x"));
        assert_eq!(all.iter().find(|entry| entry.0 == "bin").unwrap().4, "usr/bin");
    }

    #[test]
    fn what_is_below_a_link_or_a_file_is_refused_by_name() {
        let file =
            |path: &str| RootFile { path: path.to_owned(), is_program: false, bytes: Vec::new() };
        for (paths, reason) in [
            (&["var/run/x"][..], "/var/run, which is a link to /run"),
            (&["srv/x", "srv/x/y"], "/srv/x, which is a file"),
            (&["usr/bin"], "/usr/bin, which is a file"),
        ] {
            let files = paths.iter().map(|path| file(path)).collect();
            let spec = RootSpec { files, ..RootSpec::default() };
            let mut entries = BTreeMap::new();
            let dash = [("./usr/bin/dash", EntryType::Regular, 0o755, "shell", 7)];
            read(&data_archive(&dash), 0, &mut entries).unwrap();
            let error = complete(&spec, &mut entries).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let user = RootUser { name: "u".to_owned(), id: 9, home: "/../u".to_owned() };
        let spec = RootSpec { users: vec![user], ..RootSpec::default() };
        assert!(complete(&spec, &mut BTreeMap::new()).is_err());
    }

    #[test]
    fn the_hash_of_a_directory_is_that_of_its_list_of_hashes() {
        let package = data_archive(&[
            ("./usr/src/b.c", EntryType::Regular, 0o644, "int b;", 7),
            ("./usr/src/a/a.c", EntryType::Regular, 0o644, "int a;", 7),
            ("./usr/src2/c.c", EntryType::Regular, 0o644, "int c;", 7),
            ("./usr/src/link.c", EntryType::Symlink, 0o777, "b.c", 7),
        ]);
        let mut entries = BTreeMap::new();
        read(&package, 0, &mut entries).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let merged = scratch.path().join("merged.tar");
        write(&entries, &mut [package], &merged).unwrap();
        let line = |content: &str, path: &str| {
            format!("{}  usr/src/{path}\n", hash::of_bytes(content.as_bytes()))
        };
        let lines = line("int a;", "a/a.c") + &line("int b;", "b.c");
        assert_eq!(content_hash(&merged, "usr/src").unwrap(), hash::of_bytes(lines.as_bytes()));
    }

    #[test]
    fn paths_stay_inside_the_root() {
        for wrong in ["", "/etc/x", "a/../b", "../x", "a//b", "a/./b", "a\nb"] {
            assert!(check_path(wrong).is_err(), "{wrong:?}");
        }
        assert!(check_path("usr/bin/x y").is_ok());
        assert_eq!(normalised("./lib64/ld.so").unwrap().unwrap(), "usr/lib64/ld.so");
        assert_eq!(normalised("./").unwrap(), None);
        assert!(normalised("./a/../../x").is_err());
        let escape = data_archive(&[("x/./y", EntryType::Fifo, 0o600, "", 0)]);
        assert!(read(&escape, 0, &mut BTreeMap::new()).is_err());
    }

    #[test]
    fn an_extent_counts_blocks() {
        let extent = Extent { archive: PathBuf::new(), entries: 3, sizes: vec![1, 4096, 4097] };
        assert_eq!(extent.content_blocks(4096), 1 + 1 + 2 + 3);
    }
}
