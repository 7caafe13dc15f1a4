//! The hierarchy of control groups that `handlers --by cgroup` shows, and the paths of its groups by the kernel's ids. A
//! group's id is the inode of its directory (fs/kernfs).

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::root::{MOUNTS_BYTES_MAX, Root};
use super::levels::{Controller, Mount, Version, group_of};

/// Deepest nesting of groups whose paths are read.
const DEPTH_MAX: usize = 64;
/// The id of the group at the root of a hierarchy.
const ROOT_ID: u64 = 1;

/// A hierarchy of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The controller whose hierarchy of version 1 is shown. `None`: the hierarchy of version 2, which has all controllers.
    controller: Option<Controller>,
    /// Whether version 1 has the controller blkio.
    has_blkio_of_version_1: bool,
}

impl Hierarchy {
    /// The hierarchy of version 2, unless version 1 has the controller cpu or memory. `None` if the kernel
    /// has neither.
    #[must_use]
    pub fn of_this_machine(root: &Root) -> Option<Hierarchy> {
        let groups = root.text("proc/self/cgroup")?;
        let is_version_1 = |controller: &Controller| {
            group_of(&groups, *controller).is_some_and(|(version, _)| version == Version::V1)
        };
        let controller = [Controller::Cpu, Controller::Memory].into_iter().find(is_version_1);
        let has_version_2 = groups.lines().any(|line| line.starts_with("0::"));
        let has_blkio_of_version_1 = groups.lines().any(|line| {
            let controllers = line.split(':').nth(1).unwrap_or_default();
            controllers.split(',').any(|name| name == "blkio")
        });
        let hierarchy = Hierarchy { controller, has_blkio_of_version_1 };
        (controller.is_some() || has_version_2).then_some(hierarchy)
    }

    /// Whether the kernel keeps a block request's group in this hierarchy.
    #[must_use]
    pub fn has_groups_of_block_requests(self) -> bool {
        self.has_groups_of_sockets() && !self.has_blkio_of_version_1
    }

    /// Whether the kernel keeps a socket's group in this hierarchy: only in the hierarchy of version 2.
    #[must_use]
    pub fn has_groups_of_sockets(self) -> bool {
        self.controller.is_none()
    }

    /// The name of the controller's value in the kernel's `enum cgroup_subsys_id`; `None` for version 2.
    #[must_use]
    pub fn subsystem(self) -> Option<String> {
        self.controller.map(|controller| format!("{}_cgrp_id", controller.name()))
    }

    /// The hierarchy's name in results: `version 2`, or such as `version 1, controller cpu`.
    #[must_use]
    pub fn label(self) -> String {
        match self.controller {
            Some(controller) => format!("version 1, controller {}", controller.name()),
            None => "version 2".to_owned(),
        }
    }

    /// Finds the paths of the groups with these ids.
    #[must_use]
    pub fn paths_of_groups(self, root: &Root, ids: &HashSet<u64>) -> CgroupPaths {
        let mounts = root.text_up_to("proc/self/mountinfo", MOUNTS_BYTES_MAX).unwrap_or_default();
        let serves = |mount: &Mount| match self.controller {
            Some(controller) => mount.serves(Version::V1, controller),
            None => mount.serves(Version::V2, Controller::Cpu),
        };
        let serving_mounts = mounts.lines().filter_map(Mount::parse).filter(serves);
        // Several mounts may show the hierarchy. The one whose root is highest shows the most groups.
        let Some(mount) = serving_mounts.min_by_key(|mount| mount.group.len()) else {
            return CgroupPaths::default();
        };
        let top = root.path(&mount.point);
        let are_all_visible = top.symlink_metadata().is_ok_and(|top| top.ino() == ROOT_ID);
        let mut paths = CgroupPaths { paths: HashMap::new(), are_all_visible };
        // In a namespace, the path of the group at the mount point may contain "..".
        let prefix =
            if mount.group.contains("..") { "" } else { mount.group.trim_end_matches('/') };
        paths.add(&top, prefix, ids, 0);
        paths
    }
}

/// The paths of control groups by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupPaths {
    paths: HashMap<u64, String>,
    /// Whether all groups of the hierarchy are visible.
    are_all_visible: bool,
}

impl CgroupPaths {
    fn add(&mut self, directory: &Path, path: &str, ids: &HashSet<u64>, depth: usize) {
        // A group may be removed at any time: then the rest of its directory is not read.
        let Ok(metadata) = directory.symlink_metadata() else { return };
        if ids.contains(&metadata.ino()) {
            let shown = if path.is_empty() { "/" } else { path };
            self.paths.insert(metadata.ino(), shown.to_owned());
        }
        if self.paths.len() == ids.len() || depth == DEPTH_MAX {
            return;
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                let path = format!("{path}/{}", name.to_string_lossy());
                self.add(&entry.path(), &path, ids, depth + 1);
            }
        }
    }

    /// The path of the group from the root of the hierarchy. `None` if no directory that this process sees has the id.
    #[must_use]
    pub fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(String::as_str)
    }

    /// Why a group has no path.
    #[must_use]
    pub fn why_no_path(&self) -> &'static str {
        if self.are_all_visible { "removed" } else { "removed or not visible" }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{V1, root_with};
    use super::*;

    #[test]
    fn the_hierarchy_is_that_of_cpu_or_memory_in_version_1_else_that_of_version_2() {
        let label = |groups: &str| {
            let (_directory, root) = root_with(&[("proc/self/cgroup", groups)]);
            Hierarchy::of_this_machine(&root).map(Hierarchy::label)
        };
        assert_eq!(label(V1[0].1).as_deref(), Some("version 1, controller cpu"));
        assert_eq!(label("4:memory:/a\n0::/\n").as_deref(), Some("version 1, controller memory"));
        assert_eq!(label("1:name=systemd:/a\n0::/\n").as_deref(), Some("version 2"));
        let (_directory, root) = root_with(&[]);
        assert_eq!(Hierarchy::of_this_machine(&root), None);
    }

    /// An id of a group is an inode, which is unique in its hierarchy only.
    #[test]
    fn requests_name_groups_of_version_1_if_it_has_the_controller_blkio() {
        let names = |groups: &str| {
            let (_directory, root) = root_with(&[("proc/self/cgroup", groups)]);
            let hierarchy = Hierarchy::of_this_machine(&root).expect("a hierarchy");
            (hierarchy.has_groups_of_block_requests(), hierarchy.has_groups_of_sockets())
        };
        assert_eq!(names("0::/y\n"), (true, true));
        assert_eq!(names("5:freezer,blkio:/x\n0::/y\n"), (false, true));
        assert_eq!(names("5:cpu,cpuacct:/x\n0::/y\n"), (false, false));
    }

    #[test]
    fn the_mount_whose_root_is_highest_names_the_groups() {
        let mount = |group: &str, point: &str| {
            format!("31 23 0:27 {group} {point} rw - cgroup2 cgroup2 rw\n")
        };
        let mounts = mount("/docker/ab", "/bound") + &mount("/", "/sys/fs/cgroup");
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", &*mounts),
            ("bound/cgroup.procs", ""),
            ("sys/fs/cgroup/web/cgroup.procs", ""),
        ];
        let (_directory, root) = root_with(&files);
        let id = root.path("sys/fs/cgroup/web").symlink_metadata().unwrap().ino();
        let hierarchy = Hierarchy::of_this_machine(&root).expect("version 2");
        assert_eq!(hierarchy.paths_of_groups(&root, &HashSet::from([id])).path(id), Some("/web"));
    }

    #[test]
    fn groups_have_paths_by_their_inodes() {
        let mount = "31 23 0:27 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/web/a\nb/cgroup.procs", ""),
        ];
        let (_directory, root) = root_with(&files);
        let id = |path: &str| root.path(path).symlink_metadata().unwrap().ino();
        let (top, below) = (id("sys/fs/cgroup"), id("sys/fs/cgroup/web/a\nb"));
        let hierarchy = Hierarchy::of_this_machine(&root).expect("version 2");
        let names = hierarchy.paths_of_groups(&root, &HashSet::from([top, below, 7]));
        assert_eq!(names.path(top), Some("/docker/ab"));
        assert_eq!(names.path(below), Some("/docker/ab/web/a\nb"));
        assert_eq!((names.path(7), names.why_no_path()), (None, "removed or not visible"));
        assert_eq!(CgroupPaths { are_all_visible: true, ..names }.why_no_path(), "removed");
    }
}
