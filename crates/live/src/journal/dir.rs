//! Finds the directories of journals: this user's and other users'. Checks that nobody else can put a
//! journal into this user's directory.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::JournalError;

/// Extension of a journal.
pub(super) const JOURNAL: &str = "json";
/// Extension of a journal that is being written, before it replaces the old one.
pub(super) const ASIDE: &str = "aside";

/// Other users may list the directory, so that their irqlab can name journals of dead processes.
/// Only the owner may read the files.
const DIRECTORY_MODE: u32 = 0o755;
/// Permissions to write, which only the owner may have.
const WRITE_BY_OTHERS: u32 = 0o022;

/// The directory of root's journals.
const ROOT_DIRECTORY: &str = "/run/irqlab";
/// Limit of the entries of `/run/user` and `/tmp` that are examined.
const USERS_MAX: usize = 1024;

/// The directory of this user's journals: `/run/irqlab` for root, otherwise `$XDG_RUNTIME_DIR/irqlab`, or
/// `/tmp/irqlab-UID` without that variable.
#[must_use]
pub fn default_dir() -> PathBuf {
    let uid = geteuid().as_raw();
    if uid == 0 && Path::new("/run").is_dir() {
        return PathBuf::from(ROOT_DIRECTORY);
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if uid != 0 && runtime.is_absolute() => runtime.join("irqlab"),
        _ => directories_of_user(uid).1,
    }
}

/// The two possible directories of a user's journals: in a session of systemd, and without a session.
fn directories_of_user(uid: u32) -> (PathBuf, PathBuf) {
    (format!("/run/user/{uid}/irqlab").into(), format!("/tmp/irqlab-{uid}").into())
}

/// All directories that may contain this user's journals. An earlier irqlab may have been started with or without
/// `XDG_RUNTIME_DIR`, unlike this one.
pub(super) fn all_own() -> Vec<PathBuf> {
    let (in_session, without_session) = directories_of_user(geteuid().as_raw());
    let mut all = vec![default_dir()];
    for directory in [in_session, without_session] {
        let is_own_directory =
            directory.symlink_metadata().is_ok_and(|data| data.is_dir() && is_ours(&data));
        if is_own_directory && !all.contains(&directory) {
            all.push(directory);
        }
    }
    all
}

/// The directories of journals of other users that this process can see: root's, those in
/// users' sessions, and those in `/tmp`.
pub(super) fn of_other_users() -> Vec<PathBuf> {
    let paths_in = |directory: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).take(USERS_MAX).collect::<Vec<_>>()
    };
    let is_of_user = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("irqlab-").is_some_and(|uid| uid.parse::<u32>().is_ok())
    };
    let in_sessions = paths_in("/run/user").into_iter().map(|session| session.join("irqlab"));
    let without_session = paths_in("/tmp").into_iter().filter(is_of_user);
    let all = [PathBuf::from(ROOT_DIRECTORY)].into_iter().chain(in_sessions).chain(without_session);
    let is_of_other_user = |data: std::fs::Metadata| data.is_dir() && !is_ours(&data);
    all.filter(|directory| directory.symlink_metadata().is_ok_and(is_of_other_user)).collect()
}

/// Names a user in a message.
pub(super) fn name_of(uid: u32) -> String {
    if uid == 0 { "root".to_owned() } else { format!("user {uid}") }
}

/// Creates the directory if it does not exist, and checks it as [`check`] does.
pub(super) fn prepare(directory: &Path) -> Result<(), JournalError> {
    let fail = |reason: String| JournalError::Directory { path: directory.to_owned(), reason };
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(fail(format!("cannot be made: {error}")));
        }
        _ => {}
    }
    check(directory).map_err(fail)
}

/// Checks that `directory` is a directory and no symbolic link, that this user owns it,
/// and that nobody else can write it.
///
/// The error is a clause that follows "it", such as "belongs to user 7".
pub(super) fn check(directory: &Path) -> Result<(), String> {
    let metadata = std::fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("is not a directory (a symbolic link is not followed)".to_owned());
    }
    if !is_ours(&metadata) {
        return Err(format!("belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & WRITE_BY_OTHERS != 0 {
        return Err(format!("can be written by others (mode {:o})", metadata.mode() & 0o777));
    }
    Ok(())
}

/// Whether the file belongs to the effective user.
pub(super) fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw()
}
