//! The interface between a tree and a driver: start a search, select leaves, answer requests, read the result, advance.

use game::Action;
use rand::{Rng, RngExt};

use crate::arena::{Arena, Link, Node};
use crate::backup::{back_up, withdraw};
use crate::completed_values::Sigma;
use crate::edges::{EdgeId, NodeId, Status};
use crate::noise::{add_dirichlet, draw_gumbel};
use crate::proven::Proven;
use crate::request::{Expansion, Request, Selection, expand};
use crate::reuse::{Move, keep_subtree};
use crate::root_policy::{
    RootView, VariationStep, candidates, edge_proven, edge_visits, improved_logits, improved_policy, is_decided,
    most_visited, visit_shares,
};
use crate::select::{Descent, Rule, chance, descend};
use crate::sequential_halving::{Candidate, CandidateStatus, SequentialHalving};
use crate::settings::{EarlyStop, Exploration, SearchAlgorithm, Settings, Solver, ValueSpan};
use crate::solver::prove;
use crate::value_range::Bounds;

/// A search tree with an opaque state `S` for each node.
///
/// The call sequence for one move is [`begin`](Self::begin), then [`select`](Self::select) and [`answer`](Self::answer)
/// until [`is_finished`](Self::is_finished), then [`best_action`](Self::best_action) or
/// [`sample_action`](Self::sample_action), then [`advance`](Self::advance) or [`reset`](Self::reset). Calls in a wrong
/// order (searching without a root, advancing with requests in flight) are driver bugs and panic.
#[derive(Debug)]
pub struct Tree<S> {
    settings: Settings,
    arena: Arena,
    /// The state of each node, indexed by node id.
    states: Vec<S>,
    rule: Rule,
    /// A counter incremented with every new root, to detect requests from an earlier root.
    generation: u64,
    /// The simulation budget of the search: the maximum number of visits to all root actions together.
    budget: u32,
    exploration: Exploration,
    /// The legal actions of the root.
    root_actions: Vec<Action>,
    /// The root priors without noise. The edges may hold noisy priors.
    root_priors: Vec<f32>,
    noisy_priors: Vec<f32>,
    /// The Gumbel noise `g` of each root action; empty if the search does not explore.
    gumbel: Vec<f32>,
    halving: SequentialHalving,
    scratch: Vec<f32>,
    moves: Vec<Move>,
}

impl<S> Tree<S> {
    /// Creates a tree without a root.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            arena: Arena::new(Bounds::new(settings.values)),
            rule: Rule::new(&settings),
            settings,
            states: Vec::new(),
            generation: 0,
            budget: 0,
            exploration: Exploration::Greedy,
            root_actions: Vec::new(),
            root_priors: Vec::new(),
            noisy_priors: Vec::new(),
            gumbel: Vec::new(),
            halving: SequentialHalving::default(),
            scratch: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// Replaces the whole tree with a new root, and keeps the allocated memory.
    pub fn reset(&mut self, state: S, expansion: Expansion<'_>) {
        self.leave_root();
        self.arena.clear();
        self.states.clear();
        self.attach(Link::NONE, state, expansion);
        self.note_root();
    }

    /// Returns true if the tree has a root with at least one action.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.arena.nodes.first().is_some_and(|root| root.edge_count > 0)
    }

    /// Starts a search with a budget of `simulations`, and draws the root noise for [`Exploration::Explore`].
    ///
    /// Visits from a reused subtree count towards the budget: under pUCT all visits; under Gumbel the visits that
    /// sequential halving would have assigned. Gumbel also uses the values of the reused visits: it considers the
    /// actions with the greatest `g + logits + σ(completed Q)`. At a new root all actions have the same value, so the
    /// ranking equals the published `g + logits`.
    pub fn begin(&mut self, simulations: u32, exploration: Exploration, rng: &mut impl Rng) {
        assert!(self.is_ready(), "a search starts at an expanded, non-terminal root");
        assert_eq!(self.node().in_flight, 0, "a search starts without requests in flight");
        self.budget = simulations;
        self.exploration = exploration;
        self.gumbel.clear();
        self.noisy_priors.clone_from(&self.root_priors);
        match (self.settings.algorithm, exploration) {
            (SearchAlgorithm::Puct, Exploration::Explore) => {
                add_dirichlet(&mut self.noisy_priors, self.settings.dirichlet, &mut self.scratch, rng);
            }
            (SearchAlgorithm::Gumbel { .. }, Exploration::Explore) => {
                draw_gumbel(&mut self.gumbel, self.root_actions.len(), rng)
            }
            (_, Exploration::Sample | Exploration::Greedy) => {}
        }
        self.set_priors();
        self.begin_halving();
    }

    /// Performs one descent from the root and returns the result as a [`Selection`].
    #[inline]
    pub fn select(&mut self) -> Selection {
        let root = self.node();
        let started = root.visits - 1 + root.in_flight;
        if root.is_terminal() || root.available == 0 {
            return Selection::Busy;
        }
        let (first, reduction) = match self.settings.algorithm {
            SearchAlgorithm::Puct if started >= self.budget || self.is_decided() => return Selection::Busy,
            SearchAlgorithm::Puct => (None, if self.exploration == Exploration::Explore { 0.0 } else { 1.0 }),
            SearchAlgorithm::Gumbel { .. } => match self.halving.next(|action| candidate(&self.arena, action)) {
                None => return Selection::Busy,
                Some(action) => (Some(root.edge_at(action)), 1.0),
            },
        };
        match descend(&mut self.arena, &mut self.rule, first, reduction) {
            Descent::Leaf { parent, edge } => Selection::Leaf(self.request(parent, edge)),
            Descent::Completed => {
                self.settle();
                Selection::Completed
            }
        }
    }

    /// Returns the state in which the driver takes the action of a request.
    #[must_use]
    pub fn parent_state(&self, request: &Request) -> &S {
        self.check(request);
        &self.states[request.parent.index()]
    }

    /// Expands the leaf of a request and backs up the value.
    ///
    /// `reward` is paid to the player who took the action. `discount` converts a value at the leaf to the view of this
    /// player: −1 where players alternate, at most +1 where the same player moves again.
    #[inline]
    pub fn answer(&mut self, request: Request, state: S, reward: f32, discount: f32, expansion: Expansion<'_>) {
        self.check(&request);
        let Request { parent, edge, .. } = request;
        self.arena.unblock_leaf(parent, edge);
        self.attach(Link { parent, edge, reward, discount }, state, expansion);
        self.settle();
    }

    /// Expands the leaf of a request to a chance node with the state `state`, without an evaluation. Returns the
    /// request for the first outcome to search, within the same simulation.
    ///
    /// `outcomes` are the chance outcomes in ascending order, and `probabilities` sum to 1. The reward and the discount
    /// of the step are passed to [`answer`](Self::answer) for the outcome.
    pub fn branch(&mut self, request: Request, state: S, outcomes: &[Action], probabilities: &[f32]) -> Request {
        self.check(&request);
        let Request { parent, edge, .. } = request;
        self.arena.unblock_leaf(parent, edge);
        let link = Link { parent, edge, reward: 0.0, discount: 1.0 };
        let id = self.arena.push_chance(link, f32::NAN, outcomes, probabilities);
        self.states.push(state);
        let node = self.arena.node(id);
        let (first, count) = (node.first_edge, node.edge_count);
        let choice = chance::next(self.arena.edges.octets(first, count)).expect("a new outcome can be chosen");
        let (octet, lane) = (first.octet() + choice.octet, choice.lane);
        self.arena.edges.enter(octet, lane);
        let edge = EdgeId::new(octet, lane);
        self.arena.block(id, edge);
        self.request(id, edge)
    }

    /// Cancels a request. The visit is reverted on the whole path and does not count as a simulation.
    pub fn cancel(&mut self, request: Request) {
        self.check(&request);
        let Request { parent, edge, .. } = request;
        self.arena.edges.leave(edge);
        self.arena.unblock_leaf(parent, edge);
        withdraw(&mut self.arena, parent);
    }

    /// Returns true if no request is in flight and the root is terminal or proven, the simulations are spent, or the
    /// search stops early ([`EarlyStop`]). Also returns true for a tree without a root.
    #[must_use]
    #[inline]
    pub fn is_finished(&self) -> bool {
        let Some(root) = self.arena.nodes.first() else { return true };
        let is_spent = match self.settings.algorithm {
            SearchAlgorithm::Puct => root.visits > self.budget || self.is_decided(),
            SearchAlgorithm::Gumbel { .. } => {
                let look = |action| candidate(&self.arena, action);
                self.halving.is_last_phase() && self.halving.is_phase_complete(look)
            }
        };
        root.in_flight == 0 && (root.is_terminal() || is_spent)
    }

    /// Returns a view of the root: actions, priors and search results.
    #[must_use]
    pub fn root(&self) -> RootView<'_> {
        RootView { arena: &self.arena, actions: &self.root_actions, priors: &self.root_priors }
    }

    /// Returns the state of the root.
    #[cfg(test)]
    pub(crate) fn root_state(&self) -> &S {
        self.states.first().expect("a search has a root")
    }

    /// Replaces `policy` with the search policy over the root actions, which sums to 1: the visit shares (pUCT) or
    /// `softmax(logits + σ(completed Q))` (Gumbel). Proven wins get the whole policy. Proven losses get probability 0
    /// unless all actions lose. If an action is a proven draw, actions with negative values get probability 0.
    pub fn search_policy(&self, policy: &mut Vec<f32>) {
        match self.sigma() {
            None => visit_shares(&self.arena, self.node(), policy),
            Some(sigma) => improved_policy(&self.arena, self.node(), sigma, policy),
        }
    }

    /// Returns the action to play. Proven wins come first and proven losses last, and if an action is a proven draw, no
    /// action with a negative value is played. The choice among the rest is the most visited action (pUCT), or the
    /// greatest `g + logits + σ(q)` among the actions with the most visits in sequential halving (Gumbel).
    #[must_use]
    pub fn best_action(&self) -> Action {
        let best = match self.sigma() {
            None => most_visited(&self.arena, self.node()),
            Some(sigma) => self.best_scored(sigma),
        };
        self.arena.edges.action(best.expect("a root that is searched has actions"))
    }

    /// Samples an action in proportion to the search policy raised to the power `1 / temperature`. At temperature 0
    /// it returns [`best_action`](Self::best_action) without sampling.
    pub fn sample_action(&self, temperature: f32, rng: &mut impl Rng) -> Action {
        if temperature <= 0.0 {
            return self.best_action();
        }
        let mut shares = Vec::new();
        self.search_policy(&mut shares);
        // Shares are divided by the greatest share, so that a low temperature cannot underflow all shares to zero.
        let greatest = f64::from(shares.iter().copied().fold(0.0, f32::max));
        let weight = |share: f32| (f64::from(share) / greatest).powf(1.0 / f64::from(temperature));
        let mut left = rng.random::<f64>() * shares.iter().map(|&share| weight(share)).sum::<f64>();
        let actions = self.root().actions();
        for (&action, &share) in actions.iter().zip(&shares) {
            left -= weight(share);
            if left < 0.0 {
                return action;
            }
        }
        self.best_action()
    }

    /// Makes the child after `action` the new root, keeps the subtree of the child and drops the rest. If the child is
    /// unexpanded, terminal or a chance node, returns false and leaves the tree without a root.
    pub fn advance(&mut self, action: Action) -> bool {
        let edge = self.node().edges().find(|&edge| self.arena.edges.action(edge) == action);
        let child = edge.map_or(NodeId::NONE, |edge| self.arena.edges.child(edge));
        self.leave_root();
        if child == NodeId::NONE || self.arena.node(child).edge_count == 0 || self.arena.node(child).is_chance {
            self.arena.clear();
            self.states.clear();
            return false;
        }
        keep_subtree(&mut self.arena, &mut self.states, child, &mut self.moves);
        self.note_root();
        true
    }

    /// Replaces `out` with the principal variation: the best action, then the most visited action at each node, up to
    /// the first chance node.
    pub fn principal_variation(&self, out: &mut Vec<Action>) {
        out.clear();
        out.extend(self.line(self.best_action()).map(|edge| self.arena.edges.action(edge)));
    }

    /// Returns the variation after the root action `first`: that action, then the most visited action at each node, up
    /// to the first chance node. Empty if `first` is not a root action.
    #[must_use]
    pub fn variation(&self, first: Action) -> Vec<VariationStep> {
        let step =
            |edge| VariationStep { action: self.arena.edges.action(edge), visits: edge_visits(&self.arena, edge) };
        self.line(first).map(step).collect()
    }

    /// Returns the edges of the variation after the root action `first`, including the edge of `first`.
    fn line(&self, first: Action) -> impl Iterator<Item = EdgeId> {
        let first = self.node().edges().find(|&edge| self.arena.edges.action(edge) == first);
        std::iter::successors(first, |&edge| match self.arena.edges.child(edge) {
            NodeId::NONE => None,
            child if self.arena.node(child).visits <= 1 || self.arena.node(child).is_chance => None,
            child => most_visited(&self.arena, self.arena.node(child)),
        })
    }

    /// Returns the number of nodes in the tree.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.arena.nodes.len()
    }

    /// Returns the size of all nodes, edges and states in bytes, without spare capacity or heap memory owned by states.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&self.arena.nodes[..]) + self.arena.edges.bytes() + size_of_val(&self.states[..])
    }

    /// Adds a node and backs up the value.
    #[inline]
    fn attach(&mut self, link: Link, state: S, expansion: Expansion<'_>) {
        let (id, proven) = expand(&mut self.arena, link, expansion);
        self.states.push(state);
        if proven != Proven::Unknown && self.settings.solver == Solver::On {
            prove(&mut self.arena, id, proven);
        }
        let value = self.arena.node(id).network_value;
        back_up(&mut self.arena, id, value);
    }

    /// Starts the first phase of sequential halving, using the root noise that has already been drawn. Does nothing
    /// under pUCT.
    fn begin_halving(&mut self) {
        let SearchAlgorithm::Gumbel { considered_actions_max, c_visit, c_scale, span } = self.settings.algorithm else {
            return;
        };
        self.score(Sigma { c_visit, c_scale, span });
        let arena = &self.arena;
        self.halving.begin(considered_actions_max, self.budget, &self.scratch, |action| candidate(arena, action));
        self.settle();
    }

    /// Starts the next phase of sequential halving once a phase is complete and no request is in flight. Updates the
    /// ranking within an unfinished phase if values are rescaled.
    #[inline]
    fn settle(&mut self) {
        let Some(sigma) = self.sigma() else { return };
        while self.node().in_flight == 0
            && !self.halving.is_last_phase()
            && self.halving.is_phase_complete(|action| candidate(&self.arena, action))
        {
            self.score(sigma);
            let arena = &self.arena;
            self.halving.halve(&self.scratch, |action| candidate(arena, action));
        }
        if !self.arena.bounds.is_board() {
            self.rank_again(sigma);
        }
    }

    /// Ranks the root actions of an unfinished phase by the latest scores. Not inlined, to keep the code of board game
    /// searches small.
    #[inline(never)]
    fn rank_again(&mut self, sigma: Sigma) {
        // The order of visits matters where each visit may change the rescaling below the root for later visits.
        let is_order_relevant = sigma.span == ValueSpan::Tree;
        if is_order_relevant || self.halving.is_rank_open(|action| candidate(&self.arena, action)) {
            self.score(sigma);
            let arena = &self.arena;
            self.halving.rank_again(&self.scratch, |action| candidate(arena, action));
        }
    }

    /// Fills the scratch memory with `g + logits + σ(completed Q)` of each root action.
    fn score(&mut self, sigma: Sigma) {
        improved_logits(&self.arena, &self.arena.nodes[0], sigma, &mut self.scratch);
        for (score, gumbel) in self.scratch.iter_mut().zip(&self.gumbel) {
            *score += gumbel;
        }
    }

    /// Stores a copy of the actions and priors of a new root, read from the edges.
    fn note_root(&mut self) {
        let Self { arena, root_actions, root_priors, .. } = self;
        let edges = arena.node(NodeId::ROOT).edges();
        root_actions.extend(edges.map(|edge| arena.edges.action(edge)));
        let edges = arena.node(NodeId::ROOT).edges();
        root_priors.extend(edges.map(|edge| arena.edges.prior(edge)));
    }

    /// Sets the priors of the root edges to the noisy priors, and recomputes the prior mass of the visited children.
    fn set_priors(&mut self) {
        let mut mass = 0.0;
        for (edge, &prior) in self.arena.node(NodeId::ROOT).edges().zip(&self.noisy_priors) {
            self.arena.edges.set_prior(edge, prior);
            if self.arena.edges.child(edge) != NodeId::NONE {
                mass += prior;
            }
        }
        self.arena.node_mut(NodeId::ROOT).set_visited_mass(mass);
    }

    fn best_scored(&self, sigma: Sigma) -> Option<EdgeId> {
        let root = self.node();
        let is_candidate = candidates(&self.arena, root);
        let mut scores = Vec::new();
        improved_logits(&self.arena, root, sigma, &mut scores);
        let mut best: Option<(Option<u32>, f32, EdgeId)> = None;
        for ((action, edge), &score) in root.edges().enumerate().zip(&scores) {
            if !is_candidate(edge) {
                continue;
            }
            let credited = self.halving.credited(action, candidate(&self.arena, action).visits);
            let score = score + self.gumbel.get(action).copied().unwrap_or(0.0);
            if best.is_none_or(|(most, greatest, _)| (credited, score) > (most, greatest)) {
                best = Some((credited, score, edge));
            }
        }
        best.map(|(_, _, edge)| edge)
    }

    /// Returns true if the remaining pUCT simulations cannot change the most visited action and the search may stop
    /// early.
    #[inline]
    fn is_decided(&self) -> bool {
        let root = self.node();
        let left = (self.budget + 1).saturating_sub(root.visits);
        // No lead exceeds the total visits of the root, so this cheap check alone decides in the first half of a
        // search.
        self.settings.early_stop == EarlyStop::Decided
            && self.exploration == Exploration::Greedy
            && root.visits > left
            && is_decided(&self.arena, root, left)
    }

    #[inline]
    fn sigma(&self) -> Option<Sigma> {
        match self.settings.algorithm {
            SearchAlgorithm::Puct => None,
            SearchAlgorithm::Gumbel { c_visit, c_scale, span, .. } => Some(Sigma { c_visit, c_scale, span }),
        }
    }

    #[inline]
    fn node(&self) -> &Node {
        self.arena.nodes.first().expect("a search has a root")
    }

    #[inline]
    fn request(&self, parent: NodeId, edge: EdgeId) -> Request {
        let chosen = self.arena.edges.action(edge);
        let generation = self.generation;
        if self.arena.has_chance && self.arena.node(parent).is_chance {
            let action = self.arena.edges.action(self.arena.node(parent).edge);
            return Request { action, outcome: Some(chosen), parent, edge, generation };
        }
        Request { action: chosen, outcome: None, parent, edge, generation }
    }

    #[inline]
    fn check(&self, request: &Request) {
        assert_eq!(request.generation, self.generation, "a request does not outlive its root");
    }

    /// Clears the search state of the root and invalidates all requests. Panics if a request is in flight.
    fn leave_root(&mut self) {
        let in_flight = self.arena.nodes.first().map_or(0, |root| root.in_flight);
        assert_eq!(in_flight, 0, "every request is answered or cancelled before the root changes");
        self.generation += 1;
        self.budget = 0;
        self.exploration = Exploration::Greedy;
        self.root_actions.clear();
        self.root_priors.clear();
        self.gumbel.clear();
        self.halving.clear();
    }
}

/// Returns the status and visits of a root action for sequential halving.
fn candidate(arena: &Arena, action: usize) -> Candidate {
    let edge = arena.node(NodeId::ROOT).edge_at(action);
    let status = match arena.edges.status(edge) {
        // This runs for every action in every simulation, so the child is read only for a closed edge.
        Status::Closed if edge_proven(arena, edge) == Proven::Loss => CandidateStatus::Lost,
        Status::Closed => CandidateStatus::Closed,
        Status::Open | Status::Drawn => CandidateStatus::Open,
        Status::Blocked => CandidateStatus::Blocked,
    };
    // The cast is exact: visit counts stay far below 2^24.
    Candidate { visits: arena.edges.count(edge) as u32, status }
}

#[cfg(test)]
pub(crate) mod tests;
