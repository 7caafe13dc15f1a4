//! Short names of containers, from the paths of their control groups.

/// Digits of a container's id in its short name, as container runtimes print it.
const SHORT_ID_DIGITS: usize = 12;

/// The short name of the innermost container in a group's path, followed by the groups below the container's group. The
/// short name is the runtime's name and the first digits of the container's id, or of the id of a Kubernetes pod. `None` if
/// the path contains no container and no pod.
pub(crate) fn container_name(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let found = parts.iter().enumerate().rev().find_map(|(position, part)| {
        let parent = position.checked_sub(1).map_or("", |parent| parts[parent]);
        Some((position, container_of_group(part, parent).or_else(|| pod_of_group(part))?))
    });
    let (position, name) = found?;
    Some([&[&*name], &parts[position + 1..]].concat().join("/"))
}

/// The short name of the container that has the group `part` below the group `parent`. `None` if no container has it.
fn container_of_group(part: &str, parent: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let (runtime, id) = match name.rsplit_once('-') {
        Some((runtime @ ("docker" | "cri-containerd" | "crio" | "libpod"), id)) => (runtime, id),
        // cgroupfs as the driver: /docker/ID, /kubepods/.../podUID/ID
        None if parent == "docker" => ("docker", name),
        None if pod_of_group(parent).is_some() => ("kubepods", name),
        _ => return None,
    };
    let is_id = id.len() >= SHORT_ID_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| format!("{runtime}-{}", &id[..SHORT_ID_DIGITS]))
}

/// The short name of the Kubernetes pod that has the group `part`: `podUID`, or `kubepods-CLASS-podUID.slice`.
fn pod_of_group(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match name.strip_prefix("kubepods") {
        Some(rest) => rest.split_once("-pod")?.1,
        None => name.strip_prefix("pod")?,
    };
    let digits: String = uid.chars().take(8).collect();
    let is_uid = uid.len() >= 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_uid.then(|| format!("pod-{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_short_names() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let uid = "8b3a7f35_251e_15ef_0000_0123456789ab";
        let pods =
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
        let dashed = uid.replace('_', "-");
        for (path, name) in [
            (format!("/system.slice/docker-{id}.scope"), Some("docker-0123456789ab")),
            (format!("/docker/{id}"), Some("docker-0123456789ab")),
            (format!("/docker/{id}/worker"), Some("docker-0123456789ab/worker")),
            (format!("/machine.slice/libpod-{id}.scope"), Some("libpod-0123456789ab")),
            (format!("{pods}/cri-containerd-{id}.scope"), Some("cri-containerd-0123456789ab")),
            (pods.clone(), Some("pod-8b3a7f35")),
            (format!("/kubepods/burstable/pod{dashed}/{id}"), Some("kubepods-0123456789ab")),
            (format!("/kubepods/pod{dashed}"), Some("pod-8b3a7f35")),
            ("/user.slice/docker-compose.scope".to_owned(), None),
            ("/system.slice/podman.service".to_owned(), None),
            ("/".to_owned(), None),
        ] {
            assert_eq!(container_name(&path).as_deref(), name, "{path}");
        }
    }
}
