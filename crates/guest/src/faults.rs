//! Page faults since the boot, as the kernel counts them.

/// Faults of all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// All of them.
    pub all: u64,
    /// Those that waited for a disk.
    pub major: u64,
}

impl Faults {
    /// Reads the counters; none if the kernel does not have them.
    pub fn read() -> Option<Faults> {
        Faults::parse(&std::fs::read_to_string("/proc/vmstat").ok()?)
    }

    fn parse(text: &str) -> Option<Faults> {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        Some(Faults { all: value("pgfault")?, major: value("pgmajfault")? })
    }

    /// Returns how many there were since an earlier reading.
    pub fn since(self, earlier: Faults) -> Faults {
        let all = self.all.saturating_sub(earlier.all);
        Faults { all, major: self.major.saturating_sub(earlier.major) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_by_name() {
        let text = "pgfault_x 1\npgfault 20\npgmajfault 3\n";
        let faults = Faults::parse(text).unwrap();
        assert_eq!(faults, Faults { all: 20, major: 3 });
        assert_eq!(faults.since(Faults { all: 15, major: 3 }), Faults { all: 5, major: 0 });
        assert_eq!(Faults::parse("pgfault 20\n"), None);
    }
}
