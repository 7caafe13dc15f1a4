//! Settings of single NAPI instances, read and set through the netlink family `netdev` (Linux 6.13;
//! Documentation/netlink/specs/netdev.yaml). `nic` uses them for suspended interrupts;
//! `signal::packets` finds the instances' threads.

use std::io;

use super::genetlink::{Attribute, Family};

/// Name of the family, its commands, and the attributes of their messages.
const FAMILY: &str = "netdev";
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const THREAD: u16 = 4;
const DEFER_HARD_IRQS: u16 = 5;
const GRO_FLUSH_TIMEOUT: u16 = 6;
const IRQ_SUSPEND_TIMEOUT: u16 = 7;

/// A NAPI instance, which handles a queue of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// Number of the instance.
    pub id: u32,
    /// Number of the instance's thread; `None` if it is not threaded.
    pub thread: Option<u32>,
    pub settings: Settings,
}

/// The settings of an instance that can be changed. A setting that the kernel lacks is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `defer-hard-irqs`: number of polls without a packet before interrupts are used again.
    pub defer_hard_irqs: Option<u32>,
    /// `gro-flush-timeout`, ns: the time after which NAPI polls again.
    pub gro_flush_timeout_ns: Option<u32>,
    /// `irq-suspend-timeout`, ns: how long interrupts may stay off while a program polls.
    pub irq_suspend_timeout_ns: Option<u32>,
}

impl Instance {
    /// For tests: an instance whose interrupts can be suspended, without other properties.
    #[must_use]
    pub(crate) fn suspending(id: u32) -> Instance {
        let settings = Settings { irq_suspend_timeout_ns: Some(0), ..Settings::default() };
        Instance { id, settings, ..Instance::default() }
    }
}

/// Lists the instances of the interface with this index. Needs no rights.
///
/// Fails if the kernel has no such family, or the interface no longer exists.
pub fn instances(index: u32) -> io::Result<Vec<Instance>> {
    let answers = Family::open(FAMILY)?.dump(NAPI_GET, &[Attribute::number(INTERFACE, index)])?;
    let parse = |answer: &super::genetlink::Answer| {
        let number = |kind: u16| answer.number(kind).and_then(|value| u32::try_from(value).ok());
        (number(INTERFACE)? == index).then_some(Instance {
            id: number(ID)?,
            thread: number(THREAD),
            settings: Settings {
                defer_hard_irqs: number(DEFER_HARD_IRQS),
                gro_flush_timeout_ns: number(GRO_FLUSH_TIMEOUT),
                irq_suspend_timeout_ns: number(IRQ_SUSPEND_TIMEOUT),
            },
        })
    };
    Ok(answers.iter().filter_map(parse).collect())
}

/// Sets the settings of an instance that are `Some` in `wanted`.
///
/// Fails without CAP_NET_ADMIN, if the kernel lacks a setting (before 6.13), or if there is no such
/// instance.
pub fn write(id: u32, wanted: &Settings) -> io::Result<()> {
    let attributes = [
        Some(Attribute::number(ID, id)),
        wanted.defer_hard_irqs.map(|value| Attribute::number(DEFER_HARD_IRQS, value)),
        wanted.gro_flush_timeout_ns.map(|value| Attribute::number(GRO_FLUSH_TIMEOUT, value)),
        wanted.irq_suspend_timeout_ns.map(|value| Attribute::number(IRQ_SUSPEND_TIMEOUT, value)),
    ];
    let attributes: Vec<Attribute> = attributes.into_iter().flatten().collect();
    Family::open(FAMILY)?.request(NAPI_SET, &attributes).map(|_| ())
}
