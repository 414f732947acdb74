//! The file `gate.json` in a run directory, which stores the weights version that the arena's gate accepted last.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use service::directory::{FileError, if_exists, replace};
use weights::WeightsVersion;

/// Name of the file in the run directory.
pub const FILE: &str = "gate.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    accepted: WeightsVersion,
}

/// Reads the accepted version from the file `path`; `None` if the file does not exist.
///
/// # Errors
/// The file cannot be read, or does not contain an accepted version.
pub fn read(path: &Path) -> anyhow::Result<Option<WeightsVersion>> {
    let file = path.display();
    let text = if_exists(fs::read(path)).with_context(|| format!("read {file}"))?;
    let document = text.map(|text| serde_json::from_slice::<Document>(&text)).transpose();
    let document = document
        .with_context(|| format!("{file} names no accepted version; delete the file to accept the latest version"))?;
    Ok(document.map(|document| document.accepted))
}

/// Writes the accepted version to the file `path`, atomically.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, accepted: WeightsVersion) -> Result<(), FileError> {
    replace(path, &serde_json::to_vec(&Document { accepted }).expect("a number has a form in JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_earlier_revisions_are_read_with_their_content() {
        for path in earlier_revisions::of_each("gate.json").unwrap() {
            let (accepted, folder) = (read(&path).unwrap().unwrap(), tempfile::tempdir().unwrap());
            let again = folder.path().join(FILE);
            write(&again, accepted).unwrap();
            let json = |path: &Path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
            assert_eq!(json(&again), json(&path));
        }
    }
}
