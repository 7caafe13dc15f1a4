//! `irqlab signal advise --apply` and `irqlab signal undo`: change the settings of a network interface, and restore
//! them.
//!
//! Each change is in the journal before it is made. The end of irqlab restores the settings, unless [`Applied::keep`]
//! keeps them until `signal undo`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::signal::{ChangedSetting, changed_setting_table};
use live::journal::{self, JournalError};
use live::nic::scheme::scheme_in_force;
use live::nic::{InForce, Interface, Refusal, Session};
use record::Table;
use signalling::Scheme;

use super::nic::{self, SettingLines};
use crate::console;
use crate::run::{NothingSet, stop_on_signals};

/// Remedy for missing rights to change settings.
const RIGHTS: &str = "run it as root (CAP_NET_ADMIN; the files in /sys are root's)";

/// Restore the settings that `signal advise --apply` changed
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab signal undo
  sudo irqlab signal undo --nic eth0

The settings get the values that they had before the first --apply. If irqlab is killed while it sets a scheme,
no undo is needed: the next start of any verb restores the settings.

Exit codes: 0 done; 1 failed; 2 the command line is wrong; 4 no setting can be changed here.")]
pub struct UndoArgs {
    /// Restore only this network interface [default: all]
    #[arg(long, value_name = "NAME")]
    nic: Option<String>,
}

/// A scheme that is set on an interface. Dropping it restores the previous settings.
pub struct Applied {
    session: Session,
    /// The settings that were changed, with their previous, requested and present values.
    in_force: Vec<InForce>,
}

/// Changes all settings of a scheme, or none. `is_kept`: whether the scheme keeps all requested limits.
///
/// Fails with [`NothingSet`] if no scheme keeps the limits, the kernel or the driver lacks a setting, or rights are
/// missing. Fails with another error if a value is refused, or Ctrl-C stops the command. After an error, all settings
/// have their previous values.
pub fn apply(
    interface: Interface,
    scheme: Scheme,
    lines: &SettingLines,
    is_kept: bool,
) -> anyhow::Result<Applied> {
    let nothing_set = |reason: String, remedy: Option<String>| NothingSet { reason, remedy };
    if !is_kept {
        let reason = format!("no scheme keeps all requested limits ({scheme} comes nearest)");
        bail!(nothing_set(
            reason,
            Some("raise the bound or the budget, or use the printed lines".into())
        ));
    }
    if let Some(lacking) = lines.absent.first() {
        bail!(nothing_set(format!("{}: {}", lacking.what, lacking.reason), lacking.remedy.clone()));
    }
    let stop = stop_on_signals()?;
    let rights_remedy = || Some(RIGHTS.to_owned());
    let session = Session::open(interface).map_err(|error| match error {
        JournalError::Busy { .. } => nothing_set(error.to_string(), None),
        _ => nothing_set(error.to_string(), rights_remedy()),
    })?;
    let mut applied = Applied { session, in_force: Vec::new() };
    for change in &lines.required {
        if stop.is_requested() {
            bail!("stopped: no setting was changed");
        }
        match applied.session.set(change.setting, &change.value) {
            Ok(in_force) => applied.in_force.push(in_force),
            Err(error @ (Refusal::Missing { .. } | Refusal::Journal(_))) => {
                bail!(nothing_set(error.to_string(), None))
            }
            Err(error @ Refusal::NoRights { .. }) => {
                bail!(nothing_set(error.to_string(), rights_remedy()))
            }
            Err(error) => return Err(error).context("no setting was changed"),
        }
    }
    if stop.is_requested() {
        bail!("stopped: no setting was changed");
    }
    Ok(applied)
}

impl Applied {
    /// The scheme in force. It differs from `requested` if the device rounded a value.
    pub fn scheme(&self, requested: Scheme) -> Scheme {
        scheme_in_force(requested, &self.in_force)
    }

    /// Warnings: the changes of killed runs that were restored first, and the values that the device rounded.
    pub fn warnings(&self) -> Vec<String> {
        let name = self.session.interface().name();
        let rounded = self.in_force.iter().filter(|change| !change.is_exact());
        let rounded = rounded.map(|InForce { setting, asked, now, .. }| {
            format!("{name} set {setting} to {now} instead of {asked}")
        });
        let restored = self.session.restoration_warnings().iter();
        restored
            .map(|change| format!("leftovers of a killed run: {change}"))
            .chain(rounded)
            .collect()
    }

    /// Table `applied`: the settings that were changed.
    pub fn table(&self) -> Table {
        let changed = self.in_force.iter().map(|change| ChangedSetting {
            setting: change.setting.to_string(),
            before: change.before.clone(),
            asked: change.asked.clone(),
            in_force: change.now.clone(),
        });
        changed_setting_table(&changed.collect::<Vec<_>>())
    }

    /// The text that says how many settings are in force, and how to undo them.
    pub fn text(&self) -> String {
        let name = self.session.interface().name();
        match self.in_force.iter().filter(|change| change.before != change.now).count() {
            0 => format!("\n{name} had these settings before: nothing has changed\n"),
            count => format!(
                "\n{count} settings of {name} are in force until a reboot; to undo them:\n  irqlab signal undo \
                 --nic {name}\n"
            ),
        }
    }

    /// Leaves the settings in force when irqlab ends.
    pub fn keep(self, scheme: Scheme) -> anyhow::Result<()> {
        self.session.keep(&scheme.to_string()).context("no setting was changed")
    }
}

/// Restores the settings that runs with `--apply` kept, and prints which.
pub fn undo(args: &UndoArgs) -> anyhow::Result<ExitCode> {
    let interface = args.nic.as_deref().map(of_this_network).transpose()?;
    let undone = journal::undo_kept(interface.as_ref().map(Interface::identity));
    for setting in &undone.restored {
        console::print(&format!("restored {}\n", report::escape::plain(setting)))?;
    }
    for name in &undone.gone {
        let name = report::escape::plain(name);
        console::print(&format!("{name} no longer exists, so its settings need no undo\n"))?;
    }
    for failure in &undone.failed {
        console::warn(failure);
    }
    if !undone.failed.is_empty() {
        // The failures above have their own remedies, unless the system refused a change.
        let refusals = ["(os error 1)", "(os error 13)"]; // EPERM, EACCES
        let lacks_rights =
            |failure: &String| refusals.iter().any(|refusal| failure.contains(refusal));
        if undone.failed.iter().any(lacks_rights) {
            bail!("not everything was restored: {RIGHTS}");
        }
        bail!("not everything was restored");
    }
    if undone.restored.is_empty() && undone.gone.is_empty() {
        if let Some(elsewhere) = undone.elsewhere.first() {
            bail!(elsewhere_only(elsewhere));
        }
        let others = journal::kept_by_others();
        if undone.journals == 0 && !others.is_empty() {
            let reason = format!("the settings were made by {}", others.join(", "));
            let remedy = Some("sudo irqlab signal undo".to_owned());
            bail!(NothingSet { reason, remedy });
        }
        console::print("there is nothing to restore\n")?;
    }
    for elsewhere in &undone.elsewhere {
        console::warn(&format!("not restored: {elsewhere}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the interface with this name in this network namespace.
///
/// Fails when there is no such interface. If an interface with this name in another namespace has
/// kept changes, the error says how to undo them.
fn of_this_network(name: &str) -> anyhow::Result<Interface> {
    nic::interface(name).map_err(|error| match journal::kept_elsewhere(name).first() {
        Some(elsewhere) => elsewhere_only(elsewhere).into(),
        None => error.into(),
    })
}

/// The error if all kept changes belong to another network namespace.
fn elsewhere_only(elsewhere: &str) -> NothingSet {
    NothingSet { reason: elsewhere.to_owned(), remedy: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounded_value_has_a_row_and_a_warning() {
        let interface = nic::interface("lo").unwrap();
        let Ok(session) = Session::open(interface) else {
            return needs::not_run(needs::Need::Other, "no journal can be written here");
        };
        let in_force = vec![InForce {
            setting: live::nic::Setting::Coalescing,
            before: "rx-frames 1".to_owned(),
            asked: "rx-frames 200".to_owned(),
            now: "rx-frames 64".to_owned(),
        }];
        let applied = Applied { session, in_force };
        let table = applied.table();
        assert_eq!((table.rows().len(), table.check_display()), (1, Ok(())));
        for (column, text) in
            [("before", "rx-frames 1"), ("asked", "rx-frames 200"), ("in_force", "rx-frames 64")]
        {
            let cell = table.get(&table.rows()[0], column);
            assert_eq!(cell, Some(&record::Value::from(text)), "{column}");
        }
        assert_eq!(applied.warnings().len(), 1);
    }
}
