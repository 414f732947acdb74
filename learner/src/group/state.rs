//! Serialises the training state, which group members with fewer steps load from another member.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use version_store::checkpoint::{Checkpoint, Progress};

/// Maximum header length, in bytes: a thousand times the header of any existing trainer.
const HEADER_BYTES_MAX: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    progress: Progress,
    files: Vec<(String, usize)>,
}

/// Encodes a state as the header length, the header and the files.
pub(crate) fn encode(checkpoint: &Checkpoint) -> anyhow::Result<Vec<u8>> {
    let Checkpoint { progress, files } = checkpoint;
    let lengths = files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect();
    let header =
        serde_json::to_vec(&Header { progress: progress.clone(), files: lengths }).context("write the header")?;
    let mut all = (header.len() as u64).to_le_bytes().to_vec();
    all.extend(header);
    files.iter().for_each(|(_, bytes)| all.extend(bytes));
    Ok(all)
}

/// Decodes a state that [`encode`] has encoded.
pub(crate) fn decode(bytes: &[u8]) -> anyhow::Result<Checkpoint> {
    let (length, rest) = bytes.split_first_chunk().context("the state is truncated")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    ensure!(length <= HEADER_BYTES_MAX && length <= rest.len(), "the state has a header of {length} bytes");
    let (header, mut rest) = rest.split_at(length);
    let Header { progress, files } = serde_json::from_slice(header).context("read the header of the state")?;
    let mut read = Vec::new();
    for (name, length) in files {
        let (file, after) =
            rest.split_at_checked(length).with_context(|| format!("the state is truncated in {name}"))?;
        read.push((name, file.to_vec()));
        rest = after;
    }
    ensure!(rest.is_empty(), "the state has {} bytes after the end", rest.len());
    Ok(Checkpoint { progress, files: read })
}

#[cfg(test)]
mod tests {
    use weights::Model;

    use super::*;
    use crate::trainer::conformance::architecture;

    fn checkpoint() -> Checkpoint {
        let architecture = architecture(Model::Alphazero);
        let (training_step, positions, window_passes) = (3, 7, 0.25);
        let progress = Progress { training_step, positions, window_passes, elapsed_seconds: 0.5, architecture };
        Checkpoint { progress, files: vec![("a".to_owned(), vec![1, 2, 3]), ("b".to_owned(), vec![4])] }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        assert_eq!(decode(&encode(&checkpoint()).unwrap()).unwrap(), checkpoint());
    }

    #[test]
    fn a_state_that_is_cut_too_long_or_has_a_wrong_header_is_refused() {
        let good = encode(&checkpoint()).unwrap();
        for length in 0..good.len() {
            assert!(decode(&good[..length]).is_err(), "cut at {length}");
        }
        assert!(decode(&[&good[..], &[0]].concat()).is_err());
        let mut endless = good;
        endless[..8].fill(0xff);
        assert!(decode(&endless).unwrap_err().to_string().contains("header of"));
    }
}
