use game::{Action, Game};
use inference::Predictions;
use search::Expansion;

/// Brings answers to an image of a position back to the position itself.
#[derive(Debug)]
pub(crate) struct Images {
    /// The action that each symmetry takes to an action, `[symmetries][A]`.
    sources: Vec<Vec<Action>>,
    /// Legal actions with their priors, as they come back.
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

    /// The smallest hash of the images of a position. The image that has it stands for all of them: it comes with the symmetry
    /// that leads there, or is `None` if it is the position itself.
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

    /// Answer `i`, to the image under `symmetry` with these legal actions, as the answer to the position: its legal actions
    /// ascending.
    pub(crate) fn expansion<'a>(
        &'a mut self,
        symmetry: usize,
        legal: &'a [Action],
        predictions: &'a Predictions,
        i: usize,
    ) -> Expansion<'a> {
        let (priors, value) = (predictions.priors(i), predictions.value(i).value());
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
mod tests;
