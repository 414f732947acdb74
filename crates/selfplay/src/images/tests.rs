use games::{ConnectFour, TicTacToe};
use inference::Wdl;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Positions of random games that are not over.
fn positions<G: Game>(game: &G, rng: &mut impl Rng) -> Vec<G::Position> {
    let (mut positions, mut legal) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let mut position = game.start();
        while game.outcome(&position).is_none() {
            positions.push(position.clone());
            game.legal_actions(&position, &mut legal);
            game.play(&mut position, legal[rng.random_range(0..legal.len())]);
        }
    }
    positions
}

fn check_game<G: Game>(game: &G) {
    let mut images = Images::new(game);
    let mut predictions = Predictions::new();
    for position in positions(game, &mut ChaCha8Rng::seed_from_u64(1)) {
        let (hash, smallest) = Images::smallest(game, &position);
        for symmetry in 0..game.symmetries().len() {
            assert_eq!(Images::smallest(game, &game.image(&position, symmetry)).0, hash);
        }
        let Some((symmetry, image)) = smallest else {
            assert_eq!(game.hash(&position), hash);
            continue;
        };
        assert_eq!(game.hash(&image), hash);

        // Every action has a prior of its own, which its image is given too.
        let prior = |action: Action| f32::from(action.0 + 1) / 64.0;
        let (mut legal, mut legal_of_image) = (Vec::new(), Vec::new());
        game.legal_actions(&position, &mut legal);
        game.legal_actions(&image, &mut legal_of_image);
        let source = |image: Action| {
            let to_image = |&action: &Action| game.symmetries()[symmetry].action(action) == image;
            legal.iter().copied().find(to_image).expect("the image of a legal action is legal")
        };
        let priors: Vec<f32> = legal_of_image.iter().map(|&image| prior(source(image))).collect();
        predictions.clear();
        predictions.push(&priors, Wdl { win: 0.75, draw: 0.0, loss: 0.25 });
        let Expansion::Evaluated { actions, priors, value } =
            images.expansion(symmetry, &legal_of_image, &predictions, 0)
        else {
            panic!("an answer is an evaluation")
        };
        assert_eq!(actions, legal);
        assert_eq!(priors, legal.iter().map(|&action| prior(action)).collect::<Vec<_>>());
        assert_eq!(value, 0.5);
    }
}

#[test]
fn the_answer_to_an_image_comes_back_to_the_position() {
    check_game(&ConnectFour::new());
    check_game(&TicTacToe::new());
}
