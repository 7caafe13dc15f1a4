//! Root file systems of the guest: Debian packages and files, as a disk image in the cache. Workloads and
//! `irqlab sim rootfs` make them.
//!
//! Equal packages and files give equal bytes, on any host and for any user: the archives of the packages are merged
//! into one archive, sorted, with times clamped, and `mke2fs` makes the image from it. No file is unpacked on the
//! host, so no privileges are needed, and no time, owner or order of the host gets into the image.
//!
//! Maintainer scripts are not run. irqlab does the part of their work that programs need: the links of a merged
//! `/usr`, a shell, the alternatives of `archive::ALTERNATIVES`, users and groups. `ldconfig` is left to the
//! guest.

mod archive;
mod image;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cache::{check_name, in_use, known_file};
use crate::machine::devices::{Backing, Disk, DiskModel};
use crate::regular_file::read_bounded;
use crate::setup::apt::Apt;
use crate::{Cache, Progress, Result, SimError, hash};

/// The release of the packages: the release of the guest's kernel.
const RELEASE: &str = "bookworm";
/// Packages of each root file system: a shell, tools for scripts, and `ldconfig`.
const BASE_PACKAGES: [&str; 3] = ["coreutils", "dash", "libc-bin"];
/// Version of the recipe. Increase it when equal packages and files give another image.
const RECIPE: u32 = 1;
/// Time of entries without their own time, and the latest time of all others, in seconds since 1970. The guest's
/// clock starts at this time.
const EPOCH_S: u64 = 1_767_225_600;
/// Paths that programs do not read. An image omits them and everything below.
const OMITTED: [&str; 7] = [
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
];

const IMAGE: &str = "image.ext4";
const MANIFEST: &str = "rootfs.json";
const SCHEMA: &str = "irqlab.rootfs/1";
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of a file that is added, bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of packages, and of files, in a specification.
const PARTS_MAX: usize = 4096;
/// Prefix of the names of images in the cache.
const PREFIX: &str = "rootfs-";
/// Prefix of the names of downloaded packages in the cache.
const PACKAGES_PREFIX: &str = "packages-";

/// Content of a root file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootSpec {
    /// Packages. The image has their dependencies, too.
    pub packages: Vec<String>,
    /// Files in addition to the files of the packages.
    pub files: Vec<RootFile>,
    /// Users in addition to root, each with a group of the same name and number.
    pub users: Vec<RootUser>,
    /// Paths that the image omits with everything below, without the first slash.
    pub omit: Vec<String>,
    /// Alternative packages with source code: the image has the first one that the mirror has.
    pub sources: Vec<SourcePackage>,
}

/// A package with the source code that a workload compiles.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcePackage {
    pub package: String,
    /// Directory of the files, without the first slash.
    pub directory: String,
    /// Expected [`InstalledSources::sha256`].
    pub sha256: String,
}

/// A file of a root file system. Its owner is root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootFile {
    /// Its path, without the first slash.
    pub path: String,
    /// Whether it can be executed.
    pub is_program: bool,
    /// Its content.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootUser {
    pub name: String,
    /// Number of the user and of the group, from 1.
    pub id: u32,
    /// The home directory, which belongs to the user.
    pub home: String,
}

/// A package of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledPackage {
    pub name: String,
    pub version: String,
    /// SHA-256 of its archive, in hexadecimal.
    pub sha256: String,
}

/// The source code of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledSources {
    pub package: String,
    pub version: String,
    /// SHA-256 of the list that `sha256sum` prints for the files, sorted by path, in hexadecimal.
    pub sha256: String,
}

/// A disk image with a root file system, in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootImage {
    schema: String,
    #[serde(skip)]
    pub path: PathBuf,
    /// Its size in bytes. Large parts of the file may be holes.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its packages, by name.
    pub packages: Vec<InstalledPackage>,
    /// `None` if the specification names no sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<InstalledSources>,
}

impl RootFile {
    /// Reads a file of the host.
    ///
    /// Fails when it cannot be read, is too large, or `path` is no path in a root file system.
    pub fn of_host(from: &Path, path: &str) -> Result<RootFile> {
        use std::os::unix::fs::PermissionsExt;
        let bytes = read_bounded(from, FILE_BYTES_MAX)?;
        let data = fs::metadata(from).map_err(SimError::file(from))?;
        let is_program = data.permissions().mode() & 0o111 != 0;
        let file = RootFile { path: path.trim_start_matches('/').to_owned(), is_program, bytes };
        archive::check_path(&file.path).map_err(SimError::Invalid)?;
        Ok(file)
    }
}

impl RootSpec {
    /// Returns the names of the packages of the image without dependencies and sources, sorted.
    fn all_packages(&self) -> Vec<&str> {
        let requested = self.packages.iter().map(String::as_str);
        let mut names: Vec<&str> = BASE_PACKAGES.into_iter().chain(requested).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Checks names, paths and hashes, before anything is downloaded. The error names the first that is not allowed.
    fn check(&self) -> Result<()> {
        let is_name = |name: &str| {
            let is_allowed =
                |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
            let has_valid_start = name.chars().next().is_some_and(is_allowed);
            has_valid_start
                && name
                    .chars()
                    .all(|character| is_allowed(character) || matches!(character, '+' | '-' | '.'))
        };
        let sources = self.sources.iter().map(|source| &source.package);
        if let Some(name) = self.packages.iter().chain(sources).find(|name| !is_name(name)) {
            let reason = format!("{name:?} is no name of a Debian package");
            return Err(SimError::Invalid(reason));
        }
        let is_hash = |text: &str| {
            text.len() == 64 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        };
        if let Some(source) = self.sources.iter().find(|source| !is_hash(&source.sha256)) {
            let reason = format!("sha256 of {}: allowed: 64 digits of 0-9 and a-f", source.package);
            return Err(SimError::Invalid(reason));
        }
        if self.packages.len().max(self.files.len()) > PARTS_MAX {
            let reason = format!("over {PARTS_MAX} packages or files of a root file system");
            return Err(SimError::Invalid(reason));
        }
        let directories = self.sources.iter().map(|source| &source.directory);
        let paths = self.files.iter().map(|file| &file.path).chain(&self.omit).chain(directories);
        for path in paths {
            archive::check_path(path).map_err(SimError::Invalid)?;
        }
        Ok(())
    }
}

impl SourcePackage {
    /// Returns these sources with their content in the merged archive; `None` if their package is not in the image.
    fn installed(
        &self,
        archives: &[Archive],
        merged: &Path,
    ) -> Option<std::io::Result<InstalledSources>> {
        let package = archives.iter().map(|archive| &archive.package);
        let package = package.into_iter().find(|package| package.name == self.package)?;
        let directory = archive::in_usr(&self.directory);
        Some(archive::content_hash(merged, &directory).map(|sha256| InstalledSources {
            package: package.name.clone(),
            version: package.version.clone(),
            sha256,
        }))
    }
}

impl RootImage {
    /// Returns why published figures of a workload do not apply: the image has other source code than expected.
    /// `None` if it has the expected source code.
    #[must_use]
    pub fn other_sources(&self, spec: &RootSpec) -> Option<String> {
        let (first, sources) = (spec.sources.first()?, self.sources.as_ref()?);
        let InstalledSources { package, version, sha256 } = sources;
        let mut differences = Vec::new();
        if *package != first.package {
            differences.push(format!(
                "the mirror had no package {}, so the workload has the files of {package} {version}; irqlab sim rootfs \
                 NAME --again asks the mirror again",
                first.package
            ));
        }
        let expected = spec.sources.iter().find(|source| source.package == *package);
        if let Some(expected) = expected.filter(|expected| expected.sha256 != *sha256) {
            differences.push(format!(
                "{package} {version} has other files (sha256 {sha256}) than expected (sha256 {})",
                expected.sha256
            ));
        }
        let applies_to = format!("figures published for {} do not apply", first.package);
        (!differences.is_empty()).then(|| [differences.join("; "), applies_to].join(": "))
    }

    /// Returns the image as a disk: the guest can read it and not write it.
    ///
    /// Fails when the image cannot be read, or is damaged.
    pub fn disk(&self, cache: &Cache, latency_ns: u64) -> Result<Disk> {
        let backing = Backing::read_only(cache, &self.path, &self.sha256)?;
        Ok(Disk { model: DiskModel::VirtioBlk, backing, latency_ns, coalescing: None, drive: None })
    }

    /// Reads the description of the image in a directory.
    fn read(directory: &Path) -> Result<RootImage> {
        let manifest = directory.join(MANIFEST);
        let text = read_bounded(&manifest, MANIFEST_BYTES_MAX)?;
        let invalid = |reason: String| SimError::data(manifest.display().to_string(), reason);
        let mut image: RootImage =
            serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        if image.schema != SCHEMA {
            return Err(invalid(format!("schema {:?} instead of {SCHEMA:?}", image.schema)));
        }
        image.path = directory.join(IMAGE);
        let bytes = fs::metadata(&image.path).map_err(SimError::file(&image.path))?.len();
        if bytes != image.bytes {
            return Err(invalid(format!("the image has {bytes} bytes, not {}", image.bytes)));
        }
        Ok(image)
    }
}

/// Returns the image of a root file system. Makes it unless the cache has an image of the same packages and files.
/// `download_again`: the packages are downloaded again, for their newest versions.
///
/// Fails when a package does not exist or cannot be downloaded, or the image cannot be made.
pub fn image(
    cache: &Cache,
    spec: &RootSpec,
    download_again: bool,
    progress: Progress,
) -> Result<RootImage> {
    spec.check()?;
    let tools = image::tools(cache, progress)?;
    let archives = archives_of(cache, spec, download_again, progress)?;
    let name = format!("{PREFIX}{}", key(spec, &archives, &tools)?);
    let directory = cache.held_directory(&name, progress, |staging| {
        progress("making the image of the root file system; the cache keeps it for later runs");
        let image_path = staging.join(IMAGE);
        let extent = archive::merge(spec, &archives, staging)?;
        let merged = &extent.archive;
        let installed = spec.sources.iter().find_map(|source| source.installed(&archives, merged));
        let sources = installed.transpose().map_err(SimError::file(merged))?;
        image::make(&tools, &extent, &image_path)?;
        let description = RootImage {
            schema: SCHEMA.to_owned(),
            bytes: fs::metadata(&image_path).map_err(SimError::file(&image_path))?.len(),
            sha256: hash::of_file(&image_path)?,
            path: image_path,
            packages: archives.iter().map(|archive| archive.package.clone()).collect(),
            sources,
        };
        let text = serde_json::to_string_pretty(&description)
            .map_err(|error| SimError::data(MANIFEST, error.to_string()))?;
        let manifest = staging.join(MANIFEST);
        fs::write(&manifest, text + "\n").map_err(SimError::file(&manifest))
    })?;
    RootImage::read(&directory)
}

/// Gives an image a name, under which [`named`] finds it.
///
/// Fails when `name` is not allowed as a name, or the cache cannot be written.
pub fn keep_as(cache: &Cache, name: &str, image: &RootImage) -> Result<()> {
    let directory = image.path.parent().and_then(Path::file_name).unwrap_or_default();
    let directory = directory.to_string_lossy().into_owned();
    cache.file(&pointer(name)?, directory.as_bytes()).map(drop)
}

/// Returns the image of this name; `None` if no image was ever given the name.
///
/// Fails when `name` is not allowed as a name, or the image is gone or damaged.
pub fn named(cache: &Cache, name: &str) -> Result<Option<RootImage>> {
    let pointer = cache.path(&pointer(name)?);
    let Ok(directory) = fs::read_to_string(&pointer) else { return Ok(None) };
    let directory = directory.trim();
    let is_name = directory.starts_with(PREFIX) && !directory.contains('/');
    let missing_error = |why: String| SimError::Missing {
        what: format!("root file system {name}: {why}"),
        remedy: format!("make it again: irqlab sim rootfs {name} ..."),
    };
    if !is_name || !in_use::hold(&cache.path(directory)) {
        return Err(missing_error("its image is no longer in the cache".to_owned()));
    }
    let image = RootImage::read(&cache.path(directory))
        .map_err(|error| missing_error(error.to_string()))?;
    Ok(Some(image))
}

/// Returns the name of the file that holds the cache entry of a named image.
fn pointer(name: &str) -> Result<String> {
    check_name(name, "root file system")?;
    Ok(format!("root-{name}.latest"))
}

/// The downloaded archive of a package (`.deb`).
#[derive(Debug)]
struct Archive {
    path: PathBuf,
    package: InstalledPackage,
}

/// Downloads the packages unless the cache has them; returns their archives, sorted by name.
fn archives_of(
    cache: &Cache,
    spec: &RootSpec,
    download_again: bool,
    progress: Progress,
) -> Result<Vec<Archive>> {
    let mut packages = spec.all_packages();
    let alternatives: Vec<&str> =
        spec.sources.iter().map(|source| source.package.as_str()).collect();
    let requested = [packages.join(" "), alternatives.join("|")].join(" ");
    let request_hash = hash::of_bytes(format!("{RELEASE} {}", requested.trim_end()).as_bytes());
    let entry_name = format!("{PACKAGES_PREFIX}{}", hash::key(&request_hash));
    let download = |staging: &Path| {
        let state = staging.join("apt");
        let apt = Apt::new(&state, progress)?;
        let is_known = |entry_name: &&&str| apt.package(entry_name, RELEASE).is_ok();
        // If the mirror has none, the download fails with an error that names the first.
        packages.extend(alternatives.iter().find(is_known).or(alternatives.first()));
        progress(&format!("downloading {} with their dependencies", packages.join(", ")));
        apt.download(RELEASE, &packages, staging)?;
        crate::cache::remove_directory(&state)
    };
    let directory = if download_again {
        cache.replace_directory(&entry_name, progress, download)?
    } else {
        cache.directory(&entry_name, progress, download)?
    };
    let mut archives = Vec::new();
    for entry in fs::read_dir(&directory).map_err(SimError::file(&directory))?.flatten() {
        let path = entry.path();
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let Some(stem) = file_name.strip_suffix(".deb") else { continue };
        let mut parts = stem.split('_');
        let (Some(name), Some(version)) = (parts.next(), parts.next()) else {
            return Err(SimError::data(stem, "is no name of a package's archive"));
        };
        let sha256 = known_file::hash_of(cache, &path)?;
        // apt writes the colon after an epoch as in a URL.
        let (name, version) = (name.to_owned(), version.replace("%3a", ":"));
        archives.push(Archive { path, package: InstalledPackage { name, version, sha256 } });
    }
    archives.sort_by(|first, second| first.package.name.cmp(&second.package.name));
    Ok(archives)
}

/// Returns a key of everything that determines the bytes of an image. A new field of [`RootSpec`] must be in it.
fn key(spec: &RootSpec, archives: &[Archive], tools: &image::Tools) -> Result<String> {
    let files = spec.files.iter().map(|file| {
        let path = archive::in_usr(&file.path);
        json!({ "path": path, "program": file.is_program, "sha256": hash::of_bytes(&file.bytes) })
    });
    let omitted = spec.omit.iter().map(|path| archive::in_usr(path));
    let mut depends_on = json!({
        "schema": SCHEMA,
        "recipe": RECIPE,
        "tools": tools.version(),
        "packages": archives.iter().map(|archive| &archive.package).collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "users": spec.users,
        "omit": omitted.collect::<Vec<_>>(),
    });
    if !spec.sources.is_empty() {
        let sources = spec.sources.iter().map(|source| (&source.package, &source.directory));
        depends_on["sources"] = json!(sources.collect::<Vec<_>>());
    }
    Ok(hash::key(&hash::of_bytes(depends_on.to_string().as_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_of(package: &str, sha256: &str) -> RootImage {
        let text = |text: &str| text.to_owned();
        RootImage {
            schema: text(SCHEMA),
            path: PathBuf::new(),
            bytes: 0,
            sha256: String::new(),
            packages: Vec::new(),
            sources: Some(InstalledSources {
                package: text(package),
                version: text("2.0-1"),
                sha256: text(sha256),
            }),
        }
    }

    #[test]
    fn a_wrong_hash_of_sources_is_refused() {
        for sha256 in ["", "f9ae8d21...", &"F".repeat(64), &"a".repeat(63)] {
            let source = SourcePackage {
                package: "stb".to_owned(),
                directory: "usr/src".to_owned(),
                sha256: sha256.to_owned(),
            };
            let spec = RootSpec { sources: vec![source], ..RootSpec::default() };
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains("sha256 of stb: allowed: 64 digits"), "{error}");
        }
    }

    #[test]
    fn an_image_with_other_sources_than_the_expected_ones_says_so() {
        let source = |package: &str, sha256: &str| SourcePackage {
            package: package.to_owned(),
            directory: "usr/src".to_owned(),
            sha256: sha256.to_owned(),
        };
        let sources = vec![source("first", "aa"), source("second", "bb")];
        let spec = RootSpec { sources, ..RootSpec::default() };
        assert_eq!(image_of("first", "aa").other_sources(&spec), None);
        let newer = image_of("first", "cc").other_sources(&spec).unwrap();
        assert!(newer.starts_with("first 2.0-1 has other files (sha256 cc)"), "{newer}");
        let second = image_of("second", "bb").other_sources(&spec).unwrap();
        assert!(second.contains("no package first, so the workload has the files of second 2.0-1"));
        assert!(
            second.ends_with("asks the mirror again: figures published for first do not apply")
        );
        let both = image_of("second", "cc").other_sources(&spec).unwrap();
        assert!(both.contains("no package first") && both.contains("other files (sha256 cc)"));
        assert_eq!(image_of("first", "cc").other_sources(&RootSpec::default()), None);
    }
}
