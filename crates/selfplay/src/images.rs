use game::{Action, Game};
use inference::Predictions;
use search::Expansion;

/// Maps predictions for an image of a position (under a game symmetry) back to the position.
#[derive(Debug)]
pub(crate) struct Images {
    /// The action of the original position for each symmetry and each action of the image, `[symmetries][A]`.
    sources: Vec<Vec<Action>>,
    /// Legal actions and priors, mapped back from the image to the position.
    turned: Vec<(Action, f32)>,
    actions: Vec<Action>,
    priors: Vec<f32>,
}

impl Images {
    pub(crate) fn new<G: Game>(game: &G) -> Self {
        let sources = game.symmetries().iter().map(|symmetry| {
            let mut sources = vec![Action(0); symmetry.actions.len()];
            for (source, &image) in (0..).zip(&symmetry.actions) {
                sources[usize::from(image)] = Action(source);
            }
            sources
        });
        Self { sources: sources.collect(), turned: Vec::new(), actions: Vec::new(), priors: Vec::new() }
    }

    /// Returns the canonical image of a position: the image with the smallest hash. The result is the hash and, unless
    /// the position is the canonical image, the symmetry from the position to the image and the image.
    pub(crate) fn smallest<G: Game>(game: &G, position: &G::Position) -> (u64, Option<(usize, G::Position)>) {
        let (mut least, mut smallest) = (game.hash(position), None);
        for symmetry in 1..game.symmetries().len() {
            let image = game.image(position, symmetry);
            let hash = game.hash(&image);
            if hash < least {
                (least, smallest) = (hash, Some((symmetry, image)));
            }
        }
        (least, smallest)
    }

    /// Converts prediction `i`, for an image under `symmetry` with the legal actions `legal`, to an expansion of the
    /// position, with the actions in ascending order.
    pub(crate) fn expansion<'a>(
        &'a mut self,
        symmetry: usize,
        legal: &'a [Action],
        predictions: &'a Predictions,
        i: usize,
    ) -> Expansion<'a> {
        let (priors, value) = (predictions.priors(i), predictions.value(i));
        if symmetry == 0 {
            return Expansion::Evaluated { actions: legal, priors, value };
        }
        let sources = &self.sources[symmetry];
        self.turned.clear();
        self.turned.extend(legal.iter().map(|action| sources[action.index()]).zip(priors.iter().copied()));
        self.turned.sort_unstable_by_key(|&(action, _)| action);
        self.actions.clear();
        self.actions.extend(self.turned.iter().map(|&(action, _)| action));
        self.priors.clear();
        self.priors.extend(self.turned.iter().map(|&(_, prior)| prior));
        Expansion::Evaluated { actions: &self.actions, priors: &self.priors, value }
    }
}

#[cfg(test)]
mod tests {
    use games::{ConnectFour, TicTacToe};
    use inference::Wdl;
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Returns all non-terminal positions of random games.
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

            // Every action has a distinct prior, and the image of the action has the same prior.
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
    fn the_prediction_for_an_image_is_mapped_back_to_the_position() {
        check_game(&ConnectFour::new());
        check_game(&TicTacToe::new());
    }
}
