use bytes::{Bytes, BytesMut};

use crate::{Digest, Manifest};

/// Puts a version's bytes together from chunks, resumable at any offset, and proves the digest at the end.
#[derive(Debug)]
pub struct Assembly {
    manifest: Manifest,
    bytes: BytesMut,
}

/// Reasons why chunks do not make a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// A version larger than the receiver accepts.
    #[error("the version has {size_bytes} bytes, the limit is {limit_bytes}")]
    TooLarge {
        /// The value in the manifest.
        size_bytes: u64,
        /// The limit of the receiver.
        limit_bytes: u64,
    },
    /// A chunk that does not continue where the last one ended.
    #[error("a chunk begins at byte {got}, expected {expected}")]
    Offset {
        /// The next byte wanted.
        expected: u64,
        /// The offset of the chunk.
        got: u64,
    },
    /// There are more bytes than the manifest promises.
    #[error("the chunks hold more than the {size_bytes} bytes of the manifest")]
    TooLong {
        /// The value in the manifest.
        size_bytes: u64,
    },
    /// The chunks ended early.
    #[error("the chunks end at byte {got} of {size_bytes}")]
    TooShort {
        /// The count of bytes that arrived.
        got: u64,
        /// The value in the manifest.
        size_bytes: u64,
    },
    /// All bytes are there and they are not the ones the manifest names.
    #[error("the bytes have digest {got}, the manifest has {expected}")]
    WrongDigest {
        /// The value in the manifest.
        expected: Digest,
        /// The digest of the bytes that arrived.
        got: Digest,
    },
}

impl Assembly {
    /// Begins with no bytes.
    ///
    /// # Errors
    /// [`AssemblyError::TooLarge`] before anything is allocated.
    pub fn new(manifest: Manifest, limit_bytes: u64) -> Result<Self, AssemblyError> {
        if manifest.size_bytes > limit_bytes {
            return Err(AssemblyError::TooLarge { size_bytes: manifest.size_bytes, limit_bytes });
        }
        Ok(Self { manifest, bytes: BytesMut::new() })
    }

    /// The manifest of the version.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The offset of the next chunk: where to resume after a broken connection.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns whether every byte has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.next_offset() == self.manifest.size_bytes
    }

    /// Adds the chunk that begins at `offset`.
    ///
    /// # Errors
    /// [`AssemblyError::Offset`] and [`AssemblyError::TooLong`]; what was there stays.
    pub fn add(&mut self, offset: u64, chunk: &[u8]) -> Result<(), AssemblyError> {
        if offset != self.next_offset() {
            return Err(AssemblyError::Offset { expected: self.next_offset(), got: offset });
        }
        if offset + chunk.len() as u64 > self.manifest.size_bytes {
            return Err(AssemblyError::TooLong { size_bytes: self.manifest.size_bytes });
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// The bytes, once they are all there and are the right ones.
    ///
    /// # Errors
    /// [`AssemblyError::TooShort`] and [`AssemblyError::WrongDigest`].
    pub fn finish(self) -> Result<Bytes, AssemblyError> {
        if !self.is_complete() {
            return Err(AssemblyError::TooShort { got: self.next_offset(), size_bytes: self.manifest.size_bytes });
        }
        let got = Digest::of(&self.bytes);
        if got != self.manifest.digest {
            return Err(AssemblyError::WrongDigest { expected: self.manifest.digest, got });
        }
        Ok(self.bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, WeightsVersion};

    const BYTES: &[u8] = b"some weights";

    fn manifest() -> Manifest {
        let architecture = Architecture {
            game: "any".into(),
            planes: 2,
            height: 3,
            width: 3,
            actions: 9,
            channels: 8,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
        };
        Manifest {
            version: WeightsVersion(4),
            training_step: 100,
            digest: Digest::of(BYTES),
            size_bytes: BYTES.len() as u64,
            architecture,
        }
    }

    fn assemble(chunks: &[(u64, &[u8])]) -> Result<Bytes, AssemblyError> {
        let mut assembly = Assembly::new(manifest(), 1 << 20)?;
        for (offset, chunk) in chunks {
            assembly.add(*offset, chunk)?;
        }
        assembly.finish()
    }

    #[test]
    fn chunks_in_order_make_the_version() {
        assert_eq!(assemble(&[(0, b"some "), (5, b"weights")]).unwrap(), BYTES);
    }

    #[test]
    fn a_changed_byte_fails_the_digest_check() {
        assert!(matches!(assemble(&[(0, b"some Weights")]), Err(AssemblyError::WrongDigest { .. })));
    }

    #[test]
    fn gaps_excess_and_early_ends_are_refused() {
        assert_eq!(assemble(&[(1, b"x")]), Err(AssemblyError::Offset { expected: 0, got: 1 }));
        assert_eq!(assemble(&[(0, b"some weights!")]), Err(AssemblyError::TooLong { size_bytes: 12 }));
        assert_eq!(assemble(&[(0, b"some")]), Err(AssemblyError::TooShort { got: 4, size_bytes: 12 }));
    }

    #[test]
    fn a_version_over_the_limit_is_refused_before_a_byte_is_read() {
        let result = Assembly::new(manifest(), 11).map(|_| ());
        assert_eq!(result, Err(AssemblyError::TooLarge { size_bytes: 12, limit_bytes: 11 }));
    }

    #[test]
    fn a_manifest_is_read_back_from_its_json() {
        let text = serde_json::to_string(&manifest()).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest());
    }
}
