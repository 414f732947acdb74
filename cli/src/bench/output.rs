//! Where reports go: a terminal, or files of a folder.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads an earlier report of a benchmark.
///
/// # Errors
/// A file that cannot be read, or that is no report of that benchmark.
pub(super) fn read_report<R: DeserializeOwned>(path: &Path, benchmark: &str) -> anyhow::Result<R> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the earlier report {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("read {} as what `bench {benchmark} --json` prints", path.display()))
}

/// Prints the report as one JSON object, or as what is for people.
///
/// # Errors
/// An output that takes nothing.
pub(super) fn print(
    as_json: bool,
    report: &impl Serialize,
    markdown: impl FnOnce() -> String,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if as_json {
        serde_json::to_writer_pretty(&mut *out, report).context("write the report")?;
        writeln!(out)?;
    } else {
        write!(out, "{}", markdown())?;
    }
    Ok(())
}

/// Writes `name`.md, `name`.json and `name`.svg into `folder`, which is made if it is not there.
///
/// # Errors
/// A folder or file that cannot be written.
pub(super) fn write(
    folder: &Path,
    name: &str,
    markdown: &str,
    report: &impl Serialize,
    draw: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    write_without_picture(folder, name, markdown, report)?;
    draw(&folder.join(format!("{name}.svg")))
}

/// Writes `name`.md and `name`.json into `folder`, which is made if it is not there.
///
/// # Errors
/// A folder or file that cannot be written.
pub(super) fn write_without_picture(
    folder: &Path,
    name: &str,
    markdown: &str,
    report: &impl Serialize,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let write = |extension: &str, text: &str| {
        let file = folder.join(format!("{name}.{extension}"));
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))
    };
    write("md", markdown)?;
    write("json", &(serde_json::to_string_pretty(report)? + "\n"))
}

#[cfg(test)]
mod tests;
