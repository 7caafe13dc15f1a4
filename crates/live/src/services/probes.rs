//! Loads, attaches and reads `bpf/services.bpf.c`.

use std::collections::HashMap;
use std::ffi::OsStr;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object};
use zerocopy::{FromBytes, IntoBytes};

use crate::bpf::BpfError;
use crate::bpf::layout::{SERVICES, ServiceRow, ServiceRows};
use crate::bpf::object::{
    attach_all, failure, known_tracepoints, load_failure, map_of, open_with_btf, running_release,
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/services.o"));

/// The programs, attached. They count while the window is open.
pub(super) struct ServiceProbes {
    object: Object,
    _links: Vec<Link>,
    /// Tracepoints that this kernel does not have.
    pub(super) absent: Vec<String>,
}

/// A service on all CPUs.
#[derive(Clone, Debug)]
pub(super) struct ServiceSums {
    /// Sums, as in a row.
    pub(super) started: u64,
    pub(super) completed: u64,
    pub(super) latency_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) descheduled_ns: u64,
    pub(super) nested_ns: u64,
    /// Completed requests by latency.
    pub(super) latencies: Vec<u64>,
}

impl ServiceProbes {
    /// Loads and attaches the programs whose tracepoints this kernel has.
    ///
    /// # Errors
    /// [`BpfError::NotPermitted`] without the rights; [`BpfError::Failed`] on a kernel without type
    /// information, or with libbpf's message.
    pub(super) fn load() -> Result<ServiceProbes, BpfError> {
        let mut open = open_with_btf("irqlab_svc", OBJECT)?;
        let tracepoint = |section: &OsStr| -> Option<String> {
            let section = section.to_string_lossy();
            section.rsplit('/').next().map(str::to_owned)
        };
        let sections: Vec<String> =
            open.progs().filter_map(|program| tracepoint(program.section())).collect();
        let names: Vec<&str> = sections.iter().map(String::as_str).collect();
        let known: HashMap<String, bool> = known_tracepoints(&names).unwrap_or_default();
        let mut absent = Vec::new();
        for mut program in open.progs_mut() {
            let Some(name) = tracepoint(program.section()) else { continue };
            let is_known = known.get(&name) != Some(&false);
            program.set_autoload(is_known);
            if !is_known {
                absent.push(name);
            }
        }
        let object = open.load().map_err(|error| load_failure(&error, running_release()))?;
        let links = attach_all(&object)?;
        Ok(ServiceProbes { object, _links: links, absent })
    }

    fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        map_of(&self.object, name)
    }

    /// Opens or closes the window, on all CPUs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn arm(&self, on: bool) -> Result<(), BpfError> {
        let (key, value) = (0_u32, u32::from(on));
        self.map("armed")?
            .update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("opening the window", &error))
    }

    fn per_cpu(&self, map: &str, index: u32) -> Result<Vec<Vec<u8>>, BpfError> {
        let read = self.map(map)?.lookup_percpu(index.as_bytes(), MapFlags::ANY);
        let read = read.map_err(|error| failure(&format!("reading {map}"), &error))?;
        Ok(read.unwrap_or_default())
    }

    /// Forgets all counts. Call it with the window closed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn clear(&self) -> Result<(), BpfError> {
        let zeros = |bytes: &Vec<u8>| vec![0; bytes.len()];
        let used = self.tables()?.iter().map(|table| table.used).max().unwrap_or(0);
        for map in ["row_table", "stacks"] {
            let values: Vec<Vec<u8>> = self.per_cpu(map, 0)?.iter().map(zeros).collect();
            self.set_per_cpu(map, 0, &values)?;
        }
        for row in 0..=used.min(crate::bpf::layout::SERVICE_ROWS as u32 - 1) {
            let values: Vec<Vec<u8>> = self.per_cpu("rows", row)?.iter().map(zeros).collect();
            self.set_per_cpu("rows", row, &values)?;
        }
        // A call that is under way started before the next window.
        let tasks = self.map("tasks")?;
        for task in tasks.keys().collect::<Vec<_>>() {
            // It may have ended meanwhile.
            let _ = tasks.delete(&task);
        }
        Ok(())
    }

    fn set_per_cpu(&self, map: &str, index: u32, values: &[Vec<u8>]) -> Result<(), BpfError> {
        self.map(map)?
            .update_percpu(index.as_bytes(), values, MapFlags::ANY)
            .map_err(|error| failure(&format!("clearing {map}"), &error))
    }

    fn tables(&self) -> Result<Vec<ServiceRows>, BpfError> {
        let read = |bytes: &Vec<u8>| {
            let read = ServiceRows::read_from_prefix(bytes);
            read.map(|(table, _)| table)
                .map_err(|_| BpfError::Failed("row_table has another size".to_owned()))
        };
        self.per_cpu("row_table", 0)?.iter().map(read).collect()
    }

    /// The services that were used, by position, and how many events were lost.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn read(&self) -> Result<(Vec<(usize, ServiceSums)>, u64), BpfError> {
        let tables = self.tables()?;
        let lost = tables.iter().map(|table| u64::from(table.lost)).sum();
        let mut services = Vec::new();
        for service in 0..SERVICES {
            let mut sums: Option<ServiceSums> = None;
            for (cpu, table) in tables.iter().enumerate() {
                let row = u32::from(table.row_of[service]);
                if row == 0 {
                    continue;
                }
                let values = self.per_cpu("rows", row)?;
                let bytes = values.get(cpu).map_or(&[][..], Vec::as_slice);
                let (row, _) = ServiceRow::read_from_prefix(bytes)
                    .map_err(|_| BpfError::Failed("rows have another size".to_owned()))?;
                sums.get_or_insert_with(ServiceSums::default).add(&row);
            }
            services.extend(sums.map(|sums| (service, sums)));
        }
        Ok((services, lost))
    }
}

impl Default for ServiceSums {
    fn default() -> Self {
        ServiceSums {
            started: 0,
            completed: 0,
            latency_ns: 0,
            blocked_ns: 0,
            descheduled_ns: 0,
            nested_ns: 0,
            latencies: vec![0; stats::histogram::SLOTS],
        }
    }
}

impl ServiceSums {
    fn add(&mut self, row: &ServiceRow) {
        self.started += row.started;
        self.completed += row.completed;
        self.latency_ns += row.latency_ns;
        self.blocked_ns += row.blocked_ns;
        self.descheduled_ns += row.descheduled_ns;
        self.nested_ns += row.nested_ns;
        for (sum, count) in self.latencies.iter_mut().zip(row.latencies) {
            *sum += u64::from(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall_loop::ns_per_call;

    #[test]
    fn system_calls_are_counted_while_the_window_is_open() {
        const CALLS: u32 = 10_000;
        let probes = match ServiceProbes::load() {
            Ok(probes) => probes,
            Err(error) => return needs::not_run(needs::Need::Bpf, error.to_string()),
        };
        ns_per_call(0, CALLS).unwrap();
        assert!(probes.read().unwrap().0.is_empty(), "the window is closed");
        probes.arm(true).unwrap();
        ns_per_call(0, CALLS).unwrap();
        probes.arm(false).unwrap();
        let (services, lost) = probes.read().unwrap();
        let number = libc::SYS_getppid as usize;
        let getppid = &services.iter().find(|(service, _)| *service == number).unwrap().1;
        assert!(getppid.completed >= u64::from(CALLS) && getppid.started >= getppid.completed);
        assert_eq!(getppid.latencies.iter().sum::<u64>(), getppid.completed);
        assert_eq!(lost, 0);
        probes.clear().unwrap();
        assert!(probes.read().unwrap().0.is_empty());
    }
}
