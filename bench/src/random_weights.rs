use game::Spec;
use network_torch::{Device, Network};
use weights::{Architecture, Digest, Manifest, WeightsVersion};

/// A tower of random weights for a game, as the first published version; the seed alone decides them.
///
/// # Errors
/// A size that no network has.
pub(super) fn random_weights(
    spec: &Spec,
    blocks: usize,
    channels: usize,
    seed: u64,
) -> anyhow::Result<(Manifest, Vec<u8>)> {
    let shape = spec.observation;
    let architecture = Architecture {
        game: spec.name.clone(),
        planes: shape.planes,
        height: shape.height,
        width: shape.width,
        actions: spec.actions,
        channels,
        blocks,
        squeeze_excitation: 0,
        global_pooling: 0,
    };
    let bytes = Network::new(&architecture, Device::Cpu, seed)?.to_safetensors()?;
    let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
    Ok((Manifest { version: WeightsVersion(1), training_step: 0, digest, size_bytes, architecture }, bytes))
}
