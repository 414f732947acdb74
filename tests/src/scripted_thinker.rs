// A thinker for tests of the web console: version 9, or the version in question, prefers all legal actions equally, and
// gives every position the value 0.25. Tests include this file, because no crate below the console knows the trait.

use std::ops::ControlFlow;

use game::Game as _;
use selfplay::{Analysis, Proven};
use web_console::{Opinion, Question, Thinker};
use weights::WeightsVersion;

#[derive(Debug, Default)]
pub(super) struct ScriptedThinker {
    /// The error of every search, if any.
    pub(super) refusal: Option<&'static str>,
}

impl Thinker for ScriptedThinker {
    fn think(
        &self,
        question: &Question,
        progress: &mut dyn FnMut(&Analysis) -> ControlFlow<()>,
    ) -> anyhow::Result<Opinion> {
        if let Some(refusal) = self.refusal {
            anyhow::bail!(refusal);
        }
        let game = question.game.rules();
        let position = game.replay_from(question.seed, &question.actions)?;
        let mut actions = Vec::new();
        game.legal_actions(&position, &mut actions);
        let best = *actions.first().ok_or_else(|| anyhow::anyhow!("the game is over"))?;
        let (count, value) = (actions.len(), 0.25);
        let even = vec![1.0 / count as f32; count];
        let analysis = Analysis {
            actions,
            visit_counts: vec![question.simulations; count],
            priors: even.clone(),
            policy: even,
            action_values: vec![value; count],
            value,
            network_value: value,
            principal_variation: vec![best],
            best,
            proven: Proven::Unknown,
        };
        let _ = progress(&analysis);
        Ok(Opinion { analysis, version: question.version.unwrap_or(WeightsVersion(9)) })
    }
}
