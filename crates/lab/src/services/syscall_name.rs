//! Names of system calls, the same on both benches.

use syscalls::Sysno;

/// The name of a system call of Linux on this architecture, as in the manual pages, or its number if it has no name.
#[must_use]
pub fn syscall_name(number: usize) -> String {
    let name = Sysno::new(number).map(|call| call.name().to_owned());
    name.unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_manual_pages() {
        assert_eq!(syscall_name(syscalls::Sysno::uname.id() as usize), "uname");
        assert_eq!(syscall_name(0x7fff), "32767");
    }
}
