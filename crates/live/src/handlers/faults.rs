//! What a reader must know of PMU events that could not be read.

use crate::bpf::EventFaults;

/// A sentence for each sort of fault that occurred.
pub(super) fn warnings_of(faults: &EventFaults) -> Vec<String> {
    let mut warnings = Vec::new();
    if faults.unreadable > 0 {
        let errno = std::io::Error::from_raw_os_error(faults.last_errno as i32);
        warnings.push(format!(
            "{} reads of PMU events failed (last: {errno}); their spans are in no event column",
            faults.unreadable
        ));
    }
    if faults.multiplexed > 0 {
        warnings.push(format!(
            "{} spans in which a PMU event did not count all the time are in no event column",
            faults.multiplexed
        ));
    }
    if faults.disturbed > 0 {
        warnings.push(format!(
            "{} spans were interrupted while their events were read; they are in no event column",
            faults.disturbed
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_is_told_once_and_none_without_faults() {
        assert!(warnings_of(&EventFaults::default()).is_empty());
        let faults = EventFaults { unreadable: 1, last_errno: 16, multiplexed: 2, disturbed: 3 };
        let warnings = warnings_of(&faults);
        assert_eq!(warnings.len(), 3);
        assert!(warnings[0].contains("busy") && warnings[2].starts_with("3 spans"));
    }
}
