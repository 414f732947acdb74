use std::io::{self, Write};

use game::Game;
use selfplay::{Analysis, Proven};

/// Number of shown moves of the principal variation.
const VARIATION_PLIES_MAX: usize = 12;

/// Writes the search result for `position`: evaluation, principal variation, and the best moves of the search policy.
pub(super) fn write<G: Game>(
    game: &G,
    position: &G::Position,
    analysis: &Analysis,
    mover: &str,
    listed_moves: usize,
    output: &mut impl Write,
) -> io::Result<()> {
    let proven = match analysis.proven {
        Proven::Unknown => "",
        Proven::Win => ", a proven win",
        Proven::Draw => ", a proven draw",
        Proven::Loss => ", a proven loss",
    };
    let Analysis { value, network_value, .. } = analysis;
    writeln!(output, "  evaluation {value:+.2} for {mover} (raw network {network_value:+.2}){proven}")?;
    writeln!(output, "  expects    {}", variation(game, position, analysis))?;
    writeln!(output, "  {:<6} {:>7} {:>7} {:>7} {:>6}", "move", "policy", "visits", "prior", "value")?;
    for index in ranked(analysis).into_iter().take(listed_moves) {
        let name = game.action_name(position, analysis.actions[index]);
        let (policy, prior) = (100.0 * analysis.policy[index], 100.0 * analysis.priors[index]);
        let (visits, value) = (analysis.visit_counts[index], analysis.action_values[index]);
        writeln!(output, "  {name:<6} {policy:>6.1}% {visits:>7} {prior:>6.1}% {value:>+6.2}")?;
    }
    Ok(())
}

/// Returns the legal actions by search policy, then visits, then prior; the chosen one first.
fn ranked(analysis: &Analysis) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..analysis.actions.len()).collect();
    let is_other = |index: usize| analysis.actions[index] != analysis.best;
    indices.sort_by(|&a, &b| {
        is_other(a)
            .cmp(&is_other(b))
            .then(analysis.policy[b].total_cmp(&analysis.policy[a]))
            .then(analysis.visit_counts[b].cmp(&analysis.visit_counts[a]))
            .then(analysis.priors[b].total_cmp(&analysis.priors[a]))
    });
    indices
}

/// Formats the principal variation in the notation of the game.
fn variation<G: Game>(game: &G, position: &G::Position, analysis: &Analysis) -> String {
    let mut position = position.clone();
    let mut names = Vec::new();
    for &action in analysis.principal_variation.iter().take(VARIATION_PLIES_MAX) {
        let name = game.action_name(&position, action);
        if game.try_play(&mut position, action).is_err() {
            break;
        }
        names.push(name);
    }
    names.join(" ")
}
