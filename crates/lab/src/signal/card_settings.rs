//! Tables `lines` and `applied`: settings of a network interface that make it use a scheme. `signal advise` shows the
//! lines, and `signal apply` changes the settings. Names and order of the columns are public.

use record::{Columns, Table, TableDisplay, column};

use super::computed::titled;

/// The shell line that changes a setting, and the line that undoes the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingLine {
    pub setting: String,
    /// The present value of the setting, or `None` if it was not read.
    pub now: Option<String>,
    /// The shell line that changes the setting.
    pub set: String,
    /// The shell line that restores the present value. `None` if the value was not read.
    pub undo: Option<String>,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    pub setting: String,
    /// The value before the change.
    pub before: String,
    /// The value that the scheme needs.
    pub asked: String,
    /// The value that was read after the change: a driver may round.
    pub in_force: String,
}

fn line_columns<'a>() -> Columns<'a, SettingLine> {
    Columns::all([
        column("setting", "The setting that the line changes.")
            .priority(60)
            .text(|row: &SettingLine| row.setting.clone()),
        column("now", "Its present value; absent if it was not read.")
            .priority(70)
            .text(|row: &SettingLine| row.now.clone()),
        column("set_line", "The line to type as root, in this order.")
            .title("to set it")
            .priority(100)
            .text(|row: &SettingLine| row.set.clone()),
        column("undo_line", "The line that restores the present value, in reverse order.")
            .title("to undo it")
            .priority(99)
            .text(|row: &SettingLine| row.undo.clone()),
    ])
}

/// Table `lines`: the lines that make the interface use a scheme, and the lines that undo the changes.
#[must_use]
pub fn setting_line_table(lines: &[SettingLine]) -> Table {
    let doc =
        "Shell lines that make the interface use the recommended scheme, and lines that undo it.";
    // The lines are too long for a table on a terminal. The verb prints them below the tables.
    let display = TableDisplay { rows_max: Some(0), ..titled("lines to type, as root") };
    line_columns().table("lines", doc, lines).displayed(display)
}

fn changed_columns<'a>() -> Columns<'a, ChangedSetting> {
    Columns::all([
        column("setting", "The setting that was changed.")
            .priority(100)
            .text(|row: &ChangedSetting| row.setting.clone()),
        column("before", "Its value before, which signal undo restores.")
            .priority(90)
            .text(|row: &ChangedSetting| row.before.clone()),
        column("asked", "The value that the scheme needs.")
            .priority(60)
            .text(|row: &ChangedSetting| row.asked.clone()),
        column("in_force", "The value in force, read afterwards: a driver may round.")
            .title("in force")
            .priority(95)
            .text(|row: &ChangedSetting| row.in_force.clone()),
    ])
}

/// Table `applied`: the settings that were changed.
#[must_use]
pub fn changed_setting_table(changed: &[ChangedSetting]) -> Table {
    let doc = "Settings that were changed on the interface.";
    let table = changed_columns().table("applied", doc, changed);
    table.displayed(titled("set on the interface"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_can_be_shown() {
        for table in [setting_line_table(&[]), changed_setting_table(&[])] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
