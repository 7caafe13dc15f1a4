//! What exits to the hypervisor cost on a host that is a virtual machine: the fields `host_exits.*` of a model.
//!
//! The processor's part of each event is what the model takes for the same kernel, so an exit is the difference of host and
//! model. Held-out kernels may determine these fields: exits belong to the host, and say nothing about how well the model
//! predicts its processor.

use super::fit::{Conditions, Fitted, certain_cycles, cycles_of, preset_kept, within};
use super::sample::KernelSample;

/// The fields, in the order in which they are determined.
const FIELDS: [&str; 4] = [
    "host_exits.cpuid_cycles",
    "host_exits.timer_cycles",
    "host_exits.interrupt_cycles",
    "host_exits.ipi_cycles",
];
/// How often the kernel `timer_first` sets the local timer: when it sets a timer, and when it cancels it.
const SETTINGS: f64 = 2.0;

/// A duration in cycles with its 95 % interval, if that is known; or why there is none.
type Duration = Result<(f64, Option<(f64, f64)>), String>;

/// The fields `host_exits.*`. `model`: the samples of a simulated machine with the fitted model, whose exits cost nothing.
/// Empty on a machine that is not virtual.
#[must_use]
pub fn host_exits(
    host: &[KernelSample],
    model: &[KernelSample],
    conditions: &Conditions,
) -> Vec<Fitted> {
    if !conditions.is_virtual {
        return Vec::new();
    }
    let beyond_model = |kernel: &str| {
        let on_model = cycles_of(model, kernel)
            .ok_or_else(|| format!("{kernel}: not measured on the model"))?;
        let (cycles, interval) = on_host(kernel, host)?;
        Ok((cycles - on_model, interval.map(|(low, high)| (low - on_model, high - on_model))))
    };
    let timer = difference(beyond_model("timer_first"), &beyond_model("timer_later")).map(
        |(cycles, interval)| {
            (cycles / SETTINGS, interval.map(|(low, high)| (low / SETTINGS, high / SETTINGS)))
        },
    );
    let interrupt = difference(beyond_model("timer_interrupt"), &timer);
    // The sender waits for the target, whose interrupt is handled during the sender's exit.
    let ipi = beyond_model("ipi").and_then(|ipi| match &interrupt {
        Ok((interrupt_cycles, _)) if ipi.0 < *interrupt_cycles => Err(format!(
            "ipi takes {:.0} cycles beyond the model, less than the target's interrupt: {interrupt_cycles:.0}",
            ipi.0
        )),
        _ => Ok(ipi),
    });
    let exits = [
        (beyond_model("cpuid"), "cpuid: beyond the model's cycles"),
        (timer, "half of what timer_first takes beyond timer_later and the model"),
        (interrupt, "timer_interrupt: beyond the model's cycles and one setting of the timer"),
        (ipi, "ipi: beyond the model's cycles; the target's interrupt is at the same time"),
    ];
    let field = |(field, (duration, method)): (&str, (Duration, &str))| match duration {
        Ok((cycles, interval)) => {
            let (value, limited) = within((0, i64::MAX), cycles.round());
            Fitted {
                field: field.to_owned(),
                value: Some(value),
                measured: Some((cycles, interval)),
                method: format!("{method}{limited}"),
            }
        }
        Err(reason) => preset_kept(field, &reason),
    };
    FIELDS.into_iter().zip(exits).map(field).collect()
}

/// The cycles of a kernel on the host.
fn on_host(kernel: &str, host: &[KernelSample]) -> Duration {
    let sample = host.iter().find(|sample| sample.name == kernel);
    let sample = sample.ok_or_else(|| format!("{kernel}: not measured"))?;
    let cycles = certain_cycles(sample).map_err(|why| format!("{kernel}: {why}"))?;
    Ok((cycles, sample.compared_cycles_95()))
}

/// The difference of two durations that were measured apart from each other, so the squares of their intervals' halves add up.
fn difference(minuend: Duration, subtrahend: &Duration) -> Duration {
    let (minuend, minuend_95) = minuend?;
    let (subtrahend, subtrahend_95) = subtrahend.clone()?;
    let cycles = minuend - subtrahend;
    let interval = minuend_95.zip(subtrahend_95).map(|((low, high), (other_low, other_high))| {
        let below = (minuend - low).hypot(other_high - subtrahend);
        let above = (high - minuend).hypot(subtrahend - other_low);
        (cycles - below, cycles + above)
    });
    Ok((cycles, interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Figures, Statistics};

    fn sample(name: &str, cycles: f64) -> KernelSample {
        let figures = Figures {
            cycles,
            low_cycles: cycles,
            cycles_95: Some((cycles - 100.0, cycles + 100.0)),
            statistics: Statistics::of_windows(31),
            processes: Some(1),
            windows: Some(31),
            rate_changed: Some(0),
            sibling_busy: Some(0),
        };
        KernelSample {
            name: name.to_owned(),
            group: "system".to_owned(),
            unit: "call".to_owned(),
            about: "A.".to_owned(),
            shared: false,
            figures: Ok(figures),
        }
    }

    fn samples(cycles: [f64; 5]) -> Vec<KernelSample> {
        ["cpuid", "timer_first", "timer_later", "timer_interrupt", "ipi"]
            .into_iter()
            .zip(cycles)
            .map(|(name, cycles)| sample(name, cycles))
            .collect()
    }

    fn virtual_host() -> Conditions {
        Conditions { is_virtual: true, ..Conditions::default() }
    }

    #[test]
    fn a_machine_of_its_own_has_no_exits() {
        let host = samples([100.0; 5]);
        assert_eq!(host_exits(&host, &host, &Conditions::default()), []);
    }

    #[test]
    fn each_exit_is_what_the_model_and_other_exits_leave() {
        let model = samples([100.0, 3_000.0, 2_500.0, 2_000.0, 2_000.0]);
        // cpuid 1,700; a setting of the timer 20,000; an interrupt 9,000; sending one 20,000.
        let host = samples([1_800.0, 43_000.0, 2_500.0, 31_000.0, 22_000.0]);
        let fields = host_exits(&host, &model, &virtual_host());
        let values: Vec<_> = fields.iter().map(|field| field.value.as_deref()).collect();
        assert_eq!(values, ["1700", "20000", "9000", "20000"].map(Some));
        assert_eq!(fields.iter().map(|field| &*field.field).collect::<Vec<_>>(), FIELDS);
        // Half of the difference of two kernels with ± 100.
        let (low, high) = fields[1].interval().unwrap();
        let half_width = 100.0 * 2.0_f64.sqrt() / 2.0;
        assert!((low - 20_000.0 + half_width).abs() < 1e-6, "{low}");
        assert!((high - 20_000.0 - half_width).abs() < 1e-6, "{high}");
        assert_eq!(fields[3].interval(), Some((19_900.0, 20_100.0)));
    }

    #[test]
    fn a_kernel_without_cycles_determines_nothing_that_rests_on_it() {
        let model = samples([100.0; 5]);
        let mut host = samples([1_800.0; 5]);
        host[2].figures = Err("no undisturbed window".to_owned());
        let fields = host_exits(&host, &model, &virtual_host());
        let reasons: Vec<_> = fields.iter().map(|field| field.value.is_some()).collect();
        assert_eq!(reasons, [true, false, false, true]);
        assert!(fields[2].method.contains("timer_later: no undisturbed window"), "{fields:?}");
        // An interrupt that takes longer than the sending of one to another CPU hides what the sending takes.
        let hidden = samples([1_800.0, 43_000.0, 2_500.0, 31_000.0, 9_000.0]);
        let fields = host_exits(&hidden, &model, &virtual_host());
        assert!(fields[3].method.contains("less than the target's interrupt: 10"), "{fields:?}");
        let mut uncertain = samples([1_800.0; 5]);
        uncertain[0].figures.as_mut().unwrap().cycles_95 = Some((900.0, 3_000.0));
        let fields = host_exits(&uncertain, &model, &virtual_host());
        assert!(fields[0].method.contains("too uncertain"), "{fields:?}");
        let none = host_exits(&host[..0], &model, &virtual_host());
        assert!(none[0].method.contains("cpuid: not measured"), "{none:?}");
        // A host without a cost of its own has none.
        let slow_model = samples([2_000.0; 5]);
        let fast = host_exits(&samples([1_500.0; 5]), &slow_model, &virtual_host());
        assert_eq!(fast[0].value.as_deref(), Some("0"));
    }
}
