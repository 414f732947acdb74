//! Load and memory of accelerators during a measurement, as reported by NVIDIA's driver.

use service::gpus::Gpu;

/// Averages the busy share over several readings of the same GPUs, in the same order; memory is taken from the last
/// reading.
pub(super) fn mean(readings: &[Vec<Gpu>]) -> Vec<Gpu> {
    let Some(last) = readings.last() else { return Vec::new() };
    let of = |index: usize, last: &Gpu| {
        let shares = readings.iter().filter_map(|reading| reading.get(index)?.busy_share);
        let shares: Vec<f64> = shares.collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        Gpu { busy_share: (!shares.is_empty()).then_some(mean), ..last.clone() }
    };
    last.iter().enumerate().map(|(index, last)| of(index, last)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_over_the_readings_with_a_known_busy_share() {
        let gpu = |busy_share| Gpu { memory_used_bytes: Some(7), busy_share, ..Gpu::default() };
        let readings = [Some(0.2), None, Some(0.6)].map(|busy| vec![gpu(busy)]);
        assert_eq!(mean(&readings), [gpu(Some(0.4))]);
        assert_eq!(mean(&[vec![gpu(None)]]), [gpu(None)]);
        assert_eq!(mean(&[]), []);
    }
}
