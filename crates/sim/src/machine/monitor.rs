//! QEMU's monitor protocol (QMP): one JSON document per line (docs/interop/qmp-spec.rst). irqlab stops,
//! saves, continues and quits a machine with it, and copies the guest's memory. This module does no IO:
//! [`super::vm`] owns the socket.

use serde_json::{Value, json};

use crate::text::LineSplitter;
use crate::{Result, SimError};

/// Maximum length of a reply. The commands used here have short ones.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A message from QEMU's monitor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Greeting after connecting.
    Greeting,
    /// An event of this name, with its data.
    Event(String, Value),
    /// Answer to the command of this number.
    Return(u64, Value),
    /// Refusal of the command of this number.
    Error(u64, String),
}

/// The state of the protocol.
#[derive(Debug)]
pub(crate) struct Qmp {
    /// Number of the last command.
    commands: u64,
    lines: LineSplitter,
}

impl Qmp {
    pub(crate) fn new() -> Qmp {
        Qmp { commands: 0, lines: LineSplitter::new(LINE_BYTES_MAX) }
    }

    /// Returns a new command's number, and the line to send. `arguments`: null for none.
    pub(crate) fn command(&mut self, name: &str, arguments: &Value) -> (u64, Vec<u8>) {
        self.commands += 1;
        let mut command = json!({ "execute": name, "id": self.commands });
        if !arguments.is_null() {
            command["arguments"] = arguments.clone();
        }
        (self.commands, format!("{command}\n").into_bytes())
    }

    /// Takes bytes; returns the replies that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        for line in self.lines.push(bytes) {
            let line = line.map_err(|_| SimError::Monitor("a reply is too long".to_owned()))?;
            if !line.trim_ascii().is_empty() {
                replies.push(reply(&line)?);
            }
        }
        Ok(replies)
    }
}

/// Parses a line of the monitor.
fn reply(line: &[u8]) -> Result<Reply> {
    let malformed = |problem: &str| {
        let line: String = String::from_utf8_lossy(line).chars().take(200).collect();
        SimError::Monitor(format!("{problem}: {line:?}"))
    };
    let mut value: Value = serde_json::from_slice(line).map_err(|_| malformed("not JSON"))?;
    if value.get("QMP").is_some() {
        return Ok(Reply::Greeting);
    }
    if let Some(name) = value["event"].as_str() {
        return Ok(Reply::Event(name.to_owned(), value["data"].clone()));
    }
    let id = value["id"].as_u64();
    if let Some(error) = value.get("error") {
        let description = error["desc"].as_str().unwrap_or("refused without a reason");
        return Ok(Reply::Error(id.unwrap_or(0), description.to_owned()));
    }
    match (id, value.get_mut("return")) {
        (Some(id), Some(answer)) => Ok(Reply::Return(id, answer.take())),
        _ => Err(malformed("neither event nor reply")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation() {
        let mut qmp = Qmp::new();
        let (id, line) = qmp.command("qmp_capabilities", &Value::Null);
        assert_eq!(line, b"{\"execute\":\"qmp_capabilities\",\"id\":1}\n");
        assert!(qmp.push(br#"{"QMP": {"version": {}}}"#).unwrap().is_empty());
        let remainder =
            b"\r\n{\"return\": {}, \"id\": 1}\n{\"event\": \"STOP\", \"timestamp\": {}}\n";
        let replies = qmp.push(remainder).unwrap();
        let stop = Reply::Event("STOP".to_owned(), Value::Null);
        assert_eq!(replies, [Reply::Greeting, Reply::Return(id, json!({})), stop]);
        let (id, _) = qmp.command("migrate", &json!({ "uri": "file:x" }));
        let refused = format!(
            "{{\"id\": {id}, \"error\": {{\"class\": \"GenericError\", \"desc\": \"no\"}}}}\n"
        );
        assert_eq!(qmp.push(refused.as_bytes()).unwrap(), [Reply::Error(id, "no".to_owned())]);
    }

    #[test]
    fn nonsense_is_an_error() {
        for line in ["x\n", "[]\n", "{}\n", "{\"return\": 1}\n", "null\n", "1\n"] {
            assert!(Qmp::new().push(line.as_bytes()).is_err(), "{line}");
        }
        assert!(Qmp::new().push(&vec![b'x'; LINE_BYTES_MAX + 1]).is_err());
    }
}
