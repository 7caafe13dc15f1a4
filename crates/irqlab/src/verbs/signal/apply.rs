//! `irqlab signal advise --apply`, and `irqlab signal undo`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use live::journal::{self, JournalError};
use live::nic::scheme::scheme_in_force;
use live::nic::{InForce, Interface, Refusal, Session};
use record::{Column, Kind, Table};
use signalling::Scheme;

use super::nic::{self, SettingLines};
use super::titled;
use crate::console;
use crate::options::help_with_exit_codes;
use crate::run::{NothingSet, stop_on_signals};

/// What unlocks settings.
const RIGHTS: &str = "run it as root (CAP_NET_ADMIN; the files in /sys are root's)";

/// Restore what `signal advise --apply` has set
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  sudo irqlab signal undo
  sudo irqlab signal undo --nic eth0

The values are those from before the first --apply. A scheme that was being set when irqlab was killed
needs no undo: the next start of any verb restores it."))]
pub struct UndoArgs {
    /// This network interface alone [default: all]
    #[arg(long, value_name = "NAME")]
    nic: Option<String>,
}

/// A scheme that was set. Dropping it restores what was before.
pub struct Applied {
    session: Session,
    in_force: Vec<InForce>,
}

/// Sets the settings of a scheme, all or none.
///
/// # Errors
/// [`NothingSet`] where kernel or driver have none of it, or without rights; where a value is refused, or
/// Ctrl-C stops it. Then everything is as before.
pub fn apply(
    interface: Interface,
    scheme: Scheme,
    lines: &SettingLines,
    is_kept: bool,
) -> anyhow::Result<Applied> {
    let nothing = |reason: String, remedy: Option<String>| NothingSet { reason, remedy };
    if !is_kept {
        let reason = format!("no scheme keeps all that was asked for ({scheme} comes nearest)");
        bail!(nothing(
            reason,
            Some("raise the bound or the budget, or use the printed lines".into())
        ));
    }
    if let Some(lacking) = lines.absent.first() {
        bail!(nothing(format!("{}: {}", lacking.what, lacking.reason), lacking.remedy.clone()));
    }
    let stop = stop_on_signals()?;
    let rights = || Some(RIGHTS.to_owned());
    let session = Session::open(interface).map_err(|error| match error {
        JournalError::Busy { .. } => nothing(error.to_string(), None),
        _ => nothing(error.to_string(), rights()),
    })?;
    let mut applied = Applied { session, in_force: Vec::new() };
    for change in &lines.required {
        if stop.is_requested() {
            bail!("stopped: nothing is set");
        }
        match applied.session.set(change.setting, &change.value) {
            Ok(in_force) => applied.in_force.push(in_force),
            Err(error @ (Refusal::Missing { .. } | Refusal::Journal(_))) => {
                bail!(nothing(error.to_string(), None))
            }
            Err(error @ Refusal::NoRights { .. }) => bail!(nothing(error.to_string(), rights())),
            Err(error) => return Err(error).context("nothing is set"),
        }
    }
    if stop.is_requested() {
        bail!("stopped: nothing is set");
    }
    Ok(applied)
}

impl Applied {
    /// The scheme in force: the device may have rounded what makes the one that was asked for.
    pub fn scheme(&self, asked: Scheme) -> Scheme {
        scheme_in_force(asked, &self.in_force)
    }

    /// What the device took otherwise than it was asked for, and what was restored first.
    pub fn warnings(&self) -> Vec<String> {
        let name = self.session.interface().name();
        let rounded = self.in_force.iter().filter(|one| !one.is_exact());
        let rounded = rounded.map(|InForce { setting, asked, now, .. }| {
            format!("{name} took {setting} = {now} where {asked} was asked for")
        });
        let restored = self.session.restored().iter();
        restored.map(|what| format!("before that, {what}")).chain(rounded).collect()
    }

    /// Table `applied`.
    pub fn table(&self) -> Table {
        let column = |name: &str, doc: &str| Column::new(name, Kind::Text, doc);
        let columns = vec![
            column("setting", "What was set.").priority(100),
            column("before", "Its value before, which signal undo restores.").priority(90),
            column("asked", "The value that the scheme needs.").priority(60),
            column("in_force", "The value in force, read afterwards: a driver may round.")
                .title("in force")
                .priority(95),
        ];
        let doc = "What was set on the interface.";
        let mut table =
            Table::new("applied", doc, columns).displayed(titled("set on the interface"));
        for InForce { setting, before, asked, now } in &self.in_force {
            let texts = [&setting.to_string(), before, asked, now];
            table.push(texts.map(|text| text.clone().into()).to_vec());
        }
        table
    }

    /// What was set, and how to undo it.
    pub fn text(&self) -> String {
        let name = self.session.interface().name();
        format!(
            "\n{} settings of {name} are in force until a reboot; to undo it:\n  irqlab signal undo --nic \
             {name}\n",
            self.in_force.len()
        )
    }

    /// Leaves the settings in force.
    pub fn keep(self, scheme: Scheme) -> anyhow::Result<()> {
        self.session.keep(&scheme.to_string()).context("nothing is set")
    }
}

/// Restores, and says what.
pub fn undo(args: &UndoArgs) -> anyhow::Result<ExitCode> {
    let interface = args.nic.as_deref().map(of_this_network).transpose()?;
    let undone = journal::undo_kept(interface.as_ref().map(Interface::identity));
    for what in &undone.restored {
        console::print(&format!("restored {}\n", report::escape::plain(what)))?;
    }
    for name in &undone.gone {
        let name = report::escape::plain(name);
        console::print(&format!("{name} is gone, and its settings with it\n"))?;
    }
    for what in &undone.failed {
        console::warn(what);
    }
    if !undone.failed.is_empty() {
        bail!("not everything is restored: {RIGHTS}");
    }
    if undone.restored.is_empty() && undone.gone.is_empty() {
        if let Some(elsewhere) = undone.elsewhere.first() {
            bail!(elsewhere_only(elsewhere));
        }
        let others = journal::kept_by_others();
        if undone.journals == 0 && !others.is_empty() {
            let reason = format!("what is set was set by {}", others.join(", "));
            let remedy = Some("sudo irqlab signal undo".to_owned());
            bail!(NothingSet { reason, remedy });
        }
        console::print("nothing is to be restored\n")?;
    }
    for elsewhere in &undone.elsewhere {
        console::warn(&format!("this one alone is restored: {elsewhere}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The interface of that name in this network namespace.
///
/// # Errors
/// Where there is none. If changes of one of that name in another namespace were kept, the error says how to
/// undo them.
fn of_this_network(name: &str) -> anyhow::Result<Interface> {
    nic::interface(name).map_err(|error| match journal::kept_elsewhere(name).first() {
        Some(elsewhere) => elsewhere_only(elsewhere).into(),
        None => error.into(),
    })
}

fn elsewhere_only(elsewhere: &str) -> NothingSet {
    NothingSet { reason: elsewhere.to_owned(), remedy: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_table_can_be_shown() {
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
        assert_eq!(applied.table().check_display(), Ok(()));
        assert_eq!(applied.warnings().len(), 1);
    }
}
