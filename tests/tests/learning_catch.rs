//! Training with the real processes learns Catch, in a learned model and by the rules.

use std::time::Duration;

use tests::{Cluster, Role, SEED, wait_until};

/// Limit of each of two waits.
const LIMIT: Duration = Duration::from_secs(240);
/// All of the 32 evaluation episodes are won, as a miss costs 2/32.
const SOLVED: f64 = 0.98;

/// The preset of Catch trains a residual network; the only reward comes after nine steps. A blind paddle catches one
/// ball in five, so untrained weights have a mean return near -0.6, with a standard deviation of 0.14 over 32 episodes.
///
/// Measured searches have `simulations`; a single simulation plays the action with the highest prior.
#[allow(clippy::print_stderr, reason = "a failed test shows its seed")]
fn catch_is_learnt(settings: &str, simulations: u32) {
    eprintln!("seed {SEED}");
    let mut cluster = Cluster::new("catch", settings).unwrap();
    cluster.process(Role::Arena).argue(&["--set", &format!("arena.simulations={simulations}")]);
    let mean_return = |cluster: &mut Cluster| cluster.metric(Role::Arena, "zerofleet_arena_return_mean");
    // Without an actor there is no training, so that the first measured weights are the initial weights.
    cluster.start(&[Role::Replay, Role::Learner, Role::Arena]).unwrap();
    wait_until("the initial weights are measured", LIMIT, || Ok(mean_return(&mut cluster).is_some())).unwrap();
    let untrained = mean_return(&mut cluster).unwrap();
    assert!(untrained < 0.3, "untrained weights have a mean return of {untrained}");

    cluster.start(&[Role::Actor]).unwrap();
    wait_until("a version catches every ball", LIMIT, || {
        Ok(mean_return(&mut cluster).is_some_and(|mean| mean >= SOLVED))
    })
    .unwrap();
}

#[test]
fn catch_is_learnt_by_search_in_a_learned_model() {
    catch_is_learnt("", 64);
}

/// A search of 64 simulations by the rules needs no training to catch every ball, so the priors are measured.
#[test]
fn catch_is_learnt_by_search_by_the_rules() {
    catch_is_learnt("[network]\nmodel = \"alphazero\"\n", 1);
}
