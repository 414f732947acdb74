mod chance;
mod mctx;
mod muzero;
mod reference;
mod tabular;
pub(crate) mod toy;

use super::*;
use crate::settings::ValueRange;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use reference::Reference;
use toy::{Silent, Turns, games, run, run_with, search};

fn settings() -> Settings {
    Settings::default()
}

fn gumbel() -> Settings {
    Settings { algorithm: SearchAlgorithm::GUMBEL, ..settings() }
}

fn check_by_the_reference(settings: &Settings, leaves: usize) {
    for turns in [Turns::Alternating, Turns::Mixed] {
        for solver in [Solver::On, Solver::Off] {
            for toy in games(40, 6, turns) {
                let settings = Settings { solver, ..settings.clone() };
                let mut tree = toy.tree(&settings);
                let mut reference = Reference::new(toy, settings);
                for simulations in [1, 2, 5, 30, 200] {
                    search(&mut tree, simulations, Exploration::Greedy, leaves);
                    reference.search(simulations, leaves);
                    reference.check(&tree);
                }
            }
        }
    }
}

#[test]
fn puct_grows_the_tree_of_the_reference_node_for_node() {
    for fpu_reduction in [0.0, 0.25, 1.0] {
        check_by_the_reference(&Settings { fpu_reduction, ..settings() }, 1);
    }
}

#[test]
fn puct_with_leaves_in_flight_grows_the_tree_of_the_reference() {
    for values in [ValueRange::Board, ValueRange::Normalised] {
        check_by_the_reference(&Settings { values, ..settings() }, 3);
    }
}

#[test]
fn puct_with_normalised_values_grows_the_tree_of_the_reference() {
    check_by_the_reference(&Settings { values: ValueRange::Normalised, ..settings() }, 1);
}

#[test]
fn a_node_has_one_visit_more_than_its_children_together() {
    for settings in [settings(), gumbel()] {
        for toy in games(30, 7, Turns::Mixed) {
            for leaves in [1, 4] {
                let mut tree = toy.tree(&settings);
                search(&mut tree, 150, Exploration::Explore, leaves);
                check_visit_counts(&tree);
            }
        }
    }
}

#[test]
fn a_cancelled_request_leaves_the_tree_unchanged() {
    for toy in games(40, 7, Turns::Alternating) {
        let mut tree = toy.tree(&Settings { solver: Solver::Off, ..settings() });
        search(&mut tree, 20, Exploration::Greedy, 1);
        tree.begin(1000, Exploration::Greedy, &mut Silent);
        let before = hot_values(&tree);
        let mut requests = Vec::new();
        while let Selection::Leaf(request) = tree.select() {
            requests.push(request);
        }
        let completed_in_between = tree.root().simulations() > 20;
        requests.into_iter().for_each(|request| tree.cancel(request));
        if !completed_in_between {
            assert_eq!(before, hot_values(&tree));
        }
        check_visit_counts(&tree);
    }
}

#[test]
fn no_visit_is_in_flight_once_all_requests_are_answered() {
    for settings in [settings(), gumbel()] {
        for toy in games(40, 7, Turns::Alternating) {
            let mut tree = toy.tree(&settings);
            search(&mut tree, 100, Exploration::Greedy, 8);
            check_visit_counts(&tree);
        }
    }
}

#[test]
fn a_search_with_every_leaf_in_flight_still_finishes() {
    for toy in games(30, 4, Turns::Alternating) {
        let mut tree = toy.tree(&settings());
        tree.begin(400, Exploration::Greedy, &mut Silent);
        run(&mut tree, 1000);
        assert!(tree.is_finished());
    }
}

#[test]
fn proofs_agree_with_minimax() {
    let mut proven = 0;
    for settings in [settings(), gumbel()] {
        for toy in games(150, 5, Turns::Alternating) {
            for leaves in [1, 3] {
                let mut tree = toy.tree(&settings);
                search(&mut tree, 2000, Exploration::Greedy, leaves);
                let exact = minimax(toy);
                if let Some(value) = tree.root().proven().value() {
                    proven += 1;
                    assert_eq!(value, exact, "{toy:?}");
                    assert_eq!(tree.root().value_under(&search_policy(&tree)), exact);
                    let step = toy.step(tree.best_action());
                    assert_eq!(-minimax(step.toy), exact, "the best action keeps the result of {toy:?}");
                }
                check_proofs(&tree);
            }
        }
    }
    assert!(proven > 400, "only {proven} of 600 roots were proven");
}

#[test]
fn a_proven_win_or_loss_is_not_visited_again_and_a_proven_draw_keeps_its_value() {
    let mut draws = 0;
    for toy in games(60, 5, Turns::Alternating) {
        let mut tree = toy.tree(&settings());
        tree.begin(300, Exploration::Greedy, &mut Silent);
        let mut seen: Vec<(Proven, u32)> = Vec::new();
        while !tree.is_finished() {
            match tree.select() {
                Selection::Leaf(request) => {
                    let step = tree.parent_state(&request).step(request.action);
                    step.toy
                        .expansion(|expansion| tree.answer(request, step.toy, step.reward, step.discount, expansion));
                }
                Selection::Completed => {}
                Selection::Busy => panic!("an unfinished search with nothing in flight selects a leaf"),
            }
            let now: Vec<_> = tree.root().action_proofs().into_iter().zip(tree.root().visit_counts()).collect();
            for (before, after) in seen.iter().zip(&now) {
                match before.0 {
                    Proven::Unknown => {}
                    Proven::Draw => draws += u32::from(after.1 > before.1),
                    Proven::Win | Proven::Loss => assert_eq!(before, after),
                }
            }
            for (proof, value) in now.iter().map(|(proof, _)| proof).zip(tree.root().action_values()) {
                assert!(proof.value().is_none_or(|exact| exact == value), "{proof:?} is worth {value}");
            }
            seen = now;
        }
    }
    assert!(draws > 0, "no proven draw was visited again");
}

/// A game in which the first player can draw at once with action 0, or continue with action 1 at a constant value
/// without any proof.
#[derive(Debug, Clone, Copy)]
struct DrawOrPlayOn {
    plies: u32,
    value_to_move: f32,
}

impl DrawOrPlayOn {
    const ACTIONS: [Action; 2] = [Action(0), Action(1)];

    fn tree(value: f32, priors: [f32; 2], settings: &Settings) -> Tree<Self> {
        let mut tree = Tree::new(settings.clone());
        let expansion = Expansion::Evaluated { actions: &Self::ACTIONS, priors: &priors, value };
        tree.reset(Self { plies: 0, value_to_move: value }, expansion);
        tree
    }

    fn answer(tree: &mut Tree<Self>, request: Request) {
        let parent = tree.parent_state(&request);
        let child = Self { plies: parent.plies + 1, value_to_move: -parent.value_to_move };
        let expansion = match (child.plies, request.action) {
            (1, Action(0)) => Expansion::Terminal { value: 0.0 },
            _ => Expansion::Evaluated { actions: &Self::ACTIONS, priors: &[0.5, 0.5], value: child.value_to_move },
        };
        tree.answer(request, child, 0.0, -1.0, expansion);
    }
}

#[test]
fn a_proven_draw_is_preferred_to_an_action_with_a_losing_value() {
    for settings in [settings(), gumbel()] {
        for priors in [[0.5, 0.5], [0.1, 0.9]] {
            for exploration in [Exploration::Greedy, Exploration::Explore] {
                for (simulations, leaves) in [(32, 1), (96, 1), (96, 4)] {
                    let mut tree = DrawOrPlayOn::tree(-0.9, priors, &settings);
                    tree.begin(simulations, exploration, &mut ChaCha8Rng::seed_from_u64(7));
                    run_with(&mut tree, leaves, DrawOrPlayOn::answer);
                    let policy = search_policy(&tree);
                    let case = format!("{settings:?}, {priors:?}, {exploration:?}, {simulations}, {leaves}");
                    assert_eq!(tree.root().action_proofs(), [Proven::Draw, Proven::Unknown], "{case}");
                    assert_eq!(tree.best_action(), Action(0), "{case}");
                    assert_eq!(policy, [1.0, 0.0], "{case}");
                    assert!(tree.root().value_under(&policy) >= 0.0, "{case}: {}", tree.root().value_under(&policy));
                }
            }
        }
    }
}

#[test]
fn an_action_with_a_winning_value_is_preferred_to_a_proven_draw() {
    for settings in [settings(), gumbel()] {
        let mut tree = DrawOrPlayOn::tree(0.5, [0.5, 0.5], &settings);
        tree.begin(96, Exploration::Greedy, &mut Silent);
        run_with(&mut tree, 1, DrawOrPlayOn::answer);
        assert_eq!(tree.root().action_proofs(), [Proven::Draw, Proven::Unknown]);
        assert_eq!(tree.best_action(), Action(1));
    }
}

#[test]
fn a_search_that_stops_early_plays_the_action_of_the_whole_budget() {
    let whole = Settings { solver: Solver::Off, ..settings() };
    let stopping = Settings { early_stop: EarlyStop::Decided, ..whole.clone() };
    let (mut made, mut budgets) = (0, 0);
    for toy in games(200, 8, Turns::Mixed) {
        for simulations in [1, 2, 9, 40, 120] {
            for leaves in [1, 4] {
                let mut trees = [toy.tree(&whole), toy.tree(&stopping)];
                for tree in &mut trees {
                    search(tree, simulations, Exploration::Greedy, leaves);
                }
                assert_eq!(trees[1].best_action(), trees[0].best_action(), "{simulations} simulations of {toy:?}");
                made += trees[1].root().simulations();
                budgets += trees[0].root().simulations();
            }
        }
    }
    assert!(f64::from(made) < 0.9 * f64::from(budgets), "{made} of {budgets} simulations");
}

/// A sequential search passes through every possible visit count.
#[test]
fn a_search_stops_at_the_first_simulation_whose_lead_the_rest_of_the_budget_cannot_make_up() {
    let whole = Settings { solver: Solver::Off, ..settings() };
    let mut early = 0;
    for toy in games(60, 8, Turns::Mixed) {
        for budget in [1, 2, 9, 40] {
            let mut tree = toy.tree(&whole);
            let is_decided = |&made: &u32| {
                search(&mut tree, made, Exploration::Greedy, 1);
                let mut visits = tree.root().visit_counts();
                visits.sort_unstable();
                let most = visits.pop().unwrap();
                most > visits.pop().unwrap_or(0) + (budget - made)
            };
            let needed = (0..budget).find(is_decided).unwrap_or(budget);
            let mut stopping = toy.tree(&Settings { early_stop: EarlyStop::Decided, ..whole.clone() });
            search(&mut stopping, budget, Exploration::Greedy, 1);
            assert_eq!(stopping.root().simulations(), needed, "of {budget} simulations of {toy:?}");
            early += u32::from(needed < budget);
        }
    }
    assert!(early > 100, "only {early} of 240 searches stop early");
}

#[test]
fn an_exploring_or_sampling_search_makes_every_simulation() {
    let settings = Settings { solver: Solver::Off, early_stop: EarlyStop::Decided, ..settings() };
    for toy in games(40, 8, Turns::Alternating) {
        for exploration in [Exploration::Explore, Exploration::Sample] {
            let mut tree = toy.tree(&settings);
            search(&mut tree, 60, exploration, 1);
            assert_eq!(tree.root().simulations(), 60);
        }
    }
}

/// A proven draw is not visited repeatedly merely because all other edges are in flight.
#[test]
fn a_proven_draw_is_not_visited_repeatedly_while_leaves_are_in_flight() {
    let mut tree = DrawOrPlayOn::tree(0.5, [0.5, 0.5], &settings());
    tree.begin(8, Exploration::Greedy, &mut Silent);
    run_with(&mut tree, 1, DrawOrPlayOn::answer);
    assert_eq!(tree.root().action_proofs()[0], Proven::Draw);
    tree.begin(400, Exploration::Greedy, &mut Silent);
    let mut requests = Vec::new();
    loop {
        match tree.select() {
            Selection::Leaf(request) => requests.push(request),
            Selection::Completed => {}
            Selection::Busy => break,
        }
    }
    let visits = tree.root().visit_counts();
    assert!(visits[0] < 50, "{visits:?} while {} leaves are in flight", requests.len());
}

#[test]
fn the_search_policy_sums_to_one_and_excludes_actions_worse_than_a_proven_result() {
    for settings in [settings(), gumbel()] {
        for toy in games(80, 5, Turns::Alternating) {
            for simulations in [0, 1, 7, 60] {
                let mut tree = toy.tree(&settings);
                search(&mut tree, simulations, Exploration::Explore, 1);
                let policy = search_policy(&tree);
                assert!((policy.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{policy:?}");
                let root = tree.root();
                for (&share, proof) in policy.iter().zip(root.action_proofs()) {
                    match root.proven() {
                        Proven::Loss => {}
                        Proven::Win => assert_eq!(share > 0.0, proof == Proven::Win),
                        _ => assert!(proof != Proven::Loss || share == 0.0),
                    }
                }
                let draws = root.proven() == Proven::Unknown && root.action_proofs().contains(&Proven::Draw);
                for (&share, value) in policy.iter().zip(root.action_values()) {
                    assert!(!draws || share == 0.0 || value >= 0.0, "{share} for {value}, a draw is proven: {toy:?}");
                }
            }
        }
    }
}

#[test]
fn reuse_keeps_every_statistic_of_the_subtree() {
    for settings in [settings(), gumbel()] {
        for toy in games(60, 8, Turns::Mixed) {
            let mut tree = toy.tree(&settings);
            let mut state = toy;
            for _ in 0..6 {
                search(&mut tree, 120, Exploration::Explore, 3);
                let action = tree.best_action();
                let edge = tree.node().edges().find(|&edge| tree.arena.edges.action(edge) == action).unwrap();
                let child = tree.arena.edges.child(edge);
                let before = (child != NodeId::NONE).then(|| dump(&tree, child));
                state = state.step(action).toy;
                if !tree.advance(action) {
                    assert!(!tree.is_ready());
                    break;
                }
                assert_eq!(dump(&tree, NodeId::ROOT), before.unwrap());
                assert_eq!(*tree.root_state(), state);
                check_visit_counts(&tree);
            }
        }
    }
}

#[test]
fn kept_visits_count_towards_the_budget() {
    for toy in games(60, 9, Turns::Alternating) {
        let mut tree = toy.tree(&Settings { solver: Solver::Off, ..settings() });
        search(&mut tree, 100, Exploration::Greedy, 1);
        if tree.advance(tree.best_action()) {
            let kept = tree.root().simulations();
            search(&mut tree, 100, Exploration::Greedy, 1);
            assert_eq!(tree.root().simulations(), kept.max(100));
        }
    }
}

#[test]
fn a_greedy_search_draws_no_random_number() {
    for settings in [settings(), gumbel()] {
        for toy in games(10, 6, Turns::Alternating) {
            let mut tree = toy.tree(&settings);
            tree.begin(50, Exploration::Greedy, &mut Silent);
            run(&mut tree, 1);
            assert_eq!(tree.sample_action(0.0, &mut Silent), tree.best_action());
        }
    }
}

#[test]
fn a_seed_fixes_the_tree() {
    for settings in [settings(), gumbel()] {
        for toy in games(10, 7, Turns::Alternating) {
            let [first, second] = [0, 1].map(|_| {
                let mut tree = toy.tree(&settings);
                search(&mut tree, 100, Exploration::Explore, 4);
                dump(&tree, NodeId::ROOT)
            });
            assert_eq!(first, second);
        }
    }
}

#[test]
fn noise_is_absent_from_the_shown_priors_and_from_the_next_search() {
    for toy in games(10, 6, Turns::Alternating) {
        let mut tree = toy.tree(&settings());
        search(&mut tree, 20, Exploration::Explore, 1);
        assert_eq!(tree.root().priors(), toy.priors());
        tree.begin(30, Exploration::Greedy, &mut Silent);
        let searched: Vec<f32> = tree.node().edges().map(|edge| tree.arena.edges.prior(edge)).collect();
        assert_eq!(searched, toy.priors());
    }
}

/// Danihelka et al. 2022, section 4: the completed-Q policy is an improvement on the prior.
#[test]
fn the_gumbel_policy_has_at_least_the_value_of_the_prior() {
    for toy in games(100, 7, Turns::Alternating) {
        let mut tree = toy.tree(&Settings { solver: Solver::Off, ..gumbel() });
        search(&mut tree, 32, Exploration::Explore, 1);
        let policy = search_policy(&tree);
        let values = tree.root().action_values();
        let expected = |shares: &[f32]| shares.iter().zip(&values).map(|(share, value)| share * value).sum::<f32>();
        assert!(expected(&policy) >= expected(&toy.priors()) - 1e-5);
    }
}

#[test]
fn the_gumbel_policy_is_the_softmax_of_logits_and_completed_values() {
    for toy in games(50, 7, Turns::Alternating) {
        let mut tree = toy.tree(&Settings { solver: Solver::Off, ..gumbel() });
        search(&mut tree, 10, Exploration::Explore, 1);
        let (visits, priors) = (tree.root().visit_counts(), toy.priors());
        let mean = |at: usize| {
            let step = toy.step(tree.root().actions()[at]);
            let child = tree.arena.edges.child(tree.node().edge_at(at));
            f64::from(step.reward) + f64::from(step.discount) * tree.arena.node(child).value_sum / f64::from(visits[at])
        };
        let visited: Vec<usize> = (0..visits.len()).filter(|&at| visits[at] > 0).collect();
        let total: f64 = visits.iter().map(|&n| f64::from(n)).sum();
        let mass: f64 = visited.iter().map(|&at| f64::from(priors[at])).sum();
        let weighted: f64 = visited.iter().map(|&at| f64::from(priors[at]) * mean(at)).sum();
        let mixed = (f64::from(toy.value()) + total * weighted / mass) / (1.0 + total);
        let most = f64::from(*visits.iter().max().unwrap());
        let logits: Vec<f64> = (0..visits.len())
            .map(|at| f64::from(priors[at]).ln() + (50.0 + most) * if visits[at] > 0 { mean(at) } else { mixed })
            .collect();
        let greatest = logits.iter().copied().fold(f64::MIN, f64::max);
        let shares: Vec<f64> = logits.iter().map(|logit| (logit - greatest).exp()).collect();
        for (share, found) in shares.iter().zip(&search_policy(&tree)) {
            assert!((share / shares.iter().sum::<f64>() - f64::from(*found)).abs() < 1e-4);
        }
    }
}

#[test]
fn sampling_follows_the_policy_sharpened_by_temperature() {
    let toy = games(50, 7, Turns::Alternating).find(|toy| toy.actions().len() == 4).unwrap();
    let mut tree = toy.tree(&Settings { solver: Solver::Off, ..settings() });
    search(&mut tree, 64, Exploration::Greedy, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let draws = 20_000;
    let sharp: Vec<f32> = search_policy(&tree).iter().map(|share| share * share).collect();
    let mut counts = [0_u32; 4];
    for _ in 0..draws {
        let action = tree.sample_action(0.5, &mut rng);
        counts[tree.root().actions().iter().position(|&legal| legal == action).unwrap()] += 1;
    }
    for (count, share) in counts.iter().zip(&sharp) {
        let expected = share / sharp.iter().sum::<f32>();
        // Four standard deviations of a share of 20 000 draws are below 0.015.
        assert!((*count as f32 / draws as f32 - expected).abs() < 0.015);
    }
}

#[test]
fn the_principal_variation_starts_with_the_best_action() {
    for settings in [settings(), gumbel()] {
        for toy in games(20, 7, Turns::Alternating) {
            let mut tree = toy.tree(&settings);
            search(&mut tree, 100, Exploration::Greedy, 1);
            let mut line = Vec::new();
            tree.principal_variation(&mut line);
            assert_eq!(line[0], tree.best_action());
        }
    }
}

#[test]
fn every_variation_begins_with_its_action_and_the_visits_along_it_fall() {
    for toy in games(20, 7, Turns::Alternating) {
        let mut tree = toy.tree(&settings());
        search(&mut tree, 100, Exploration::Greedy, 1);
        let mut principal = Vec::new();
        tree.principal_variation(&mut principal);
        let best: Vec<Action> = tree.variation(tree.best_action()).iter().map(|step| step.action).collect();
        assert_eq!(best, principal);
        let root = tree.root();
        for (&action, visits) in root.actions().iter().zip(root.visit_counts()) {
            let variation = tree.variation(action);
            assert_eq!((variation[0].action, variation[0].visits), (action, visits));
            assert!(variation.is_sorted_by(|step, next| step.visits > next.visits), "{variation:?}");
        }
        assert_eq!(tree.variation(Action(u16::MAX)), []);
    }
}

/// A node takes one cache line, and eight edges take three.
#[test]
fn the_memory_of_a_tree_is_that_of_its_nodes_octets_and_states() {
    let state = size_of::<toy::Toy>();
    for toy in games(10, 6, Turns::Alternating) {
        let mut tree = toy.tree(&settings());
        assert_eq!((tree.node_count(), tree.bytes()), (1, 64 + 192 + state));
        search(&mut tree, 50, Exploration::Greedy, 1);
        let octets = tree.arena.nodes.iter().filter(|node| node.edge_count > 0).count();
        assert_eq!(tree.bytes(), tree.node_count() * (64 + state) + octets * 192);
    }
}

/// Three actions have priors 0.6, 0.3 and 0.1: the first loses at once, the second has value 0, the third is
/// unvisited.
#[test]
fn refuted_moves_do_not_lower_the_value_of_unvisited_ones() {
    const ACTIONS: [Action; 3] = [Action(0), Action(1), Action(2)];
    let evaluated = Expansion::Evaluated { actions: &ACTIONS, priors: &[0.6, 0.3, 0.1], value: 0.0 };
    for settings in [settings(), gumbel()] {
        let mut tree = Tree::new(settings);
        tree.reset((), evaluated);
        tree.begin(2, Exploration::Greedy, &mut Silent);
        run_with(&mut tree, 1, |tree, request| {
            // The opponent is to move at this node and has won.
            let lost = Expansion::Terminal { value: 1.0 };
            let expansion = if request.action == Action(0) { lost } else { evaluated };
            tree.answer(request, (), 0.0, -1.0, expansion);
        });
        assert_eq!(tree.root().visit_counts(), [1, 1, 0]);
        assert_eq!(tree.root().action_values(), [-1.0, 0.0, 0.0]);
    }
}

/// One of seven actions has value 0.9, the rest −0.9. Sequential halving with 32 simulations gives 12, 12, 4, 1, 1, 1
/// and 1 visits.
#[test]
fn the_value_is_that_of_the_search_policy_and_not_the_mean_over_rejected_actions() {
    const ACTIONS: [Action; 7] = [Action(0), Action(1), Action(2), Action(3), Action(4), Action(5), Action(6)];
    let evaluated = |value| Expansion::Evaluated { actions: &ACTIONS, priors: &[1.0 / 7.0; 7], value };
    let mut tree = Tree::new(gumbel());
    tree.reset(0.0, evaluated(0.0));
    tree.begin(32, Exploration::Explore, &mut ChaCha8Rng::seed_from_u64(7));
    run_with(&mut tree, 1, |tree, request| {
        let parent = *tree.parent_state(&request);
        let value = match (parent == 0.0, request.action) {
            (true, Action(3)) => -0.9,
            (true, _) => 0.9,
            (false, _) => -parent,
        };
        tree.answer(request, value, 0.0, -1.0, evaluated(value));
    });
    let mut visits = tree.root().visit_counts();
    visits.sort_unstable();
    assert_eq!(visits, [1, 1, 1, 1, 4, 12, 12]);
    assert!(tree.node().mean_value < 0.0, "the mean is {}", tree.node().mean_value);
    assert!((tree.root().value_under(&search_policy(&tree)) - 0.9).abs() < 1e-3);
}

/// Checks that all counts are consistent, and that nothing is in flight or blocked.
fn check_visit_counts(tree: &Tree<toy::Toy>) {
    let arena = &tree.arena;
    assert_eq!(tree.states.len(), arena.nodes.len());
    for (at, node) in arena.nodes.iter().enumerate() {
        assert_eq!(node.in_flight, 0);
        let children = node.edges().map(|edge| crate::root_policy::edge_visits(arena, edge)).sum::<u32>();
        assert!(node.edge_count == 0 || node.proven != Proven::Unknown || node.visits == 1 + children);
        let mut available = 0;
        for edge in node.edges() {
            assert_ne!(arena.edges.status(edge), crate::edges::Status::Blocked);
            available += u16::from(arena.edges.status(edge) == crate::edges::Status::Open);
            assert_eq!(arena.edges.count(edge), crate::root_policy::edge_visits(arena, edge) as f32);
            assert_eq!(arena.edges.share(edge), arena.edges.prior(edge) / (1.0 + arena.edges.count(edge)));
            check_edge_value(arena, edge);
            if let child @ NodeId(1..) = arena.edges.child(edge)
                && child != NodeId::NONE
            {
                assert_eq!(arena.node(child).parent.index(), at);
                assert_eq!(arena.node(child).edge, edge);
            }
        }
        assert_eq!(node.available, available);
    }
}

fn search_policy<S>(tree: &Tree<S>) -> Vec<f32> {
    let mut policy = Vec::new();
    tree.search_policy(&mut policy);
    policy
}

/// Checks that the stored value of each edge agrees with the value of the child.
fn check_edge_value(arena: &Arena, edge: EdgeId) {
    use crate::edges::{Status, UNAVAILABLE};
    let seen = arena.edges.value(edge);
    match crate::root_policy::edge_value(arena, edge) {
        _ if arena.edges.status(edge) == Status::Closed => assert_eq!(seen, UNAVAILABLE),
        Some(value) => assert_eq!(seen, value),
        None => assert!(seen.is_nan()),
    }
}

fn hot_values(tree: &Tree<toy::Toy>) -> Vec<(u32, u32)> {
    let Arena { nodes, edges, .. } = &tree.arena;
    let all = nodes.iter().flat_map(Node::edges);
    all.map(|edge| (edges.value(edge).to_bits(), edges.count(edge).to_bits())).collect()
}

/// Dumps the subtree below a node in depth-first order.
fn dump(tree: &Tree<toy::Toy>, id: NodeId) -> Vec<String> {
    let node = tree.arena.node(id);
    let mut lines = vec![format!("{} {} {:?} {:?}", node.visits, node.value_sum, node.proven, tree.states[id.index()])];
    for edge in node.edges() {
        lines.push(format!("{} {}", tree.arena.edges.action(edge), tree.arena.edges.count(edge)));
        if tree.arena.edges.child(edge) != NodeId::NONE {
            lines.extend(dump(tree, tree.arena.edges.child(edge)));
        }
    }
    lines
}

fn minimax(toy: toy::Toy) -> f32 {
    let results = toy.actions().into_iter().map(|action| -minimax(toy.step(action).toy));
    toy.outcome().unwrap_or_else(|| results.fold(-1.0, f32::max))
}

fn check_proofs(tree: &Tree<toy::Toy>) {
    for (node, &toy) in tree.arena.nodes.iter().zip(&tree.states) {
        assert!(node.proven.value().is_none_or(|value| value == minimax(toy)));
    }
}
