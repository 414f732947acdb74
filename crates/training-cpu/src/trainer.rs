mod layer_check;
mod model;

use std::collections::{BTreeMap, VecDeque};

use training::checkpoint::State;
use training::{
    Contents, Contributed, Contribution, Examples, Group, Laps, Losses, Memory, MixedPrecision, Moment, Numbers,
    Placed, Precision, StepTimes, Trained, Trainer as _, TrainerSettings,
};
use weights::Architecture;

use self::model::Model;
use crate::buffer::Store;
use crate::graph::{Changes, Workshop};
use crate::losses::Targets;
use crate::optimiser::{self, StepSettings};
use crate::shape::evenly;
use crate::snapshot::{Copied, Snapshot};
use crate::threads::Threads;
use crate::{Error, Path};

/// A network in training: weights, running average, optimiser state, and position in the schedule.
///
/// A step is computed when it is queued, and the results are collected afterwards, in order. A step with a loss or
/// gradient that is not finite changes nothing. Steps use no random numbers: the same batches give the same weights,
/// bit for bit, with any number of threads.
#[derive(Debug)]
pub struct Trainer {
    settings: TrainerSettings,
    model: Model,
    /// All parameters, grouped by step rule.
    groups: Vec<Group>,
    path: Path,
    workshop: Workshop,
    /// The step in it counts applied steps, including steps not yet collected.
    state: State,
    /// `[P]`; a step consumes it.
    gradient: Vec<f32>,
    /// Whether the next step keeps a copy of the gradient, and the copy.
    keeps_gradient: bool,
    kept_gradient: Option<Vec<f32>>,
    /// Steps applied and collected.
    collected: u64,
    queued: VecDeque<Outcome>,
    micro_batches: usize,
}

/// Results of a step, or the quantity that was not finite.
#[derive(Debug)]
enum Outcome {
    Applied(Trained),
    Refused { quantity: &'static str },
}

/// Results of a batch, apart from the gradient and the updated running statistics.
struct Computed {
    /// Losses without gradient norm and L2 term.
    losses: Losses,
    value_errors: Vec<f32>,
    /// Running statistics before the batch.
    running: Vec<f32>,
    times: StepTimes,
}

impl Trainer {
    /// Creates a trainer of a new network with `threads` threads and the fastest path of this CPU for the precision.
    /// The seed decides the network, as in every backend.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a precision without a path on this CPU; [`training::Error::Setting`] names a
    /// setting outside the accepted range, [`training::Error::Network`] a dimension; [`Error::Threads`].
    pub fn new(
        architecture: &Architecture,
        settings: TrainerSettings,
        seed: u64,
        threads: usize,
    ) -> Result<Self, Error> {
        let path = fastest(settings.precision)?;
        Self::with_path(architecture, settings, seed, threads, path)
    }

    /// Creates a trainer like [`new`](Self::new), with a given `path`.
    ///
    /// # Errors
    /// The same as [`new`](Self::new); [`Error::Unsupported`] for a path that this CPU lacks or that has another
    /// precision.
    pub fn with_path(
        architecture: &Architecture,
        settings: TrainerSettings,
        seed: u64,
        threads: usize,
        path: Path,
    ) -> Result<Self, Error> {
        Self::check(&settings)?;
        if !path.is_available() || path.precision() != settings.precision {
            return Err(Error::Unsupported { what: "with missing CPU instructions or in another precision" });
        }
        let layers = settings.layers(architecture)?;
        settings.check(&layers)?;
        let model = Model::new(architecture, layers, path, settings.recompute);
        let network = Numbers::initial(model.layout(), seed);
        let zeros = |&kind| Moment::zeros(kind, settings.moments, network.parameters.len());
        let moments = settings.optimiser.moment_kinds().iter().map(zeros).collect();
        Ok(Self {
            groups: model.layout().groups(settings.optimiser),
            model,
            path,
            workshop: Workshop { threads: Threads::new(threads.max(1))?, store: Store::default(), exact: None },
            gradient: vec![0.0; network.parameters.len()],
            keeps_gradient: false,
            kept_gradient: None,
            state: State {
                average: network.clone(),
                network,
                moments,
                step: 0,
                progress: 0.0,
                averaged_since: None,
                mixed: MixedPrecision::default(),
            },
            settings,
            collected: 0,
            queued: VecDeque::new(),
            micro_batches: 1,
        })
    }

    /// Checks whether these kernels train a network with these settings.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn check(settings: &TrainerSettings) -> Result<(), Error> {
        fastest(settings.precision).map(drop)
    }

    /// Returns the instruction set of the kernels.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Returns the memory that the buffers of steps take now.
    #[cfg(test)]
    pub(crate) fn allocated(&mut self, unroll_steps: usize) -> Memory {
        let floats = |numbers: &[f32]| size_of_val(numbers);
        let of_numbers = |numbers: &Numbers| floats(&numbers.parameters) + floats(&numbers.statistics);
        Memory {
            parameters: of_numbers(&self.state.network),
            moments: self.state.moments.iter().map(Moment::bytes).sum(),
            average: of_numbers(&self.state.average),
            gradient: floats(&self.gradient),
            packed_weights: (0..self.model.boards())
                .map(|board| self.model.unrolled(board, unroll_steps).packed_bytes())
                .sum(),
            activations: self.workshop.store.bytes(),
        }
    }

    /// Accumulates the losses and gradients of micro-batches of about equal size.
    fn passes(
        &mut self,
        examples: &Examples,
        value_errors: &mut [f32],
        laps: &mut Laps<'_>,
        times: &mut StepTimes,
    ) -> Losses {
        let positions = value_errors.len();
        let most = self.settings.micro_batch_of(positions);
        let targets = Targets::new(self.model.architecture(), examples, self.settings.loss_weights);
        let graph = self.model.graph(examples);
        let mut sums = Losses::ZERO;
        self.micro_batches = 0;
        for rows in evenly(positions, most) {
            let mut changes = Changes {
                statistics: &mut self.state.network.statistics,
                gradient: &mut self.gradient,
                value_errors: &mut value_errors[rows.clone()],
            };
            let parameters = &self.state.network.parameters;
            let mut forward_ended = || times.forward += laps.lap();
            let workshop = &mut self.workshop;
            sums += graph.pass(workshop, parameters, &targets, rows, most, &mut changes, &mut forward_ended);
            times.backward += laps.lap();
            self.micro_batches += 1;
        }
        sums
    }

    /// Computes the gradient of a batch, and updates the running statistics.
    fn compute(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<Computed, training::Error> {
        let positions = self.model.positions(examples)?;
        let mut times = StepTimes::default();
        let running = self.state.network.statistics.clone();
        self.model.graph(examples).pack(&self.state.network.parameters, &mut self.workshop.threads);
        self.gradient.fill(0.0);
        times.stage = laps.lap();

        let mut value_errors = vec![0.0; positions];
        let sums = self.passes(examples, &mut value_errors, laps, &mut times);
        value_errors.truncate(examples.importance().len());
        let losses = sums.with_total(&self.settings.loss_weights);
        Ok(Computed { losses, value_errors, running, times })
    }

    /// Completes a step's losses with the norms of gradient and weights. Keeps a copy of the gradient on request.
    fn with_norms(&mut self, losses: Losses) -> Losses {
        if std::mem::take(&mut self.keeps_gradient) {
            self.kept_gradient = Some(self.gradient.clone());
        }
        let (path, threads) = (self.path, &mut self.workshop.threads);
        let weights = &self.state.network.parameters[..self.model.layout().decayed()];
        let l2 = 0.5 * self.settings.weight_decay * optimiser::sum_of_squares(path, threads, weights);
        let gradient_norm = optimiser::sum_of_squares(path, threads, &self.gradient).sqrt();
        Losses { gradient_norm, l2, ..losses }
    }

    /// Applies a step: parameters, moments, averages.
    fn update(&mut self, gradient_norm: f64) {
        let learning_rate = self.learning_rate();
        let steps = self.state.step;
        if self.settings.averages_equally(self.settings.progress_after(steps, self.state.progress)) {
            self.state.averaged_since.get_or_insert(steps);
        }
        let share = self.settings.average_share(steps, self.state.averaged_since);
        self.state.step += 1;
        let settings = StepSettings {
            groups: &self.groups,
            learning_rate,
            weight_decay: self.settings.weight_decay,
            step: self.state.step,
            scale: (gradient_norm / self.settings.gradient_clip_norm).max(1.0),
            share,
        };
        let State { network, average, moments, .. } = &mut self.state;
        let trained =
            optimiser::Trained { parameters: &mut network.parameters, moments, average: &mut average.parameters };
        optimiser::apply(self.path, &mut self.workshop.threads, settings, trained, &mut self.gradient);
        optimiser::average(&mut average.statistics, &network.statistics, share);
    }

    fn not_finite(&self, quantity: &'static str) -> training::Error {
        training::Error::NotFinite { quantity, step: self.collected + 1 }
    }
}

impl training::Trainer for Trainer {
    fn add_board(&mut self, architecture: &Architecture) -> Result<usize, training::Error> {
        self.model.add_board(architecture)
    }

    /// Computes the step at once.
    fn queue(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), training::Error> {
        self.begin_check_if_due();
        let errors = self.check_apart(examples)?;
        let computed = self.compute(examples, laps);
        let exact = self.workshop.exact.take();
        let Computed { losses, value_errors, running, mut times } = computed?;
        let losses = self.with_norms(losses);
        times.backward += laps.lap();
        let outcome = match losses.not_finite() {
            Some(quantity) => {
                self.state.network.statistics = running;
                Outcome::Refused { quantity }
            }
            None => {
                if let Some(errors) = errors.or_else(|| exact.map(|exact| self.layer_errors(&exact))) {
                    self.end_check(errors);
                }
                self.update(losses.gradient_norm);
                times.optimiser = laps.lap();
                Outcome::Applied(Trained { losses, value_errors, times })
            }
        };
        self.queued.push_back(outcome);
        Ok(())
    }

    fn queue_nothing(&mut self, examples: &Examples, _: &mut Laps<'_>) -> Result<(), training::Error> {
        self.model.positions(examples)?;
        let value_errors = vec![0.0; examples.importance().len()];
        self.state.step += 1;
        self.queued.push_back(Outcome::Applied(Trained {
            losses: Losses::ZERO,
            value_errors,
            times: StepTimes::default(),
        }));
        Ok(())
    }

    fn collect(&mut self, _: &mut Laps<'_>) -> Option<Result<Trained, training::Error>> {
        Some(match self.queued.pop_front()? {
            Outcome::Applied(trained) => {
                self.collected += 1;
                Ok(trained)
            }
            Outcome::Refused { quantity } => Err(self.not_finite(quantity)),
        })
    }

    fn contribute(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<Contributed, training::Error> {
        let Computed { losses, value_errors, running, mut times } = self.compute(examples, laps)?;
        let moved = std::mem::replace(&mut self.state.network.statistics, running);
        let contribution = Contribution::new(&self.gradient, &moved, &losses);
        times.backward += laps.lap();
        Ok(Contributed { contribution, value_errors, times })
    }

    fn no_contribution(&self) -> Contribution {
        Contribution::nothing(self.gradient.len(), self.state.network.statistics.len())
    }

    /// Trainers with the same state and path that take the same mean have the same state again, bit for bit.
    fn apply(&mut self, mean: Contributed, laps: &mut Laps<'_>) -> Result<Trained, training::Error> {
        debug_assert!(self.queued.is_empty(), "a step of several learners is computed from the state of all others");
        let Contributed { contribution, value_errors, mut times } = mean;
        self.gradient.copy_from_slice(contribution.gradient());
        let losses = self.with_norms(contribution.losses());
        if let Some(quantity) = losses.not_finite() {
            return Err(self.not_finite(quantity));
        }
        self.state.network.statistics.copy_from_slice(contribution.statistics());
        self.update(losses.gradient_norm);
        self.collected += 1;
        times.optimiser = laps.lap();
        Ok(Trained { losses, value_errors, times })
    }

    /// The size of all buffers, derived from the order in which a step uses them. Each board has separate packed
    /// weights; activations are counted for the board with the most.
    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory {
        let positions = self.settings.micro_batch_of(batch);
        let mut memory = Memory::of_state(self.model.layout(), &self.settings);
        let checks_layers = self.checks_layers();
        if checks_layers {
            // A check takes another gradient, and keeps all values in float32.
            memory.gradient *= 2;
        }
        for board in 0..self.model.boards() {
            let graph = self.model.unrolled(board, unroll_steps);
            memory.packed_weights += graph.packed_bytes();
            memory.activations = memory.activations.max(graph.activation_bytes(positions, false));
            if checks_layers {
                let is_changed = graph.store_in_float32();
                memory.activations = memory.activations.max(graph.activation_bytes(positions, true));
                if is_changed {
                    graph.choose_formats();
                }
            }
        }
        memory
    }

    /// Returns 0: queuing computes the step.
    fn queue_depth(&self) -> usize {
        0
    }

    fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    fn set_progress(&mut self, progress: f64) {
        self.state.progress = if progress.is_nan() { 0.0 } else { progress.clamp(0.0, 1.0) };
    }

    fn step_count(&self) -> u64 {
        self.collected
    }

    fn learning_rate(&self) -> f64 {
        self.settings.learning_rate_after(self.state.step, self.state.progress)
    }

    /// Returns `None`: no path multiplies in float16.
    fn loss_scale(&self) -> Option<f64> {
        None
    }

    fn float32_layers(&self) -> &BTreeMap<String, f64> {
        &self.state.mixed.float32_layers
    }

    fn keep_gradient(&mut self) {
        self.keeps_gradient = true;
    }

    fn take_gradient(&mut self) -> Result<Option<Vec<f32>>, training::Error> {
        Ok(self.kept_gradient.take())
    }

    fn snapshot(&self, contents: Contents) -> Result<Box<dyn training::Snapshot>, training::Error> {
        debug_assert!(self.queued.is_empty(), "a step is queued, and whether it is applied is unknown to the caller");
        let copied = match contents {
            Contents::Average => Copied::Average(self.state.average.clone()),
            Contents::All => Copied::All(self.state.clone()),
        };
        let layout = self.model.layout().clone();
        Ok(Box::new(Snapshot { layout, optimiser: self.settings.optimiser, copied }))
    }

    fn load(&mut self, files: &[(String, Vec<u8>)]) -> Result<(), training::Error> {
        let mut state = State::read(self.model.layout(), self.settings.optimiser, self.settings.moments, files)?;
        state.mixed.loss_scale = None;
        if !self.settings.is_adaptive {
            // Without adaptive precision every layer is computed in the configured precision.
            state.mixed.float32_layers.clear();
        }
        self.model.multiply_in_float32(state.mixed.float32_layers.keys());
        let progress = state.progress;
        self.collected = state.step;
        self.state = state;
        self.queued.clear();
        self.set_progress(progress);
        Ok(())
    }

    fn placement(&self) -> Vec<Placed> {
        ["parameters", "average", "moments", "batch"].map(|what| Placed { what, device: "cpu".to_owned() }).into()
    }
}

/// Returns the fastest path for a precision.
fn fastest(precision: Precision) -> Result<Path, Error> {
    Path::fastest(precision).ok_or(Error::Unsupported { what: "in this precision on this CPU" })
}

#[cfg(test)]
mod tests;
