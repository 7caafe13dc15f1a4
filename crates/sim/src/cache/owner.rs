//! Checks who owns the cache. irqlab executes QEMU and loads its plugin from the cache, so no other user may
//! be able to change its files.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid};

use crate::{Result, SimError};

const WRITE_BY_GROUP: u32 = 0o020;
const WRITE_BY_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// The user and group ID that the kernel shows for owners and groups outside of the user namespace.
const OVERFLOW_ID: u32 = 65534;
/// The fields of `/proc/self/uid_map` in the initial user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// The user and group whose files this process trusts.
#[derive(Clone, Copy, Debug)]
struct Trusted {
    uid: u32,
    gid: u32,
    /// Whether this process is in a user namespace. Directories above the cache may then belong to users outside of the
    /// namespace, such as the host's root.
    in_user_namespace: bool,
}

/// Checks that the cache and its entries belong to this user or to root, and that no other user can write to them.
/// Checks the directories above the cache, too: see [`Trusted::check_ancestor`].
///
/// Fails with [`SimError::Missing`], which names the path that another user can change, and the remedy.
pub(super) fn check(root: &Path) -> Result<()> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let trusted = Trusted {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        in_user_namespace: !map.is_empty() && !map.split_whitespace().eq(ALL_USERS),
    };
    trusted.check(root)
}

impl Trusted {
    /// See [`check`].
    fn check(self, root: &Path) -> Result<()> {
        let refuse = |path: &Path, reason: String| SimError::Missing {
            what: format!(
                "the cache {}: {} {reason}, who could replace the programs that irqlab starts from it",
                root.display(),
                path.display()
            ),
            remedy: "IRQLAB_CACHE=DIRECTORY, a directory that only you can write to".to_owned(),
        };
        for ancestor in root.ancestors().skip(1) {
            let data = fs::symlink_metadata(ancestor).map_err(SimError::file(ancestor))?;
            self.check_ancestor(&data).map_err(|reason| refuse(ancestor, reason))?;
        }
        let data = fs::symlink_metadata(root).map_err(SimError::file(root))?;
        self.check_entry(&data).map_err(|reason| refuse(root, reason))?;
        for entry in fs::read_dir(root).map_err(SimError::file(root))?.flatten() {
            // An entry may be removed meanwhile. A link has no mode of its own.
            let Ok(data) = entry.metadata() else { continue };
            let checked =
                if data.is_symlink() { self.check_owner(&data) } else { self.check_entry(&data) };
            checked.map_err(|reason| refuse(&entry.path(), reason))?;
        }
        Ok(())
    }

    /// Checks that this user or root owns a file.
    fn check_owner(self, data: &Metadata) -> std::result::Result<(), String> {
        if data.uid() == self.uid || data.uid() == 0 {
            return Ok(());
        }
        Err(format!("belongs to user {}", data.uid()))
    }

    /// Checks a file or directory of the cache. The private group of the user may write to it: some
    /// distributions give each user such a group.
    fn check_entry(self, data: &Metadata) -> std::result::Result<(), String> {
        self.check_owner(data)?;
        self.check_writers(data, data.gid())
    }

    /// Checks a directory above the cache: it belongs to this user or to root, and no other user can write to it. In
    /// a sticky directory other users cannot replace the cache.
    fn check_ancestor(self, data: &Metadata) -> std::result::Result<(), String> {
        let is_outside = self.in_user_namespace && data.uid() == OVERFLOW_ID;
        if !is_outside {
            self.check_owner(data)?;
        }
        if data.mode() & STICKY != 0 {
            return Ok(());
        }
        // A group outside of the user namespace is taken for the group of the host's root, as an owner is.
        let is_group_outside = self.in_user_namespace && data.gid() == OVERFLOW_ID;
        self.check_writers(data, if is_group_outside { 0 } else { data.gid() })
    }

    /// Checks that only the owner, root and the private group of the user can write to a file or directory of the group
    /// `gid`.
    fn check_writers(self, data: &Metadata, gid: u32) -> std::result::Result<(), String> {
        let is_private_group = gid == 0 || (gid == self.gid && self.gid == self.uid);
        if data.mode() & WRITE_BY_OTHERS != 0 {
            return Err("can be written by every user".to_owned());
        }
        if data.mode() & WRITE_BY_GROUP != 0 && !is_private_group {
            return Err(format!("can be written by group {gid}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn trusted() -> Trusted {
        Trusted { uid: geteuid().as_raw(), gid: getegid().as_raw(), in_user_namespace: false }
    }

    fn refusal(trusted: Trusted, root: &Path) -> String {
        match trusted.check(root) {
            Err(SimError::Missing { what, remedy }) => {
                assert!(remedy.contains("IRQLAB_CACHE"), "{remedy}");
                what
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cache_that_others_can_write_to_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (ancestor, root) = (scratch.path().join("above"), scratch.path().join("above/cache"));
        fs::create_dir_all(root.join("qemu-root-1")).unwrap();
        fs::write(root.join("plugin-1.so"), "").unwrap();
        symlink("plugin-1.so", root.join("link")).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        trusted().check(&root).unwrap();
        for path in [root.clone(), root.join("qemu-root-1"), root.join("plugin-1.so")] {
            set(&path, 0o757);
            let message = refusal(trusted(), &root);
            assert!(
                message.contains(&format!("{} can be written by every", path.display())),
                "{message}"
            );
            set(&path, 0o755);
        }
        set(&ancestor, 0o777);
        assert!(refusal(trusted(), &root).contains("above can be written by every user"));
        // Only the owner can rename an entry of a sticky directory.
        set(&ancestor, 0o1777);
        trusted().check(&root).unwrap();
    }

    /// Members of the group could replace the whole cache.
    #[test]
    fn a_directory_above_that_another_group_can_write_to_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (ancestor, root) = (scratch.path().join("above"), scratch.path().join("above/cache"));
        fs::create_dir_all(&root).unwrap();
        let set = |mode| {
            fs::set_permissions(&ancestor, fs::Permissions::from_mode(mode)).unwrap();
        };
        let ours = trusted();
        set(0o775);
        if ours.gid == 0 {
            trusted().check(&root).unwrap();
            chown(&ancestor, None, Some(50)).unwrap();
        }
        // For a user whose private group has another number, the group of the directory is any group.
        let gid = fs::metadata(&ancestor).unwrap().gid();
        let other = Trusted { gid: gid + 1, ..ours };
        let expected = format!("above can be written by group {gid}");
        assert!(refusal(other, &root).contains(&expected));
        for mode in [0o1775, 0o755] {
            set(mode);
            other.check(&root).unwrap();
        }
        if ours.gid == 0 {
            set(0o775);
            chown(&ancestor, None, Some(OVERFLOW_ID)).unwrap();
            Trusted { in_user_namespace: true, ..ours }.check(&root).unwrap();
            assert!(refusal(ours, &root).contains("by group 65534"));
        }
    }

    #[test]
    fn a_cache_of_another_user_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("above/cache");
        fs::create_dir_all(&root).unwrap();
        let file = root.join("plugin-1.so");
        fs::write(&file, "").unwrap();
        let ours = trusted();
        // The check of a user who is neither the owner nor root.
        if ours.uid != 0 {
            let another = Trusted { uid: ours.uid + 1, ..ours };
            assert!(refusal(another, &root).contains(&format!("belongs to user {}", ours.uid)));
            return needs::not_run(needs::Need::Root, "files of other users");
        }
        for path in [&file, &root, &scratch.path().join("above")] {
            chown(path, Some(1000), None).unwrap();
            let message = refusal(ours, &root);
            assert!(
                message.contains(&format!("{} belongs to user 1000", path.display())),
                "{message}"
            );
            // The owner may use the file.
            Trusted { uid: 1000, ..ours }.check_entry(&fs::metadata(path).unwrap()).unwrap();
            chown(path, Some(0), None).unwrap();
        }
        // A group that is not the user's own.
        chown(&file, None, Some(50)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(refusal(ours, &root).contains("can be written by group 50"));
        let unmapped = Trusted { in_user_namespace: true, ..ours };
        chown(&file, None, Some(0)).unwrap();
        chown(scratch.path().join("above"), Some(OVERFLOW_ID), None).unwrap();
        unmapped.check(&root).unwrap();
    }
}
