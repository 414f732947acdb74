//! Reads the load and the memory of accelerators from `nvidia-smi`; without that program, none are reported.

use std::process::Command;

/// An accelerator and its current load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Accelerator {
    /// The model name.
    pub(crate) name: String,
    /// The share of time in which the device was computing, for all programs together; unknown if the device is
    /// partitioned.
    pub(crate) busy_share: Option<f64>,
    /// The device memory that all programs hold together.
    pub(crate) memory_bytes: Option<u64>,
}

/// Reads every accelerator; returns none if `nvidia-smi` is missing or fails.
pub(super) fn read() -> Vec<Accelerator> {
    let query = ["--query-gpu=name,utilization.gpu,memory.used", "--format=csv,noheader,nounits"];
    let output = Command::new("nvidia-smi").args(query).output().ok().filter(|output| output.status.success());
    output.map(|output| parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// Averages the busy share over several readings of the same accelerators, in the same order; the memory is that of the
/// last reading.
pub(super) fn mean(readings: &[Vec<Accelerator>]) -> Vec<Accelerator> {
    let Some(last) = readings.last() else { return Vec::new() };
    let of = |index: usize, last: &Accelerator| {
        let shares = readings.iter().filter_map(|reading| reading.get(index)?.busy_share);
        let shares: Vec<f64> = shares.collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        Accelerator { busy_share: (!shares.is_empty()).then_some(mean), ..last.clone() }
    };
    last.iter().enumerate().map(|(index, last)| of(index, last)).collect()
}

/// Parses one accelerator per line: name, busy share in percent, memory in mebibytes.
fn parse(text: &str) -> Vec<Accelerator> {
    let line = |line: &str| {
        let mut fields = line.rsplitn(3, ',').map(str::trim);
        let (memory, busy, name) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Accelerator {
            name: name.to_owned(),
            busy_share: busy.parse::<f64>().ok().filter(|busy| busy.is_finite()).map(|busy| busy / 100.0),
            memory_bytes: memory.parse::<u64>().ok().and_then(|mebibytes| mebibytes.checked_mul(1 << 20)),
        })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accelerator(name: &str, busy_share: Option<f64>, mebibytes: u64) -> Accelerator {
        Accelerator { name: name.to_owned(), busy_share, memory_bytes: Some(mebibytes << 20) }
    }

    #[test]
    fn every_line_is_an_accelerator() {
        let parsed = parse("NVIDIA H200, 37, 1024\nOne, of many, [N/A], 5\n\nno line\n");
        assert_eq!(parsed, [accelerator("NVIDIA H200", Some(0.37), 1024), accelerator("One, of many", None, 5)]);
    }

    #[test]
    fn the_mean_is_over_the_readings_with_a_known_busy_share() {
        let readings = [Some(0.2), None, Some(0.6)].map(|busy| vec![accelerator("A", busy, 7)]);
        assert_eq!(mean(&readings), [accelerator("A", Some(0.4), 7)]);
        assert_eq!(mean(&[vec![accelerator("A", None, 7)]]), [accelerator("A", None, 7)]);
        assert_eq!(mean(&[]), []);
    }
}
