//! The number of a CPU's system management interrupts (SMIs). They run firmware, which the kernel cannot see.
//! `noise` reports their number in each window.
//!
//! Intel's processors count SMIs in bits 31:0 of `MSR_SMI_COUNT` (34H; Software Developer's Manual, volume
//! 4). A process that may read `/dev/cpu/N/msr` can read the count (module `msr`, CAP_SYS_RAWIO). Other
//! processors have no such register.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Root;
use super::clock::processor_vendor;

/// Number of the register, which is its offset in the file.
const MSR_SMI_COUNT: u64 = 0x34;
const INTEL: &str = "GenuineIntel";

/// Number of SMIs on `cpu` since its reset, modulo 2^32.
///
/// The error is the reason why the count is not known.
pub fn smi_count(root: &Root, cpu: u32) -> Result<u32, String> {
    let vendor = processor_vendor(root).unwrap_or_else(|| "of no known vendor".to_owned());
    if vendor != INTEL {
        return Err(format!("only Intel's processors count them (MSR 34H); this one is {vendor}"));
    }
    let path = format!("dev/cpu/{cpu}/msr");
    let unreadable =
        |error: std::io::Error| format!("/{path}: {error}; modprobe msr, CAP_SYS_RAWIO");
    let file = File::open(root.path(&path)).map_err(unreadable)?;
    let mut value = [0; 8];
    file.read_exact_at(&mut value, MSR_SMI_COUNT).map_err(unreadable)?;
    Ok(u64::from_le_bytes(value) as u32)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root(vendor: &str, register: Option<u64>) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let cpuinfo = format!("processor\t: 0\nvendor_id\t: {vendor}\n");
        fs::create_dir_all(directory.path().join("proc")).unwrap();
        fs::write(directory.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        if let Some(register) = register {
            let mut file = vec![0xaa; 0x34];
            file.extend(register.to_le_bytes());
            fs::create_dir_all(directory.path().join("dev/cpu/1")).unwrap();
            fs::write(directory.path().join("dev/cpu/1/msr"), file).unwrap();
        }
        let root = Root::new(directory.path());
        (directory, root)
    }

    #[test]
    fn the_register_is_read_where_it_is() {
        let (_kept, root) = root(INTEL, Some(0xffff_ffff_0000_0011));
        assert_eq!(smi_count(&root, 1), Ok(0x11), "bits 63:32 are reserved");
        assert!(smi_count(&root, 0).unwrap_err().contains("modprobe msr"));
    }

    /// /proc/cpuinfo has 1.3 KiB and more for each CPU.
    #[test]
    fn a_machine_with_many_cpus_has_a_vendor() {
        let (_kept, root) = root(INTEL, Some(7));
        let flags = "flags\t\t: fpu".to_owned() + &" vme".repeat(350);
        let cpu = format!("processor\t: 0\nvendor_id\t: {INTEL}\n{flags}\n\n");
        fs::write(root.path("proc/cpuinfo"), cpu.repeat(1024)).unwrap();
        assert_eq!(smi_count(&root, 1), Ok(7));
    }

    #[test]
    fn without_it_there_is_a_reason_and_no_zero() {
        let (_kept, of_amd) = root("AuthenticAMD", Some(5));
        assert!(smi_count(&of_amd, 1).unwrap_err().contains("AuthenticAMD"));
        let (_kept, empty) = root(INTEL, None);
        assert!(smi_count(&empty, 1).unwrap_err().contains("/dev/cpu/1/msr"));
        let (_kept, short) = root(INTEL, Some(1));
        fs::write(short.path("dev/cpu/1/msr"), [1, 2]).unwrap();
        assert!(smi_count(&short, 1).is_err());
    }
}
