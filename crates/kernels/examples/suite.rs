//! Development tool: measures the kernels that the arguments select.
use kernels::{Clock, Effort, all, measure};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let windows = args
        .iter()
        .position(|a| a.starts_with("w="))
        .map(|i| args.remove(i)[2..].parse().unwrap())
        .unwrap_or(15);
    let mut clock = Clock::new().unwrap();
    for k in all() {
        if !args.is_empty() && !args.iter().any(|a| k.is_selected(a)) {
            continue;
        }
        let t = std::time::Instant::now();
        match measure(&k, &mut clock, Effort { windows, window_cycles: 20_000 }, &|_| ()) {
            Ok(s) => println!(
                "{}\t{:.4}\t{:.4}\t{}\t{:?}\t{:.1}ms",
                k.name,
                s.cycles,
                s.low_cycles,
                s.windows,
                s.disturbed,
                t.elapsed().as_secs_f64() * 1e3
            ),
            Err(e) => println!("{}\t-\t{e}", k.name),
        }
    }
}
