use game::mix;

/// Increment of SplitMix64.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator of pseudo-random numbers inside a position: SplitMix64 (Steele et al. 2014), equal on every machine.
///
/// A position holds the generator, so that equal positions have equal futures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generator {
    state: u64,
}

impl Generator {
    /// Returns the generator for the episode with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // Without the mixing, the streams of consecutive seeds would be equal except for a shift.
        Self { state: mix(seed) }
    }

    /// Returns the state, which determines all later numbers.
    #[must_use]
    pub const fn state(self) -> u64 {
        self.state
    }

    /// Draws 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        let bits = mix(self.state);
        self.state = self.state.wrapping_add(INCREMENT);
        bits
    }

    /// Draws an index below `count`.
    ///
    /// The probabilities differ from 1 / `count` by less than 2⁻⁶⁴ (Lemire 2019, without rejection).
    ///
    /// # Panics
    /// If `count` is 0 or exceeds 2³².
    pub fn below(&mut self, count: usize) -> usize {
        assert!((1..=1 << 32).contains(&(count as u64)), "an index below {count}");
        let product = u128::from(self.bits()) * count as u128;
        usize::try_from(product >> 64).expect("an index below a count")
    }

    /// Draws uniformly from `[0, 1)`: a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        // 53 bits fit the significand.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws uniformly from `[-bound, bound)`.
    pub fn within(&mut self, bound: f64) -> f64 {
        (2.0 * self.unit() - 1.0) * bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    #[test]
    fn the_bits_are_those_of_the_published_generator() {
        // First outputs of SplitMix64 from state 0 in Vigna's reference implementation.
        let mut generator = Generator { state: 0 };
        let expected = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(expected.map(|_| generator.bits()), expected);
    }

    #[test]
    fn consecutive_seeds_give_other_numbers() {
        let mut bits: Vec<u64> = (0..1000).map(|seed| Generator::new(seed).bits()).collect();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), 1000);
    }

    #[test]
    fn indices_are_uniform() {
        let mut generator = Generator::new(1);
        let mut counts = [0_u32; 6];
        (0..DRAWS).for_each(|_| counts[generator.below(6)] += 1);
        // Six standard deviations of a binomial count.
        let (mean, tolerance) = (DRAWS as f64 / 6.0, 6.0 * (DRAWS as f64 * 5.0 / 36.0).sqrt());
        for count in counts {
            assert!((f64::from(count) - mean).abs() < tolerance, "{counts:?}");
        }
    }

    #[test]
    fn uniform_numbers_have_the_mean_and_the_variance_of_their_distribution() {
        let mut generator = Generator::new(2);
        let draws: Vec<f64> = (0..DRAWS).map(|_| generator.within(3.0)).collect();
        assert!(draws.iter().all(|draw| (-3.0..3.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / DRAWS as f64;
        let square = draws.iter().map(|draw| draw * draw).sum::<f64>() / DRAWS as f64;
        // Six standard errors: the variance of a draw is 3, the variance of its square 81 / 5 - 9.
        assert!(mean.abs() < 6.0 * (3.0 / DRAWS as f64).sqrt(), "{mean}");
        assert!((square - 3.0).abs() < 6.0 * (7.2 / DRAWS as f64).sqrt(), "{square}");
    }
}
