//! `/proc/interrupts` and `/proc/softirqs`: the kernel's own counts, to compare ours with.

use serde::Serialize;

use super::root::Root;

/// /proc/interrupts of a machine with hundreds of CPUs and thousands of vectors is some MiB.
const INTERRUPTS_BYTES_MAX: usize = 64 << 20;

/// The counts are `unsigned int` in the kernel: they wrap here.
const COUNT_MODULUS: u64 = 1 << 32;

/// All counts at one moment. The kernel reads them one after the other, without a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interrupts {
    /// The CPUs that have a column: those online in /proc/interrupts, those possible in
    /// /proc/softirqs.
    pub cpus: Vec<u32>,
    /// One line each, in the kernel's order.
    pub lines: Vec<InterruptLine>,
}

/// The counts of one interrupt since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterruptLine {
    /// What stands before the colon: `24`, `LOC`, `NET_RX`.
    pub label: String,
    /// The IRQ number, where the label is one.
    pub number: Option<u32>,
    /// Aligned with [`Interrupts::cpus`]. `ERR` and `MIS` have a single count of the whole
    /// machine: then this has one element, however many CPUs there are.
    pub per_cpu: Vec<u64>,
    /// Text after the counts: controller, hardware number and trigger of a device interrupt, or
    /// the kernel's explanation. Empty for softirqs.
    pub description: String,
    /// Names of the handlers on this line (several when it is shared). Empty where none is
    /// installed, and for everything that isn't a device interrupt.
    pub actions: Vec<String>,
}

impl InterruptLine {
    /// Sum over the CPUs, or the machine-wide count.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.per_cpu.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Interrupts {
    /// The line with that label.
    #[must_use]
    pub fn line(&self, label: &str) -> Option<&InterruptLine> {
        self.lines.iter().find(|line| line.label == label)
    }

    /// The count of that label on that CPU; absent for machine-wide counts and unknown CPUs.
    #[must_use]
    pub fn count(&self, label: &str, cpu: u32) -> Option<u64> {
        let line = self.line(label)?;
        let column = self.cpus.iter().position(|candidate| *candidate == cpu)?;
        if line.per_cpu.len() != self.cpus.len() {
            return None;
        }
        line.per_cpu.get(column).copied()
    }

    /// What was added since `earlier`, with the lines and CPUs of `self`. Lines and CPUs that
    /// `earlier` doesn't know count from zero (a line appears with its first handler, a CPU when
    /// it comes online); the wrap of the kernel's 32-bit counts is undone once.
    #[must_use]
    pub fn since(&self, earlier: &Interrupts) -> Interrupts {
        let columns: Vec<Option<usize>> = self
            .cpus
            .iter()
            .map(|cpu| earlier.cpus.iter().position(|candidate| candidate == cpu))
            .collect();
        let lines = self.lines.iter().map(|line| {
            let before = earlier.line(&line.label).map_or(&[][..], |line| &line.per_cpu[..]);
            let is_per_cpu = line.per_cpu.len() == self.cpus.len();
            let per_cpu = line.per_cpu.iter().enumerate().map(|(index, count)| {
                let column = if is_per_cpu { columns[index] } else { Some(index) };
                let before = column.and_then(|column| before.get(column)).copied().unwrap_or(0);
                count.checked_sub(before).unwrap_or_else(|| wrapped(*count, before))
            });
            InterruptLine { per_cpu: per_cpu.collect(), ..line.clone() }
        });
        Interrupts { cpus: self.cpus.clone(), lines: lines.collect() }
    }
}

fn wrapped(count: u64, before: u64) -> u64 {
    count.saturating_add(COUNT_MODULUS).saturating_sub(before)
}

/// Reads and parses `/proc/interrupts`; absent when there is none.
#[must_use]
pub fn read_interrupts(root: &Root) -> Option<Interrupts> {
    Some(parse_interrupts(&root.text_up_to("proc/interrupts", INTERRUPTS_BYTES_MAX)?))
}

/// Reads and parses `/proc/softirqs`; absent when there is none.
#[must_use]
pub fn read_softirqs(root: &Root) -> Option<Interrupts> {
    Some(parse_softirqs(&root.text_up_to("proc/softirqs", INTERRUPTS_BYTES_MAX)?))
}

/// Parses the text of `/proc/interrupts`. Lines that can't be understood are left out.
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

/// Parses the text of `/proc/softirqs`, which has the same shape without descriptions.
#[must_use]
pub fn parse_softirqs(text: &str) -> Interrupts {
    parse(text, false)
}

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
    // The columns of the kernel are padded with spaces; nobody wants those.
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(InterruptLine { label: label.to_owned(), number, per_cpu, description, actions })
}

fn parse_count(word: &str) -> Option<u64> {
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return None; // `+1` parses, and isn't a count
    }
    word.parse().ok()
}

/// Splits `IO-APIC   4-edge      ttyS0, other` into description and actions. The kernel writes two
/// spaces before the first action and `, ` between them (kernel/irq/proc.c, `show_interrupts`).
fn split_actions(rest: &str) -> (&str, Vec<String>) {
    let rest = rest.trim();
    let Some(gap) = rest.rfind("  ") else { return (rest, Vec::new()) };
    let (description, names) = rest.split_at(gap);
    let names = names.trim();
    if is_trigger(names) {
        return (rest, Vec::new());
    }
    let actions = names.split(", ").map(str::trim).filter(|name| !name.is_empty());
    (description.trim(), actions.map(str::to_owned).collect())
}

/// Whether this is the hardware number and trigger (`4-edge`, `27 Level`) of a line without any
/// handler, and not the name of one.
fn is_trigger(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let trigger = text[digits..].trim_start_matches(['-', ' ']);
    let is_word = trigger.bytes().all(|byte| byte.is_ascii_alphabetic());
    (digits > 0 && is_word) || ["Level", "Edge"].contains(&trigger)
}

#[cfg(test)]
#[path = "interrupts_tests.rs"]
mod tests;
