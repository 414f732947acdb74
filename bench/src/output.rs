//! Prints reports to a terminal, or writes them to files in a directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::report::{Report, SoFar};

/// The destination of a benchmark report, and an earlier report for comparison.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Destination {
    /// Print one JSON object instead of tables.
    #[arg(long, global = true)]
    pub json: bool,
    /// Compare with an earlier JSON report.
    ///
    /// Every value is also shown as a ratio to the same row in the earlier report, and every share as a change. Without
    /// FILE, `hardware` compares the CPU with the accelerator.
    #[arg(long, global = true, value_name = "FILE")]
    pub compare: Option<Option<PathBuf>>,
    /// Write the report to this directory during the measurement.
    ///
    /// The files are NAME.md, NAME.json and the plot NAME.svg, with the name of the benchmark.
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Destination {
    /// Measures, compares, writes and prints. `measure` may pass unfinished reports to the argument, which writes them.
    ///
    /// # Errors
    /// `measure` fails, the earlier report is invalid, or the directory cannot be written to.
    pub(crate) fn run(
        &self,
        benchmark: &str,
        out: &mut impl Write,
        measure: impl FnOnce(SoFar<'_>) -> anyhow::Result<Report>,
    ) -> anyhow::Result<()> {
        // Read before minutes are spent on measuring.
        let earlier = self.compare.as_ref().and_then(|file| file.as_deref());
        let earlier = earlier.map(|path| Ok((path, read(path, benchmark)?)));
        let earlier = earlier.transpose().map_err(|error: anyhow::Error| error)?;
        let compared = |report: &Report| {
            let mut report = report.clone();
            if let Some((path, earlier)) = &earlier {
                report.compare(path, earlier);
            }
            report
        };
        let report = compared(&measure(&mut |so_far| self.write(&compared(so_far)))?);
        self.write(&report)?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report).context("write the report")?;
            writeln!(out)?;
        } else {
            write!(out, "{}", report.markdown())?;
        }
        Ok(())
    }

    /// Writes the three files if a directory is given; creates it if it does not exist.
    fn write(&self, report: &Report) -> anyhow::Result<()> {
        let Some(folder) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let write =
            |extension: &str, text: &str| write(&folder.join(format!("{}.{extension}", report.benchmark)), text);
        write("md", &report.markdown())?;
        write("json", &(serde_json::to_string_pretty(report)? + "\n"))?;
        report.svg().map_or(Ok(()), |svg| write("svg", &svg))
    }
}

/// Writes a file.
///
/// # Errors
/// The file cannot be written; the error holds the path.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// Creates a directory below `parent`, or below the system's temporary directory; it is removed on drop.
///
/// # Errors
/// The directory cannot be created.
pub(crate) fn temporary_folder(parent: Option<&Path>) -> anyhow::Result<tempfile::TempDir> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    std::fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
    let created = tempfile::Builder::new().prefix("zerofleet-bench-").tempdir_in(&parent);
    created.with_context(|| format!("create a directory in {}", parent.display()))
}

/// Reads an earlier report of a benchmark.
fn read(path: &Path, benchmark: &str) -> anyhow::Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the earlier report {}", path.display()))?;
    let report: Option<Report> = serde_json::from_str(&text).ok();
    let report = report.filter(|report| report.benchmark == benchmark);
    report.with_context(|| format!("parse {} as output of `bench {benchmark} --json`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn a_report_is_written_printed_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let destination = Destination { out: Some(out.clone()), ..Destination::default() };
        let mut table = Vec::new();
        let mut plotted = report();
        plotted.plot("alone", "simulations/s", None, None);
        let measure = |so_far: SoFar<'_>| {
            so_far(&report())?;
            assert!(out.join("search.md").is_file() && !out.join("search.svg").exists(), "written as it grows");
            Ok(plotted)
        };
        destination.run("search", &mut table, measure).unwrap();
        assert_eq!(std::fs::read(out.join("search.md")).unwrap(), table);
        assert!(std::fs::read_to_string(out.join("search.svg")).unwrap().starts_with("<svg"));

        let json = out.join("search.json");
        let later = Destination { compare: Some(Some(json.clone())), json: true, out: None };
        let mut printed = Vec::new();
        later.run("search", &mut printed, |_| Ok(report())).unwrap();
        let printed: Report = serde_json::from_slice(&printed).unwrap();
        assert_eq!(printed.compared.unwrap().file, json.display().to_string());
        assert!(printed.rows.iter().all(|row| row.change == Some(1.0)));
    }

    #[test]
    fn a_file_that_is_no_report_of_the_benchmark_is_named_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.json");
        let error = |path: &Path| {
            let destination = Destination { compare: Some(Some(path.to_owned())), ..Destination::default() };
            let measure = |_: SoFar<'_>| panic!("measured");
            format!("{:#}", destination.run("kernel", &mut Vec::new(), measure).unwrap_err())
        };
        assert!(error(&path).contains("read the earlier report"));
        let search = serde_json::to_string(&report()).unwrap();
        for text in ["", "{}", r#"{"cpu": "x", "networks": []}"#, &search] {
            std::fs::write(&path, text).unwrap();
            let error = error(&path);
            assert!(error.contains("other.json") && error.contains("bench kernel --json"), "{error}");
        }
    }
}
