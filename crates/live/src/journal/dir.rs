//! Where journals live, and that nobody else can put one there.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::JournalError;

/// Extension of a journal.
pub(super) const JOURNAL: &str = "json";
/// Extension of a journal that is being written.
pub(super) const ASIDE: &str = "aside";

/// Others may list it, to learn of journals that they cannot replay; the files are for the owner alone.
const DIRECTORY_MODE: u32 = 0o755;
/// Permissions that nobody but the owner may have.
const WRITE_BY_OTHERS: u32 = 0o022;

/// `/run/irqlab` for root; else `$XDG_RUNTIME_DIR/irqlab`; else `/tmp/irqlab-UID`.
#[must_use]
pub fn default_dir() -> PathBuf {
    let uid = geteuid().as_raw();
    if uid == 0 && Path::new("/run").is_dir() {
        return PathBuf::from("/run/irqlab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if uid != 0 && runtime.is_absolute() => runtime.join("irqlab"),
        _ => PathBuf::from(format!("/tmp/irqlab-{uid}")),
    }
}

/// The directories of users that this process may know: root, and the user who has started sudo.
pub(super) fn of_other_users() -> Vec<PathBuf> {
    let user = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse::<u32>().ok());
    let of_user = |uid: u32| {
        [
            PathBuf::from(format!("/run/user/{uid}/irqlab")),
            PathBuf::from(format!("/tmp/irqlab-{uid}")),
        ]
    };
    let users = user.into_iter().flat_map(of_user);
    let all = [PathBuf::from("/run/irqlab")].into_iter().chain(users);
    all.filter(|directory| directory.symlink_metadata().is_ok_and(|data| data.is_dir())).collect()
}

/// A user, for a message.
pub(super) fn name_of(uid: u32) -> String {
    if uid == 0 { "root".to_owned() } else { format!("user {uid}") }
}

/// Makes the directory if there is none, and checks it.
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

/// That `directory` is a directory and no symbolic link, owned by this user, and that no other can write it.
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
