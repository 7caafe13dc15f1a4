//! What exits to the hypervisor cost on a host that is a virtual machine: the fields `host_exits.*` of a model.
//!
//! The processor's part of each event is what the model takes for the same kernel, so an exit is the difference of host and
//! model. Held-out kernels may determine these fields: exits belong to the host, and say nothing about how well the model
//! predicts its processor.

use super::fit::{Conditions, Fitted, left};
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

/// A cost in cycles, and its 95 % interval if it is known; or why there is no cost.
type Cost = Result<(f64, Option<(f64, f64)>), String>;

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
    let beyond = |kernel: &str| beyond_model(kernel, host, model);
    let cpuid = beyond("cpuid");
    let timer = beyond("timer_first").and_then(|first| {
        let later = beyond("timer_later")?;
        Ok(scaled(without(first, &later), SETTINGS.recip()))
    });
    let interrupt = beyond("timer_interrupt")
        .and_then(|all| timer.as_ref().map(|timer| without(all, timer)).map_err(Clone::clone));
    // The sender's exit and the interrupt of the target, which it waits for, are at the same time.
    let ipi = beyond("ipi");
    let methods = [
        "cpuid: beyond the model's cycles",
        "half of what timer_first takes beyond timer_later and the model",
        "timer_interrupt: beyond the model's cycles and one setting of the timer",
        "ipi: beyond the model's cycles; the target's interrupt is at the same time",
    ];
    let costs = [cpuid, timer, interrupt, ipi];
    FIELDS
        .into_iter()
        .zip(methods)
        .zip(costs)
        .map(|((field, method), cost)| match cost {
            Ok((cycles, interval)) => Fitted {
                field: field.to_owned(),
                value: Some(format!("{}", cycles.round().max(0.0))),
                measured: Some((cycles, interval)),
                method: method.to_owned(),
            },
            Err(reason) => left(field, &reason),
        })
        .collect()
}

/// What the kernel takes on the host beyond the model.
fn beyond_model(kernel: &str, host: &[KernelSample], model: &[KernelSample]) -> Cost {
    let sample = |samples: &[KernelSample], side: &str| {
        let sample = samples.iter().find(|sample| sample.name == kernel).cloned();
        sample.ok_or_else(|| format!("{kernel}: not measured on {side}"))
    };
    let (host, model) = (sample(host, "this machine")?, sample(model, "the model")?);
    let host_figures = host.figures.map_err(|why| format!("{kernel}: {why}"))?;
    let model_figures = model.figures.map_err(|why| format!("{kernel} on the model: {why}"))?;
    let model_cycles = model_figures.cycles;
    let interval =
        host_figures.cycles_95.map(|(low, high)| (low - model_cycles, high - model_cycles));
    Ok((host_figures.cycles - model_cycles, interval))
}

/// The difference of two costs, with the interval of the first: the part is known better than the whole.
fn without(
    (whole, interval): (f64, Option<(f64, f64)>),
    (part, _): &(f64, Option<(f64, f64)>),
) -> (f64, Option<(f64, f64)>) {
    (whole - part, interval.map(|(low, high)| (low - part, high - part)))
}

fn scaled((cycles, interval): (f64, Option<(f64, f64)>), factor: f64) -> (f64, Option<(f64, f64)>) {
    (cycles * factor, interval.map(|(low, high)| (low * factor, high * factor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Figures;

    fn sample(name: &str, cycles: f64) -> KernelSample {
        let figures = Figures {
            cycles,
            low_cycles: cycles,
            cycles_95: Some((cycles - 100.0, cycles + 100.0)),
            windows: 31,
            rate_changed: 0,
            sibling_busy: 0,
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
        assert_eq!(fields[1].measured, Some((20_000.0, Some((19_950.0, 20_050.0)))));
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
        let none = host_exits(&host[..0], &model, &virtual_host());
        assert!(none[0].method.contains("cpuid: not measured on this machine"), "{none:?}");
        // A host without a cost of its own has none.
        let fast = host_exits(&samples([50.0; 5]), &model, &virtual_host());
        assert_eq!(fast[0].value.as_deref(), Some("0"));
    }
}
