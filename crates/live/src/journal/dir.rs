//! The directories of journals, and the check that nobody else can put a journal there.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::JournalError;

/// Extension of a journal.
pub(super) const JOURNAL: &str = "json";
/// Extension of a journal that is being written.
pub(super) const ASIDE: &str = "aside";

/// Other users may list the directory, to learn of journals that they cannot replay. Only the
/// owner may read the files.
const DIRECTORY_MODE: u32 = 0o755;
/// Permissions that only the owner may have.
const WRITE_BY_OTHERS: u32 = 0o022;

/// The directory of root's journals.
const OF_ROOT: &str = "/run/irqlab";
/// Limit of the directories of other users that are examined.
const USERS_MAX: usize = 1024;

/// `/run/irqlab` for root; else `$XDG_RUNTIME_DIR/irqlab`; else `/tmp/irqlab-UID`.
#[must_use]
pub fn default_dir() -> PathBuf {
    let uid = geteuid().as_raw();
    if uid == 0 && Path::new("/run").is_dir() {
        return PathBuf::from(OF_ROOT);
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if uid != 0 && runtime.is_absolute() => runtime.join("irqlab"),
        _ => of_user(uid).1,
    }
}

/// The two possible directories of a user's journals: with a session of systemd, and without one.
fn of_user(uid: u32) -> (PathBuf, PathBuf) {
    (format!("/run/user/{uid}/irqlab").into(), format!("/tmp/irqlab-{uid}").into())
}

/// All directories that may contain this user's journals. Another run may have been started with or
/// without `XDG_RUNTIME_DIR`, unlike this one.
pub(super) fn all_own() -> Vec<PathBuf> {
    let (in_session, without) = of_user(geteuid().as_raw());
    let mut all = vec![default_dir()];
    for other in [in_session, without] {
        let is_own = other.symlink_metadata().is_ok_and(|data| data.is_dir() && is_ours(&data));
        if is_own && !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// The directories of other users that this process can see: root's directory, those in users'
/// sessions, and those in `/tmp`.
pub(super) fn of_other_users() -> Vec<PathBuf> {
    let names = |directory: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).take(USERS_MAX).collect::<Vec<_>>()
    };
    let is_of_user = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("irqlab-").is_some_and(|uid| uid.parse::<u32>().is_ok())
    };
    let in_sessions = names("/run/user").into_iter().map(|session| session.join("irqlab"));
    let without = names("/tmp").into_iter().filter(is_of_user);
    let all = [PathBuf::from(OF_ROOT)].into_iter().chain(in_sessions).chain(without);
    let is_of_another = |data: std::fs::Metadata| data.is_dir() && !is_ours(&data);
    all.filter(|directory| directory.symlink_metadata().is_ok_and(is_of_another)).collect()
}

/// Names a user in a message.
pub(super) fn name_of(uid: u32) -> String {
    if uid == 0 { "root".to_owned() } else { format!("user {uid}") }
}

/// Creates the directory if it does not exist, and checks it.
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

/// Checks that `directory` is a directory and no symbolic link, that this user owns it, and that
/// nobody else can write it.
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
