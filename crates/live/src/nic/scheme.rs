//! Which settings of an interface make a scheme.

use signalling::Scheme;

use super::setting::{coalescing_of, coalescing_text};
use super::{Interface, Setting};
use crate::network::coalescing::{self, Coalescing};
use crate::network::napi;

/// Largest value of `napi_defer_hard_irqs` (S32_MAX, net/core/net-sysfs.c): the interrupt stays off.
const DEFER_ALWAYS: u32 = i32::MAX as u32;
/// `irq-suspend-timeout` for a hybrid, ns: as long as events keep coming, interrupts stay off. The
/// example of Documentation/networking/napi.rst.
const SUSPEND_NS: u64 = 20_000_000;
/// Longest time that a socket polls, us: net.core.busy_poll has no limit of its own.
const BUSY_POLL_US: std::ops::RangeInclusive<u64> = 50..=10_000;
/// A polling receiver's safety net: packets wait no longer, should it stop polling, ns.
const POLLING_TIMEOUT_NS: u64 = 10_000_000;

/// A setting, and the value that a scheme needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredSetting {
    /// What is to be set.
    pub setting: Setting,
    /// To what.
    pub value: String,
}

/// Why an interface cannot use a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The reason.
    pub reason: String,
    /// What can be done, where there is something.
    pub remedy: Option<String>,
}

/// What kernel and driver can do for an interface.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// Why there is no coalescing, or which of its settings there are.
    coalescing: Result<Coalescing, String>,
    /// NAPI instances whose interrupts can be suspended, or why there are none.
    suspending: Result<Vec<u32>, String>,
}

impl Abilities {
    /// Asks kernel and driver; nothing is changed, and no rights are needed.
    #[must_use]
    pub fn of(interface: &Interface) -> Abilities {
        let coalescing = coalescing::read(interface.index())
            .map_err(|error| format!("its coalescing cannot be read: {error}"));
        let suspending = napi::instances(interface.index())
            .map_err(|error| format!("the kernel's NAPI instances cannot be read: {error}"))
            .and_then(|instances| {
                if instances.is_empty() {
                    return Err("it has no NAPI instance (is it up?)".to_owned());
                }
                let can = |one: &napi::Instance| one.settings.irq_suspend_timeout_ns.is_some();
                let ids = instances.iter().filter(|one| can(one)).map(|one| one.id);
                let ids: Vec<u32> = ids.collect();
                let none = || "the kernel has no irq-suspend-timeout (Linux 6.13)".to_owned();
                if ids.is_empty() { Err(none()) } else { Ok(ids) }
            });
        Abilities { coalescing, suspending }
    }

    /// Abilities as they would be: coalescing as text (empty: none), and the instances that suspend.
    #[must_use]
    pub fn assumed(coalescing: &str, suspending: &[u32]) -> Abilities {
        Abilities {
            coalescing: Ok(coalescing_of(coalescing).unwrap_or_default()),
            suspending: match suspending {
                [] => Err("the kernel has no irq-suspend-timeout (Linux 6.13)".to_owned()),
                ids => Ok(ids.to_vec()),
            },
        }
    }

    /// The settings that make a scheme, in the order in which they are to be set. A scheme whose receiver
    /// polls is set for all sockets (`net.core.busy_poll`) if `low_hz` is given: the lowest rate, for which
    /// it must poll long enough; otherwise the receiver must poll by itself.
    ///
    /// # Errors
    /// Where kernel or driver have no such scheme.
    pub fn required_settings(
        &self,
        scheme: Scheme,
        low_hz: Option<u64>,
    ) -> Result<Vec<RequiredSetting>, Impossible> {
        Ok(match scheme {
            Scheme::Interrupt | Scheme::Drain { .. } => {
                // Not 0 and 0, with which no interrupt would come (struct ethtool_coalesce, ethtool.h).
                [defer(0, 0), self.at_once()].concat()
            }
            Scheme::Clocked { period_ns: ns } | Scheme::Deferred { delay_ns: ns } => {
                [defer(DEFER_ALWAYS, ns), self.at_once()].concat()
            }
            Scheme::Coalesced { count, delay_ns } => {
                let us = u32::try_from(delay_ns.div_ceil(1_000)).unwrap_or(u32::MAX);
                [defer(0, 0), vec![self.coalesced(us, count)?]].concat()
            }
            Scheme::Spin | Scheme::SpinYield if low_hz.is_none() => {
                [defer(DEFER_ALWAYS, POLLING_TIMEOUT_NS), self.at_once()].concat()
            }
            Scheme::Spin => {
                // Long enough for two gaps at the lowest rate.
                let us = 2_000_000 / low_hz.unwrap_or(1).max(1);
                let us = us.clamp(*BUSY_POLL_US.start(), *BUSY_POLL_US.end());
                let all = [Setting::BusyRead, Setting::BusyPoll];
                all.map(|setting| require(setting, us)).to_vec()
            }
            Scheme::SpinYield => {
                let reason =
                    "no setting of the kernel yields after each poll; a program that polls must";
                return Err(Impossible { reason: reason.to_owned(), remedy: None });
            }
            Scheme::Hybrid { .. } if low_hz.is_none() => [defer(0, 0), self.at_once()].concat(),
            Scheme::Hybrid { suspend_ns, .. } => {
                let ids = self.suspending.as_ref();
                let ids =
                    ids.map_err(|reason| Impossible { reason: reason.clone(), remedy: None })?;
                let suspend = |id: &u32| RequiredSetting {
                    setting: Setting::Napi { id: *id },
                    value: format!("irq-suspend-timeout {SUSPEND_NS}"),
                };
                [defer(1, suspend_ns), ids.iter().map(suspend).collect()].concat()
            }
        })
    }

    /// An interrupt at once, where the device could delay it.
    fn at_once(&self) -> Vec<RequiredSetting> {
        let Ok(has) = &self.coalescing else { return Vec::new() };
        let value = coalescing_text(&Coalescing {
            adaptive: has.adaptive.map(|_| false),
            delay_us: has.delay_us.map(|_| 0),
            frames: has.frames.map(|_| 1),
        });
        let change = RequiredSetting { setting: Setting::Coalescing, value };
        if change.value.is_empty() { Vec::new() } else { vec![change] }
    }

    fn coalesced(&self, us: u32, frames: u32) -> Result<RequiredSetting, Impossible> {
        let impossible = |reason: String| Impossible { reason, remedy: None };
        let has = self.coalescing.as_ref().map_err(|reason| impossible(reason.clone()))?;
        let lacks: Vec<&str> = [
            has.delay_us.is_none().then_some("rx-usecs"),
            has.frames.is_none().then_some("rx-frames"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match lacks[..] {
            [] => {
                let adaptive = has.adaptive.map(|_| false);
                let wanted = Coalescing { adaptive, delay_us: Some(us), frames: Some(frames) };
                Ok(RequiredSetting {
                    setting: Setting::Coalescing,
                    value: coalescing_text(&wanted),
                })
            }
            [_, _] => Err(impossible("its driver does not coalesce interrupts".to_owned())),
            _ => Err(impossible(format!("its driver has no {}", lacks.join(" and ")))),
        }
    }
}

fn require(setting: Setting, value: impl ToString) -> RequiredSetting {
    RequiredSetting { setting, value: value.to_string() }
}

/// The timeout first: without one, deferring does nothing.
fn defer(times: u32, delay_ns: u64) -> Vec<RequiredSetting> {
    vec![require(Setting::GroFlushTimeout, delay_ns), require(Setting::DeferHardIrqs, times)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(abilities: &Abilities, scheme: &str, low_hz: Option<u64>) -> Vec<String> {
        let required = abilities.required_settings(scheme.parse().unwrap(), low_hz).unwrap();
        required.iter().map(|one| format!("{} = {}", one.setting, one.value)).collect()
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
}
