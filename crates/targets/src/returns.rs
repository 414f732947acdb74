//! Returns of episodes that are scored by their rewards: the sum of n discounted rewards and the search's value of the
//! step that follows them, as the player to move sees them.

use game::Player;

/// A step as returns see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Played {
    /// The player who chose the action.
    pub(super) player: Player,
    /// The reward of that player.
    pub(super) reward: f32,
    /// The search's value for that player; `None` where there was no search.
    pub(super) search_value: Option<f32>,
}

/// What follows the last of some steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    /// More steps of the episode, which are not at hand.
    Cut,
    /// The end of the episode: no reward would follow.
    Terminal,
    /// A limit of time: rewards would follow, whose sum was estimated.
    Truncated {
        /// The player to move in the last position.
        to_move: Player,
        /// The value of the last position for that player.
        value: f32,
    },
}

/// The length and the discount of returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Horizon {
    /// n: the number of rewards before a search's value; 0: all rewards to the end of the episode.
    pub(super) td_steps: usize,
    /// γ.
    pub(super) discount: f64,
}

/// Returns the return from step `from` of `played` for the player of that step:
///
/// `Σ_{i<n} sᵢ γⁱ r_{from+i} + sₙ γⁿ v_{from+n}`, with `sᵢ` = 1 where the same player chooses action `from + i`, else
/// −1 (Schrittwieser et al. 2020, appendix G).
///
/// Where the step after n rewards was not searched, the next searched one takes its place; where none is at hand, the
/// last searched one before it. At the end of the episode the value is 0, or that of the truncated end. `None` if there
/// is no value to end the sum with.
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
