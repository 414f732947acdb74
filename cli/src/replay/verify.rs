use std::io::Write;

use anyhow::{Context, ensure};
use replay_server::verify::{Verified, verify as verify_log};

use super::source::RunArgs;

/// Reads a run's log and says what it holds and what is wrong with it.
///
/// # Errors
/// A log that is in use or cannot be read, and one that is damaged.
pub(super) fn verify(run: &RunArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let settings = run.settings()?;
    // A server that writes meanwhile would look like damage at the end.
    let _lock = service::directory::lock(&settings.directory).context("read the log while nobody writes it")?;
    let Verified { trajectories, items, notes, segments, bytes, damage } = verify_log(&settings)?;
    writeln!(
        out,
        "{trajectories} trajectories of {items} positions and {notes} other records in {segments} files of {:.1} MB",
        bytes as f64 / 1e6
    )?;
    for found in &damage {
        let done = if found.cut { "cut off" } else { "skipped" };
        writeln!(
            out,
            "{}: {} bytes from byte {} on are {}: a start would have them {done}",
            found.name, found.length, found.offset, found.what
        )?;
    }
    ensure!(damage.is_empty(), "the log of {} is damaged in {} places", settings.directory.display(), damage.len());
    writeln!(out, "every checksum is right")?;
    Ok(())
}
