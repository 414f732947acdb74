//! Plays one episode of a single-player game with the weights, step by step. Start with [`watch`].

use std::io::Write;

use anyhow::{Context as _, ensure};
use game::{Game, Outcome};
use strength::contestant::Contestant as _;

use crate::eval::Player;

/// Plays the evaluation episode of `seed` and writes every step: action, reward, sum of rewards and new position.
///
/// # Errors
/// The network failed, the game gave a non-finite reward, or the output cannot be written.
pub(crate) fn watch<G: Game>(game: &G, mut player: Player, seed: u64, output: &mut impl Write) -> anyhow::Result<()> {
    let (attributes, name) = (player.network.attributes(), &game.spec().name);
    let (evaluator, version) = (&attributes.name, attributes.weights_version);
    let simulations = player.simulations;
    writeln!(output, "{name} by weights version {version} ({evaluator}), {simulations} simulations a step")?;
    let mut contestant = player.contestant(simulations);
    let mut position = game.start_from(selfplay::evaluation_seed(seed, 0));
    writeln!(output, "\n{}\n", game.render(&position))?;
    let (mut sum, mut step) = (0.0, 0);
    let outcome = loop {
        if let Some(outcome) = game.outcome(&position) {
            break outcome;
        }
        let chosen = contestant.choose(game, std::slice::from_ref(&position)).context("evaluate the position")?;
        let action = *chosen.first().context("choose an action")?;
        let text = game.action_name(&position, action);
        let reward = game.play(&mut position, action);
        ensure!(reward.is_finite(), "{name} returned the reward {reward} in step {step}");
        step += 1;
        sum += f64::from(reward);
        writeln!(output, "step {step}: {text}, reward {reward}, sum {sum}\n\n{}\n", game.render(&position))?;
    };
    let end = match outcome {
        Outcome::Truncated => "truncated by the step limit",
        Outcome::Finished | Outcome::Draw | Outcome::Win(_) => "over",
    };
    writeln!(output, "{end} after {step} steps: return {sum}")?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::Uniform;
    use evaluators::Network;
    use games::TicTacToe;
    use selfplay::SearchSettings;

    use super::*;

    /// Tic-tac-toe takes the place of a single-player game, since its episodes also end and need no learned dynamics.
    #[test]
    fn every_step_is_shown_with_its_reward_until_the_episode_is_over() {
        let game = TicTacToe::new();
        let network = Network::Evaluator(Box::new(Uniform::new(game.spec().observation)));
        let mut output = Vec::new();
        let player = Player { network, simulations: 0, search: SearchSettings::default(), discount: 1.0 };
        watch(&game, player, 3, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("tic_tac_toe by weights version 0 (uniform), 0 simulations a step\n"), "{text}");
        let steps = text.lines().filter(|line| line.starts_with("step ")).count();
        assert!((5..=9).contains(&steps), "{text}");
        assert!(text.ends_with(&format!("over after {steps} steps: return 0\n")), "{text}");
    }
}
