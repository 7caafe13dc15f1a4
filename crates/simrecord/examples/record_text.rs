//! Prints streams of records as text, one line for each record.

use std::io::{self, Write};

use attribution::KernelContext;
use simrecord::counters;
use simrecord::reader;
use simrecord::record::Record;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for path in std::env::args_os().skip(1) {
        let stream = std::fs::File::open(&path)
            .map_err(reader::ReadError::Io)
            .and_then(|file| reader::read(std::io::BufReader::new(file)));
        match stream {
            Ok(stream) => {
                writeln!(out, "{:?}", stream.header)?;
                for record in &stream.records {
                    print(record, &mut out)?;
                }
                writeln!(out, "{:?}", stream.end)?;
            }
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
    Ok(())
}

fn print(record: &Record, out: &mut impl Write) -> io::Result<()> {
    match record {
        Record::Context(row) => {
            let name = KernelContext::from_code(row.code)
                .map_or_else(String::new, |context| context.to_string());
            writeln!(
                out,
                "cpu {} {name:<24} entries {:>8} completed {:>8}",
                row.cpu, row.entries, row.completed
            )
        }
        Record::Task(task) => {
            let comm = String::from_utf8_lossy(&task.comm);
            writeln!(out, "task {} {}", task.pid, comm.trim_end_matches('\0').escape_debug())
        }
        Record::Counters(block) => {
            let positioned = block.values.iter().zip(block.first as usize..);
            let values: Vec<String> = positioned
                .filter(|(value, _)| **value > 0)
                .filter_map(|(value, position)| {
                    Some(format!("{} {value}", counters::name(position)?))
                })
                .collect();
            writeln!(out, "    {:?}: {}", block.of, values.join(", "))
        }
        other => writeln!(out, "{other:?}"),
    }
}
