use weights::Architecture;

use crate::Error;

/// The most planes of an observation.
pub const PLANES_MAX: usize = 1024;
/// The longest side of a board, in cells.
pub const SIDE_MAX: usize = 64;
/// The most actions of a policy.
pub const ACTIONS_MAX: usize = 65_535;
/// The most channels of a tower.
pub const CHANNELS_MAX: usize = 2048;
/// The most residual blocks of a tower.
pub const BLOCKS_MAX: usize = 256;
/// The most hidden units of squeeze-and-excitation.
pub const SQUEEZE_EXCITATION_MAX: usize = 2048;

/// Checks every size of an architecture.
///
/// Architectures come from manifests, hence from outside: the limits keep every size far from overflow and from memory
/// that no machine has.
///
/// # Errors
/// [`Error::Architecture`] names the first dimension that is out of range.
pub fn check(architecture: &Architecture) -> Result<(), Error> {
    let &Architecture { planes, height, width, actions, channels, blocks, squeeze_excitation, global_pooling, .. } =
        architecture;
    let dimensions = [
        ("planes", planes, 1, PLANES_MAX),
        ("height", height, 1, SIDE_MAX),
        ("width", width, 1, SIDE_MAX),
        ("actions", actions, 1, ACTIONS_MAX),
        ("channels", channels, 1, CHANNELS_MAX),
        // A network may have no block.
        ("blocks", blocks, 0, BLOCKS_MAX),
        ("squeeze_excitation", squeeze_excitation, 0, SQUEEZE_EXCITATION_MAX),
        // At least one channel is left for the result of the pooling.
        ("global_pooling", global_pooling, 0, channels.saturating_sub(1)),
    ];
    for (what, got, least, limit) in dimensions {
        if got < least || got > limit {
            return Err(Error::Architecture { what, got, least, limit });
        }
    }
    Ok(())
}
