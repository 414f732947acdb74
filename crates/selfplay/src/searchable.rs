use game::{Dynamics, Game, Scoring, Spec};

/// The reason why a game cannot be searched by its rules with an evaluator of wins, draws and losses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{game} {reason}: it needs a network with learned dynamics (network.model = \"muzero\")")]
pub struct NotSearchable {
    /// The name of the game.
    pub game: String,
    /// The property of the game that forbids it.
    pub reason: &'static str,
}

/// Checks that AlphaZero can learn a game: its outcomes are wins, draws and losses, and actions have no random results,
/// so that a search that plays them by the rules sees nothing that a player could not foresee.
///
/// # Errors
/// [`NotSearchable`] names the property of the game that forbids it.
pub fn check_searchable<G: Game>(game: &G) -> Result<(), NotSearchable> {
    check(game.spec())
}

fn check(spec: &Spec) -> Result<(), NotSearchable> {
    let refuse = |reason| Err(NotSearchable { game: spec.name.clone(), reason });
    match (spec.scoring, spec.dynamics) {
        (Scoring::Outcome, Dynamics::Deterministic) => Ok(()),
        (Scoring::Rewards, _) => refuse("is scored by its rewards, which an AlphaZero network does not predict"),
        (_, Dynamics::Stochastic) => refuse("has random results, which a search by the rules would foresee"),
    }
}

#[cfg(test)]
mod tests {
    use game::ObservationShape;

    use super::*;

    #[test]
    fn only_deterministic_games_scored_by_outcome_are_searched_by_their_rules() {
        let board = Spec::board("chess".to_owned(), 1, ObservationShape { planes: 1, height: 1, width: 1 }, 1);
        assert_eq!(check(&board), Ok(()));
        let rewarded = Spec { scoring: Scoring::Rewards, ..board.clone() };
        let error = check(&rewarded).unwrap_err().to_string();
        assert!(error.starts_with("chess is scored by its rewards") && error.contains("muzero"), "{error}");
        let error = check(&Spec { dynamics: Dynamics::Stochastic, ..board }).unwrap_err().to_string();
        assert!(error.starts_with("chess has random results"), "{error}");
    }
}
