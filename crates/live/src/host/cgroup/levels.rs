//! [`levels`]: the directories of the control groups that this process is in. /proc/self/cgroup names the groups, and
//! /proc/self/mountinfo says where their file systems are mounted (cgroups(7), proc_pid_mountinfo(5)).

use super::super::root::Root;

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
    fn name(self) -> &'static str {
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
    /// The path of one of the group's files, from the root of the file system.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }
}

/// The groups of this process for a controller, from the innermost group up to the group at the mount point. Empty if
/// the controller or its mount is absent.
pub(super) fn levels(root: &Root, controller: Controller) -> Vec<Level> {
    let groups = root.text("proc/self/cgroup").unwrap_or_default();
    let mounts = root.text("proc/self/mountinfo").unwrap_or_default();
    let Some((version, group)) = group_of(&groups, controller) else { return Vec::new() };
    let mount =
        mounts.lines().filter_map(Mount::parse).find(|mount| mount.serves(version, controller));
    let Some(mount) = mount else { return Vec::new() };
    let relative_path = mount.relative_path(group);
    let mut directory = format!("{}{relative_path}", mount.point);
    let mut levels = Vec::new();
    while levels.len() < LEVELS_MAX {
        levels.push(Level { version, directory: directory.clone() });
        match directory.rfind('/') {
            Some(end) if end >= mount.point.len() => directory.truncate(end),
            _ => break,
        }
    }
    levels
}

/// The version of the controller's interface, and the path of this process's group in its hierarchy, from the text of
/// /proc/self/cgroup. The version is 2 unless a line of version 1 names the controller.
fn group_of(groups: &str, controller: Controller) -> Option<(Version, &str)> {
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
struct Mount {
    /// The group whose directory is the mount point.
    group: String,
    /// The mount point without a slash at its end.
    point: String,
    file_system: String,
    options: String,
}

impl Mount {
    /// Parses a line such as `24 19 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw`.
    fn parse(line: &str) -> Option<Mount> {
        let (location, kind) = line.split_once(" - ")?;
        let mut location = location.split(' ').skip(3);
        let (group, point) = (unescaped(location.next()?), unescaped(location.next()?));
        let mut kind = kind.split(' ');
        let (file_system, options) = (kind.next()?.to_owned(), kind.nth(1)?.to_owned());
        Some(Mount { group, point: point.trim_end_matches('/').to_owned(), file_system, options })
    }

    /// Whether the mount shows the groups of this controller.
    fn serves(&self, version: Version, controller: Controller) -> bool {
        match version {
            Version::V1 => {
                let has_option = |name| self.options.split(',').any(|option| option == name);
                self.file_system == "cgroup" && has_option(controller.name())
            }
            Version::V2 => self.file_system == "cgroup2",
        }
    }

    /// The path of `group` from the mount point, with a slash at its start; empty for the group at the mount point.
    /// Also empty for a group that this mount does not show, such as `/..` in a namespace.
    fn relative_path<'a>(&self, group: &'a str) -> &'a str {
        let inside = group.strip_prefix(self.group.trim_end_matches('/')).unwrap_or_default();
        let is_shown = inside.starts_with('/') && !inside.split('/').any(|part| part == "..");
        if is_shown { inside.trim_end_matches('/') } else { "" }
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
        levels(root, controller).iter().map(|level| level.directory.clone()).collect()
    }

    #[test]
    fn levels_go_up_to_the_mount_point() {
        let (_directory, root) = root_with(&V1);
        let memory = directories(&root, Controller::Memory);
        let expected =
            ["/docker/ab", "/docker", ""].map(|path| format!("/sys/fs/cgroup/memory{path}"));
        assert_eq!(memory, expected);
        assert_eq!(directories(&root, Controller::Pids), ["/sys/fs/cgroup/pids"]);
        assert_eq!(levels(&root, Controller::Cpu)[0].version, Version::V1);
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
        // Groups that the mount does not show.
        assert_eq!(seen("/../other", "/"), ["/cg roup"]);
        assert_eq!(seen("/docker/abc", "/docker/ab"), ["/cg roup"]);
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
                proptest::prop_assert!(levels(&root, controller).len() <= LEVELS_MAX);
            }
        }
    }
}
