//! Settings of consoles in tests, with a scripted thinker.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::ops::ControlFlow;
use std::sync::Arc;

use fleet::RunDirectory;
use game::Game as _;
use selfplay::{Analysis, Proven};
use service::SecuritySection;
use transport::security::Scopes;
use web_console::{Opinion, Question, Settings, Thinker};
use weights::WeightsVersion;

/// Returns the settings of a console for `run` on a free port of this machine, with every scope.
pub(crate) fn settings(run: RunDirectory) -> Settings {
    Settings {
        run,
        listen: "127.0.0.1:0".parse().unwrap(),
        security: SecuritySection::default(),
        scopes: Scopes::default(),
        thinker: Arc::new(ScriptedThinker::default()),
        program: "zerofleet".into(),
        supervisor: None,
    }
}

/// A thinker of version 9, or of the version in question, which prefers all legal actions equally and gives every
/// position the value 0.25.
#[derive(Debug, Default)]
pub(crate) struct ScriptedThinker {
    /// The error of every search, if any.
    pub(crate) refusal: Option<&'static str>,
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
