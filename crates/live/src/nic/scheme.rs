//! The settings of an interface that make a signalling scheme, as far as kernel and driver offer them.
//!
//! `irqlab signal advise` prints or applies the settings of the advised scheme; `signal run` on a card applies the
//! settings of each measured scheme. This file changes no setting; `session` does.

use signalling::Scheme;

use super::setting::{coalescing_of, coalescing_text};
use super::{InForce, Interface, Setting};
use crate::network::coalescing::{self, Coalescing};
use crate::network::napi;

/// Largest value of `napi_defer_hard_irqs` (S32_MAX, net/core/net-sysfs.c). With it, the interrupt stays off.
const DEFER_ALWAYS: u32 = i32::MAX as u32;
/// `irq-suspend-timeout` of a hybrid scheme, ns: how long interrupts may stay off while the receiver polls. The value
/// is from the example in Documentation/networking/napi.rst.
const SUSPEND_NS: u64 = 20_000_000;
/// Permitted polling times of a socket, us. The upper limit is irqlab's own, because net.core.busy_poll has none.
const BUSY_POLL_US: std::ops::RangeInclusive<u64> = 50..=10_000;
/// `gro_flush_timeout` while a receiver polls, ns: how long packets wait at most if the receiver stops polling.
const POLLING_TIMEOUT_NS: u64 = 10_000_000;

/// A setting, and the value that a scheme needs for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredSetting {
    pub setting: Setting,
    pub value: String,
}

/// Why an interface cannot use a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    pub reason: String,
    /// A remedy, if there is one.
    pub remedy: Option<String>,
}

/// The coalescing settings and NAPI instances that kernel and driver offer for an interface.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// The coalescing settings that exist, or why there are none.
    coalescing: Result<Coalescing, String>,
    /// The interface's NAPI instances, or why they are unknown.
    instances: Result<Vec<napi::Instance>, String>,
}

/// The scheme that Linux uses instead of a requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equivalent {
    /// The scheme in force when the requested scheme's settings are set.
    pub scheme: Scheme,
    /// Why Linux does not use the requested scheme.
    pub reason: &'static str,
}

/// The scheme that Linux uses when the settings of `scheme` are set. `None` if that is exactly `scheme`.
#[must_use]
pub fn equivalent(scheme: Scheme) -> Option<Equivalent> {
    let drain = Scheme::Drain { budget: signalling::BUDGET_DEFAULT };
    let (scheme, reason) = match scheme {
        Scheme::Interrupt => {
            (drain, "Linux handles events until there are none after each interrupt")
        }
        Scheme::Drain { budget } if budget != signalling::BUDGET_DEFAULT => {
            (drain, "the budget of a driver is no setting")
        }
        Scheme::Clocked { period_ns } => (
            Scheme::Deferred { delay_ns: period_ns },
            "Linux restarts the timer after each handling",
        ),
        Scheme::Coalesced { count, delay_ns } if delay_ns % 1_000 != 0 => (
            Scheme::Coalesced { count, delay_ns: delay_ns.next_multiple_of(1_000) },
            "rx-usecs is whole microseconds",
        ),
        Scheme::Hybrid { threshold, suspend_ns } if threshold != 1 => {
            (Scheme::Hybrid { threshold: 1, suspend_ns }, "Linux polls on after any event")
        }
        _ => return None,
    };
    Some(Equivalent { scheme, reason })
}

/// The scheme that a device uses after it was set to `scheme`, with the values that the device took. A device may round
/// the values of coalescing.
#[must_use]
pub fn scheme_in_force(scheme: Scheme, settings: &[InForce]) -> Scheme {
    let coalescing = settings.iter().find(|in_force| in_force.setting == Setting::Coalescing);
    let values = coalescing.and_then(|in_force| coalescing_of(&in_force.now));
    match (scheme, values) {
        (Scheme::Coalesced { count, delay_ns }, Some(values)) => Scheme::Coalesced {
            count: values.frames.unwrap_or(count),
            delay_ns: values.delay_us.map_or(delay_ns, |us| u64::from(us) * 1_000),
        },
        _ => scheme,
    }
}

impl Abilities {
    /// Asks kernel and driver what they offer. Changes nothing, and needs no rights.
    #[must_use]
    pub fn query(interface: &Interface) -> Abilities {
        let coalescing = coalescing::read(interface.index())
            .map_err(|error| format!("its coalescing cannot be read: {error}"));
        let instances = napi::instances(interface.index())
            .map_err(|error| format!("the kernel's NAPI instances cannot be read: {error}"));
        Abilities { coalescing, instances }
    }

    /// Abilities that a test assumes: the coalescing settings as text (empty for none), and the numbers of NAPI
    /// instances whose interrupts can be suspended.
    #[must_use]
    pub fn assumed(coalescing: &str, suspending: &[u32]) -> Abilities {
        Abilities {
            coalescing: Ok(coalescing_of(coalescing).unwrap_or_default()),
            instances: Ok(suspending.iter().map(|id| napi::Instance::suspending(*id)).collect()),
        }
    }

    /// Why it is unknown whether the interface has NAPI instances; `None` if it is known.
    #[must_use]
    pub fn napi_is_unknown(&self) -> Option<&str> {
        self.instances.as_ref().err().map(String::as_str)
    }

    /// Checks that there is a NAPI instance. Without an instance, the kernel accepts settings of timers and polling,
    /// but they have no effect. Kernels before 6.8 do not list instances; then this assumes that there is one.
    fn check_napi(&self) -> Result<(), Impossible> {
        match &self.instances {
            Ok(instances) if instances.is_empty() => Err(Impossible {
                reason: "it has no NAPI instance".to_owned(),
                remedy: Some(
                    "set the interface up; a veth has one with `ethtool -K NAME gro on`".to_owned(),
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The numbers of the NAPI instances whose interrupts can be suspended.
    ///
    /// Fails if there are none.
    fn suspendable_instances(&self) -> Result<Vec<u32>, Impossible> {
        self.check_napi()?;
        let impossible = |reason: &str| Impossible { reason: reason.to_owned(), remedy: None };
        let instances = self.instances.as_ref().map_err(|reason| impossible(reason))?;
        let can_suspend =
            |instance: &&napi::Instance| instance.settings.irq_suspend_timeout_ns.is_some();
        let ids: Vec<u32> =
            instances.iter().filter(can_suspend).map(|instance| instance.id).collect();
        if ids.is_empty() {
            return Err(impossible("the kernel has no irq-suspend-timeout (Linux 6.13)"));
        }
        Ok(ids)
    }

    /// The settings that make a scheme. They must be set in the returned order.
    ///
    /// `low_hz` matters for schemes with a polling receiver. With `low_hz`, the lowest expected rate of packets,
    /// the settings make all sockets poll long enough for that rate (`net.core.busy_poll`). Without `low_hz`, the
    /// receiver must poll by itself.
    ///
    /// Fails if kernel or driver do not offer the scheme.
    pub fn required_settings(
        &self,
        scheme: Scheme,
        low_hz: Option<u64>,
    ) -> Result<Vec<RequiredSetting>, Impossible> {
        Ok(match scheme {
            Scheme::Interrupt | Scheme::Drain { .. } => {
                // `interrupt_at_once` sets 1 frame: with 0 frames and 0 us no interrupt would come
                // (struct ethtool_coalesce, ethtool.h).
                [defer(0, 0), self.interrupt_at_once()].concat()
            }
            Scheme::Clocked { period_ns: ns } | Scheme::Deferred { delay_ns: ns } => {
                self.check_napi()?;
                [defer(DEFER_ALWAYS, ns), self.interrupt_at_once()].concat()
            }
            Scheme::Coalesced { count, delay_ns } => {
                let us = u32::try_from(delay_ns.div_ceil(1_000)).unwrap_or(u32::MAX);
                [defer(0, 0), vec![self.coalesce(us, count)?]].concat()
            }
            Scheme::Spin | Scheme::SpinYield if low_hz.is_none() => {
                [defer(DEFER_ALWAYS, POLLING_TIMEOUT_NS), self.interrupt_at_once()].concat()
            }
            Scheme::Spin => {
                self.check_napi()?;
                // Polls for two intervals between packets at the lowest rate.
                let us = 2_000_000 / low_hz.unwrap_or(1).max(1);
                let us = us.clamp(*BUSY_POLL_US.start(), *BUSY_POLL_US.end());
                let settings = [Setting::BusyRead, Setting::BusyPoll];
                settings.map(|setting| require(setting, us)).to_vec()
            }
            Scheme::Poll => {
                let reason = "packets come without a request whose completion could be polled for";
                return Err(Impossible { reason: reason.to_owned(), remedy: None });
            }
            Scheme::SpinYield => {
                let reason =
                    "no setting of the kernel yields after each poll; a program that polls must";
                return Err(Impossible { reason: reason.to_owned(), remedy: None });
            }
            Scheme::Hybrid { .. } if low_hz.is_none() => {
                [defer(0, 0), self.interrupt_at_once()].concat()
            }
            Scheme::Hybrid { suspend_ns, .. } => {
                let ids = self.suspendable_instances()?;
                let suspend = |id: &u32| RequiredSetting {
                    setting: Setting::Napi { id: *id },
                    value: format!("irq-suspend-timeout {SUSPEND_NS}"),
                };
                [defer(1, suspend_ns), ids.iter().map(suspend).collect()].concat()
            }
        })
    }

    /// The settings with which a device that could delay an interrupt raises it at once: none, or one.
    fn interrupt_at_once(&self) -> Vec<RequiredSetting> {
        let Ok(available) = &self.coalescing else { return Vec::new() };
        let value = coalescing_text(&Coalescing {
            adaptive: available.adaptive.map(|_| false),
            delay_us: available.delay_us.map(|_| 0),
            frames: available.frames.map(|_| 1),
        });
        let change = RequiredSetting { setting: Setting::Coalescing, value };
        if change.value.is_empty() { Vec::new() } else { vec![change] }
    }

    /// The setting with which a device interrupts after `frames` packets, and at the latest `us` after a packet.
    fn coalesce(&self, us: u32, frames: u32) -> Result<RequiredSetting, Impossible> {
        let impossible = |reason: String| Impossible { reason, remedy: None };
        let available = self.coalescing.as_ref().map_err(|reason| impossible(reason.clone()))?;
        let missing: Vec<&str> = [
            available.delay_us.is_none().then_some("rx-usecs"),
            available.frames.is_none().then_some("rx-frames"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match missing[..] {
            [] => {
                let adaptive = available.adaptive.map(|_| false);
                let wanted = Coalescing { adaptive, delay_us: Some(us), frames: Some(frames) };
                Ok(RequiredSetting {
                    setting: Setting::Coalescing,
                    value: coalescing_text(&wanted),
                })
            }
            [_, _] => Err(impossible("its driver does not coalesce interrupts".to_owned())),
            _ => Err(impossible(format!("its driver has no {}", missing.join(" and ")))),
        }
    }
}

fn require(setting: Setting, value: impl ToString) -> RequiredSetting {
    RequiredSetting { setting, value: value.to_string() }
}

/// The settings with which NAPI polls every `delay_ns`, until `times` polls found no packet, before it uses interrupts
/// again. The timeout comes first, because deferring has no effect without it.
fn defer(times: u32, delay_ns: u64) -> Vec<RequiredSetting> {
    vec![require(Setting::GroFlushTimeout, delay_ns), require(Setting::DeferHardIrqs, times)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(abilities: &Abilities, scheme: &str, low_hz: Option<u64>) -> Vec<String> {
        let required = abilities.required_settings(scheme.parse().unwrap(), low_hz).unwrap();
        required
            .iter()
            .map(|required_setting| {
                format!("{} = {}", required_setting.setting, required_setting.value)
            })
            .collect()
    }

    #[test]
    fn each_scheme_has_settings_or_a_reason_why_not() {
        let all = Abilities::assumed("adaptive-rx on rx-usecs 0 rx-frames 1", &[257, 258]);
        assert_eq!(
            text(&all, "deferred:50us", Some(1_000)),
            [
                "gro_flush_timeout = 50000",
                "napi_defer_hard_irqs = 2147483647",
                "coalescing = adaptive-rx off rx-usecs 0 rx-frames 1"
            ]
        );
        assert_eq!(
            text(&all, "coalesced:64,50500ns", Some(1_000))[2],
            "coalescing = adaptive-rx off rx-usecs 51 rx-frames 64"
        );
        assert_eq!(
            text(&all, "spin", Some(1_000)),
            ["net.core.busy_read = 2000", "net.core.busy_poll = 2000"]
        );
        assert_eq!(text(&all, "spin", None)[0], "gro_flush_timeout = 10000000");
        assert_eq!(
            text(&all, "hybrid:1,20us", Some(1))[2..],
            ["napi 257 = irq-suspend-timeout 20000000", "napi 258 = irq-suspend-timeout 20000000"]
        );
        assert!(all.required_settings("yield".parse().unwrap(), Some(1)).is_err());
    }

    #[test]
    fn what_a_driver_does_not_have_is_not_asked_of_it() {
        let why = |coalescing: &str| {
            let abilities = Abilities::assumed(coalescing, &[]);
            abilities
                .required_settings("coalesced:64,50us".parse().unwrap(), None)
                .unwrap_err()
                .reason
        };
        assert_eq!(why(""), "its driver does not coalesce interrupts");
        assert_eq!(why("rx-frames 1"), "its driver has no rx-usecs");
        let frames = Abilities::assumed("rx-frames 16", &[]);
        assert_eq!(text(&frames, "drain", None)[2..], ["coalescing = rx-frames 1"]);
        assert_eq!(text(&Abilities::assumed("", &[]), "drain", None).len(), 2);
        assert!(frames.required_settings("hybrid:1,20us".parse().unwrap(), Some(1)).is_err());
    }

    /// NAPI runs timers and polling. Without an instance, their settings would have no effect.
    #[test]
    fn what_needs_a_napi_instance_is_impossible_without_one() {
        let without = Abilities::assumed("rx-usecs 0 rx-frames 1", &[]);
        for scheme in ["deferred:50us", "clocked:50us", "hybrid:1,20us", "spin"] {
            let why = without.required_settings(scheme.parse().unwrap(), Some(1)).unwrap_err();
            assert_eq!(why.reason, "it has no NAPI instance", "{scheme}");
        }
        for scheme in ["drain", "interrupt", "coalesced:8,50us"] {
            assert!(
                without.required_settings(scheme.parse().unwrap(), Some(1)).is_ok(),
                "{scheme}"
            );
        }
        // If the kernel does not say, there may be an instance.
        let unknown = Abilities { instances: Err("old".to_owned()), ..without };
        assert_eq!(text(&unknown, "deferred:50us", Some(1)).len(), 3);
        assert_eq!(unknown.napi_is_unknown(), Some("old"));
        assert!(unknown.required_settings("hybrid:1,20us".parse().unwrap(), Some(1)).is_err());
    }

    /// A scheme and its equivalent have the same settings, so the judged
    /// scheme is the one in force.
    #[test]
    fn an_equivalent_has_the_settings_of_the_scheme() {
        let all = Abilities::assumed("adaptive-rx on rx-usecs 0 rx-frames 1", &[257]);
        let mut found = 0;
        for scheme in "interrupt drain drain:8 clocked:100us deferred:100us coalesced:8,50500ns \
                       coalesced:8,51us hybrid:8,20us hybrid:1,20us spin yield"
            .split_whitespace()
        {
            let Some(Equivalent { scheme: other, .. }) = equivalent(scheme.parse().unwrap()) else {
                continue;
            };
            found += 1;
            assert_eq!(text(&all, scheme, Some(1)), text(&all, &other.to_string(), Some(1)));
            assert_eq!(equivalent(other), None, "{scheme}");
        }
        assert_eq!(found, 5);
    }

    #[test]
    fn a_device_that_rounds_has_another_scheme_in_force() {
        let scheme = "coalesced:200,51us".parse().unwrap();
        let with = |now: &str| {
            let setting = Setting::Coalescing;
            let (before, asked) = (String::new(), "rx-usecs 51 rx-frames 200".to_owned());
            scheme_in_force(scheme, &[InForce { setting, before, asked, now: now.to_owned() }])
        };
        assert_eq!(with("rx-usecs 64 rx-frames 64"), "coalesced:64,64us".parse().unwrap());
        assert_eq!(with("rx-usecs 51 rx-frames 200"), scheme);
        let drain = "drain".parse().unwrap();
        assert_eq!(scheme_in_force(drain, &[]), drain);
    }
}
