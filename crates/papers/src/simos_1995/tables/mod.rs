//! The tables and figures of `simos-1995`, simulated and published. This module selects runs, and
//! has the columns that several tables share.

mod events;
mod execution;
mod memory;
mod misses;
mod multiprocessor;
mod services;

pub(super) use execution::speed_up;
pub(super) use memory::{hidden_ratio, stall_per_instruction};
pub(super) use misses::{per_kinstruction, size_of};

use record::{Absence, Column, Columns, Format, Table, TableDisplay, column};

use super::published::{MatchingServices, Paper};
use super::runs::{MachineRun, Role};

/// The published and the measured sides of the comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides<'a> {
    pub(super) paper: &'a Paper,
    pub(super) runs: &'a [MachineRun],
}

impl<'a> Sides<'a> {
    /// The measured workloads: first the paper's workloads in the paper's order, then others.
    pub(super) fn workloads(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        let measured = || self.runs.iter().map(|run| run.workload.as_str());
        let is_measured = |name: &&str| measured().any(|workload| workload == *name);
        names.extend(self.paper.workloads().filter(is_measured));
        for name in measured() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The first run of a workload for which `is_wanted` is true. `None` without such a run.
    fn find(
        &self,
        workload: &str,
        is_wanted: impl Fn(&MachineRun) -> bool,
    ) -> Option<&'a MachineRun> {
        self.runs.iter().find(|run| run.workload == workload && is_wanted(run))
    }

    /// The run of a workload on a machine with one CPU. `None` if it was not measured.
    pub(super) fn uniprocessor(&self, workload: &str, model: &str) -> Option<&'a MachineRun> {
        self.find(workload, |run| run.role == Role::Machine && run.cpus == 1 && run.model == model)
    }

    /// The run of a workload on the uniprocessor at this position in the paper's order, from 0. `None` if the
    /// workload was not measured there.
    pub(super) fn machine(&self, workload: &str, position: usize) -> Option<&'a MachineRun> {
        self.uniprocessor(workload, self.paper.machines.get(position)?)
    }

    /// The run of a workload on the paper's multiprocessor. `None` if it was not measured.
    pub(super) fn multiprocessor(&self, workload: &str) -> Option<&'a MachineRun> {
        let model = &self.paper.multiprocessor;
        self.find(workload, |run| run.role == Role::Machine && run.cpus > 1 && run.model == *model)
    }

    /// The run of a workload on the in-order core with the caches of a model. `None` if it was not measured.
    pub(super) fn in_order(&self, workload: &str, model: &str) -> Option<&'a MachineRun> {
        self.find(workload, |run| run.role == Role::InOrder && run.model == model)
    }

    /// Runs of a workload on the paper's machines, in the order of their measurement.
    pub(super) fn machines(&self, workload: &str) -> Vec<&'a MachineRun> {
        let is_wanted = |run: &&MachineRun| run.workload == workload && run.role == Role::Machine;
        self.runs.iter().filter(is_wanted).collect()
    }

    /// Runs with caches of several sizes, on a uniprocessor or the multiprocessor, the smallest first.
    pub(super) fn cache_sizes(&self, workload: &str, is_multi: bool) -> Vec<&'a MachineRun> {
        let is_wanted = |run: &&MachineRun| {
            run.workload == workload
                && matches!(run.role, Role::Caches { .. })
                && (run.cpus > 1) == is_multi
        };
        let mut runs: Vec<&MachineRun> = self.runs.iter().filter(is_wanted).collect();
        runs.sort_by_key(|run| match run.role {
            Role::Caches { l1_bytes, l2_bytes } => (l2_bytes, l1_bytes),
            _ => (0, 0),
        });
        runs
    }
}

/// All tables that have rows.
#[must_use]
pub fn tables(paper: &Paper, runs: &[MachineRun]) -> Vec<Table> {
    let sides = Sides { paper, runs };
    let mut tables = vec![
        events::event_rates(&sides),
        execution::execution(&sides),
        memory::mcpi(&sides),
        memory::hidden(&sides),
        misses::cache_misses(&sides),
        services::uniprocessor_services(&sides),
        multiprocessor::multiprocessor_services(&sides),
    ];
    tables.retain(|table| !table.rows().is_empty());
    tables
}

/// Figures of the paper that no run can have.
#[must_use]
pub fn absent_from_every_run() -> [Absence; 2] {
    [
        Absence::new(
            "uniprocessor_services",
            "DBL_FAULT, and CPI and cold misses of UTLB",
            "on x86-64, hardware walks the page tables: a walk executes no instructions and cannot fault",
        ),
        Absence::new(
            "hidden_stalls",
            "stalls of the out-of-order core by level",
            "its misses overlap, so a stalled cycle cannot be attributed to one of them",
        ),
    ]
}

/// A column of factors, such as speed-ups.
fn factor(name: &str, doc: &str) -> Column {
    column(name, doc).format(Format::Factor)
}

fn workload_column<'a>() -> Columns<'a, String> {
    column("workload", "The workload.")
        .priority(101)
        .key()
        .text(|workload: &String| workload.clone())
}

/// The columns of the workload and of the machine.
fn run_columns<'a>() -> Columns<'a, MachineRun> {
    let model = column("model", "Model of the simulated machine.").priority(100).key();
    workload_column()
        .of_ref(|run: &MachineRun| &run.workload)
        .and([model.text(|run: &MachineRun| run.model.clone())])
}

/// A service of the paper, and the corresponding services of the measured kernel.
struct ServiceName {
    workload: String,
    /// The paper's name.
    service: String,
    /// Class and names of the corresponding services, or `None` if there are none.
    counterpart: Option<String>,
}

impl ServiceName {
    fn new(workload: &str, service: &str, matching: Option<MatchingServices<'_>>) -> ServiceName {
        let counterpart = matching.map(|matching| matching.label());
        ServiceName { workload: workload.to_owned(), service: service.to_owned(), counterpart }
    }

    /// The name of all services without a row of their own.
    fn of_other_services(workload: &str) -> ServiceName {
        let counterpart = Some("all other services of the kernel".to_owned());
        ServiceName { workload: workload.to_owned(), service: "Other".to_owned(), counterpart }
    }
}

/// The columns that name a service of the paper.
fn service_columns<'a>() -> Columns<'a, ServiceName> {
    workload_column().of_ref(|name: &ServiceName| &name.workload).and([
        column("service", "The service, as the paper names it.")
            .priority(100)
            .key()
            .text(|name: &ServiceName| name.service.clone()),
        column("here", "The corresponding services of this kernel; absent if there is none.")
            .priority(70)
            .text(|name: &ServiceName| name.counterpart.clone()),
    ])
}

/// A column of simulated figures, and next to it the column of the paper's figures. `figures` returns the simulated and
/// the published figure of a row.
fn with_published<'a, R: 'a>(
    simulated: Column,
    title: &str,
    [priority, published_priority]: [u8; 2],
    figures: impl Fn(&R) -> (Option<f64>, Option<f64>) + Copy + 'a,
) -> Columns<'a, R> {
    let published = column(&format!("published_{}", simulated.name), "The paper's figure.")
        .title("paper")
        .format(simulated.display.format)
        .priority(published_priority);
    let simulated = simulated.title(title).priority(priority);
    Columns::all([
        simulated.real(move |row| figures(row).0),
        published.real(move |row| figures(row).1),
    ])
}

/// A column of times of a service.
fn time(name: &str, doc: &str) -> Column {
    column(name, doc).format(Format::Microseconds)
}

/// Display hints of a table with rows grouped by workload.
fn display_by_workload(title: &str) -> TableDisplay {
    TableDisplay {
        title: title.to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    }
}

fn percent_to_ratio(percent: f64) -> f64 {
    percent / 100.0
}
