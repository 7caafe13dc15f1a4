//! [`levels`]: the directories of the control groups that this process is in. /proc/self/cgroup names the groups, and
//! /proc/self/mountinfo says where their file systems are mounted (cgroups(7), proc_pid_mountinfo(5)).

use std::fs::read_link;

use super::super::root::{MOUNTS_BYTES_MAX, Root};

/// Target of /proc/self/ns/cgroup in the initial namespace, whose inode number is fixed in the kernel
/// (include/linux/proc_ns.h).
const INITIAL_NAMESPACE: &str = "cgroup:[4026531835]";

/// Largest number of levels that are read. systemd creates about ten.
const LEVELS_MAX: usize = 64;

/// A resource that a group limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    pub fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}

/// Version of the interface. Files have other names in each version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A group, with the directory of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub version: Version,
    /// Path of the directory from the root of the file system.
    directory: String,
}

impl Level {
    /// The directory of the group's files, from the root of the file system.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// The path of one of the group's files, from the root of the file system.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }
}

/// The groups of this process that limit a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Levels {
    /// From the innermost group up to the group at the mount point. Empty if no group limits the resource.
    Known(Vec<Level>),
    /// The reason why this process cannot find its groups' files. A group may limit the resource.
    Unknown(String),
}

impl Levels {
    /// The groups that are known; none if it is not known which they are.
    pub fn known(self) -> Vec<Level> {
        match self {
            Levels::Known(levels) => levels,
            Levels::Unknown(_) => Vec::new(),
        }
    }

    /// The reason why the groups are not known.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Levels::Known(_) => None,
            Levels::Unknown(reason) => Some(reason),
        }
    }
}

/// Finds the groups of this process for a controller.
///
/// Several mounts may show the group. The one whose root is highest shows the most levels.
pub(super) fn levels(root: &Root, controller: Controller) -> Levels {
    let groups = root.text("proc/self/cgroup").unwrap_or_default();
    // Without this file or a line for the controller, the kernel has no such groups.
    let Some((version, group)) = group_of(&groups, controller) else {
        return Levels::Known(Vec::new());
    };
    let Some(mounts) = root.text_up_to("proc/self/mountinfo", MOUNTS_BYTES_MAX) else {
        let reason = "/proc/self/mountinfo is not readable, or has more than 64 MiB";
        return Levels::Unknown(reason.to_owned());
    };
    let mounts = mounts.lines().filter_map(Mount::parse);
    let shown = mounts.filter(|mount| mount.serves(version, controller)).filter_map(|mount| {
        let relative_path = mount.relative_path(group)?.to_owned();
        Some((mount, relative_path))
    });
    let Some((mount, relative_path)) = shown.min_by_key(|(mount, _)| mount.group.len()) else {
        if group == "/" && is_initial_namespace(root) {
            return Levels::Known(Vec::new()); // the root group has no limits
        }
        let reason = format!("no mount in /proc/self/mountinfo shows this process's group {group}");
        return Levels::Unknown(reason);
    };
    let mut directory = format!("{}{relative_path}", mount.point);
    let mut levels = Vec::new();
    while levels.len() < LEVELS_MAX {
        levels.push(Level { version, directory: directory.clone() });
        match directory.rfind('/') {
            Some(end) if end >= mount.point.len() => directory.truncate(end),
            _ => break,
        }
    }
    Levels::Known(levels)
}

/// Whether `/` in /proc/self/cgroup is the root of all groups, not that of a container. A kernel without the link has no
/// namespaces of groups.
fn is_initial_namespace(root: &Root) -> bool {
    match read_link(root.path("proc/self/ns/cgroup")) {
        Ok(target) => target.as_os_str() == INITIAL_NAMESPACE,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// The version of the controller's interface, and the path of this process's group in its hierarchy, from the text of
/// /proc/self/cgroup. The version is 2 unless a line of version 1 names the controller. `None` if no line names the
/// controller and there is no line of version 2.
pub(super) fn group_of(groups: &str, controller: Controller) -> Option<(Version, &str)> {
    let mut version_2 = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if controllers.split(',').any(|name| name == controller.name()) {
            return Some((Version::V1, path));
        }
        if controllers.is_empty() {
            version_2 = Some((Version::V2, path));
        }
    }
    version_2
}

/// The fields of a mountinfo line that locate a group's files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The group whose directory is the mount point.
    pub group: String,
    /// The mount point without a slash at its end.
    pub point: String,
    file_system: String,
    options: String,
}

impl Mount {
    /// Parses a line such as `24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw`.
    pub fn parse(line: &str) -> Option<Mount> {
        let (location, kind) = line.split_once(" - ")?;
        let mut location = location.split(' ').skip(3);
        let (group, point) = (unescaped(location.next()?), unescaped(location.next()?));
        let mut kind = kind.split(' ');
        let (file_system, options) = (kind.next()?.to_owned(), kind.nth(1)?.to_owned());
        Some(Mount { group, point: point.trim_end_matches('/').to_owned(), file_system, options })
    }

    /// Whether the mount shows the groups of this controller.
    pub fn serves(&self, version: Version, controller: Controller) -> bool {
        match version {
            Version::V1 => {
                let has_option = |name| self.options.split(',').any(|option| option == name);
                self.file_system == "cgroup" && has_option(controller.name())
            }
            Version::V2 => self.file_system == "cgroup2",
        }
    }

    /// The path of `group` from the mount point, with a slash at its start; empty for the group at the mount point.
    /// `None` if the mount does not show the group, or shows it at an unknown place. In a namespace, both paths may start
    /// with `/..`: a mount whose root is above this process's namespace does not tell where the group is below it.
    fn relative_path<'a>(&self, group: &'a str) -> Option<&'a str> {
        let inside = group.strip_prefix(self.group.trim_end_matches('/'))?;
        let is_below = inside.is_empty() || inside.starts_with('/');
        let is_shown = is_below && !inside.split('/').any(|part| part == "..");
        is_shown.then(|| inside.trim_end_matches('/'))
    }
}

/// Replaces the octal escapes of spaces, tabs, line ends and backslashes in a path of mountinfo.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{V1, root_with};
    use super::*;

    fn directories(root: &Root, controller: Controller) -> Vec<String> {
        levels(root, controller).known().into_iter().map(|level| level.directory).collect()
    }

    #[test]
    fn levels_go_up_to_the_mount_point() {
        let (_directory, root) = root_with(&V1);
        let memory = directories(&root, Controller::Memory);
        let expected =
            ["/docker/ab", "/docker", ""].map(|path| format!("/sys/fs/cgroup/memory{path}"));
        assert_eq!(memory, expected);
        assert_eq!(directories(&root, Controller::Pids), ["/sys/fs/cgroup/pids"]);
        assert_eq!(levels(&root, Controller::Cpu).known()[0].version, Version::V1);
    }

    #[test]
    fn a_container_sees_its_group_at_the_mount_point() {
        let seen = |group: &str, mounted: &str| {
            let mount = format!("24 19 0:22 {mounted} /cg\\040roup rw - cgroup2 cgroup2 rw\n");
            let group = format!("0::{group}\n");
            let files = [("proc/self/cgroup", &*group), ("proc/self/mountinfo", &*mount)];
            let (_directory, root) = root_with(&files);
            directories(&root, Controller::Memory)
        };
        // First in a cgroup namespace, then with the host's paths.
        assert_eq!(seen("/", "/"), ["/cg roup"]);
        assert_eq!(seen("/docker/ab", "/docker/ab"), ["/cg roup"]);
        assert_eq!(seen("/docker/ab/x", "/docker/ab"), ["/cg roup/x", "/cg roup"]);
    }

    /// The files of another group would state limits that this process does not have.
    #[test]
    fn a_group_that_no_mount_shows_is_unknown() {
        let reason = |group: &str, mounted: &str, namespace: &str| {
            let mount = format!("24 19 0:22 {mounted} /cg rw - cgroup2 cgroup2 rw\n");
            let group = format!("0::{group}\n");
            let files = [("proc/self/cgroup", &*group), ("proc/self/mountinfo", &*mount)];
            let (directory, root) = root_with(&files);
            let link = directory.path().join("proc/self/ns");
            std::fs::create_dir_all(&link).unwrap();
            std::os::unix::fs::symlink(namespace, link.join("cgroup")).unwrap();
            levels(&root, Controller::Memory).reason().map(str::to_owned)
        };
        let container = "cgroup:[4026532000]";
        let text = reason("/docker/abc", "/docker/ab", INITIAL_NAMESPACE);
        assert!(text.is_some_and(|text| text.ends_with("group /docker/abc")));
        assert!(reason("/../other", "/", container).is_some());
        // A container that has the host's file system of groups.
        assert!(reason("/", "/../..", container).is_some());
        // The root group has no limits, so its files are not missed.
        assert_eq!(reason("/", "/docker/ab", INITIAL_NAMESPACE), None);
        assert_eq!(reason("/", "/", container), None);
        // The group and the mount's root are outside of the namespace, and the paths tell where.
        assert_eq!(reason("/../other", "/..", container), None);
    }

    /// A second mount shows a group that this process is not in, or only a part of its groups.
    #[test]
    fn the_mount_that_shows_most_levels_of_the_group_is_read() {
        let foreign = "70 1 0:22 /other /first rw - cgroup2 cgroup2 rw\n";
        let inner = "71 1 0:22 /box /second rw - cgroup2 cgroup2 rw\n";
        let all = "72 1 0:22 / /cg rw - cgroup2 cgroup2 rw\n";
        for mounts in [[foreign, inner, all], [all, inner, foreign], [inner, foreign, all]] {
            let files =
                [("proc/self/cgroup", "0::/box\n"), ("proc/self/mountinfo", &mounts.concat())];
            let (_directory, root) = root_with(&files);
            assert_eq!(directories(&root, Controller::Memory), ["/cg/box", "/cg"]);
        }
    }

    #[test]
    fn a_large_table_of_mounts_is_read() {
        let line = "50 1 0:9 / /var/lib/containers/layer rw,relatime - overlay overlay rw\n";
        let mounts = line.repeat((1 << 20) / line.len() + 1) + "9 1 0:22 / /cg rw - cgroup2 x rw\n";
        let files = [("proc/self/cgroup", "0::/box\n"), ("proc/self/mountinfo", &*mounts)];
        let (_directory, root) = root_with(&files);
        assert_eq!(directories(&root, Controller::Memory), ["/cg/box", "/cg"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_bounded_levels(
            group in "([0-9]{0,2}:[a-z,]{0,6}:[/.a-z]{0,300}\n){0,3}",
            mount in "([0-9]{1,2} 1 0:1 [/a-z.]{0,9} [/a-z\\\\]{0,9} rw - cgroup2? x [a-z,]{0,9}\n){0,3}",
        ) {
            let (_directory, root) =
                root_with(&[("proc/self/cgroup", &group), ("proc/self/mountinfo", &mount)]);
            for controller in [Controller::Cpu, Controller::Memory, Controller::Pids] {
                proptest::prop_assert!(levels(&root, controller).known().len() <= LEVELS_MAX);
            }
        }
    }
}
