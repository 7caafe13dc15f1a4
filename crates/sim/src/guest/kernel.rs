//! The kernel of the guest: a stock kernel of Debian, or the user's own. Machines boot it, and `facts` keeps its
//! symbols and types by its hash.

use std::fs;
use std::path::{Path, PathBuf};

use crate::regular_file::{first_with_prefix, open_regular};
pub use crate::setup::Flavour;
use crate::{Cache, Progress, Result, SimError, hash, setup};

/// Maximum size of a kernel image, bytes; distribution kernels have 6 to 15 MB.
const IMAGE_BYTES_MAX: u64 = 256 << 20;
/// The magic number of a bzImage, and its offset (Documentation/arch/x86/boot.rst).
const MAGIC_OFFSET: usize = 0x202;
const MAGIC: &[u8] = b"HdrS";

/// A kernel with its modules and configuration.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The bzImage.
    pub image: PathBuf,
    /// SHA-256 of the image, in hexadecimal.
    pub sha256: String,
    /// Directory with its modules, at any depth.
    pub modules: Option<PathBuf>,
    /// Its configuration, if there is a file next to it.
    pub config: Option<PathBuf>,
}

/// Returns Debian's kernel of a flavour from the cache. Downloads the kernel first if the cache does not have it, or
/// if its image is damaged there.
///
/// Fails when it cannot be downloaded.
pub fn debian(cache: &Cache, flavour: Flavour, progress: Progress) -> Result<Kernel> {
    let root = setup::guest_files(cache, flavour, progress)?;
    let image = first_with_prefix(&root.join("boot"), "vmlinuz-")?;
    let mut kernel = of_file(&image, Some(&root.join("lib/modules")));
    let expected = setup::image_sha256(&root);
    let is_damaged = match &kernel {
        Ok(kernel) => expected.as_ref().is_some_and(|expected| *expected != kernel.sha256),
        Err(_) => expected.is_some(),
    };
    if is_damaged {
        let image = image.display();
        progress(&format!(
            "{image}: damaged, its checksum is not that of its package; fetching it again"
        ));
        setup::replace_kernel(cache, flavour, &root, progress)?;
        kernel = of_file(
            &first_with_prefix(&root.join("boot"), "vmlinuz-")?,
            Some(&root.join("lib/modules")),
        );
    }
    let mut kernel = kernel?;
    kernel.config = first_with_prefix(&root.join("boot"), "config-").ok();
    Ok(kernel)
}

/// Returns the user's own kernel.
///
/// Fails when the file is not a bzImage, or a path cannot be read.
pub fn of_file(image: &Path, modules: Option<&Path>) -> Result<Kernel> {
    let image = fs::canonicalize(image).map_err(SimError::file(image))?;
    let head = {
        use std::io::Read;
        let file = open_regular(&image)?;
        let bytes = file.metadata().map_err(SimError::file(&image))?.len();
        if bytes > IMAGE_BYTES_MAX {
            return Err(SimError::data(image.display().to_string(), "too large for a kernel"));
        }
        let mut head = Vec::new();
        file.take(4096).read_to_end(&mut head).map_err(SimError::file(&image))?;
        head
    };
    if head.get(MAGIC_OFFSET..MAGIC_OFFSET + MAGIC.len()) != Some(MAGIC) {
        let reason = "is not a bzImage (a kernel build has it at arch/x86/boot/bzImage)";
        return Err(SimError::data(image.display().to_string(), reason));
    }
    if let Some(directory) = modules.filter(|directory| !directory.is_dir()) {
        return Err(SimError::data(directory.display().to_string(), "is not a directory"));
    }
    let sha256 = hash::of_file(&image)?;
    let config = config_of(&image);
    Ok(Kernel { image, sha256, modules: modules.map(Path::to_owned), config })
}

/// The configuration of an image: `config-VERSION` beside `vmlinuz-VERSION`, where packages install it, or `.config` of the
/// kernel build that the image is in.
fn config_of(image: &Path) -> Option<PathBuf> {
    let name = image.file_name()?.to_str()?;
    let config = match name.strip_prefix("vmlinuz-") {
        Some(version) => image.with_file_name(format!("config-{version}")),
        None if image.ends_with("arch/x86/boot/bzImage") => {
            image.ancestors().nth(4)?.join(".config")
        }
        None => return None,
    };
    config.is_file().then_some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_no_kernels() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("bzImage");
        for bytes in [b"".as_slice(), b"\x7fELF", &[0; 5000]] {
            fs::write(&path, bytes).unwrap();
            let error = of_file(&path, None).unwrap_err().to_string();
            assert!(error.contains("not a bzImage"), "{error}");
        }
        let mut bytes = vec![0; 5000];
        bytes[MAGIC_OFFSET..MAGIC_OFFSET + 4].copy_from_slice(MAGIC);
        fs::write(&path, bytes).unwrap();
        assert_eq!(of_file(&path, None).unwrap().sha256.len(), 64);
        assert!(of_file(&path, Some(&path)).is_err());
        assert!(of_file(&scratch.path().join("absent"), None).is_err());
    }

    #[test]
    fn a_kernels_configuration_is_where_packages_and_builds_have_it() {
        let scratch = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let packaged = place("boot/vmlinuz-6.1");
        assert_eq!(config_of(&packaged), None);
        place("boot/config-6.12");
        assert_eq!(config_of(&packaged), None, "another version");
        assert_eq!(config_of(&place("boot/vmlinuz-6.12")), Some(place("boot/config-6.12")));
        let built = place("linux/arch/x86/boot/bzImage");
        assert_eq!(config_of(&built), None);
        let config = place("linux/.config");
        assert_eq!(config_of(&built), Some(config));
        assert_eq!(config_of(&place("boot/bzImage")), None);
    }
}
