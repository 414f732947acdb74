//! Where reports go: a terminal, or files of a folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Where a benchmark's report goes, and what it is compared with.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Destination {
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// An earlier report in JSON: every figure also as a ratio to the one it has for the same, every share as its change.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Writes the report here, as it grows: NAME.md, NAME.json and, where there is one, the picture NAME.svg, NAME being the
    /// benchmark's.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

impl Destination {
    /// The earlier report to compare with and its file, if one is asked for.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no report of that benchmark.
    pub(super) fn earlier<R: DeserializeOwned>(&self, benchmark: &str) -> anyhow::Result<Option<(&Path, R)>> {
        self.compare.as_deref().map(|path| Ok((path, read_report(path, benchmark)?))).transpose()
    }

    /// Writes `name`.md, `name`.json and `name`.svg, if a folder is asked for; it is made if it is not there.
    ///
    /// # Errors
    /// A folder or file that cannot be written.
    pub(super) fn write(
        &self,
        name: &str,
        markdown: impl FnOnce() -> String,
        report: &impl Serialize,
        draw: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.write_without_picture(name, markdown, report)?;
        self.out.as_deref().map_or(Ok(()), |folder| draw(&folder.join(format!("{name}.svg"))))
    }

    /// Writes `name`.md and `name`.json, as [`write`](Self::write) does.
    ///
    /// # Errors
    /// A folder or file that cannot be written.
    pub(super) fn write_without_picture(
        &self,
        name: &str,
        markdown: impl FnOnce() -> String,
        report: &impl Serialize,
    ) -> anyhow::Result<()> {
        let Some(folder) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
        let write = |extension: &str, text: &str| {
            let file = folder.join(format!("{name}.{extension}"));
            std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))
        };
        write("md", &markdown())?;
        write("json", &(serde_json::to_string_pretty(report)? + "\n"))
    }

    /// Prints the report as one JSON object, or as what is for people.
    ///
    /// # Errors
    /// An output that takes nothing.
    pub(super) fn print(
        &self,
        report: &impl Serialize,
        markdown: impl FnOnce() -> String,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        if self.json {
            serde_json::to_writer_pretty(&mut *out, report).context("write the report")?;
            writeln!(out)?;
        } else {
            write!(out, "{}", markdown())?;
        }
        Ok(())
    }
}

/// Reads an earlier report of a benchmark.
fn read_report<R: DeserializeOwned>(path: &Path, benchmark: &str) -> anyhow::Result<R> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the earlier report {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("read {} as what `bench {benchmark} --json` prints", path.display()))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Report {
        cpu: String,
        speed: f64,
    }

    #[test]
    fn a_report_is_read_back() {
        let report = Report { cpu: "a CPU".to_owned(), speed: 2.5 };
        let folder = tempfile::tempdir().unwrap();
        let destination = Destination { out: Some(folder.path().to_owned()), ..Destination::default() };
        let draw = |path: &Path| Ok(std::fs::write(path, "<svg/>")?);
        destination.write("some", || "a table".to_owned(), &report, draw).unwrap();
        let json = folder.path().join("some.json");
        let later = Destination { compare: Some(json.clone()), ..Destination::default() };
        assert_eq!(later.earlier::<Report>("some").unwrap(), Some((json.as_path(), report)));
    }

    #[test]
    fn what_is_no_report_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.json");
        assert!(format!("{:#}", read_report::<Report>(&path, "search").unwrap_err()).contains("other.json"));
        for text in ["", "{}", r#"{"cpu": "x", "networks": []}"#] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", read_report::<Report>(&path, "search").unwrap_err());
            assert!(error.contains("other.json") && error.contains("bench search --json"), "{error}");
        }
    }
}
