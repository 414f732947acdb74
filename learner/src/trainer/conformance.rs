//! The contract of [`Trainer`] as tests, to be run for every backend.

use training::checkpoint::{Files, State};
use training::initial_weights::begin_with;
use training::{Laps, Losses, MomentFormat, Optimiser, Recompute, TrainerSettings, TrainingBatch, UnrolledBatch};
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, Model, NormKind};

use super::*;

/// Creates trainers of one backend and model with equal initial weights, and batches for the network.
struct Subject {
    make: fn(&Architecture, TrainerSettings) -> Box<dyn Trainer>,
    model: Model,
    design: Design,
    loss_weights: Losses,
    optimiser: Optimiser,
    moments: MomentFormat,
    recompute: Recompute,
    examples: fn() -> Examples,
    /// Returns examples with a NaN loss.
    not_finite: fn() -> Examples,
}

/// Returns subjects for the backend of `make`, with every model, every optimiser and every format of moments.
fn subjects(make: fn(&Architecture, TrainerSettings) -> Box<dyn Trainer>) -> Vec<Subject> {
    let muzero = || Subject {
        make,
        model: Model::Muzero { support: 5 },
        design: Design::default(),
        loss_weights: Losses::WEIGHTS,
        optimiser: Optimiser::adamw(),
        moments: MomentFormat::F32,
        recompute: Recompute::None,
        examples: || Examples::Unrolled(unrolled()),
        not_finite: || Examples::Unrolled(UnrolledBatch { rewards: vec![f32::NAN, 0.0], ..unrolled() }),
    };
    let alphazero = |design| Subject {
        model: Model::Alphazero,
        design,
        examples: || Examples::Positions(batch()),
        not_finite: || Examples::Positions(TrainingBatch { wdl: vec![f32::NAN, 1.0, 0.0], ..batch() }),
        ..muzero()
    };
    let mish = Design { activation: Activation::Mish, block: BlockKind::Bottleneck, ..Design::default() };
    let alphazero_of = alphazero;
    let alphazero = || alphazero_of(Design::default());
    vec![
        alphazero(),
        alphazero_of(mish),
        alphazero_of(Design { norm: NormKind::Layer, attention: 1, attention_heads: 2, ..Design::default() }),
        alphazero_of(Design { heads: HeadKind::Pooled, ..Design::default() }),
        Subject { moments: MomentFormat::Int8, recompute: Recompute::Blocks, ..alphazero() },
        Subject { optimiser: Optimiser::lion(), moments: MomentFormat::Bf16, ..alphazero() },
        Subject { optimiser: Optimiser::Muon { momentum: 0.95 }, ..alphazero() },
        Subject { optimiser: Optimiser::Muon { momentum: 0.95 }, moments: MomentFormat::Int8, ..muzero() },
        Subject { optimiser: Optimiser::Sgd { momentum: 0.9 }, moments: MomentFormat::Int8, ..alphazero() },
        Subject {
            model: Model::AlphazeroReturns { support: 5 },
            examples: || Examples::Unrolled(returns()),
            not_finite: || Examples::Unrolled(UnrolledBatch { values: vec![f32::NAN], ..returns() }),
            ..muzero()
        },
        muzero(),
        Subject { loss_weights: Losses { consistency: 2.0, ..Losses::WEIGHTS }, ..muzero() },
        Subject {
            model: Model::StochasticMuzero { support: 5, codes: 3 },
            not_finite: || {
                let next_observations = [f32::NAN; 2 * 2 * 9].into_iter().collect();
                Examples::Unrolled(UnrolledBatch { next_observations, ..unrolled() })
            },
            ..muzero()
        },
    ]
}

fn kernels(architecture: &Architecture, settings: TrainerSettings) -> Box<dyn Trainer> {
    Box::new(training_cpu::Trainer::new(architecture, settings, 1, 2).unwrap())
}

/// Returns a network small enough to train in a test.
pub(crate) fn architecture(model: Model) -> Architecture {
    Architecture { model, ..Architecture::plain("any", [2, 3, 3], 9, [8, 1]) }
}

/// Returns the architecture with another board size.
fn on_another_board(architecture: &Architecture) -> Architecture {
    Architecture { game: format!("{}-4x3", architecture.game), height: 4, actions: 12, ..architecture.clone() }
}

fn batch() -> TrainingBatch {
    batch_of(0, 9)
}

/// Returns a batch with one position on the board with index `board`, which has `cells` cells.
fn batch_of(board: usize, cells: usize) -> TrainingBatch {
    TrainingBatch {
        board,
        observations: (0..2 * cells).map(|cell| f32::from(u8::from(cell % 5 == 0))).collect(),
        policies: vec![1.0 / cells as f32; cells],
        legal: vec![1; cells],
        wdl: vec![1.0, 0.0, 0.0],
        policy_weights: vec![1.0],
        ..TrainingBatch::default()
    }
}

/// Returns a batch with one position and two unrolled steps.
fn unrolled() -> UnrolledBatch {
    let TrainingBatch { observations, policies, .. } = batch();
    UnrolledBatch {
        unroll_steps: 2,
        observations,
        actions: vec![3, 8],
        policies: policies.repeat(3),
        policy_weights: vec![1.0, 1.0, 0.0],
        values: vec![2.0, 1.0, 0.0],
        value_weights: vec![1.0; 3],
        rewards: vec![1.0, 1.0],
        next_observations: (0..2 * 2 * 9).map(|cell| f32::from(u8::from(cell % 4 == 0))).collect(),
        next_weights: vec![1.0, 0.0],
        chance_weights: vec![1.0, 1.0],
        importance: Vec::new(),
    }
}

/// Returns a batch with one position and no unrolled steps.
fn returns() -> UnrolledBatch {
    let TrainingBatch { observations, policies, .. } = batch();
    UnrolledBatch {
        observations,
        policies,
        policy_weights: vec![1.0],
        values: vec![-2.5],
        value_weights: vec![1.0],
        ..UnrolledBatch::default()
    }
}

impl Subject {
    fn settings(&self) -> TrainerSettings {
        let &Self { loss_weights, optimiser, moments, recompute, .. } = self;
        TrainerSettings { loss_weights, optimiser, moments, recompute, ..TrainerSettings::default() }
    }

    fn architecture(&self) -> Architecture {
        Architecture { design: self.design, ..architecture(self.model) }
    }

    fn trainer(&self) -> Box<dyn Trainer> {
        (self.make)(&self.architecture(), self.settings())
    }

    /// Returns a trainer after `steps` training steps.
    fn after(&self, steps: usize) -> Box<dyn Trainer> {
        let mut trainer = self.trainer();
        for _ in 0..steps {
            assert!(step(trainer.as_mut(), &(self.examples)()).is_ok());
        }
        trainer
    }

    fn a_trainer_without_queued_steps_has_no_results(&self) {
        assert!(self.trainer().collect(&mut Laps::none()).is_none());
    }

    fn results_come_in_the_order_of_their_steps_and_one_that_is_not_finite_changes_nothing(&self) {
        let mut trainer = self.after(1);
        let queue = [(self.examples)(), (self.not_finite)(), (self.examples)()];
        for examples in &queue {
            trainer.queue(examples, &mut Laps::none()).unwrap();
        }
        let applied = [(); 3].map(|()| trainer.collect(&mut Laps::none()).unwrap().is_ok());
        assert_eq!((applied, trainer.step_count()), ([true, false, true], 3));
        assert_eq!(files(trainer.as_ref()), files(self.after(3).as_ref()));
    }

    fn a_restored_trainer_continues_as_if_it_had_not_stopped(&self) {
        let checkpoint = files(self.after(2).as_ref());
        let mut restored = self.after(1);
        restored.queue(&(self.examples)(), &mut Laps::none()).unwrap();
        restored.load(&checkpoint).unwrap();
        assert_eq!((restored.step_count(), files(restored.as_ref())), (2, checkpoint));
        step(restored.as_mut(), &(self.examples)()).unwrap();
        let uninterrupted = self.after(3);
        assert_eq!(files(restored.as_ref()), files(uninterrupted.as_ref()));
        assert_eq!(published(restored.as_ref()), published(uninterrupted.as_ref()));
    }

    fn files_that_do_not_fit_leave_the_trainer_as_it_was(&self) {
        let mut trainer = self.after(2);
        let before = files(trainer.as_ref());
        let mut damaged = files(self.after(1).as_ref());
        damaged.last_mut().unwrap().1.truncate(10);
        assert!(trainer.load(&damaged).is_err() && trainer.load(&[]).is_err());
        assert_eq!(files(trainer.as_ref()), before);
    }

    fn an_average_of_equal_shares_is_the_mean_of_the_weights_since_its_start(&self) {
        let settings = || TrainerSettings { decay_steps: Some(4), swa_start: Some(0.5), ..self.settings() };
        let architecture = self.architecture();
        let layout = settings().layers(&architecture).unwrap().layout();
        let state =
            |trainer: &dyn Trainer| State::read(&layout, self.optimiser, self.moments, &files(trainer)).unwrap();
        let mut trainer = (self.make)(&architecture, settings());
        let mut sums = vec![0.0; training::layout::size(&layout.parameters)];
        for steps in 1..=6 {
            // Averaging starts before the third step; a restored trainer continues with the same average.
            let files = files(trainer.as_ref());
            trainer = (self.make)(&architecture, settings());
            trainer.load(&files).unwrap();
            assert!(step(trainer.as_mut(), &(self.examples)()).is_ok());
            let State { network, average, averaged_since, .. } = state(trainer.as_ref());
            assert_eq!(averaged_since, (steps > 2).then_some(2));
            if steps > 2 {
                sums.iter_mut().zip(&network.parameters).for_each(|(sum, x)| *sum += f64::from(*x));
                let apart =
                    sums.iter().zip(&average.parameters).map(|(sum, x)| sum / (steps - 2) as f64 - f64::from(*x));
                assert!(apart.map(f64::abs).fold(0.0, f64::max) < 1e-6, "after step {steps}");
            }
        }
    }

    fn a_kept_gradient_is_that_of_its_step_and_changes_nothing(&self) {
        let mut trainer = self.after(1);
        assert_eq!(trainer.take_gradient().unwrap(), None);
        trainer.keep_gradient();
        let losses = step(trainer.as_mut(), &(self.examples)()).unwrap();
        step(trainer.as_mut(), &(self.examples)()).unwrap();
        let gradient = trainer.take_gradient().unwrap().unwrap();
        let layout = self.settings().layers(&self.architecture()).unwrap().layout();
        assert_eq!(gradient.len(), training::layout::size(&layout.parameters));
        let norm = gradient.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        assert!((norm - losses.gradient_norm).abs() < 1e-4 * (1.0 + norm), "{norm} and {}", losses.gradient_norm);
        assert_eq!(trainer.take_gradient().unwrap(), None);
        assert_eq!(files(trainer.as_ref()), files(self.after(3).as_ref()));
    }

    fn a_contribution_changes_nothing_and_applied_alone_it_is_an_ordinary_step(&self) {
        let mut trainer = self.after(1);
        let before = files(trainer.as_ref());
        let [good, bad] = [(self.examples)(), (self.not_finite)()]
            .map(|examples| alone(trainer.contribute(&examples, &mut Laps::none()).unwrap()));
        assert_eq!(files(trainer.as_ref()), before);
        assert!(matches!(trainer.apply(bad, &mut Laps::none()), Err(Error::NotFinite { .. })));
        assert_eq!((files(trainer.as_ref()), trainer.step_count()), (before, 1));
        trainer.keep_gradient();
        let gradient = good.contribution.gradient().to_vec();
        trainer.apply(good, &mut Laps::none()).unwrap();
        assert_eq!(trainer.take_gradient().unwrap().unwrap(), gradient);
        assert_eq!((trainer.step_count(), files(trainer.as_ref())), (2, files(self.after(2).as_ref())));
    }

    fn trainers_of_one_state_that_apply_one_mean_have_one_state_again(&self) {
        let [mut one, mut other] = [(); 2].map(|()| self.after(1));
        for _ in 0..2 {
            let contributed = [&mut one, &mut other]
                .map(|trainer| trainer.contribute(&(self.examples)(), &mut Laps::none()).unwrap());
            let [a, b] = contributed.each_ref().map(|contributed| contributed.contribution.numbers());
            let sum: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
            let nothing = one.no_contribution();
            assert_eq!(nothing.numbers().len(), sum.len());
            for (trainer, mut contributed) in [&mut one, &mut other].into_iter().zip(contributed) {
                contributed.contribution.set_mean(&sum, 2);
                trainer.apply(contributed, &mut Laps::none()).unwrap();
            }
        }
        assert_eq!(files(one.as_ref()), files(other.as_ref()));
    }

    /// The expected results come from a separate trainer for each board with the same state, because no tensor depends
    /// on the board.
    fn steps_on_two_boards_alternate_as_by_trainers_of_either_board(&self) {
        let [own, other] = [self.architecture(), on_another_board(&self.architecture())];
        let mut trainer = self.trainer();
        assert_eq!(trainer.add_board(&other).unwrap(), 1);
        let mut of_one_board = [own, other].map(|architecture| (self.make)(&architecture, self.settings()));
        for board in [0, 1, 1, 0, 1] {
            let before = files(trainer.as_ref());
            of_one_board[board].load(&before).unwrap();
            let cells = [9, 12][board];
            step(trainer.as_mut(), &Examples::Positions(batch_of(board, cells))).unwrap();
            step(of_one_board[board].as_mut(), &Examples::Positions(batch_of(0, cells))).unwrap();
            let after = files(trainer.as_ref());
            assert_eq!(after, files(of_one_board[board].as_ref()));
            assert_ne!(after, before);
        }
        // A trainer keeps the added boards when it loads a state.
        let state = files(self.after(2).as_ref());
        trainer.load(&state).unwrap();
        for (board, cells) in [(2, 12), (1, 9), (0, 12)] {
            assert!(trainer.queue(&Examples::Positions(batch_of(board, cells)), &mut Laps::none()).is_err());
        }
        assert_eq!(files(trainer.as_ref()), state);
        assert!(step(trainer.as_mut(), &Examples::Positions(batch_of(1, 12))).is_ok());
    }

    fn a_board_on_which_the_network_has_other_tensors_is_refused(&self) {
        let mut trainer = self.trainer();
        let wider = Architecture { channels: 16, ..on_another_board(&self.architecture()) };
        let of_another_game = Architecture { game: "other-4x3".into(), ..on_another_board(&self.architecture()) };
        for architecture in [self.architecture(), wider, of_another_game] {
            assert!(trainer.add_board(&architecture).is_err(), "{architecture:?}");
        }
        let added = trainer.add_board(&on_another_board(&self.architecture()));
        assert_eq!(added.is_ok(), self.design.heads == HeadKind::Pooled);
    }

    fn a_new_trainer_that_begins_with_given_weights_publishes_them_and_trains(&self) {
        let given = published(self.after(2).as_ref());
        let (mut trainer, settings, architecture) = (self.trainer(), self.settings(), self.architecture());
        let adopted = begin_with(&mut *trainer, &settings, [&architecture; 2], &given).unwrap();
        assert_eq!((trainer.step_count(), published(trainer.as_ref())), (0, given));
        // Published weights lack the heads of the consistency loss.
        assert_eq!(adopted.new.is_empty(), settings.loss_weights.consistency == 0.0, "{adopted}");
        assert!(step(trainer.as_mut(), &(self.examples)()).is_ok());
        let before = files(trainer.as_ref());
        assert!(begin_with(&mut *trainer, &settings, [&architecture; 2], b"no weights").is_err());
        assert_eq!(files(trainer.as_ref()), before);
    }

    fn a_simulated_step_counts_and_changes_no_weights(&self) {
        let mut trainer = self.after(1);
        let before = published(trainer.as_ref());
        trainer.queue_nothing(&(self.examples)(), &mut Laps::none()).unwrap();
        assert!(trainer.collect(&mut Laps::none()).unwrap().is_ok());
        assert_eq!((trainer.step_count(), published(trainer.as_ref())), (2, before));
    }
}

/// Returns the mean of a single contribution, which is the contribution itself.
fn alone(mut contributed: Contributed) -> Contributed {
    let sum = contributed.contribution.numbers().to_vec();
    contributed.contribution.set_mean(&sum, 1);
    contributed
}

pub(super) fn step(trainer: &mut dyn Trainer, examples: &Examples) -> Result<Losses, Error> {
    trainer.step(examples)
}

pub(super) fn files(trainer: &dyn Trainer) -> Files {
    trainer.files().unwrap()
}

pub(super) fn published(trainer: &dyn Trainer) -> Vec<u8> {
    trainer.published().unwrap()
}

#[test]
fn the_kernels_of_the_cpu_keep_the_contract_of_trainers_for_every_model() {
    keep_the_contract(&subjects(kernels));
}

fn keep_the_contract(subjects: &[Subject]) {
    for subject in subjects {
        subject.a_trainer_without_queued_steps_has_no_results();
        subject.results_come_in_the_order_of_their_steps_and_one_that_is_not_finite_changes_nothing();
        subject.a_restored_trainer_continues_as_if_it_had_not_stopped();
        subject.files_that_do_not_fit_leave_the_trainer_as_it_was();
        subject.an_average_of_equal_shares_is_the_mean_of_the_weights_since_its_start();
        subject.a_kept_gradient_is_that_of_its_step_and_changes_nothing();
        subject.a_contribution_changes_nothing_and_applied_alone_it_is_an_ordinary_step();
        subject.trainers_of_one_state_that_apply_one_mean_have_one_state_again();
        subject.a_new_trainer_that_begins_with_given_weights_publishes_them_and_trains();
        subject.a_simulated_step_counts_and_changes_no_weights();
        subject.a_board_on_which_the_network_has_other_tensors_is_refused();
        if subject.design.heads == HeadKind::Pooled {
            subject.steps_on_two_boards_alternate_as_by_trainers_of_either_board();
        }
    }
}

#[cfg(feature = "torch")]
#[test]
fn libtorch_keeps_the_contract_of_trainers_for_every_model() {
    keep_the_contract(&subjects(|architecture, settings| {
        let network = network_torch::Network::to_train(architecture, &settings, network_torch::Device::Cpu, 1).unwrap();
        Box::new(network_torch::Trainer::new(network, settings).unwrap())
    }));
}
