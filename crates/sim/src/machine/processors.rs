//! Asks QEMU which processors it has, and what it lacks of each: QMP's `query-cpu-definitions`.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::monitor::{Qmp, Reply};
use crate::process::{dies_with_parent, with_reached_limit};
use crate::qemu::Qemu;
use crate::{Result, SimError};

/// QEMU's processors by name, each with the features that its translator does not execute.
pub(crate) type Processors = BTreeMap<String, Vec<String>>;

/// The commands. The last one ends QEMU.
const COMMANDS: [&str; 3] = ["qmp_capabilities", "query-cpu-definitions", "quit"];
/// The number of the command whose answer has the processors, from 1.
const ANSWER: u64 = 2;

/// Starts a QEMU without a guest, and asks it. That takes a fifth of a second.
///
/// Fails with [`SimError::Program`] if it cannot be started or does not answer.
pub(crate) fn ask(qemu: &Qemu) -> Result<Processors> {
    let fail = |detail: String| {
        let program = qemu.program().display().to_string();
        SimError::Program { program, detail }
    };
    let mut command = qemu.command();
    command.args(["-machine", "none,accel=tcg", "-nodefaults", "-no-user-config", "-nographic"]);
    command.args(["-S", "-qmp", "stdio"]);
    let mut qmp = Qmp::new();
    let lines = COMMANDS.map(|name| qmp.command(name, &Value::Null).1).concat();
    let mut output = || -> std::io::Result<std::process::Output> {
        // The commands are shorter than a pipe's buffer, so nobody needs to read while they are written.
        let (reader, mut writer) = std::io::pipe()?;
        writer.write_all(&lines)?;
        drop(writer);
        command.stdin(reader).stdout(Stdio::piped()).stderr(Stdio::null());
        dies_with_parent(&mut command);
        outputs::output_of_program(&mut command)
    };
    let output = output().map_err(|error| fail(with_reached_limit(error).to_string()))?;
    let replies = qmp.push(&output.stdout)?;
    let answer = replies.into_iter().find_map(|reply| match reply {
        Reply::Return(ANSWER, answer) => Some(answer),
        _ => None,
    });
    let answer = answer.ok_or_else(|| fail("does not say which processors it has".to_owned()))?;
    Ok(processors_of(&answer))
}

/// The processors of the answer.
fn processors_of(answer: &Value) -> Processors {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let definitions = answer.as_array().into_iter().flatten();
    let named = definitions.filter_map(|definition| {
        let missing = definition["unavailable-features"].as_array();
        Some((text(&definition["name"])?, missing?.iter().filter_map(text).collect()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_processors_and_what_they_lack() {
        let answer = serde_json::json!([
            { "name": "EPYC-Genoa", "unavailable-features": ["pcid", "auto-ibrs"] },
            { "name": "max", "unavailable-features": [] },
            { "name": "unknown" },
            7,
        ]);
        let processors = processors_of(&answer);
        assert_eq!(processors["EPYC-Genoa"], ["pcid", "auto-ibrs"]);
        assert!(processors["max"].is_empty());
        assert_eq!(processors.len(), 2);
        assert!(processors_of(&Value::Null).is_empty());
    }
}
