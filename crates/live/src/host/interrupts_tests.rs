//! Tests of the parsers of /proc/interrupts and /proc/softirqs.

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

#[test]
fn broken_lines_are_left_out() {
    let parsed =
        parse_interrupts("CPU0\nno colon\n: 4\nX: y\n7: 99999999999999999999 c  a\n8: 1\n");
    assert_eq!(parsed.lines.len(), 1);
    assert_eq!(parsed.lines[0].label, "8");
    assert_eq!(parse_interrupts(""), Interrupts::default());
}

/// The kernel writes the same names to two places; a handler may come or go between the reads.
#[test]
fn this_machine_agrees_with_its_irq_directories() {
    let root = Root::default();
    let (Some(parsed), Some(irqs)) = (read_interrupts(&root), crate::host::irq_affinities(&root))
    else {
        return;
    };
    assert!(!parsed.cpus.is_empty() && !parsed.lines.is_empty());
    for line in parsed.lines.iter().filter(|line| line.number.is_some()) {
        let irq = irqs.iter().find(|irq| Some(irq.number) == line.number);
        if let Some(irq) = irq.filter(|irq| !irq.actions.is_empty() && !line.actions.is_empty()) {
            assert_eq!(line.actions.join(","), irq.actions.join(","), "IRQ {}", line.label);
        }
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
