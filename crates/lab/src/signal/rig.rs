//! The rigs that carry the events of `signal run`, and the schemes that each rig has. `live` sets up the rigs, also in
//! the guest of a simulated machine. The names are a wire format.

use serde::{Deserialize, Serialize};
use signalling::Scheme;

use crate::experiment::BenchError;

/// The setup through which events go from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rig {
    /// `threads`: a ring in memory between two threads, with an eventfd, a clock, or neither.
    Threads,
    /// `veth`: the kernel's network stack, between two network namespaces that a veth pair joins.
    Veth,
    /// `virtio-net`: the network stack, between two namespaces. Two paravirtual cards of a simulated machine connect
    /// the namespaces.
    VirtioNet,
    /// `e1000`: the network stack, between two namespaces. Two Intel 82545EM cards connect the namespaces. A clock in
    /// each card limits the rate of interrupts.
    E1000,
    /// `nvme`: reads of an NVMe disk. The receiving CPU submits the reads, and learns of their completions.
    Nvme,
    /// `nic`: a network card that receives what another machine sends back.
    Nic,
}

/// Possible minimum times between two interrupts of an e1000, ns. The lower end is the shortest time of QEMU's
/// card (hw/net/e1000.c, `set_interrupt_cause`: 500 units of 256 ns). The upper end is the longest time that Linux
/// sets (e1000_ethtool.c, `E1000_MAX_ITR_USECS`).
const THROTTLE_NS: std::ops::RangeInclusive<u64> = 128_000..=10_000_000;

/// Completions and times of the interrupt coalescing of an NVMe disk (NVM Express Base Specification, feature 08h): a
/// threshold of up to 256, and up to 255 times 100 us.
const NVME_COMPLETIONS_MAX: u32 = 256;
const NVME_DELAY_NS_MAX: u64 = 25_500_000;
/// Unit of an NVMe disk's coalescing time.
const NVME_DELAY_UNIT_NS: u64 = 100_000;

impl Rig {
    /// The rigs that need no second machine.
    pub const ALONE: [Rig; 5] = [Rig::Threads, Rig::Veth, Rig::VirtioNet, Rig::E1000, Rig::Nvme];

    /// The rig's name on the command line, in tables and in messages to the guest: the name that serde gives it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Rig::Threads => "threads",
            Rig::Veth => "veth",
            Rig::VirtioNet => "virtio-net",
            Rig::E1000 => "e1000",
            Rig::Nvme => "nvme",
            Rig::Nic => "nic",
        }
    }

    /// Whether packets carry the events, over sockets.
    #[must_use]
    pub fn has_sockets(self) -> bool {
        !matches!(self, Rig::Threads | Rig::Nvme)
    }

    /// Whether the rig's ends are two network namespaces of one machine.
    #[must_use]
    pub fn has_namespaces(self) -> bool {
        matches!(self, Rig::Veth | Rig::VirtioNet | Rig::E1000)
    }

    /// Whether the rig consists of two cards of a simulated machine.
    #[must_use]
    pub fn has_cards(self) -> bool {
        matches!(self, Rig::VirtioNet | Rig::E1000)
    }

    /// The card's interrupt throttle for a scheme: minimum time between two interrupts, ns. 0: no limit. `None` if the
    /// rig has no throttle.
    #[must_use]
    pub fn throttle_ns(self, scheme: Scheme) -> Option<u64> {
        match (self, scheme) {
            (Rig::E1000, Scheme::Clocked { period_ns }) => Some(period_ns),
            (Rig::E1000, _) => Some(0),
            _ => None,
        }
    }

    /// How a simulated disk holds back its completions for a scheme: the number of completions after which it reports
    /// them, and the longest time that a completion waits, ns. `None` if the disk reports each at once.
    #[must_use]
    pub fn coalescing(self, scheme: Scheme) -> Option<(u32, u64)> {
        match (self, scheme) {
            (Rig::Nvme, Scheme::Coalesced { count, delay_ns }) => Some((count, delay_ns)),
            _ => None,
        }
    }

    /// Checks that the rig has the scheme.
    ///
    /// Fails with [`BenchError::Unavailable`] if the rig lacks the scheme. The error names an available scheme or rig.
    pub fn check(self, scheme: Scheme) -> Result<(), BenchError> {
        let unavailable = |reason: &str, remedy: String| {
            Err(BenchError::Unavailable { reason: reason.to_owned(), remedy: Some(remedy) })
        };
        let command =
            |rig: &str, schemes: &str| format!("irqlab signal run --rig {rig} --schemes {schemes}");
        let rig = self.word();
        let same_rig = |schemes: &str| match self {
            Rig::Nic => format!("--schemes {schemes}"), // the caller knows the card and its peer
            _ => command(rig, schemes),
        };
        // The order of the arms matters: exceptions come before their general case.
        match scheme {
            Scheme::Coalesced { count, delay_ns }
                if self == Rig::Nvme
                    && (count > NVME_COMPLETIONS_MAX || delay_ns > NVME_DELAY_NS_MAX) =>
            {
                unavailable(
                    "an NVMe disk holds back at most 256 completions, for at most 25.5 ms",
                    same_rig("coalesced:256,25500us"),
                )
            }
            Scheme::Coalesced { count, delay_ns }
                if self == Rig::Nvme && !delay_ns.is_multiple_of(NVME_DELAY_UNIT_NS) =>
            {
                let delay_us = delay_ns.next_multiple_of(NVME_DELAY_UNIT_NS) / 1000;
                unavailable(
                    "an NVMe disk holds back completions for a multiple of 100 us",
                    same_rig(&format!("coalesced:{count},{delay_us}us")),
                )
            }
            Scheme::Interrupt
            | Scheme::Spin
            | Scheme::SpinYield
            | Scheme::Poll
            | Scheme::Coalesced { .. }
                if self == Rig::Nvme =>
            {
                Ok(())
            }
            Scheme::Drain { .. } if self == Rig::Nvme => unavailable(
                "the driver of an NVMe disk takes all completions at each interrupt anyway",
                same_rig("interrupt"),
            ),
            Scheme::Hybrid { .. } if self == Rig::Nvme => unavailable(
                "io_uring ignores io_poll_delay since Linux 5.16, and irqlab does not use the hybrid polling of Linux 6.13",
                same_rig("poll"),
            ),
            Scheme::Clocked { .. } | Scheme::Deferred { .. } if self == Rig::Nvme => unavailable(
                "no clock signals the completions of an NVMe disk",
                same_rig("coalesced:8,100us"),
            ),
            Scheme::Poll => unavailable(
                "only a request to a disk can be polled for, and here events come without a request",
                same_rig("spin"),
            ),
            _ if self == Rig::Threads => Ok(()),
            Scheme::Interrupt => unavailable(
                "the kernel's network stack drains after each interrupt",
                same_rig("drain"),
            ),
            // Only the driver of a real card knows whether the card coalesces.
            Scheme::Coalesced { .. } if self == Rig::Nic => Ok(()),
            Scheme::Coalesced { .. } if self == Rig::E1000 => unavailable(
                "an e1000 limits how often it interrupts, and counts no packets",
                same_rig("clocked:1ms"),
            ),
            Scheme::Coalesced { .. } => unavailable(
                &format!("a {rig} does not coalesce interrupts"),
                command("threads", "coalesced:32,50us"),
            ),
            Scheme::Clocked { period_ns } if self == Rig::Nic => unavailable(
                "Linux restarts the timer after each handling",
                same_rig(&format!("deferred:{period_ns}ns")),
            ),
            Scheme::Clocked { period_ns }
                if self == Rig::E1000 && !THROTTLE_NS.contains(&period_ns) =>
            {
                unavailable(
                    "an e1000 keeps 128 us to 10 ms between interrupts",
                    same_rig(&format!("deferred:{period_ns}ns")),
                )
            }
            Scheme::Hybrid { threshold: 2.., suspend_ns } => unavailable(
                "the kernel polls after any event: its threshold is 1",
                same_rig(&format!("hybrid:1,{suspend_ns}ns")),
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_a_rig_lacks_is_refused_with_one_that_it_has() {
        for (rig, scheme, words) in [
            (Rig::Veth, "interrupt", "drains after each interrupt"),
            (Rig::VirtioNet, "coalesced:8,1ms", "a virtio-net does not coalesce"),
            (Rig::E1000, "coalesced:8,1ms", "counts no packets"),
            (Rig::E1000, "clocked:127us", "128 us to 10 ms"),
            (Rig::E1000, "clocked:11ms", "128 us to 10 ms"),
            (Rig::VirtioNet, "hybrid:2,20us", "threshold is 1"),
            (Rig::Threads, "poll", "without a request"),
            (Rig::Nvme, "coalesced:257,1ms", "at most 256"),
            (Rig::Nvme, "coalesced:8,26ms", "25.5 ms"),
            (Rig::Nvme, "coalesced:8,50us", "a multiple of 100 us"),
            (Rig::Nvme, "coalesced:8,150us", "a multiple of 100 us"),
            (Rig::Nvme, "drain", "takes all completions"),
            (Rig::Nvme, "hybrid:1,20us", "ignores io_poll_delay"),
            (Rig::Nvme, "clocked:1ms", "no clock"),
        ] {
            let error = rig.check(scheme.parse().unwrap()).unwrap_err();
            let BenchError::Unavailable { reason, remedy: Some(remedy) } = error else {
                panic!("{scheme}: {error}")
            };
            assert!(reason.contains(words), "{reason}");
            // The remedy names an available scheme.
            let arguments: Vec<&str> = remedy.split(' ').collect();
            let value = |option| {
                arguments[arguments.iter().position(|argument| *argument == option).unwrap() + 1]
            };
            let remedy_rig =
                Rig::ALONE.into_iter().find(|rig| rig.word() == value("--rig")).unwrap();
            assert_eq!(remedy_rig.check(value("--schemes").parse().unwrap()), Ok(()), "{remedy}");
        }
        // The remedy for a card names no rig: the caller has already named the card.
        let refused = Rig::Nic.check("hybrid:2,20us".parse().unwrap()).unwrap_err();
        assert_eq!(refused.remedy(), Some("--schemes hybrid:1,20000ns"));
        let refused = Rig::Nic.check("clocked:20us".parse().unwrap()).unwrap_err();
        assert_eq!(refused.remedy(), Some("--schemes deferred:20000ns"));
        assert!(Rig::Nic.check("coalesced:8,1ms".parse().unwrap()).is_ok(), "its driver may");
        let all = Scheme::list("interrupt,drain,clocked:1us,coalesced:2,1ms,hybrid:8,1ms,spin");
        assert!(all.unwrap().into_iter().all(|scheme| Rig::Threads.check(scheme).is_ok()));
        let cards = Scheme::list("drain,clocked:128us,clocked:10ms,deferred:1us,spin,hybrid:1,1ms");
        assert!(cards.unwrap().into_iter().all(|scheme| Rig::E1000.check(scheme).is_ok()));
    }

    #[test]
    fn a_throttle_is_set_for_a_clock_and_off_otherwise() {
        let ns = |rig: Rig, scheme: &str| rig.throttle_ns(scheme.parse().unwrap());
        assert_eq!(ns(Rig::E1000, "clocked:1ms"), Some(1_000_000));
        assert_eq!(ns(Rig::E1000, "deferred:1ms"), Some(0));
        assert_eq!(ns(Rig::VirtioNet, "clocked:1ms"), None);
    }
}
