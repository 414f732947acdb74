use std::io::Write;

use anyhow::{Context, ensure};
use replay_server::verify::{Verified, verify as verify_log};

use super::source::RunArgs;

/// Checks a run's log and prints its contents and damage.
///
/// # Errors
/// A log that is in use or cannot be read, and one that is damaged.
pub(super) fn verify(run: &RunArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let settings = run.settings()?;
    // A record that a server is writing would look like damage at the end.
    let _lock = service::directory::lock(&settings.directory).context("lock the log")?;
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
            "{}: {} bytes from byte {} are {}; a restart would have them {done}",
            found.name, found.length, found.offset, found.what
        )?;
    }
    ensure!(damage.is_empty(), "the log of {} is damaged in {} places", settings.directory.display(), damage.len());
    writeln!(out, "all checksums are valid")?;
    Ok(())
}
