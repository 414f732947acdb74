//! Check for every engine of MuZero networks: predictions along a chain of steps from an observation.

use game::{Action, ObservationShape};
use inference::categorical::transform;
use inference::{Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use weights::{Architecture, Model};

use super::{Named, architecture};

/// Dense and residual networks: with rewards, with nine chance codes, and without dynamics.
pub(crate) fn architectures() -> impl Iterator<Item = Architecture> {
    let models = [
        Model::Muzero { support: 5 },
        Model::StochasticMuzero { support: 5, codes: 9 },
        Model::AlphazeroReturns { support: 5 },
    ];
    [[5, 1, 1], [2, 3, 4]]
        .into_iter()
        .flat_map(move |shape| models.map(|model| Architecture { model, ..architecture(shape) }))
}

/// Asserts that a model of a network predicts the same as the layers.
pub(crate) fn agrees(named: &Named, model: &mut impl LatentModel) {
    let &Architecture { planes, height, width, actions, .. } = &named.architecture;
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    let observation: Vec<f32> = (0..planes * height * width).map(|i| (i * i % 7) as f32 - 2.5).collect();
    let legal: Vec<Action> = (0..actions as u16).map(Action).collect();
    batch.push(&legal, |cells| cells.copy_from_slice(&observation));

    model.reserve(2).expect("memory for two states");
    let mut predictions = LatentPredictions::default();
    model.initial(&batch, &[Slot(0)], &mut predictions).expect("an answer to an observation");
    let state = named.represent(&observation);
    near_predictions(named, &state, &predictions, "the observation");
    match named.architecture.model {
        Model::StochasticMuzero { .. } => takes_actions_and_codes(named, model, state),
        Model::Muzero { .. } => takes_actions(named, model, state),
        Model::AlphazeroReturns { .. } => takes_no_step(model),
        Model::Alphazero => unreachable!("the network has latent states"),
    }
}

fn takes_no_step(model: &mut impl LatentModel) {
    let step = Unroll { from: Slot(0), action: Action(0), to: Slot(1) };
    let refused = model.recurrent(&[step], &mut LatentPredictions::default());
    assert!(matches!(refused, Err(Error::Backend(_))), "{refused:?}");
}

fn takes_actions(named: &Named, model: &mut impl LatentModel, mut state: Vec<f64>) {
    let mut predictions = LatentPredictions::default();
    let (mut from, mut to) = (Slot(0), Slot(1));
    for (step, action) in [0, 4, 2, 1, 5, 3, 0].into_iter().enumerate() {
        let at = format!("{:?}, step {step}", named.architecture);
        model.recurrent(&[Unroll { from, action: Action(action), to }], &mut predictions).expect("an answer");
        state = named.unroll(&state, action.into());
        near_predictions(named, &state, &predictions, &at);
        near_atoms(predictions.reward(0), named.scalar("reward", &state), &format!("{at}: the reward"));
        std::mem::swap(&mut from, &mut to);
    }
}

fn takes_actions_and_codes(named: &Named, model: &mut impl LatentModel, mut state: Vec<f64>) {
    let mut predictions = LatentPredictions::default();
    let (of_states, of_afterstates) = (Slot(0), Slot(1));
    for (action, code) in [(0, 3), (4, 8), (5, 0), (2, 1)] {
        let at = format!("{:?}, action {action}, code {code}", named.architecture);
        let act = Unroll { from: of_states, action: Action(action), to: of_afterstates };
        model.act(&[act], &mut predictions).expect("an answer to an action");
        let afterstate = named.act(&state, action.into());
        near_all(predictions.priors(0), &named.codes(&afterstate), &format!("{at}: a probability of a code"));
        near_atoms(predictions.value(0), named.scalar("afterstate_value", &afterstate), &format!("{at}: its value"));
        assert_eq!(predictions.reward(0), 0.0, "{at}: the reward follows with the code");

        let follow = Unroll { from: of_afterstates, action: Action(code), to: of_states };
        model.recurrent(&[follow], &mut predictions).expect("an answer to a code");
        state = named.unroll(&afterstate, code.into());
        near_predictions(named, &state, &predictions, &at);
        near_atoms(predictions.reward(0), named.scalar("reward", &state), &format!("{at}: the reward"));
    }
}

/// Asserts that priors and value match a state.
fn near_predictions(named: &Named, state: &[f64], predictions: &LatentPredictions, at: &str) {
    near_all(predictions.priors(0), &named.priors(state), &format!("{at}: a prior"));
    near_atoms(predictions.value(0), named.scalar("value", state), &format!("{at}: the value"));
}

fn near_all(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    got.iter().zip(want).for_each(|(&got, &want)| near(got, want, what));
}

/// Compares a number with the mean atom that predicts it.
fn near_atoms(got: f32, want: f64, what: &str) {
    near(transform(got.into()) as f32, want, what);
}

fn near(got: f32, want: f64, what: &str) {
    assert!((f64::from(got) - want).abs() < 1e-4, "{what} is {got}, not {want}");
}
