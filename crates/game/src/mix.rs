/// Mixes the bits of `key` bijectively: distinct keys have distinct hashes. Used for position hashes, for seeds and
/// for other pseudo-random numbers that are equal on every machine.
///
/// SplitMix64's finaliser, Steele et al. 2014.
#[must_use]
pub const fn mix(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}
