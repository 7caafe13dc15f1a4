//! The content of all PMUs as text. `sim` stores the file next to a checkpoint, because QEMU's own state does not hold
//! it.
//!
//! The first line is the version. Each further line describes a counter: `VCPU COUNTER SELECT VALUE`, with hexadecimal
//! numbers, in ascending order of vCPU and counter.

use super::core::COUNTERS;

const FIRST_LINE: &str = "irqlab-pmu 1";

/// The content of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterContent {
    /// The event select register.
    pub(crate) select: u64,
    pub(crate) value: u64,
}

/// The content of each counter of a vCPU.
pub(crate) type Content = [CounterContent; COUNTERS];

/// The text of PMUs in the order of their vCPUs.
pub(crate) fn write(contents: &[Content]) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for (vcpu, content) in contents.iter().enumerate() {
        for (counter, CounterContent { select, value }) in content.iter().enumerate() {
            text += &format!("{vcpu:x} {counter:x} {select:x} {value:x}\n");
        }
    }
    text
}

/// Parses the content of `vcpus` PMUs.
///
/// Fails if the text has another version, another form, or the content of another number of PMUs.
pub(crate) fn read(text: &str, vcpus: usize) -> Result<Vec<Content>, String> {
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(format!("the first line is not '{FIRST_LINE}'"));
    }
    let mut contents = vec![Content::default(); vcpus];
    let mut next = 0;
    for (number, line) in lines.enumerate() {
        let wrong = || format!("line {}: not 'VCPU COUNTER SELECT VALUE' in order", number + 2);
        let columns: Result<Vec<u64>, _> =
            line.split(' ').map(|column| u64::from_str_radix(column, 16)).collect();
        let [vcpu, counter, select, value] = columns.map_err(|_| wrong())?[..] else {
            return Err(wrong());
        };
        let (next_vcpu, next_counter) = (next / COUNTERS, next % COUNTERS);
        if (vcpu, counter) != (next_vcpu as u64, next_counter as u64) || next_vcpu >= vcpus {
            return Err(wrong());
        }
        contents[next_vcpu][next_counter] = CounterContent { select, value };
        next += 1;
    }
    if next != vcpus * COUNTERS {
        return Err(format!(
            "the file has {next} counters, but this machine has {}",
            vcpus * COUNTERS
        ));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> impl Strategy<Value = Content> {
        let counters = any::<[[u64; 2]; COUNTERS]>();
        counters.prop_map(|all| all.map(|[select, value]| CounterContent { select, value }))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(contents in prop::collection::vec(content(), 0..5)) {
            prop_assert_eq!(read(&write(&contents), contents.len()), Ok(contents));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}", vcpus in 0..4_usize) {
            let with_a_head = format!("{FIRST_LINE}\n{text}");
            for text in [text, with_a_head] {
                if let Ok(contents) = read(&text, vcpus) {
                    prop_assert_eq!(read(&write(&contents), vcpus), Ok(contents));
                }
            }
        }
    }

    #[test]
    fn another_machines_state_is_refused() {
        let text = write(&[Content::default(); 2]);
        assert!(read(&text, 1).unwrap_err().contains("line 8"));
        assert!(read(&text, 3).unwrap_err().contains("has 18"));
        assert!(read("irqlab-pmu 2\n", 0).unwrap_err().contains("first line"));
        assert!(read(&text.replace("1 0 0 0", "1 0 0"), 2).is_err());
    }
}
