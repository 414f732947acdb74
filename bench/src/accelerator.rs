//! Reads use and memory of accelerators from `nvidia-smi`; without that program there are none.

use std::process::Command;

/// An accelerator and what it does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Accelerator {
    /// The model.
    pub(crate) name: String,
    /// The share of the time in which it computed anything, for all programs together; unknown where it is divided.
    pub(crate) busy_share: Option<f64>,
    /// Its memory that all programs hold.
    pub(crate) memory_bytes: Option<u64>,
}

/// Reads every accelerator; none where `nvidia-smi` is missing.
pub(super) fn read() -> Vec<Accelerator> {
    let query = ["--query-gpu=name,utilization.gpu,memory.used", "--format=csv,noheader,nounits"];
    let output = Command::new("nvidia-smi").args(query).output().ok().filter(|output| output.status.success());
    output.map(|output| parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// The mean of several readings of the same accelerators, in the same order; of their memory the last word.
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

/// A line each: name, percent, mebibytes.
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
