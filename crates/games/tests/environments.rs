//! Many games that advance together in [`RulesEnvironments`].

use game::{Action, Environments as _, Game as _, Outcome, Play, RulesEnvironments, Start, Started, Taken, mix};
use games::TicTacToe;

#[test]
fn thousand_games_of_tic_tac_toe_are_those_of_the_rules() {
    const GAMES: usize = 1000;
    let game = TicTacToe::new();
    let mut environments = RulesEnvironments::new(TicTacToe::new(), GAMES);
    let starts: Vec<Start> = (0..GAMES).map(|environment| Start { environment, seed: 0 }).collect();
    let mut started = Vec::new();
    environments.begin(&starts, &mut started).unwrap();
    assert_eq!(started, vec![Started::Now; GAMES]);

    let mut lines: Vec<Vec<Action>> = vec![Vec::new(); GAMES];
    let mut outcomes = vec![None; GAMES];
    let (mut legal, mut taken, mut draws) = (Vec::new(), Vec::new(), 1);
    while outcomes.contains(&None) {
        let mut plays = Vec::new();
        for environment in (0..GAMES).filter(|&environment| outcomes[environment].is_none()) {
            environments.legal_actions(environment, &mut legal);
            draws = mix(draws);
            let action = legal[usize::try_from(draws % legal.len() as u64).unwrap()];
            plays.push(Play { environment, action });
            lines[environment].push(action);
        }
        environments.step(&plays, &mut taken).unwrap();
        for (play, taken) in plays.iter().zip(&taken) {
            let line = &lines[play.environment];
            let position = game.replay(line).unwrap();
            assert_eq!(*taken, Taken::Step { reward: 0.0, outcome: game.outcome(&position) }, "{line:?}");
            assert_eq!(*environments.position(play.environment), position, "{line:?}");
            outcomes[play.environment] = game.outcome(&position);
        }
    }
    let draws = outcomes.iter().filter(|&&outcome| outcome == Some(Outcome::Draw)).count();
    // Random play draws 12.7 % of the games: four standard deviations are 42 games.
    assert!((85..=169).contains(&draws), "{draws} draws in {GAMES} games");
}
