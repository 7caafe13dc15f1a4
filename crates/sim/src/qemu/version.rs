//! Versions of QEMU, and which of them fit.

use std::fmt;

/// Major versions that fit, for messages.
pub(super) const FITTING: &str = "11.x";

/// The first major version with plugin API 7 (interrupt callbacks, memory and register writes).
const MAJOR_MIN: u32 = 11;
/// The last major version that was tried; a newer one may have another plugin API.
const MAJOR_MAX: u32 = 11;

/// Version of a QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Micro.
    pub micro: u32,
}

impl Version {
    /// From the first line of `qemu-system-x86_64 --version`.
    pub(super) fn of_text(text: &str) -> Option<Version> {
        let after = text.split_once("QEMU emulator version ")?.1;
        let mut numbers = after.split([' ', '.', '-', '(']).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Version { major: next()?, minor: next()?, micro: next()? })
    }

    /// Whether it fits; why not.
    pub(super) fn check(self) -> Result<(), String> {
        if self.major < MAJOR_MIN {
            Err(format!("is version {self}, too old: {FITTING} has the plugin interface (API 7)"))
        } else if self.major > MAJOR_MAX {
            Err(format!("is version {self}, too new: this irqlab was tried with {FITTING}"))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions() {
        let debian = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)";
        let version = Version::of_text(debian).unwrap();
        assert_eq!(version.to_string(), "11.1.3");
        assert!(version.check().is_ok());
        assert_eq!(Version::of_text("QEMU emulator version 9.0.50-dirty").unwrap().micro, 50);
        for nonsense in ["", "QEMU emulator version", "QEMU emulator version 11", "bash 5.2.15"] {
            assert_eq!(Version::of_text(nonsense), None, "{nonsense}");
        }
    }
}
