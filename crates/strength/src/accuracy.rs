//! Measures accuracy on solved positions. Start with [`measure`].

use std::ops::ControlFlow;

use game::Game;

use crate::contestant::Contestant;
use crate::solved::{Accuracy, SolvedPosition};

/// Number of positions searched between two pauses.
const CHUNK: usize = 100;

/// Returns at most `count_max` of the positions, evenly spaced so that each band keeps about the same fraction. The
/// selection is deterministic.
pub fn subset(positions: Vec<SolvedPosition>, count_max: usize) -> Vec<SolvedPosition> {
    let all = positions.len();
    if all <= count_max {
        return positions;
    }
    // Position i is taken if a new multiple of all / count_max starts at i.
    let is_taken = |index: usize| (index + 1) * count_max / all > index * count_max / all;
    positions.into_iter().enumerate().filter(|(index, _)| is_taken(*index)).map(|(_, position)| position).collect()
}

/// Measures the accuracy of `contestant` on `positions`. `pause` is called between chunks; the result is `None` if
/// `pause` stopped the measurement.
///
/// # Errors
/// An evaluator fails.
pub fn measure<G: Game>(
    game: &G,
    positions: &[SolvedPosition],
    contestant: &mut dyn Contestant<G>,
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Accuracy>, inference::Error> {
    let mut accuracy = Accuracy::default();
    for chunk in positions.chunks(CHUNK) {
        let boards: Vec<G::Position> = chunk.iter().map(|solved| solved.position(game)).collect();
        for (solved, chosen) in chunk.iter().zip(contestant.assess(game, &boards)?) {
            accuracy.add(solved, chosen);
        }
        if pause().is_break() {
            return Ok(None);
        }
    }
    Ok(Some(accuracy))
}

#[cfg(test)]
mod tests {
    //! Tests measurements on solved positions.

    use std::ops::ControlFlow;

    use games::ConnectFour;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::{measure, subset};
    use crate::contestant::RandomMover;
    use crate::solved::{SolvedPosition, bundled};

    fn positions() -> Vec<SolvedPosition> {
        bundled(&ConnectFour::new()).unwrap()
    }

    fn random() -> RandomMover {
        RandomMover { rng: ChaCha8Rng::seed_from_u64(3) }
    }

    #[test]
    fn a_subset_has_the_requested_size_and_spreads_over_all_bands() {
        let all = positions();
        let band = |of: &[SolvedPosition], name: &str| of.iter().filter(|p| p.band() == name).count() as f64;
        let some = subset(all.clone(), 300);
        assert_eq!(some.len(), 300);
        for name in ["early", "middle", "late"] {
            let (share, expected) = (band(&some, name) / 300.0, band(&all, name) / all.len() as f64);
            assert!((share - expected).abs() < 0.01, "{name}: {share} instead of {expected}");
        }
        assert_eq!(subset(all.clone(), usize::MAX), all);
        assert!(subset(all, 0).is_empty());
    }

    /// Random play keeps the outcome in 37 % of the bundled positions. All bundled positions are scored; the tolerance
    /// is five standard errors of the same number of coin tosses.
    #[test]
    fn random_play_is_measured_at_its_known_accuracy() {
        let all = positions();
        let accuracy =
            measure(&ConnectFour::new(), &all, &mut random(), &mut || ControlFlow::Continue(())).unwrap().unwrap();
        let tolerance = 5.0 * (0.37 * 0.63 / all.len() as f64).sqrt();
        let share = accuracy.overall.outcome_preserving_share();
        assert!((share - 0.37).abs() < tolerance, "{share} ± {tolerance}");
        assert_eq!(accuracy.overall.positions, all.len() as u64);
    }

    #[test]
    fn a_measurement_that_is_stopped_has_no_result() {
        let broken = measure(&ConnectFour::new(), &positions(), &mut random(), &mut || ControlFlow::Break(())).unwrap();
        assert_eq!(broken, None);
    }
}
