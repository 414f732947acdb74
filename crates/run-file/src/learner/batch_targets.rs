use targets::{PolicyTemperature, Targets, Unroll};
use weights::Model;

use crate::learner::{LearnerSection, Settings};

impl Settings {
    /// Returns the settings of the training targets for a network of this model. AlphaZero networks that predict
    /// returns have the same targets as MuZero, but without unrolled steps.
    #[must_use]
    pub fn targets_of(&self, model: Model) -> Targets {
        let LearnerSection { search_value_share, unroll_steps, td_steps, consistency_loss_weight, .. } = self.learner;
        let unroll_steps = if model.has_dynamics() { unroll_steps } else { 0 };
        match model {
            Model::Alphazero => Targets::Positions { search_value_share },
            Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                let discount = f64::from(self.run.discount);
                let next_observations = consistency_loss_weight > 0.0 || model.codes() > 0;
                Targets::Unrolled(Unroll { unroll_steps, td_steps, discount, search_value_share, next_observations })
            }
        }
    }

    /// Returns the temperature of policy targets.
    #[must_use]
    pub fn policy_temperature(&self) -> PolicyTemperature {
        PolicyTemperature(self.learner.policy_target_temperature)
    }
}

#[cfg(test)]
mod tests {
    use game::Game;

    use super::*;
    use crate::learner::{Config, ModelKind};

    #[test]
    fn the_model_of_a_run_decides_its_targets_and_the_steps_that_are_drawn() {
        fn of<G: Game>(game: &G, model: ModelKind) -> (Targets, usize, usize) {
            let mut config = Config::default();
            (config.run.game, config.network.model) = (game.spec().name.clone(), model);
            (config.learner.unroll_steps, config.learner.td_steps, config.learner.search_value_share) = (3, 7, 0.5);
            let settings = config.settings().unwrap();
            let targets = settings.targets_of(settings.network.model_of(game));
            (targets, targets.unroll_steps(), targets.segment_steps(game.spec()))
        }
        let (board, environment) = (games::TicTacToe::new(), games::catch::Catch::new());
        let search_value_share = 0.5;
        assert_eq!(of(&board, ModelKind::Alphazero), (Targets::Positions { search_value_share }, 0, 0));
        let unroll =
            Unroll { unroll_steps: 3, td_steps: 7, discount: 1.0, search_value_share, next_observations: false };
        assert_eq!(of(&board, ModelKind::Muzero), (Targets::Unrolled(unroll), 3, 3));
        assert_eq!(of(&environment, ModelKind::Muzero), (Targets::Unrolled(unroll), 3, 10));
        let returns = Unroll { unroll_steps: 0, ..unroll };
        assert_eq!(of(&environment, ModelKind::Alphazero), (Targets::Unrolled(returns), 0, 7));
        let unroll = Unroll { next_observations: true, ..unroll };
        assert_eq!(of(&board, ModelKind::StochasticMuzero), (Targets::Unrolled(unroll), 3, 3));
    }
}
