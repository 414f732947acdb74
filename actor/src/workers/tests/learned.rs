//! Threads with weights of a MuZero network.

use evaluator_doubles::RulesModel;
use game::{EnvironmentsError, RulesEnvironments, Spec};
use inference::LatentModel;
use selfplay::LatentEpisodes;
use weights::Model;

use super::*;

/// Builds models that have learned the rules of tic-tac-toe, and evaluators; both value positions by hashes.
struct Both {
    before: Before,
}

impl Backend for Both {
    fn describe(&self) -> String {
        "both".to_owned()
    }

    fn build(&self, manifest: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, evaluators::Error> {
        Ok(Box::new(watched(manifest.version.0, &self.before)))
    }

    fn build_latent(&self, manifest: &Manifest, _: &Bytes) -> Result<Box<dyn LatentModel>, evaluators::Error> {
        Ok(Box::new(model(manifest.version.0, &self.before)))
    }
}

fn model(version: u64, before: &Before) -> RulesModel<TicTacToe, Watched> {
    RulesModel::of_all(TicTacToe::new(), watched(version, before), [0])
}

fn learned(number: u64) -> Arc<Published> {
    let mut published = (*published(&TicTacToe::new(), number)).clone();
    published.manifest.architecture.model = Model::Muzero { support: 10 };
    Arc::new(published)
}

fn bench(before: impl Fn(u64, usize) -> Result<(), Error> + Send + Sync + 'static) -> Bench {
    let before: Before = Arc::new(before);
    let mut bench = bench_of(Drain::new(), Arc::clone(&before));
    bench.worker.around.backend = Arc::new(Both { before });
    bench
}

fn publish(bench: &Bench, published: Arc<Published>) {
    bench.weights.send_replace(Some(published));
}

#[test]
fn weights_of_a_muzero_network_search_latent_states() {
    let mut bench = bench(|_, _| Ok(()));
    publish(&bench, learned(1));
    bench.play(400);
    let _ = bench.worker.hand_over();
    let mut by_hand = LatentEpisodes::new(TicTacToe::new(), selfplay(), 1.0, SEED);
    let mut model = model(1, &(Arc::new(|_, _| Ok(())) as Before));
    for _ in 0..400 {
        by_hand.advance(&mut model).unwrap();
    }
    let expected: Vec<FinishedEpisode> = by_hand.drain_finished().collect();
    assert!(expected.len() > 8, "{} episodes", expected.len());
    let Bench { worker, weights: _weights, finished, .. } = bench;
    drop(worker);
    assert_eq!(received(finished), expected);
}

#[test]
fn new_weights_of_a_muzero_network_take_effect_between_moves() {
    let versions = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&versions);
    let mut bench = bench(move |version, _| {
        log.lock().unwrap().push(version);
        Ok(())
    });
    publish(&bench, learned(1));
    bench.play(5);
    publish(&bench, learned(2));
    let before = versions.lock().unwrap().len();
    bench.worker.swap_weights().unwrap();
    assert_eq!(bench.version(), Some(2));
    let settled = versions.lock().unwrap().split_off(before);
    assert!(!settled.is_empty() && settled.iter().all(|&version| version == 1), "{settled:?}");
    bench.play(1);
    assert_eq!(versions.lock().unwrap().last(), Some(&2));
}

#[test]
fn a_thread_follows_weights_from_one_kind_of_network_to_the_other_and_back() {
    let mut bench = bench(|_, _| Ok(()));
    for version in 1..=4 {
        let weights = if version % 2 == 0 { learned(version) } else { published(&TicTacToe::new(), version) };
        publish(&bench, weights);
        bench.play(200);
        assert_eq!(bench.version(), Some(version));
    }
    bench.worker.hand_over().unwrap();
    let Bench { worker, weights: _weights, finished, .. } = bench;
    drop(worker);
    let versions: BTreeSet<u64> =
        received(finished).iter().flat_map(|e| e.steps.iter().map(|step| step.weights_version.0)).collect();
    assert_eq!(versions, BTreeSet::from([1, 2, 3, 4]), "no finished game is lost");
}

#[test]
fn a_learned_model_that_answers_nan_is_unloaded_and_the_next_version_is_used() {
    let mut bench =
        bench(|version, _| if version == 1 { Err(Error::NotFinite { weights_version: 1 }) } else { Ok(()) });
    publish(&bench, learned(1));
    bench.play(1);
    assert_eq!(bench.version(), None);
    publish(&bench, learned(2));
    bench.play(1);
    assert_eq!((bench.version(), bench.readiness.reason()), (Some(2), None));
}

#[test]
fn an_engine_without_muzero_networks_leaves_the_earlier_weights_in_use() {
    let mut bench = super::bench(|_, _| Ok(()));
    bench.publish(1);
    bench.play(1);
    publish(&bench, learned(2));
    bench.play(1);
    assert_eq!(bench.version(), Some(1));
}

/// Environments that never start.
struct Broken {
    spec: Spec,
}

impl Environments for Broken {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn len(&self) -> usize {
        2
    }

    fn begin(&mut self, _: &[game::Start], _: &mut Vec<game::Started>) -> Result<(), EnvironmentsError> {
        Err(EnvironmentsError { environment: "gym:Broken".to_owned(), source: "there is no display".into() })
    }

    fn step(&mut self, _: &[game::Play], _: &mut Vec<game::Taken>) -> Result<(), EnvironmentsError> {
        unreachable!("no episode begins")
    }

    fn observe(&self, _: usize, values: &mut [f32]) {
        values.fill(0.0);
    }

    fn legal_actions(&self, _: usize, actions: &mut Vec<game::Action>) {
        actions.clear();
    }

    fn to_move(&self, _: usize) -> game::Player {
        game::Player::First
    }
}

#[test]
fn environments_that_cannot_go_on_end_the_thread_with_the_reason() {
    let mut bench = bench(|_, _| Ok(()));
    let environments = Box::new(Broken { spec: TicTacToe::new().spec().clone() });
    bench.worker.play = new_play().in_environments(Some(environments));
    publish(&bench, learned(1));
    bench.worker.swap_weights().unwrap();
    let error = bench.worker.call(Pace::Advance).unwrap_err();
    assert_eq!(service::chain(&error), "play episodes: environment gym:Broken failed: there is no display");
}

/// Environments by the rules that draw, and count the pictures.
struct Drawing {
    inner: RulesEnvironments<TicTacToe>,
    drawn: Arc<AtomicUsize>,
}

impl Environments for Drawing {
    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn begin(&mut self, starts: &[game::Start], started: &mut Vec<game::Started>) -> Result<(), EnvironmentsError> {
        self.inner.begin(starts, started)
    }

    fn step(&mut self, plays: &[game::Play], taken: &mut Vec<game::Taken>) -> Result<(), EnvironmentsError> {
        self.inner.step(plays, taken)
    }

    fn observe(&self, environment: usize, values: &mut [f32]) {
        self.inner.observe(environment, values);
    }

    fn picture(&mut self, environment: usize) -> Option<String> {
        self.drawn.fetch_add(1, Ordering::Relaxed);
        Some(format!("picture of {environment}"))
    }

    fn legal_actions(&self, environment: usize, actions: &mut Vec<game::Action>) {
        self.inner.legal_actions(environment, actions);
    }

    fn to_move(&self, environment: usize) -> game::Player {
        self.inner.to_move(environment)
    }
}

#[test]
fn environments_draw_for_listeners_alone() {
    let drawn = Arc::<AtomicUsize>::default();
    let mut bench = bench(|_, _| Ok(()));
    let inner = RulesEnvironments::new(TicTacToe::new(), 8);
    let environments = Box::new(Drawing { inner, drawn: Arc::clone(&drawn) });
    bench.worker.play = new_play().in_environments(Some(environments));
    publish(&bench, learned(1));
    bench.play(200);
    assert_eq!(drawn.load(Ordering::Relaxed), 0);
    let mut listening = bench.live.listen().unwrap();
    bench.play(200);
    let shown = bench.runtime.block_on(within(listening.snapshot())).unwrap();
    assert_eq!(shown.picture, Some(format!("picture of {}", shown.place)));
    drop(listening);
    // The first round without listeners finds out.
    bench.play(1);
    let before = drawn.load(Ordering::Relaxed);
    bench.play(200);
    assert!(before > 0);
    assert_eq!(drawn.load(Ordering::Relaxed), before);
}
