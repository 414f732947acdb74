//! Verifies perfect play in games as small as tic-tac-toe: one player plays against every sequence of replies.
//!
//! The player's choice must depend only on the position, as in a search without noise, because each position is
//! searched only once. Start with [`check`].

use std::collections::HashSet;

use game::{Action, Game, Player};

use crate::contestant::Contestant;

/// Counts of the final positions over every line of a game.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of positions in which the contestant chose a move.
    pub decisions: usize,
    /// Number of final positions won by the contestant; a position reached by several lines counts once.
    pub won: usize,
    /// Number of final positions that are draws.
    pub drawn: usize,
    /// Number of final positions lost by the contestant.
    pub lost: usize,
    /// One lost line, if there is any.
    pub lost_line: Option<Vec<Action>>,
}

/// Plays `contestant` from both sides against every sequence of replies.
///
/// The game must be small: memory holds all positions of one ply at once.
///
/// # Errors
/// An evaluator fails.
pub fn check<G: Game>(game: &G, contestant: &mut dyn Contestant<G>) -> Result<Report, inference::Error> {
    let mut report = Report::default();
    for side in [Player::First, Player::Second] {
        check_side(game, contestant, side, &mut report)?;
    }
    Ok(report)
}

struct Line<P> {
    position: P,
    actions: Vec<Action>,
}

fn check_side<G: Game>(
    game: &G,
    contestant: &mut dyn Contestant<G>,
    side: Player,
    report: &mut Report,
) -> Result<(), inference::Error> {
    let mut frontier = vec![Line { position: game.start(), actions: Vec::new() }];
    let mut legal = Vec::new();
    while !frontier.is_empty() {
        let (own, replies): (Vec<_>, Vec<_>) =
            frontier.into_iter().partition(|line| game.to_move(&line.position) == side);
        report.decisions += own.len();
        let positions: Vec<G::Position> = own.iter().map(|line| line.position.clone()).collect();
        let chosen = if positions.is_empty() { Vec::new() } else { contestant.choose(game, &positions)? };

        let mut seen = HashSet::new();
        let mut next = Vec::new();
        let mut extend = |line: &Line<G::Position>, action: Action| {
            let mut position = line.position.clone();
            game.play(&mut position, action);
            if seen.insert(game.hash(&position)) {
                let actions = line.actions.iter().copied().chain([action]).collect();
                next.push(Line { position, actions });
            }
        };
        for (line, action) in own.iter().zip(chosen) {
            extend(line, action);
        }
        for line in &replies {
            game.legal_actions(&line.position, &mut legal);
            for &action in &legal {
                extend(line, action);
            }
        }
        next.retain(|line| match game.outcome(&line.position) {
            Some(outcome) => {
                report.count(outcome.value_for(side), &line.actions);
                false
            }
            None => true,
        });
        frontier = next;
    }
    Ok(())
}

impl Report {
    fn count(&mut self, value: f32, line: &[Action]) {
        if value > 0.0 {
            self.won += 1;
        } else if value < 0.0 {
            self.lost += 1;
            self.lost_line.get_or_insert_with(|| line.to_vec());
        } else {
            self.drawn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests the check with a perfect player and players with known faults.

    use game::{Action, Game, Player};
    use games::TicTacToe;
    use games::tic_tac_toe::Position;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::check;
    use crate::contestant::{Contestant, RandomMover};

    /// A perfect player, which searches every line to the end.
    struct Minimax;

    impl Minimax {
        /// Returns the best outcome for the player to move, and the first action that reaches it.
        fn solve(game: &TicTacToe, position: &Position) -> (f32, Action) {
            let mover = game.to_move(position);
            let mut legal = Vec::new();
            game.legal_actions(position, &mut legal);
            let value = |action: Action| {
                let mut next = *position;
                game.play(&mut next, action);
                match game.outcome(&next) {
                    Some(outcome) => outcome.value_for(mover),
                    None => -Self::solve(game, &next).0,
                }
            };
            legal.into_iter().map(|action| (value(action), action)).rev().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
        }
    }

    impl Contestant<TicTacToe> for Minimax {
        fn choose(&mut self, game: &TicTacToe, positions: &[Position]) -> Result<Vec<Action>, inference::Error> {
            Ok(positions.iter().map(|position| Self::solve(game, position).1).collect())
        }
    }

    /// A player that is perfect except in one position: it does not take the centre after a corner opening.
    struct OneBlunder;

    impl Contestant<TicTacToe> for OneBlunder {
        fn choose(&mut self, game: &TicTacToe, positions: &[Position]) -> Result<Vec<Action>, inference::Error> {
            let corner = game.replay(&[Action(0)]).unwrap();
            let best = positions.iter().zip(Minimax.choose(game, positions)?);
            Ok(best.map(|(position, action)| if *position == corner { Action(1) } else { action }).collect())
        }
    }

    #[test]
    fn a_perfect_player_never_loses_from_either_side() {
        let report = check(&TicTacToe::new(), &mut Minimax).unwrap();
        assert_eq!((report.lost, &report.lost_line), (0, &None), "{report:?}");
        assert!(report.won > 0 && report.drawn > 0 && report.decisions > 100, "{report:?}");
    }

    #[test]
    fn a_single_blunder_is_found_and_its_line_shown() {
        let game = TicTacToe::new();
        let report = check(&game, &mut OneBlunder).unwrap();
        assert!(report.lost > 0);
        let line = report.lost_line.unwrap();
        assert_eq!(line[..2], [Action(0), Action(1)]);
        let end = game.replay(&line).unwrap();
        assert_eq!(game.outcome(&end).unwrap().value_for(Player::Second), -1.0);
    }

    #[test]
    fn a_random_player_loses() {
        let mut random = RandomMover { rng: ChaCha8Rng::seed_from_u64(1) };
        assert!(check(&TicTacToe::new(), &mut random).unwrap().lost > 10);
    }
}
