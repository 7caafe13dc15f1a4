//! Prints a record stream as text, one line a record.

use attribution::KernelContext;
use plugin::reader;
use plugin::record::Record;

fn main() {
    for path in std::env::args_os().skip(1) {
        let stream = std::fs::File::open(&path)
            .map_err(reader::ReadError::Io)
            .and_then(|file| reader::read(std::io::BufReader::new(file)));
        match stream {
            Ok(stream) => {
                println!("{:?}", stream.header);
                stream.records.iter().for_each(print);
                println!("{:?}", stream.end);
            }
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
}

fn print(record: &Record) {
    match record {
        Record::Context(row) => {
            let name = KernelContext::from_code(row.code)
                .map_or_else(String::new, |context| context.to_string());
            println!(
                "cpu {} {name:<24} own {:>12} inclusive {:>12} entries {:>8} completed {:>8}",
                row.cpu, row.own, row.inclusive, row.entries, row.completed
            );
        }
        Record::Task(task) => {
            let comm = String::from_utf8_lossy(&task.comm);
            println!("task {} {}", task.pid, comm.trim_end_matches('\0').escape_debug());
        }
        other => println!("{other:?}"),
    }
}
