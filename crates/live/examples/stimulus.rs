//! A program that serves the hidden verb, for the tests of `live::stimulus`. By hand,
//! `cargo run --example stimulus -- SOURCE RATE SECONDS [CPU...]` runs a stimulus and
//! prints its facts and report.

use std::time::Duration;

use live::stimulus::{self, HELPER_VERB, Helper, LoadSettings, StimulusSettings};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let code = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [HELPER_VERB, json] => stimulus::helper_main(json),
        [source, rate, seconds, ref cpus @ ..] => match by_hand(source, rate, seconds, cpus) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{error}");
                1
            }
        },
        _ => {
            eprintln!("usage: stimulus disk|net|timer|ipi|none|load low|high SECONDS [CPU...]");
            2
        }
    };
    std::process::exit(code);
}

fn by_hand(
    source: &str,
    rate: &str,
    seconds: &str,
    cpus: &[&str],
) -> Result<(), Box<dyn std::error::Error>> {
    let cpus = match cpus {
        [] => vec![0],
        cpus => cpus.iter().map(|cpu| cpu.parse()).collect::<Result<Vec<u32>, _>>()?,
    };
    let helper = Helper::current_exe()?;
    let running = if source == "load" {
        let settings = LoadSettings { cpus, region_bytes: None, last_level_cache_bytes: None };
        stimulus::start_load(&settings, &helper)?
    } else {
        let settings = StimulusSettings::new(source.parse()?, rate.parse()?, cpus);
        stimulus::start(&settings, &helper)?
    };
    println!("{}", serde_json::to_string_pretty(running.facts())?);
    std::thread::sleep(Duration::from_secs_f64(seconds.parse()?));
    println!("{}", serde_json::to_string_pretty(&running.stop()?)?);
    Ok(())
}
