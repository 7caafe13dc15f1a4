//! A model while it is being fitted: its text, and how each field was set.

use lab::kernels::fit::{Fitted, preset_kept};
use machine::schema;

/// An unfinished model: its text, and how its fields were set.
pub(super) struct Draft {
    /// The model in TOML. It is valid at any time.
    pub(super) text: String,
    /// The last decision on each field. Fields are in the order of their first decision.
    pub(super) fitted: Vec<Fitted>,
    /// Fields that this host cannot determine. They keep the preset's values, whatever the kernels measure.
    pub(super) undetermined: Vec<Fitted>,
}

impl Draft {
    /// Sets a field. If the host cannot determine the field, or the model refuses the value, the field keeps its
    /// value and the reason is recorded.
    pub(super) fn set(&mut self, field: Fitted) {
        let undetermined = self.undetermined.iter().find(|fitted| fitted.field == field.field);
        let field = undetermined.cloned().unwrap_or(field);
        let field = match &field.value {
            None => field,
            Some(value) => match schema::set(&self.text, &[&format!("{}={value}", field.field)]) {
                Ok(text) => {
                    self.text = text;
                    field
                }
                Err(error) => preset_kept(&field.field, &error.problem),
            },
        };
        self.fitted.retain(|fitted| fitted.field != field.field);
        self.fitted.push(field);
    }

    /// Sets several fields at once, because the model would be invalid in between. If the model refuses the values, all
    /// fields keep their values and the reason is recorded.
    pub(super) fn set_together(&mut self, fields: Vec<Fitted>) {
        let assignment =
            |field: &Fitted| Some(format!("{}={}", field.field, field.value.as_ref()?));
        let assignments: Vec<String> = fields.iter().filter_map(assignment).collect();
        let list: Vec<&str> = assignments.iter().map(String::as_str).collect();
        match schema::set(&self.text, &list) {
            Ok(text) => {
                self.text = text;
                self.fitted.extend(fields);
            }
            Err(error) => {
                self.fitted
                    .extend(fields.iter().map(|field| preset_kept(&field.field, &error.problem)));
            }
        }
    }

    /// The value of a field in the draft, such as `l2.size`. `None` if it has no such field or the value is no integer.
    pub(super) fn number(&self, field: &str) -> Option<i64> {
        let table: toml::Table = toml::from_str(&self.text).ok()?;
        let mut parts = field.split('.');
        let mut value = table.get(parts.next()?)?;
        for part in parts {
            value = value.get(part)?;
        }
        value.as_integer()
    }

    /// The contents of the model file: `head`, a comment line for each fitted field, and the model.
    pub(super) fn file(&self, head: &str) -> String {
        let mut text = head.to_owned();
        for field in &self.fitted {
            let value = field.value.as_deref().unwrap_or("-");
            let measured = match field.measured {
                Some((cycles, Some((low, high)))) => format!("{cycles:.4} ({low:.4} to {high:.4})"),
                Some((cycles, None)) => format!("{cycles:.4}"),
                None => "-".to_owned(),
            };
            text += &format!("#   {} | {value} | {measured} | {}\n", field.field, field.method);
        }
        text + "\n" + &self.text
    }
}

/// A field whose value comes from another source than a kernel: `method`.
pub(super) fn stated(field: &str, value: String, method: &str) -> Fitted {
    let (field, value) = (field.to_owned(), Some(value));
    Fitted { field, value, measured: None, method: method.to_owned() }
}

#[cfg(test)]
mod tests {
    use lab::kernels::fit::{Conditions, undetermined_fields};
    use sim::models;

    use super::*;

    #[test]
    fn fields_that_the_host_cannot_determine_keep_the_presets_values_and_are_marked() {
        let text = models::text("zen3").unwrap();
        let conditions =
            Conditions { throttled: Some(3), is_virtual: true, ..Conditions::default() };
        let undetermined = undetermined_fields(&[], &conditions);
        let mut draft = Draft { text, fitted: Vec::new(), undetermined };
        draft.set(stated("clock", "\"2 GHz\"".to_owned(), "measured"));
        draft.set(stated("memory_cycles", "100".to_owned(), "measured"));
        draft.set(stated("l2_hit_cycles", "11".to_owned(), "measured"));
        let model = machine::SystemModel::parse(&draft.text).unwrap();
        assert_eq!((model.clock_hz, model.memory_cycles), (4_700_000_000, 368));
        assert_eq!(model.l2_hit_cycles, Some(11));
        std::mem::take(&mut draft.undetermined).into_iter().for_each(|field| draft.set(field));
        let file = draft.file("");
        for field in ["clock", "memory_cycles", "memory_line_cycles", "memory_write_cycles"] {
            let line = format!("#   {field} | - | - | preset kept: the core was throttled 3 times");
            assert!(file.contains(&line), "{file}");
        }
        assert!(file.contains("#   core.events.interrupt_cycles | - | - | preset kept: a hyper"));
        assert!(file.contains("#   l2_hit_cycles | 11 | - | measured"), "{file}");
    }
}
