//! Combines the samples of several processes that measured the same kernels. `live` measures in several processes
//! because the addresses of code and data, and with them conflicts in caches and predictors, differ between processes.

use stats::interval::order_95;

use super::sample::{Figures, KernelSample};

/// Chooses for each kernel the sample of the process with the median cycles. With an even number of processes, this is
/// the lower of the middle two. The 95 % interval is the interval of the median over the processes. The counts of
/// windows are sums over all processes.
///
/// Processes without cycles of a kernel do not count; [`Figures::processes`] is the number of the others. If no process has
/// cycles, the result is the sample of the first process.
#[must_use]
pub fn middle_of_processes(processes: Vec<Vec<KernelSample>>) -> Vec<KernelSample> {
    if processes.len() < 2 {
        return processes.into_iter().next().unwrap_or_default();
    }
    let Some(first) = processes.first() else { return Vec::new() };
    let combine = |kernel: &KernelSample| {
        let samples = processes.iter().flatten().filter(|sample| sample.name == kernel.name);
        let measured: Vec<&KernelSample> =
            samples.filter(|sample| sample.figures.is_ok()).collect();
        median_sample(measured).unwrap_or_else(|| kernel.clone())
    };
    first.iter().map(combine).collect()
}

/// The sample with the median cycles, and the interval over all samples. `None` without samples. All samples are of one
/// kernel and have cycles.
fn median_sample(mut samples: Vec<&KernelSample>) -> Option<KernelSample> {
    let cycles = |sample: &KernelSample| sample.compared_cycles().unwrap_or(f64::INFINITY);
    samples.sort_by(|first, second| cycles(first).total_cmp(&cycles(second)));
    let median = *samples.get(samples.len().checked_sub(1)? / 2)?;
    let all_figures = || samples.iter().filter_map(|sample| sample.figures.as_ref().ok());
    let sum =
        |count: fn(&Figures) -> Option<u64>| -> Option<u64> { all_figures().map(count).sum() };
    // Samples of a kernel on shared hardware are in the order of their tenth percentiles, whose interval is not that of the
    // median.
    let positions_95 = if median.shared { None } else { order_95(samples.len()) };
    let figures = median.figures.clone().map(|figures| Figures {
        cycles_95: positions_95.map(|(low, high)| (cycles(samples[low]), cycles(samples[high]))),
        processes: sum(|figures| figures.processes),
        windows: sum(|figures| figures.windows),
        rate_changed: sum(|figures| figures.rate_changed),
        sibling_busy: sum(|figures| figures.sibling_busy),
        ..figures
    });
    Some(KernelSample { figures, ..median.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::sample::Statistics;
    use super::*;

    fn sample(name: &str, cycles: Option<f64>) -> KernelSample {
        let figures = cycles.map(|cycles| Figures {
            cycles,
            low_cycles: cycles - 0.5,
            cycles_95: Some((cycles, cycles)),
            statistics: Statistics::of_windows(5),
            processes: Some(1),
            windows: Some(5),
            rate_changed: Some(1),
            sibling_busy: Some(2),
        });
        KernelSample {
            name: name.to_owned(),
            group: "programs".to_owned(),
            unit: "run".to_owned(),
            about: "Something.".to_owned(),
            shared: false,
            figures: figures.ok_or_else(|| "disturbed".to_owned()),
        }
    }

    fn middle_of(cycles: &[Option<f64>]) -> KernelSample {
        let process = |cycles: &Option<f64>| vec![sample("a", *cycles), sample("b", Some(9.0))];
        let middle = middle_of_processes(cycles.iter().map(process).collect());
        assert_eq!(middle.len(), 2);
        assert_eq!(middle[1].name, "b");
        middle[0].clone()
    }

    #[test]
    fn the_process_with_the_middle_cycles_counts() {
        let three = middle_of(&[Some(3.0), Some(1.0), Some(2.0)]).figures.unwrap();
        assert_eq!((three.cycles, three.low_cycles, three.cycles_95), (2.0, 1.5, None));
        assert_eq!((three.processes, three.windows), (Some(3), Some(15)));
        assert_eq!((three.rate_changed, three.sibling_busy), (Some(3), Some(6)));
        let four = middle_of(&[Some(4.0), Some(3.0), Some(1.0), Some(2.0)]).figures.unwrap();
        assert_eq!(four.cycles, 2.0);
    }

    #[test]
    fn the_interval_is_that_of_the_median_of_the_processes() {
        let six = [6.0, 1.0, 5.0, 2.0, 4.0, 3.0].map(Some);
        assert_eq!(middle_of(&six).figures.unwrap().cycles_95, Some((1.0, 6.0)));
        // On shared hardware, the order is that of the tenth percentiles.
        let shared =
            |cycles: &Option<f64>| vec![KernelSample { shared: true, ..sample("a", *cycles) }];
        let middle = middle_of_processes(six.iter().map(shared).collect());
        assert_eq!(middle[0].figures.as_ref().unwrap().cycles_95, None);
    }

    #[test]
    fn a_process_without_cycles_does_not_count_and_one_process_is_itself() {
        let one = middle_of(&[None, Some(7.0), None]).figures.unwrap();
        assert_eq!((one.cycles, one.processes), (7.0, Some(1)));
        assert_eq!(middle_of(&[None, None]).figures, Err("disturbed".to_owned()));
        assert_eq!(middle_of(&[Some(2.0)]), sample("a", Some(2.0)));
        assert_eq!(middle_of_processes(Vec::new()), []);
    }
}
