//! Lists of CPUs as the kernel and users write them: `0-3,8`.

pub use lab::cpu_warnings::format_cpu_list;
use thiserror::Error;

/// Highest CPU number that is accepted. Linux stops at 8191 (the largest `NR_CPUS` is 8192).
pub const CPU_MAX: u32 = 65_535;

/// Why a CPU list was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuListError {
    /// A part that is neither a number nor a range.
    #[error("`{0}` is not a CPU number or a range such as 0-3")]
    Syntax(String),
    /// A range that runs backwards.
    #[error("the range `{0}` ends before it starts")]
    Backwards(String),
    /// A number above [`CPU_MAX`].
    #[error("CPU {0} is out of range: the highest accepted is {CPU_MAX}")]
    TooHigh(u64),
}

/// Parses a list such as `0-3,8`; returns the CPUs ascending, each once. White space around numbers
/// is ignored. An empty list means no CPUs, as in `/sys/devices/system/cpu/isolated`.
///
/// ```
/// use live::host::parse_cpu_list;
/// assert_eq!(parse_cpu_list("8,0-3\n"), Ok(vec![0, 1, 2, 3, 8]));
/// assert!(parse_cpu_list("3-0").is_err());
/// ```
pub fn parse_cpu_list(list: &str) -> Result<Vec<u32>, CpuListError> {
    if list.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut present = Vec::new();
    for part in list.split(',') {
        let part = part.trim();
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (parse_cpu(first, part)?, parse_cpu(last, part)?),
            None => {
                let cpu = parse_cpu(part, part)?;
                (cpu, cpu)
            }
        };
        if last < first {
            return Err(CpuListError::Backwards(part.to_owned()));
        }
        // One flag for each CPU: many overlapping ranges need no more memory than one.
        let end = last as usize + 1;
        if present.len() < end {
            present.resize(end, false);
        }
        present[first as usize..end].fill(true);
    }
    Ok((0..).zip(present).filter_map(|(cpu, is_present)| is_present.then_some(cpu)).collect())
}

/// Parses a mask such as `00000001,80000000`, as in `/sys/class/net/*/queues/*/rps_cpus`: hexadecimal digits of 4 CPUs
/// each, the highest first. `None` for other text.
#[must_use]
pub fn parse_cpu_mask(mask: &str) -> Option<Vec<u32>> {
    let digits = mask.trim().bytes().rev().filter(|byte| *byte != b',');
    let mut cpus = Vec::new();
    for (position, byte) in (0u32..).zip(digits) {
        let bits = char::from(byte).to_digit(16)?;
        cpus.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| position * 4 + bit));
    }
    Some(cpus)
}

fn parse_cpu(number: &str, part: &str) -> Result<u32, CpuListError> {
    let number = number.trim();
    let syntax = || CpuListError::Syntax(part.to_owned());
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax());
    }
    let value: u64 = number.parse().map_err(|_| syntax())?;
    match u32::try_from(value) {
        Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
        _ => Err(CpuListError::TooHigh(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_that_the_kernel_writes() {
        assert_eq!(parse_cpu_mask("00000001,8000000c\n"), Some(vec![2, 3, 31, 32]));
        assert_eq!(parse_cpu_mask("0"), Some(vec![]));
        assert_eq!(parse_cpu_mask("0-3"), None);
    }

    #[test]
    fn lists_that_the_kernel_writes() {
        assert_eq!(parse_cpu_list("\n"), Ok(vec![]));
        assert_eq!(parse_cpu_list("0"), Ok(vec![0]));
        assert_eq!(parse_cpu_list("0-1,4-4, 6"), Ok(vec![0, 1, 4, 6]));
    }

    #[test]
    fn nonsense_is_named() {
        for (list, error) in [
            ("a", CpuListError::Syntax("a".into())),
            ("0,,1", CpuListError::Syntax("".into())),
            ("-1", CpuListError::Syntax("-1".into())),
            ("(null)", CpuListError::Syntax("(null)".into())),
            ("+1", CpuListError::Syntax("+1".into())),
            ("5-2", CpuListError::Backwards("5-2".into())),
            ("0-4294967295", CpuListError::TooHigh(4_294_967_295)),
        ] {
            assert_eq!(parse_cpu_list(list), Err(error), "{list}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in "[0-9,\\- \\PC]{0,40}") {
            if let Ok(cpus) = parse_cpu_list(&text) {
                prop_assert!(cpus.is_sorted_by(|a, b| a < b));
            }
        }

        #[test]
        fn formatting_and_parsing_are_inverse(
            cpus in prop::collection::btree_set(0..=CPU_MAX, 0..40),
        ) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpu_list(&format_cpu_list(&cpus)), Ok(cpus));
        }
    }
}
