//! `write_seeds TARGET DIRECTORY`: the inputs that a fuzzer starts from, a file each.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [target, directory] = &arguments[..] else {
        return Err("usage: write_seeds TARGET DIRECTORY".into());
    };
    fs::create_dir_all(directory)?;
    for (number, seed) in fuzz_bodies::seeds(target).iter().enumerate() {
        fs::write(Path::new(directory).join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
