//! Sequential halving: how Gumbel spends the simulations of a move at the root.
//!
//! Karnin, Koren and Somekh 2013; Danihelka et al. 2022, section 3. Knows nothing of trees: it is shown visit counts
//! and scores by the index of the root action.

use crate::edges::Status;

/// The phases of one move's search.
///
/// With `m` actions considered and `n` simulations, phase `i` gives each of its actions
/// `max(1, ⌊n / (⌈log2 m⌉ · considered)⌋)` visits, then the worse half is dropped, down to two. The last phase repeats until
/// the simulations are spent; what does not divide goes to the best.
///
/// An action that has visits already (from a reused subtree) is asked only for those it lacks.
#[derive(Debug, Default)]
pub(crate) struct SequentialHalving {
    simulations: u32,
    /// How many simulations the phases so far account for.
    asked: u32,
    /// `⌈log2 m⌉`.
    halvings: u32,
    /// How many actions the schedule considers in this phase.
    width: usize,
    /// Visits each action of this phase had been asked for before it.
    reached: u32,
    /// This phase's actions, best first.
    considered: Vec<Considered>,
    ranking: Vec<usize>,
}

/// An action, and how many visits it has at the end of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Considered {
    action: usize,
    target: u32,
}

/// What the schedule may know of a root action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Visits completed and in flight.
    pub(crate) visits: u32,
    pub(crate) standing: Standing,
}

/// Whether a root action can be visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It can; that is also true of a proven draw.
    Open,
    /// Not now: a leaf is in flight.
    Blocked,
    /// Never again: proven to win.
    Closed,
    /// Never again: proven to lose.
    Lost,
}

impl From<Status> for Standing {
    fn from(status: Status) -> Self {
        match status {
            Status::Open | Status::Drawn => Self::Open,
            Status::Blocked => Self::Blocked,
            Status::Closed => Self::Closed,
        }
    }
}

impl SequentialHalving {
    /// Considers the `min(considered_max, len, simulations)` best of the actions by score.
    pub(crate) fn begin(
        &mut self,
        considered_max: usize,
        simulations: u32,
        scores: &[f32],
        look: impl Fn(usize) -> Candidate,
    ) {
        let limit = usize::try_from(simulations).unwrap_or(usize::MAX);
        self.simulations = simulations;
        self.asked = 0;
        self.reached = 0;
        self.width = considered_max.min(scores.len()).min(limit).max(1);
        self.halvings = self.width.next_power_of_two().ilog2();
        self.considered.clear();
        self.plan(scores, look);
    }

    /// Forgets the phases.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            considered: std::mem::take(&mut self.considered),
            ranking: std::mem::take(&mut self.ranking),
            ..Self::default()
        };
        self.considered.clear();
    }

    /// The action to visit next: of those that lack visits in this phase, one with the fewest, the best first.
    pub(crate) fn next(&self, look: impl Fn(usize) -> Candidate) -> Option<usize> {
        let lacking = self.considered.iter().filter_map(|considered| {
            let candidate = look(considered.action);
            (candidate.standing == Standing::Open && candidate.visits < considered.target)
                .then_some((candidate.visits, considered.action))
        });
        // The first of equals, which is the better.
        lacking.min_by_key(|&(visits, _)| visits).map(|(_, action)| action)
    }

    /// Whether every action of this phase that can still be visited has its visits.
    pub(crate) fn is_phase_complete(&self, look: impl Fn(usize) -> Candidate) -> bool {
        self.considered.iter().all(|considered| {
            let candidate = look(considered.action);
            let visitable = matches!(candidate.standing, Standing::Open | Standing::Blocked);
            !visitable || candidate.visits >= considered.target
        })
    }

    /// Whether this is the last phase.
    pub(crate) fn is_last_phase(&self) -> bool {
        self.asked >= self.simulations
    }

    /// Drops the worse half and starts the next phase. Not to be called in the last.
    pub(crate) fn halve(&mut self, scores: &[f32], look: impl Fn(usize) -> Candidate) {
        if self.width > 1 {
            self.width = (self.width / 2).max(2);
        }
        self.plan(scores, look);
    }

    /// The visits of an action that the schedule asked for, if it is still considered.
    pub(crate) fn credited(&self, action: usize, visits: u32) -> Option<u32> {
        let considered = self.considered.iter().find(|considered| considered.action == action)?;
        Some(visits.min(considered.target))
    }

    /// Ranks the actions left, keeps the schedule's number of them and sets their visits for this phase.
    fn plan(&mut self, scores: &[f32], look: impl Fn(usize) -> Candidate) {
        let is_lost = |action: usize| look(action).standing == Standing::Lost;
        self.ranking.clear();
        self.ranking
            .extend(self.considered.iter().map(|considered| considered.action).filter(|&action| !is_lost(action)));
        if self.ranking.is_empty() {
            // At the start, and when all that was considered turned out to lose: nothing was asked of the others.
            self.reached = 0;
            self.ranking.extend((0..scores.len()).filter(|&action| !is_lost(action)));
        }
        self.ranking.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        self.ranking.truncate(self.width);

        let len = u32::try_from(self.ranking.len()).expect("actions are 16-bit");
        let width = u32::try_from(self.width).expect("actions are 16-bit");
        let each = match self.halvings * width {
            0 => self.simulations,
            share => (self.simulations / share).max(1),
        };
        let left = self.simulations - self.asked;
        let (rounds, remainder) = if len == 0 {
            (0, 0)
        } else if each.saturating_mul(len) <= left {
            (each, 0)
        } else {
            (left / len, left % len)
        };
        self.asked = if len == 0 { self.simulations } else { self.asked + rounds * len + remainder };
        self.considered.clear();
        self.considered.extend(
            self.ranking.iter().zip(0_u32..).map(|(&action, rank)| Considered {
                action,
                target: self.reached + rounds + u32::from(rank < remainder),
            }),
        );
        self.reached += rounds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a schedule over actions whose score falls with their index; returns the visits of each.
    fn visits(considered_max: usize, simulations: u32, actions: usize) -> Vec<u32> {
        run(considered_max, simulations, &vec![0; actions], |_, _| Standing::Open)
    }

    /// The same with visits that were kept, where `standing` says how an action with so many visits stands.
    fn run(
        considered_max: usize,
        simulations: u32,
        kept: &[u32],
        standing: impl Fn(usize, u32) -> Standing,
    ) -> Vec<u32> {
        let scores: Vec<f32> = (0..kept.len()).map(|action| -(action as f32)).collect();
        let mut visits = kept.to_vec();
        let mut halving = SequentialHalving::default();
        let look = |visits: &[u32], action: usize| {
            let visits = visits[action];
            Candidate { visits, standing: standing(action, visits) }
        };
        halving.begin(considered_max, simulations, &scores, |action| look(&visits, action));
        loop {
            while let Some(action) = halving.next(|action| look(&visits, action)) {
                visits[action] += 1;
            }
            assert!(halving.is_phase_complete(|action| look(&visits, action)));
            if halving.is_last_phase() {
                return visits;
            }
            halving.halve(&scores, |action| look(&visits, action));
        }
    }

    /// The table of the published implementation (mctx, `seq_halving.get_sequence_of_considered_visits`), as visits by rank.
    fn published(considered_max: usize, simulations: usize) -> Vec<u32> {
        let mut visits = vec![0; considered_max];
        if considered_max <= 1 {
            return vec![simulations as u32];
        }
        let rounds = (considered_max as f64).log2().ceil() as usize;
        let (mut left, mut considered) = (simulations, considered_max);
        while left > 0 {
            let extra = (simulations / (rounds * considered)).max(1);
            for _ in 0..extra {
                for count in &mut visits[..considered] {
                    if left > 0 {
                        *count += 1;
                        left -= 1;
                    }
                }
            }
            considered = (considered / 2).max(2);
        }
        visits
    }

    #[test]
    fn the_schedule_is_the_published_one() {
        for simulations in 1..=260 {
            for actions in 1..=20 {
                let considered = actions.min(16).min(simulations);
                let mut expected = published(considered, simulations);
                expected.resize(actions, 0);
                assert_eq!(visits(16, simulations as u32, actions), expected, "n = {simulations}, {actions} actions");
            }
        }
    }

    #[test]
    fn sixteen_simulations_look_once_at_each_of_sixteen_actions() {
        assert_eq!(visits(16, 16, 16), [1; 16]);
    }

    #[test]
    fn thirty_two_simulations_halve_twice() {
        assert_eq!(visits(16, 32, 16), [4, 4, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn two_hundred_simulations_end_with_two_actions_and_the_rest_goes_to_them() {
        let expected = [49, 49, 21, 21, 9, 9, 9, 9, 3, 3, 3, 3, 3, 3, 3, 3];
        assert_eq!(visits(16, 200, 16), expected.map(|n: u32| n));
        assert_eq!(visits(16, 200, 16).iter().sum::<u32>(), 200);
    }

    #[test]
    fn seven_legal_actions_are_halved_by_their_own_schedule() {
        assert_eq!(visits(16, 200, 7), [67, 66, 31, 9, 9, 9, 9]);
    }

    #[test]
    fn one_legal_action_gets_everything() {
        assert_eq!(visits(16, 50, 1), [50]);
    }

    #[test]
    fn no_simulations_ask_for_nothing() {
        assert_eq!(visits(16, 0, 5), [0; 5]);
    }

    #[test]
    fn visits_an_action_has_already_are_not_asked_for_again() {
        let kept = [2, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(run(8, 24, &kept, |_, _| Standing::Open), visits(8, 24, 8));
    }

    #[test]
    fn actions_that_lose_make_room_for_others() {
        let lost = |action, _| if action < 4 { Standing::Lost } else { Standing::Open };
        let visits = run(4, 16, &[0; 8], lost);
        assert_eq!(visits[..4], [0; 4]);
        assert_eq!(visits.iter().sum::<u32>(), 16);
    }

    #[test]
    fn those_that_take_the_place_of_actions_found_lost_get_what_is_left_and_no_more() {
        let lost = |action, visits| if action < 4 && visits >= 2 { Standing::Lost } else { Standing::Open };
        assert_eq!(run(4, 16, &[0; 8], lost), [2, 2, 2, 2, 4, 4, 0, 0]);
    }

    #[test]
    fn a_schedule_ends_when_everything_is_proven() {
        assert_eq!(run(4, 16, &[0; 4], |_, _| Standing::Lost), [0; 4]);
        assert_eq!(run(4, 16, &[0; 4], |_, _| Standing::Closed), [0; 4]);
    }
}
