//! Reads `/proc/interrupts` and `/proc/softirqs`: the kernel's own counts. `handlers` compares its counts with them;
//! `signal`, `footprint` and the timer stimulus count interrupts by them.

use std::collections::BTreeSet;

use serde::Serialize;

use super::root::Root;

/// Largest file that is read. With hundreds of CPUs and thousands of vectors, /proc/interrupts has some MiB.
const INTERRUPTS_BYTES_MAX: usize = 64 << 20;

/// The kernel's counts have 32 bits, so they wrap at this value.
const COUNT_MODULUS: u64 = 1 << 32;

/// The counts of a file. The kernel reads them one after the other, without a lock, so they are not of one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interrupts {
    /// The CPUs that have a column: online CPUs in /proc/interrupts, possible
    /// CPUs in /proc/softirqs.
    pub cpus: Vec<u32>,
    /// The lines of the file, in the kernel's order.
    pub lines: Vec<InterruptLine>,
}

/// The counts of one interrupt since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterruptLine {
    /// The text before the colon: `24`, `LOC`, `NET_RX`.
    pub label: String,
    /// The IRQ number, if the label is a number.
    pub number: Option<u32>,
    /// Counts in the order of [`Interrupts::cpus`]. `ERR` and `MIS` have a single count of the
    /// whole machine, and therefore one element.
    pub per_cpu: Vec<u64>,
    /// Text after the counts: controller, hardware number and trigger of a device interrupt, or the kernel's
    /// explanation of another interrupt. Empty for softirqs.
    pub description: String,
    /// Names of the handlers of a device interrupt; a shared line has several. Empty without a
    /// handler, and for other interrupts.
    pub actions: Vec<String>,
}

impl InterruptLine {
    /// Sum over the CPUs, or the machine-wide count.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.per_cpu.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The description without the trigger, which a driver may change: controller and hardware number. Another one shows
    /// that the number has been given to another line.
    fn source(&self) -> &str {
        self.description.trim_end_matches(|character: char| !character.is_ascii_digit())
    }
}

impl Interrupts {
    /// The line with the label `label`.
    #[must_use]
    pub fn line(&self, label: &str) -> Option<&InterruptLine> {
        self.lines.iter().find(|line| line.label == label)
    }

    /// The count of the line `label` on `cpu`; `None` for machine-wide counts and unknown CPUs.
    #[must_use]
    pub fn count(&self, label: &str, cpu: u32) -> Option<u64> {
        let line = self.line(label)?;
        let column = self.cpus.iter().position(|candidate| *candidate == cpu)?;
        if line.per_cpu.len() != self.cpus.len() {
            return None;
        }
        line.per_cpu.get(column).copied()
    }

    /// The increase since `earlier`, for the lines and CPUs of `self`. A line or CPU that `earlier` lacks
    /// counts from zero: a line appears with its first handler, and a CPU when it comes online. The result is
    /// right if a count has wrapped once. For renewed lines ([`Interrupts::is_renewed`]) it is a minimum.
    #[must_use]
    pub fn since(&self, earlier: &Interrupts) -> Interrupts {
        let lines = self.lines.iter().map(|line| {
            let before = earlier.line(&line.label);
            let pair = LinePair { line, before, cpus: [&self.cpus, &earlier.cpus] };
            InterruptLine { per_cpu: pair.increases(), ..line.clone() }
        });
        Interrupts { cpus: self.cpus.clone(), lines: lines.collect() }
    }

    /// Like [`Interrupts::since`], for one line and CPU. `None` for machine-wide counts and unknown CPUs.
    #[must_use]
    pub fn increase(&self, earlier: &Interrupts, label: &str, cpu: u32) -> Option<u64> {
        self.count(label, cpu)?;
        let column = self.cpus.iter().position(|candidate| *candidate == cpu)?;
        self.pair(earlier, label)?.increases().get(column).copied()
    }

    /// Whether the kernel has freed the IRQ line `label` since `earlier`, or has freed it and made it again. A driver that
    /// resets its device or changes its number of queues does so. The line's counts until then are lost, and a new line may
    /// have the number of an old one.
    #[must_use]
    pub fn is_renewed(&self, earlier: &Interrupts, label: &str) -> bool {
        match (self.pair(earlier, label), earlier.line(label)) {
            (Some(pair), _) => pair.is_renewed(),
            (None, before) => before.is_some_and(|before| before.number.is_some()),
        }
    }

    /// The numbers of all IRQ lines that are renewed ([`Interrupts::is_renewed`]).
    #[must_use]
    pub fn renewed_lines(&self, earlier: &Interrupts) -> BTreeSet<u32> {
        let renewed = earlier.lines.iter().filter(|line| self.is_renewed(earlier, &line.label));
        renewed.filter_map(|line| line.number).collect()
    }

    fn pair<'a>(&'a self, earlier: &'a Interrupts, label: &str) -> Option<LinePair<'a>> {
        let (line, before) = (self.line(label)?, earlier.line(label));
        Some(LinePair { line, before, cpus: [&self.cpus, &earlier.cpus] })
    }
}

/// A line in two readings.
struct LinePair<'a> {
    line: &'a InterruptLine,
    before: Option<&'a InterruptLine>,
    /// The CPUs of the later and of the earlier reading.
    cpus: [&'a [u32]; 2],
}

impl LinePair<'_> {
    /// The counts of the line, each with that of the same CPU before. The latter is 0 if it is absent.
    fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let [cpus, cpus_before] = self.cpus;
        let has_same_columns = self.line.per_cpu.len() != cpus.len() || cpus == cpus_before;
        self.line.per_cpu.iter().enumerate().map(move |(index, count)| {
            let column = if has_same_columns {
                Some(index)
            } else {
                cpus_before.iter().position(|cpu| *cpu == cpus[index])
            };
            let before = self.before.and_then(|before| before.per_cpu.get(column?).copied());
            (*count, before.unwrap_or(0))
        })
    }

    /// Whether the later line has other counters than the earlier one.
    fn is_renewed(&self) -> bool {
        let has_other_source =
            self.before.is_some_and(|before| before.source() != self.line.source());
        let is_irq = self.line.number.is_some();
        is_irq
            && (has_other_source
                || self.counts().any(|(count, before)| increase(before, count).is_none()))
    }

    /// The increase of each count. The counters of a renewed line began at zero.
    fn increases(&self) -> Vec<u64> {
        let is_renewed = self.is_renewed();
        let increase_of = |(count, before): (u64, u64)| {
            if is_renewed { count } else { increase(before, count).unwrap_or(count) }
        };
        self.counts().map(increase_of).collect()
    }
}

/// The increase of one of the kernel's counts, which may have wrapped once. `None`: the decrease is too large for a wrap, so
/// the kernel has made the counter again.
#[must_use]
pub fn increase(before: u64, later: u64) -> Option<u64> {
    if later >= before {
        return Some(later - before);
    }
    let after_wrap = later.checked_add(COUNT_MODULUS)?.checked_sub(before)?;
    (after_wrap < COUNT_MODULUS / 2).then_some(after_wrap)
}

/// Reads and parses `/proc/interrupts`; `None` if the file cannot be read.
#[must_use]
pub fn read_interrupts(root: &Root) -> Option<Interrupts> {
    Some(parse_interrupts(&root.text_up_to("proc/interrupts", INTERRUPTS_BYTES_MAX)?))
}

/// Reads and parses `/proc/softirqs`; `None` if the file cannot be read.
#[must_use]
pub fn read_softirqs(root: &Root) -> Option<Interrupts> {
    Some(parse_softirqs(&root.text_up_to("proc/softirqs", INTERRUPTS_BYTES_MAX)?))
}

/// Parses the text of `/proc/interrupts`. Lines that do not parse are left out.
///
/// ```
/// let text = "     CPU0  CPU2\n 8:  1  2  IO-APIC  8-edge   rtc0\nERR:  3\n";
/// let parsed = live::host::interrupts::parse_interrupts(text);
/// assert_eq!(parsed.cpus, [0, 2]);
/// assert_eq!(parsed.count("8", 2), Some(2));
/// assert_eq!(parsed.lines[0].actions, ["rtc0"]);
/// assert_eq!(parsed.lines[1].per_cpu, [3]);
/// ```
#[must_use]
pub fn parse_interrupts(text: &str) -> Interrupts {
    parse(text, true)
}

/// Parses the text of `/proc/softirqs`, which has no descriptions. Lines that do not parse are left out.
#[must_use]
pub fn parse_softirqs(text: &str) -> Interrupts {
    parse(text, false)
}

/// Parses either file. `has_actions`: lines of device interrupts end with the names of their handlers.
fn parse(text: &str, has_actions: bool) -> Interrupts {
    let mut lines = text.lines();
    let cpus: Vec<u32> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map_while(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect();
    let lines = lines.filter_map(|line| parse_line(line, cpus.len(), has_actions)).collect();
    Interrupts { cpus, lines }
}

/// Parses a line with up to `columns` counts; `None` if it has no label or no count.
fn parse_line(line: &str, columns: usize, has_actions: bool) -> Option<InterruptLine> {
    let (label, mut rest) = line.split_once(':')?;
    let label = label.trim();
    if label.is_empty() {
        return None;
    }
    let mut per_cpu = Vec::with_capacity(columns.min(64));
    while per_cpu.len() < columns {
        let trimmed = rest.trim_start();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let (word, after) = trimmed.split_at(end);
        let Some(count) = parse_count(word) else { break };
        per_cpu.push(count);
        rest = after;
    }
    if per_cpu.is_empty() {
        return None;
    }
    let number: Option<u32> = label.parse().ok();
    let (description, actions) = match number {
        Some(_) if has_actions => split_actions(rest),
        _ => (rest.trim(), Vec::new()),
    };
    // Removes the padding of the kernel's columns.
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(InterruptLine { label: label.to_owned(), number, per_cpu, description, actions })
}

/// Parses a word of decimal digits.
fn parse_count(word: &str) -> Option<u64> {
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return None; // `+1` would parse as a number, too
    }
    word.parse().ok()
}

/// Splits `IO-APIC   4-edge      ttyS0, other` into description and actions. The kernel writes two spaces before the
/// first action, and `, ` between actions (kernel/irq/proc.c, `show_interrupts`).
fn split_actions(text: &str) -> (&str, Vec<String>) {
    let text = text.trim();
    let Some(gap) = text.rfind("  ") else { return (text, Vec::new()) };
    let (description, names) = text.split_at(gap);
    let names = names.trim();
    if is_trigger(names) {
        return (text, Vec::new());
    }
    let actions = names.split(", ").map(str::trim).filter(|name| !name.is_empty());
    (description.trim(), actions.map(str::to_owned).collect())
}

/// Whether the last part of a line is the hardware number and trigger (`4-edge`, `27 Level`). The line has no handlers
/// then, whose names would follow.
fn is_trigger(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let trigger = text[digits..].trim_start_matches(['-', ' ']);
    let is_word = trigger.bytes().all(|byte| byte.is_ascii_alphabetic());
    (digits > 0 && is_word) || ["Level", "Edge"].contains(&trigger)
}

/// Tests of the parsers of /proc/interrupts and /proc/softirqs.
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const X86: &str = "\
           CPU0       CPU1       
  0:         17          0   IO-APIC   2-edge      timer
  9:          0          4   IO-APIC   9-fasteoi   acpi
 16:          2          1   IO-APIC  16-fasteoi   ehci_hcd:usb1, i801_smbus, snd hda
 26:          0          0   IO-APIC   4-edge    
120:          0          5  DMAR-MSI    0-edge      dmar0
129:          3          0  PCI-MSIX-0000:00:01.0   0-edge      virtio0-config
130: 4294967295          9 PCI-MSI 524288-edge      nvme0q0
NMI:          0          0   Non-maskable interrupts
LOC:      47258      48797   Local timer interrupts
ERR:          7
MIS:          0
";

    fn actions<'a>(parsed: &'a Interrupts, label: &str) -> Vec<&'a str> {
        parsed.line(label).unwrap().actions.iter().map(String::as_str).collect()
    }

    #[test]
    fn x86_lines() {
        let parsed = parse_interrupts(X86);
        assert_eq!(parsed.cpus, [0, 1]);
        assert_eq!(parsed.lines.len(), 11);
        assert_eq!(actions(&parsed, "0"), ["timer"]);
        assert_eq!(actions(&parsed, "16"), ["ehci_hcd:usb1", "i801_smbus", "snd hda"]);
        assert_eq!(actions(&parsed, "26"), [""; 0]);
        assert_eq!(parsed.line("26").unwrap().description, "IO-APIC 4-edge");
        assert_eq!(actions(&parsed, "129"), ["virtio0-config"]);
        assert_eq!(actions(&parsed, "130"), ["nvme0q0"]);
        assert_eq!(parsed.line("130").unwrap().number, Some(130));
        let timer = parsed.line("LOC").unwrap();
        assert_eq!((timer.number, timer.total()), (None, 96_055));
        assert_eq!(timer.description, "Local timer interrupts");
        assert_eq!(parsed.line("ERR").unwrap().per_cpu, [7]);
        assert_eq!(parsed.count("ERR", 0), None, "machine-wide, not CPU 0's");
        assert_eq!(parsed.count("LOC", 1), Some(48_797));
        assert_eq!(parsed.count("LOC", 2), None);
    }

    #[test]
    fn arm_lines_and_hotplugged_cpus() {
        let text = "\
           CPU0       CPU2       CPU5
 11:          1          2          3     GICv3  27 Level     arch_timer
 12:          0          0          0     GICv3  23 Level  
IPI0:         4          5          6       Rescheduling interrupts
Err:          0
";
        let parsed = parse_interrupts(text);
        assert_eq!(parsed.cpus, [0, 2, 5]);
        assert_eq!(parsed.count("11", 5), Some(3));
        assert_eq!(parsed.count("11", 1), None);
        assert_eq!(actions(&parsed, "11"), ["arch_timer"]);
        assert_eq!(actions(&parsed, "12"), [""; 0]);
        assert_eq!(parsed.line("IPI0").unwrap().description, "Rescheduling interrupts");
    }

    #[test]
    fn softirq_lines() {
        let text = "                    CPU0       CPU1\n          HI:          0          1\n";
        let parsed = parse_softirqs(text);
        assert_eq!(parsed.count("HI", 1), Some(1));
        assert_eq!(parsed.line("HI").unwrap().description, "");
    }

    #[test]
    fn differences_follow_cpus_and_wrap() {
        let before = parse_interrupts("  CPU0 CPU1\n 5: 4294967290 7 chip  x\nERR: 1\n");
        let after =
            parse_interrupts("  CPU1 CPU0 CPU2\n 5: 9 4 3 chip  x\n 6: 1 1 1 chip  y\nERR: 4\n");
        let delta = after.since(&before);
        assert_eq!(delta.count("5", 0), Some(10), "wrapped");
        assert_eq!(delta.count("5", 1), Some(2));
        assert_eq!(delta.count("5", 2), Some(3), "came online");
        assert_eq!(delta.count("6", 0), Some(1), "new line");
        assert_eq!(delta.line("ERR").unwrap().per_cpu, [3]);
    }

    /// A driver resets its card: it frees the card's lines, and requests new ones. They may have the old numbers.
    #[test]
    fn a_line_that_is_made_again_counts_from_zero() {
        let line = |number: u32, count: u64, card: &str| {
            format!(" {number}: {count} 0 PCI-MSIX-0000:00:{card}.0 0-edge  eth0-rx-0\n")
        };
        let read =
            |lines: &[String]| parse_interrupts(&("  CPU0 CPU1\n".to_owned() + &lines.concat()));
        let before = read(&[line(24, 1_000_000, "03"), line(25, 7, "04"), line(26, 5, "05")]);
        let after = read(&[line(24, 12, "03"), line(25, 9, "06")]);
        let delta = after.since(&before);
        assert_eq!(delta.count("24", 0), Some(12), "not a wrap");
        assert_eq!(delta.count("25", 0), Some(9), "the line of another card");
        assert_eq!(after.renewed_lines(&before), BTreeSet::from([24, 25, 26]));
        assert_eq!(before.renewed_lines(&before), BTreeSet::new());
        // A driver that requests a line again may choose another trigger and name.
        let edge = parse_interrupts("  CPU0\n 9: 3 IO-APIC 9-edge  acpi\n");
        let level = parse_interrupts("  CPU0\n 9: 5 IO-APIC 9-fasteoi  acpi2\n");
        assert_eq!(level.renewed_lines(&edge), BTreeSet::new());
        assert_eq!(level.since(&edge).count("9", 0), Some(2));
    }

    #[test]
    fn broken_lines_are_left_out() {
        let parsed =
            parse_interrupts("CPU0\nno colon\n: 4\nX: y\n7: 99999999999999999999 c  a\n8: 1\n");
        assert_eq!(parsed.lines.len(), 1);
        assert_eq!(parsed.lines[0].label, "8");
        assert_eq!(parse_interrupts(""), Interrupts::default());
    }

    /// The kernel writes the same names to two places. A handler may come or go
    /// between the two reads.
    #[test]
    fn this_machine_agrees_with_its_irq_directories() {
        let root = Root::default();
        let (Some(parsed), Some(irqs)) =
            (read_interrupts(&root), crate::host::irq_affinities(&root))
        else {
            return needs::not_run(needs::Need::Other, "no /proc/interrupts or /proc/irq");
        };
        assert!(!parsed.cpus.is_empty() && !parsed.lines.is_empty());
        let mut compared = 0;
        for line in parsed.lines.iter().filter(|line| line.number.is_some()) {
            let irq = irqs.iter().find(|irq| Some(irq.number) == line.number);
            if let Some(irq) = irq.filter(|irq| !irq.actions.is_empty() && !line.actions.is_empty())
            {
                assert_eq!(line.actions.join(","), irq.actions.join(","), "IRQ {}", line.label);
                compared += 1;
            }
        }
        if compared == 0 {
            needs::not_run(needs::Need::Other, "no interrupt has a handler");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = parse_interrupts(&text);
            let _ = parse_softirqs(&format!("CPU0 CPU1\n{text}"));
        }

        #[test]
        fn any_look_alike_keeps_the_columns(
            header in "( CPU[0-9]{1,3}){0,4}\n",
            lines in "([ 0-9a-zA-Zé]{0,6}:[ 0-9a-z,\\-é]{0,60}\n){0,6}",
        ) {
            let parsed = parse_interrupts(&(header + &lines));
            for line in &parsed.lines {
                prop_assert!((1..=parsed.cpus.len()).contains(&line.per_cpu.len()));
            }
            let _ = parsed.since(&parsed);
        }

        #[test]
        fn what_the_kernel_writes_is_read_back(
            counts in prop::collection::vec(prop::collection::vec(any::<u32>(), 3), 1..8),
        ) {
            let mut text = String::from("           CPU0       CPU1       CPU3       \n");
            for (number, counts) in counts.iter().enumerate() {
                let columns: String = counts.iter().map(|count| format!("{count:>10} ")).collect();
                text += &format!("{number:>3}: {columns} IO-APIC {number:>3}-edge      dev{number}\n");
            }
            let parsed = parse_interrupts(&text);
            prop_assert_eq!(parsed.lines.len(), counts.len());
            for (line, counts) in parsed.lines.iter().zip(&counts) {
                let expected: Vec<u64> = counts.iter().map(|count| u64::from(*count)).collect();
                prop_assert_eq!(&line.per_cpu, &expected);
                prop_assert_eq!(&line.actions, &[format!("dev{}", line.label)]);
            }
        }
    }
}
