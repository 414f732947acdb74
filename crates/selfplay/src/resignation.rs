//! Decides when a player resigns, and whether the game continues afterwards.

use game::{Outcome, Player, Players};
use rand::{Rng, RngExt};

use crate::settings::{Resignation, Resigned};

/// Tracks the search values of one episode and decides on resignation.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    resignation: Resignation,
    /// True for a calibration episode, which is played out with unchanged searches despite a resignation.
    pub(crate) is_calibration: bool,
    hopeless_moves: [u16; 2],
    /// The player who resigned, or would have resigned in a calibration episode.
    pub(crate) resigner: Option<Player>,
}

impl Watch {
    /// Starts watching an episode, and draws whether it is a calibration episode.
    pub(crate) fn new(resignation: Resignation, players: Players, rng: &mut impl Rng) -> Self {
        let resignation = if players == Players::One { Resignation::Never } else { resignation };
        let is_calibration = match resignation {
            Resignation::Never => false,
            Resignation::Below { calibration_share, .. } => rng.random::<f32>() < calibration_share,
        };
        Self { resignation, is_calibration, hopeless_moves: [0; 2], resigner: None }
    }

    /// Records the search value of a move by `mover`. Returns the game outcome if a resignation ends the game.
    pub(crate) fn observe(&mut self, mover: Player, value: f32) -> Option<Outcome> {
        let Resignation::Below { threshold, consecutive, resigned, .. } = self.resignation else {
            return None;
        };
        if self.resigner.is_some() {
            return None;
        }
        let hopeless = &mut self.hopeless_moves[mover.index()];
        *hopeless = if value < threshold { hopeless.saturating_add(1) } else { 0 };
        if *hopeless < consecutive {
            return None;
        }
        self.resigner = Some(mover);
        match resigned {
            Resigned::Decided if !self.is_calibration => Some(Outcome::Win(mover.opponent())),
            Resigned::Decided | Resigned::PlayedOut => None,
        }
    }

    /// Returns true if a resignation is in effect: the rest of the game is played with fast searches only.
    pub(crate) fn is_resigned(&self) -> bool {
        self.resigner.is_some() && !self.is_calibration
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn watch(calibration_share: f32, resigned: Resigned) -> Watch {
        let below = Resignation::Below { threshold: -0.9, consecutive: 2, calibration_share, resigned };
        Watch::new(below, Players::Two, &mut ChaCha8Rng::seed_from_u64(1))
    }

    #[test]
    fn a_player_resigns_after_consecutive_own_values_below_the_threshold() {
        let mut watch = watch(0.0, Resigned::Decided);
        assert_eq!(watch.observe(Player::First, -0.95), None);
        assert_eq!(watch.observe(Player::Second, 0.95), None);
        assert_eq!(watch.observe(Player::First, -0.95), Some(Outcome::Win(Player::Second)));
    }

    #[test]
    fn a_value_above_the_threshold_restarts_the_count() {
        let mut watch = watch(0.0, Resigned::Decided);
        for value in [-0.95, -0.5, -0.95] {
            assert_eq!(watch.observe(Player::Second, value), None);
        }
        assert_eq!(watch.resigner, None);
    }

    #[test]
    fn a_resigned_game_that_is_played_out_is_only_marked() {
        let mut watch = watch(0.0, Resigned::PlayedOut);
        watch.observe(Player::First, -1.0);
        assert_eq!(watch.observe(Player::First, -1.0), None);
        assert!(watch.is_resigned());
    }

    #[test]
    fn calibration_games_are_played_out_and_record_the_resigner() {
        let mut watch = watch(1.0, Resigned::Decided);
        watch.observe(Player::First, -1.0);
        assert_eq!(watch.observe(Player::First, -1.0), None);
        assert!(!watch.is_resigned());
        assert_eq!(watch.resigner, Some(Player::First));
    }

    #[test]
    fn games_for_one_player_are_never_resigned() {
        let below =
            Resignation::Below { threshold: -0.1, consecutive: 1, calibration_share: 0.0, resigned: Resigned::Decided };
        let mut watch = Watch::new(below, Players::One, &mut ChaCha8Rng::seed_from_u64(1));
        assert_eq!(watch.observe(Player::First, -1.0), None);
    }
}
