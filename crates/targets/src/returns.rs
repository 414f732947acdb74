//! Returns in episodes scored by rewards: n discounted rewards plus the search value of the next step, as seen by the
//! player to move.

use game::Player;

/// A step, reduced to the parts that returns need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Played {
    /// Player who chose the action.
    pub(super) player: Player,
    /// Reward of that player.
    pub(super) reward: f32,
    /// Search value for that player; `None` if there was no search.
    pub(super) search_value: Option<f32>,
}

/// The continuation after the last of some steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    /// More steps of the episode, which are not at hand.
    Cut,
    /// The end of the episode: no further reward.
    Terminal,
    /// A limit of time: further rewards are estimated by a value.
    Truncated {
        /// Player to move in the last position.
        to_move: Player,
        /// Value of the last position for that player.
        value: f32,
    },
}

/// Length and discount of returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Horizon {
    /// n of the n-step return; 0 uses all rewards to the end of the episode.
    pub(super) td_steps: usize,
    /// γ.
    pub(super) discount: f64,
}

/// Returns the return from step `from` of `played` for the player of that step:
///
/// `Σ_{i<n} sᵢ γⁱ r_{from+i} + sₙ γⁿ v_{from+n}`, with `sᵢ` = 1 where the same player chooses action `from + i`, else
/// −1 (Schrittwieser et al. 2020, appendix G).
///
/// If the step after n rewards was not searched, the next searched step takes the place; if none is at hand, the last
/// searched step before it. At the end of the episode the value is 0, or the truncation value. Returns `None` if there
/// is no value to complete the sum.
pub(super) fn n_step_return(played: &[Played], end: End, from: usize, horizon: Horizon) -> Option<f64> {
    let Horizon { td_steps, discount } = horizon;
    let player = played[from].player;
    let sign = |other: Player| if other == player { 1.0 } else { -1.0 };
    let full = if td_steps == 0 { played.len() } else { from.saturating_add(td_steps).min(played.len()) };
    let is_searched = |&step: &usize| played[step].search_value.is_some();
    let last_searched = || (from + 1..full).rev().find(is_searched);
    let bootstrap = match (full..played.len()).find(is_searched) {
        None if end == End::Cut => Some(last_searched()?),
        found => found,
    };
    let (mut sum, mut factor) = (0.0, 1.0);
    for step in &played[from..bootstrap.unwrap_or(played.len())] {
        sum += factor * sign(step.player) * f64::from(step.reward);
        factor *= discount;
    }
    let (player, value) = match (bootstrap.map(|step| played[step]), end) {
        (Some(step), _) => (step.player, step.search_value?),
        (None, End::Truncated { to_move, value }) => (to_move, value),
        (None, End::Terminal | End::Cut) => return Some(sum),
    };
    Some(sum + factor * sign(player) * f64::from(value))
}
