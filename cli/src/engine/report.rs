//! Converts search results to the types of the crate `protocols`: [`Subject`].

use games::AnyPosition;
use protocols::{Analysis, Candidate, Color, Move, VariationPly};
use selfplay::{Findings, VariationStep};
use strength::notation::Notation;

use crate::play::ranked;

/// A searched position, with the notation, player and hashes that a report contains.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) notation: Notation,
    pub(super) to_move: Color,
    pub(super) hash: u64,
    pub(super) symmetric_hash: u64,
}

impl Subject {
    /// Returns the prior of each searched move.
    pub(super) fn priors(&self, analysis: &selfplay::Analysis) -> Vec<(Move, f32)> {
        let moves = analysis.actions.iter().map(|&action| self.notation.to_move(self.to_move, action));
        moves.zip(analysis.priors.iter().copied()).collect()
    }

    /// Returns the report of a search. For a restricted search, `legal_priors` contains the priors of all legal moves.
    pub(super) fn report(
        &self,
        findings: &Findings<'_, AnyPosition>,
        legal_priors: Option<&[(Move, f32)]>,
    ) -> Analysis {
        let Self { notation, to_move, hash, symmetric_hash } = *self;
        let analysis = findings.analysis();
        let candidate = |index: usize| Candidate {
            played: notation.to_move(to_move, analysis.actions[index]),
            visits: analysis.visit_counts[index],
            value: analysis.action_values[index],
            prior: analysis.priors[index],
            variation: self.variation(findings.variation(analysis.actions[index])),
        };
        Analysis {
            to_move,
            choice: notation.to_move(to_move, analysis.best),
            visits: findings.simulations(),
            value: analysis.value,
            network_value: analysis.network_value,
            candidates: ranked(&analysis).into_iter().map(candidate).collect(),
            priors: legal_priors.map_or_else(|| self.priors(&analysis), <[_]>::to_vec),
            hash,
            symmetric_hash,
        }
    }

    /// Converts the steps of a variation to moves. In board games, the players alternate with every action, including
    /// passes.
    fn variation(&self, steps: Vec<VariationStep>) -> Vec<VariationPly> {
        let mut mover = self.to_move;
        let ply = |VariationStep { action, visits }: VariationStep| {
            let played = self.notation.to_move(mover, action);
            mover = mover.opponent();
            VariationPly { played, visits }
        };
        steps.into_iter().map(ply).collect()
    }
}
