use bytes::{Bytes, BytesMut};

use crate::{Digest, Manifest};

/// Assembles the bytes of a weights version from chunks, resumable at any offset, and verifies the digest at the end.
#[derive(Debug)]
pub struct Assembly {
    manifest: Manifest,
    bytes: BytesMut,
}

/// Reasons why chunks cannot be assembled into a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// The version exceeds the size limit of the receiver.
    #[error("the version has {size_bytes} bytes, the limit is {limit_bytes}")]
    TooLarge {
        /// Size in the manifest.
        size_bytes: u64,
        /// Limit of the receiver.
        limit_bytes: u64,
    },
    /// The chunk does not start where the previous one ended.
    #[error("a chunk starts at byte {got}, expected {expected}")]
    Offset {
        /// Expected offset.
        expected: u64,
        /// Offset of the chunk.
        got: u64,
    },
    /// The chunks hold more bytes than the manifest states.
    #[error("the chunks exceed the {size_bytes} bytes declared in the manifest")]
    TooLong {
        /// Size in the manifest.
        size_bytes: u64,
    },
    /// The chunks end before the size in the manifest.
    #[error("the chunks end at byte {got} of {size_bytes}")]
    TooShort {
        /// Number of bytes received.
        got: u64,
        /// Size in the manifest.
        size_bytes: u64,
    },
    /// All bytes were received, but the digest differs from the manifest.
    #[error("the bytes have digest {got}, the manifest has {expected}")]
    WrongDigest {
        /// Digest in the manifest.
        expected: Digest,
        /// Digest of the received bytes.
        got: Digest,
    },
}

impl Assembly {
    /// Creates an assembly without bytes.
    ///
    /// # Errors
    /// [`AssemblyError::TooLarge`] before anything is allocated.
    pub fn new(manifest: Manifest, limit_bytes: u64) -> Result<Self, AssemblyError> {
        if manifest.size_bytes > limit_bytes {
            return Err(AssemblyError::TooLarge { size_bytes: manifest.size_bytes, limit_bytes });
        }
        Ok(Self { manifest, bytes: BytesMut::new() })
    }

    /// Returns the manifest of the version.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the offset of the next chunk, from which to resume after a disconnection.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns true if all bytes were received.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.next_offset() == self.manifest.size_bytes
    }

    /// Adds the chunk that starts at `offset`.
    ///
    /// # Errors
    /// [`AssemblyError::Offset`] and [`AssemblyError::TooLong`]; the chunks added so far are kept.
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

    /// Returns the bytes, if they are complete and match the digest.
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
        let architecture = Architecture::plain("any", [2, 3, 3], 9, [8, 1]);
        Manifest::of(BYTES, WeightsVersion(4), 100, architecture)
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
