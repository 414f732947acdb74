//! Sequential halving: distributes the simulations of a Gumbel search over the root actions.
//!
//! Karnin, Koren and Somekh 2013; Danihelka et al. 2022, section 3. The schedule does not access the tree: the caller
//! provides the visit count and score of each root action by index.

/// The schedule of one search, in phases.
///
/// With `n` simulations and initially `m` considered actions, each phase gives every considered action
/// `max(1, ⌊n / (⌈log2 m⌉ · considered)⌋)` visits. The worse half of the actions is then dropped, down to two actions.
/// Phases with two actions repeat until the simulations are spent. If the remaining simulations are fewer than the
/// considered actions, the last phase gives the best actions one visit each and drops the rest (mctx, `seq_halving`).
///
/// An action with visits from a reused subtree receives only the missing visits.
#[derive(Debug, Default)]
pub(crate) struct SequentialHalving {
    simulations: u32,
    /// Simulations assigned so far, including the current phase.
    assigned: u32,
    /// `⌈log2 m⌉` for `m` initially considered actions.
    halvings: u32,
    /// Scheduled number of considered actions in the current phase.
    width: usize,
    /// Target visits of each considered action at the end of the current phase.
    target: u32,
    /// Considered actions of the current phase, best first.
    considered: Vec<usize>,
    /// Target visits of each considered action at the start of the current phase.
    base: u32,
    /// Actions dropped at the start of the current phase.
    dropped: Vec<usize>,
}

/// The visits and status of a root action, the input of the schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Completed visits plus visits in flight.
    pub(crate) visits: u32,
    pub(crate) status: CandidateStatus,
}

/// The status of a root action: whether further visits are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CandidateStatus {
    /// The action can be visited. Proven draws are open.
    Open,
    /// The action cannot be visited now, because every leaf below it is in flight.
    Blocked,
    /// The action is a proven win and is not visited again.
    Closed,
    /// The action is a proven loss and is not visited again.
    Lost,
}

impl SequentialHalving {
    /// Starts the first phase with the `min(considered_max, len, simulations)` actions of highest score.
    pub(crate) fn begin(
        &mut self,
        considered_max: usize,
        simulations: u32,
        scores: &[f32],
        look: impl Fn(usize) -> Candidate,
    ) {
        let limit = usize::try_from(simulations).unwrap_or(usize::MAX);
        self.clear();
        self.simulations = simulations;
        self.width = considered_max.min(scores.len()).min(limit).max(1);
        self.halvings = self.width.next_power_of_two().ilog2();
        self.plan(scores, look);
    }

    /// Resets the schedule and keeps the allocated memory.
    pub(crate) fn clear(&mut self) {
        let (considered, dropped) = (std::mem::take(&mut self.considered), std::mem::take(&mut self.dropped));
        *self = Self { considered, dropped, ..Self::default() };
        self.considered.clear();
        self.dropped.clear();
    }

    /// Returns the next action to visit: the least visited action below the target of the current phase. Ties go to the
    /// better score. `None` if no action can be visited now.
    pub(crate) fn next(&self, look: impl Fn(usize) -> Candidate) -> Option<usize> {
        let lacking = self.considered.iter().filter_map(|&action| {
            let candidate = look(action);
            (candidate.status == CandidateStatus::Open && candidate.visits < self.target)
                .then_some((candidate.visits, action))
        });
        // `min_by_key` returns the first of equal elements: the action with the better score.
        lacking.min_by_key(|&(visits, _)| visits).map(|(_, action)| action)
    }

    /// Returns true if every open or blocked action of the current phase has the target visits.
    pub(crate) fn is_phase_complete(&self, look: impl Fn(usize) -> Candidate) -> bool {
        self.considered.iter().all(|&action| {
            let candidate = look(action);
            let visitable = matches!(candidate.status, CandidateStatus::Open | CandidateStatus::Blocked);
            !visitable || candidate.visits >= self.target
        })
    }

    /// Returns true if the current phase assigns the last simulations.
    pub(crate) fn is_last_phase(&self) -> bool {
        self.assigned >= self.simulations
    }

    /// Drops the worse half of the actions by score and starts the next phase. Must not be called in the last phase.
    pub(crate) fn halve(&mut self, scores: &[f32], look: impl Fn(usize) -> Candidate) {
        if self.width > 1 {
            self.width = (self.width / 2).max(2);
        }
        self.plan(scores, look);
    }

    /// Returns true if new scores may still move a dropped action into the current phase. This never happens in the
    /// first phase: all actions are unvisited and have the same value.
    pub(crate) fn is_rank_open(&self, look: impl Fn(usize) -> Candidate) -> bool {
        let waits = |&action: &usize| self.waits(look(action));
        self.base > 0 && self.dropped.iter().any(waits) && self.considered.iter().any(waits)
    }

    /// Updates the ranking with new scores. An action dropped at the start of the current phase replaces a considered
    /// action with a worse score if neither has been visited in the phase. In mctx each visit goes to the action with
    /// the best score at that time. With values rescaled over all actions, one new value may change the order of the
    /// rest.
    pub(crate) fn rank_again(&mut self, scores: &[f32], look: impl Fn(usize) -> Candidate) {
        let (mut considered, mut dropped) = (std::mem::take(&mut self.considered), std::mem::take(&mut self.dropped));
        let order = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
        for worse in considered.iter_mut().filter(|action| self.waits(look(**action))) {
            let waiting = dropped.iter_mut().filter(|action| self.waits(look(**action)));
            if let Some(best) = waiting.min_by(|a, b| order(a, b)).filter(|best| order(best, worse).is_lt()) {
                std::mem::swap(best, worse);
            }
        }
        considered.sort_unstable_by(order);
        (self.considered, self.dropped) = (considered, dropped);
    }

    /// Returns true if an action is open and still unvisited in the current phase.
    fn waits(&self, candidate: Candidate) -> bool {
        candidate.visits <= self.base && candidate.status == CandidateStatus::Open
    }

    /// Returns how many visits count when an action is ranked, at most the target of the current phase. `None` if the
    /// action is not considered.
    pub(crate) fn credited(&self, action: usize, visits: u32) -> Option<u32> {
        self.considered.contains(&action).then_some(visits.min(self.target))
    }

    /// Sorts the remaining actions by score, keeps the scheduled number and sets the target visits of the new phase.
    fn plan(&mut self, scores: &[f32], look: impl Fn(usize) -> Candidate) {
        let is_lost = |action: usize| look(action).status == CandidateStatus::Lost;
        let ranking = &mut self.considered;
        ranking.retain(|&action| !is_lost(action));
        if ranking.is_empty() {
            // Reached at the start, and when all considered actions are proven losses: the rest have no visits yet.
            self.target = 0;
            ranking.extend((0..scores.len()).filter(|&action| !is_lost(action)));
        }
        ranking.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let left = self.simulations - self.assigned;
        let kept = self.width.min(usize::try_from(left).unwrap_or(usize::MAX)).min(ranking.len());
        self.dropped.clear();
        self.dropped.extend(ranking.drain(kept..));
        self.base = self.target;

        let len = u32::try_from(ranking.len()).expect("actions are 16-bit");
        if len == 0 {
            self.assigned = self.simulations;
            return;
        }
        let width = u32::try_from(self.width).expect("actions are 16-bit");
        let each = match self.halvings * width {
            0 => self.simulations,
            share => (self.simulations / share).max(1),
        };
        let rounds = each.min(left / len);
        self.assigned += rounds * len;
        self.target += rounds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a schedule over actions with scores that decrease with the index. Returns the visits of each action.
    fn visits(considered_max: usize, simulations: u32, actions: usize) -> Vec<u32> {
        run(considered_max, simulations, &vec![0; actions], |_, _| CandidateStatus::Open)
    }

    /// Runs the schedule of [`visits`], starting from the visits in `kept`. `status` maps an action and the visit count
    /// to a status.
    fn run(
        considered_max: usize,
        simulations: u32,
        kept: &[u32],
        status: impl Fn(usize, u32) -> CandidateStatus,
    ) -> Vec<u32> {
        let scores: Vec<f32> = (0..kept.len()).map(|action| -(action as f32)).collect();
        let mut visits = kept.to_vec();
        let mut halving = SequentialHalving::default();
        let look = |visits: &[u32], action: usize| {
            let visits = visits[action];
            Candidate { visits, status: status(action, visits) }
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

    /// Returns the visits by rank of the published implementation (mctx,
    /// `seq_halving.get_sequence_of_considered_visits`).
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

    /// With 10 simulations and 3 actions, the last simulation goes to the best action after the first nine (mctx). An
    /// action overtaken by then does not receive the last visit.
    #[test]
    fn the_remainder_visit_goes_to_the_action_that_is_best_at_that_time() {
        let mut visits = [0_u32; 3];
        let mut halving = SequentialHalving::default();
        let mut scores = [2.0, 1.0, 0.0];
        let look =
            |visits: [u32; 3]| move |action: usize| Candidate { visits: visits[action], status: CandidateStatus::Open };
        halving.begin(3, 10, &scores, look(visits));
        loop {
            while let Some(action) = halving.next(look(visits)) {
                visits[action] += 1;
                // The values found in simulations 8 and 9 make the second action the best.
                scores[1] = if visits.iter().sum::<u32>() >= 9 { 3.0 } else { 1.0 };
            }
            if halving.is_last_phase() {
                break;
            }
            halving.halve(&scores, look(visits));
        }
        assert_eq!(visits, [4, 5, 1]);
        let played = (0..3).max_by(|&a, &b| {
            let rank = |action: usize| (halving.credited(action, visits[action]), scores[action]);
            rank(a).partial_cmp(&rank(b)).unwrap()
        });
        assert_eq!(played, Some(1));
    }

    /// The second phase visits the better two of four actions with one visit each. Scores change after the first visit.
    #[test]
    fn an_action_that_became_better_replaces_one_without_a_visit_in_the_phase() {
        let look =
            |visits: [u32; 4]| move |action: usize| Candidate { visits: visits[action], status: CandidateStatus::Open };
        let mut halving = SequentialHalving::default();
        halving.begin(4, 8, &[3.0, 2.0, 1.0, 0.0], look([0; 4]));
        assert!(!halving.is_rank_open(look([1, 0, 0, 0])), "all actions without visits have the same value");
        halving.halve(&[3.0, 2.0, 1.0, 0.0], look([1; 4]));
        assert_eq!(halving.considered, [0, 1]);
        let scores = [0.5, 2.0, 1.0, 4.0];
        assert!(halving.is_rank_open(look([2, 1, 1, 1])));
        halving.rank_again(&scores, look([2, 1, 1, 1]));
        assert_eq!(halving.considered, [3, 0], "a visited action stays considered");
        assert!(!halving.is_rank_open(look([2, 1, 1, 2])));
    }

    #[test]
    fn sixteen_simulations_visit_each_of_sixteen_actions_once() {
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
    fn one_legal_action_gets_all_simulations() {
        assert_eq!(visits(16, 50, 1), [50]);
    }

    #[test]
    fn a_schedule_of_zero_simulations_visits_no_action() {
        assert_eq!(visits(16, 0, 5), [0; 5]);
    }

    #[test]
    fn visits_kept_from_a_reused_subtree_are_not_repeated() {
        let kept = [2, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(run(8, 24, &kept, |_, _| CandidateStatus::Open), visits(8, 24, 8));
    }

    #[test]
    fn lost_actions_get_no_visits_and_others_get_all_simulations() {
        let lost = |action, _| if action < 4 { CandidateStatus::Lost } else { CandidateStatus::Open };
        let visits = run(4, 16, &[0; 8], lost);
        assert_eq!(visits[..4], [0; 4]);
        assert_eq!(visits.iter().sum::<u32>(), 16);
    }

    #[test]
    fn replacements_of_actions_found_lost_get_only_the_remaining_simulations() {
        let lost =
            |action, visits| if action < 4 && visits >= 2 { CandidateStatus::Lost } else { CandidateStatus::Open };
        assert_eq!(run(4, 16, &[0; 8], lost), [2, 2, 2, 2, 4, 4, 0, 0]);
    }

    #[test]
    fn a_schedule_ends_when_everything_is_proven() {
        assert_eq!(run(4, 16, &[0; 4], |_, _| CandidateStatus::Lost), [0; 4]);
        assert_eq!(run(4, 16, &[0; 4], |_, _| CandidateStatus::Closed), [0; 4]);
    }
}
