//! The content of a QEMU: its program, and the firmware that it gives the guest. Another build may have the same version,
//! and its machine may boot differently. So the keys of kept machines have this content.

use std::path::PathBuf;

use super::{Origin, Qemu};
use crate::cache::known_file;
use crate::{Cache, Result, hash, process};

/// The firmware of a machine that starts a kernel without a boot disk. Cards have no firmware of their own here.
const FIRMWARE: [&str; 3] = ["bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin"];

impl Qemu {
    /// Returns a hash of QEMU's program and its firmware, in hexadecimal.
    ///
    /// Fails when the program cannot be read, or does not list its directories.
    pub(crate) fn content_sha256(&self, cache: &Cache) -> Result<&str> {
        if let Some(known) = self.content_sha256.get() {
            return Ok(known);
        }
        let mut files = vec![self.program().to_owned()];
        let directories = self.firmware_directories()?;
        // QEMU takes a file from the first directory that has it.
        files.extend(FIRMWARE.iter().filter_map(|name| {
            directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
        }));
        let hashes = files.iter().map(|path| known_file::hash_of(cache, path));
        let hashes: Vec<String> = hashes.collect::<Result<_>>()?;
        Ok(self.content_sha256.get_or_init(|| hash::of_bytes(hashes.join(" ").as_bytes())))
    }

    /// Returns the directories where QEMU searches for firmware, in the order of the search.
    fn firmware_directories(&self) -> Result<Vec<PathBuf>> {
        if self.origin == Origin::Private {
            let named = self.first_arguments.iter().skip_while(|word| *word != "-L");
            return Ok(named.filter(|word| *word != "-L").map(PathBuf::from).collect());
        }
        let output = process::output(self.command().args(["-L", "help"]))?;
        Ok(String::from_utf8_lossy(&output).lines().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{qemu, write_program};
    use super::*;

    #[test]
    fn another_build_or_firmware_of_the_same_version_is_another_qemu() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(&scratch.path().join("cache")).unwrap();
        let path = |name: &str| scratch.path().join(name);
        let content_of = |build: &str, firmware: &str| {
            let directory = scratch.path().display();
            let text = format!("#!/bin/sh\n# {build}\necho {directory}/none\necho {directory}\n");
            write_program(&path("qemu"), &text);
            fs::write(path(FIRMWARE[0]), firmware).unwrap();
            let qemu = Qemu { program: path("qemu"), content_sha256: Default::default(), ..qemu() };
            qemu.content_sha256(&cache).unwrap().to_owned()
        };
        let first = content_of("one", "1.16");
        assert_eq!(content_of("one", "1.16"), first);
        assert_ne!(content_of("two", "1.16"), first);
        assert_ne!(content_of("one", "1.17"), first);
    }
}
