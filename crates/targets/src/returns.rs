//! Returns in episodes scored by rewards: the sum of n discounted rewards and the search value of the next step, from
//! the point of view of the player to move.

use game::Player;

/// A step of an episode, reduced to the data that returns need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Played {
    /// Player who chose the action.
    pub(super) player: Player,
    /// Reward for this player.
    pub(super) reward: f32,
    /// Search value for this player; `None` if there was no search.
    pub(super) search_value: Option<f32>,
}

/// The continuation of an episode after the last available step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    /// The episode continues with steps that are not available.
    Cut,
    /// The episode has ended, without further rewards.
    Terminal,
    /// The episode was truncated by a limit; the value of the last position estimates further rewards.
    Truncated {
        /// Player to move in the last position.
        to_move: Player,
        /// Value of the last position for this player.
        value: f32,
    },
}

/// Number of steps and discount of returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Horizon {
    /// n of the n-step return; 0 sums all rewards to the end of the episode.
    pub(super) td_steps: usize,
    /// γ, the discount per step.
    pub(super) discount: f64,
}

/// Computes the n-step return from step `from` of `played`, for the player of this step:
///
/// `Σ_{i<n} sᵢ γⁱ r_{from+i} + sₙ γⁿ v_{from+n}`, where `sᵢ` is 1 if the same player chooses action `from + i`,
/// otherwise −1 (Schrittwieser et al. 2020, appendix G).
///
/// If step `from + n` has no search value, the sum ends at the next searched step instead; if no later searched step is
/// available, at the last searched step before. At the end of the episode, the final value is 0 or the truncation
/// value. Returns `None` if no value completes the sum.
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
