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
fn a_flipped_byte_is_seen() {
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
fn a_manifest_survives_json() {
    let text = serde_json::to_string(&manifest()).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest());
}
