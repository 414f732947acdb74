//! Detects a version that is weaker than an earlier version. Start with [`regression`].

use strength::ledger::{Ledger, Player, Rated};

/// A version that is significantly weaker than the best version before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Regression {
    /// Best rated version.
    pub(crate) best: Player,
    /// Strength of the weaker version relative to the best, with an interval below 0.
    pub(crate) difference: Rated,
}

/// Compares a version with the best of the other versions. The best version has the highest lower bound of the rating
/// interval, since few games prove little. Returns `None` unless the 95 % interval of the difference is below 0.
pub(crate) fn regression(ledger: &Ledger, ratings: &[Rated], version: Player) -> Option<Regression> {
    let is_other = |rated: &&Rated| matches!(rated.player, Player::Version(_)) && rated.player != version;
    let best = ratings.iter().filter(is_other).max_by(|a, b| a.low.total_cmp(&b.low))?.player;
    let difference = ledger.difference(version, best)?;
    (difference.high < 0.0).then_some(Regression { best, difference })
}

#[cfg(test)]
mod tests {
    use strength::ledger::{Ledger, Player, Tally};
    use weights::WeightsVersion;

    use super::regression;

    const OLD: Player = Player::Version(WeightsVersion(3));
    const NEW: Player = Player::Version(WeightsVersion(4));

    /// Returns the best version and the Elo difference if the new version, with these results against random play, is
    /// found to be weaker. The old version won 20 of 24 openings against random play.
    fn found(new: Tally) -> Option<(Player, f64)> {
        let mut ledger = Ledger::new("connect_four");
        ledger.add(OLD, Player::Random, Tally { pairs: [0, 0, 2, 2, 20] });
        ledger.add(NEW, Player::Random, new);
        let found = regression(&ledger, &ledger.ratings(), NEW);
        found.map(|found| (found.best, found.difference.elo))
    }

    #[test]
    fn a_version_with_a_clearly_lower_score_is_a_regression_against_the_best_one() {
        let (best, elo) = found(Tally { pairs: [2, 4, 12, 4, 2] }).unwrap();
        assert!(best == OLD && elo < -200.0, "{best} {elo}");
    }

    #[test]
    fn an_equal_score_few_games_and_a_first_version_are_no_regression() {
        assert_eq!(found(Tally { pairs: [0, 0, 2, 2, 20] }), None);
        assert_eq!(found(Tally { pairs: [0, 0, 0, 1, 0] }), None);
        let mut ledger = Ledger::new("connect_four");
        ledger.add(NEW, Player::Random, Tally { pairs: [9, 0, 0, 0, 0] });
        assert_eq!(regression(&ledger, &ledger.ratings(), NEW), None);
    }
}
