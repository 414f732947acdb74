//! The analysis of a position as written in JSON: [`Response`].

use serde::{Deserialize, Serialize};

use crate::{Analysis, BoardGame, Candidate, Move, Size, winrate};

use super::job::Job;

/// The analysis of a position. Fields have the names and meanings of KataGo's protocol; values are in the perspective
/// of the session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Response {
    /// Id of the query.
    pub id: String,
    /// Number of moves before the position.
    pub turn_number: usize,
    /// True for a report during the search. Each position has exactly one response with false.
    pub is_during_search: bool,
    /// True if the query was terminated before the first simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_results: Option<bool>,
    /// Searched moves, best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub move_infos: Option<Vec<MoveInfo>>,
    /// Results for the position as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_info: Option<RootInfo>,
    /// Priors of all cells, row-major from the top left, and of the pass; −1 for illegal moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Vec<f64>>,
}

/// A searched move.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MoveInfo {
    /// Move in the notation of the game.
    #[serde(rename = "move")]
    pub played: String,
    /// Number of visits.
    pub visits: u32,
    /// Same as `visits`: there is one path to each position.
    pub edge_visits: u32,
    /// Same as `visits`: all visits have equal weights.
    pub weight: f64,
    /// Same as `visits`: all visits have equal weights.
    pub edge_weight: f64,
    /// Win rate, 0 to 1; a draw counts half.
    pub winrate: f64,
    /// Always 0: no lead is predicted.
    pub score_mean: f64,
    /// Always 0: no deviation is predicted.
    pub score_stdev: f64,
    /// Always 0: no lead is predicted.
    pub score_lead: f64,
    /// Always 0: no lead is predicted.
    pub score_selfplay: f64,
    /// Value, −1 to 1.
    pub utility: f64,
    /// Bound on the win rate, cautious for the player to move.
    pub lcb: f64,
    /// Bound on the value, cautious for the player to move.
    pub utility_lcb: f64,
    /// Network prior.
    pub prior: f64,
    /// Rank, 0 for the best move.
    pub order: usize,
    /// Principal variation, starting with the move.
    pub pv: Vec<String>,
    /// Visits of the position after each ply in `pv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_visits: Option<Vec<u32>>,
    /// Visits of each ply in `pv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_edge_visits: Option<Vec<u32>>,
}

/// The results for a position as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RootInfo {
    /// Player to move, `B` or `W`.
    pub current_player: String,
    /// Number of simulations.
    pub visits: u32,
    /// Same as `visits`: all simulations have equal weights.
    pub weight: f64,
    /// Win rate, 0 to 1; a draw counts half.
    pub winrate: f64,
    /// Win rate by the network alone.
    pub raw_winrate: f64,
    /// Always 0: no lead is predicted.
    pub score_lead: f64,
    /// Always 0: no lead is predicted.
    pub score_selfplay: f64,
    /// Always 0: no deviation is predicted.
    pub score_stdev: f64,
    /// Value, −1 to 1.
    pub utility: f64,
    /// Hash of the position, 16 hexadecimal digits.
    pub this_hash: String,
    /// Hash shared by symmetric positions, 16 hexadecimal digits.
    pub sym_hash: String,
}

/// The reported side, relative to the player to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Values are for the player to move.
    Own,
    /// Values are for the opponent.
    Opponent,
}

impl View {
    fn winrate(self, winrate: f64) -> f64 {
        if self == Self::Own { winrate } else { 1.0 - winrate }
    }

    fn signed(self, value: f64) -> f64 {
        // Adding 0 turns −0 into 0.
        if self == Self::Own { value } else { 0.0 - value }
    }
}

impl Response {
    /// Returns the response for a position that was terminated before the first simulation.
    pub(super) fn without_results(id: &str, turn_number: usize) -> Self {
        Self { id: id.into(), turn_number, no_results: Some(true), ..Self::default() }
    }

    /// Returns the response for an analysis, marked as not during the search.
    pub(super) fn new(job: &Job, turn_number: usize, game: BoardGame, analysis: &Analysis, view: View) -> Self {
        let size = job.record.setup.size;
        let info = |(order, candidate)| move_info(job, game, order, candidate, view);
        Self {
            id: job.id.clone(),
            turn_number,
            is_during_search: false,
            no_results: None,
            move_infos: Some(analysis.reported(0, usize::MAX).map(info).collect()),
            root_info: Some(root_info(analysis, view)),
            policy: job.has_policy.then(|| policy(analysis, size)),
        }
    }
}

fn root_info(analysis: &Analysis, view: View) -> RootInfo {
    RootInfo {
        current_player: analysis.to_move.letter().into(),
        visits: analysis.visits,
        weight: f64::from(analysis.visits),
        winrate: view.winrate(winrate(analysis.value)),
        raw_winrate: view.winrate(winrate(analysis.network_value)),
        utility: view.signed(f64::from(analysis.value)),
        this_hash: format!("{:016X}", analysis.hash),
        sym_hash: format!("{:016X}", analysis.symmetric_hash),
        ..RootInfo::default()
    }
}

fn move_info(job: &Job, game: BoardGame, order: usize, candidate: &Candidate, view: View) -> MoveInfo {
    let size = job.record.setup.size;
    let Candidate { played, visits, value, prior, variation, .. } = candidate;
    let lower_bound = candidate.winrate_lower_bound();
    let variation_visits = job.has_variation_visits.then(|| variation.iter().map(|ply| ply.visits).collect::<Vec<_>>());
    MoveInfo {
        played: game.move_name(size, *played),
        visits: *visits,
        edge_visits: *visits,
        weight: f64::from(*visits),
        edge_weight: f64::from(*visits),
        winrate: view.winrate(winrate(*value)),
        utility: view.signed(f64::from(*value)),
        lcb: view.winrate(lower_bound),
        utility_lcb: view.signed(2.0 * lower_bound - 1.0),
        prior: f64::from(*prior),
        order,
        pv: variation.iter().map(|ply| game.move_name(size, ply.played)).collect(),
        pv_visits: variation_visits.clone(),
        pv_edge_visits: variation_visits,
        ..MoveInfo::default()
    }
}

/// Returns the priors `[H · W + 1]`.
fn policy(analysis: &Analysis, size: Size) -> Vec<f64> {
    let mut policy = vec![-1.0; size.len() + 1];
    for &(played, prior) in &analysis.priors {
        let index = match played {
            Move::Place(cell) if size.contains(cell) => size.index(cell),
            Move::Pass => size.len(),
            // The array has no place for other moves.
            Move::Place(_) | Move::Swap | Move::Resign => continue,
        };
        policy[index] = f64::from(prior);
    }
    policy
}
