use game::{Dynamics, Game, Spec};

/// The reason why a game cannot be searched by the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{game} {reason}; use a network with learned dynamics (network.model = \"muzero\")")]
pub struct NotSearchable {
    /// The name of the game.
    pub game: String,
    /// The property of the game that prevents search by the rules.
    pub reason: &'static str,
}

/// Checks that a game can be searched by the rules, as AlphaZero requires. The rules must be implemented in this
/// program. If actions have random results, the rules must provide the probabilities: otherwise a search would foresee
/// the random results.
///
/// # Errors
/// [`NotSearchable`] names the property of the game that prevents search by the rules.
pub fn check_searchable<G: Game>(game: &G) -> Result<(), NotSearchable> {
    let Spec { name, recording, dynamics, .. } = game.spec();
    let refuse = |reason| Err(NotSearchable { game: name.clone(), reason });
    if recording.is_some() {
        return refuse("runs outside this program, so a search has no rules");
    }
    if *dynamics == Dynamics::Stochastic && !game.knows_chances() {
        return refuse("has random results of unknown distribution, so a search by the rules would foresee them");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use game::{ObservationRange, ObservationShape};
    use games::TicTacToe;
    use games::catch::Catch;
    use games::recorded::Described;
    use games::twenty_forty_eight::TwentyFortyEight;

    use super::*;

    #[test]
    fn games_whose_rules_are_at_hand_are_searched_by_them_whatever_their_scores_and_chances() {
        assert_eq!(check_searchable(&TicTacToe::new()), Ok(()));
        assert_eq!(check_searchable(&Catch::new()), Ok(()));
        assert_eq!(check_searchable(&TwentyFortyEight::new()), Ok(()));
    }

    #[test]
    fn an_environment_outside_the_program_is_refused_with_the_reason() {
        let frame = ObservationShape { planes: 2, height: 1, width: 1 };
        let (name, range) = ("gym:Outside".to_owned(), ObservationRange::Unit);
        let outside = Described { name, actions: 3, frame, stack: 1, range, steps_max: 9 }.environment().unwrap();
        let error = check_searchable(&outside).unwrap_err().to_string();
        assert!(error.starts_with("gym:Outside runs outside this program") && error.contains("muzero"), "{error}");
    }
}
