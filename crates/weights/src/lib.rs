//! What a set of weights is: version, manifest, digest, chunks.
