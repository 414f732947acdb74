//! Samples the load of the first GPU with `nvidia-smi` while a program runs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::gpu;

/// Interval between two samples, in milliseconds.
const INTERVAL_MS: u32 = 200;

/// One sample of the load of the first GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Fraction of the last sampling period in which a kernel ran.
    pub(super) busy_share: f64,
    /// Device memory that all programs hold together, in MiB.
    pub(super) memory_mebibytes: f64,
}

/// Fields that `nvidia-smi` reports for a sample.
const FIELDS: &str = "utilization.gpu,memory.used";

/// Reads the memory of the first GPU that programs hold now, in MiB.
pub(super) fn memory_mebibytes() -> Option<f64> {
    samples(&gpu::query(FIELDS).ok()?).first().map(|sample| sample.memory_mebibytes)
}

/// Reads the present clock of the first GPU, in MHz.
pub(super) fn clock_megahertz() -> Option<f64> {
    gpu::query("clocks.sm").ok()?.lines().next()?.trim().parse().ok()
}

/// Parses lines with busy percent and mebibytes; skips other lines.
fn samples(text: &str) -> Vec<Sample> {
    let sample = |line: &str| {
        let (busy, memory) = line.split_once(',')?;
        let busy: f64 = busy.trim().parse().ok()?;
        Some(Sample { busy_share: busy / 100.0, memory_mebibytes: memory.trim().parse().ok()? })
    };
    text.lines().filter_map(sample).collect()
}

/// Samples the load in the background until [`stop`](Sampler::stop).
#[derive(Debug)]
pub(super) struct Sampler {
    child: Child,
    file: tempfile::NamedTempFile,
    start: Instant,
}

impl Sampler {
    /// Starts `nvidia-smi`, which writes to a file in `folder`.
    ///
    /// # Errors
    /// The file cannot be created, or the program not started.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let file = tempfile::NamedTempFile::new_in(folder).context("create a file for samples")?;
        let output = File::create(file.path()).context("open the file for samples")?;
        let mut command = Command::new("nvidia-smi");
        command.args(["--id=0", &format!("--query-gpu={FIELDS}"), "--format=csv,noheader,nounits"]);
        command.arg(format!("--loop-ms={INTERVAL_MS}")).stdout(output).stderr(Stdio::null());
        Ok(Self { child: command.spawn().context("start nvidia-smi")?, file, start: Instant::now() })
    }

    /// Stops sampling. Returns the mean busy share and maximum memory over the last `seconds`, without the final
    /// second; `None` without samples.
    ///
    /// # Errors
    /// The samples cannot be read.
    pub(super) fn stop(mut self, seconds: f64) -> Result<Option<Sample>> {
        let total = self.start.elapsed().as_secs_f64();
        let _ = self.child.kill();
        self.child.wait().context("wait for nvidia-smi")?;
        let text = fs::read_to_string(self.file.path()).context("read the samples")?;
        Ok(mean(&samples(&text), total, seconds))
    }
}

/// Returns the mean busy share and maximum memory over the window of `seconds` that stops one second before `total`.
/// The program exits during that last second.
fn mean(samples: &[Sample], total: f64, seconds: f64) -> Option<Sample> {
    /// Time before the last sample that is excluded, in seconds.
    const END: f64 = 1.0;
    let at = |index: usize| (index as f64 + 0.5) / samples.len() as f64 * total;
    let counts = |index: &usize| (total - END - seconds..=total - END).contains(&at(*index));
    let counted: Vec<Sample> = (0..samples.len()).filter(counts).map(|index| samples[index]).collect();
    let largest = counted.iter().map(|sample| sample.memory_mebibytes).reduce(f64::max)?;
    let busy_share = counted.iter().map(|sample| sample.busy_share).sum::<f64>() / counted.len() as f64;
    Some(Sample { busy_share, memory_mebibytes: largest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_over_the_window_before_the_last_second() {
        // Ten seconds: a start of four without load, then five with load, then the exit.
        let text = "0, 10\n0, 10\n0, 10\n0, 10\n80, 500\n90, 700\n100, 600\n90, 600\n90, 600\n0, 9000\n[N/A], 5\n";
        let samples = samples(text);
        assert_eq!(samples.len(), 10);
        let mean = |seconds| mean(&samples, 10.0, seconds).unwrap();
        assert!((mean(5.0).busy_share - 0.9).abs() < 1e-9, "{:?}", mean(5.0));
        assert_eq!(mean(5.0).memory_mebibytes, 700.0);
        assert!(mean(100.0).busy_share < 0.6);
    }

    #[test]
    fn without_samples_there_is_no_mean() {
        assert_eq!(mean(&[], 10.0, 5.0), None);
        assert_eq!(mean(&samples("50, 10\n"), 0.5, 5.0), None, "the only sample is of the last second");
    }
}
