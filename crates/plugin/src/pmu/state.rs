//! The content of all PMUs as text. `sim` stores the file next to a checkpoint, because QEMU's own state does not hold
//! it.
//!
//! The first line is the version, and the vendor of the PMUs. Then each vCPU has a line for each counter, and a last one, in
//! ascending order of vCPU and counter, with hexadecimal numbers.
//!
//! - The line of a counter is `VCPU COUNTER SELECT VALUE ENABLED OVERFLOWED INTERRUPT`. ENABLED and OVERFLOWED are the
//!   counter's bits of the global control and of the global status. INTERRUPT is the state of the counter's overflow
//!   interrupt: 0 if there is none, 1 if it is due, 2 if it was sent.
//! - The last line is `VCPU slots ENABLED`. ENABLED is 1 if the guest has enabled the counter of slots, which the PMU lacks.

use super::core::OverflowInterrupt;
use super::layout::RegisterLayout;

/// The version of the file. Version 1 had only event selects and values, of AMD's counters. Version 2 had no slots.
const VERSION: &str = "irqlab-pmu 3";

/// The content of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterContent {
    /// The event select register.
    pub(crate) select: u64,
    pub(crate) value: u64,
    /// The counter's bit of the global control. Without a global control it is set.
    pub(crate) is_enabled_globally: bool,
    /// The counter's bit of the global status.
    pub(crate) has_overflowed: bool,
    pub(crate) interrupt: OverflowInterrupt,
}

/// The content of the PMU of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) counters: Vec<CounterContent>,
    /// Whether the guest has enabled the fixed counter of slots, which the PMU lacks.
    pub(crate) enables_slots: bool,
}

fn first_line(layout: RegisterLayout) -> String {
    format!("{VERSION} {}", layout.word())
}

/// The text of PMUs in the order of their vCPUs.
pub(crate) fn write(layout: RegisterLayout, contents: &[Content]) -> String {
    let mut text = format!("{}\n", first_line(layout));
    for (vcpu, content) in contents.iter().enumerate() {
        let slots = u8::from(content.enables_slots);
        for (counter, content) in content.counters.iter().enumerate() {
            let CounterContent { select, value, .. } = content;
            let enabled = u8::from(content.is_enabled_globally);
            let overflowed = u8::from(content.has_overflowed);
            let interrupt = match content.interrupt {
                OverflowInterrupt::None => 0,
                OverflowInterrupt::Due => 1,
                OverflowInterrupt::Sent => 2,
            };
            text += &format!(
                "{vcpu:x} {counter:x} {select:x} {value:x} {enabled} {overflowed} {interrupt}\n"
            );
        }
        text += &format!("{vcpu:x} slots {slots}\n");
    }
    text
}

/// Parses the content of `vcpus` PMUs.
///
/// Fails if the text has another version, another vendor, another form, or the content of another number of PMUs.
pub(crate) fn read(
    layout: RegisterLayout,
    text: &str,
    vcpus: usize,
) -> Result<Vec<Content>, String> {
    let mut lines = text.lines();
    let expected = first_line(layout);
    let found = lines.next().unwrap_or_default();
    if found != expected {
        return Err(format!(
            "the first line is '{found}', not '{expected}': another version of irqlab or a machine with another \
             processor wrote the counters (make the checkpoint again)"
        ));
    }
    let lines_per_vcpu = layout.counters() + 1;
    let mut contents = vec![Content::default(); vcpus];
    let mut count = 0;
    for (number, line) in lines.enumerate() {
        let wrong = || {
            let columns = "VCPU COUNTER SELECT VALUE ENABLED OVERFLOWED INTERRUPT";
            format!("line {}: not '{columns}' or 'VCPU slots ENABLED' in order", number + 2)
        };
        let (vcpu, index) = (number / lines_per_vcpu, number % lines_per_vcpu);
        let content = contents.get_mut(vcpu).ok_or_else(wrong)?;
        if index < layout.counters() {
            let (line_vcpu, line_counter, counter) = parse_line(line).ok_or_else(wrong)?;
            if (line_vcpu, line_counter) != (vcpu as u64, index as u64) {
                return Err(wrong());
            }
            content.counters.push(counter);
        } else {
            let enabled = line.strip_prefix(&format!("{vcpu:x} slots ")).ok_or_else(wrong)?;
            content.enables_slots = match enabled {
                "0" => false,
                "1" => true,
                _ => return Err(wrong()),
            };
        }
        count += 1;
    }
    let expected_count = vcpus * lines_per_vcpu;
    if count != expected_count {
        return Err(format!(
            "the file has {count} lines of counters, but those of this machine are {expected_count}"
        ));
    }
    Ok(contents)
}

/// The numbers of vCPU and counter, and the counter's content. `None` if the line is damaged.
fn parse_line(line: &str) -> Option<(u64, u64, CounterContent)> {
    let columns = line.split(' ').map(|column| u64::from_str_radix(column, 16).ok());
    let columns: Vec<u64> = columns.collect::<Option<_>>()?;
    let [vcpu, counter, select, value, enabled, overflowed, interrupt] = columns[..] else {
        return None;
    };
    let flag = |number: u64| (number <= 1).then_some(number == 1);
    let interrupt = match interrupt {
        0 => OverflowInterrupt::None,
        1 => OverflowInterrupt::Due,
        2 => OverflowInterrupt::Sent,
        _ => return None,
    };
    let content = CounterContent {
        select,
        value,
        is_enabled_globally: flag(enabled)?,
        has_overflowed: flag(overflowed)?,
        interrupt,
    };
    Some((vcpu, counter, content))
}

#[cfg(test)]
mod tests {
    use machine::identity::Vendor;
    use proptest::prelude::*;

    use super::*;

    const AMD: RegisterLayout = RegisterLayout::of_vendor(Vendor::Amd);
    const INTEL: RegisterLayout = RegisterLayout::of_vendor(Vendor::Intel);

    fn content(layout: RegisterLayout) -> impl Strategy<Value = Content> {
        let interrupts = [OverflowInterrupt::None, OverflowInterrupt::Due, OverflowInterrupt::Sent];
        let interrupt = prop::sample::select(interrupts.to_vec());
        let counter = (any::<[u64; 2]>(), any::<[bool; 2]>(), interrupt);
        let counter = counter.prop_map(|([select, value], [enabled, overflowed], interrupt)| {
            CounterContent {
                select,
                value,
                is_enabled_globally: enabled,
                has_overflowed: overflowed,
                interrupt,
            }
        });
        (prop::collection::vec(counter, layout.counters()), any::<bool>())
            .prop_map(|(counters, enables_slots)| Content { counters, enables_slots })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            amd in prop::collection::vec(content(AMD), 0..5),
            intel in prop::collection::vec(content(INTEL), 0..5),
        ) {
            prop_assert_eq!(read(AMD, &write(AMD, &amd), amd.len()), Ok(amd));
            prop_assert_eq!(read(INTEL, &write(INTEL, &intel), intel.len()), Ok(intel));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}", vcpus in 0..4_usize) {
            let with_a_head = format!("{}\n{text}", first_line(AMD));
            for text in [text, with_a_head] {
                if let Ok(contents) = read(AMD, &text, vcpus) {
                    prop_assert_eq!(read(AMD, &write(AMD, &contents), vcpus), Ok(contents));
                }
            }
        }
    }

    #[test]
    fn another_machines_state_is_refused() {
        let content =
            Content { counters: vec![CounterContent::default(); 6], enables_slots: false };
        let text = write(AMD, &[content.clone(), content]);
        assert!(read(AMD, &text, 2).is_ok());
        assert!(read(AMD, &text, 1).unwrap_err().contains("line 9"));
        assert!(read(AMD, &text, 3).unwrap_err().contains("are 21"));
        assert!(read(AMD, &text.replace("1 slots 0", "1 slots 2"), 2).is_err());
        assert!(read(AMD, &text.replace("1 0 0 0 0 0 0", "1 0 0 0 0 0"), 2).is_err());
        assert!(read(AMD, &text.replace("1 0 0 0 0 0 0", "1 0 0 0 0 0 3"), 2).is_err());
        let error = read(INTEL, &text, 2).unwrap_err();
        assert!(error.contains("'irqlab-pmu 3 amd', not 'irqlab-pmu 3 intel'"), "{error}");
    }

    #[test]
    fn the_file_of_an_older_version_is_refused() {
        let error = read(AMD, "irqlab-pmu 1\n0 0 0 0\n", 1).unwrap_err();
        assert!(error.contains("make the checkpoint again"), "{error}");
    }
}
